"""Answers that were paid for once: one file a question in `judge-cache/`, found by what was asked of whom."""

from hashlib import sha256
from pathlib import Path
from threading import Lock

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.files import read_json, write_json
from terminalbench.llm.model import BadAnswer, Reply, Schema
from terminalbench.llm.schema import parse
from terminalbench.records import Usage


class CachedAnswer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One answer on disk. `request` is the digest of the question alone, so that `replay:` finds it for any model."""

    key: str
    request: str
    rubric: str
    asked: str
    text: str
    model: str
    usage: Usage = Usage()


class AnswerCache:
    """Answers kept in the first folder and looked up in all. A file that is torn or does not fit counts as absent."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders
        self.unusable: list[str] = []
        self._lock = Lock()

    @staticmethod
    def key(rubric_digest: str, model: str, request: str) -> str:
        """What an answer is found by."""
        return sha256("\n".join((rubric_digest, model, request)).encode()).hexdigest()

    def find(self, key: str, schema: Schema) -> object | None:
        """The checked answer under `key`, or None."""
        found = (self._read(folder / _name(key), key, schema) for folder in self.folders)
        return next((answer for answer in found if answer is not None), None)

    def _read(self, file: Path, key: str, schema: Schema) -> object | None:
        try:
            kept = read_json(file, CachedAnswer)
            if kept.key != key:
                raise BadAnswer("it belongs to another question")
            return parse(kept.text, schema)
        except FileNotFoundError:
            return None
        except (TbenchError, OSError, BadAnswer) as error:
            with self._lock:
                self.unusable.append(f"{file.name}: {getattr(error, 'what', None) or error}")
            return None

    def keep(self, key: str, request: str, rubric: str, asked: str, reply: Reply) -> None:
        """Remember an answer that passed its check."""
        kept = CachedAnswer(
            key=key, request=request, rubric=rubric, asked=asked, text=reply.text, model=reply.model, usage=reply.usage
        )
        write_json(self.folders[0] / _name(key), kept)


def _name(key: str) -> str:
    return f"{key[:40]}.json"
