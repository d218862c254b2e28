"""Running one test file of our own in a workspace, with the runner that its repository uses."""

from collections.abc import Mapping
from dataclasses import replace

from terminalbench.workflow import checks
from terminalbench.workflow.languages import Language, Repository, Runner, of_file
from terminalbench.workflow.model import CommandRun, Workspace
from terminalbench.workflow.runners import go, node, python
from terminalbench.workflow.runners.report import CaseReport


async def run_test(
    workspace: Workspace, repository: Repository, path: str, files: Mapping[str, bytes | None], timeout_sec: float
) -> CaseReport:
    """Run the test at `path`, which is one of `files`, on the base tree with `files` written over it."""
    code = (files.get(path) or b"").decode(errors="replace")
    runner = repository.runner(path)
    if runner is None:
        return CaseReport(missing=f"a runner for tests like {path}")
    ran = await workspace.run(_command(repository, path, code, runner), timeout_sec=timeout_sec, files=files)
    report = _read(ran, runner, path)
    if runner is Runner.VITEST and report.broken:  # it names no place of a syntax error
        flaws = (await checks.syntax(workspace, files)).flaws
        places = [f"{flaw.path}:{flaw.line}: {flaw.message}" for flaw in flaws]
        return replace(report, broken="\n".join([*places, report.broken]))
    return report


def _read(ran: CommandRun, runner: Runner, path: str) -> CaseReport:
    match of_file(path):
        case Language.PYTHON:
            return python.read(ran)
        case Language.GO:
            return go.read(ran, path)
        case _:
            return node.read(ran, runner, path)


def _command(repository: Repository, path: str, code: str, runner: Runner) -> list[str]:
    match of_file(path):
        case Language.PYTHON:
            return python.command(path, code, runner)
        case Language.GO:
            return go.command(path, code)
        case _:
            return node.command(repository, path, runner)
