"""Resuming a batch: what is finished stays, what is missing runs."""

from collections.abc import Sequence
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.faults import ErrorClass
from terminalbench.lab.arguments import checked, path_of
from terminalbench.lab.early_stop import EarlyStop, ended_early
from terminalbench.lab.run import FinishedRun, Told, ended, listener_of
from terminalbench.lab.select import Named, find_target
from terminalbench.lab.top_up import top_up as topped_up
from terminalbench.runner import resume as runner
from terminalbench.runner.executors.forked import harbor_loaded_once
from terminalbench.runner.resume import ALL_ERRORS, ResumeRequest


@checked
def resume(
    batch: Named,
    *,
    attempts: int | None = None,
    retry_errors: str | None = None,
    profiles: Sequence[str] = (),
    tasks: Sequence[str] = (),
    top_up: bool = False,
    strict: bool = False,
    accept_changed: bool = False,
    to_the_end: bool = False,
    listener: Told | None = None,
    root: Path | str | None = None,
) -> FinishedRun:
    """Run what is missing of a batch. Returns when it is over.

    A batch that is named by its experiment first gains what the file has gained: attempts, tasks, profiles. `attempts`
    adds attempts until each task has this many; `retry_errors` runs errored trials again, of one class or "all";
    `profiles` and `tasks` pick some of the batch, the others stay as they are; `top_up` adds attempts under the rule of
    the plan, and goes alone. Code, skills, MCP servers and tasks that changed since the plan are an error; with
    `accept_changed` they run, and the plan keeps a departure. A batch that ended early, by its looks at any time, runs
    to its end. Otherwise as `run`.
    """
    _refuse_unknown_class(retry_errors)
    target, told = find_target(batch, root=path_of(root)), listener_of(listener)
    if top_up:
        if attempts is not None or retry_errors is not None or profiles or tasks:
            raise UserError("--top-up cannot be combined with other choices: its rule decides what runs")
        with harbor_loaded_once():
            result = topped_up(target.batch, target.experiment, told, accept_changed=accept_changed)
        return ended(result, told)
    request = ResumeRequest(
        attempts,
        retry_errors,
        strict=strict,
        accept_changed=accept_changed,
        profiles=tuple(profiles),
        tasks=tuple(tasks),
    )
    followed = told if to_the_end or ended_early(target.batch) else EarlyStop(told).listener()
    with harbor_loaded_once():
        result = runner.resume(target.batch, request, target.experiment, followed)
    return ended(result, told)


def _refuse_unknown_class(name: str | None) -> None:
    """A class of failures is named by the analysis, not by the errors: say which errors are meant, if any."""
    if name in (None, ALL_ERRORS, *ErrorClass):
        return
    from terminalbench.analytics.findings.failure import FAILURE_CLASSES
    from terminalbench.analytics.labels import STATES

    if name in STATES:
        raise UserError(
            f'"{name}" is not an error class',
            hint="resume always runs trials that did not end: leave out --retry-errors",
        )
    if name in FAILURE_CLASSES:
        hint = "a trial that failed with a verdict is measured, not broken, so it is not run again"
        if name.startswith("timeout_"):
            hint = (
                f"the class of every time-out is {ErrorClass.AGENT_TIMEOUT}: give --retry-errors "
                f"{ErrorClass.AGENT_TIMEOUT}"
            )
        raise UserError(f'"{name}" is a failure class (tbench errors), not an error class', hint=hint)
    known = ", ".join([ALL_ERRORS, *ErrorClass])
    order = "; name the batch before --retry-errors" if "/" in (name or "") else ""
    raise UserError(f'no error class is called "{name}"', hint=f"known: {known}{order}")
