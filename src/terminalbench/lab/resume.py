"""Resuming a batch: what is finished stays, what is missing runs."""

from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.lab.arguments import checked, path_of
from terminalbench.lab.run import Ended, Told, ended, listener_of
from terminalbench.lab.select import Named, find_target
from terminalbench.lab.top_up import top_up as topped_up
from terminalbench.runner import resume as runner
from terminalbench.runner.resume import ResumeRequest


@checked
def resume(
    batch: Named,
    *,
    attempts: int | None = None,
    retry_errors: str | None = None,
    top_up: bool = False,
    strict: bool = False,
    accept_changed: bool = False,
    listener: Told | None = None,
    root: Path | str | None = None,
) -> Ended:
    """Run what is missing of a batch. Returns when it is over.

    A batch that is named by its experiment first gains what the file has gained: attempts, tasks, profiles. `attempts`
    adds attempts until each task has this many; `retry_errors` runs errored trials again, of one class or "all";
    `top_up` adds attempts under the rule of the plan, and goes alone. Code, skills, MCP servers and tasks that changed
    since the plan are an error; with `accept_changed` they run, and the plan keeps a departure. Otherwise as `run`.
    """
    target, told = find_target(batch, root=path_of(root)), listener_of(listener)
    if top_up:
        if attempts is not None or retry_errors is not None:
            raise UserError("--top-up goes alone: its rule decides what runs")
        return ended(topped_up(target.batch, target.experiment, told, accept_changed=accept_changed), told)
    request = ResumeRequest(attempts, retry_errors, strict=strict, accept_changed=accept_changed)
    return ended(runner.resume(target.batch, request, target.experiment, told), told)
