"""Chaos in a training: kill -9 at random moments, resume, and count what was paid twice or decided otherwise.

    .venv/bin/python tests/chaos/trainings.py [--rounds 20] [--seed 1]

The trainer is as it is, in a process of its own that kills itself by a real SIGKILL: before or after anything that it
writes, or between two trials. Trials are scripted; each is noted in a book once its result is on disk.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import override

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.scripted_trials import Moments, ScriptedTrials, script_trials
from terminalbench.trainer.journal import read_nights
from terminalbench.trainer.lineage import LineageStore
from terminalbench.trainer.plan import load_plan
from terminalbench.trainer.run import run_training

PLAN = "experiments/training-quickstart.toml"
SLUG = "training-quickstart"
LIMIT_SEC = 600.0


class Deadly(Moments):
    """Kills its own process at a moment."""

    def __init__(self, left: int | None) -> None:
        super().__init__()
        self.left = left

    @override
    def at(self, name: str) -> None:
        super().at(name)
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Tally:
    """What was done, and what was found wrong."""

    kills: int = 0
    trials: int = 0
    problems: list[str] = field(default_factory=list)


def decisions(root: Path) -> tuple[object, ...]:
    """All that was decided, without when."""
    lineage = LineageStore(root).lineage(SLUG)
    nights = [(n.night, n.after, n.control, n.explored, n.winner, n.confirm, n.same_p, n.trials, n.measured)
              for n in read_nights(root / ".terminalbench/training" / SLUG)]  # fmt: skip
    return nights, [(one.id, one.why, one.before, one.evidence) for one in lineage.crowned], sorted(lineage.variants)


def chance(prompt: str) -> float:
    """How often a profile with this prompt passes."""
    return 0.95 if "Check the result" in prompt else 0.1


def _train(root: Path, left: int | None) -> None:
    """Train in this process, up to a moment."""
    with pytest.MonkeyPatch.context() as patch:
        made: ScriptedTrials = script_trials(patch, root, SLUG, chance, Deadly(left))
        made.book = root / "book.txt"
        run_training(load_plan(root / PLAN, root), resume=True)


def trained(root: Path, left: int | None) -> bool:
    """Train in a process of its own, until it is over or kills itself; whether it is over."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.chdir(root)
            _train(root, left)
            code = 0
        except BaseException:  # noqa: BLE001  this process ends here
            traceback.print_exc()
        finally:
            os._exit(code)
    end = time.monotonic() + LIMIT_SEC
    while (found := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    code = os.waitstatus_to_exitcode(found[1])
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a training ended with {code}")
    return code == 0


def play(place: Path, plan: str, seed: int, longest: int, tally: Tally) -> None:
    """One training that is killed again and again, at most so many moments apart, beside one that is not."""
    luck = random.Random(seed)
    calm, killed = place / "calm", place / "killed"
    for root in (calm, killed):
        (root / PLAN).parent.mkdir(parents=True)
        (root / PLAN).write_text(plan)
    trained(calm, None)
    while not trained(killed, luck.randint(1, longest)):
        tally.kills += 1
    paid = Counter((killed / "book.txt").read_text().splitlines())
    tally.trials += paid.total()
    if twice := [name for name, times in paid.items() if times > 1]:
        tally.problems.append(f"seed {seed}: paid twice: {twice}")
    if set(paid) != set((calm / "book.txt").read_text().splitlines()):
        tally.problems.append(f"seed {seed}: other trials were paid")
    if decisions(killed) != decisions(calm):
        tally.problems.append(f"seed {seed}: other decisions: {decisions(killed)}, not {decisions(calm)}")


def main() -> int:
    """Play, and say what was found."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=20)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--longest", type=int, default=12, help="moments between two kills, at most")
    given = asked.parse_args()
    plan, tally = (Path(__file__).parents[2] / PLAN).read_text(), Tally()
    for seed in range(given.seed, given.seed + given.rounds):
        with tempfile.TemporaryDirectory() as place:
            play(Path(place), plan, seed, given.longest, tally)
        print(f"{seed}: {tally.kills} kills, {tally.trials} trials, {len(tally.problems)} problems", flush=True)
    print("\n".join(tally.problems))
    return bool(tally.problems)


if __name__ == "__main__":
    sys.exit(main())
