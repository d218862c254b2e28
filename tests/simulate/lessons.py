"""Whether lessons that help are kept and those that harm go: a memory, its retrieval and its draws over many nights.

.venv/bin/python tests/simulate/lessons.py [--reps 40] [--write]

Agents are simulated: the chance to pass a task is that of the task, changed by the effects of the lessons that the trial
was shown. Lessons are found by `retrieve` (masked), withheld by `draw`, judged by `learn` and retired by `is_harmful`, as
for real agents. A lesson helps (+12 pt), harms (-8 pt) or does nothing; its importance says little about which.
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

from terminalbench.archivist.retrieval import Policy, Situation, retrieve
from terminalbench.archivist.tables import MIGRATIONS, put_lesson
from terminalbench.archivist.utility import ExposedTrial, is_harmful, learn, prior
from terminalbench.experiments.lessons import EligibleLesson, Snapshot, draw
from terminalbench.index.database import migrate, opened
from terminalbench.records.lesson import Lesson, LessonScope, LessonState
from terminalbench.records.trial import TaskRef

KEPT = Path(__file__).resolve().parent / "lessons.json"
POLICIES = ("keep all", "keep by importance", "randomised")
EFFECTS = {"helps": 0.12, "harms": -0.08, "idle": 0.0}
SHARES = {"helps": 0.2, "harms": 0.2, "idle": 0.6}
WITHHELD = 0.3
NIGHTS = (7, 14, 28)
_TOPICS = 8
_LEAST = 40
"""An interval is looked at when its lesson was eligible for so many trials."""


@dataclass
class World:
    """Tasks of known difficulty, and a memory of lessons of known effect, each about one of eight topics."""

    seed: int
    tasks: int = 80
    lessons: int = 24
    rates: np.ndarray = field(init=False)
    situations: list[Situation] = field(init=False)
    memory: dict[str, Lesson] = field(init=False)
    kinds: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        random = np.random.default_rng((31, self.seed))
        self.rates = np.clip(random.beta(0.5, 0.6, self.tasks), 0.1, 0.88)
        self.situations = [
            Situation(
                TaskRef(f"t{n}", "d", f"f{n // 4}"),
                f"topic{n % _TOPICS}x task{n}x",
                (f"topic{n % _TOPICS}",),
                suite=f"topic{n % _TOPICS}",
            )
            for n in range(self.tasks)
        ]
        counts = {kind: round(share * self.lessons) for kind, share in SHARES.items()}
        kinds = [kind for kind, count in counts.items() for _ in range(count)][: self.lessons]
        self.kinds = {f"l-{n}": kind for n, kind in enumerate(kinds)}
        self.memory = {}
        for number, (name, kind) in enumerate(self.kinds.items()):
            seems = 0.5 + EFFECTS[kind] + random.normal(0, 0.25)
            topic = number % _TOPICS
            self.memory[name] = Lesson(
                id=name,
                do=f"Mind topic{topic}x in way{number}x.",
                scope=LessonScope.SUITE,  # a global one would fill the free places of every other topic
                scope_value=f"topic{topic}",
                tags=[f"topic{topic}"],
                importance=float(np.clip(seems, 0, 1)),
                source_tasks=[TaskRef("seen", "d", f"f{random.integers(self.tasks // 4)}")],
                state=LessonState.ACTIVE,
            )

    def passes(self, task: int, shown: frozenset[str]) -> float:
        """The chance of a trial to pass."""
        return float(np.clip(self.rates[task] + sum(EFFECTS[self.kinds[name]] for name in shown), 0.0, 1.0))


@dataclass
class Night:
    """The trials of a night with the true gain of each, and what each lesson that it was shown did to it."""

    trials: list[ExposedTrial] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    did: dict[str, list[float]] = field(default_factory=dict)
    own: int = 0


def store_of(lessons: dict[str, Lesson]) -> sqlite3.Connection:
    """A memory that holds these lessons."""
    connection = opened(":memory:")
    migrate(connection, MIGRATIONS)
    for lesson in lessons.values():
        put_lesson(connection, lesson)
    return connection


def night(world: World, memory: dict[str, Lesson], number: int, trials: int, random: np.random.Generator) -> Night:
    """One night: a snapshot of the memory, then trials over all tasks in turn."""
    connection = store_of(memory)
    eligible: dict[str, list[EligibleLesson]] = {}
    for situation in world.situations:
        found = retrieve(connection, situation, Policy(k=3)).lessons
        own = {situation.task.family}
        eligible[situation.task.id] = [
            EligibleLesson(one.lesson.id, one.lesson.text, bool(own & set(one.lesson.families))) for one in found
        ]
    connection.close()
    snapshot = Snapshot("masked", 3, 400, WITHHELD, eligible)
    digest, done = snapshot.digest, Night()
    for at in range(trials):
        task, attempt = (number * trials + at) % world.tasks, at // world.tasks
        told = draw(snapshot, digest, f"t{task}", attempt, f"{world.seed}/{number}").exposures
        shown = frozenset(one.lesson for one in told if one.shown)
        names = frozenset(one.lesson for one in told)
        rate = world.passes(task, shown)
        group = f"t{task} {' '.join(sorted(names))}"
        done.trials.append(ExposedTrial(group, bool(random.random() < rate), names, shown))
        done.gains.append(rate - float(world.rates[task]))
        done.own += sum(one.own for one in told)
        for name in shown:
            done.did.setdefault(name, []).append(rate - world.passes(task, shown - {name}))
    return done


@dataclass
class Told:
    """What came of one memory under one policy."""

    gains: dict[int, float] = field(default_factory=dict)
    kept: dict[str, float] = field(default_factory=dict)
    held: list[bool] = field(default_factory=list)
    seen: dict[str, list[float]] = field(default_factory=dict)
    own: int = 0


def follow(world: World, policy: str, nights: int = max(NIGHTS), trials: int = 200) -> Told:
    """Run the nights under a policy, and compare with the truth."""
    random = np.random.default_rng((32, world.seed))
    memory = dict(world.memory)
    if policy == "keep by importance":
        ordered = sorted(memory.values(), key=lambda one: -one.importance)
        memory = {one.id: one for one in ordered[: len(ordered) // 2]}
    everything: list[ExposedTrial] = []
    did: dict[str, list[float]] = {}
    told = Told()
    beliefs = {name: prior(one.importance) for name, one in memory.items()}
    for number in range(1, nights + 1):
        done = night(world, memory, number, trials, random)
        told.own += done.own
        if number in NIGHTS or number == nights:
            told.gains[number] = mean(done.gains)
        everything += done.trials
        for name, values in done.did.items():
            did.setdefault(name, []).extend(values)
        if policy == "randomised":
            beliefs = learn(everything, {name: prior(one.importance) for name, one in world.memory.items()})
            memory = {
                name: replace(one, utility=beliefs[name])
                for name, one in memory.items()
                if beliefs[name].n == 0 or not is_harmful(beliefs[name])
            }
    for kind in EFFECTS:
        names = [name for name, found in world.kinds.items() if found == kind]
        told.kept[kind] = mean(name in memory for name in names)
        told.seen[kind] = [beliefs[name].mean for name in names if name in beliefs and beliefs[name].n >= _LEAST]
    if policy == "randomised":
        told.held = [
            abs(beliefs[name].mean - mean(values)) <= 1.96 * beliefs[name].sd
            for name, values in did.items()
            if beliefs[name].n >= _LEAST
        ]
    return told


def measure(reps: int, nights: int = max(NIGHTS), trials: int = 200) -> dict[str, Any]:
    """The means over many memories, by policy."""
    found: dict[str, Any] = {"reps": reps, "nights": nights, "trials": trials}
    for policy in POLICIES:
        every = [follow(World(seed), policy, nights, trials) for seed in range(reps)]
        row: dict[str, Any] = {
            f"night {number}": round(mean(one.gains[number] for one in every), 4) for number in every[0].gains
        }
        row |= {f"{kind} kept": round(mean(one.kept[kind] for one in every), 3) for kind in EFFECTS}
        row["own shown"] = sum(one.own for one in every)
        if policy == "randomised":
            held = [one for told in every for one in told.held]
            row["intervals"], row["held"] = len(held), round(mean(held), 3)
            for kind in EFFECTS:
                row[f"{kind} believed"] = round(mean(value for one in every for value in one.seen[kind]), 4)
        found[policy] = row
        print(f"  {policy:<20}" + "  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return found


def table(found: dict[str, Any]) -> str:
    """The figures as a table of docs/tbench/learning-loop.md."""
    heads = [f"night {number}" for number in NIGHTS]
    lines = [f"| policy | {' | '.join(heads)} | helpful kept | harmful kept |", "|---|---|---|---|---|---|"]
    for policy in POLICIES:
        row = found[policy]
        gains = " | ".join(f"{100 * row[head]:+.1f} pt" for head in heads)
        lines.append(f"| {policy} | {gains} | {row['helps kept']:.0%} | {row['harms kept']:.0%} |")
    return "\n".join(lines).replace("%", " %")


def main() -> None:
    """Measure, print, and with `--write` keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=40, help="memories of each policy")
    parser.add_argument("--write", action="store_true", help="keep the figures in lessons.json")
    asked = parser.parse_args()
    found = measure(asked.reps)
    print(table(found))
    if asked.write:
        KEPT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
