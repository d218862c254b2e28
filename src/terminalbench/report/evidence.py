"""What stands behind the numbers of a batch.

What was not measured, what is doubtful, what reached the agent; and what the findings say: failure classes, tool mix,
effort.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from terminalbench.analytics.findings import workflow
from terminalbench.analytics.labels import FAILURE_CLASS, STATES, is_label
from terminalbench.harbor.read.session_start import server_of, spelled
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.index.totals import reason
from terminalbench.records.trial import Delivery as Delivered
from terminalbench.records.trial import Finding, Outcome, Trial
from terminalbench.report.model import DeliveryRow, Effort, SupersededRow, ToolUseRow, TrialGroup, TrialRef, WorkflowUse
from terminalbench.report.text import money
from terminalbench.text.doubts import doubt
from terminalbench.text.numbers import plural
from terminalbench.text.outcomes import word

LISTED = 12
"""How many trials of a group are named; the count says how many there are."""
BACKTRACKS = "backtracks"
TOOL_PREFIX = "tool_mix."
JUDGE = "judge:"
WORKFLOW = workflow.WorkflowAnalyzer.name
_OF_WORKFLOWS = (workflow.GIVEN_UP, workflow.RETRIES, workflow.ESCALATIONS, workflow.HELPED)
LABEL_LETTERS = 40
TRIPWIRES = {
    "edited_tests": "it changed test files",
    "touched_reward": "it named reward or verifier files",
    "touched_solution": "it named the task's solution",
    "tampering": "tampering was found",
}

type Refs = Mapping[int, TrialRef]
"""The listed trial of each cell, by the cell's place in the view."""
type Found = Mapping[str, Mapping[str, Finding]]
"""The findings of each trial (`<job>/<name>`), by their name."""


def grouped(found: Iterable[tuple[str, TrialRef]]) -> tuple[TrialGroup, ...]:
    """Trials by what they share and by profile, the largest groups first."""
    groups: dict[tuple[str, int], list[TrialRef]] = defaultdict(list)
    for what, ref in found:
        groups[what, ref.profile].append(ref)
    made = [TrialGroup(what, profile, tuple(refs[:LISTED]), len(refs)) for (what, profile), refs in groups.items()]
    return tuple(sorted(made, key=lambda group: (-group.count, group.profile, group.what)))


def not_measured(cells: list[CellState], refs: Refs) -> tuple[TrialGroup, ...]:
    """Return why trials were not measured."""
    return grouped((reason(c).what, refs[place]) for place, c in enumerate(cells) if not c.measured and place in refs)


def suspects(cells: list[CellState], refs: Refs) -> tuple[TrialGroup, ...]:
    """Trials that look wrong: flagged, not changed."""
    found = []
    for place, cell in enumerate(cells):
        trial = cell.row.trial if cell.row else None
        if trial and place in refs:
            found += [(f"{word(cell.outcome)}, but {doubt(reason)}", refs[place]) for reason in trial.suspect]
    return grouped(found)


def superseded(view: BatchView, link: Callable[[TrialRow], str]) -> tuple[SupersededRow, ...]:
    """Return what was run again, by profile, with its cost."""
    free = view.plan.without_model()
    by_profile: dict[str, list[TrialRow]] = defaultdict(list)
    for row in view.superseded:
        by_profile[row.profile or "unknown"].append(row)
    return tuple(
        SupersededRow(
            profile,
            len(rows),
            money(rows, free),
            tuple((r.task or "?", _ending(r), link(r)) for r in rows[:LISTED]),
        )
        for profile, rows in by_profile.items()
    )


def delivery(cells: list[CellState], refs: Refs) -> tuple[DeliveryRow, ...]:
    """Each part of each profile's treatment: in how many trials it reached the agent."""
    by_profile: dict[int, list[tuple[Trial, TrialRef]]] = defaultdict(list)
    for place, cell in enumerate(cells):
        trial = cell.row.trial if cell.row else None
        if trial is not None and place in refs:
            by_profile[refs[place].profile].append((trial, refs[place]))
    found: list[DeliveryRow] = []
    for profile, trials in sorted(by_profile.items()):
        given = [(trial.delivery, ref) for trial, ref in trials]
        servers = list(dict.fromkeys(name for d, _ in given for name in d.mcp_configured or ()))
        for server in servers:
            found += _server(profile, server, [(d, ref) for d, ref in given if server in (d.mcp_configured or ())])
        found += _hooks(profile, given)
        found += _prompt(profile, given)
        found += _lessons(profile, given)
        found += _versions(profile, given)
    return tuple(found)


type _Given = list[tuple[Delivered, TrialRef]]


