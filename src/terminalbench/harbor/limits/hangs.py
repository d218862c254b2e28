"""The time limit of each phase of a trial, and the note that is left when one took longer.

Harbor bounds the start of the environment, the agent's set-up, the agent and the verifier. It does not bound an agent
whose task names no time, nor what lies between: uploads, downloads, the collection of artifacts, the end of the
environment. `AGENT_SEC` is the limit of such an agent; every phase as a whole may take its own limits and `GRACE_SEC`.
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import convert
from terminalbench.experiments.plan import ExclusionKind
from terminalbench.experiments.tables import RunTable
from terminalbench.harbor.read.result_file import TaskConfig
from terminalbench.json_files import decode_plain, write_json
from terminalbench.records.trial import TaskRef
from terminalbench.registry import BUILTIN
from terminalbench.text.numbers import duration

HUNG = "hung.json"
"""Left in the folder of a trial that we ended: a phase of it did not end, or somebody asked."""

HELD = "held.json"
"""Left in the folder of a trial that was not let in: it never started."""

AGENT_SEC = 3600.0
"""The limit of an agent on a task that names none, before `timeout_multiplier`."""

GRACE_SEC = RunTable.grace_sec
"""What a phase may take beyond the limits of its own, for everything that has none."""

ASKS = 2
"""A trial that was asked so often to end, and still has not ended some time after that, cannot be ended."""

AGENT_GRACE_SEC = 60.0
"""The most that an agent may: Harbor has cancelled it, and what is collected after it is a phase of its own. One that
swallows cancellation holds its slot for two minutes: this, and the two times that it is asked again.
"""

EARLY_SEC = 0.5
"""What is as young as that when its container is, the safe verifier takes for a part of the container and spares."""

_BUILD_SEC = 600.0
_SETUP_SEC = 1200.0  # the longest that an agent of Harbor's gives itself
_VERIFIER_SEC = 600.0
_SIZE_LIMIT = 1 << 20
_PLAN_LIMIT = 1 << 30


class Hang(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason why the bench ended a trial: a phase that did not end in time, or a person `asked`.

    A `deaf` one ignored that, and ended with its Harbor process. One that `died` we did not end: its Harbor process
    died in that phase, again and when nothing else ran.
    """

    phase: str
    reason: str
    asked: bool = False
    deaf: bool = False
    died: bool = False


class HoldReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason why a trial was not let in; `cancelled`, in files of older versions, stands for that kind."""

    reason: str
    kind: ExclusionKind | None = None
    cancelled: bool = False

    @property
    def finished(self) -> bool:
        """True when this run does not run the trial again."""
        return self.cancelled or self.kind is ExclusionKind.CANCELLED


def read_hang(trial_dir: Path) -> Hang | None:
    """The note in a trial's folder, if there is one."""
    return decode_plain(f"{trial_dir}/{HUNG}", Hang, _SIZE_LIMIT)


def write_hang(trial_dir: Path, phase: str, limit_sec: float) -> Hang:
    """Leave the note."""
    found = Hang(phase, f"{_SPOKEN.get(phase, phase)} did not end within {duration(limit_sec)}")
    write_json(trial_dir / HUNG, found)
    return found


def add_deaf(trial_dir: Path, phase: str) -> None:
    """Add to the note that the trial could not be ended, and that its process has to be."""
    found = read_hang(trial_dir) or Hang(phase, "it did not end")
    reason = f"{found.reason}; it ignored {ASKS} cancellations, so that its Harbor process was ended"
    write_json(trial_dir / HUNG, msgspec.structs.replace(found, reason=reason, deaf=True))


def leave_word(trial_dir: Path, reason: str, *, started: bool) -> None:
    """Leave the word that somebody cancelled a trial: it counts as finished, and this run does not run it again."""
    if started:
        write_json(trial_dir / HUNG, Hang("cancelled", f"cancelled: {reason}", asked=True))
    else:
        write_json(trial_dir / HELD, HoldReason(f"cancelled: {reason}", ExclusionKind.CANCELLED))


_SPOKEN = {
    "environment": "the start of the environment and the agent's set-up",
    "agent": "the agent",
    "collect": "collecting the agent's files",
    "verifier": "the verifier, or the end of the environment,",
}


def read_task(folder: Path) -> dict[str, Any]:
    """A task's `task.toml`; empty when it cannot be read, which Harbor reports by itself."""
    try:
        return tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def has_agent_limit(task: dict[str, Any]) -> bool:
    """Return whether a task bounds its agent: by itself, or in each of its steps."""
    if _number(_table(task, "agent"), "timeout_sec") is not None:
        return True
    steps = task.get("steps")
    if not isinstance(steps, list) or not steps:
        return False
    return all(isinstance(s, dict) and _number(_table(s, "agent"), "timeout_sec") is not None for s in steps)


