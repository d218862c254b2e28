"""What stands behind the numbers of a batch.

What was not measured, what is doubtful, what reached the agent; and what the findings say: failure classes, tool mix,
effort.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from terminalbench.analytics.findings.trial import ESCALATIONS, GIVEN_UP, HELPED, RETRIES, WorkflowAnalyzer
from terminalbench.analytics.findings.trial_files import Value
from terminalbench.analytics.labels import FAILURE_CLASS, STATES, is_label
from terminalbench.harbor.read.session_start import server_of, spelled
from terminalbench.index.queries import BatchView, TrialRow
from terminalbench.index.totals import reason
from terminalbench.records.trial import Delivery as Delivered
from terminalbench.records.trial import Finding, Outcome
from terminalbench.report.model import DeliveryRow, Effort, SupersededRow, ToolUseRow, TrialGroup, TrialRef, WorkflowUse
from terminalbench.report.text import money
from terminalbench.text.numbers import plural
from terminalbench.text.outcomes import word
from terminalbench.text.reasons import doubt

LISTED = 12
"""How many trials of a group are named; the count says how many there are."""
BACKTRACKS = "backtracks"
TOOL_PREFIX = "tool_mix."
JUDGE = "judge:"
WORKFLOW = WorkflowAnalyzer.name
_OF_WORKFLOWS = (GIVEN_UP, RETRIES, ESCALATIONS, HELPED)
LABEL_LETTERS = 40
TRIPWIRES = {
    "edited_tests": "it changed test files",
    "touched_reward": "it named reward or verifier files",
    "touched_solution": "it named the task's solution",
    "tampering": "tampering was found",
}


def grouped(found: Iterable[tuple[str, TrialRef]]) -> tuple[TrialGroup, ...]:
    """Trials by what they share and by profile, the largest groups first."""
    groups: dict[tuple[str, str], list[TrialRef]] = defaultdict(list)
    for what, ref in found:
        groups[what, ref.cell.profile].append(ref)
    made = [TrialGroup(what, profile, tuple(refs[:LISTED]), len(refs)) for (what, profile), refs in groups.items()]
    return tuple(sorted(made, key=lambda group: (-group.count, group.trials[0].at[1], group.what)))


def not_measured(refs: Iterable[TrialRef]) -> tuple[TrialGroup, ...]:
    """Return why trials were not measured."""
    return grouped((reason(ref.cell).what, ref) for ref in refs if not ref.cell.measured)


def suspects(refs: Iterable[TrialRef]) -> tuple[TrialGroup, ...]:
    """Trials that look wrong: flagged, not changed."""
    return grouped(
        (f"{word(ref.cell.outcome)}, but {doubt(why)}", ref)
        for ref in refs
        for why in (ref.trial.suspect if ref.trial is not None else ())
    )


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


def delivery(refs: Iterable[TrialRef]) -> tuple[DeliveryRow, ...]:
    """Each part of each profile's treatment: in how many trials it reached the agent."""
    by_profile: dict[str, _Given] = defaultdict(list)
    for ref in refs:
        if ref.trial is not None:
            by_profile[ref.cell.profile].append((ref.trial.delivery, ref))
    parts = (_servers, _hooks, _prompt, _lessons, _versions)
    return tuple(row for profile, given in by_profile.items() for part in parts for row in part(profile, given))


type _Given = list[tuple[Delivered, TrialRef]]


def _part(profile: str, part: str, reached: Sequence[tuple[bool | None, TrialRef]], detail: str = "") -> DeliveryRow:
    """Return in how many trials a part reached the agent, by whether it did in each; None is unknown."""
    known = [(said, ref) for said, ref in reached if said is not None]
    missing = tuple(ref for said, ref in known if not said)
    return DeliveryRow(profile, part, len(known) - len(missing), len(known), len(reached) - len(known), detail, missing)


def _servers(profile: str, every: _Given) -> Iterator[DeliveryRow]:
    for server in dict.fromkeys(name for had, _ in every for name in had.mcp_configured or ()):
        given = [(had, ref) for had, ref in every if server in (had.mcp_configured or ())]
        connected = [(None if had.mcp_connected is None else server in had.mcp_connected, ref) for had, ref in given]
        yield _part(profile, f"MCP server {server}: connected", connected)
        calls = [(None if had.mcp_calls is None else _calls_of(server, had.mcp_calls), ref) for had, ref in given]
        called = [(None if count is None else count > 0, ref) for count, ref in calls]
        in_all = f"{plural(sum(count or 0 for count, _ in calls), 'call')} in all"
        yield _part(profile, f"MCP server {server}: called", called, in_all)


