"""Whether lessons that help reach the prompt and those that harm go: a memory, its retrieval and draws over many nights.

.venv/bin/python tests/simulate/lessons.py [--reps 12] [--write]

Agents are simulated: the chance to pass a task is that of the task, changed by the lessons that the trial was shown and
that fit it. There are 12 lessons, each about one of eight topics of which a task has two: one helps (+20 pt), one harms
(-12 pt), ten do nothing; their importance says little about which. A night has 60 trials with lessons at 20 tasks in ten
families. Lessons are found by `retrieve` (masked), withheld by `draw`, judged by `learn` and retired by
`is_harmful` and `is_idle`.
"""

import argparse
import json
import sqlite3
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from msgspec.structs import replace

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: `simulate` is the package here

from terminalbench.archivist.retrieval import RetrievalPolicy, Situation, eligible_lesson, retrieve
from terminalbench.archivist.tables import MIGRATIONS, put_lesson
from terminalbench.archivist.utility import (
    ExposedTrial,
    chance_of_harm,
    chance_shown,
    is_harmful,
    is_idle,
    learn,
    prior,
    weight,
)
from terminalbench.experiments.lessons import EligibleLesson, Snapshot, draw
from terminalbench.index.database import migrate, opened
from terminalbench.overnight.iteration_files import control_every
from terminalbench.records.lesson import Lesson, LessonState, Utility
from terminalbench.records.trial import TaskRef

KEPT = Path(__file__).resolve().parent / "lessons.json"
POLICIES = ("keep all", "as before", "by effect, k = 1", "by effect")
"""`as before`: the lesson that shares most with the task, k = 1, shown with 0.7, retired above 0.8."""
KINDS = {"helps": 1, "harms": 1, "idle": 10}
EFFECTS = {"helps": 0.20, "harms": -0.12, "idle": 0.0}
RETIRED = {"helps by 5 points": 0.05, "idle": 0.0, "harms by 8 points": -0.08}
WITHHELD = 0.3
NIGHTS = (5, 10, 28)
_TOPICS = 8
_RETIRED_BEFORE = 0.8


@dataclass
class World:
    """Tasks of known difficulty, and a memory of lessons of known effect on the tasks that they fit."""

    seed: int
    tasks: int = 20
    rates: np.ndarray = field(init=False)
    situations: list[Situation] = field(init=False)
    memory: dict[str, Lesson] = field(init=False)
    kinds: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        random = np.random.default_rng((31, self.seed))
        self.rates = np.clip(random.beta(0.5, 0.6, self.tasks), 0.12, 0.8)
        self.situations = []
        for n in range(self.tasks):
            topics = [f"topic{n // 2 % _TOPICS}x", f"topic{(n // 2 + 3) % _TOPICS}x"]
            self.situations.append(Situation(TaskRef(f"t{n}", "d", f"f{n // 2}"), " ".join(topics), tuple(topics)))
        kinds = [kind for kind, count in KINDS.items() for _ in range(count)]
        self.kinds = {f"l-{n:02}": kinds[at] for n, at in enumerate(random.permutation(len(kinds)))}
        self.memory = {}
        for number, (name, kind) in enumerate(self.kinds.items()):
            seems = 0.5 + EFFECTS[kind] + random.normal(0, 0.25)
            topic = f"topic{number % _TOPICS}x"
            self.memory[name] = Lesson(
                id=name,
                do=f"Mind {topic} in way{number}x.",
                tags=[topic],
                importance=float(np.clip(seems, 0, 1)),
                source_tasks=[TaskRef("seen", "d", f"f{random.integers(self.tasks // 2)}")],
                state=LessonState.ACTIVE,
            )

    def fits(self, task: int, name: str) -> bool:
        """Whether a lesson is about a topic of the task."""
        return bool(set(self.memory[name].tags) & set(self.situations[task].tags))

    def passes(self, task: int, shown: frozenset[str]) -> float:
        """The chance of a trial to pass."""
        effects = sum(EFFECTS[self.kinds[name]] for name in shown if self.fits(task, name))
        return float(np.clip(self.rates[task] + effects, 0.0, 1.0))


