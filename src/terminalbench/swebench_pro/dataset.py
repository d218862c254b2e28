"""The rows of SWE-Bench Pro: from a file (parquet, jsonl, csv) or from Hugging Face, each checked column by column.

Hugging Face is read at one commit. It needs the extra `swebench-pro`, and a network. The lists and texts of cells come
as values, as JSON, or as Python literals. Nothing of them is evaluated, stripped or sorted: names of tests are compared
byte by byte, and some begin with a space.
"""

import ast
import csv
import io
import json
import math
import os
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from terminalbench.errors import TbenchError, UserError
from terminalbench.workflow.languages import Language, named

HF_DATASET = "ScaleAI/SWE-bench_Pro"
HF = "hf:"
IMAGES = "jefzda/sweap-images"
"""The repository of the official images."""
COLUMNS = (
    "instance_id",
    "repo",
    "base_commit",
    "repo_language",
    "problem_statement",
    "patch",
    "test_patch",
    "fail_to_pass",
    "pass_to_pass",
    "selected_test_files_to_run",
    "before_repo_set_cmd",
)
"""What a row must have; `requirements`, `interface` and `dockerhub_tag` may be missing."""
_FILLED = ("problem_statement", "patch", "test_patch")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FIX = re.compile(r"-([0-9a-f]{40})(?:-v[0-9A-Za-z]+)?$")
_CHECKOUT = re.compile(r"git checkout ([0-9a-f]{40}) -- (.+)")
_LONGEST_ID = 200
_LONGEST_TAG = 128
_TWO_NAMES = "instance_element-hq__element-web-ec0f940ef0e8e3b61078f145f34dc40d1938e6c5-vnan"
"""The one id whose image has the repository's full name and the empty version."""


@dataclass(frozen=True)
class Instance:
    """One row, checked: a repository at a commit, what is asked for, the golden patch, and the tests that decide."""

    instance_id: str
    repo: str
    base_commit: str
    language: str
    problem_statement: str
    requirements: str
    interface: str
    patch: str
    test_patch: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    selected: tuple[str, ...]
    before_repo_set_cmd: str
    dockerhub_tag: str = ""

    @property
    def last_command(self) -> str:
        """The line of `before_repo_set_cmd` that the official evaluator runs: its last."""
        return self.before_repo_set_cmd.strip().split("\n")[-1]

    @property
    def test_checkout(self) -> tuple[str, str] | None:
        """Commit and files (as the shell reads them) that the last line takes the tests from; None if it does not."""
        match = _CHECKOUT.fullmatch(self.last_command.strip())
        return (match[1], match[2]) if match else None

    @property
    def fixes(self) -> tuple[str, ...]:
        """The commits that hold the answer, as far as the row names them: in its id and in its last line."""
        found = _FIX.search(self.instance_id)
        of_tests = self.test_checkout
        named = [found[1]] if found else []
        return tuple(dict.fromkeys([*named, *([of_tests[0]] if of_tests else [])]))

    @property
    def image(self) -> str:
        """The official image: the row's own tag, else the evaluator's rule."""
        return image_of(self.instance_id, self.repo, self.dockerhub_tag)


def image_of(instance_id: str, repo: str, tag: str = "") -> str:
    """The official image of an instance: by `tag` where the row has one, else by the rule of the evaluator."""
    if tag.strip():
        return tag.strip() if "/" in tag else f"{IMAGES}:{tag.strip()}"
    owner, _, name = repo.lower().partition("/")
    rest = instance_id.replace("instance_", "")
    if instance_id != _TWO_NAMES:
        rest = rest.removesuffix("-vnan")
        name = "element" if (owner, name) == ("element-hq", "element-web") else name
    return f"{IMAGES}:{f'{owner}.{name}-{rest}'[:_LONGEST_TAG]}"


@dataclass(frozen=True)
class RefusedRow:
    """A row that makes no task: its number (from 1) where it is known, its id, the column, and what is wrong."""

    row: int | None
    instance_id: str | None
    column: str
    why: str

    def __str__(self) -> str:
        if self.row is None:
            return f"{self.instance_id}: {self.why}"
        name = f" ({self.instance_id})" if self.instance_id else ""
        return f"row {self.row}{name}: {self.column} {self.why}"


@dataclass(frozen=True)
class SourceRows:
    """What a source holds. `revision` is the commit of the dataset, where the source knows it."""

    source: str
    instances: tuple[Instance, ...]
    refused: tuple[RefusedRow, ...]
    revision: str | None = None


