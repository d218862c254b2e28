"""Whether two profiles may be compared at all: what differs beyond what was declared to differ. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from terminalbench.analytics import stats
from terminalbench.analytics.model import Row
from terminalbench.analytics.settings import is_oracle
from terminalbench.analytics.summary import ProfileRows
from terminalbench.experiments.profile_changes import differences
from terminalbench.harbor.read.delivery import not_connected
from terminalbench.records.trial import Delivery, Outcome, TaskRef
from terminalbench.records.values import elapsed_sec
from terminalbench.text.foreign import cut
from terminalbench.text.names import ORACLE
from terminalbench.text.numbers import plural, some
from terminalbench.text.reasons import doubt

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


_FACTORS = {"environment": (), "model": ("model",), "agent_version": ("agent", "agent_version", "agent_code")}
"""What must be alike in both profiles, and the declared aspects of which any one explains a difference."""
_BROKEN = (Outcome.ERRORED, Outcome.TIMED_OUT, Outcome.CANCELLED)
ERROR_ALPHA = 0.05
REDRAWN_ALPHA = 2 * ERROR_ALPHA
"""Of a test of either direction: one profile's tries broke more often, at ERROR_ALPHA."""
_DOUBTS_SHOWN = 3
_SAME_TIME_SEC = 600
"""Profiles that ran one after the other within so long ran at the same time."""


@dataclass(frozen=True)
class Comparability:
    """What stands against a comparison (`refused`), what a reader must know, and tasks that are not the same."""

    refused: list[str]
    warnings: list[str]
    changed: list[TaskRef]
    error_rate_p: float | None
    doubtful: tuple["DoubtfulResults", "DoubtfulResults"]
    """The doubtful results of each, of the measured ones that are compared."""
    redrawn: bool
    """Whether tries broke at different rates while their agents worked, and were run again."""
    same_treatment: bool


def comparability(
    new: ProfileRows,
    old: ProfileRows,
    declared: Mapping[str, dict[str, Any]],
    planned: Sequence[ProfileRows] | None = None,
) -> Comparability:
    """Check two profiles against what was declared of them; `planned`: the two with what is still to come."""
    common = [task for task in new.tasks if task in old.tasks]
    rows = [[row for task in common for row in side.tasks[task]] for side in (new, old)]
    measured = [[row for row in side if row.measured] for side in rows]
    changed = [task for task in common if len(_digests(new, task) | _digests(old, task)) > 1]
    refused, warnings = _factors(new.profile, old.profile, measured, declared)
    refused = [*(f"{name} {ORACLE}" for name in (new.profile, old.profile) if is_oracle(declared, name)), *refused]
    warnings += unexplained(new, old, declared)
    ids = [{row.profile_id for row in side.rows()} for side in (new, old)]
    same = ids[0] == ids[1] and len(ids[0]) == 1 and None not in ids[0]
    warnings += [f"{new.profile} and {old.profile} have the same content, so any difference is noise"] if same else []
    warnings += _unequal_attempts(planned or (new, old), common)
    warnings += _in_time(new.profile, old.profile, measured)
    error_p, flagged = _error_rates(new.profile, old.profile, rows)
    within = [task for task in changed if _digests(new, task) == _digests(old, task)]
    batches = {row.batch for task in within for side in (new, old) for row in side.tasks[task]}
    for tasks, what in (
        ([task for task in changed if task not in within], "not the same task for both (its digest differs)"),
        (within, f"changed {'within the batch' if len(batches) == 1 else 'from trial to trial'} (its digest differs)"),
    ):
        if tasks:
            warnings.append(f"{what}, left out: {some([task.id for task in tasks])}")
    compared = [[row for row in side if row.task not in changed] for side in measured]
    doubtful = (_doubtful(compared[0]), _doubtful(compared[1]))
    flagged += [
        f"{plural(one.count, 'result')} of {len(side)} of {name} look doubtful: {one.why}"
        for name, side, one in zip((new.profile, old.profile), compared, doubtful, strict=True)
        if one.count
    ]
    return Comparability(refused, [*warnings, *flagged], changed, error_p, doubtful, _redrawn(rows), same)


@dataclass(frozen=True)
class DoubtfulResults:
    """How many results are suspect, as a share too, and why: by the names of the reasons, and in words."""

    count: int
    share: float | None
    names: str
    why: str


def _doubtful(measured: Sequence[Row]) -> DoubtfulResults:
    suspects = [row.suspect for row in measured if row.suspect]
    reasons = Counter(reason for found in suspects for reason in found)
    ranked = [reason for reason, _ in reasons.most_common()]
    why = "; ".join(f"{reasons[reason]} x {doubt(reason)}" for reason in ranked[:_DOUBTS_SHOWN])
    more = f"; and {plural(len(ranked) - _DOUBTS_SHOWN, 'further reason')}" if len(ranked) > _DOUBTS_SHOWN else ""
    share = len(suspects) / len(measured) if measured else None
    return DoubtfulResults(len(suspects), share, some(ranked, _DOUBTS_SHOWN), why + more)


