"""The judge as a part of an analysis: which trials it reads, and where its findings go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from terminalbench.analytics.picking import Picked
from terminalbench.analytics.views import ran
from terminalbench.records import Finding

if TYPE_CHECKING:
    from terminalbench.analytics.judge.request import Estimate, JudgeRequest, JudgeResult, Progress


@dataclass(frozen=True)
class JudgeAsk:
    """Which model judges, by which rubrics, for at most how much."""

    model: str
    rubrics: tuple[str, ...] = ()
    budget_usd: float | None = None
    contrasts: tuple[tuple[str, str], ...] = ()
    progress: "Callable[[Progress], None] | None" = field(default=None, compare=False)


def judge(chosen: Sequence[Picked], ask: JudgeAsk, output: Path) -> "JudgeResult":
    """Judge the chosen trials; answers of an earlier run are not paid for again."""
    from terminalbench.analytics.judge.run import judge_batch

    return judge_batch(_request(chosen, ask, output))


def estimate_cost(chosen: Sequence[Picked], ask: JudgeAsk, output: Path) -> "Estimate":
    """What `judge` would ask and cost. Calls nothing, writes nothing."""
    from terminalbench.analytics.judge.run import estimate

    return estimate(_request(chosen, ask, output))


def judged_before(chosen: Sequence[Picked], output: Path) -> list[Finding]:
    """What the judge said of the chosen trials in an earlier run into the same folder."""
    from terminalbench.analytics.judge.output import read_result

    before = read_result(output)
    if before is None:
        return []
    keys = {f"{row.job}/{row.name}" for part in chosen for row in part.trials}
    return [finding for finding in before.findings if finding.trial in keys]


def _request(chosen: Sequence[Picked], ask: JudgeAsk, output: Path) -> "JudgeRequest":
    from terminalbench.analytics.judge.request import JudgeRequest, judge_trial

    trials = [
        judge_trial(
            cell.row,
            part.source.batch.runs / cell.row.job / cell.row.name,
            cell.task,
            cell.profile,
            cell.attempt,
            cell.outcome,
        )
        for part in chosen
        for cell in part.cells
        if cell.row is not None and ran(cell)
    ]
    return JudgeRequest(
        model=ask.model,
        trials=trials,
        output=output,
        contrasts=ask.contrasts,
        rubrics=ask.rubrics,
        budget_usd=ask.budget_usd,
        progress=ask.progress,
    )
