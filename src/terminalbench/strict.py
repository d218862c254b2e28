"""Strict reading of what a person writes: TOML into dataclasses, every problem at once; paths that never crash.

A `table` is a frozen dataclass whose fields are declared with `key(...)`. The declarations are the single source for
checking (`read`), for the JSON Schema and for the documentation of every key. Why not Pydantic:
docs/design/strict-tables.md.
"""

import errno
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import date, datetime, time
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from terminalbench.errors import Problem, UserError, closest, did_you_mean
from terminalbench.frozen import frozen, is_required


@frozen
class KeyRule:
    """What is known of one key besides its type. `pattern`: of a string, of each in a list, of the keys of a table.

    `hint` is said with a limit that is broken.
    """

    doc: str
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None
    pattern: str | None = None
    pattern_doc: str | None = None
    non_empty: bool = False
    example: str | None = None
    hint: str | None = None


def key(doc: str, *, required: bool = False, default: Any = None, factory: Any = MISSING, **limits: Any) -> Any:
    """Declare one key of a table: its one-line documentation, default (None: not set) and limits (see `KeyRule`)."""
    metadata = {"rule": KeyRule(doc, **limits)}
    if factory is not MISSING:
        return field(default_factory=factory, metadata=metadata)
    return field(default=MISSING if required else default, metadata=metadata)


table = frozen
"""Declares a class of keys."""


@dataclass
class Problems:
    """The mistakes found so far, and the keys they make unusable."""

    found: list[Problem] = field(default_factory=list)

    def add(self, at: str, what: str, hint: str | None = None) -> None:
        """Note a mistake at key `at`."""
        self.found.append(Problem(at, what, hint))

    def at(self, prefix: str) -> bool:
        """Return whether something is wrong at `prefix` or below it."""
        return any(p.key == prefix or p.key.startswith((f"{prefix}.", f"{prefix}[")) for p in self.found)


_LONGEST_NAME = 255
LARGEST = 10**15
"""The largest whole number any key takes."""

_ANY_NUMBER = KeyRule("A number.")

BAD = object()
"""Stands for a value that was wrong; the problem is already noted."""


def rule_of(declared: Field[Any]) -> KeyRule:
    """The rule a field was declared with."""
    return declared.metadata["rule"]


@cache
def hints(table: Any) -> dict[str, Any]:
    """The types of a table's keys."""
    return get_type_hints(table)


def join(at: str, name: str) -> str:
    """The dotted key of `name` in the table at `at`; odd names are quoted as TOML wants them."""
    shown = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)
    return f"{at}.{shown}" if at else shown


def _quoted(name: str) -> str:
    """A key as a TOML string in one line: what would move the cursor or break the line is escaped."""
    text = name.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04X}" for c in text) + '"'


def given(table: Any, raw: Mapping[str, Any], at: str, problems: Problems) -> dict[str, Any]:
    """The valid keys that `raw` sets, checked by the declarations of `table`; problems are noted."""
    types = hints(table)
    declared = {f.name: f for f in fields(table)}
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in declared:
            problems.add(join(at, name), "unknown key", did_you_mean(name, list(declared), limit=40))
            continue
        checked = _value(value, types[name], rule_of(declared[name]), join(at, name), problems)
        if checked is not BAD:
            values[name] = checked
    return values


def read(table: Any, raw: Any, at: str, problems: Problems) -> Any:
    """`raw` as an instance of `table`. Wrong keys take their default so that checking can go on."""
    if not isinstance(raw, Mapping):
        needed = [f.name for f in filter(is_required, fields(table))]
        hint = f'as in {{ {needed[0]} = "..." }}' if isinstance(raw, str) and len(needed) == 1 else None
        problems.add(at, f"must be a table, not {shown(raw)}", hint)
    values = given(table, raw, at, problems) if isinstance(raw, Mapping) else {}
    for f in filter(is_required, fields(table)):
        if isinstance(raw, Mapping) and f.name not in raw:
            problems.add(join(at, f.name), "is required", rule_of(f).doc)
        values.setdefault(f.name, None)
    return table(**values)


def shown(value: Any) -> str:
    """A short name of what was given, without repeating a value that could be a secret."""
    names = {str: "a string", list: "a list", datetime: "a date with a time", date: "a date", time: "a time"}
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        return "a table"
    return names.get(type(value), f"a {type(value).__name__}")


