"""Converting the two older experiment shapes to version 2, keeping order and, where it can, comments.

What the older runner assumed without a word is written: the folder of `codegraph`, a slug where the file has none.

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
from tomlkit.items import AbstractTable, SingleKey, Table, Trivia

from terminalbench.errors import InvalidFile, UserError
from terminalbench.experiments.config import load_tables, old_shape
from terminalbench.experiments.project import project_root
from terminalbench.experiments.tables import SCHEMA_VERSION, SLUG
from terminalbench.experiments.toml_lines import invalid_file
from terminalbench.strict import read_toml
from terminalbench.text.numbers import plural

_RENAMED = {
    "run": {"extra_flags": "harbor_args"},
    "defaults": {"claude_version": "agent_version"},
    "profiles": {"claude_version": "agent_version"},
}
_OLD_ALIASES = {"codegraph": "locagent"}
_ONE_TOOL = {"install_r_languageserver": "belongs to one tool; use options, or configure the server itself"}
_REMOVED = {
    "run": {"harbor_bin": "Harbor is pinned with this project"},
    "defaults": _ONE_TOOL,
    "profiles": _ONE_TOOL,
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
        raise UserError(
            f"schema_version {raw['schema_version']} is unknown to this version of terminalbench", where=str(file)
        )
    if old_shape(raw) is None and raw.get("schema_version") == SCHEMA_VERSION:
        return Migration(text, ())
    if not isinstance(raw.get("tasks"), Mapping) or not isinstance(raw.get("profiles"), Mapping | list):
        raise UserError("is not an experiment: it has no [tasks] or no profiles", where=str(file))
    changes: list[str] = []
    head: dict[str, Any] = {}
    if raw.get("schema_version") != SCHEMA_VERSION:
        changes.append(f"schema_version: set to {SCHEMA_VERSION}")
        head["schema_version"] = SCHEMA_VERSION
    if "slug" not in raw:
        head["slug"] = _slug(file)
        changes.append(f'slug: was missing; "{head["slug"]}" is made from the name of the file')
    text = _with_head(text, head)
    wanted: dict[str, Any] = {**dict.fromkeys(head), **raw, **head}
    changes += _convert(wanted, file)
    try:
        document = tomlkit.parse(text)
        _convert(document, file)
        kept = tomlkit.dumps(document)
        found = tomllib.loads(kept)
        if found == wanted and list(found["profiles"]) == list(wanted["profiles"]):
            return Migration(kept, tuple(changes))
    except (TOMLKitError, AttributeError, LookupError, TypeError, ValueError):
        pass  # the file is written in a way that tomlkit cannot edit in place
    return Migration(tomlkit.dumps(wanted), (*changes, "comments and layout are lost"))


def remaining(text: str, file: Path) -> InvalidFile | None:
    """Return what is left to mend in a migrated text as the experiment in `file`, with the lines of the text."""
    try:
        load_tables(tomllib.loads(text), file, project_root(file, None))
    except InvalidFile as error:
        return invalid_file(file, error.problems, text)
    return None


def _slug(file: Path) -> str:
    """A slug from a file's name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("-.")
    return name if re.fullmatch(SLUG, name) else "experiment"


