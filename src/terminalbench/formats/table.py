"""Tables: CSV, TSV, JSONL, JSON, Parquet. A column is named by an option, or guessed and said."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from terminalbench.errors import UserError, did_you_mean
from terminalbench.formats.row import RowReader, identifier, is_unknown, message, number, share, table_of, verdict
from terminalbench.formats.source import LIMIT, SourceFile, parsed
from terminalbench.text.foreign import short
from terminalbench.text.numbers import some

GUESSES: dict[str, tuple[str, ...]] = {
    "task": ("question_id", "task", "task_id", "task_name", "instance_id", "instance", "problem", "problem_id",
             "sample_id", "test", "test_name", "case", "id"),
    "profile": ("profile", "agent_key", "config", "variant", "system", "arm", "model_name_or_path"),
    "passed": ("passed", "pass", "success", "resolved", "is_resolved", "correct", "is_correct", "solved", "outcome",
               "verdict", "status", "result", "test_result.report.resolved"),
    "reward": ("reward", "score", "accuracy", "reward_info.reward"),
    "attempt": ("attempt", "trial_number", "epoch", "repeat", "run", "trial", "seed"),
    "dataset": ("dataset", "benchmark"),
    "family": ("family", "category", "group", "repo"),
    "agent": ("agent", "agent_name", "scaffold"),
    "model": ("model", "model_name"),
    "cost": ("cost", "cost_usd", "usd", "total_cost", "total_cost_usd", "price", "agent_cost"),
    "tokens": ("tokens", "total_tokens"),
    "input_tokens": ("input_tokens", "prompt_tokens", "n_input_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens", "n_output_tokens"),
    "cache_read_tokens": ("cache_read_tokens",),
    "cache_write_tokens": ("cache_write_tokens",),
    "seconds": ("seconds", "agent_sec", "wall_sec", "time_sec", "duration_sec", "elapsed_sec", "duration", "elapsed",
                "time", "runtime", "latency", "latency_s", "latency_sec", "duration_s", "elapsed_s", "time_s",
                "runtime_s", "duration_ms", "elapsed_ms", "latency_ms", "time_ms", "runtime_ms"),
    "error": ("error", "error_message", "exception", "reason", "info.error"),
    "error_type": ("error_type", "error_class", "exception_type"),
    "started_at": ("started_at", "start_time"),
    "finished_at": ("finished_at", "end_time"),
    "superseded": ("superseded",),
}  # fmt: skip
"""What a row is made of, and the names its column may have, the likeliest first."""
COLUMNS = tuple(GUESSES)
_INNER = tuple(name for guesses in GUESSES.values() for name in guesses if "." in name)
_DEEPEST = 2
"""Levels of a JSON document on which its list of rows is looked for."""
_MAGIC = b"PAR1"
_DELIMITERS = ",;\t|"
_AMOUNTS = {"cost": "cost_usd", "seconds": "seconds"}
_COUNTS = ("tokens", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_COMMENT = "#"
_SEPARATOR = re.compile(r"sep=.\r?\n")
"""The line by which Excel is told what stands between the columns."""
_DECIMAL = re.compile(r"^-?\d+,\d+$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BAD_CELL = "passed is neither true nor false"


class TableFormat:
    """Rows with named columns; a task and a verdict or a reward are needed."""

    def recognises(self, file: SourceFile) -> bool:
        """A table is one whose columns tell the task and the verdict."""
        if file.head[:4] == _MAGIC:
            return True
        if isinstance(file.json, list | dict) and (rows := _listed(file)) is not None:
            return any(isinstance(row, dict) and (file.alone or _enough(row)) for row in rows[:20])
        if isinstance(file.json, dict):
            if file.alone and _nested(file.json) is not None:
                return True
            return file.path.suffix.lower() in (".jsonl", ".ndjson") and (file.alone or _enough(file.json))
        if file.first_line is not None:
            return file.alone or _enough(file.first_line)
        if file.head[:1] in (b"{", b"[", b"<") or b"\0" in file.head[:100].replace(b"\0", b"", 50):
            return False
        text = file.head.replace(b"\0", b"").decode("latin-1").lstrip("ï»¿ÿþ")
        first = next((line for line in text.split("\n") if line.strip() and not line.startswith(_COMMENT)), "")
        if file.alone:
            return file.path.suffix.lower() in (".csv", ".tsv") or any(mark in first for mark in _DELIMITERS)
        return _enough(dict.fromkeys(re.split(f"[{_DELIMITERS}]", first)))

    def read(self, files: Sequence[SourceFile], reader: RowReader) -> None:
        """Each row of each file is an attempt. Files of the same name are told apart by their folders."""
        labels = Counter(file.label for file in files)
        for file in files:
            if labels[file.label] > 1:
                file.label = file.path.relative_to(file.root).with_suffix("").as_posix()
            _read_file(file, reader)


def _enough(row: Mapping[str, Any]) -> bool:
    """Return whether the names of columns tell the task and the verdict."""
    names = {_plain(str(name)) for name in row} | {name for name in _INNER if _inside(row, name) is not None}
    verdicts = {name for one in ("passed", "reward") for name in GUESSES[one]}
    return bool(names & set(GUESSES["task"])) and bool(names & verdicts)


def _read_file(file: SourceFile, reader: RowReader) -> None:
    header, rows = _rows(file, reader)
    header, rows = _opened(header, list(rows), reader)
    header, rows = _long(header, rows, reader)
    names = _columns(file, header, rows[:1], reader)
    named = names.get("profile") or names.get("agent") or names.get("model")
    if named is None:
        reader.guessed = True
        if reader.options.profile is None:
            reader.notes.append(
                f"{file.path.name} has no column for the profile, so all rows get the profile {file.label}"
            )
    broke = 0
    for row in rows:
        broke += _add(file, row, names, reader)
    if broke:
        reader.notes.append(f"{broke} rows with an error and no pass count as broken, not as failures")
    said = names.get("passed", "")
    if _plain(said) == "status" and "passed" not in reader.options.columns and _never_fails(rows, said):
        hint = "if it says only that the attempt ended, name the verdict: --column passed=COLUMN"
        reader.notes.append(f"no row has failed by its {said}; {hint}")


def _never_fails(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return not any(verdict(row.get(name)).passed is False for row in rows)


def _opened(
    header: list[str], rows: list[Mapping[str, Any]], reader: RowReader
) -> tuple[list[str], list[Mapping[str, Any]]]:
    """Return the table with a column for each value inside an object that is asked for or usual: `metrics.cost`."""
    wanted = dict.fromkeys(name for name in (*reader.options.columns.values(), *_INNER) if "." in name)
    inner = [name for name in wanted if name not in header and any(_inside(row, name) is not None for row in rows)]
    if not inner:
        return header, rows
    return [*header, *inner], [{**row, **{name: _inside(row, name) for name in inner}} for row in rows]


def _inside(row: Mapping[str, Any], name: str) -> Any:
    """Return the value at a dotted name inside the objects of a row, also of those written as JSON; None for none."""
    value: Any = row
    for part in name.split("."):
        value = _object(value).get(part)
    return value


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str) and value[:1] == "{":
        value = parsed(value.encode())
    return table_of(value)


def _long(
    header: list[str], rows: list[Mapping[str, Any]], reader: RowReader
) -> tuple[list[str], list[Mapping[str, Any]]]:
    """Return the table with a row an attempt, where it has a row a task and a column of verdicts for each profile."""
    asked, held = reader.options.columns, {_plain(name) for name in header}
    ones = ("profile", "agent", "model", "passed", "reward")
    if any(key in asked or not held.isdisjoint(GUESSES[key]) for key in ones):
        return header, rows
    taken = {_plain(name) for name in asked.values()} | {name for guesses in GUESSES.values() for name in guesses}
    profiles = [
        name for name in header if _plain(name) not in taken and _holds_verdicts([row.get(name) for row in rows])
    ]
    others = [name for name in header if name not in profiles]
    if len(profiles) < 2 or not ("task" in asked or held & set(GUESSES["task"])):
        return header, rows
    reader.notes.append(f"each of these columns is read as a profile, its cells as verdicts: {some(profiles, 8)}")
    if empty := sum(is_unknown(row.get(profile)) for row in rows for profile in profiles):
        reader.reject("the cell of a profile is empty", empty)
    kept = [{name: row.get(name) for name in others} for row in rows]
    long: list[Mapping[str, Any]] = [
        {**rest, "profile": profile, **({"passed": cell} if verdict(cell).read else {"reward": cell})}
        for row, rest in zip(rows, kept, strict=True)
        for profile in profiles
        if not is_unknown(cell := row.get(profile))
    ]
    return [*others, "profile", "passed", "reward"], long


def _holds_verdicts(cells: Sequence[object]) -> bool:
    """Return whether all cells that are filled in, and at least one, are verdicts or rewards between 0 and 1."""
    filled = [cell for cell in cells if not is_unknown(cell)]
    return bool(filled) and all(map(_is_verdict, filled))


def _is_verdict(cell: object) -> bool:
    reward = share(cell)
    return verdict(cell).read or (reward is not None and 0 <= reward <= 1)


def _add(file: SourceFile, row: Mapping[str, Any], names: Mapping[str, str], reader: RowReader) -> bool:
    """Keep one row; whether an error makes of what its verdict calls failed an attempt that broke."""
    cells = {key: row.get(name) for key, name in names.items()}
    if all(is_unknown(value) for value in row.values()):
        reader.reject("the row is empty")
        return False
    if verdict(cells.get("superseded")).passed:
        reader.reject("a superseded try")
        return False
    said = verdict(cells.get("passed"))
    passed = said.passed
    if not said.read:
        if _BAD_CELL not in reader.rejected:
            told = short(str(cells["passed"]), 40)
            reader.notes.append(f'the first value that is neither true nor false: {names["passed"]} is "{told}"')
        reader.reject(_BAD_CELL)
        return False
    # beside the word failed of a column of outcomes, an error is only its reason
    outcome = str(cells.get("passed")).strip().lower() == "failed"
    error = message(cells.get("error")) or message(cells.get("error_type")) or said.error
    lost = passed is False or (passed is None and message(cells.get("error")) and share(cells.get("reward")) == 0)
    broke = bool(error is not None and lost and not outcome)
    attempt = _attempt(cells.get("attempt"), reader)
    amounts = {to: reader.amount(cells.get(key), key) for key, to in _AMOUNTS.items()}
    if amounts["seconds"] is not None and _plain(names["seconds"]).endswith("_ms"):
        amounts["seconds"] /= 1000
    reader.add(
        cells.get("task"),
        _profile(cells, file),
        str(cells.get("dataset") or ("swe-bench" if _plain(names.get("task", "")) == "instance_id" else "table")),
        passed=None if broke else passed,
        reward=None if broke or is_unknown(cells.get("reward")) else cells.get("reward"),
        attempt=attempt,
        not_run=said.not_run or None,
        family=identifier(cells.get("family")),
        agent=identifier(cells.get("agent")),
        model=identifier(cells.get("model")),
        error=error if passed is not True and (broke or passed is None) else None,
        error_type=identifier(cells.get("error_type")),
        started_at=cells.get("started_at"),
        finished_at=cells.get("finished_at"),
        **amounts,
        **{key: reader.count(cells.get(key), key) for key in _COUNTS},
    )
    return broke


def _profile(cells: Mapping[str, Any], file: SourceFile) -> str:
    own = identifier(cells.get("profile"))
    parts = [part for part in (identifier(cells.get("agent")), identifier(cells.get("model"))) if part]
    return own or "/".join(parts) or file.label


def _attempt(value: object, reader: RowReader) -> int | None:
    if is_unknown(value):
        return None
    found = number(value)
    if found is None or found != int(found) or found < 0 or found > 1_000_000:
        reader.unread["attempt"] += 1
        return None
    return int(found)


def _columns(
    file: SourceFile, header: Sequence[str], first: Sequence[Mapping[str, Any]], reader: RowReader
) -> dict[str, str]:
    """Return which column holds what: as the options say, else by its name; what was guessed and what is not used is
    noted."""
    plain: dict[str, str] = {}
    for name in header:
        plain.setdefault(_plain(name), name)
    found: dict[str, str] = {}
    for key, name in reader.options.columns.items():
        if key not in COLUMNS:
            raise UserError(f'--column: a row has no "{key}"', hint=did_you_mean(key, COLUMNS))
        if name and name not in header and _plain(name) not in plain:
            raise UserError(f'has no column "{name}"', where=str(file.path), hint=did_you_mean(name, list(header)))
        if name:
            found[key] = name if name in header else plain[_plain(name)]
    taken = set(found.values())
    for key, guesses in GUESSES.items():
        name = next((plain[one] for one in guesses if one in plain and plain[one] not in taken), None)
        if key not in reader.options.columns and name is not None:
            found[key] = name
            taken.add(name)
    twice = [name for name in taken if list(header).count(name) > 1]
    if twice:
        raise UserError(f"has the column {some(twice)} more than once", where=str(file.path))
    if "task" not in found or not {"passed", "reward"} & set(found):
        missing = "for the task" if "task" not in found else "for passed or reward, so no row has a verdict"
        if "model_patch" in plain and "task" in found:
            hint = "these are predictions: run the evaluation of the benchmark on them and name its report"
            raise UserError(f"has no column {missing}", where=str(file.path), hint=hint)
        inner = {name: [f"{name}.{one}" for row in first for one in _object(row.get(name))] for name in header}
        held = [one for name in header for one in inner[name] or [name]]
        hint = f"--column {'task' if 'task' not in found else 'passed'}=COLUMN; it has {some(held, 24)}"
        shape = "each row is one attempt, or a task with a column of verdicts for each profile"
        raise UserError(f"has no column {missing}", where=str(file.path), hint=f"{hint}; {shape}")
    guessed = [f"{key} = {name}" for key, name in found.items() if key not in reader.options.columns and key != name]
    unused = [name for name in header if name not in taken]
    note = f"columns guessed: {', '.join(guessed)}" if guessed else ""
    note += f"{'; ' if note and unused else ''}{f'columns not used: {some(unused, 8)}' if unused else ''}"
    if note and note not in reader.notes:
        reader.notes.append(note)
    return found


def _plain(name: str) -> str:
    return "_".join(_HUMP.sub("_", name).strip().lower().replace("-", " ").replace("_", " ").split())


def _rows(file: SourceFile, reader: RowReader) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    """The names of the columns, and the rows."""
    if file.head[:4] == _MAGIC:
        return _parquet(file)
    if isinstance(file.json, list | dict) or file.first_line is not None:
        rows = list(_objects(file, reader))  # of JSON, or of its lines
        return list(dict.fromkeys(name for row in rows for name in row)), iter(rows)
    return _csv(file, reader)


def _listed(file: SourceFile) -> list[Any] | None:
    """The rows of a JSON value: itself, or the one list in it whose objects are rows; of a file that is named, the one
    list of objects in it."""
    if isinstance(file.json, list):
        return file.json
    names, cells = (table_of(file.json).get(name) for name in ("columns", "data"))
    if isinstance(names, list) and isinstance(cells, list) and all(isinstance(row, list) for row in cells):
        return [dict(zip(map(str, names), row, strict=False)) for row in cells]  # as W&B and pandas split a table
    level, others = [table_of(file.json)], []
    for _ in range(_DEEPEST):
        values = [value for one in level for value in one.values()]
        lists = [one for one in values if isinstance(one, list) and any(isinstance(row, dict) for row in one[:20])]
        told = [one for one in lists if any(isinstance(row, dict) and _enough(row) for row in one[:20])]
        if told:
            return told[0] if len(told) == 1 else None
        others += lists
        level = [one for one in values if isinstance(one, dict)]
    return others[0] if file.alone and len(others) == 1 else None


def _nested(found: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of verdicts by profile and task, or by task and profile: the tasks are the side with more names.

    None where the JSON is something else: what holds fractions is sums of benchmarks.
    """
    if not all(isinstance(row, dict) for row in found.values()):
        return None
    cells = [
        (outer, inner, cell)
        for outer, row in found.items()
        for inner, told in row.items()
        for cell in (told if isinstance(told, list) else [told])
    ]
    names = {inner for _, inner, _ in cells}
    known = {name for guesses in GUESSES.values() for name in guesses}
    verdicts = [cell for *_, cell in cells]
    if any(isinstance(cell, float) for cell in verdicts) or not _holds_verdicts(verdicts):
        return None
    if not known.isdisjoint(map(_plain, names)):  # columns of a task
        return None
    keys = ("profile", "task") if len(found) <= len(names) else ("task", "profile")
    return [{keys[0]: outer, keys[1]: inner, "passed": cell} for outer, inner, cell in cells]


