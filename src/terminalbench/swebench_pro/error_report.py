"""An error analysis as Markdown and JSON files beside the results; the last of each is also called `latest`."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from textwrap import fill

from terminalbench.files import write_bytes
from terminalbench.json_files import encode_json
from terminalbench.swebench_pro.error_analysis import LISTED, ArmRuns, ErrorAnalysis, Run, document, ordered
from terminalbench.swebench_pro.rows import RunVerdict
from terminalbench.text.foreign import flat, short
from terminalbench.text.names import typed
from terminalbench.text.numbers import NOTHING, UNKNOWN, cost, count, duration, percent, plural, tokens
from terminalbench.text.table import fitted

REPORT, ERRORS = "final_error_analysis", "final_errors"
_ERROR_LETTERS = 300
_WIDTH = 80
_SELDOM = (RunVerdict.PENDING, RunVerdict.NOT_RUN)
"""What has a column of the summary only where there is some of it."""


@dataclass(frozen=True)
class ErrorReportFiles:
    """The files of an analysis."""

    report: Path
    errors: Path


def write(analysis: ErrorAnalysis, folder: Path, at: datetime) -> ErrorReportFiles:
    """Write report and document, and point `latest` at them."""
    stamp = at.strftime("%Y%m%d_%H%M%S")
    files = ErrorReportFiles(folder / f"{REPORT}_{stamp}.md", folder / f"{ERRORS}_{stamp}.json")
    write_bytes(files.report, report(analysis, at).encode(errors="replace"))
    write_bytes(files.errors, encode_json(document(analysis, at)))
    for path, name in ((files.report, f"{REPORT}_latest.md"), (files.errors, f"{ERRORS}_latest.json")):
        made = folder / f".{name}.{os.getpid()}.tmp"
        made.unlink(missing_ok=True)
        made.symlink_to(path.name)
        made.replace(folder / name)
    return files


def summary(analysis: ErrorAnalysis) -> Iterator[str]:
    """The analysis in a few lines that fit a terminal."""
    shown = [one for one in RunVerdict if one not in _SELDOM or analysis.total.standings[one]]
    rows = [
        [short(runs.badged, 30), str(len(runs.rows)), *(str(runs.standings[one]) for one in shown)]
        for runs in analysis.arms.values()
    ]
    head = ["arm", "runs", *map(str, shown)]
    yield fitted([head, *rows], (0,), _WIDTH) if rows else f"there is no run in {analysis.source}"
    guards = sum(analysis.guards.values(), Counter[str]())
    if guards:
        yield "given up at: " + ", ".join(f"{guard} {n}" for guard, n in guards.most_common(5))
    if analysis.escalations is not None and analysis.escalations.total.times:
        yield f"{plural(analysis.escalations.total.times, 'escalation')}. {analysis.escalations.total}"
    if analysis.legacy:
        yield fill(_legacy(analysis), _WIDTH, break_long_words=False, break_on_hyphens=False)
    if analysis.results.bad_lines:
        yield f"{plural(analysis.results.bad_lines, 'line')} of the results could not be read"


def _legacy(analysis: ErrorAnalysis) -> str:
    folder = typed(Path(analysis.source).parent)
    what = plural(analysis.legacy, "row is", "rows are")
    return (
        f"{what} of AtomicGuard's own runner, which calls failures a success and leaves out rejected attempts. "
        f"Import them first: tbench swebench-pro import {folder} --output-dir IMPORTED"
    )


def report(analysis: ErrorAnalysis, at: datetime) -> str:
    """The analysis for people."""
    lines = [f"# Final error analysis ({at:%Y-%m-%d %H:%M} UTC)", "", *_overview(analysis)]
    lines += ["", "## Arms", "", *_arms(analysis), "", *_guards(analysis), "", *_escalations(analysis)]
    for standing, (_, title) in LISTED.items():
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
    total, results = analysis.total, analysis.results
    facts = [
        ("Results", analysis.source),
        ("Model", ", ".join(analysis.models) or UNKNOWN),
        ("Arms", ", ".join(runs.badged for runs in analysis.arms.values())),
        ("Instances", count(analysis.instances)),
        ("Total runs", count(len(total.rows))),
        *((str(one).capitalize(), count(total.standings[one])) for one in RunVerdict if total.standings[one]),
        ("Retries", _total_retries(total)),
        ("Total tokens", tokens(total.total("total_tokens"), total.unknown("total_tokens"))),
        ("Cost", cost(total.total("cost_usd"), total.unknown("cost_usd"))),
        ("Mean wall time", duration(total.mean("wall_time_seconds"))),
        ("Mean set-up time", duration(total.mean("init_time_seconds"))),
        ("Mean workflow time", duration(total.mean("workflow_time_seconds"))),
    ]
    for name, number in (
        ("Failed attempts", total.total("failed_attempts")),
        ("Lines that are not rows", results.bad_lines or None),
        ("Rows replaced by a later one", results.repeated or None),
    ):
        facts += [(name, count(number))] if number is not None else []
    note = ["", _legacy(analysis)] if analysis.legacy else []
    return ["## Experiment overview", "", *_table(("", ""), facts), *note]


def _total_retries(runs: ArmRuns) -> str:
    known, unknown = runs.total("retry_count"), runs.unknown("retry_count")
    return f"{count(known)} + {unknown} unknown" if known is not None and unknown else count(known)


def _arms(analysis: ErrorAnalysis) -> list[str]:
    words = [str(standing).capitalize() for standing in RunVerdict]
    rows = []
    for runs in analysis.arms.values():
        n = runs.standings
        tested = len(runs.rows) - n[RunVerdict.NOT_RUN] - n[RunVerdict.ERROR] - n[RunVerdict.PENDING]
        share = percent(n[RunVerdict.RESOLVED] / tested) if tested else NOTHING
        wall = duration(runs.mean("wall_time_seconds"))
        rows.append((runs.badged, len(runs.rows), *(n[s] for s in RunVerdict), share, _total_retries(runs), wall))
    return _table(("Arm", "Runs", *words, "Resolved of tested", "Retries", "Mean wall time"), rows)


def _guards(analysis: ErrorAnalysis) -> list[str]:
    rows = []
    for arm, counts in analysis.guards.items():
        told = ", ".join(f"{guard}: {n}" for guard, n in counts.most_common())
        rows.append((analysis.arms[arm].badged, counts.total(), told))
    table = _table(("Arm", "Given up", "Final guard"), rows) if rows else ["No run gave up."]
    return ["## Failures by arm and final guard", "", *table]


def _escalations(analysis: ErrorAnalysis) -> list[str]:
    found, lines = analysis.escalations, ["## Escalations", ""]
    if found is None:
        return [*lines, "Traces were not read."]
    missing = f" {plural(analysis.no_trace, 'run has', 'runs have')} no trace." if analysis.no_trace else ""
    if analysis.bad_trace_lines:
        missing += f" {plural(analysis.bad_trace_lines, 'line')} of traces could not be read."
    if not found.total.times:
        return [*lines, f"No run escalated.{missing}"]
    runs = f"{plural(found.total.times, 'escalation')} in {plural(found.runs, 'run')}"
    lines.append(f"{runs}, {found.runs_resolved} of them resolved. {found.total}{missing}")
    for what, groups in (("Stagnant guard", found.by_guard), ("Target", found.by_target)):
        rows = [(name, one.times, one.helped, one.unknown) for name, one in ordered(groups)]
        lines += ["", *_table((what, "Times", "Step passed afterwards", "Not known"), rows)]
    return lines


def _runs(analysis: ErrorAnalysis, standing: RunVerdict) -> list[str]:
    by_arm: dict[str, list[Run]] = defaultdict(list)
    for run in analysis.runs[standing]:
        by_arm[run.row.arm].append(run)
    lines = [] if by_arm else ["None.", ""]
    for arm, runs in by_arm.items():
        lines += [f"### {_cell(analysis.arms[arm].badged)} ({len(runs)})", ""]
        for run in runs:
            attempt = f" #{run.row.attempt}" if run.row.attempt != 1 else ""
            lines.append(f"- **{_cell(run.row.instance_id)}**{attempt}: {_cell(_why(run, standing))}")
            if run.retries:
                rows = [
                    (n, one.step, one.cycle, one.guard, one.error_summary + (" ← FINAL" if one.final else ""))
                    for n, one in enumerate(run.retries, start=1)
                ]
                table = _table(("Retry", "Step", "Cycle", "Guard", "Error"), rows)
                lines += ["", *(f"  {line}" for line in table), ""]
        lines += [] if runs[-1].retries else [""]
    return lines[:-1]


def _why(run: Run, standing: RunVerdict) -> str:
    row = run.row
    if standing is RunVerdict.ERROR:
        said = ": ".join(part for part in (row.error_class or row.outcome, row.error) if part)
        return flat(said, _ERROR_LETTERS) or UNKNOWN
    tried = f"{UNKNOWN} retries" if row.retry_count is None else plural(row.retry_count, "retry", "retries")
    tried += f", {plural(run.escalated, 'escalation')}" if run.escalated else ""
    if standing is RunVerdict.GAVE_UP:
        why = f" ({row.failure})" if row.failure else ""
        best = "; its best patch was submitted" if row.best_submitted else ""
        return f"failed at {row.failed_step or UNKNOWN} by {run.guard}{why}; {tried}{best}"
    patch = "a large patch" if row.patch_file else f"a patch of {plural(row.patch_content.count('\n'), 'line')}"
    return f"{patch}; {tried}"


def _cost(analysis: ErrorAnalysis) -> list[str]:
    rows = []
    for runs in analysis.arms.values():
        resolved = runs.standings[RunVerdict.RESOLVED]
        usd, unknown = runs.total("cost_usd"), runs.unknown("cost_usd")
        each = cost(usd / resolved) if resolved and usd is not None and not unknown else NOTHING
        used = tokens(runs.total("total_tokens"), runs.unknown("total_tokens"))
        rows.append((runs.badged, cost(usd, unknown), used, each))
    return _table(("Arm", "Cost", "Tokens", "Cost of a resolved instance"), rows)
