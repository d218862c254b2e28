"""A batch as plain text: one table of profiles, and the task by profile matrix. Pure."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.index.totals import cell_rates, spend
from terminalbench.records import Outcome

MARKS = {
    Outcome.PASSED: "+",
    Outcome.FAILED: "x",
    Outcome.TIMED_OUT: "T",
    Outcome.ERRORED: "E",
    Outcome.CANCELLED: "C",
    Outcome.NOT_RUN: ".",
}
LEGEND = "+ passed   x failed   T timed out   E errored   C cancelled   . not run"
COUNTED = """\
passed/measured, then how many were not measured (attempts as marks do not fit):
T timed out   E errored   C cancelled   . not run"""
FOOTNOTE = "pass rate and of planned: means over tasks; wall time: mean of a trial, start to end"
WIDTH = 80
"""The matrix keeps within so many columns, whatever the terminal."""
SHOWN_REASONS = 8


@dataclass(frozen=True)
class Money:
    """A sum of costs of which some may be unknown. Unknown is not zero."""

    known_usd: float | None
    unknown: int

    def __str__(self) -> str:
        if self.known_usd is None:
            return "unknown"
        return f"${self.known_usd:.2f}" + (f" + {self.unknown} unknown" if self.unknown else "")


def money(rows: Iterable[TrialRow], free: Container[str | None] = ()) -> Money:
    """What trials cost together; those that never started, or of a `free` profile, cost nothing."""
    spent = spend(rows, free)
    return Money(spent.cost_usd, spent.cost_unknown)


def batch_money(view: BatchView) -> Money:
    """What a batch cost, superseded trials included."""
    return money(view.rows(), view.plan.without_model())


def summary(view: BatchView) -> str:
    """The table, the matrix, and what was not measured and why."""
    parts = [profile_table(view), matrix(view)]
    reasons = not_measured(view)
    if reasons:
        parts.append("Not measured\n" + "\n".join(f"  {line}" for line in reasons))
    doubts = suspects(view)
    if doubts:
        parts.append("Doubtful results\n" + "\n".join(f"  {line}" for line in doubts))
    if view.superseded:
        count = len(view.superseded)
        many = f"{count} superseded trials were run again: their cost is counted, their results are not"
        parts.append(many if count > 1 else "1 superseded trial was run again: its cost is counted, its result is not")
    return "\n\n".join(parts) + "\n"


def profile_table(view: BatchView) -> str:
    """One row a profile: passed, failed, not measured, coverage, both rates, cost, time; below it what they are."""
    head = ["profile", "passed", "failed", "not measured", "coverage", "pass rate", "of planned", "cost", "wall time"]
    rows = []
    for job in view.plan.jobs:
        cells = [cell for cell in view.cells if cell.profile == job.profile]
        trials = [c.row for c in cells if c.row] + [r for r in view.superseded if r.profile == job.profile]
        counts = Counter(cell.outcome for cell in cells)
        passed, failed = counts[Outcome.PASSED], counts[Outcome.FAILED]
        measured = passed + failed
        rates = cell_rates(cells)
        rows.append(
            [
                job.profile,
                str(passed),
                str(failed),
                str(len(cells) - measured),
                f"{measured}/{len(cells)}",
                percent(rates.rate),
                percent(rates.rate_all),
                _cost(view, job.profile, trials),
                _mean_time(cells),
            ]
        )
    return f"{columns([head, *rows], left=(0, 7))}\n{FOOTNOTE}"


def matrix(view: BatchView) -> str:
    """One row a task, one column a profile, one mark an attempt; counts where the marks do not fit in 80 columns."""
    profiles = [job.profile for job in view.plan.jobs]
    by_cell: dict[tuple[str, str, str], list[CellState]] = {}
    for cell in view.cells:
        by_cell.setdefault((cell.task.dataset, cell.task.id, cell.profile), []).append(cell)
    tasks = list(dict.fromkeys((task.ref.dataset, task.ref.id) for job in view.plan.jobs for task in job.tasks))
    mixed = len({dataset for dataset, _ in tasks}) > 1

    def table(shown: Callable[[Sequence[Outcome]], str]) -> list[list[str]]:
        rows = [["task", *profiles]]
        for dataset, task in tasks:
            cells = [[cell.outcome for cell in by_cell.get((dataset, task, p), ())] for p in profiles]
            rows.append([f"{dataset}/{task}" if mixed else task, *map(shown, cells)])
        return rows

    marks, counts = _blocks(table(marks_text)), _blocks(table(counts_text))
    blocks, legend = (marks, LEGEND) if _room(marks) <= _room(counts) else (counts, COUNTED)
    return "\n\n".join(blocks) + f"\n{legend}"


def marks_text(outcomes: Iterable[Outcome]) -> str:
    """Attempts as marks, one each."""
    return "".join(MARKS[outcome] for outcome in outcomes)


def counts_text(outcomes: Sequence[Outcome]) -> str:
    """Attempts as counts: passed of measured, then what was not measured by its mark."""
    counts = Counter(outcomes)
    measured = counts[Outcome.PASSED] + counts[Outcome.FAILED]
    rest = [f"{counts[outcome]}{mark}" for outcome, mark in MARKS.items() if not outcome.measured and counts[outcome]]
    return " ".join([f"{counts[Outcome.PASSED]}/{measured}", *rest]) if outcomes else ""


def _room(blocks: list[str]) -> tuple[int, int]:
    """What a matrix takes: its blocks, and how far it sticks out."""
    return len(blocks), max((max(0, len(line) - WIDTH) for block in blocks for line in block.splitlines()), default=0)


def _blocks(rows: list[list[str]]) -> list[str]:
    """A wide table as several below each other, each with the first column and as many others as fit."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    blocks: list[list[int]] = []
    for place, width in enumerate(widths[1:], start=1):
        taken = widths[0] + sum(2 + widths[other] for other in blocks[-1]) if blocks else WIDTH
        if taken + 2 + width > WIDTH:
            blocks.append([])
        blocks[-1].append(place)
    return [
        columns([[row[0], *(row[i] for i in block)] for row in rows], left=range(len(block) + 1)) for block in blocks
    ]


