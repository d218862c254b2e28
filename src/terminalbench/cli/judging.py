"""What the judge says at the end of `tbench analyze`."""

from collections import Counter

from terminalbench.analytics.judge.agreement import agreements
from terminalbench.analytics.judge.output import kept_findings
from terminalbench.analytics.judge.request import JudgeResult
from terminalbench.analytics.labels import Labels, effective, read_labels
from terminalbench.analytics.run import AnalysisResult
from terminalbench.report.text import columns
from terminalbench.report.trial import printable

_SHOWN = 8
_COUNTED = ("strategy", "root_cause", "mcp_use")


def judged_text(result: AnalysisResult, judged: JudgeResult) -> str:
    """What came of it, for a person: the sentence, the answers counted, the summary, what was not judged and why."""
    parts = [judged.sentence(), _counts(result, judged)]
    if judged.synthesis is not None and judged.synthesis.summary:
        parts.append(printable(" ".join(judged.synthesis.summary.split())))
    labels = Labels([line for batch in result.folders for line in read_labels(batch.analytics).lines])
    lines = [f"agreement with people: {entry.sentence()}" for entry in agreements(judged.findings, labels)]
    lines += [f"note: {printable(note)}" for note in judged.notes]
    reasons = Counter(f"{entry.rubric}: {entry.reason}" for entry in judged.not_judged)
    lines += [f"not judged: {count} x {printable(reason)}" for reason, count in reasons.most_common(_SHOWN)]
    if len(reasons) > _SHOWN:
        lines.append(f"not judged: and {len(reasons) - _SHOWN} further reasons in judge.json")
    return "\n\n".join(filter(None, [*parts, "\n".join([*lines, "with quotes in judge.md"])]))


def _counts(result: AnalysisResult, judged: JudgeResult) -> str:
    """How often each label was given, by profile: the person's where there is one."""
    profiles = {f"{c.row.job}/{c.row.name}": c.profile for view in result.views for c in view.cells if c.row}
    said = kept_findings(result.output, result.folders, {finding.trial for finding in judged.findings})
    found: Counter[tuple[str, str, str]] = Counter()
    for finding in effective(said).values():
        if isinstance(finding.value, str) and finding.name in _COUNTED:
            found[finding.name, profiles.get(finding.trial, "?"), finding.value] += 1
    rows = [["question", "profile", "answer", "trials"]]
    rows += [[*key, str(count)] for key, count in sorted(found.items(), key=lambda e: (e[0][:2], -e[1], e[0]))]
    return columns(rows, left=(0, 1, 2)) if len(rows) > 1 else ""