def _server(profile: int, server: str, given: _Given) -> list[DeliveryRow]:
    known = [(server in d.mcp_connected, ref) for d, ref in given if d.mcp_connected is not None]
    counted = [(_calls_of(server, d.mcp_calls), ref) for d, ref in given if d.mcp_calls is not None]
    calls = sum(count for count, _ in counted)
    connected = _part(profile, f"MCP server {server}: connected", known, len(given))
    used = [(count > 0, ref) for count, ref in counted]
    return [
        connected,
        _part(profile, f"MCP server {server}: called", used, len(given), f"{plural(calls, 'call')} in all"),
    ]


def _calls_of(server: str, calls: Mapping[str, int]) -> int:
    """Calls of one server's tools; in a tool's name the odd characters of a server's name became `_`."""
    return sum(count for tool, count in calls.items() if server_of(tool) in (server, spelled(server)))


def _hooks(profile: int, given: _Given) -> list[DeliveryRow]:
    told = [(d.hooks_fired, ref) for d, ref in given if d.hooks_fired is not None]
    if not told:
        return []
    totals: Counter[str] = Counter()
    for fired, _ in told:
        totals.update(fired)
    detail = ", ".join(f"{name} {count:,}" for name, count in totals.most_common(6)) or "none fired"
    return [_part(profile, "hooks: fired", [(bool(fired), ref) for fired, ref in told], len(given), detail)]


def _prompt(profile: int, given: _Given) -> list[DeliveryRow]:
    known = [(d.prompt_delivered, ref) for d, ref in given if d.prompt_delivered is not None]
    if not known:
        return []
    digests = {d.prompt_digest for d, _ in given if d.prompt_digest}
    detail = f"{len(digests)} different prompts" if len(digests) > 1 else ""
    return [_part(profile, "system prompt: delivered", known, len(given), detail)]


def _lessons(profile: int, given: _Given) -> list[DeliveryRow]:
    """Return in how many of the trials with an eligible lesson one was shown: the others were left without one by
    chance."""
    told = [d.lessons for d, _ in given if d.lessons is not None]
    if not told:
        return []
    drawn = [one for lessons in told for one in lessons.exposures]
    eligible = [lessons for lessons in told if lessons.exposures]
    shown = sum(any(one.shown for one in lessons.exposures) for lessons in eligible)
    withheld = sum(not one.shown for one in drawn)
    own = sum(one.shown and one.own for one in drawn)
    detail = [
        f"{plural(len({one.lesson for one in drawn}), 'lesson')}, withheld {withheld} of {plural(len(drawn), 'time')}",
        *(
            [f"{plural(len(told) - len(eligible), 'trial')} had no eligible lesson"]
            if len(told) > len(eligible)
            else []
        ),
        f"from its own task or family: {own}",
    ]
    unknown = len(given) - len(told)
    return [DeliveryRow(profile, "lessons: shown", shown, len(eligible), unknown, "; ".join(detail))]


def _versions(profile: int, given: _Given) -> list[DeliveryRow]:
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


def _part(profile: int, part: str, known: list[tuple[bool, TrialRef]], of: int, detail: str = "") -> DeliveryRow:
    missing = tuple(ref for reached, ref in known if not reached)
    return DeliveryRow(profile, part, len(known) - len(missing), len(known), of - len(known), detail, missing)


def _ending(row: TrialRow) -> str:
    if row.trial is None:
        return row.reason or row.state
    told = row.trial.error_message or row.trial.error_type
    return f"{word(row.trial.outcome)}: {told}" if told else word(row.trial.outcome)


def needed(finding: Finding) -> bool:
    """Return whether a report shows it; of ten thousand trials only these are held in memory."""
    name = finding.name
    if is_label(finding):
        return True
    if finding.analyzer == WORKFLOW:
        return name in _OF_WORKFLOWS
    if name in TRIPWIRES or name.startswith(TOOL_PREFIX):
        return bool(finding.value)
    return name in (FAILURE_CLASS, BACKTRACKS) or finding.analyzer.startswith(JUDGE)


def by_trial(findings: Iterable[Finding]) -> dict[str, dict[str, Finding]]:
    """Findings by trial and name; a later one of the same name stands for an earlier one.

    A person says why a trial failed only of one that did.
    """
    found: dict[str, dict[str, Finding]] = defaultdict(dict)
    for finding in findings:
        mine = found[finding.trial]
        if finding.name == FAILURE_CLASS and is_label(finding):
            rule = mine.get(FAILURE_CLASS)
            if rule is None or rule.value in (None, *STATES):
                continue
        mine[finding.name] = finding
    return dict(found)


def failure_class(found: Mapping[str, Finding]) -> str | None:
    """Return why a trial did not pass, as a label; None when it was not analysed or passed."""
    finding = found.get(FAILURE_CLASS)
    return finding.value if finding is not None and isinstance(finding.value, str) else None


def failure_groups(refs: Iterable[TrialRef]) -> tuple[TrialGroup, ...]:
    """Trials that did not pass, by failure class and profile; and in how many of them a person says the class."""
    failed = [(ref.failure, ref) for ref in refs if ref.failure and ref.outcome is not Outcome.PASSED]
    said = Counter((failure, ref.profile) for failure, ref in failed if ref.failure_by)
    return tuple(replace(group, labelled=said[group.what, group.profile]) for group in grouped(failed))


