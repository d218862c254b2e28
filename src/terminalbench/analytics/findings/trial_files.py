"""What an analyzer is given: one trial, where its files are, and what its trajectory did."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import msgspec

from terminalbench.analytics.atif import Trajectory, TrajectoryStep, UnreadableTrajectory, read_trajectory
from terminalbench.analytics.findings.actions import Action, actions_of
from terminalbench.analytics.findings.failed_checks import agent_outputs
from terminalbench.harbor.read.notes import SEEN
from terminalbench.index.queries import TrialRow
from terminalbench.records.trial import Finding, Trial, Usage
from terminalbench.secrets.values import Secrets
from terminalbench.workflow.trace import trace_file

_PARTS_LIMIT = 200
type Value = bool | int | float | str | None
TRAJECTORY = "trajectory.json"
NO_TRAJECTORY = "the trial left no trajectory"
UNTOLD = "its output does not show its calls"


@dataclass(frozen=True)
class TrialFiles:
    """One trial folder. `record` is None when its result cannot be read or is not there; `reason` says why.

    `key` is `<job>/<name>`; `batch` is the batch folder. An analyzer may read anything below `folder`, and what was
    copied out of the trial's session, `artifacts(target)`. `secrets` are taken out of what it says. `told` is its story
    where that was read before.
    """

    key: str
    folder: Path
    batch: Path
    record: Trial | None = None
    usage: Usage = field(default_factory=Usage)
    reason: str | None = None
    agent: str | None = None
    secrets: Secrets = field(default_factory=Secrets.of_environment)
    told: "Story | None" = None

    @classmethod
    def of(cls, row: TrialRow, folder: Path, batch: Path, secrets: Secrets) -> "TrialFiles":
        """Return what the index knows of a trial, and where it lies."""
        agent = row.trial.agent if row.trial is not None else None
        return cls(row.key, folder, batch, row.trial, row.usage, row.reason, agent, secrets)

    def artifacts(self, target: str) -> Path:
        """The copied session folder of a target; it may not exist."""
        return self.batch / "artifacts" / target / self.folder.name

    @property
    def trajectory_paths(self) -> list[Path]:
        """Its trajectories: one, or one for each step of a multi-step task."""
        if self.record is not None:
            return [self.folder.parent / path for path in self.record.trajectory_paths]
        path = self.folder / "agent" / TRAJECTORY
        return [path] if path.is_file() else []

    @cached_property
    def story(self) -> "Story":
        """The trajectory and the actions in it, read once."""
        return self.told or read_story(self)

    def finding(
        self,
        analyzer: "tuple[str, str]",
        name: str,
        value: Value,
        reason: str | None = None,
        steps: "list[int] | None" = None,
    ) -> Finding:
        """A finding about this trial, by the analyzer of that name and version."""
        return Finding(self.key, *analyzer, name, value, reason, steps or [])


@dataclass(frozen=True)
class Story:
    """What is known of the agent's way: the trajectory, its actions, or why there is none of either (`missing`)."""

    trajectory: Trajectory | None
    actions: tuple[Action, ...] = ()
    missing: str | None = None


def read_story(trial: TrialFiles) -> Story:
    """Read the trajectory of a trial: its parts joined in order, and a part that cannot be read named."""
    parts: list[Trajectory] = []
    problems: list[str] = []
    for path in trial.trajectory_paths:
        try:
            parts += _with_continuations(path)
        except UnreadableTrajectory as error:
            problems.append(f"{path.name} {error}")
    if not parts:
        return Story(None, missing="; ".join(problems) or NO_TRAJECTORY)
    whole = _join(parts, problems)
    return Story(whole, tuple(actions_of(whole, trial.agent)), UNTOLD if whole.untold else None)


def _with_continuations(path: Path) -> list[Trajectory]:
    """A trajectory and the files it is continued in. A file that was named but is not readable is a problem."""
    parts = [read_trajectory(path)]
    seen = {path.name}
    while (name := parts[-1].continued_in) and len(parts) < _PARTS_LIMIT:
        if name in seen or Path(name).name != name:
            break
        seen.add(name)
        try:
            parts.append(read_trajectory(path.with_name(name)))
        except UnreadableTrajectory as error:
            last = parts[-1]
            parts[-1] = replace(last, problems=(*last.problems, f"continued in {name}: {error}"))
            break
    return parts


def _join(parts: list[Trajectory], problems: list[str]) -> Trajectory:
    """Several parts as one; the steps of the second and later parts are numbered on."""
    if len(parts) == 1:
        only = parts[0]
        return replace(only, problems=(*only.problems, *problems)) if problems else only
    steps: list[TrajectoryStep] = []
    for part in parts:
        offset = max((step.id for step in steps), default=0)
        steps += [msgspec.structs.replace(step, id=step.id + offset) if offset else step for step in part.own_steps()]
    return replace(
        parts[0],
        steps=tuple(steps),
        subagents=tuple(inner for part in parts for inner in part.subagents),
        continued_in=None,
        problems=(*(problem for part in parts for problem in part.problems), *problems),
    )


def stamp_of(trial: TrialFiles, targets: tuple[str, ...] = ()) -> str:
    """Changes when anything does that the analyzers read: result, trajectories, trace, outputs, artifacts."""
    paths = [trial.folder / "result.json", *trial.trajectory_paths, trace_file(trial.folder)]
    paths += [trial.folder / "verifier" / name for name in ("ctrf.json", "test-stdout.txt")]
    paths += [trial.folder / SEEN, *agent_outputs(trial.folder)]
    for path in trial.trajectory_paths:
        paths += _continuations(path)
    marks = [_mark(path) for path in paths]
    for target in targets:
        folder = trial.artifacts(target)
        marks += sorted(
            f"{root}/{name}:{_mark(Path(root) / name)}" for root, _, names in os.walk(folder) for name in names
        )
    return "|".join(marks)


def _continuations(path: Path) -> Iterator[Path]:
    number = 1
    while (further := path.with_name(f"trajectory.cont-{number}.json")).is_file():
        yield further
        number += 1


def _mark(path: Path) -> str:
    try:
        status = path.lstat()
    except OSError:
        return "-"
    return f"{status.st_size}.{status.st_mtime_ns}"
