"""An agent that only pretends to work: seeded outcomes, a valid trajectory, made-up tokens and cost.

With the given probability it really solves the task, by running the task's own solution; otherwise it looks around,
writes something useless to a scratch file and claims to be done. No model is called. Every trial says so for ever:
`simulated` is true in the metadata of its result and in its trajectory.

What happens is a function of (seed, model name, task name, attempt, retry), so that a job gives the same set of
results each time it is run. Each part of that luck is drawn by itself: another price or pace does not change which
tasks are solved. The plugin tells an agent its attempt; without it `AttemptBook` counts. The instruction changes only
the chance to solve a task, by the texts that `skill_text` names: so a lesson can be made to help or to harm.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, NamedTuple, override

import msgspec
from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.options import AgentOptions
from harbor.agents.oracle import OracleAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.task.task import Task
from harbor.models.trajectories import (
    Agent,
    FinalMetrics,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    ToolCall,
    Trajectory,
)
from harbor.models.trial.paths import TrialPaths
from pydantic import Field, field_validator

from terminalbench.errors import TbenchError
from terminalbench.harbor.attempt_numbers import ATTEMPT, first_wave
from terminalbench.json_files import read_json, write_json
from terminalbench.version import __version__

Probability = Annotated[float, Field(ge=0, le=1)]


class SimulatedOptions(AgentOptions):
    """The options of the simulated agent."""

    solve_probability: Probability | dict[str, Probability] = Field(
        default=0.5,
        description="Probability of solving a task, or a table from task id, task name, family or glob to "
        "probabilities.",
    )
    skill_text: dict[str, Annotated[float, Field(ge=-1, le=1)]] = Field(
        default_factory=dict,
        description="Texts; each one found in the instruction changes the probability of solving by its number.",
    )
    error_probability: Probability = Field(
        default=0.0, description="Probability that its provider fails during the trial."
    )
    seed: int = Field(default=0, description="Seed of its random choices.")
    steps_mean: float = Field(default=5.0, ge=2, le=200, description="Mean number of the agent's steps.")
    tokens_mean: float = Field(default=20_000.0, gt=0, description="Mean number of made-up tokens, in and out.")
    cost_per_mtok_usd: float = Field(default=3.0, ge=0, description="Made-up price of a million tokens.")
    delay_sec: tuple[float, float] = Field(
        default=(0.0, 0.02), description="Shortest and longest duration of the simulated work, in seconds."
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
            raise ValueError("an empty text is part of every instruction; set solve_probability instead")
        return value

    @field_validator("delay_sec")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 <= value[0] <= value[1] < math.inf:
            raise ValueError("must be two numbers of seconds, smaller first")
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


SAVE_INTERVAL_SEC = 1.0
LOOKS = (
    ("Let me see where I am.", "pwd && ls -la"),
    ("Which files are there?", "find . -maxdepth 2 -type f | head -n 20"),
    ("What is this machine?", "uname -srm && date -u"),
    ("Let me read a little.", "head -c 300 -- ./* 2>/dev/null | head -n 40"),
    ("Is there room to work?", "df -h . | tail -n 1"),
)
WRONG = ("I think I have it.", 'printf "nothing done\\n" > "${TMPDIR:-/tmp}/simulated-attempt.txt"')
SOLVE = ("I know what to do.", "bash /solution/solve.sh")


class SimulatedOutage(RuntimeError):
    """The failure of a provider that `error_probability` asks for."""


class SimulatedAgent(BaseAgent):
    """Pretends to work on a task, and sometimes solves it. See the module."""

    AGENT_INFO: ClassVar = {"simulated": True, "mcp": False, "skills": False, "usage": "harbor"}
    capabilities: ClassVar[AgentCapabilities] = AgentCapabilities(atif=True)
    options_model: ClassVar[type[AgentOptions] | None] = SimulatedOptions
    options: SimulatedOptions

    _books: ClassVar[dict[Path, AttemptBook]] = {}

    def __init__(self, logs_dir: Path, *args: Any, **kwargs: Any) -> None:
        super().__init__(logs_dir, *args, **kwargs)
        self._claim: AttemptClaim | None = None
        self._solver: OracleAgent | None = None

    @staticmethod
    @override
    def name() -> str:
        return "simulated"

    @override
    def version(self) -> str:
        return __version__

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """There is nothing to install."""

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Act out one run; `context` and the trajectory grow with each step and survive a crash or a timeout."""
        task = Task(_task_dir(environment), disable_verification=True)
        model = self.model_name or self.name()
        claim = self._claimed(task, model)
        chance = probability_for(self.options.solve_probability, task.name, task.config.metadata.get("family"))
        chance = taught(chance, self.options.skill_text, instruction)
        luck = draw(self.options, Identity(model, task.name, *claim), chance)
        context.metadata = {
            "simulated": True,
            "cell": cell_of(task.name, model, self.options),
            "attempt": claim.attempt,
            "retry": claim.retry,
            "intended": "crash" if luck.crash_step else "solve" if luck.solves else "fail",
            "cost_is_simulated": True,
        }
        tape = _StepRecorder(self, model, instruction, context)
        try:
            await self._act(environment, luck, tape)
        finally:
            tape.save()

    async def _act(self, environment: BaseEnvironment, luck: Luck, tape: "_StepRecorder") -> None:
        for number in range(1, luck.steps + 1):
            await asyncio.sleep(luck.delay_sec / luck.steps)
            if number == luck.crash_step:
                raise SimulatedOutage(f"simulated outage at step {number} of {luck.steps}, drawn by error_probability")
            tokens = _share(luck, number, self.options.cost_per_mtok_usd / 1e6)
            if number == luck.steps:
                tape.add("The task is done.", tokens)
            elif number < luck.steps - 1:
                message, command = LOOKS[(number - 1) % len(LOOKS)]
                tape.add(message, tokens, command, await _look(environment, command))
            elif luck.solves:
                tape.add(SOLVE[0], tokens, SOLVE[1], await self._solve(environment))
            else:
                tape.add(WRONG[0], tokens, WRONG[1], await _look(environment, WRONG[1]))

    async def _solve(self, environment: BaseEnvironment) -> str:
        """Run the task's solution as Harbor's oracle does; what it printed."""
        paths = TrialPaths(self.logs_dir.parent)
        if self._solver is None:
            self._solver = OracleAgent(
                logs_dir=self.logs_dir, task_dir=_task_dir(environment), trial_paths=paths, logger=self.logger
            )
        await self._solver.run("", environment, AgentContext())
        printed, status = self.logs_dir / "oracle.txt", self.logs_dir / "exit-code.txt"
        text = printed.read_text(errors="replace")[-4000:] if printed.exists() else ""
        return f"exit {status.read_text().strip() if status.exists() else 0}\n{text}"

    def _claimed(self, task: Task, model: str) -> AttemptClaim:
        """This trial's attempt: claimed once, also when a task has several steps."""
        if self._claim is None:
            trial_dir, cell = self.logs_dir.parent, cell_of(task.name, model, self.options)
            self._claim = self._book(trial_dir.parent).claim(cell, trial_dir.name)
            if told := self.extra_env.get(ATTEMPT):
                before = self._ran_before(trial_dir.parent, cell, int(told))
                self._claim = AttemptClaim(int(told), self._claim.retry + before)
        return self._claim

    def _book(self, job_dir: Path) -> AttemptBook:
        if job_dir not in self._books:
            self._books[job_dir] = AttemptBook(job_dir)
        return self._books[job_dir]

    def _ran_before(self, job_dir: Path, cell: str, attempt: int) -> int:
        """Return how often earlier waves finished this attempt: it is run again because it broke, and has new luck."""
        others = (folder for folder in job_dir.parent.iterdir() if folder != job_dir)
        waves = [folder for folder in others if first_wave(folder.name) == first_wave(job_dir.name)]
        return sum(self._book(folder).finished(cell, attempt) for folder in waves)