def _digests(profile: ProfileRows, task: TaskRef) -> set[str]:
    return {row.task_digest for row in profile.tasks[task] if row.task_digest is not None and row.measured}


def _factors(
    new: str, old: str, measured: Sequence[Sequence[Row]], declared: Mapping[str, dict[str, Any]]
) -> tuple[list[str], list[str]]:
    """Values seen in the trials: entirely different ones that were not declared are refused, mixed ones warned of."""
    refused, warnings = [], []
    for factor, aspects in _FACTORS.items():
        seen = [{value for row in side if (value := getattr(row, factor)) is not None} for side in measured]
        if not all(seen):
            continue
        ours, theirs = declared.get(new, {}), declared.get(old, {})
        explained = any(ours.get(aspect) != theirs.get(aspect) for aspect in aspects)
        what = factor.replace("_", " ")
        shown = f"{new} ran with {_listed(seen[0])}, {old} with {_listed(seen[1])}"
        if seen[0].isdisjoint(seen[1]) and not explained:
            refused.append(f"a different {what} that no profile declares: {shown}")
        elif max(map(len, seen)) > 1 and (not explained or seen[0] & seen[1]):
            warnings.append(f"more than one {what}: {shown}")
    return refused, warnings


def _listed(values: set[str]) -> str:
    return " and ".join(sorted(values))


def _unequal_attempts(sides: Sequence[ProfileRows], common: Sequence[TaskRef]) -> list[str]:
    planned = {len(side.tasks[task]) for side in sides for task in common}
    if len(planned) < 2:
        return []
    return [
        f"{min(planned)} to {max(planned)} attempts per task: if they were added where results varied, the interval "
        f"for these tasks is slightly too narrow, and the difference slightly too small"
    ]


def _in_time(new: str, old: str, measured: Sequence[Sequence[Row]]) -> list[str]:
    """Return whether both ran in the same batches and the same hours: models and machines drift."""
    warnings = []
    batches = [{row.batch for row in side} for side in measured]
    if all(batches) and batches[0] != batches[1]:
        warnings.append(f"from different batches: {new} from {_listed(batches[0])}, {old} from {_listed(batches[1])}")
    spans = []
    for side in measured:
        starts = [row.started_at for row in side if row.started_at]
        ends = [row.finished_at for row in side if row.finished_at]
        spans.append((min(starts), max(ends)) if starts and ends else None)
    ours, theirs = spans
    if not ours or not theirs or max(ours[0], theirs[0]) <= min(ours[1], theirs[1]):
        return warnings
    first, last = min(ours[0], theirs[0])[:19], max(ours[1], theirs[1])[:19]  # some name their zone, others do not
    if (elapsed_sec(first, last) or 0) > _SAME_TIME_SEC:
        shown = [f"{start[:16]} to {end[:16]}".replace("T", " ") for start, end in (ours, theirs)]
        warnings.append(f"not run at the same time: {new} {shown[0]}, {old} {shown[1]}")
    return warnings


def _error_rates(new: str, old: str, rows: Sequence[Sequence[Row]]) -> tuple[float | None, list[str]]:
    """Fisher's test of the share of tries that broke, those that were run again included. What never ran is none."""
    again = [sum(row.broken for row in side) for side in rows]
    counts = [
        (count + sum(row.outcome in _BROKEN for row in side), sum(row.measured for row in side))
        for count, side in zip(again, rows, strict=True)
    ]
    if not all(sum(count) for count in counts) or not any(broken for broken, _ in counts):
        return None, []
    p = stats.fisher_p(counts[0], counts[1])
    if p >= ERROR_ALPHA:
        return p, []
    shown = [
        f"{name} {broken} of {broken + measured}" for name, (broken, measured) in zip((new, old), counts, strict=True)
    ]
    how = ", including tries that were run again" if any(again) else ""
    return p, [f"trials broke at different rates{how} ({', '.join(shown)}), so the measured ones may not be comparable"]


def _redrawn(rows: Sequence[Sequence[Row]]) -> bool:
    """Return whether one profile's trials were run again more often, after they broke while the agent worked.

    An agent may break where it would have failed, and an outage may hit both alike: only the rates can tell.
    """
    counts = [(sum(row.redrawn for row in side), sum(row.measured for row in side)) for side in rows]
    if not any(again for again, _ in counts) or not all(sum(count) for count in counts):
        return False
    return stats.fisher_p(counts[0], counts[1]) < REDRAWN_ALPHA
