"""Logs of Inspect AI: `.eval` (a zip) and JSON. A sample is a task, an epoch an attempt, a model a profile.

Of a `.eval` the summaries of its samples are read, which hold their scores; a log that was cut off has them by the
piece. Score C is a pass, I and N are not, P is a reward of 0.5, a number is a reward. A sample that ended with an error
has no verdict.
"""

import io
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from terminalbench.errors import UserError, did_you_mean
from terminalbench.formats.row import RowReader, identifier, is_unknown, message, number, table_of, verdict
from terminalbench.formats.source import SourceFile, parsed
from terminalbench.records.values import known_total, total
from terminalbench.text.numbers import some

_ZIP = b"PK\x03\x04"
_HEADER, _START, _SUMMARIES, _PIECES, _SAMPLES = (
    "header.json", "_journal/start.json", "summaries.json", "_journal/summaries/", "samples/",
)  # fmt: skip
_MEMBER, _WHOLE = 1 << 28, 1 << 30
_MOST_MEMBERS = 500_000
_LETTERS = {"C": (True, None), "I": (False, None), "N": (False, None), "P": (None, 0.5)}


class InspectFormat:
    """What `inspect eval` writes."""

    def recognises(self, file: SourceFile) -> bool:
        """A zip with a header of Inspect's, or JSON with what was evaluated and its samples."""
        if file.head[:4] == _ZIP:
            return file.path.suffix.lower() == ".eval" or b"_journal/start.json" in file.head
        found = file.json
        return isinstance(found, dict) and _is_eval(found.get("eval")) and "status" in found

    def read(self, files: Sequence[SourceFile], reader: RowReader) -> None:
        """Each sample of each log; epochs are told only where one log holds a model's attempts at a task."""
        logs = [_Log(file) for file in files]
        places = [(log.profile, log.dataset) for log in logs]
        for log, place in zip(logs, places, strict=True):
            log.read(reader, alone=places.count(place) == 1)


def _is_eval(value: Any) -> bool:
    return isinstance(value, dict) and "model" in value and "task" in value


