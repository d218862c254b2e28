"""A worker of a night whose Harbor processes are forked from the loaded one of the test session (see `support.warm`)."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parent.parent)
from support.warm import Warm  # noqa: E402

sys.path[0] = str(Path.cwd())
from terminalbench.overnight.worker import main  # noqa: E402
from terminalbench.runner.executors import local  # noqa: E402

if __name__ == "__main__":
    local.spawn = Warm(sys.argv.pop(1))  # ty: ignore[invalid-assignment]
    sys.exit(main())
