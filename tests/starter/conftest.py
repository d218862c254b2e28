"""A real Harbor job over the starter tasks, run once per test session and shared by all workers."""

import shutil
from pathlib import Path

import pytest

from starter.jobs import Result, once, results, run_tasks, session_folder, tried
from starter.mutants import CONTROLS, PLANTED_REWARD, TRY_ALL, names, solution_named
from terminalbench.starter import TASKS_DIR, task_ids


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this test session."""
    return session_folder(tmp_path_factory)


@pytest.fixture(scope="session")
def job(shared: Path) -> Path:
    """The folder of the one job: every task attacked, left alone and solved, rightly and wrongly, in one trial a task.

    The attack is the agent of that trial: the verifier has to see through what it plants. Everything else only the task's
    own checks have to judge: the tests of the trial try it, each time on the workspace as the image made it. Some tasks are
    solved in trials of their own instead, as they are.
    """

    def produce(folder: Path) -> None:
        copies = []
        for task in task_ids():
            copy = folder / "tasks" / task
            shutil.copytree(TASKS_DIR / task, copy)
            solution, tests = copy / "solution" / "solve.sh", copy / "tests"
            right = solution.read_text()
            solution.write_text(PLANTED_REWARD.apply(right))
            (tests / "test.sh").rename(tests / "judge.sh")
            (tests / "test.sh").write_text(TRY_ALL)
            (tests / "tried").mkdir()
            for name in names(task):
                (tests / "tried" / name).write_text(solution_named(task, name).apply(right))
            checks = tests / "checks.py"
            found, all_of_them = checks.read_text(), "unittest.main()"
            assert all_of_them in found, checks
            checks.write_text(found.replace(all_of_them, "unittest.main(failfast=True)"))  # one that notices is enough
            copies.append(copy)
        run_tasks(folder, "oracle", [*copies, *(TASKS_DIR / task for task in CONTROLS)], home=shared / "home")

    return once(shared / "starter", produce)


@pytest.fixture(scope="session")
def tries(job: Path) -> dict[str, Result]:
    """How each try ended, by `task.name`."""
    return tried(job)


@pytest.fixture(scope="session")
def own(job: Path) -> dict[str, Result]:
    """How the trials of the tasks that are solved in their own ended."""
    return results(job, TASKS_DIR)