def tool_use(refs: Iterable[TrialRef], found: Found, profiles: int) -> tuple[ToolUseRow, ...]:
    """Tool calls by kind, a profile each; profiles without a readable trajectory are left out."""
    calls: list[Counter[str]] = [Counter() for _ in range(profiles)]
    trials = [0] * profiles
    for ref in refs:
        mix = _numbers(found.get(ref.name or "", {}))
        if mix:
            calls[ref.profile].update(mix)
            trials[ref.profile] += 1
    return tuple(ToolUseRow(i, dict(c.most_common()), trials[i]) for i, c in enumerate(calls) if c)


def given_up(refs: Iterable[TrialRef], findings: Iterable[Finding]) -> tuple[TrialGroup, ...]:
    """Return where guarded workflows were given up: the step, and the guard that had the last word."""
    at = {f.trial: f.value for f in findings if f.analyzer == WORKFLOW and f.name == workflow.GIVEN_UP and f.value}
    return grouped((str(at[ref.name]), ref) for ref in refs if ref.name in at)


def workflows(refs: Iterable[TrialRef], findings: Iterable[Finding]) -> tuple[WorkflowUse, ...]:
    """Return what the guarded workflows of each profile took; profiles without one are left out."""
    found: dict[str, dict[str, Finding]] = defaultdict(dict)
    for finding in findings:
        if finding.analyzer == WORKFLOW:
            found[finding.trial][finding.name] = finding
    by_profile: dict[int, list[dict[str, Finding]]] = defaultdict(list)
    for ref in refs:
        if ref.name in found:
            by_profile[ref.profile].append(found[ref.name])

    def added(trials: list[dict[str, Finding]], name: str) -> int:
        values = [trial[name].value for trial in trials if name in trial]
        return sum(value for value in values if isinstance(value, int))

    return tuple(
        WorkflowUse(
            profile,
            len(trials),
            sum(workflow.GIVEN_UP in trial and trial[workflow.GIVEN_UP].value is not None for trial in trials),
            *(added(trials, name) for name in (workflow.RETRIES, workflow.ESCALATIONS, workflow.HELPED)),
        )
        for profile, trials in sorted(by_profile.items())
    )


def _numbers(found: Mapping[str, Finding]) -> dict[str, int]:
    return {
        name.removeprefix(TOOL_PREFIX): int(finding.value)
        for name, finding in found.items()
        if name.startswith(TOOL_PREFIX) and isinstance(finding.value, int | float)
    }


def efforts(refs: Iterable[TrialRef], found: Found) -> tuple[Effort, ...]:
    """Tokens and backtracks of the trials that have both."""
    made = []
    for ref in refs:
        mine = found.get(ref.name or "", {})
        back = _number(mine.get(BACKTRACKS))
        if ref.tokens is not None and back is not None:
            made.append(Effort(ref, ref.tokens, int(back)))
    return tuple(made)


def tripwires(refs: Iterable[TrialRef], found: Found) -> tuple[TrialGroup, ...]:
    """Trials that did what an honest solution rarely needs. A reason to look, not a verdict."""
    hits = []
    for ref in refs:
        mine = found.get(ref.name or "", {})
        for name, says in TRIPWIRES.items():
            finding = mine.get(name)
            if finding is not None and finding.value:
                label = f": {finding.value}" if isinstance(finding.value, str) else ""
                hits.append((f"{word(ref.outcome)}, and {says}{label}", ref))
    return grouped(hits)


def judged(refs: Iterable[TrialRef], findings: Iterable[Finding]) -> tuple[TrialGroup, ...]:
    """Return what the model that judges answered with a label, a truth or a small number, and how often it could not.

    Where a person said otherwise, that stands in its place, and it is said.
    """
    by_name = {ref.name: ref for ref in refs if ref.name}
    everything = list(findings)
    people = {(f.trial, f.name): f for f in everything if is_label(f)}
    hits = []
    for finding in everything:
        ref = by_name.get(finding.trial)
        if ref is None or not finding.analyzer.startswith(JUDGE):
            continue
        person = people.get((finding.trial, finding.name))
        value = finding.value if person is None else person.value
        if finding.name.endswith("_step"):
            continue  # a place, not an answer
        if isinstance(value, float) or (isinstance(value, str) and len(value) > LABEL_LETTERS):
            continue
        answer = "not judged" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        hits.append((f"{finding.name}: {answer}{' (a person says)' if person is not None else ''}", ref))
    return tuple(sorted(grouped(hits), key=lambda group: (group.what.partition(":")[0], -group.count)))


def _number(finding: Finding | None) -> float | None:
    value = finding.value if finding is not None else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
