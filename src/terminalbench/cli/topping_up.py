"""The rule of a top-up, asked anew before each round: what the intervals are, and where attempts narrow them most."""

from collections.abc import Callable

from terminalbench.errors import UserError
from terminalbench.experiments.plan import Plan
from terminalbench.index.queries import BatchView
from terminalbench.lab.select import Target
from terminalbench.lab.top_up import Choice, top_up
from terminalbench.runner.run import Listener, RunResult


def top_up_target(target: Target, listener: Listener, tell: Callable[[str], None]) -> RunResult:
    """Add attempts to a batch under the rule its plan declares, and say why at each round."""
    return top_up(target.batch, chooser(), target.experiment, listener, tell)


def chooser() -> Callable[[BatchView], Choice]:
    """What to add to a batch, by the rule in its plan. The statistics are loaded with the first round."""

    def choose(view: BatchView) -> Choice:
        from terminalbench.analytics.allocate import allocate
        from terminalbench.analytics.compare import compare
        from terminalbench.analytics.rows import rows_of
        from terminalbench.analytics.settings import settings_of

        excluded = view.plan.exclusions()  # attempts at what does not run would help nobody
        rows = [row for row in rows_of([view]) if excluded(row.profile, row.task) is None]
        comparison = compare(rows, settings_of([view]))
        if not comparison.contrasts:
            raise UserError("has a single profile: there is nothing to compare", where=view.batch)
        found = allocate(comparison, _rule(view.plan))
        if found.done:
            return Choice(found.reason)
        extra = {(more.profile, more.task): more.attempts for more in found.more}
        now = f"{2 * found.half_width:.1%}" if found.half_width is not None else "unknown"
        tasks = len({task for _, task in extra})
        text = f"{found.trials} trials more on {tasks} task{'' if tasks == 1 else 's'}; widest interval now {now}"
        return Choice(f"{text}, {2 * found.expected:.1%} expected" if found.expected is not None else text, extra)

    return choose


def _rule(plan: Plan):
    from terminalbench.analytics.allocate import TopUp

    declared = plan.top_up
    if declared is None:
        raise UserError("its plan declares no rule for a top-up", where=plan.folder)
    return TopUp(
        half_width=declared.interval_width / 2,
        max_attempts=declared.max_attempts,
        # A round gives every profile of a task one attempt, or none.
        round_trials=max(declared.trials_per_round, len(plan.jobs)),
    )
