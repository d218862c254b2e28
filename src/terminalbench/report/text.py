"""A batch as plain text: the table of profiles, the matrix of tasks, its trials, what a plan forecasts. Pure."""

import textwrap
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence

from terminalbench.analytics.model import ProfileSummary
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.index.totals import ProfileTotals, causes, profile_totals, spend
from terminalbench.records.trial import TAMPERING, Outcome
from terminalbench.text import outcomes
from terminalbench.text.foreign import printable, shortened
from terminalbench.text.names import ORACLE, named
from terminalbench.text.numbers import (
    NOTHING,
    UNKNOWN,
    amount,
    cost,
    count,
    dollars,
    duration,
    percent,
    percents,
    plural,
)
from terminalbench.text.outcomes import word
from terminalbench.text.reasons import DOUBTFUL_COUNT, doubt
from terminalbench.text.table import Columns, columns

COUNTED = "passed/measured, then how many were not measured (attempts as marks do not fit):"
FOOTNOTE = "pass rate, of planned: means over tasks; wall time: mean of a trial"
WIDTH = 80
"""The matrix keeps within so many columns, whatever the terminal."""
_NAME = 40
"""How short the name of a task may get, so that all profiles of a matrix stand side by side."""
SHOWN_REASONS = 8


def money(rows: Iterable[TrialRow], free: Container[str | None] = ()) -> str:
    """Return what trials cost together; those that never started, or of a `free` profile, cost nothing."""
    spent = spend(rows, free)
    return cost(spent.cost_usd, spent.cost_unknown)


def batch_money(view: BatchView) -> str:
    """Return what a batch cost, superseded trials included."""
    return money(view.rows(), view.plan.without_model())


def profile_cost(line: ProfileTotals) -> str:
    """Return what a profile cost; an agent that calls no model costs nothing, which is not unknown."""
    return cost(line.cost_usd, line.cost_unknown, no_model=line.no_model)


def per_success(profile: ProfileSummary) -> str:
    """Return what a success cost; without one, or a model, there is no such thing."""
    return dollars(profile.cost_per_success) if profile.passed and not profile.no_model else NOTHING


type ProfileCells = dict[str, Callable[[ProfileSummary], str]]
PROFILE_CELLS: ProfileCells = {
    "profile": lambda p: named(p.profile, oracle=p.oracle),
    "passed": lambda p: str(p.passed),
    "failed": lambda p: str(p.measured - p.passed),
    "measured": lambda p: f"{p.measured}/{p.planned}",
    "pass rate": lambda p: percent(p.rate),
    "interval": lambda p: percents(p.interval.low, p.interval.high) if p.interval else NOTHING,
    "of planned": lambda p: percent(p.rate_all),
    "cost": lambda p: cost(p.cost_usd, p.cost_unknown_trials, no_model=p.no_model),
    "a success": per_success,
    "reward": lambda p: amount(p.mean_reward, "reward", sign=False),
    "agent time": lambda p: duration(p.mean_agent_sec) if p.measured else NOTHING,
}
"""The columns of a table of compared profiles, by their headings: text and Markdown take them from here."""


def picked(*names: str) -> ProfileCells:
    """Return some of the columns, in this order."""
    return {name: PROFILE_CELLS[name] for name in names}


def summary(view: BatchView) -> str:
    """The table, the matrix, what was not measured and why, what failed with an error, and what is doubtful."""
    parts = [profile_table(view), matrix(view)]
    doubts = suspects(view)
    for title, lines in (
        ("Not measured", cause_lines(view)),
        ("Failed with an error", _causes(filter(_crashed, view.cells))),
        ("Doubtful results", [*doubts, f"  {DOUBTFUL_COUNT}"] if doubts else []),
    ):
        parts += ["\n".join([title, *lines])] if lines else []
    repeats = view.repeats()
    if repeats:
        told = plural(len(repeats), "trial was", "trials were")
        passed = sum(outcome is Outcome.PASSED for outcome in repeats.values())
        parts.append(f"{told} run again after a verdict: the first counts; by the last {passed} passed")
    if view.superseded:
        again = plural(len(view.superseded), "superseded trial was", "superseded trials were")
        parts.append(f"{again} run again: the cost is counted, the result is not")
    return "\n\n".join(parts) + "\n"