def read_rows(source: str, split: str = "test") -> SourceRows:
    """The instances in a file, or in `hf:REVISION`; a row that is no instance is refused by name."""
    revision = None
    if source.startswith(HF):
        files, revision = _download(HF_DATASET, source.removeprefix(HF), split)
    else:
        files = [Path(source)]
    instances: dict[str, Instance] = {}
    refused: list[RefusedRow] = []
    number = 0
    for file in files:
        for row in _records(file):
            number += 1
            try:
                instance = instance_of(row)
                if instance.instance_id.lower() in instances:
                    raise _ColumnError("instance_id", "is that of an earlier row")
            except _ColumnError as error:
                given = row.get("instance_id")
                refused.append(RefusedRow(number, given if isinstance(given, str) else None, error.column, error.why))
            else:
                instances[instance.instance_id.lower()] = instance
    return SourceRows(source, tuple(instances.values()), tuple(refused), revision)


def _download(dataset: str, revision: str, split: str) -> tuple[list[Path], str]:
    """The parquet files of a split in the local cache, and the commit that `revision` (a branch, a tag) stands for."""
    if not revision:
        raise UserError(
            "hf: needs a revision", hint="give a commit of the dataset, such as hf:7ab5114; hf:main is the newest"
        )
    try:
        from httpx import HTTPError
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
    except ImportError as error:
        raise UserError("hf: needs huggingface-hub", hint="pip install 'terminalbench[swebench-pro]'") from error
    where = f"hf:{revision}"
    endpoint = os.environ.get("HF_ENDPOINT")
    try:
        info = HfApi(endpoint=endpoint).dataset_info(dataset, revision=revision)
        listed = sorted(sibling.rfilename for sibling in info.siblings or ())
        wanted = [name for name in listed if name.endswith(".parquet") and Path(name).name.split("-")[0] == split]
        if not wanted or info.sha is None:
            raise UserError(f'{dataset} has no split "{split}" in parquet', where=where)
        return [
            Path(hf_hub_download(dataset, name, repo_type="dataset", revision=info.sha, endpoint=endpoint))
            for name in wanted
        ], info.sha
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise UserError(f"{dataset} has no such revision, or you have no access", where=where) from error
    except (HfHubHTTPError, HTTPError, OSError) as error:
        problem = (str(error).strip() or type(error).__name__).split("\n")[0]
        hint = "download the parquet file elsewhere and name it instead"
        raise TbenchError(f"Hugging Face cannot be reached: {problem}", where=where, hint=hint) from error


class _ColumnError(ValueError):
    def __init__(self, column: str, why: str) -> None:
        super().__init__(f"{column} {why}")
        self.column, self.why = column, why


def instance_of(row: Mapping[str, Any]) -> Instance:
    """One row as an instance; raises ValueError with the column and what is wrong with it."""

    def cell(column: str, read: Any = text) -> Any:
        try:
            return read(row.get(column))
        except CellError as error:
            raise _ColumnError(column, str(error)) from error

    found = {column: cell(column) for column in ("instance_id", "repo", "base_commit", "repo_language")}
    for column, pattern, what in (
        ("instance_id", _ID, "a plain name of letters, digits and . _ -"),
        ("repo", re.compile(r"[\w.-]+/[\w.-]+"), "owner/name"),
        ("base_commit", _COMMIT, "a commit of 40 hexadecimal digits"),
    ):
        if not pattern.fullmatch(found[column]) or len(found[column]) > _LONGEST_ID:
            raise _ColumnError(column, f"is not {what}" if found[column] else "is empty")
    language = named(found["repo_language"])
    if language is None:
        known = ", ".join(Language)
        raise _ColumnError("repo_language", f'is "{found["repo_language"]}", but must be one of {known}')
    lists = {c: cell(c, names) for c in ("fail_to_pass", "pass_to_pass", "selected_test_files_to_run")}
    for column in ("fail_to_pass", "selected_test_files_to_run"):
        if not lists[column]:
            raise _ColumnError(column, "is empty")
    texts = {column: cell(column, prose) for column in ("problem_statement", "requirements", "interface")}
    patches = {column: cell(column) for column in ("patch", "test_patch")}
    for column, value in (texts | patches).items():
        if column in _FILLED and not value.strip():
            raise _ColumnError(column, "is empty")
    return Instance(
        instance_id=found["instance_id"],
        repo=found["repo"],
        base_commit=found["base_commit"],
        language=language,
        **texts,
        **patches,
        fail_to_pass=lists["fail_to_pass"],
        pass_to_pass=lists["pass_to_pass"],
        selected=lists["selected_test_files_to_run"],
        before_repo_set_cmd=cell("before_repo_set_cmd"),
        dockerhub_tag=cell("dockerhub_tag"),
    )


