"""The last word on a training: its champion against the profile that it started with, on tasks that were sealed.

    .terminalbench/training/<slug>/holdout.jsonl    each measurement, when it begins and when it is over

A look is recorded and counted before the first trial runs. One that was killed is gone on with: the same look, the same
two profiles, nothing paid twice. What comes of it decides nothing: a champion chosen by the holdout would need another.
"""


import msgspec

from terminalbench.analytics.rows import rows_of
from terminalbench.errors import UserError
from terminalbench.trainer.batches import BatchPart, TrainingBatches
from terminalbench.trainer.gate import sealed
from terminalbench.trainer.gym import Gym, GymLook
from terminalbench.trainer.halving import spread
from terminalbench.trainer.journal import HOLDOUT_PART, HoldoutLook, add_sealed, read_sealed
from terminalbench.trainer.lineage import LineageStore
from terminalbench.trainer.night import taken
from terminalbench.trainer.plan import TrainingPlan, hold


def measure_holdout(plan: TrainingPlan, reason: str) -> HoldoutLook:
    """Measure the champion against the start on the held-out tasks; one that was begun and not finished comes first."""
    gym = Gym(plan.root)
    with hold(plan, f"holdout of {plan.table.slug}"):
        begun = next((one for one in read_sealed(plan.folder) if one.verdict is None), None)
        if begun is None:
            new, old = _pair(plan)
            look = gym.look(plan.environment, by=f"tbench trainer holdout {plan.table.slug}", reason=reason)
            begun = HoldoutLook(look=look.number, reason=look.reason, new=new, old=old)
            add_sealed(plan.folder, begun)
        else:
            look = next(one for one in gym.looks(plan.environment) if one.number == begun.look)
        ended = _measured(plan, begun, look, TrainingBatches(plan))
        add_sealed(plan.folder, ended)
        return ended


def _pair(plan: TrainingPlan) -> tuple[str, str]:
    champion, start = LineageStore(plan.root).lineage(plan.lineage).champion, plan.start.profile.id
    if champion is None or champion.id == start:
        what = "the champion is still the profile that the training started with, so there is nothing to measure"
        raise UserError(what, where=plan.lineage, hint="no look was used; continue with tbench trainer run")
    return champion.id, start


def _measured(plan: TrainingPlan, begun: HoldoutLook, look: GymLook, batches: TrainingBatches) -> HoldoutLook:
    tasks = [task for task in plan.environment.tasks if f"{task.dataset}/{task.id}" in look.tasks]
    variants = LineageStore(plan.root).lineage(plan.lineage).variants
    measure = spread(tasks, max(len(tasks), plan.table.budget.trials // 2))
    profiles = {name: variants[name].table for name in (begun.new, begun.old)}
    view = batches.measured(BatchPart(begun.look, HOLDOUT_PART, profiles, measure, plan.table.budget.usd))
    rows = rows_of([view])
    verdict = sealed(rows, begun.new, begun.old, by_family=plan.table.gate.unit == "family", looks=look.number)
    return msgspec.structs.replace(begun, batch=view.batch, verdict=verdict, **taken(rows))