_PROFILES = Columns[ProfileTotals]({
    "profile": lambda line: named(line.profile, oracle=line.oracle),
    "passed": lambda line: str(line.passed),
    "failed": lambda line: str(line.failed),
    "measured": lambda line: f"{line.measured}/{line.planned}",
    "pass rate": lambda line: percent(line.rate),
    "of planned": lambda line: percent(line.rate_all),
    "cost": profile_cost,
    "wall time": lambda line: NOTHING if line.mean_wall_sec is None else duration(line.mean_wall_sec),
})  # fmt: skip


def profile_table(view: BatchView) -> str:
    """One row a profile: passed, failed, measured, both rates, cost, time; below it what they are."""
    lines = profile_totals(view)
    table = _PROFILES.of(lines)
    simulated = [line.profile for line in lines if line.simulated and not line.no_model]
    notes = [FOOTNOTE, *([f"simulated cost: {', '.join(map(printable, simulated))}"] if simulated else [])]
    notes += [f"{printable(line.profile)} {ORACLE}" for line in lines if line.oracle]
    return "\n".join(["\n\n".join(_blocks([table.head, *table.rows], left=(0, 6))), *notes])


def matrix(view: BatchView) -> str:
    """One row a task, one column a profile, one mark an attempt; counts where the marks do not fit in 80 columns."""
    profiles, oracles = [job.profile for job in view.plan.jobs], view.plan.oracles()
    by_cell: dict[tuple[str, str, str], list[CellState]] = {}
    for cell in view.cells:
        by_cell.setdefault((cell.task.dataset, cell.task.id, cell.profile), []).append(cell)
    tasks = list(dict.fromkeys((task.ref.dataset, task.ref.id) for job in view.plan.jobs for task in job.tasks))
    mixed = len({dataset for dataset, _ in tasks}) > 1
    names = {(dataset, task): f"{dataset}/{task}" if mixed else task for dataset, task in tasks}

    def table(shown: Callable[[Sequence[str]], str]) -> list[list[str]]:
        rows = []
        for dataset, task in tasks:
            cells = [[cell.state for cell in by_cell.get((dataset, task, p), ())] for p in profiles]
            rows.append([*map(shown, cells)])
        heads = [named(profile, oracle=profile in oracles) for profile in profiles]
        widths = [2 + max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        short = shortened(names.values(), min(WIDTH - max(widths), max(_NAME, WIDTH - sum(widths))))
        return [["task", *heads], *([short[names[at]], *row] for at, row in zip(tasks, rows, strict=True))]

    marks, counts = _blocks(table(outcomes.marks)), _blocks(table(outcomes.fractions))
    if _room(marks) <= _room(counts):
        return "\n\n".join(marks) + f"\n{outcomes.legend()}"
    return "\n\n".join(counts) + f"\n{COUNTED}\n{outcomes.legend(outcomes.LOST)}"


def _room(blocks: list[str]) -> tuple[int, int]:
    """Return what a matrix takes: its blocks, and how far it sticks out."""
    return len(blocks), max((max(0, len(line) - WIDTH) for block in blocks for line in block.splitlines()), default=0)


def _blocks(rows: list[list[str]], left: Container[int] | None = None) -> list[str]:
    """A wide table as several below each other, each with the first column and as many others as fit.

    The columns of `left` stand to the left, the others to the right; all to the left without it.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    blocks: list[list[int]] = []
    for place, width in enumerate(widths[1:], start=1):
        taken = widths[0] + sum(2 + widths[other] for other in blocks[-1]) if blocks else WIDTH
        if taken + 2 + width > WIDTH:
            blocks.append([])
        blocks[-1].append(place)
    shown = [[0, *block] for block in blocks]
    return [
        columns(
            [[row[i] for i in block] for row in rows],
            left=[place for place, i in enumerate(block) if left is None or i in left],
        )
        for block in shown
    ]


def cause_lines(view: BatchView, width: int = WIDTH) -> list[str]:
    """Return why trials were not measured, each cause once, the most frequent first."""
    return _causes([cell for cell in view.cells if not cell.measured], width)


def _causes(cells: Iterable[CellState], width: int = WIDTH) -> list[str]:
    return _counted([(f"{what} [{_by_profile(by)}]", sum(by.values())) for what, by in causes(cells)], width)


def _crashed(cell: CellState) -> bool:
    """Return whether it failed with an error of its agent."""
    trial = cell.row.trial if cell.row is not None else None
    return cell.outcome is Outcome.FAILED and trial is not None and trial.error_class is not None


def _by_profile(counts: dict[str, int]) -> str:
    """The profiles that a cause hit, with how often where there are several."""
    return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{name} {count}" for name, count in counts.items())


def _counted(found: Sequence[tuple[str, int]], width: int = WIDTH) -> list[str]:
    """The first of what was counted, in lines of at most `width`, and how many more there are."""
    lines: list[str] = []
    for told, number in found[:SHOWN_REASONS]:
        first = f"  {number:>4}  "
        lines += textwrap.wrap(
            printable(told), width, initial_indent=first, subsequent_indent=" " * 10, break_on_hyphens=False
        )
    rest = len(found) - SHOWN_REASONS
    return [*lines, f"        and {plural(rest, 'further reason')}"] if rest > 0 else lines


def suspects(view: BatchView) -> list[str]:
    """Measured trials that look wrong: flagged, not changed. What an agent tampered with comes first."""
    found: dict[tuple[bool, str], Counter[str]] = {}
    for cell in view.cells:
        trial = cell.row.trial if cell.row else None
        for reason in trial.suspect if trial else []:
            told = (not reason.startswith(TAMPERING), f"{outcomes.word(cell.outcome)}, but {doubt(reason)}")
            found.setdefault(told, Counter())[cell.profile] += 1
    ranked = sorted(found.items(), key=lambda item: (item[0][0], -item[1].total()))
    return _counted([(f"{told} [{_by_profile(by)}]", by.total()) for (_, told), by in ranked])


WAITING = "waiting"


def state(cell: CellState, *, live: bool) -> str:
    """Return how a planned trial stands: its outcome, or that it runs, or in a live batch that it waits for its
    turn."""
    waits = live and cell.state == Outcome.NOT_RUN and cell.reason is None
    return WAITING if waits else cell.state


def trials_text(view: BatchView, width: int) -> str:
    """One line a planned trial, in the order of the plan; below it each cause of what was not measured, once."""
    free = view.plan.without_model()
    mixed = len({cell.task.dataset for cell in view.cells}) > 1
    rows = [
        [
            printable(cell.profile),
            _trial_name(cell, mixed),
            *_trial_values(cell, state(cell, live=view.live), cell.profile in free),
        ]
        for cell in view.cells
    ]
    head = ["profile", "trial", "outcome", "steps", "cost", "time"]
    taken = sum(2 + max(map(len, column)) for column in zip(head[2:], *(row[2:] for row in rows), strict=True))
    profiles = shortened((row[0] for row in rows), max(10, (width - taken - 2) // 3))
    room = width - taken - 2 - max(map(len, [head[0], *profiles.values()]))
    places = shortened((row[1] for row in rows), room)
    lines = [columns([head, *([profiles[row[0]], places[row[1]], *row[2:]] for row in rows)], left=(0, 1, 2))]
    causes = cause_lines(view, width) if not view.live else []
    lines += ["", "Not measured", *causes] if causes else []
    if view.superseded:
        lines += ["", f"{plural(len(view.superseded), 'superseded try', 'superseded tries')}: --json lists them"]
    return "\n".join(lines) + "\n"


def _trial_name(cell: CellState, mixed: bool) -> str:
    """Return what `tbench show BATCH PROFILE` takes for it; of several datasets, with its own."""
    return printable(f"{cell.task.name if mixed else cell.task.id}#{cell.attempt}")


def _trial_values(cell: CellState, stands: str, free: bool) -> list[str]:
    row = cell.row
    if row is None or stands == WAITING:
        return [word(stands), NOTHING, NOTHING, NOTHING]
    steps = row.trial.agent_steps if row.trial is not None else None
    seconds = row.trial.wall_sec if row.trial is not None else None
    spent = cost(row.usage.cost_usd, no_model=free)
    return [
        word(stands),
        NOTHING if steps is None else count(steps),
        spent if spent != UNKNOWN or row.trial is not None else NOTHING,
        NOTHING if seconds is None else duration(seconds),
    ]
