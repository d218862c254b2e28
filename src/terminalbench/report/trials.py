"""The trials of a batch as a table: state, outcome, steps, cost. Pure."""

from terminalbench.index.queries import BatchView, CellState
from terminalbench.records.trial import Outcome
from terminalbench.report.text import cause_lines
from terminalbench.text.foreign import printable, shortened
from terminalbench.text.numbers import NOTHING, UNKNOWN, cost, count, duration, plural
from terminalbench.text.outcomes import word
from terminalbench.text.table import columns

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
            _place(cell, mixed),
            *_values(cell, state(cell, live=view.live), cell.profile in free),
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


def _place(cell: CellState, mixed: bool) -> str:
    """Return what `tbench show BATCH PROFILE` takes for it; of several datasets, with its own."""
    return printable(
        f"{cell.task.dataset}/{cell.task.id}#{cell.attempt}" if mixed else f"{cell.task.id}#{cell.attempt}"
    )


def _values(cell: CellState, stands: str, free: bool) -> list[str]:
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
