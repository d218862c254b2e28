"""Which format a source has, and its rows: the only entrance to this package."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from terminalbench import registry
from terminalbench.errors import UserError, did_you_mean
from terminalbench.formats.row import ForeignResults, ReadOptions, RowReader, empty, numbered
from terminalbench.formats.source import ENDINGS, SourceFile, digest_of, source_files
from terminalbench.text.numbers import plural, some

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
            "with --pass-at N, rewards from N on pass"
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
        sums = ": it has results of whole tasks or benchmarks, not of single attempts"
        if len(files) == 1 and files[0].alone and files[0].path.suffix.lower() in _TEXTS:
            _ = files[0].text  # one that is no text says so
        why = sums if len(files) == 1 and _holds_sums(files[0].json) else ""
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