class _StepRecorder:
    """Records steps in the trajectory and in Harbor's context."""

    def __init__(self, agent: SimulatedAgent, model: str, instruction: str, context: AgentContext) -> None:
        self._agent, self._model, self._context = agent, model, context
        self._steps = [Step(step_id=1, timestamp=_now(), source="user", message=instruction)]
        self._saved_at = time.monotonic()

    def add(self, message: str, metrics: Metrics, command: str | None = None, output: str = "") -> None:
        """One step of the agent: what it said, what it ran, what came back, and what that would have cost."""
        context = self._context
        step = Step(
            step_id=len(self._steps) + 1,
            timestamp=_now(),
            source="agent",
            model_name=self._model,
            message=message,
            llm_call_count=1,
            metrics=metrics,
            extra={"simulated": True},
        )
        if command is not None:
            call = f"call-{step.step_id}"
            step.tool_calls = [ToolCall(tool_call_id=call, function_name="bash", arguments={"command": command})]
            step.observation = Observation(results=[ObservationResult(source_call_id=call, content=output)])
        self._steps.append(step)
        context.n_input_tokens = (context.n_input_tokens or 0) + (metrics.prompt_tokens or 0)
        context.n_cache_tokens = (context.n_cache_tokens or 0) + (metrics.cached_tokens or 0)
        context.n_output_tokens = (context.n_output_tokens or 0) + (metrics.completion_tokens or 0)
        price = self._agent.options.cost_per_mtok_usd / 1e6
        context.cost_usd = (context.n_input_tokens + context.n_output_tokens) * price
        if time.monotonic() - self._saved_at >= SAVE_INTERVAL_SEC:
            self.save()

    def save(self) -> None:
        """Write the trajectory as it is now."""
        agent, context = self._agent, self._context
        trajectory = Trajectory(
            session_id=agent.session_id,
            agent=Agent(name=agent.name(), version=agent.version(), model_name=self._model, extra={"simulated": True}),
            steps=self._steps,
            notes="Simulated: no model was called, tokens and cost are made up.",
            final_metrics=FinalMetrics(
                total_prompt_tokens=context.n_input_tokens,
                total_cached_tokens=context.n_cache_tokens,
                total_completion_tokens=context.n_output_tokens,
                total_cost_usd=context.cost_usd,
                total_steps=len(self._steps),
                extra={"simulated": True},
            ),
            extra=dict(context.metadata or {}),
        )
        write_json(agent.logs_dir / "trajectory.json", trajectory.to_json_dict())
        self._saved_at = time.monotonic()