def _calls_of(server: str, calls: Mapping[str, int]) -> int:
    """Calls of one server's tools; in a tool's name the odd characters of a server's name became `_`."""
    return sum(count for tool, count in calls.items() if server_of(tool) in (server, spelled(server)))


def _hooks(profile: str, given: _Given) -> Iterator[DeliveryRow]:
    fired = [(had.hooks_fired, ref) for had, ref in given]
    told = [counts for counts, _ in fired if counts is not None]
    if told:
        totals = sum(map(Counter, told), Counter[str]())
        detail = ", ".join(f"{name} {count:,}" for name, count in totals.most_common(6)) or "none fired"
        reached = [(None if counts is None else bool(counts), ref) for counts, ref in fired]
        yield _part(profile, "hooks: fired", reached, detail)


def _prompt(profile: str, given: _Given) -> Iterator[DeliveryRow]:
    reached = [(had.prompt_delivered, ref) for had, ref in given]
    if any(delivered is not None for delivered, _ in reached):
        digests = {had.prompt_digest for had, _ in given if had.prompt_digest}
        detail = f"{len(digests)} different prompts" if len(digests) > 1 else ""
        yield _part(profile, "system prompt: delivered", reached, detail)


def _lessons(profile: str, given: _Given) -> Iterator[DeliveryRow]:
    """Yield in how many of the trials with an eligible lesson one was shown: the others were left without one by
    chance."""
    told = [had.lessons for had, _ in given if had.lessons is not None]
    if not told:
        return
    drawn = [one for lessons in told for one in lessons.exposures]
    eligible = [lessons for lessons in told if lessons.exposures]
    shown = sum(any(one.shown for one in lessons.exposures) for lessons in eligible)
    withheld = sum(not one.shown for one in drawn)
    detail = [
        f"{plural(len({one.lesson for one in drawn}), 'lesson')}, withheld {withheld} of {plural(len(drawn), 'time')}"
    ]
    if len(told) > len(eligible):
        detail.append(f"{plural(len(told) - len(eligible), 'trial')} had no eligible lesson")
    detail.append(f"from its own task or family: {sum(one.shown and one.own for one in drawn)}")
    yield DeliveryRow(profile, "lessons: shown", shown, len(eligible), len(given) - len(told), "; ".join(detail))


