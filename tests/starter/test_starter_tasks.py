"""Every starter task in a real Harbor job: its solution earns 1; nothing, wrong solutions and cheats earn 0."""

import subprocess
from pathlib import Path

import pytest

from starter.jobs import Result, results, run_tasks
from starter.mutants import CASES, CONTROLS, NOTHING, RIGHT, solution_named
from terminalbench.starter import TASKS_DIR, task_ids

pytestmark = pytest.mark.timeout(600)  # whole jobs, on a busy machine


@pytest.mark.parametrize("task", task_ids())
def test_the_solution_earns_one(tries: dict[str, Result], own: dict[str, Result], task: str) -> None:
    result = own[task] if task in CONTROLS else tries[f"{task}.{RIGHT}"]
    assert (result.reward, result.error, result.exit_code or "0") == (1, None, "0"), result.output


@pytest.mark.parametrize("task", task_ids())
def test_doing_nothing_earns_zero(tries: dict[str, Result], task: str) -> None:
    result = tries[f"{task}.{NOTHING}"]
    assert result.error is None
    assert result.reward == 0, result.output
    assert "FAILED (" in result.output, "the zero does not come from a check"


@pytest.mark.parametrize(("task", "name"), CASES, ids=lambda value: value)
def test_a_wrong_solution_earns_zero(tries: dict[str, Result], task: str, name: str) -> None:
    result = tries[f"{task}.{name}"]
    assert result.error is None
    assert result.exit_code in (None, str(solution_named(task, name).status)), result.output
    assert result.reward == 0, f"the checks of {task} did not notice: {name}\n{result.output}"
    assert "FAILED (" in result.output, "the zero does not come from a check"


@pytest.mark.docker
@pytest.mark.timeout(1800)
def test_the_solutions_earn_one_under_docker(tmp_path: Path) -> None:
    subprocess.run(["docker", "info"], check=True, capture_output=True, timeout=600)
    tasks = [TASKS_DIR / task for task in task_ids()]
    run_tasks(tmp_path, "oracle", tasks, home=Path.home(), environment="docker")
    assert {
        name: (result.reward, result.error) for name, result in results(tmp_path, TASKS_DIR).items()
    } == dict.fromkeys(task_ids(), (1, None))
