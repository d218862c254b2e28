"""A source of results: its files, found, bounded in size and decoded once; which format they have, and their rows."""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from terminalbench import registry
from terminalbench.decode import NOT_DECODED, decode
from terminalbench.errors import UserError, did_you_mean
from terminalbench.files import open_plain, read_plain
from terminalbench.formats.row import ForeignResults, ReadOptions, RowReader, empty, numbered
from terminalbench.text.numbers import plural, some

LIMIT = 1 << 29
"""Bytes of one file; what is larger is refused, for it is read as a whole."""
ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".eval", ".xml")
_HEAD = 1 << 16
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""The marks that UTF-16 begins with."""
_LONGEST_INT = 300
_DEEPEST = 12
_MOST_FILES = 100_000
GENERIC = {"results", "result", "report", "eval_results", "eval-results", "output", "junit", "data", "predictions",
           "preds", "summary", "test-results", "results_summary", "index", "scores"}  # fmt: skip
"""Names that say nothing of what is in a file: the folder's does."""


class SourceFile:
    """One file of a source. `json` and `lines` are decoded when they are first asked for."""

    def __init__(self, path: Path, root: Path, *, alone: bool = False) -> None:
        self.path = path
        self.root = root
        self.alone = alone

    @cached_property
    def head(self) -> bytes:
        """Its first bytes, by which a format knows its own."""
        with open_plain(self.path) as stream:
            if stream is None:
                raise UserError("is not a readable plain file", where=str(self.path))
            return stream.read(_HEAD) or b""

    @cached_property
    def data(self) -> bytes:
        """All of it."""
        found = read_plain(self.path, LIMIT)
        if found is None:
            raise UserError(f"cannot be read, or is larger than {LIMIT >> 20} MB", where=str(self.path))
        return found

    @cached_property
    def text(self) -> str:
        """All of it as text: UTF-8 or UTF-16, with or without a mark at its beginning."""
        if self.head[:2] == b"\x1f\x8b":
            raise UserError("is compressed by gzip", where=str(self.path), hint="unpack it: gunzip")
        marked = self.head[:2] in _UTF16
        if not marked and b"\0" in self.head[:2]:
            raise UserError("is UTF-16 without a mark", where=str(self.path), hint="save it as UTF-8")
        try:
            return self.data.decode("utf-16" if marked else "utf-8-sig")
        except UnicodeDecodeError as error:
            hint = "save it as UTF-8"
            raise UserError(f"is not UTF-8 text: byte {error.start}", where=str(self.path), hint=hint) from None

    @cached_property
    def utf8(self) -> bytes:
        """All of it in UTF-8, without a mark, as JSON is decoded; what is no text as it is."""
        return self.text.encode() if self.head[:2] in _UTF16 else self.data.removeprefix(b"\xef\xbb\xbf")

    @cached_property
    def json(self) -> Any:
        """Its JSON value, None where it holds none; NaN is taken, as Python's writers leave it."""
        return parsed(self.utf8) if self._begins[:1] in (b"{", b"[") else None

    @cached_property
    def first_line(self) -> Any:
        """The value of its first line, where that is a JSON object: JSONL is recognised by it."""
        line = self._begins.split(b"\n", 1)[0]
        found = parsed(line) if line.lstrip()[:1] == b"{" else None
        return found if isinstance(found, dict) else None

    @cached_property
    def _begins(self) -> bytes:
        """Its first bytes in UTF-8, without what stands before a JSON value."""
        head = self.head.decode("utf-16", "ignore").encode() if self.head[:2] in _UTF16 else self.head
        return head.lstrip(b"\xef\xbb\xbf \t\r\n")

    @cached_property
    def label(self) -> str:
        """Return what a profile is called that only its file names: the file, or its folder where that name says
        nothing."""
        stem = self.path.name.split(".json")[0] if self.path.name.endswith(".json") else self.path.stem
        names = [stem, *(folder.name for folder in self.path.parents[:2])]
        return next((name for name in names if name and name.lower() not in GENERIC), stem)


def parsed(data: bytes) -> Any:
    """A JSON value of bytes, None where they hold none."""
    try:
        return decode(data)
    except NOT_DECODED:
        pass
    try:
        return json.loads(data, parse_int=lambda text: int(text) if len(text) <= _LONGEST_INT else float(text))
    except (ValueError, RecursionError):
        return None


def source_files(path: Path) -> list[SourceFile]:
    """The files of a source that may hold results: itself, or those in a folder, by name; links are not followed."""
    if not path.exists():
        raise UserError("there is no such file or folder", where=str(path))
    if not path.is_dir():
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError("is neither a file nor a folder", where=str(path))
        return [SourceFile(path.resolve(), path.resolve().parent, alone=True)]
    found = [SourceFile(file, path.resolve()) for file in _walk(path.resolve(), 0)]
    if len(found) > _MOST_FILES:
        raise UserError(
            f"holds more than {plural(_MOST_FILES, 'file')}", where=str(path), hint="name a folder inside it"
        )
    return found


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in listed:
        if entry.name.startswith("."):
            continue
        if entry.is_file(follow_symlinks=False) and entry.name.lower().endswith(ENDINGS):
            yield folder / entry.name
        elif entry.is_dir(follow_symlinks=False) and depth < _DEEPEST:
            yield from _walk(folder / entry.name, depth + 1)


def digest_of(files: Sequence[Path], root: Path) -> str:
    """Return what changes when one of the files does, wherever the source lies: a digest of their names in it and
    contents."""
    whole = hashlib.sha256()
    for file in sorted(files):
        name = file.relative_to(root).as_posix() if len(files) > 1 and file.is_relative_to(root) else file.suffix
        whole.update(f"{name}\0".encode(errors="surrogateescape"))
        with open_plain(file) as stream:
            if stream is None:
                continue
            while chunk := stream.read(1 << 20):
                whole.update(chunk)
    return whole.hexdigest()


