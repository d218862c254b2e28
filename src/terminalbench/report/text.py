"""A batch as plain text: one table of profiles, and the task by profile matrix. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from terminalbench.experiments.agents import agent_info
from terminalbench.harbor.results import ReadState
from terminalbench.index.export import elapsed_sec
from terminalbench.index.queries import BatchView, CellState, TrialRow
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


def money(rows: Iterable[TrialRow]) -> Money:
    """What trials cost together, superseded ones included; one that never started costs nothing."""
    costs = [row.usage.cost_usd for row in rows if row.state != ReadState.HELD]
    known = [cost for cost in costs if cost is not None]
    return Money(sum(known) if known else None, len(costs) - len(known))


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
        parts.append(
            f"{len(view.superseded)} superseded trials were run again: their cost is counted, their results are not"
        )
    return "\n\n".join(parts) + "\n"


def profile_table(view: BatchView) -> str:
    """One row a profile: passed, failed, not measured, coverage, both rates, cost, time."""
    head = ["profile", "passed", "failed", "not measured", "coverage", "pass rate", "of planned", "cost", "mean time"]
    rows = []
    for job in view.plan.jobs:
        cells = [cell for cell in view.cells if cell.profile == job.profile]
        trials = [c.row for c in cells if c.row] + [r for r in view.superseded if r.profile == job.profile]
        counts = Counter(cell.outcome for cell in cells)
        passed, failed = counts[Outcome.PASSED], counts[Outcome.FAILED]
        measured = passed + failed
        rows.append(
            [
                job.profile,
                str(passed),
                str(failed),
                str(len(cells) - measured),
                f"{measured}/{len(cells)}",
                percent(passed, measured),
                percent(passed, len(cells)),
                _cost(view, job.profile, trials),
                _mean_time(cells),
            ]
        )
    return columns([head, *rows], left=(0, 7))


def matrix(view: BatchView) -> str:
    """One row a task, one column a profile, one mark an attempt."""
    profiles = [job.profile for job in view.plan.jobs]
    by_cell: dict[tuple[str, str, str], list[CellState]] = {}
    for cell in view.cells:
        by_cell.setdefault((cell.task.dataset, cell.task.id, cell.profile), []).append(cell)
    tasks = list(dict.fromkeys((task.ref.dataset, task.ref.id) for job in view.plan.jobs for task in job.tasks))
    mixed = len({dataset for dataset, _ in tasks}) > 1
    rows = [["task", *profiles]]
    for dataset, task in tasks:
        name = f"{dataset}/{task}" if mixed else task
        rows.append([name, *("".join(MARKS[c.outcome] for c in by_cell.get((dataset, task, p), [])) for p in profiles)])
    return f"{columns(rows, left=range(len(profiles) + 1))}\n{LEGEND}"


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


def percent(part: int, whole: int) -> str:
    """A rate, or a dash where there is nothing to divide by."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


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
    if agent_calls_no_model(view, profile):
        return "no model"
    simulated = any(row.trial and row.trial.simulated for row in trials)
    return f"{money(trials)}{' (simulated)' if simulated else ''}"


def agent_calls_no_model(view: BatchView, profile: str) -> bool:
    """Whether a profile's agent is one that works without a model."""
    record = next((p for p in view.plan.profiles if p.key == profile), None)
    info = agent_info(record.content["agent"]) if record else None
    return info is not None and not info.model


def _mean_time(cells: list[CellState]) -> str:
    trials = [cell.row.trial for cell in cells if cell.row and cell.row.trial]
    times = [t for trial in trials if (t := elapsed_sec(trial.started_at, trial.finished_at)) is not None]
    if not times:
        return "-"
    mean = sum(times) / len(times)
    return f"{mean:.1f} s" if mean < 100 else f"{mean / 60:.1f} min"
