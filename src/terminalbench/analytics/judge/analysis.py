"""The judge as a part of an analysis: the trials that were picked, as it wants them."""

from collections.abc import Sequence
from pathlib import Path

from terminalbench.analytics.judge.request import JudgeOptions, JudgeRequest, JudgeTrial
from terminalbench.analytics.run import Picked, trial_files
from terminalbench.analytics.settings import Asked, settings_of
from terminalbench.harbor.results import ReadState


def judge_request(chosen: Sequence[Picked], output: Path, options: JudgeOptions) -> JudgeRequest:
    """The request to judge what was picked. Contrasts are those asked for, else those the batch declared."""
    asked = Asked(contrasts=(options.compare,)) if options.compare is not None else None
    # Trials of different batches are never paired, so the first batch's names serve for all.
    contrasts = settings_of([chosen[0].view], asked).contrasts
    return JudgeRequest(
        model=options.model,
        trials=judge_trials(chosen),
        output=output,
        contrasts=contrasts,
        rubrics=options.rubrics,
        budget_usd=options.budget_usd,
        progress=options.progress,
    )


def judge_trials(chosen: Sequence[Picked]) -> list[JudgeTrial]:
    """The picked trials that ran."""
    return [
        JudgeTrial(
            files=trial_files(part.source, cell.row),
            task=cell.task,
            profile=cell.profile,
            attempt=cell.attempt,
            outcome=cell.outcome,
        )
        for part in chosen
        for cell in part.cells
        if cell.row is not None and cell.row.state != ReadState.HELD
    ]