def _with_head(text: str, head: Mapping[str, Any]) -> str:
    """The text with these keys above its first one."""
    lines = text.splitlines(keepends=True)
    first_table = next((i for i, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    if "schema_version" in head:
        old = re.compile(r"\s*schema_version\s*=")
        lines = [line for i, line in enumerate(lines) if i >= first_table or not old.match(line)]
    first = next(i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    return "".join([*lines[:first], *(tomlkit.dumps({name: value}) for name, value in head.items()), *lines[first:]])


def _convert(document: Any, file: Path) -> list[str]:
    """Change a document in place and say what was changed: plain data, or a parsed text, which keeps its comments."""
    changes: list[str] = []
    _tasks(document["tasks"], file, changes)
    if isinstance(document["profiles"], list):
        document["profiles"] = _profile_tables(document["profiles"], file)
        count = plural(len(document["profiles"]), "entry")
        changes.append(f"[[profiles]]: {count} became [profiles.<key>] tables, in the same order")
    for key, profile in document["profiles"].items():
        _keys(profile, "profiles", f"profiles.{key}", changes)
    for section in ("run", "defaults"):
        _keys(document.get(section), section, section, changes)
    run = document.get("run")
    limit = run.get("run_timeout_sec") if isinstance(run, Mapping) else None
    if isinstance(limit, int | float) and limit <= 0:
        del run["run_timeout_sec"]
        changes.append(f"run.run_timeout_sec: {limit} meant no limit; removed, because no limit is the default")
    _aliases(document, file, changes)
    return changes


def _aliases(document: Any, file: Path, changes: list[str]) -> None:
    """Name the folders that the older runner knew without being told."""
    tables = [document.get("defaults"), *document["profiles"].values()]
    named = [table.get("mcp_servers") for table in tables if isinstance(table, Mapping)]
    servers = {name for names in named if isinstance(names, list) for name in names if isinstance(name, str)}
    declared = document.get("mcp", {}).get("aliases", {})
    for server in sorted(servers & _OLD_ALIASES.keys() - set(declared)):
        if not (project_root(file, None) / server / ".mcp.json").is_file():
            document.setdefault("mcp", {}).setdefault("aliases", {})[server] = _OLD_ALIASES[server]
            changes.append(f"mcp.aliases.{server}: set to {_OLD_ALIASES[server]}, where the older runner looked")


def _tasks(table: Any, file: Path, changes: list[str]) -> None:
    if "items" in table:
        return
    ids = table.get("ids", [])
    if not isinstance(ids, list) or not all(isinstance(task, str) for task in ids):
        raise UserError("must be a list of strings", where=f"{file}: tasks.ids")
    tables = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    items = tomlkit.array()
    for index, name in enumerate([*map(str, ids), *(name for name in tables if name not in ids)]):
        inline = tomlkit.inline_table()
        inline.update(_task_entry(name, tables.get(name, {}), file, changes))
        items.add_line(inline, indent="  ", comment=_comment_after(ids, index))
    items.add_line(indent="")
    if "ids" in table:
        changes.append(f"tasks.ids: {plural(len(ids), 'task')} moved to tasks.items")
    if tables or "ids" not in table:
        changes.append(f"[tasks.<id>]: {len(tables)} tables moved to tasks.items")
    for name in ("ids", *tables):
        table.pop(name, None)
    if "dataset" in table:
        table["default_dataset"] = table.pop("dataset")
        changes.append("tasks.dataset: renamed to default_dataset")
    table["items"] = items


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
        changes.append(f"tasks.{name}: dropped {', '.join(dropped)}, which does not exist in version 2")
    return {"id": name} | {key: str(table[key]) for key in ("dataset", "family") if key in table}


def _comment_after(array: Any, index: int) -> str | None:
    """The comment that stands behind the item of an array, if any."""
    values = [group for group in getattr(array, "_value", []) if group.value is not None]
    comment = values[index].comment if index < len(values) else None
    return comment.as_string().strip().lstrip("# ") if comment is not None else None


def _profile_tables(profiles: list[Any], file: Path) -> Table:
    tables = Table(Container(), Trivia(), False, is_super_table=True)
    for index, profile in enumerate(profiles):
        key = profile.get("key") if isinstance(profile, Mapping) else None
        if not isinstance(key, str) or not key:
            raise UserError("has no key", where=f"{file}: profiles[{index}]", hint='add key = "..."')
        if key in tables:
            raise UserError(f'a profile "{key}" exists already', where=f"{file}: profiles[{index}]")
        tables.append(SingleKey(str(key)), _profile_table(profile))
    return tables


def _profile_table(entry: Any) -> Table:
    """An entry of the list as a table of its own, without its key, comments kept."""
    table = tomlkit.table()
    if not isinstance(entry, AbstractTable):
        table.update({name: value for name, value in entry.items() if name != "key"})
        return table
    for key, item in entry.value.body:
        if key is None:
            table.add(item)
        elif key.key == "key":
            table.comment(item.trivia.comment.lstrip("# ")) if item.trivia.comment else None
        else:
            table.append(key, item)
    return table


def _keys(table: Any, section: str, at: str, changes: list[str]) -> None:
    if not isinstance(table, Mapping):
        return
    for old, name in _RENAMED[section].items():
        if old not in table:
            continue
        value = table.pop(old)
        if name not in table:
            table[name] = value
            changes.append(f"{at}.{old}: renamed to {name}")
        elif isinstance(table[name], list) and isinstance(value, list):
            table[name].extend(value)
            changes.append(f"{at}.{old}: added to {name}")
        else:
            changes.append(f"{at}.{old}: removed, because {name} is set too")
    for old, why in _REMOVED[section].items():
        if old in table:
            del table[old]
            changes.append(f"{at}.{old}: removed ({why})")
