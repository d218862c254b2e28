"""What stands behind the numbers of a batch: what was not measured, what is doubtful, what reached the agent."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.index.totals import reason
from terminalbench.records import Delivery as Delivered
from terminalbench.records import Trial
from terminalbench.report.model import Delivery, Group, Superseded, TrialRef
from terminalbench.report.text import money
from terminalbench.text.numbers import plural
from terminalbench.text.outcomes import word

LISTED = 12
"""How many trials of a group are named; the count says how many there are."""

type Refs = Mapping[int, TrialRef]
"""The listed trial of each cell, by the cell's place in the view."""


def grouped(found: Iterable[tuple[str, TrialRef]]) -> tuple[Group, ...]:
    """Trials by what they share and by profile, the largest groups first."""
    groups: dict[tuple[str, int], list[TrialRef]] = defaultdict(list)
    for what, ref in found:
        groups[what, ref.profile].append(ref)
    made = [Group(what, profile, tuple(refs[:LISTED]), len(refs)) for (what, profile), refs in groups.items()]
    return tuple(sorted(made, key=lambda group: (-group.count, group.profile, group.what)))


def not_measured(cells: list[CellState], refs: Refs) -> tuple[Group, ...]:
    """Why trials were not measured."""
    return grouped((reason(c).what, refs[place]) for place, c in enumerate(cells) if not c.measured and place in refs)


def suspects(cells: list[CellState], refs: Refs) -> tuple[Group, ...]:
    """Trials that look wrong: flagged, not changed."""
    found = []
    for place, cell in enumerate(cells):
        trial = cell.row.trial if cell.row else None
        if trial and place in refs:
            found += [(f"{word(cell.outcome)}, but {reason}", refs[place]) for reason in trial.suspect]
    return grouped(found)


def superseded(view: BatchView, link: Callable[[TrialRow], str]) -> tuple[Superseded, ...]:
    """What was run again, by profile, with its cost."""
    free = view.plan.without_model()
    by_profile: dict[str, list[TrialRow]] = defaultdict(list)
    for row in view.superseded:
        by_profile[row.profile or "unknown"].append(row)
    return tuple(
        Superseded(
            profile,
            len(rows),
            money(rows, free),
            tuple((r.task or "?", _ending(r), link(r)) for r in rows[:LISTED]),
        )
        for profile, rows in by_profile.items()
    )


def delivery(cells: list[CellState], refs: Refs) -> tuple[Delivery, ...]:
    """Each part of each profile's treatment: in how many trials it reached the agent."""
    by_profile: dict[int, list[tuple[Trial, TrialRef]]] = defaultdict(list)
    for place, cell in enumerate(cells):
        trial = cell.row.trial if cell.row else None
        if trial is not None and place in refs:
            by_profile[refs[place].profile].append((trial, refs[place]))
    found: list[Delivery] = []
    for profile, trials in sorted(by_profile.items()):
        given = [(trial.delivery, ref) for trial, ref in trials]
        servers = list(dict.fromkeys(name for d, _ in given for name in d.mcp_configured or ()))
        for server in servers:
            found += _server(profile, server, [(d, ref) for d, ref in given if server in (d.mcp_configured or ())])
        found += _hooks(profile, given)
        found += _prompt(profile, given)
        found += _versions(profile, given)
    return tuple(found)


type _Given = list[tuple[Delivered, TrialRef]]


def _server(profile: int, server: str, given: _Given) -> list[Delivery]:
    known = [(server in d.mcp_connected, ref) for d, ref in given if d.mcp_connected is not None]
    counted = [(d.mcp_calls.get(server, 0), ref) for d, ref in given if d.mcp_calls is not None]
    calls = sum(count for count, _ in counted)
    connected = _part(profile, f"MCP server {server}: connected", known, len(given))
    used = [(count > 0, ref) for count, ref in counted]
    return [
        connected,
        _part(profile, f"MCP server {server}: called", used, len(given), f"{plural(calls, 'call')} in all"),
    ]


def _hooks(profile: int, given: _Given) -> list[Delivery]:
    told = [(d.hooks_fired, ref) for d, ref in given if d.hooks_fired is not None]
    if not told:
        return []
    totals: Counter[str] = Counter()
    for fired, _ in told:
        totals.update(fired)
    detail = ", ".join(f"{name} {count:,}" for name, count in totals.most_common(6)) or "none fired"
    return [_part(profile, "hooks: fired", [(bool(fired), ref) for fired, ref in told], len(given), detail)]


def _prompt(profile: int, given: _Given) -> list[Delivery]:
    known = [(d.prompt_delivered, ref) for d, ref in given if d.prompt_delivered is not None]
    if not known:
        return []
    digests = {d.prompt_digest for d, _ in given if d.prompt_digest}
    detail = f"{len(digests)} different prompts" if len(digests) > 1 else ""
    return [_part(profile, "system prompt: delivered", known, len(given), detail)]


def _versions(profile: int, given: _Given) -> list[Delivery]:
    """Several versions within one profile are not one treatment."""
    found = []
    for what, read in (("agent CLI", lambda d: d.cli_version), ("MCP source", lambda d: d.source_commit)):
        counts = Counter(value for d, _ in given if (value := read(d)))
        if len(counts) > 1:
            most = counts.most_common(1)[0][0]
            same = [(read(d) == most, ref) for d, ref in given if read(d)]
            detail = ", ".join(f"{value[:12]} in {count}" for value, count in counts.most_common(4))
            found.append(_part(profile, f"{what}: one version", same, len(given), detail))
    return found


def _part(profile: int, part: str, known: list[tuple[bool, TrialRef]], of: int, detail: str = "") -> Delivery:
    missing = tuple(ref for reached, ref in known if not reached)
    return Delivery(profile, part, len(known) - len(missing), len(known), of - len(known), detail, missing)


def _ending(row: TrialRow) -> str:
    if row.trial is None:
        return row.reason or row.state
    told = row.trial.error_message or row.trial.error_type
    return f"{word(row.trial.outcome)}: {told}" if told else word(row.trial.outcome)
