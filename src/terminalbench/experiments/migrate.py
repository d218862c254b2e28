"""Converting the two older experiment shapes to version 2, keeping order and, where it can, comments.

shape one     no schema_version, [tasks] dataset = ..., ids = [...], [[profiles]] key = ...
shape two     schema_version = 2, [tasks.<id>] tables, [profiles.<key>]
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Array, SingleKey, Table, Trivia

from terminalbench.errors import UserError
from terminalbench.experiments.config import old_shape
from terminalbench.experiments.strict import read_toml
from terminalbench.experiments.tables import SCHEMA_VERSION
from terminalbench.text.numbers import plural

_RENAMED = {
    "run": {"extra_flags": "harbor_args"},
    "defaults": {"claude_version": "agent_version"},
    "profiles": {"claude_version": "agent_version"},
}
_REMOVED = {
    "run": {"harbor_bin": "Harbor is pinned with this project"},
    "defaults": {"install_r_languageserver": "belongs to one tool; use options or the server's own set-up"},
    "profiles": {"install_r_languageserver": "belongs to one tool; use options or the server's own set-up"},
}


@dataclass(frozen=True)
class Migration:
    """The new text and what was changed, a line each. No changes: the file was of version 2 already."""

    text: str
    changes: tuple[str, ...]


def migrate(file: Path) -> Migration:
    """Convert the experiment in `file`. Raises `UserError` when it is of no shape known here."""
    raw = read_toml(file)
    text = file.read_bytes().decode("utf-8-sig")
    if raw.get("schema_version") not in (None, 1, SCHEMA_VERSION):
        raise UserError(f"schema_version {raw['schema_version']} is not known here", where=str(file))
    if old_shape(raw) is None and raw.get("schema_version") == SCHEMA_VERSION:
        return Migration(text, ())
    if not isinstance(raw.get("tasks"), Mapping) or not isinstance(raw.get("profiles"), Mapping | list):
        raise UserError("has no [tasks] and profiles of any shape known here", where=str(file))
    wanted, changes = _converted(raw, file)
    try:
        kept = _keeping_comments(text, raw, file)
    except (TOMLKitError, AttributeError, LookupError, TypeError, ValueError):
        kept = None  # the file is written in a way that tomlkit cannot edit in place
    if kept is not None and _same(kept, wanted):
        return Migration(kept, tuple(changes))
    return Migration(tomlkit.dumps(wanted), (*changes, "comments and layout could not be kept"))


def _same(text: str, wanted: dict[str, Any]) -> bool:
    """Whether an edited text means exactly what it should, order included."""
    try:
        found = tomllib.loads(text)
    except ValueError:
        return False
    return found == wanted and list(found["profiles"]) == list(wanted["profiles"])


def _converted(raw: Mapping[str, Any], file: Path) -> tuple[dict[str, Any], list[str]]:
    """What the file means in version 2, as plain data, and what that changes."""
    changes = [] if raw.get("schema_version") == SCHEMA_VERSION else [f"schema_version: set to {SCHEMA_VERSION}"]
    new: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    new |= {name: value for name, value in raw.items() if name not in ("schema_version", "tasks", "profiles")}
    new["tasks"] = _plain_tasks(raw["tasks"], file, changes)
    new["profiles"] = _plain_profiles(raw["profiles"], file, changes)
    for section in ("run", "defaults"):
        if isinstance(new.get(section), Mapping):
            new[section] = _plain_keys(new[section], section, section, changes)
    return new, changes


def _plain_tasks(table: Mapping[str, Any], file: Path, changes: list[str]) -> dict[str, Any]:
    if "items" in table:
        return dict(table)
    ids = table.get("ids", [])
    if not isinstance(ids, list) or not all(isinstance(task, str) for task in ids):
        raise UserError("must be a list of strings", where=f"{file}: tasks.ids")
    tables = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    items = [_task_entry(task, tables.get(task, {}), file, changes) for task in (*ids, *_not_in(ids, tables))]
    if "ids" in table:
        changes.append(f"tasks.ids: {plural(len(ids), 'task')} moved to tasks.items")
    if tables or "ids" not in table:
        changes.append(f"[tasks.<id>]: {len(tables)} tables moved to tasks.items")
    rest = {k: v for k, v in table.items() if k not in ("ids", "dataset", "items") and not isinstance(v, Mapping)}
    if "dataset" in table:
        rest["default_dataset"] = table["dataset"]
        changes.append("tasks.dataset: renamed to default_dataset")
    return {**rest, "items": items}


def _plain_profiles(profiles: Any, file: Path, changes: list[str]) -> dict[str, Any]:
    if isinstance(profiles, list):
        found: dict[str, Any] = {}
        for index, profile in enumerate(profiles):
            key = profile.get("key") if isinstance(profile, Mapping) else None
            if not isinstance(key, str) or not key:
                raise UserError("has no key", where=f"{file}: profiles[{index}]", hint='add key = "..."')
            if key in found:
                raise UserError(f'is the second profile called "{key}"', where=f"{file}: profiles[{index}]")
            found[key] = {name: value for name, value in profile.items() if name != "key"}
        changes.append(f"[[profiles]]: {plural(len(found), 'entry')} became [profiles.<key>] tables, in the same order")
        profiles = found
    return {
        key: _plain_keys(profile, "profiles", f"profiles.{key}", changes) if isinstance(profile, Mapping) else profile
        for key, profile in profiles.items()
    }


def _plain_keys(table: Mapping[str, Any], section: str, at: str, changes: list[str]) -> dict[str, Any]:
    new = dict(table)
    for old, name in _RENAMED[section].items():
        if old not in new:
            continue
        if name in new and isinstance(new[name], list) and isinstance(new[old], list):
            new[name] = [*new[name], *new.pop(old)]
            changes.append(f"{at}.{old}: added to {name}")
        elif name in new:
            new.pop(old)
            changes.append(f"{at}.{old}: removed, because {name} is set too")
        else:
            new[name] = new.pop(old)
            changes.append(f"{at}.{old}: renamed to {name}")
    for old, why in _REMOVED[section].items():
        if old in new:
            del new[old]
            changes.append(f"{at}.{old}: removed ({why})")
    return new


def _keeping_comments(text: str, raw: Mapping[str, Any], file: Path) -> str:
    """The same conversion on the text itself, so that comments stay; checked by the caller against the plain one."""
    document = tomlkit.parse(_with_version(text, raw))
    _tasks(document, file)
    _profiles(document)
    for section in ("run", "defaults"):
        if isinstance(document.get(section), Mapping):
            _keys(document[section], section)
    return tomlkit.dumps(document)


def _with_version(text: str, raw: Mapping[str, Any]) -> str:
    """The text with `schema_version = 2` above its first key, unless it says so already."""
    if raw.get("schema_version") == SCHEMA_VERSION:
        return text
    lines = text.splitlines(keepends=True)
    head = next((i for i, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    lines = [line for i, line in enumerate(lines) if i >= head or not re.match(r"\s*schema_version\s*=", line)]
    first = next(i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    return "".join([*lines[:first], f"schema_version = {SCHEMA_VERSION}\n", *lines[first:]])


def _tasks(document: Any, file: Path) -> None:
    table = document["tasks"]
    if "items" in table:
        return
    ids = table.get("ids", [])
    tables = {name: table[name] for name in table if isinstance(table[name], Mapping)}
    comments = [_comment_after(ids, index) for index in range(len(ids))]
    names = [*map(str, ids), *_not_in(ids, tables)]
    comments += [None] * (len(names) - len(ids))
    entries = [
        (_task_entry(name, tables.get(name, {}), file, []), comment)
        for name, comment in zip(names, comments, strict=True)
    ]
    for name in ("ids", *tables):
        table.pop(name, None)
    if "dataset" in table:
        dataset = table["dataset"]
        del table["dataset"]
        table.add("default_dataset", dataset)
    table.add("items", _items(entries))


def _not_in(ids: list[str], tables: Mapping[str, Any]) -> list[str]:
    """The tasks that only have a table."""
    return [name for name in tables if name not in ids]


def _task_entry(name: str, table: Mapping[str, Any], file: Path, changes: list[str]) -> dict[str, str]:
    nested = [key for key, value in table.items() if isinstance(value, Mapping)]
    if nested:
        raise UserError(
            f"[tasks.{name}.{nested[0]}] is a table in a table",
            where=str(file),
            hint=f'quote the id: [tasks."{name}.{nested[0]}"]',
        )
    dropped = [key for key in table if key not in ("dataset", "family")]
    if dropped:
        changes.append(f"tasks.{name}: dropped {', '.join(dropped)}, which version 2 has no place for")
    return {"id": name} | {key: str(table[key]) for key in ("dataset", "family") if key in table}


def _comment_after(array: Any, index: int) -> str | None:
    """The comment that stands behind the item of an array, if any."""
    values = [group for group in getattr(array, "_value", []) if group.value is not None]
    comment = values[index].comment if index < len(values) else None
    return comment.as_string().strip() if comment is not None else None


def _items(entries: list[tuple[dict[str, str], str | None]]) -> Array:
    array = tomlkit.array()
    for entry, comment in entries:
        inline = tomlkit.inline_table()
        inline.update(entry)
        array.add_line(inline, indent="  ", comment=comment.lstrip("# ") if comment else None)
    array.add_line(indent="")
    return array


def _profiles(document: Any) -> None:
    profiles = document["profiles"]
    if isinstance(profiles, list):
        document["profiles"] = _profile_tables(profiles)
    for profile in document["profiles"].values():
        if isinstance(profile, Mapping):
            _keys(profile, "profiles")


def _profile_tables(profiles: Any) -> Table:
    tables = Table(Container(), Trivia(), False, is_super_table=True)
    for profile in profiles:
        tables.append(SingleKey(str(profile["key"])), _plain_table(profile))
    return tables


def _plain_table(entry: Any) -> Table:
    """An array entry as a table of its own, without its key, comments kept."""
    table = tomlkit.table()
    for key, item in entry.value.body:
        if key is None:
            table.add(item)
        elif key.key == "key":
            table.comment(item.trivia.comment.lstrip("# ")) if item.trivia.comment else None
        else:
            table.append(key, item)
    return table


def _keys(table: Any, section: str) -> None:
    for old, new in _RENAMED[section].items():
        if old in table and new not in table:
            table[new] = table[old]
            del table[old]
    for old in _REMOVED[section]:
        if old in table:
            del table[old]
