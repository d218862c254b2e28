"""What agents had, by their own account, and no declaration explains: other tools, another model, ... Pure.

Profiles are compared on what was declared to differ. A CLI that updated itself, a server of a user's own settings, or a
setting that brings other built-in tools along makes a difference that belongs to none of them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from terminalbench.analytics.model import Row
from terminalbench.analytics.summary import ProfileRows
from terminalbench.experiments.profile_changes import differences
from terminalbench.harbor.read.delivery import not_connected
from terminalbench.records.trial import Delivery
from terminalbench.text.foreign import cut
from terminalbench.text.numbers import plural, some

_SHOWN = 3
_LONGEST = 40


@dataclass(frozen=True)
class Condition:
    """One thing an agent has: `read` gives its names in a trial, None where it did not tell.

    A difference between profiles is explained when they declare one of `aspects` (patterns) differently. `by_task`:
    what every trial of a task has alike is the task's. `told_as`: the field of a row that tells the same elsewhere.
    """

    what: str
    read: Callable[[Delivery], Sequence[str] | None]
    aspects: tuple[str, ...] = ()
    by_task: bool = False
    told_as: str | None = None


_AGENT = ("agent", "agent_*")
_SETTINGS = ("options.config", "option_files.*")
CONDITIONS = (
    Condition(
        "other built-in tools",
        lambda d: d.tools,
        (*_AGENT, *_SETTINGS, "options.*tool*", "env.*TOOL*", "conditions.*TOOL*"),
    ),
    Condition("another model", lambda d: _one(d.model), ("agent", "model", "env.*MODEL*"), told_as="model"),
    Condition(
        "another CLI version",
        lambda d: _one(d.cli_version),
        (*_AGENT, "options.version"),
        told_as="agent_version",
    ),
    Condition("another permission mode", lambda d: _one(d.permission_mode), (*_AGENT, *_SETTINGS, "options.*perm*")),
    Condition("MCP servers", lambda d: d.mcp_undeclared, ("agent", "conditions.*mcp*"), by_task=True),
)


def unexplained(new: ProfileRows, old: ProfileRows, declared: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each condition in which the measured trials of two profiles differ and nothing declares why."""
    common = [task for task in new.tasks if task in old.tasks]
    sides = [[row for task in common for row in side.tasks[task] if row.measured] for side in (new, old)]
    names = (new.profile, old.profile)
    changed = [found.aspect for found in differences(declared.get(old.profile, {}), declared.get(new.profile, {}))]
    said = [line for one in CONDITIONS if (line := _sentence(one, names, sides, changed)) is not None]
    return said + [line for name, rows in zip(names, sides, strict=True) if (line := _not_up(name, rows)) is not None]


def _sentence(
    condition: Condition, names: tuple[str, str], sides: Sequence[Sequence[Row]], changed: Sequence[str]
) -> str | None:
    explained = any(fnmatchcase(aspect, pattern) for aspect in changed for pattern in condition.aspects)
    if condition.told_as is not None:
        values = [{getattr(row, condition.told_as) for row in rows} for rows in sides]
        if max(map(len, values)) > 1 or (values[0] != values[1] and not explained):
            return None
    told = [[(row, tuple(had)) for row in rows if (had := condition.read(row.delivery)) is not None] for rows in sides]
    if not any(told):
        return None
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for side, rows in enumerate(told):
        for had, times in Counter(had for _, had in rows).items():
            for name in had:
                counts[name][side] += times
    totals = [len(rows) for rows in told]
    tasks_own = _of_tasks(told) if condition.by_task else frozenset()
    groups: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name, (ours, theirs) in sorted(counts.items()):
        mixed = 0 < ours < totals[0] or 0 < theirs < totals[1]
        apart = all(totals) and (ours == 0) != (theirs == 0)
        if name not in tasks_own and (mixed or (apart and not explained)):
            groups[ours, theirs].append(name)
    if not groups:
        return None
    parts = [f"{_named(found)} in {_counted(names, counted, totals)}" for counted, found in groups.items()]
    return f"{condition.what} that no profile declares: {some(parts, _SHOWN)}"


def _of_tasks(told: Sequence[Sequence[tuple[Row, Sequence[str]]]]) -> frozenset[str]:
    """The names that, of every task, either all trials have or none has."""
    by_task: dict[Any, list[set[str]]] = defaultdict(list)
    for rows in told:
        for row, found in rows:
            by_task[row.task].append(set(found))
    everything = {name for sets in by_task.values() for found in sets for name in found}
    uneven = {name for sets in by_task.values() for name in set.union(*sets) - set.intersection(*sets)}
    return frozenset(everything - uneven)


def _not_up(profile: str, rows: Sequence[Row]) -> str | None:
    """Declared servers that did not connect in some trials: these measure the profile without them."""
    known = [row for row in rows if row.delivery.mcp_connected is not None]
    missing = [found for row in known if (found := not_connected(row.delivery))]
    if not missing:
        return None
    servers = list(dict.fromkeys(name for found in missing for name in found))
    return f"{profile}: MCP servers not connected in {len(missing)} of {plural(len(known), 'trial')}: {_named(servers)}"


def _named(names: Sequence[str]) -> str:
    return some([cut(name, _LONGEST) for name in names], _SHOWN)


def _counted(names: tuple[str, str], counted: tuple[int, int], totals: Sequence[int]) -> str:
    return " and ".join(
        f"{count} of {plural(total, 'trial')} of {name}"
        for name, count, total in zip(names, counted, totals, strict=True)
        if total
    )


def _one(value: str | None) -> tuple[str] | None:
    return None if value is None else (value,)
