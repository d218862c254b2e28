"""What the trainer itself takes beside the trials of a training, in one run: CPU time outside its batches, of all.

.venv/bin/python benchmarks/training.py [--nights 4]

The plan is experiments/training-quickstart.toml, whose trials only pretend: real ones take more, so this is its worst.
"""

import argparse
import resource
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from terminalbench.trainer import batches
from terminalbench.trainer.plan import load_plan
from terminalbench.trainer.run import run_training

REPO = Path(__file__).parents[1]
PLAN = "experiments/training-quickstart.toml"
MOST = 0.02


def own_sec() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def all_sec() -> float:
    """The same with all that it has started and waited for: the trials."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own_sec() + used.ru_utime + used.ru_stime


class Beside:
    """Adds up what running batches takes in this process; Harbor's processes are waited for when all are over."""

    def __init__(self) -> None:
        self.batches_sec = 0.0

    def counted(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, counted."""

        def called(*args: Any, **more: Any) -> Any:
            before = own_sec()
            try:
                return run(*args, **more)
            finally:
                self.batches_sec += own_sec() - before

        return called


def main() -> None:
    """Run it and print the ratio."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--nights", type=int, default=4)
    nights = asked.parse_args().nights
    beside = Beside()
    for name in ("run", "resume"):
        setattr(batches, name, beside.counted(getattr(batches, name)))
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "experiments").mkdir()
        (root / "pyproject.toml").touch()
        shutil.copy(REPO / PLAN, root / PLAN)
        before, first = own_sec(), all_sec()
        plan = load_plan(root / PLAN)
        begun = own_sec()
        done = run_training(plan, nights=nights).nights
        own, total = own_sec() - before - beside.batches_sec, all_sec() - first
    trials = sum(night.trials for night in done)
    print(f"{len(done)} nights, {trials} trials: {total:.2f} CPU s, of them {own:.3f} s by the trainer itself")
    print(f"trainer beside the trials: {own / total:.2%} (at most {MOST:.0%}), {1000 * own / trials:.1f} ms a trial")
    print(f"of these, reading and checking the plan, once a command: {begun - before:.3f} CPU s")
    raise SystemExit(own / total > MOST)


if __name__ == "__main__":
    main()
