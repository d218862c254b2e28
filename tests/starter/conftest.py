"""Real Harbor jobs over the starter tasks, each run once per test session and shared by all workers."""

import shutil
from pathlib import Path

import pytest

from starter.jobs import Result, once, results, run_tasks, session_folder
from starter.mutants import CASES, mutant
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
def nop(shared: Path) -> dict[str, Result]:
    """Every task left alone."""
    home = shared / "home"
    return results(once(shared / "nop", lambda folder: run_tasks(folder, "nop", _all_tasks(), home=home)))


@pytest.fixture(scope="session")
def mutants(shared: Path) -> dict[str, Result]:
    """Every wrong solution, run as if it were the right one of a copy of its task; environments are built only once."""

    def produce(folder: Path) -> None:
        copies = []
        for task, name in CASES:
            copy = folder / "tasks" / f"{task}.{name}"
            shutil.copytree(TASKS_DIR / task, copy)
            solution = copy / "solution" / "solve.sh"
            solution.write_text(mutant(task, name).apply(solution.read_text()))
            checks = copy / "tests" / "checks.py"
            found, all_of_them = checks.read_text(), "unittest.main()"
            assert all_of_them in found, checks
            checks.write_text(found.replace(all_of_them, "unittest.main(failfast=True)"))  # one that notices is enough
            copies.append(copy)
        run_tasks(folder, "oracle", copies, home=shared / "home")

    return results(once(shared / "mutants", produce))
