"""`tbench` as a process whose Harbor processes are forked from the loaded one of the test session (see `support.warm`).

So are those of the workers of a night; the workers themselves are started as they always are.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

sys.path[0] = str(Path(__file__).parent.parent)
from support.warm import Warm  # noqa: E402

sys.path[0] = str(Path.cwd())  # as `python -m terminalbench.cli.main` has it
from terminalbench.cli.main import entry  # noqa: E402
from terminalbench.runner.executors import local  # noqa: E402


def _warm_workers(where: str) -> None:
    from terminalbench.overnight import launch

    launch.PROGRAM = [sys.executable, str(Path(__file__).with_name("night_worker.py")), where]
    launch.local = SimpleNamespace(spawn=local.spawn)  # ty: ignore[invalid-assignment]


if __name__ == "__main__":
    where = sys.argv.pop(1)
    if {"overnight", "iterate"} & set(sys.argv[1:2]):
        _warm_workers(where)
    local.spawn = Warm(where)  # ty: ignore[invalid-assignment]
    entry()