KIND = "result formats"
ORDER = ("inspect", "junit", "promptfoo", "terminal-bench", "swe-bench-pro", "swe-bench", "table")
"""The order in which formats are asked whether a file is theirs: the table, which takes the most, last."""
_TEXTS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
_MOST_ROWS = 2_000_000


class ResultFormat(Protocol):
    """A format of results: how a file of it is recognised by its content, and what it holds."""

    def recognises(self, file: SourceFile) -> bool:
        """Return whether the file is of this format."""
        ...

    def read(self, files: Sequence[SourceFile], reader: RowReader) -> None:
        """Put what the files hold into `reader`: `add` a row, `reject` what cannot be used, append `notes`."""
        ...


def read_results(path: Path, options: ReadOptions | None = None) -> ForeignResults:
    """The attempts that a file or a folder holds, whatever tool wrote it; an error where no format is recognised."""
    options = options or ReadOptions()
    name, files = _recognised(path, options)
    reader = RowReader(options)
    registry.resolve(KIND, name)().read(files, reader)
    if len(reader.rows) > _MOST_ROWS:
        raise UserError(f"holds more than {plural(_MOST_ROWS, 'row')}", where=str(path), hint="split it")
    rows = numbered(reader.rows, reader.rejected)
    if not rows:
        raise empty(path, reader.rejected)
    highest = max((row.reward for row in rows if row.passed is None and row.reward is not None), default=0.0)
    if highest > 1:
        hint = "give the threshold with --pass-at N, or name a column with verdicts: --column passed=COLUMN"
        told = f"its rewards go up to {highest:g}, and the reward needed to pass is unknown"
        raise UserError(told, where=str(path), hint=hint)
    between = sum(row.passed is None and row.reward is not None and 0 < row.reward < 1 for row in rows)
    if between:
        reader.notes.append(
            f"{plural(between, 'reward')} between 0 and 1 {'counts' if between == 1 else 'count'} as not passed; "
            "with --pass-at N, rewards from N on pass, and --metric reward compares their means"
        )
    unread = [
        f"{plural(count, 'value')} of {what} cannot be read (counted as unknown)"
        for what, count in reader.unread.items()
    ]
    paths = list(dict.fromkeys([*(file.path for file in files), *reader.beside]))
    return ForeignResults(
        format=name,
        rows=rows,
        rejected=dict(reader.rejected),
        notes=[*reader.notes, *unread],
        files=paths,
        digest=digest_of(paths, path.resolve()),
        guessed=reader.guessed and options.profile is None,
    )


def _recognised(path: Path, options: ReadOptions) -> tuple[str, list[SourceFile]]:
    """The format of a source and its files of that format; the other files of a folder are passed over."""
    files = source_files(path)
    if options.format is not None:
        known = registry.names(KIND)
        if options.format not in known:
            raise UserError(f'no result format is called "{options.format}"', hint=did_you_mean(options.format, known))
        kept = files if len(files) == 1 else [file for file in files if _is(options.format, file)]
        if kept:
            return options.format, kept
    found: dict[str, list[SourceFile]] = {}
    others = [name for name in registry.names(KIND) if name not in ORDER]
    for file in files if options.format is None else ():
        name = next((name for name in (*others, *ORDER) if _is(name, file)), None)
        if name is not None:
            found.setdefault(name, []).append(file)
    if len(found) == 1:
        return next((name, kept) for name, kept in found.items())
    if not found:
        predictions = ": it has predictions, which have no verdict: name the report of their evaluation"
        sums = ": it has results of whole tasks or benchmarks, not of single attempts"
        if len(files) == 1 and files[0].alone and files[0].path.suffix.lower() in _TEXTS:
            _ = files[0].text  # one that is no text says so
        held = files[0].json if len(files) == 1 else None
        why = predictions if _holds_predictions(held) else sums if _holds_sums(held) else ""
        raise UserError(
            f"no result format is recognised in {_looked_at(path, files)}{why}",
            where=str(path),
            hint=f"formats: {', '.join(ORDER)}, and Harbor jobs; a table needs a header with a column for the task "
            "and one for passed or reward, or --column NAME=COLUMN; a batch folder has a plan.json",
        )
    held = some([f"{plural(len(kept), 'file')} of {name}" for name, kept in found.items()])
    raise UserError(
        f"contains results in several formats: {held}", where=str(path), hint="name one file, or give --format"
    )


def _looked_at(path: Path, files: Sequence[SourceFile]) -> str:
    if not path.is_dir():
        return "it"
    if not files:
        return f"it: it holds no file that ends in {', '.join(ENDINGS)}"
    return f"its {plural(len(files), 'file')}: {some([file.path.relative_to(file.root).as_posix() for file in files])}"


def _holds_predictions(found: Any) -> bool:
    """Return whether JSON holds patches by the names of instances, as mini-swe-agent writes them."""
    return isinstance(found, dict) and any(isinstance(one, dict) and "model_patch" in one for one in found.values())


def _holds_sums(found: Any) -> bool:
    """Return whether JSON holds numbers by the names of what they are of, as the results of lm-eval do."""
    by_name = found.get("results", found) if isinstance(found, dict) else None
    return (
        isinstance(by_name, dict)
        and bool(by_name)
        and all(
            isinstance(one, dict) and any(isinstance(v, int | float) for v in one.values()) for one in by_name.values()
        )
    )


def _is(name: str, file: SourceFile) -> bool:
    """Return whether a file is of a format; in a folder, one that cannot be read is of none."""
    try:
        return bool(registry.resolve(KIND, name)().recognises(file))
    except UserError:
        if file.alone:
            raise
        return False