class _PlannedLimits(msgspec.Struct, frozen=True):
    """Of a plan, how long agents may work on its tasks."""

    class Job(msgspec.Struct, frozen=True):
        """The tasks of a job."""

        class Task(msgspec.Struct, frozen=True):
            """The limits that a task declares."""

            ref: TaskRef
            label: str
            timeout_sec: float | None = None

        tasks: tuple[Task, ...] = ()

    jobs: tuple[Job, ...] = ()


def planned_limits(plan_json: Path) -> dict[tuple[str | None, str], float]:
    """The seconds that the plan of a batch gives agents on its tasks, by label and id; without a plan none."""
    plan = decode_plain(plan_json, _PlannedLimits, _PLAN_LIMIT) or _PlannedLimits()
    tasks = [task for job in plan.jobs for task in job.tasks]
    return {(task.label, task.ref.id): task.timeout_sec for task in tasks if task.timeout_sec is not None}


def bound_agents(configs: Iterable[Any], planned: Mapping[tuple[str | None, str], float]) -> None:
    """Give each trial the limit that is planned for its task's agent, by label and id.

    Every other one whose task does not bound its agent gets one, too: Harbor would wait for it for ever.
    """
    bounded: dict[str, bool] = {}
    for config in configs:
        task = convert(config.task, TaskConfig, from_attributes=True)
        if (limit := planned.get((task.dataset, str(task)))) is not None:
            config.agent = config.agent.model_copy(update={"override_timeout_sec": limit})
            continue
        folder = config.task.get_local_path()
        if str(folder) not in bounded:
            bounded[str(folder)] = has_agent_limit(read_task(folder))
        if not bounded[str(folder)] and config.agent.override_timeout_sec is None:
            config.agent = config.agent.model_copy(update={"override_timeout_sec": AGENT_SEC})


def limits_of(config: Any, grace_sec: float) -> dict[str, float]:
    """The limits of the phases of a trial as Harbor configures it."""
    return phase_limits(read_task(config.task.get_local_path()), config, grace_sec)


def phase_limits(task: dict[str, Any], config: Any, grace_sec: float = GRACE_SEC) -> dict[str, float]:
    """The limit of each phase of a trial by what its task and Harbor's `TrialConfig` say; the longest of its steps."""
    steps = [s for s in task.get("steps") or () if isinstance(s, dict)] or [{}]
    build = _number(_table(task, "environment"), "build_timeout_sec") or _BUILD_SEC
    build *= _factor(config, "environment_build")
    agent = max(_limit(config.agent, s, task, "agent", AGENT_SEC) for s in steps) * _factor(config, "agent")
    verifier = max(_limit(config.verifier, s, task, "verifier", _VERIFIER_SEC) for s in steps)
    verifier *= _factor(config, "verifier")
    setup = (config.agent.override_setup_timeout_sec or _SETUP_SEC) * _factor(config, "agent_setup")
    return {
        "environment": build + setup + grace_sec,
        "agent": agent + min(grace_sec, AGENT_GRACE_SEC),
        "collect": grace_sec,
        "verifier": 2 * verifier + build + grace_sec,  # tests that run out of time run once more, without the work
    }


def verifier_sec(task: dict[str, Any], config: Any, step: str | None = None) -> float:
    """Return how long the verifier of a task, or of the step with that name, may take."""
    steps = (one for one in task.get("steps") or () if isinstance(one, dict) and one.get("name") == step)
    own = next(steps, {}) if step is not None else {}
    return _limit(config.verifier, own, task, "verifier", _VERIFIER_SEC) * _factor(config, "verifier")


def _limit(given: Any, step: dict[str, Any], task: dict[str, Any], name: str, default: float) -> float:
    own = _number(_table(step, name), "timeout_sec") or _number(_table(task, name), "timeout_sec")
    base = given.override_timeout_sec or own or default
    return min(base, given.max_timeout_sec or base)


def _factor(config: Any, name: str) -> float:
    own = getattr(config, f"{name}_timeout_multiplier")
    return config.timeout_multiplier if own is None else own


def _table(parent: dict[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _number(table: dict[str, Any], name: str) -> float | None:
    value = table.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def early_sec(happened: str, environment: str | None) -> float:
    """Return how long an agent that is about to start has to wait, so that nothing of it is as old as its container.

    The local sandbox needs no such guess.
    """
    guess = happened == "agent-start" and environment != BUILTIN["environments"]["local"]
    return EARLY_SEC + 0.1 if guess else 0.0
