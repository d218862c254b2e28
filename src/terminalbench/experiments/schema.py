"""The experiment file described for others: JSON Schema for editors, Markdown lists of keys for the docs."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from terminalbench import registry
from terminalbench.experiments import tables
from terminalbench.experiments.agents import AgentRecord
from terminalbench.experiments.config import HARBOR_OPTIONS, RESERVED_SLUGS
from terminalbench.frozen import is_required
from terminalbench.strict import LARGEST, KeyRule, describe, hints, rule_of

_VARIABLE = r"[A-Za-z_]\w*"
_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}

PAGES: tuple[tuple[str, Any], ...] = (
    ("", tables.ExperimentTable),
    ("[tasks]", tables.TasksTable),
    ("tasks.items[]", tables.TaskTable),
    ('[datasets."<name@version>"]', tables.DatasetTable),
    ("[run]", tables.RunTable),
    ("[run.network]", tables.NetworkTable),
    ("[run.ray]", tables.RayTable),
    ("[defaults]", tables.ProfileDefaults),
    ("[profiles.<key>]", tables.ProfileTable),
    ("[profiles.<key>.command]", tables.CommandTable),
    ("[profiles.<key>.lessons]", tables.LessonsTable),
    ("[profiles.<key>.price]", tables.ProfilePrice),
    ("[mcp]", tables.McpTable),
    ("[artifacts]", tables.ArtifactsTable),
    ("[analysis]", tables.AnalysisTable),
    ("[top_up]", tables.TopUpTable),
    ("[notify]", tables.NotifyTable),
    ("AGENT_INFO", AgentRecord),
)


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the experiment TOML."""
    schema = _table(tables.ExperimentTable)
    _refine(schema["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"terminalbench experiment, version {tables.SCHEMA_VERSION}",
        **schema,
    }


def _refine(top: dict[str, Any]) -> None:
    """Return what the loader demands beyond the declarations, as far as a schema can say it without files."""
    top["slug"]["not"] = {"pattern": f"^({'|'.join(map(re.escape, RESERVED_SLUGS))})"}
    top["profiles"]["minProperties"] = 1
    run, analysis, notify = (top[name]["properties"] for name in ("run", "analysis", "notify"))
    run["executor"]["enum"] = sorted(registry.BUILTIN["executors"])
    options = "|".join(sorted(map(re.escape, HARBOR_OPTIONS)))
    run["harbor_args"]["items"]["pattern"] = rf"^(?!-)|^({options})(=|$)|^-\d+(\.\d+)?$"
    analysis["contrasts"]["items"] |= {"minItems": 2, "maxItems": 2, "uniqueItems": True}
    notify["urls"]["items"]["pattern"] = rf"^\s*\$\{{{_VARIABLE}\}}\s*$"
    for profile in (top["defaults"], top["profiles"]["additionalProperties"]):
        names, table = profile["properties"]["env"]["anyOf"]
        names["items"]["pattern"] = f"^{_VARIABLE}$"
        table["propertyNames"] = {"pattern": f"^{_VARIABLE}$"}


def _table(table: Any) -> dict[str, Any]:
    types = hints(table)
    return {
        "type": "object",
        "description": (table.__doc__ or "").splitlines()[0],
        "additionalProperties": False,
        "required": [f.name for f in fields(table) if is_required(f)],
        "properties": {f.name: _key(f, types[f.name]) for f in fields(table)},
    }


def _key(declared: Field[Any], kind: Any) -> dict[str, Any]:
    rule = rule_of(declared)
    schema = _type(kind, rule)
    schema["description"] = rule.doc
    if declared.default is not MISSING and declared.default is not None:
        schema["default"] = declared.default
    return schema


def _type(kind: Any, rule: KeyRule | None = None) -> dict[str, Any]:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        kinds = [_type(k, rule) for k in get_args(kind) if k is not NoneType]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if origin is Literal:
        return {"enum": list(get_args(kind))}
    if origin is list:
        (inner,) = get_args(kind)
        least = {"minItems": 1} if rule and rule.non_empty else {}
        return {"type": "array", "items": _type(inner, rule if inner is str else None)} | least
    if origin is dict:
        names = {"propertyNames": {"pattern": f"^{rule.pattern}$"}} if rule and rule.pattern else {}
        return {"type": "object", "additionalProperties": _type(get_args(kind)[1])} | names
    if is_dataclass(kind):
        return _table(kind)
    if kind is Any:
        return {}
    return {"type": _SCALARS[kind], **_limits(kind, rule)}


def _limits(kind: Any, rule: KeyRule | None) -> dict[str, Any]:
    if rule is None:
        return {}
    number = kind in (int, float)
    limits = {
        "minimum": -LARGEST if number and rule.minimum is None and rule.above is None else rule.minimum,
        "exclusiveMinimum": rule.above,
        "maximum": LARGEST if number and rule.maximum is None and rule.below is None else rule.maximum,
        "exclusiveMaximum": rule.below,
        "pattern": f"^{rule.pattern}$" if rule.pattern else r"\S" if rule.non_empty and kind is str else None,
    }
    return {name: value for name, value in limits.items() if value is not None}


def key_tables() -> str:
    """Every key, its default or type, and its meaning, as Markdown."""
    return tables_markdown(PAGES)


def tables_markdown(pages: Iterable[tuple[str, Any]]) -> str:
    """The keys of some tables, each with the title of its part of the file."""
    return "\n".join(line for title, table in pages for line in _page(title, table))


def _page(title: str, table: Any) -> Iterator[str]:
    yield f"### {f'`{title}`' if title else 'Top of the file'}"
    yield ""
    about = (table.__doc__ or "").strip().removeprefix(f"`{title}`: ")
    yield about[0].upper() + about[1:]
    yield ""
    inherited = {f.name for base in table.__bases__ if is_dataclass(base) for f in fields(base)}
    types = hints(table)
    below = [] if title else [one for one in fields(table) if _has_table(types[one.name])]
    for declared in fields(table):
        if declared.name not in inherited and declared not in below:
            yield f"- `{declared.name}`{_value(declared, types[declared.name])}: {rule_of(declared).doc}"
    if inherited:
        yield "- and every key of `[defaults]`."
    if below:
        required = " and ".join(f"`{one.name}`" for one in below if is_required(one))
        yield f"- and the tables below{f'; required: {required}' if required else ''}."
    yield ""


def _has_table(kind: Any) -> bool:
    return is_dataclass(kind) or any(map(_has_table, get_args(kind)))


def _value(declared: Field[Any], kind: Any) -> str:
    """Return what a key may be: its default and what else, or its type (a string, if none is named) with an example."""
    default = _default(declared)
    names: list[str] = []
    for one in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        if get_origin(one) is Literal:
            names += [f'`"{choice}"`' for choice in get_args(one)]
        elif one is not NoneType and not (default and one is type(declared.default)):
            names.append(describe(one).removeprefix("a ").removesuffix(" of strings"))
    if default:
        others = ", ".join(name for name in names if name != default)
        return f" = {default}{', or ' if others else ''}{others}"
    said = [" or ".join(names)] if names != ["string"] else []
    said += ["**required**"] if is_required(declared) else []
    said += [f"as `{example}`"] if (example := rule_of(declared).example) else []
    return f" ({', '.join(said)})" if said else ""


def _default(declared: Field[Any]) -> str:
    if declared.default is MISSING or declared.default is None:
        return ""
    if isinstance(declared.default, bool):
        return f"`{str(declared.default).lower()}`"
    return f'`"{declared.default}"`' if isinstance(declared.default, str) else f"`{declared.default}`"
