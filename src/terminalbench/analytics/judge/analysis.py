"""The judge as a part of an analysis: the trials that were picked, as it wants them."""

from collections.abc import Sequence
from pathlib import Path

from terminalbench.analytics.judge.request import CACHE, JudgeOptions, JudgeRequest, JudgeTrial
from terminalbench.analytics.run import Picked, default_output, trial_files
from terminalbench.analytics.settings import Asked, settings_of
from terminalbench.analytics.views import Filter
from terminalbench.harbor.results import ReadState


def judge_request(chosen: Sequence[Picked], output: Path, options: JudgeOptions) -> JudgeRequest:
    """The request to judge what was picked. Contrasts are those asked for, else those the batch declared."""
    asked = Asked(contrasts=(options.compare,)) if options.compare is not None else None
    # Trials of different batches are never paired, so the first batch's names serve for all.
    contrasts = settings_of([chosen[0].view], asked).contrasts
    batches = [part.source.batch for part in chosen]
    # One cache for a batch, whatever part of it is judged and wherever the result goes.
    caches = [default_output(batches, Filter()), *(batch.analytics for batch in batches)]
    return JudgeRequest(
        model=options.model,
        trials=judge_trials(chosen),
        output=output,
        contrasts=contrasts,
        rubrics=options.rubrics,
        budget_usd=options.budget_usd,
        caches=[folder / CACHE for folder in dict.fromkeys(caches)],
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