def _records(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file as tables with lower-case columns."""
    readers = {".parquet": _parquet, ".csv": _csv, ".jsonl": _jsonl}
    read = readers.get(file.suffix.lower())
    if read is None:
        raise UserError(
            "is not a readable table", where=str(file), hint=f"give one of {', '.join(readers)}, or hf:REVISION"
        )
    if not file.is_file():
        raise UserError("no such file", where=str(file))
    missing: Sequence[str] | None = None
    for row in read(file):
        lower = {str(key).lower(): value for key, value in row.items()}
        if missing is None:
            missing = [column for column in COLUMNS if column not in lower]
            if missing:
                raise UserError(
                    f"has no column {', '.join(missing)}", where=str(file), hint=f"the columns of {HF_DATASET}"
                )
        yield lower
    if missing is None:
        raise UserError("has no rows", where=str(file))


def _parquet(file: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(
            "reading parquet needs pyarrow", where=str(file), hint="pip install 'terminalbench[swebench-pro]'"
        ) from error
    try:
        table = parquet.ParquetFile(file)
        for batch in table.iter_batches(batch_size=64):
            yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"is not a Parquet file: {error}", where=str(file)) from error


def _csv(file: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(sys.maxsize)
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            for row in csv.DictReader(stream, strict=True):
                yield {str(key): value for key, value in row.items() if key is not None}
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"is not a CSV file: {error}", where=str(file)) from error


def _jsonl(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"line {number} is not JSON: {error}", where=str(file)) from error
            if not isinstance(row, dict):
                raise UserError(f"line {number} is not a JSON object", where=str(file))
            yield row


def language_of(name: str) -> str:
    """A language as instances name it; `js`, `ts`, `py` and `golang` are aliases."""
    found = named(name)
    if found is None:
        raise UserError(f'"{name}" is not a language of SWE-Bench Pro', hint=f"one of {', '.join(Language)}")
    return found


def parts_of(given: Iterable[str]) -> tuple[str, ...]:
    """Substrings of instance ids as a person gives them: several options, each with commas."""
    return tuple(part.strip() for value in given for part in value.split(",") if part.strip())


_NO_LITERAL = (ValueError, SyntaxError, MemoryError, RecursionError)


class CellError(ValueError):
    """A cell that does not mean what its column is for; its text says why."""


def text(value: Any) -> str:
    """A cell of text as it stands; nothing (None, NaN) is an empty one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if not isinstance(value, str):
        raise CellError(f"must be a text, not {type(value).__name__}")
    return _unicode(value)


def prose(value: Any) -> str:
    """Text as people wrote it; many rows hold it as one quoted literal with escapes."""
    written = text(value)
    if len(written) > 1 and written[0] == written[-1] and written[0] in "\"'":
        decoded = _json(written) if written[0] == '"' else None
        if decoded is None:
            decoded = _python(written)
        if isinstance(decoded, str):
            return decoded.encode("utf-8", "replace").decode()
    return written


def names(value: Any) -> tuple[str, ...]:
    """A list of names, in its order: a list, JSON or a Python literal; nothing at all is an empty list."""
    if hasattr(value, "tolist"):  # an array of numpy
        value = value.tolist()
    if isinstance(value, str) and value.strip():
        decoded = _json(value)
        value = decoded if decoded is not None else _python(value)
        if value is None:
            raise CellError("is neither a JSON list nor a Python one with commas")
    elif not isinstance(value, list | tuple):
        if text(value).strip():
            raise CellError("is no list")
        return ()
    if not isinstance(value, list | tuple):
        raise CellError(f"must be a list, not {type(value).__name__}")
    for number, item in enumerate(value):
        if not isinstance(item, str):
            raise CellError(f"has entry {number + 1}, which must be a text, not {type(item).__name__}")
    return tuple(_unicode(item) for item in value)


def _unicode(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise CellError(f"has half a character at {error.start + 1}: it cannot be written as UTF-8") from error
    return value


def _json(value: str) -> Any:
    try:
        return json.loads(value, strict=False)
    except _NO_LITERAL:
        return None


def _python(value: str) -> Any:
    """A Python literal; None when it is none. Strings side by side are no literal: Python would join them."""
    try:
        found = ast.literal_eval(value)
        tokens = [token.type for token in tokenize.generate_tokens(io.StringIO(value.strip()).readline)]
    except (*_NO_LITERAL, tokenize.TokenError):
        return None
    kinds = [kind for kind in tokens if kind not in (tokenize.NL, tokenize.COMMENT)]
    return None if (tokenize.STRING, tokenize.STRING) in pairwise(kinds) else found
