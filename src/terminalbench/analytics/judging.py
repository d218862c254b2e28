"""The judge as a part of an analysis: which trials it reads, and where its findings go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from terminalbench.analytics.picking import Picked, analytics_of, trial_files
from terminalbench.analytics.settings import settings_of
from terminalbench.analytics.views import ran
from terminalbench.errors import UserError
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

    def __post_init__(self) -> None:
        if self.budget_usd is not None and not (isfinite(self.budget_usd) and self.budget_usd >= 0):
            # Nothing is ever more than "nan": the cap would be off.
            raise UserError(
                f"a judge cannot have a budget of ${self.budget_usd:g}", hint="give --judge-budget in dollars"
            )


def judge(chosen: Sequence[Picked], ask: JudgeAsk, output: Path) -> "JudgeResult":
    """Judge the chosen trials; answers of an earlier run are not paid for again."""
    from terminalbench.analytics.judge.run import judge_batch

    return judge_batch(_request(chosen, ask, output))


def estimate_cost(chosen: Sequence[Picked], ask: JudgeAsk, output: Path) -> "Estimate":
    """What `judge` would ask and cost. Calls nothing, writes nothing."""
    from terminalbench.analytics.judge.run import estimate

    return estimate(_request(chosen, ask, output))


def said_before(chosen: Sequence[Picked], output: Path) -> list[Finding]:
    """What the judge said of the chosen trials in an earlier run into the same folder, and what people say of them."""
    from terminalbench.analytics.judge.kept import kept_findings

    return list(kept_findings(output, [part.source.batch for part in chosen], _keys(chosen)))


def keep_findings(chosen: Sequence[Picked], output: Path) -> None:
    """Bring what the judge and people say into findings.jsonl, and leave everything else in it as it is."""
    from terminalbench.analytics.judge.kept import refresh_findings

    refresh_findings(output, [part.source.batch for part in chosen])


def forget_others(chosen: Sequence[Picked], output: Path) -> list[str]:
    """Take away what the judge said of other trials than these: their tables are replaced. A line that says so."""
    from terminalbench.analytics.judge.output import read_result, remove_result

    kept = read_result(output)
    if kept is None:
        return []
    said_of = {said.trial for said in (*kept.findings, *kept.judgements)}
    if said_of and said_of <= _keys(chosen):
        return []
    remove_result(output)
    return ["what the judge said of another selection was taken away; its answers stay in the cache"]


def _keys(chosen: Sequence[Picked]) -> set[str]:
    return {f"{row.job}/{row.name}" for part in chosen for row in part.trials}


def _request(chosen: Sequence[Picked], ask: JudgeAsk, output: Path) -> "JudgeRequest":
    from terminalbench.analytics.judge.request import CACHE, JudgeRequest, JudgeTrial

    trials = [
        JudgeTrial(
            files=trial_files(part.source, cell.row),
            task=cell.task,
            profile=cell.profile,
            attempt=cell.attempt,
            outcome=cell.outcome,
        )
        for part in chosen
        for cell in part.cells
        if cell.row is not None and ran(cell)
    ]
    # One cache for a batch, whatever part of it is judged and wherever the result goes.
    batches = [part.source.batch for part in chosen]
    caches = dict.fromkeys([analytics_of(batches), *(batch.analytics for batch in batches)])
    return JudgeRequest(
        model=ask.model,
        trials=trials,
        output=output,
        # Trials of different batches are never paired, so the first batch's contrasts serve for all.
        contrasts=ask.contrasts or settings_of([chosen[0].view]).contrasts,
        rubrics=ask.rubrics,
        budget_usd=ask.budget_usd,
        caches=[folder / CACHE for folder in caches],
        progress=ask.progress,
    )