def _value(value: Any, kind: Any, rule: KeyRule | None, at: str, problems: Problems) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _union(value, [k for k in get_args(kind) if k is not NoneType], rule, at, problems)
    if origin is Literal:
        return _choice(value, get_args(kind), at, problems)
    if origin is list:
        return _list(value, get_args(kind)[0], rule, at, problems)
    if origin is dict:
        return _dict(value, get_args(kind)[1], rule, at, problems)
    if is_dataclass(kind):
        return read(kind, value, at, problems)
    if kind is Any:
        return _free(value, at, problems)
    return _scalar(value, kind, rule, at, problems)


def _free(value: Any, at: str, problems: Problems) -> Any:
    """Return a value of any shape, if JSON can hold it: a plan and an agent get it as JSON."""
    if isinstance(value, Mapping):
        return _dict(value, Any, None, at, problems)
    if isinstance(value, list):
        return _list(value, Any, None, at, problems)
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        return _scalar(value, type(value), _ANY_NUMBER, at, problems)
    problems.add(at, f"is {shown(value)}, which cannot be passed to an agent", f'write it as a string: "{value}"')
    return BAD


def _union(value: Any, kinds: list[Any], rule: KeyRule | None, at: str, problems: Problems) -> Any:
    for kind in kinds:
        base = get_origin(kind) or kind
        choice = base is Literal and type(value) in {type(c) for c in get_args(kind)}
        if choice or (isinstance(base, type) and _is(value, base)):
            return _value(value, kind, rule, at, problems)
    if len(kinds) == 1:
        return _value(value, kinds[0], rule, at, problems)
    problems.add(at, f"must be {' or '.join(describe(k) for k in kinds)}, not {shown(value)}")
    return BAD


def _choice(value: Any, choices: tuple[Any, ...], at: str, problems: Problems) -> Any:
    if value in choices and type(value) in {type(c) for c in choices}:
        return value
    known = [str(c) for c in choices]
    given_text = f'"{value}"' if isinstance(value, str) and len(value) < 40 else shown(value)
    hint = did_you_mean(value, known, limit=0) if isinstance(value, str) else None
    problems.add(at, f"must be one of {', '.join(known)}, not {given_text}", hint)
    return BAD


def _list(value: Any, kind: Any, rule: KeyRule | None, at: str, problems: Problems) -> Any:
    if not isinstance(value, list):
        problems.add(at, f"must be a list of {describe(kind, plural=True)}, not {shown(value)}")
        return BAD
    if rule is not None and rule.non_empty and not value:
        problems.add(at, "must not be empty")
        return BAD
    of_items = rule if kind is str else None
    checked = [_value(item, kind, of_items, f"{at}[{index}]", problems) for index, item in enumerate(value)]
    return BAD if any(item is BAD for item in checked) else checked


def _dict(value: Any, kind: Any, rule: KeyRule | None, at: str, problems: Problems) -> Any:
    if not isinstance(value, Mapping):
        problems.add(at, f"must be a table, not {shown(value)}")
        return BAD
    for name in value:
        if rule is not None and rule.pattern is not None and not re.fullmatch(rule.pattern, name):
            problems.add(join(at, name), f"the name must be {rule.pattern_doc}")
    checked = {name: _value(item, kind, None, join(at, name), problems) for name, item in value.items()}
    return {name: item for name, item in checked.items() if item is not BAD}