class _Log:
    """One log: what was evaluated, and its samples."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.archive = _Archive(file) if file.head[:4] == _ZIP else None
        header = self.archive.header() if self.archive is not None else file.json
        self.status = str(header.get("status") or "started")
        about = table_of(header.get("eval"))
        if not _is_eval(about):
            raise UserError("is not an Inspect log: it has no header", where=str(file.path))
        solver = identifier(about.get("solver"))
        self.model = identifier(about.get("model")) or "unnamed"
        self.profile = f"{self.model} {solver}" if solver else self.model
        self.dataset = identifier(about.get("task")) or "inspect"
        self.scorers = [str(table_of(one).get("name")) for one in about.get("scorers") or () if isinstance(one, dict)]

    def samples(self) -> Iterator[Any]:
        if self.archive is not None:
            yield from self.archive.samples()
        else:
            found = self.file.json.get("samples")
            yield from found if isinstance(found, list) else ()

    def read(self, reader: RowReader, *, alone: bool) -> None:
        if self.status != "success":
            reader.notes.append(
                f"{self.file.path.name}: the status of the log is {self.status}, so samples may be missing"
            )
        scorer = None
        for sample in self.samples():
            if not isinstance(sample, dict):
                reader.reject("the sample is not a table")
                continue
            scores = table_of(sample.get("scores"))
            scorer = scorer or self._scorer(scores, reader)
            self._add(sample, table_of(scores.get(scorer or "")), reader, alone=alone)

    def _scorer(self, scores: Mapping[str, Any], reader: RowReader) -> str | None:
        """The scorer whose value is the verdict: the one that is asked for, else the first of the log."""
        if not scores:
            return None
        asked = reader.options.columns.get("passed") or reader.options.columns.get("reward")
        if asked is not None and asked not in scores:
            hint = did_you_mean(asked, list(scores))
            raise UserError(f'has no score "{asked}"', where=str(self.file.path), hint=hint)
        found = asked or next((name for name in self.scorers if name in scores), next(iter(scores)))
        others = [name for name in scores if name != found]
        note = f"score {found} is used as the verdict; not used: {some(others)} (to use another: --column passed=NAME)"
        if others and asked is None and note not in reader.notes:
            reader.notes.append(note)
        return found

    def _add(self, sample: Mapping[str, Any], score: Mapping[str, Any], reader: RowReader, *, alone: bool) -> None:
        error = sample.get("error")
        broke = message(error.get("message") if isinstance(error, dict) else error)
        passed, reward = _value(score.get("value"))
        if isinstance(score.get("value"), dict | list):
            reader.reject("the score is a table of several values")
            return
        epoch = number(sample.get("epoch"))
        took = sample.get("working_time") if not is_unknown(sample.get("working_time")) else sample.get("total_time")
        reader.add(
            sample.get("id"),
            self.profile,
            self.dataset,
            passed=None if broke else passed,
            reward=None if broke else reward,
            attempt=int(epoch) if alone and epoch is not None and 0 < epoch < 1_000_000 else None,
            model=self.model,
            seconds=reader.amount(took, "time"),
            started_at=sample.get("started_at"),
            finished_at=sample.get("completed_at"),
            error=broke,
            **_usage(table_of(sample.get("model_usage")), reader),
        )


def _value(value: Any) -> tuple[bool | None, Any]:
    """Verdict and reward of a score."""
    if isinstance(value, str) and value in _LETTERS:
        return _LETTERS[value]
    if isinstance(value, bool):
        return value, None
    if isinstance(value, str) and number(value) is None:
        return verdict(value).passed, None
    return None, None if is_unknown(value) else value


def _usage(used: Mapping[str, Any], reader: RowReader) -> dict[str, Any]:
    """Return what all models of a sample used together; nothing is known where one does not tell."""
    names = {
        "input_tokens": "input_tokens", "output_tokens": "output_tokens", "tokens": "total_tokens",
        "cache_read_tokens": "input_tokens_cache_read", "cache_write_tokens": "input_tokens_cache_write",
    }  # fmt: skip
    found: dict[str, Any] = {}
    for ours, theirs in names.items():
        values = [reader.count(table_of(one).get(theirs), "tokens") for one in used.values()]
        found[ours] = known_total(values) if ours.startswith("cache") else total(values)
    found["cost_usd"] = total(reader.amount(table_of(one).get("total_cost"), "cost") for one in used.values())
    return found


class _Archive:
    """A `.eval`, of which members are read up to a bound: what it says of their sizes is not believed."""

    def __init__(self, file: SourceFile) -> None:
        self.where = str(file.path)
        try:
            self.zip = _zipfile().ZipFile(io.BytesIO(file.data))
        except Exception as error:  # noqa: BLE001  a broken zip raises any of a dozen
            hint = "the log is complete only after its evaluation has ended"
            raise UserError(f"is a zip that cannot be read: {error}", where=self.where, hint=hint) from None
        self.names = self.zip.namelist()
        if len(self.names) > _MOST_MEMBERS:
            raise UserError(f"contains {len(self.names)} files, more than a log can have", where=self.where)
        self.left = _WHOLE

    def header(self) -> Mapping[str, Any]:
        name = next((one for one in (_HEADER, _START) if one in self.names), None)
        return table_of(self._json(name)) if name is not None else {}

    def samples(self) -> Iterator[Any]:
        """The summaries of the samples; those of a log without them, the samples themselves."""
        pieces = [_SUMMARIES] if _SUMMARIES in self.names else sorted(n for n in self.names if n.startswith(_PIECES))
        if pieces:
            for name in pieces:
                found = self._json(name)
                yield from found if isinstance(found, list) else [None]
        else:
            for name in sorted(name for name in self.names if name.startswith(_SAMPLES) and name.endswith(".json")):
                yield self._json(name)

    def _json(self, name: str) -> Any:
        bound = min(_MEMBER, self.left)
        try:
            with self.zip.open(name) as stream:
                data = stream.read(bound + 1)
        except Exception as error:  # noqa: BLE001  every compression has its own errors
            raise UserError(f"{name} in it cannot be read: {str(error)[:200]}", where=self.where) from None
        self.left -= len(data)
        if len(data) > bound:
            raise UserError(f"{name} in it is larger than {bound >> 20} MB", where=self.where)
        return parsed(data)


def _zipfile() -> Any:
    """The module of zips that knows the compression which Inspect uses."""
    return zipfile if sys.version_info >= (3, 14) else import_module("backports.zstd.zipfile")
