"""An error analysis as Markdown and JSON files beside the results; the last of each is also called `latest`."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from textwrap import fill

from terminalbench.files import write_bytes
from terminalbench.json_files import encode_json
from terminalbench.swebench_pro.error_analysis import ErrorAnalysis, EscalationCount, Run, Sums, document, mean, ordered
from terminalbench.swebench_pro.rows import RunVerdict
from terminalbench.text.foreign import flat, short
from terminalbench.text.names import named
from terminalbench.text.numbers import NOTHING, UNKNOWN, cost, count, duration, percent, plural, tokens
from terminalbench.text.paths import typed
from terminalbench.text.table import fitted

REPORT, ERRORS = "final_error_analysis", "final_errors"
_ERROR_LETTERS = 300
_WIDTH = 80
_SUMMARY = dict(zip(RunVerdict, ("resolved", "unresolved", "gave up", "errors", "pending", "not run"), strict=True))
_SELDOM = (RunVerdict.PENDING, RunVerdict.NOT_RUN)
"""What has a column only where there is some of it."""


@dataclass(frozen=True)
class ErrorReportFiles:
    """The files of an analysis."""

    report: Path
    errors: Path


def write(analysis: ErrorAnalysis, folder: Path, at: datetime) -> ErrorReportFiles:
    """Write report and document, and point `latest` at them."""
    stamp = at.strftime("%Y%m%d_%H%M%S")
    files = ErrorReportFiles(folder / f"{REPORT}_{stamp}.md", folder / f"{ERRORS}_{stamp}.json")
    for path, data in (
        (files.report, report(analysis, at).encode(errors="replace")),
        (files.errors, encode_json(document(analysis, at))),
    ):
        write_bytes(path, data)
        latest = path.with_name(f"{path.name.removesuffix(f'{stamp}{path.suffix}')}latest{path.suffix}")
        made = latest.with_name(f".{latest.name}.{os.getpid()}.tmp")
        made.unlink(missing_ok=True)
        made.symlink_to(path.name)
        made.replace(latest)
    return files


def summary(analysis: ErrorAnalysis) -> Iterator[str]:
    """The analysis in a few lines that fit a terminal."""
    order = [
        one for one in RunVerdict if one not in _SELDOM or any(sums.standings[one] for sums in analysis.arms.values())
    ]
    rows = [
        [short(_badged(item), 30), str(item[1].runs), *(str(item[1].standings[standing]) for standing in order)]
        for item in analysis.arms.items()
    ]
    head = ["arm", "runs", *map(_SUMMARY.__getitem__, order)]
    yield fitted([head, *rows], (0,), _WIDTH) if rows else f"there is no run in {analysis.source}"
    guards = sum(analysis.guards.values(), Counter[str]())
    if guards:
        yield "given up at: " + ", ".join(f"{guard} {n}" for guard, n in guards.most_common(5))
    if analysis.escalations is not None and analysis.escalations.total.times:
        yield f"{plural(analysis.escalations.total.times, 'escalation')}. {_help(analysis.escalations.total)}"
    if analysis.legacy:
        yield fill(_legacy(analysis), _WIDTH, break_long_words=False, break_on_hyphens=False)
    if analysis.bad_lines:
        yield f"{plural(analysis.bad_lines, 'line')} of the results could not be read"


def _legacy(analysis: ErrorAnalysis) -> str:
    folder = typed(Path(analysis.source).parent)
    what = plural(analysis.legacy, "row is", "rows are")
    return (
        f"{what} of AtomicGuard's own runner, which calls failures a success and leaves out rejected attempts. "
        f"Import them first: tbench swebench-pro import {folder} --output-dir IMPORTED"
    )


def report(analysis: ErrorAnalysis, at: datetime) -> str:
    """The analysis for people."""
    lines: list[str] = [f"# Final error analysis ({at:%Y-%m-%d %H:%M} UTC)", "", *_overview(analysis)]
    lines += ["", "## Arms", "", *_arms(analysis), "", *_guards(analysis), "", *_escalations(analysis)]
    for title, standing in (
        ("Runs that gave up", RunVerdict.GAVE_UP),
        ("Errors without a verdict", RunVerdict.ERROR),
        ("Patches that did not resolve their instance", RunVerdict.UNRESOLVED),
    ):
        lines += ["", f"## {title} ({count(len(analysis.runs[standing]))})", "", *_runs(analysis, standing)]
    lines += ["", "## Cost", "", *_cost(analysis)]
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A Markdown table; what stands in a cell cannot end it."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(_cell(value) for value in line)} |" for line in lines]


def _cell(value: object) -> str:
    return flat(str(value)).replace("\\", "\\\\").replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def _overview(analysis: ErrorAnalysis) -> list[str]:
    total, n = analysis.total, analysis.total.standings
    facts = [
        ("Results", analysis.source),
        ("Model", ", ".join(analysis.models) or UNKNOWN),
        ("Arms", ", ".join(map(_badged, analysis.arms.items()))),
        ("Instances", count(analysis.instances)),
        ("Total runs", count(total.runs)),
        *((str(standing).capitalize(), count(n[standing])) for standing in RunVerdict if n[standing]),
        ("Retries", _retries(total)),
        ("Total tokens", tokens(total.tokens, total.tokens_unknown)),
        ("Cost", cost(total.cost_usd, total.cost_unknown)),
        ("Mean wall time", duration(mean(total.wall))),
        ("Mean set-up time", duration(mean(total.init))),
        ("Mean workflow time", duration(mean(total.work))),
    ]
    if total.failed_attempts is not None:
        facts.append(("Failed attempts", count(total.failed_attempts)))
    if analysis.bad_lines:
        facts.append(("Lines that are not rows", count(analysis.bad_lines)))
    if analysis.repeated:
        facts.append(("Rows replaced by a later one", count(analysis.repeated)))
    note = ["", _legacy(analysis)] if analysis.legacy else []
    return ["## Experiment overview", "", *_table(("", ""), facts), *note]


def _badged(item: tuple[str, Sums]) -> str:
    arm, sums = item
    return named(arm, oracle=sums.oracle) + (" (simulated)" if sums.simulated else "")


def _retries(sums: Sums) -> str:
    known = sums.retries is not None
    return (
        f"{count(sums.retries)} + {sums.retries_unknown} unknown"
        if known and sums.retries_unknown
        else count(sums.retries)
    )


def _arms(analysis: ErrorAnalysis) -> list[str]:
    head = (
        "Arm",
        "Runs",
        *(str(s).capitalize() for s in RunVerdict),
        "Resolved of tested",
        "Retries",
        "Mean wall time",
    )
    rows = []
    for arm, sums in analysis.arms.items():
        n = sums.standings
        tested = sums.runs - n[RunVerdict.NOT_RUN] - n[RunVerdict.ERROR] - n[RunVerdict.PENDING]
        share = percent(n[RunVerdict.RESOLVED] / tested) if tested else NOTHING
        retries = _retries(sums)
        name = _badged((arm, sums))
        rows.append((name, sums.runs, *(n[s] for s in RunVerdict), share, retries, duration(mean(sums.wall))))
    return _table(head, rows)


def _guards(analysis: ErrorAnalysis) -> list[str]:
    lines = ["## Failures by arm and final guard", ""]
    if not analysis.guards:
        return [*lines, "No run gave up."]
    rows = [
        (
            _badged((arm, analysis.arms[arm])),
            sum(counts.values()),
            ", ".join(f"{guard}: {n}" for guard, n in counts.most_common()),
        )
        for arm, counts in analysis.guards.items()
    ]
    return [*lines, *_table(("Arm", "Given up", "Final guard"), rows)]


def _escalations(analysis: ErrorAnalysis) -> list[str]:
    found, lines = analysis.escalations, ["## Escalations", ""]
    if found is None:
        return [*lines, "Traces were not read."]
    missing = f" {plural(analysis.no_trace, 'run has', 'runs have')} no trace." if analysis.no_trace else ""
    if analysis.bad_trace_lines:
        missing += f" {plural(analysis.bad_trace_lines, 'line')} of traces could not be read."
    if not found.total.times:
        return [*lines, f"No run escalated.{missing}"]
    said = plural(found.total.times, "escalation")
    runs = plural(found.runs, "run")
    lines += [f"{said} in {runs}, {found.runs_resolved} of them resolved. {_help(found.total)}{missing}", ""]
    for what, groups in (("Stagnant guard", found.by_guard), ("Target", found.by_target)):
        rows = [(name, one.times, one.helped, one.unknown) for name, one in ordered(groups)]
        lines += [*_table((what, "Times", "Step passed afterwards", "Not known"), rows), ""]
    return lines[:-1]


def _help(one: EscalationCount) -> str:
    known = one.times - one.unknown
    return f"The step passed afterwards in {one.helped} of {known} cases." if known else "No outcome is known."


def _runs(analysis: ErrorAnalysis, standing: RunVerdict) -> Iterator[str]:
    found = analysis.runs[standing]
    if not found:
        yield "None."
        return
    by_arm: dict[str, list[Run]] = {}
    for run in found:
        by_arm.setdefault(run.row.arm, []).append(run)
    for arm, runs in by_arm.items():
        yield f"### {_cell(_badged((arm, analysis.arms[arm])))} ({len(runs)})"
        yield ""
        for run in runs:
            yield from _run(run, standing)
        if not runs[-1].retries and arm != next(reversed(by_arm)):  # a table has its empty line already
            yield ""


def _run(run: Run, standing: RunVerdict) -> Iterator[str]:
    row = run.row
    attempt = f" #{row.attempt}" if row.attempt != 1 else ""
    yield f"- **{_cell(row.instance_id)}**{attempt}: {_cell(_why(run, standing))}"
    if run.retries:
        yield ""
        head = ("Retry", "Step", "Cycle", "Guard", "Error")
        rows = [
            (n, one.step, one.cycle, one.guard, one.said + (" ← FINAL" if one.final else ""))
            for n, one in enumerate(run.retries, start=1)
        ]
        yield from (f"  {line}" for line in _table(head, rows))
        yield ""


def _why(run: Run, standing: RunVerdict) -> str:
    row = run.row
    if standing is RunVerdict.ERROR:
        said = ": ".join(part for part in (row.error_class or row.outcome, row.error) if part)
        return flat(said, _ERROR_LETTERS) or UNKNOWN
    tried = f"{UNKNOWN} retries" if row.retry_count is None else plural(row.retry_count, "retry", "retries")
    many = len(run.escalations) or row.escalation_count or 0
    escalated = f", {plural(many, 'escalation')}" if many else ""
    if standing is RunVerdict.GAVE_UP:
        why = f" ({row.failure})" if row.failure else ""
        best = "; its best patch was submitted" if row.best_submitted else ""
        return f"failed at {row.failed_step or UNKNOWN} by {run.guard}{why}; {tried}{escalated}{best}"
    patch = "a large patch" if row.patch_file else f"a patch of {plural(row.patch_content.count('\n'), 'line')}"
    return f"{patch}; {tried}{escalated}"


def _cost(analysis: ErrorAnalysis) -> list[str]:
    rows = []
    for arm, sums in analysis.arms.items():
        resolved = sums.standings[RunVerdict.RESOLVED]
        known = sums.cost_usd is not None and not sums.cost_unknown
        each = cost((sums.cost_usd or 0.0) / resolved) if resolved and known else NOTHING
        money = cost(sums.cost_usd, sums.cost_unknown)
        rows.append((_badged((arm, sums)), money, tokens(sums.tokens, sums.tokens_unknown), each))
    return _table(("Arm", "Cost", "Tokens", "Cost of a resolved instance"), rows)