def _is(value: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if is_dataclass(kind):
        return isinstance(value, Mapping)
    return isinstance(value, Mapping if kind is dict else kind)


def _scalar(value: Any, kind: type, rule: KeyRule | None, at: str, problems: Problems) -> Any:
    if not _is(value, kind):
        problems.add(at, f"must be {describe(kind)}, not {shown(value)}")
        return BAD
    if isinstance(value, int | float) and not isinstance(value, bool) and LARGEST < abs(value) < math.inf:
        problems.add(at, f"must be at most {LARGEST:.0e}")
        return BAD
    if kind is float:
        value = float(value)
    for what in _broken_limits(value, rule) if rule is not None else ():
        problems.add(at, what, rule.hint if rule is not None else None)
        return BAD
    return value


def _broken_limits(value: Any, rule: KeyRule) -> Iterator[str]:
    if isinstance(value, str):
        if rule.non_empty and not value.strip():
            yield "must not be empty"
        elif rule.pattern is not None and not re.fullmatch(rule.pattern, value):
            yield f"must be {rule.pattern_doc}"
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if value != value or value in (float("inf"), float("-inf")):
        yield "must be a finite number"
    elif rule.minimum is not None and rule.minimum == rule.maximum != value:
        yield f"must be {rule.minimum:g}, not {value:g}"
    elif rule.minimum is not None and value < rule.minimum:
        yield f"must be at least {rule.minimum:g}, not {value:g}"
    elif rule.above is not None and value <= rule.above:
        yield f"must be above {rule.above:g}, not {value:g}"
    elif rule.maximum is not None and value > rule.maximum:
        yield f"must be at most {rule.maximum:g}, not {value:g}"
    elif rule.below is not None and value >= rule.below:
        yield f"must be below {rule.below:g}, not {value:g}"


def describe(kind: Any, *, plural: bool = False) -> str:
    """The type of a key as a person says it."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return " or ".join(describe(k, plural=plural) for k in get_args(kind) if k is not NoneType)
    if origin is Literal:
        return " | ".join(f'"{c}"' if isinstance(c, str) else str(c) for c in get_args(kind))
    if origin is list:
        inner = describe(get_args(kind)[0], plural=True)
        return f"lists of {inner}" if plural else f"a list of {inner}"
    if origin is dict or is_dataclass(kind):
        return "tables" if plural else "a table"
    one = {str: "a string", int: "a whole number", float: "a number", bool: "true or false", Any: "any value"}
    many = {str: "strings", int: "whole numbers", float: "numbers", bool: "true or false", Any: "values"}
    return (many if plural else one).get(kind, str(kind))


def _meant(file: Path) -> str | None:
    """The file that is probably meant by one that is not there: in experiments/, or of a name that is close."""
    for folder in (file.parent / "experiments", file.parent):
        known = {path.stem: path for path in folder.glob("*.toml")}
        if (name := closest(file.stem, list(known))) is not None:
            return f"did you mean {known[name]}?"
    return None


def read_toml(file: Path, made_by: str = "tbench init") -> dict[str, Any]:
    """The tables of a TOML file; a missing or malformed one is a user error. `made_by` is what makes such a file."""
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise UserError("no such file", where=str(file), hint=_meant(file) or f"{made_by} makes one") from None
    except IsADirectoryError:
        raise UserError("is a folder; name the TOML file in it", where=str(file)) from None
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8 text: {error.reason} at byte {error.start}", where=str(file)) from None
    except (ValueError, RecursionError) as error:
        raise _malformed(file, str(error) or "nested too deeply") from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", where=str(file)) from None


def _malformed(file: Path, said: str) -> UserError:
    """Return what the TOML parser says of a file, at its line and with what is probably meant."""
    place = re.search(r" \(at line (\d+), column (\d+)\)$", said)
    what = f"{said[: place.start()]} (column {place[2]})" if place else said
    hint = next(
        (hint for words, hint in _MALFORMED.items() if words in said), "correct the file there" if place else None
    )
    return UserError(f"is not valid TOML: {what}", where=f"{file}:{place[1]}" if place else str(file), hint=hint)


_MALFORMED = {
    r"Illegal character '\n'": "a quote is not closed in this line",
    "Unterminated string": "a quote is not closed",
    "Unclosed array": "a [ is not closed, or a comma is missing",
    "Unclosed inline table": "a { is not closed, or a comma is missing",
    "Invalid value": 'put texts in quotes: key = "text"',
    "Expected '=' after a key": "write key = value",
    "Expected newline": "write one key = value per line",
    "Cannot overwrite a value": "the key is given twice: remove one",
    "Cannot declare": "the table is given twice: put their keys together",
}
"""What is to be done where the TOML parser says so."""


def find_path(text: str, root: Path, at: str, problems: Problems) -> Path | None:
    """The path that `text` means, there or not; a problem is noted at `at` where no file can be called so."""
    try:
        path = root / Path(text).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.stat()
        if all(len(os.fsencode(part)) <= _LONGEST_NAME for part in path.parts):
            return path
        reason = os.strerror(errno.ENAMETOOLONG)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a path"
    problems.add(at, f"cannot be used as a path: {reason}")
    return None


def is_file(path: Path | str) -> bool:
    """Return whether there is a file; False too where the system does not say (no permission, a name too long)."""
    return os.path.isfile(path)  # noqa: PTH113


def is_there(path: Path) -> bool:
    """Return whether there is anything; False too where the system does not say."""
    return os.path.exists(path)  # noqa: PTH110


def is_folder(path: Path) -> bool:
    """Return whether there is a folder; False too where the system does not say."""
    return os.path.isdir(path)  # noqa: PTH112