def store_of(lessons: dict[str, Lesson]) -> sqlite3.Connection:
    """A memory that holds these lessons."""
    connection = opened(":memory:")
    migrate(connection, MIGRATIONS)
    for lesson in lessons.values():
        put_lesson(connection, lesson)
    return connection


@dataclass
class Followed:
    """What came of one memory under one policy: by night the true gain, and how often lessons that fit were shown."""

    gains: dict[int, float] = field(default_factory=dict)
    shown: dict[str, float] = field(default_factory=dict)
    kept: dict[str, float] = field(default_factory=dict)
    held: list[bool] = field(default_factory=list)
    own: int = 0
    trials: int = 0
    controls: int = 0


def follow(world: World, policy: str, nights: int = max(NIGHTS), trials: int = 60) -> Followed:
    """Run the nights under a policy, and compare with the truth."""
    random = np.random.default_rng((32, world.seed))
    memory, found = dict(world.memory), Followed()
    everything: list[ExposedTrial] = []
    for number in range(1, nights + 1):
        offered = _offered(world, memory, policy, f"{world.seed}/{number}")
        gains: list[float] = []
        fitted: dict[str, list[bool]] = {}
        snapshot = Snapshot("masked", 3, 400, WITHHELD, offered)
        digest = snapshot.digest
        found.trials += trials
        active = [one for one in memory.values() if one.state is LessonState.ACTIVE]
        every = control_every(active) if policy.startswith("by effect") else 1
        found.controls += trials * (number % every == 0)
        for at in range(trials):
            task = (number * trials + at) % world.tasks
            told = draw(snapshot, digest, f"t{task}", at // world.tasks, f"{world.seed}/{number}").exposures
            shown = frozenset(one.lesson for one in told if one.shown)
            rate = world.passes(task, shown)
            gains.append(rate - float(world.rates[task]))
            found.own += sum(one.own for one in told)
            for name in world.memory:
                if world.fits(task, name) and world.situations[task].task.family not in world.memory[name].families:
                    fitted.setdefault(world.kinds[name], []).append(name in shown)
            everything.append(_counted(world, task, told, bool(random.random() < rate), policy))
        if number in NIGHTS or number == nights:
            found.gains[number] = mean(gains)
            found.shown = {kind: mean(values) for kind, values in fitted.items()}
        if policy != "keep all":
            memory = _learned(world, memory, everything, policy)
    for kind in KINDS:
        found.kept[kind] = mean(name in memory for name, one in world.kinds.items() if one == kind)
    return found


def _offered(world: World, memory: dict[str, Lesson], policy: str, seed: str) -> dict[str, list[EligibleLesson]]:
    """The lessons that each task is eligible for."""
    if policy.startswith("by effect"):
        asked, found = RetrievalPolicy(k=1 if "k = 1" in policy else 3), {}
        with store_of(memory) as connection:
            for situation in world.situations:
                ranked = retrieve(connection, situation, asked, seed).lessons
                found[situation.task.id] = [eligible_lesson(one, situation, WITHHELD) for one in ranked]
        return found
    found = {}
    for number, situation in enumerate(world.situations):
        allowed = [one for one in memory.values() if situation.task.family not in one.families]
        order = sorted(allowed, key=lambda one: (not world.fits(number, one.id), -weight(one)))
        taken = order[: 1 if policy == "as before" else 3]
        found[situation.task.id] = [EligibleLesson(one.id, one.text) for one in taken]
    return found


def _counted(world: World, task: int, told: list[Any], passed: bool, policy: str) -> ExposedTrial:
    names = frozenset(one.lesson for one in told)
    shown = frozenset(one.lesson for one in told if one.shown)
    if policy == "as before":
        return ExposedTrial(f"t{task} {' '.join(sorted(names))}", passed, names, shown, {}, f"t{task}")
    chances = {one.lesson: one.propensity for one in told}
    return ExposedTrial(f"t{task}", passed, names, shown, chances, world.situations[task].task.family or "")


def _learned(world: World, memory: dict[str, Lesson], everything: list[ExposedTrial], policy: str) -> dict[str, Lesson]:
    beliefs = learn(everything, {name: prior(one.importance) for name, one in world.memory.items()})

    def goes(belief: Utility) -> bool:
        harmful = (
            chance_of_harm(belief) > _RETIRED_BEFORE if policy == "as before" else is_harmful(belief) or is_idle(belief)
        )
        return belief.n > 0 and harmful

    return {
        name: replace(one, utility=beliefs[name] if beliefs[name].n else None)
        for name, one in memory.items()
        if not goes(beliefs[name])
    }


def retired(effect: float, reps: int, iterations: int = 30, trials: int = 60, tasks: int = 20) -> float:
    """The share of lessons with this effect on every task that are retired within so many iterations, each a look."""
    gone = 0
    for rep in range(reps):
        random = np.random.default_rng((33, rep))
        rates = np.clip(random.beta(0.5, 0.6, tasks), 0.12, 0.88)
        belief, seen = prior(0.5), []
        for number in range(iterations):
            chance = chance_shown(belief, WITHHELD)
            for at in range(trials):
                task = (number * trials + at) % tasks
                shown = frozenset({"l"} if random.random() < chance else ())
                passed = bool(random.random() < np.clip(rates[task] + effect * len(shown), 0, 1))
                seen.append(ExposedTrial(f"t{task}", passed, frozenset({"l"}), shown, {"l": chance}, f"f{task // 2}"))
            belief = learn(seen, {"l": prior(0.5)})["l"]
            if is_harmful(belief) or is_idle(belief):
                gone += 1
                break
    return gone / reps


def measure(reps: int, nights: int = max(NIGHTS), trials: int = 60) -> dict[str, Any]:
    """The means over many memories, by policy."""
    found: dict[str, Any] = {"reps": reps, "nights": nights, "trials": trials}
    for policy in POLICIES:
        every = [follow(World(seed), policy, nights, trials) for seed in range(reps)]
        row: dict[str, Any] = {
            f"night {number}": round(mean(one.gains[number] for one in every), 4) for number in every[0].gains
        }
        row |= {f"{kind} shown": round(mean(one.shown[kind] for one in every), 3) for kind in ("helps", "harms")}
        row |= {f"{kind} kept": round(mean(one.kept[kind] for one in every), 3) for kind in KINDS}
        row["own shown"] = sum(one.own for one in every)
        row["controls"] = round(sum(one.controls for one in every) / sum(one.trials for one in every), 3)
        found[policy] = row
        print(f"  {policy:<20}" + "  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return found


def measure_retired(reps: int) -> dict[str, float]:
    """How often lessons of known effect are retired within 30 iterations."""
    found = {name: round(retired(effect, reps), 3) for name, effect in RETIRED.items()}
    print(f"  retired within 30 iterations: {found}", flush=True)
    return found


def table(found: dict[str, Any]) -> str:
    """The figures as a table of docs/design/learning-measured.md."""
    heads = [f"night {number}" for number in NIGHTS]
    lines = [
        f"| policy | {' | '.join(heads)} | helpful shown | harmful shown | helpful kept | controls |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for policy in POLICIES:
        row = found[policy]
        gains = " | ".join(f"{100 * row[head]:+.1f} pt" for head in heads)
        shares = " | ".join(f"{row[name]:.0%}" for name in ("helps shown", "harms shown", "helps kept", "controls"))
        lines.append(f"| {policy} | {gains} | {shares} |")
    return "\n".join(lines).replace("%", " %")


def main() -> None:
    """Measure, print, and with `--write` keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=12, help="memories of each policy")
    parser.add_argument("--write", action="store_true", help="keep the figures in lessons.json")
    asked = parser.parse_args()
    found = measure(asked.reps)
    found["retired"] = measure_retired(8 * asked.reps)
    print(table(found))
    if asked.write:
        KEPT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