def _objects(file: SourceFile, reader: RowReader) -> Iterator[Mapping[str, Any]]:
    listed = _listed(file) if isinstance(file.json, list | dict) else None
    if listed is None and isinstance(file.json, dict) and (nested := _nested(file.json)) is not None:
        profiles, tasks = ([*dict.fromkeys(row[key] for row in nested)] for key in ("profile", "task"))
        reader.notes.append(f"names read as profiles: {some(profiles, 8)}; as tasks: {some(tasks, 8)}")
        if empty := sum(is_unknown(row["passed"]) for row in nested):
            reader.reject("the cell of a profile is empty", empty)
        listed = [row for row in nested if not is_unknown(row["passed"])]
    values = listed if listed is not None else (parsed(line) for line in file.utf8.splitlines() if line.strip())
    for value in values:
        if isinstance(value, dict):
            yield value
        else:
            reader.reject("the line is not a JSON object")


def _csv(file: SourceFile, reader: RowReader) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    text = file.text.lstrip("\r\n")
    while text.startswith(_COMMENT) or _SEPARATOR.match(text):
        text = text.partition("\n")[2].lstrip("\r\n")
    first = text.split("\n", 1)[0]
    delimiter = max(_DELIMITERS, key=first.count) if any(mark in first for mark in _DELIMITERS) else ","
    csv.field_size_limit(LIMIT)
    table = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        lines = [line for line in table if line]
    except csv.Error as error:
        raise UserError(f"is not CSV: {error}", where=f"{file.path}:{table.line_num}") from None
    if not lines:
        raise UserError("is empty", where=str(file.path))
    header = [name.strip() for name in lines[0]]

    def rows() -> Iterator[Mapping[str, Any]]:
        for line in lines[1:]:
            if len(line) != len(header):
                reader.reject("the row has more or fewer fields than the header")
                continue
            cells = (field.strip() for field in line)
            yield dict(zip(header, map(_with_point, cells) if delimiter == ";" else cells, strict=True))

    return header, rows()


def _with_point(cell: str) -> str:
    """A number with a comma as its decimal sign, as tables between semicolons have it, with a point."""
    return cell.replace(",", ".") if _DECIMAL.match(cell) else cell


def _parquet(file: SourceFile) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    try:
        library = import_module("pyarrow.parquet")
    except ImportError:
        hint = 'pip install "terminalbench[dataframes]", or save the table as CSV'
        raise UserError("is Parquet, which needs pyarrow", where=str(file.path), hint=hint) from None
    try:
        table = library.ParquetFile(file.path)
        header = list(table.schema_arrow.names)

        def rows() -> Iterator[Mapping[str, Any]]:
            for batch in table.iter_batches():
                yield from batch.to_pylist()

        return header, iter(list(rows()))
    except Exception as error:  # noqa: BLE001  pyarrow has its own errors, and a broken file raises any of them
        raise UserError(f"cannot be read as Parquet: {str(error)[:200]}", where=str(file.path)) from None
