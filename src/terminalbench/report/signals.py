"""What the findings say, in the shapes a report draws: failure classes, tool mix, effort."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from terminalbench.analytics.labels import STATES
from terminalbench.records import Finding, Outcome
from terminalbench.report.evidence import grouped
from terminalbench.report.model import Effort, Group, ToolUse, TrialRef
from terminalbench.text.outcomes import word

FAILURE_CLASS = "failure_class"
BACKTRACKS = "backtracks"
TOOL_PREFIX = "tool_mix."
JUDGE = "judge:"
LABEL = "label:"
LABEL_LETTERS = 40
TRIPWIRES = {
    "edited_tests": "it changed test files",
    "touched_reward": "it named reward or verifier files",
    "touched_solution": "it named the task's solution",
    "tampering": "tampering was found",
}

type Found = Mapping[str, Mapping[str, Finding]]
"""The findings of each trial (`<job>/<name>`), by their name."""


def needed(finding: Finding) -> bool:
    """Whether a report shows it; of ten thousand trials only these are held in memory."""
    name = finding.name
    if finding.analyzer.startswith(LABEL):
        return True
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
        if finding.name == FAILURE_CLASS and finding.analyzer.startswith(LABEL):
            rule = mine.get(FAILURE_CLASS)
            if rule is None or rule.value in (None, *STATES):
                continue
        mine[finding.name] = finding
    return dict(found)


def failure_class(found: Mapping[str, Finding]) -> str | None:
    """Why a trial did not pass, as a label; None when it was not analysed or passed."""
    finding = found.get(FAILURE_CLASS)
    return finding.value if finding is not None and isinstance(finding.value, str) else None


def failure_groups(refs: Iterable[TrialRef]) -> tuple[Group, ...]:
    """Trials that did not pass, by failure class and profile; and in how many of them a person says the class."""
    failed = [(ref.failure, ref) for ref in refs if ref.failure and ref.outcome is not Outcome.PASSED]
    said = Counter((failure, ref.profile) for failure, ref in failed if ref.failure_by)
    return tuple(replace(group, labelled=said[group.what, group.profile]) for group in grouped(failed))


def tool_use(refs: Iterable[TrialRef], found: Found, profiles: int) -> tuple[ToolUse, ...]:
    """Tool calls by kind, a profile each; profiles without a readable trajectory are left out."""
    calls: list[Counter[str]] = [Counter() for _ in range(profiles)]
    trials = [0] * profiles
    for ref in refs:
        mix = _numbers(found.get(ref.name or "", {}))
        if mix:
            calls[ref.profile].update(mix)
            trials[ref.profile] += 1
    return tuple(ToolUse(i, dict(c.most_common()), trials[i]) for i, c in enumerate(calls) if c)


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


def tripwires(refs: Iterable[TrialRef], found: Found) -> tuple[Group, ...]:
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


def judged(refs: Iterable[TrialRef], findings: Iterable[Finding]) -> tuple[Group, ...]:
    """What the model that judges answered with a label, a truth or a small number, and how often it could not.

    Where a person said otherwise, that stands in its place, and it is said.
    """
    by_name = {ref.name: ref for ref in refs if ref.name}
    everything = list(findings)
    people = {(f.trial, f.name): f for f in everything if f.analyzer.startswith(LABEL)}
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
