"""Real Harbor jobs over the starter tasks, each run once per test session and shared by all workers."""

import shutil
from pathlib import Path

import pytest

from starter.jobs import Result, once, results, run_tasks, session_folder, tried
from starter.mutants import PLANTED_REWARD, TRY_ALL, names, solution_named
from terminalbench.starter import TASKS_DIR, task_ids


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this test session."""
    return session_folder(tmp_path_factory)


def _all_tasks() -> list[Path]:
    return [TASKS_DIR / task for task in task_ids()]


@pytest.fixture(scope="session")
def oracle(shared: Path) -> dict[str, Result]:
    """Every task solved by its own solution."""
    home = shared / "home"
    return results(once(shared / "oracle", lambda folder: run_tasks(folder, "oracle", _all_tasks(), home=home)))


@pytest.fixture(scope="session")
def tries(shared: Path) -> dict[str, Result]:
    """Every task attacked, left alone and solved wrongly, in one trial a task: how each of these ended, by `task.name`.

    The attack is the agent of that trial: the verifier has to see through what it plants. Everything else only the task's
    own checks have to judge: the tests of the trial try it, each time on the workspace as the image made it.
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
        run_tasks(folder, "oracle", copies, home=shared / "home")

    return tried(once(shared / "tries", produce))