def _versions(profile: str, given: _Given) -> Iterator[DeliveryRow]:
    """Several versions within one profile are not one treatment."""
    for what, read in (("agent CLI", attrgetter("cli_version")), ("MCP source", attrgetter("source_commit"))):
        versions = [(read(had) or None, ref) for had, ref in given]
        counts = Counter(version for version, _ in versions if version is not None)
        if len(counts) > 1:
            most = counts.most_common(1)[0][0]
            detail = ", ".join(f"{version[:12]} in {count}" for version, count in counts.most_common(4))
            same = [(None if version is None else version == most, ref) for version, ref in versions]
            yield _part(profile, f"{what}: one version", same, detail)


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

    The names of what is found about workflows begin with `workflow.`. A person says why a trial failed only of one
    that did.
    """
    found: dict[str, dict[str, Finding]] = defaultdict(dict)
    for finding in findings:
        mine = found[finding.trial]
        if finding.name == FAILURE_CLASS and is_label(finding):
            rule = mine.get(FAILURE_CLASS)
            if rule is None or rule.value in (None, *STATES):
                continue
        mine[f"{WORKFLOW}.{finding.name}" if finding.analyzer == WORKFLOW else finding.name] = finding
    return dict(found)


def failure_groups(refs: Iterable[TrialRef]) -> tuple[TrialGroup, ...]:
    """Trials that did not pass, by failure class and profile; and in how many of them a person says the class."""
    failed = [(ref.failure, ref) for ref in refs if ref.failure and ref.cell.outcome is not Outcome.PASSED]
    said = Counter((failure, ref.cell.profile) for failure, ref in failed if ref.failure_by)
    return tuple(replace(group, labelled=said[group.what, group.profile]) for group in grouped(failed))


def tool_use(refs: Iterable[TrialRef]) -> tuple[ToolUseRow, ...]:
    """Tool calls by kind, a profile each; profiles without a readable trajectory are left out."""
    calls: dict[str, list[dict[str, int]]] = defaultdict(list)
    for ref in refs:
        mix = {
            name.removeprefix(TOOL_PREFIX): int(finding.value)
            for name, finding in ref.findings.items()
            if name.startswith(TOOL_PREFIX) and isinstance(finding.value, int | float)
        }
        if mix:
            calls[ref.cell.profile].append(mix)
    return tuple(
        ToolUseRow(profile, dict(sum(map(Counter, mixes), Counter[str]()).most_common()), len(mixes))
        for profile, mixes in calls.items()
    )


def given_up(refs: Iterable[TrialRef]) -> tuple[TrialGroup, ...]:
    """Return where guarded workflows were given up: the step, and the guard that had the last word."""
    return grouped((str(at), ref) for ref in refs if (at := _of_workflow(ref, GIVEN_UP)))


def workflows(refs: Iterable[TrialRef]) -> tuple[WorkflowUse, ...]:
    """Return what the guarded workflows of each profile took; profiles without one are left out."""
    by_profile: dict[str, list[TrialRef]] = defaultdict(list)
    for ref in refs:
        if any(name.startswith(f"{WORKFLOW}.") for name in ref.findings):
            by_profile[ref.cell.profile].append(ref)
    counted = (RETRIES, ESCALATIONS, HELPED)
    return tuple(
        WorkflowUse(
            profile,
            len(mine),
            sum(_of_workflow(ref, GIVEN_UP) is not None for ref in mine),
            *(sum(n for ref in mine if isinstance(n := _of_workflow(ref, name), int)) for name in counted),
        )
        for profile, mine in by_profile.items()
    )


def _of_workflow(ref: TrialRef, name: str) -> Value:
    found = ref.findings.get(f"{WORKFLOW}.{name}")
    return found.value if found is not None else None


def efforts(refs: Iterable[TrialRef]) -> tuple[Effort, ...]:
    """Tokens and backtracks of the trials that have both."""
    found = []
    for ref in refs:
        tokens = ref.cell.row.usage.total_tokens if ref.cell.row is not None else None
        back = ref.findings[BACKTRACKS].value if BACKTRACKS in ref.findings else None
        if tokens is not None and isinstance(back, int | float) and not isinstance(back, bool):
            found.append(Effort(ref, tokens, int(back)))
    return tuple(found)


def tripwires(refs: Iterable[TrialRef]) -> tuple[TrialGroup, ...]:
    """Trials that did what an honest solution rarely needs. A reason to look, not a verdict."""
    hits = []
    for ref in refs:
        for name, says in TRIPWIRES.items():
            value = ref.findings[name].value if name in ref.findings else None
            if value:
                label = f": {value}" if isinstance(value, str) else ""
                hits.append((f"{word(ref.cell.outcome)}, and {says}{label}", ref))
    return grouped(hits)


def judged(refs: Iterable[TrialRef], findings: Sequence[Finding]) -> tuple[TrialGroup, ...]:
    """Return what the model that judges answered with a label, a truth or a small number, and how often it could not.

    Where a person said otherwise, that stands in its place, and it is said.
    """
    by_name = {ref.cell.row.key: ref for ref in refs if ref.cell.row is not None}
    people = {(f.trial, f.name): f for f in findings if is_label(f)}
    hits = []
    for finding in findings:
        ref = by_name.get(finding.trial)
        # what is named a step is a place, not an answer
        if ref is None or not finding.analyzer.startswith(JUDGE) or finding.name.endswith("_step"):
            continue
        person = people.get((finding.trial, finding.name))
        value = (person or finding).value
        if isinstance(value, float) or (isinstance(value, str) and len(value) > LABEL_LETTERS):
            continue
        answer = "not judged" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        hits.append((f"{finding.name}: {answer}{' (a person says)' if person is not None else ''}", ref))
    return tuple(sorted(grouped(hits), key=lambda group: (group.what.partition(":")[0], -group.count)))
