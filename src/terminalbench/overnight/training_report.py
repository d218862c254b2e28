"""A night of training in the morning report: what was tried, kept and rejected, at what cost, and what is claimed.

The trainer writes it into the folder of the night; here it is only read and told.
"""

import msgspec

from terminalbench.json_files import read_json
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import NightConfig
from terminalbench.text.numbers import cost, duration, plural
from terminalbench.text.table import Columns

COMPARISONS = Columns[tuple[str, str, str]](
    {"part": lambda one: one[0], "profile": lambda one: one[1], "outcome": lambda one: one[2]}
)


class TrainingStep(msgspec.Struct, frozen=True, kw_only=True):
    """How far a night of a training is: the part that runs, its share of the night, trials done of at most so many.

    `ran` of them ended since `began`, a moment of the wall clock: what was done before a kill took no time now.
    """

    nights: int
    part: str
    share: float
    trials: int
    done: int
    ran: int
    began: float

    def left_sec(self, now: float) -> float | None:
        """Return how long it takes at most, by the trials so far; None while none has ended."""
        return (now - self.began) / self.ran * (self.trials - self.done) if self.ran else None


class TrainedNight(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One night of a training. `lines` say outcome, `comparisons` are all that were declared.

    `stopped` is why it is not over, `cost_usd` what it has cost so far, and `step` where it is while it runs.
    `waits` names the challenger that waits for its turn, and the command for it. `answer` says whether it got better,
    `trials` how many were run.
    """

    training: str
    night: int
    lines: list[str]
    comparisons: list[tuple[str, str, str]] = []
    cost_usd: float | None = None
    cost_unknown: int = 0
    stopped: str | None = None
    step: TrainingStep | None = None
    waits: str | None = None
    answer: str | None = None
    trials: int = 0


def read_trained(folder: NightFolder) -> TrainedNight | None:
    """Return what was trained in a night; None where nothing was, or not yet."""
    return read_json(folder.training_json, TrainedNight) if folder.training_json.is_file() else None


def training_stopped(folder: NightFolder, config: NightConfig) -> str | None:
    """Return why the training that a night ends with is not over; None where it is, or there is none."""
    if config.learn is None:
        return None
    found = read_trained(folder)
    return found.stopped if found is not None else "its training has not started"


def step_parts(found: TrainedNight, now: float) -> list[str]:
    """Return where a training is while it runs: its night, the part and its share, trials, cost, time left; else
    nothing."""
    step = found.step
    if step is None:
        return []
    left = step.left_sec(now)
    return [
        f"training {found.training}, night {found.night} of {step.nights}",
        f"{step.part} ({round(100 * step.share)} %)",
        f"{step.done} of {plural(step.trials, 'trial')}",
        cost(found.cost_usd, found.cost_unknown) if found.cost_usd or found.cost_unknown else "",
        f"at most {duration(left)} left" if left is not None else "",
    ]


def step_line(found: TrainedNight, now: float) -> str | None:
    """The same in one line; None where it does not run."""
    return ", ".join(filter(None, step_parts(found, now))) or None