def not_measured(view: BatchView) -> list[str]:
    """Why trials were not measured, the most frequent reasons first."""
    reasons: Counter[str] = Counter()
    for cell in view.cells:
        if not cell.measured:
            trial = cell.row.trial if cell.row else None
            kind = trial.error_class if trial else None
            what = f"{cell.outcome} ({kind})" if kind not in (None, cell.outcome) else str(cell.outcome)
            default = "it never started" if cell.row is None else "it was interrupted"
            reasons[f"{what}: {cell.reason or default}  [{cell.profile}]"] += 1
    lines = [f"{count:>4}  {reason}" for reason, count in reasons.most_common(SHOWN_REASONS)]
    rest = len(reasons) - SHOWN_REASONS
    return [*lines, f"      and {rest} further reasons"] if rest > 0 else lines


def suspects(view: BatchView) -> list[str]:
    """Measured trials that look wrong: flagged, not changed."""
    found: Counter[str] = Counter()
    for cell in view.cells:
        trial = cell.row.trial if cell.row else None
        for reason in trial.suspect if trial else []:
            found[f"{cell.outcome}, but {reason}  [{cell.profile}]"] += 1
    return [f"{count:>4}  {reason}" for reason, count in found.most_common(SHOWN_REASONS)]


def percent(rate: float | None) -> str:
    """A rate, or a dash where there is none."""
    return "-" if rate is None else f"{100 * rate:.1f} %"


def columns(rows: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> str:
    """Rows as aligned columns; those in `left` to the left, the others to the right."""
    to_left = set(left)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        fields = [
            f"{v:<{w}}" if i in to_left else f"{v:>{w}}" for i, (v, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(fields).rstrip())
    return "\n".join(lines)


def _cost(view: BatchView, profile: str, trials: list[TrialRow]) -> str:
    """What a profile cost; an agent that calls no model costs nothing, which is not unknown."""
    if profile in view.plan.without_model():
        return "no model"
    simulated = any(row.trial and row.trial.simulated for row in trials)
    return f"{money(trials)}{' (simulated)' if simulated else ''}"


def _mean_time(cells: list[CellState]) -> str:
    trials = [cell.row.trial for cell in cells if cell.row and cell.row.trial]
    times = [t for trial in trials if (t := trial.wall_sec) is not None]
    if not times:
        return "-"
    mean = sum(times) / len(times)
    return f"{mean:.1f} s" if mean < 100 else f"{mean / 60:.1f} min"
