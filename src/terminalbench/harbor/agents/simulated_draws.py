"""The draws of a simulated agent for an attempt: by its seed, the task and the number of earlier tries alone."""

import hashlib
import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple

import msgspec
from harbor.agents.options import AgentOptions
from pydantic import Field, field_validator

from terminalbench.errors import TbenchError
from terminalbench.json_files import read_json

Probability = Annotated[float, Field(ge=0, le=1)]


class SimulatedOptions(AgentOptions):
    """The options of the simulated agent."""

    solve_probability: Probability | dict[str, Probability] = Field(
        default=0.5,
        description="Chance to solve a task; or a table from task id, task name, family or glob to the chance.",
    )
    skill_text: dict[str, Annotated[float, Field(ge=-1, le=1)]] = Field(
        default_factory=dict,
        description="Texts, and how each of them that stands in the instruction changes the chance to solve.",
    )
    error_probability: Probability = Field(default=0.0, description="Chance that its provider fails on the way.")
    seed: int = Field(default=0, description="Another seed, other luck.")
    steps_mean: float = Field(default=5.0, ge=2, le=200, description="Mean number of the agent's steps.")
    tokens_mean: float = Field(default=20_000.0, gt=0, description="Mean number of made-up tokens, in and out.")
    cost_per_mtok_usd: float = Field(default=3.0, ge=0, description="Made-up price of a million tokens.")
    delay_sec: tuple[float, float] = Field(
        default=(0.0, 0.02), description="Shortest and longest time of pretended work."
    )

    @field_validator("solve_probability")
    @classmethod
    def _not_empty(cls, value: float | dict[str, float]) -> float | dict[str, float]:
        if value == {}:
            raise ValueError("a table needs at least one entry")
        return value

    @field_validator("skill_text")
    @classmethod
    def _told(cls, value: dict[str, float]) -> dict[str, float]:
        if not all(text.strip() for text in value):
            raise ValueError("an empty text stands in every instruction; set solve_probability instead")
        return value

    @field_validator("delay_sec")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 <= value[0] <= value[1] < math.inf:
            raise ValueError("must be two numbers of seconds, the smaller first")
        return value


class Identity(NamedTuple):
    """All on which the luck of one run depends, besides the seed."""

    model: str
    task: str
    attempt: int
    retry: int = 0


class Luck(NamedTuple):
    """The course of one run. `crash_step` is the step before which the agent crashes, if it does."""

    solves: bool
    crash_step: int | None
    steps: int
    tokens: int
    delay_sec: float


def probability_for(table: float | Mapping[str, float], task: str, family: str | None) -> float:
    """The chance to solve `task`, named "id" or "org/id". Exact names come before the family, and both before globs.

    Of several globs that match, the longest counts. A task for which the table has nothing is a ValueError.
    """
    if not isinstance(table, Mapping):
        return table
    names = [name for name in (task.rpartition("/")[2], task, family) if name]
    for name in names:
        if name in table:
            return table[name]
    for pattern in sorted(table, key=lambda pattern: (-len(pattern), pattern)):
        if any(fnmatchcase(name, pattern) for name in names):
            return table[pattern]
    raise ValueError(f'solve_probability has no entry for task "{task}" (family {family}); add one, or "*"')


def taught(chance: float, skill_text: Mapping[str, float], instruction: str) -> float:
    """The chance to solve a task with this instruction: each text that stands in it, letter by letter, changes it."""
    changes = sum(change for text, change in skill_text.items() if text in instruction)
    return min(1.0, max(0.0, chance + changes))


def draw(options: SimulatedOptions, identity: Identity, chance: float) -> Luck:
    """The luck of one run: the same arguments, the same luck. Pure."""

    def unit(what: str) -> float:
        text = msgspec.json.encode([options.seed, *identity, what])
        return (int.from_bytes(hashlib.sha256(text).digest()[:6]) + 0.5) / 2**48

    def around(mean: float, spread: float, what: str) -> float:
        return mean * math.exp(spread * NormalDist().inv_cdf(unit(what)) - spread**2 / 2)

    steps = max(2, round(around(options.steps_mean, 0.3, "steps")))
    crashes = unit("crash") < options.error_probability
    low, high = options.delay_sec
    return Luck(
        solves=unit("solve") < chance,
        crash_step=1 + int(unit("crash step") * steps) if crashes else None,
        steps=steps,
        tokens=max(steps, round(around(options.tokens_mean, 0.5, "tokens"))),
        delay_sec=low + (high - low) * unit("delay"),
    )


class AttemptClaim(NamedTuple):
    """The number of a trial's attempt at its task, from 1, and of the tries that Harbor has made of it before."""

    attempt: int
    retry: int


class AttemptBook:
    """Numbers the attempts of each cell (task, model, options) of a job without our plugin, in the order they begin.

    A new trial gets the lowest number that no finished one has. One that Harbor retries keeps it and counts them.
    """

    def __init__(self, job_dir: Path) -> None:
        self._trials: dict[str, dict[str, AttemptClaim]] = {}
        for result in sorted(job_dir.glob("*/result.json")):
            match _kept_metadata(result):
                case {"simulated": True, "cell": str(cell), "attempt": int(attempt), "retry": int(retry)}:
                    self._trials.setdefault(cell, {})[result.parent.name] = AttemptClaim(attempt, retry)

    def claim(self, cell: str, trial: str) -> AttemptClaim:
        """The number of `trial`, which begins now."""
        trials = self._trials.setdefault(cell, {})
        if trial in trials:
            trials[trial] = AttemptClaim(trials[trial].attempt, trials[trial].retry + 1)
        else:
            taken = {claim.attempt for claim in trials.values()}
            trials[trial] = AttemptClaim(next(n for n in range(1, len(taken) + 2) if n not in taken), 0)
        return trials[trial]

    def finished(self, cell: str, attempt: int) -> int:
        """Return how many trials of a cell had this number when the book was opened."""
        return sum(claim.attempt == attempt for claim in self._trials.get(cell, {}).values())


def _kept_metadata(result: Path) -> dict[str, Any]:
    """The metadata of a finished trial's agent; empty when it has none, was cut off, or cannot be read."""
    try:
        content = read_json(result, dict[str, Any])
    except (OSError, TbenchError):
        return {}
    if (content.get("exception_info") or {}).get("exception_type") == "CancelledError":
        return {}
    for holder in (content, *(content.get("step_results") or ())):
        metadata = (holder.get("agent_result") or {}).get("metadata")
        if isinstance(metadata, dict):
            return metadata
    return {}


def cell_of(task: str, model: str, options: SimulatedOptions) -> str:
    """A short name for the trials that are attempts at the same thing."""
    text = msgspec.json.encode([task, model, options.model_dump(mode="json")], order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]
