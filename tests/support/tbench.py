"""`tbench` as a process whose Harbor processes are forked from the loaded one of the test session (see `support.warm`).

So are the workers of a night, and theirs.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parent.parent)
from support.warm import Warm  # noqa: E402

sys.path[0] = str(Path.cwd())  # as `python -m terminalbench.cli.main` has it
from terminalbench.cli.main import entry  # noqa: E402
from terminalbench.runner.executors import local  # noqa: E402

if __name__ == "__main__":
    local.spawn = Warm(sys.argv.pop(1))  # ty: ignore[invalid-assignment]
    entry()
