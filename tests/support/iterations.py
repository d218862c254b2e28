"""Iterations of a night as `results.json` has them, from marks: nothing is run and nothing is on disk."""

from collections.abc import Mapping

from support.rows import OUTCOMES
from terminalbench.overnight.iteration_results import IterationResults, ProfileResult, TaskResult, TrialResult


def task(name: str, marks: str, digest: str | None = "same") -> TaskResult:
    """A task with its attempts: `+` passed, `x` failed, `E` broken."""
    trials = [
        TrialResult(attempt=n, outcome=OUTCOMES[mark], path=f"batches/night/0/runs/j/{name}__{n}")
        for n, mark in enumerate(marks, start=1)
    ]
    return TaskResult(
        task_id=name, dataset="d", family=None, digest=digest, attempts=len(marks), passed=marks.count("+"),
        failed=marks.count("x"), errored=marks.count("E"), not_run=0, cost_usd=None, cost_unknown=0, mean_agent_sec=None, trials=trials,
    )  # fmt: skip


def iteration(
    number: int, marks: Mapping[str, str], profile_id: str = "id", digest: str | None = "same"
) -> IterationResults:
    """An iteration of one profile, by task the marks of its attempts."""
    tasks = [task(name, line, digest) for name, line in marks.items()]
    passed, failed = (sum(getattr(one, name) for one in tasks) for name in ("passed", "failed"))
    profile = ProfileResult(
        profile="p", profile_id=profile_id, model="m", simulated=False, no_model=False, task_digest="t", total=sum(len(m) for m in marks.values()),
        passed=passed, failed=failed, errored=0, not_run=0, pass_rate=None, coverage=None, cost_usd=None, cost_unknown=0, tokens=None,
        tokens_unknown=0, started_at=None, finished_at=None, tasks=tasks,
    )  # fmt: skip
    return IterationResults(
        run_id="r", iteration=number, suite_name="s", suite_version="1", suite_digest="d", batch="night/0", seed=None, created_at=None, profiles=[profile],
    )  # fmt: skip
