"""An analysis as a person sees it: one line while it works, tables and sentences at the end."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from terminalbench.analytics.judge.request import Progress
from terminalbench.analytics.run import AnalysisResult
from terminalbench.analytics.selection import Picked
from terminalbench.cli.judging import judged_text
from terminalbench.report.text import columns, percent

_REFRESH_SEC = 0.2
_SHOWN = 12


def listing(chosen: Sequence[Picked]) -> str:
    """The trials, a line each."""
    rows = [["batch", "task", "profile", "attempt", "outcome", "trial"]]
    for part in chosen:
        for cell in part.cells:
            name = cell.row.name if cell.row is not None else "-"
            rows.append([part.view.batch, cell.task.id, cell.profile, str(cell.attempt), str(cell.outcome), name])
    return columns(rows, left=(0, 1, 2, 4, 5))


def summary(result: AnalysisResult, report: Path | None) -> str:
    """What was found, in short, and where all of it is."""
    parts = []
    if result.profiles:
        parts += [f"{result.planned} trials: {result.read} read, {result.reused} unchanged", _profiles(result)]
    failures = [[p, what, str(n)] for p, m in result.profiles.items() for what, n in m.failure_classes.items()]
    if failures:
        parts.append(columns([["profile", "failure class", "trials"], *failures], left=(0, 1)))
    limits: list[str] = []
    if result.profiles and result.comparison is not None:
        parts.append("\n".join(contrast.sentence for contrast in result.comparison.contrasts))
        limits = [*result.comparison.departures, *result.comparison.warnings]
    if result.judged is not None:
        parts.append(judged_text(result, result.judged))
    parts.append("\n".join([*_some("missing", result.missing), *_some("note", [*limits, *result.notes])]))
    if result.written or result.judged is not None:
        first = f", read {report.name} first" if report is not None else ""
        parts.append(f"written to {place(result.output)}{first}")
    return "\n\n".join(filter(None, parts))


def _profiles(result: AnalysisResult) -> str:
    head = ["profile", "passed", "coverage", "pass rate", "calls", "errors", "loops", "backtracks", "tested", "flagged"]
    rows = [head]
    for profile, metrics in result.profiles.items():
        spread = metrics.measures
        rows.append(
            [
                profile,
                str(metrics.passed),
                f"{metrics.measured}/{metrics.planned}",
                percent(metrics.rate),
                *(_mean(spread[name].mean) for name in ("tool_calls", "tool_errors", "loops", "backtracks")),
                _share(spread["tested_before_finish"].mean),
                str(len(metrics.flagged)),
            ]
        )
    return f"{columns(rows)}\npass rate: mean over tasks"


def _some(word: str, lines: Sequence[str]) -> list[str]:
    rest = len(lines) - _SHOWN
    more = [f"{word}: and {rest} more"] if rest > 0 else []
    return [*(f"{word}: {line}" for line in lines[:_SHOWN]), *more]


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def place(path: Path) -> str:
    """A path as short as it can be from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


class Teller:
    """One line while it works, only for a person at a terminal."""

    def __init__(self, quiet: bool) -> None:
        self.live = sys.stderr.isatty() and not quiet
        self.last = time.monotonic()

    def progress(self, done: int, total: int) -> None:
        """Show how far the analysis is."""
        self._show(f"analysing {done}/{total}", done == total)

    def judging(self, now: Progress) -> None:
        """Show how far the judge is."""
        cost = f", ${now.spent_usd:.2f}" if now.spent_usd else ""
        self._show(f"judging {now.done}/{now.total} ({now.cached} from the cache{cost})", now.done == now.total)

    def _show(self, line: str, last: bool) -> None:
        if not self.live:
            return
        now = time.monotonic()
        if last:
            click.echo("\r\033[K", nl=False, err=True)
        elif now - self.last > _REFRESH_SEC:
            self.last = now
            click.echo(f"\r\033[K{line}", nl=False, err=True)