def _share(luck: Luck, number: int, price: float) -> Metrics:
    """The tokens of one step: a tenth of all is output; prompts grow, and what was sent before comes from the cache."""
    output = max(luck.steps, luck.tokens // 10)
    prompts = luck.tokens - output

    def until(step: int) -> int:
        return prompts * step * (step + 1) // (luck.steps * (luck.steps + 1))

    prompt = until(number) - until(number - 1)
    completion = output * number // luck.steps - output * (number - 1) // luck.steps
    cached = until(number - 1) - until(number - 2) if number > 1 else 0
    return Metrics(
        prompt_tokens=prompt,
        cached_tokens=min(cached, prompt),
        completion_tokens=completion,
        cost_usd=(prompt + completion) * price,
        extra={"simulated": True},
    )


def _task_dir(environment: BaseEnvironment) -> Path:
    folder = environment.environment_dir.parent
    if not (folder / "task.toml").is_file():
        raise FileNotFoundError(
            f"the simulated agent needs the folder of the task, but there is no task.toml in {folder}"
        )
    return folder


async def _look(environment: BaseEnvironment, command: str) -> str:
    result = await environment.exec(command, timeout_sec=60)
    return f"exit {result.return_code}\n{(result.stdout or '')[-4000:]}{(result.stderr or '')[-1000:]}"


def _now() -> str:
    return datetime.now(UTC).isoformat()
