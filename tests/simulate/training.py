"""Nights of training where the truth is known: the gate, the search and the campaign as they are, made-up trials.

.venv/bin/python tests/simulate/training.py [--runs 200]      (part of make simulate)

Difficulty is U-shaped (Beta(0.5, 0.6)); the effect of a mutant is largest on tasks that are neither sure nor hopeless.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: `simulate` is the package here

from terminalbench.analytics.model import Row
from terminalbench.records.counts import Spend
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.trainer.batches import spread
from terminalbench.trainer.gate import (
    GateAction,
    GateRule,
    GateVerdict,
    alpha_of,
    canary,
    confirm,
    same_profile_p,
    watch,
)
from terminalbench.trainer.journal import TrainingState
from terminalbench.trainer.night import Score, better_half, rounds
from terminalbench.trainer.tables import BudgetTable, GateTable, night_parts

NIGHTS, TASKS, LOOKS, CANDIDATES, ALPHA = 28, 40, GateTable().looks, 4, 0.05
BUDGET = BudgetTable(trials=240)
ALLOWED = NIGHTS // LOOKS
TRAIN = [TaskRef(f"t{n}", "train", f"f{n // 5}") for n in range(TASKS)]
DEV = [TaskRef(f"d{n}", "dev", f"g{n // 5}") for n in range(TASKS)]


@dataclass(frozen=True)
class Truth:
    """The chances of a profile on train and on dev, and what a trial costs."""

    train: np.ndarray
    dev: np.ndarray
    cost: float = 0.1


def start(random: np.random.Generator) -> Truth:
    """The first champion."""
    train, dev = random.beta(0.5, 0.6, (2, TASKS)).clip(0.01, 0.99)
    return Truth(train, dev)


@dataclass(frozen=True)
class World:
    """What mutants do: the mean and the spread of their effect on dev, and what they seem to do on train besides."""

    name: str
    mean: float = 0.0
    spread: float = 0.0
    on_train: float = 0.0
    cost: float = 1.0

    def mutant(self, parent: Truth, random: np.random.Generator) -> Truth:
        effect = random.normal(self.mean, self.spread) if self.spread else self.mean

        def moved(chances: np.ndarray, by: float) -> np.ndarray:
            moves = by + random.normal(0, 0.02, len(chances))
            return np.clip(chances + moves * 4 * chances * (1 - chances), 0.01, 0.99)

        return Truth(moved(parent.train, effect + self.on_train), moved(parent.dev, effect), parent.cost * self.cost)


USELESS = World("useless: each about -1 pt", mean=-0.02)
SAME = World("no effect at all")
MIXED = World("mixed: mean 0, sd 5 pt", spread=0.10)
OVERFIT = World("overfit: +10 pt on train, -2 on dev", mean=-0.04, on_train=0.25)
DEAR = World("+10 pt at three times the cost", mean=0.20, cost=3.0)
QUITTER = Truth(np.zeros(TASKS), np.zeros(TASKS), cost=0.001)


@dataclass
class Told:
    """What a run of nights came to."""

    promoted: int = 0
    harmful: int = 0
    gain: float = 0.0
    claimed: float = 0.0
    covered: int = 0
    rolled_back: int = 0
    reasons: list[str] = field(default_factory=list)


def trials(
    profile: str, truth: np.ndarray, tasks: Sequence[TaskRef], every: Sequence[TaskRef], setup: "Setup"
) -> list[Row]:
    """One attempt of a profile at each of `tasks`, as rows of tonight's batch."""
    places = {task: place for place, task in enumerate(every)}
    passed = setup.random.random(len(tasks)) < truth[[places[task] for task in tasks]]
    return [
        Row(
            task=task,
            profile=profile,
            attempt=1,
            outcome=Outcome.PASSED if ok else Outcome.FAILED,
            batch=f"s/{setup.state.night}",
            spent=Spend(cost_usd=setup.profiles[profile].cost),
        )
        for task, ok in zip(tasks, passed, strict=True)
    ]


@dataclass
class Setup:
    """A training in the middle of its nights."""

    random: np.random.Generator
    state: TrainingState
    profiles: dict[str, Truth]
    evidence: list[Row] = field(default_factory=list)
    control: list[list[Row]] = field(default_factory=list)

    def gap(self, new: str, old: str) -> float:
        return float((self.profiles[new].dev - self.profiles[old].dev).mean())


def run_nights(world: World, seed: int, nights: int = NIGHTS) -> Told:
    """A whole training."""
    random = np.random.default_rng(seed)
    first = start(random)
    setup = Setup(random, TrainingState(champion="p0", allowed=ALLOWED), {"p0": first})
    told = Told()
    for _ in range(nights):
        one_night(setup, world, told)
    told.gain = setup.gap(setup.state.champion, "p0")
    return told


def one_night(setup: Setup, world: World, told: Told) -> None:
    state = setup.state = setup.state.next_night()
    parts = night_parts(
        BUDGET, challenger=state.challenger is not None, exploring=True, watching=state.control is not None
    )
    other = state.control or state.champion
    tonight = spread(DEV, parts.control // 2, state.night * 7)
    setup.control.append(
        [
            row
            for name in (state.champion, other)
            for row in trials(name, setup.profiles[name].dev, tonight.tasks, DEV, setup)
        ]
    )
    setup.state = state.explored(_explore(setup, world, parts.explore) if state.searching else None)
    if state.challenger is not None:
        _judge(setup, parts.confirm, told)
    if setup.state.control is not None and setup.state.champion == state.champion:
        watched = [row for night in setup.control[max(state.since, state.night - 5) :] for row in night]
        verdict = watch(watched, state.champion, other, ALPHA / NIGHTS)
        told.rolled_back += verdict.action is GateAction.ROLL_BACK
        setup.state = setup.state.watched(verdict)


def _explore(setup: Setup, world: World, budget: int) -> str | None:
    champion = setup.state.champion
    alive = [champion]
    for _ in range(CANDIDATES):
        name = f"p{len(setup.profiles)}"
        setup.profiles[name] = world.mutant(setup.profiles[champion], setup.random)
        alive.append(name)
    passed, start = dict.fromkeys(alive, 0), setup.state.night * 11
    counts = dict.fromkeys(alive, 0)
    for one in rounds(len(alive), budget):
        measure = spread(TRAIN, one.trials, start)
        start += one.trials
        for name in alive:
            for _ in range(measure.attempts):
                rows = trials(name, setup.profiles[name].train, measure.tasks, TRAIN, setup)
                passed[name] += sum(row.outcome is Outcome.PASSED for row in rows)
                counts[name] += len(rows)
        alive = better_half({name: Score(passed[name], counts[name], counts[name]) for name in alive})
    return alive[0] if alive else None


def _judge(setup: Setup, budget: int, told: Told) -> None:
    state = setup.state
    one = state.challenger
    assert one is not None
    measure = spread(DEV, budget // 2)
    rule = GateRule(alpha_of(state.begun, ALLOWED, ALPHA), LOOKS, LOOKS * measure.trials, cost_margin=0.25)
    for name in (state.champion, one.id):
        for _ in range(measure.attempts):
            setup.evidence += trials(name, setup.profiles[name].dev, measure.tasks, DEV, setup)
    judge = confirm if one.phase == "confirm" else canary
    verdict: GateVerdict = judge(setup.evidence, one.id, state.champion, rule, one.nights + 1)
    told.reasons.append(verdict.reason)
    if verdict.action is not GateAction.GO_ON:
        setup.evidence = []
    if verdict.action is GateAction.PROMOTE:
        truth = setup.gap(one.id, state.champion)
        told.promoted += 1
        told.harmful += truth < 0
        told.claimed += verdict.claimed or 0.0
        told.covered += verdict.interval is not None and verdict.interval.low <= truth <= verdict.interval.high
    setup.state = state.judged(verdict)


def many(world: World, seeds: range, nights: int = NIGHTS) -> Told:
    """The means over runs; counts are added up."""
    found = [run_nights(world, seed, nights) for seed in seeds]
    return Told(
        promoted=sum(one.promoted for one in found),
        harmful=sum(one.harmful for one in found),
        gain=float(np.mean([one.gain for one in found])),
        claimed=float(np.mean([one.claimed for one in found])),
        covered=sum(one.covered for one in found),
        rolled_back=sum(one.rolled_back for one in found),
    )


@dataclass(frozen=True)
class Priced:
    """What a plan with one variant came to: in how many of its runs it was promoted, and the median price of those."""

    promoted: int
    runs: int
    usd: float


def priced(gain: float, seeds: range, nights: int = NIGHTS) -> Priced:
    """Train with one variant that gains so much on dev, until it is decided; a trial costs 10 cents."""
    spent = []
    for seed in seeds:
        random = np.random.default_rng((seed, 5))
        first = start(random)
        moves = gain / float(np.mean(4 * first.dev * (1 - first.dev)))
        better = World("better", mean=moves).mutant(first, random)
        state = TrainingState(champion="p0", allowed=nights // LOOKS, waiting=("p1",), known=("p1",))
        setup, told, trials_of = Setup(random, state, {"p0": first, "p1": better}), Told(), 0
        while not told.promoted and (setup.state.challenger is not None or setup.state.waiting):
            before = len(setup.evidence)
            one_night(setup, SAME, told)
            parts = night_parts(BUDGET, challenger=True, exploring=False, watching=False)
            trials_of += 2 * (parts.control // 2) + (len(setup.evidence) - before if setup.evidence else _PAIR)
        if told.promoted:
            spent.append(first.cost * trials_of)
    return Priced(len(spent), len(seeds), float(np.median(spent)) if spent else float("nan"))


_PAIR = 2 * spread(DEV, night_parts(BUDGET, challenger=True, exploring=False, watching=False).confirm // 2).trials


def worsened(loss: float, seed: int, nights: int = 10) -> int | None:
    """The night in which a champion that has lost `loss` on every task that can is rolled back; None: never."""
    random = np.random.default_rng(seed)
    first = start(random)
    worse = Truth(first.train, np.clip(first.dev - loss, 0.01, 0.99))
    state = TrainingState(champion="p1", control="p0", allowed=ALLOWED)
    setup, told = Setup(random, state, {"p0": first, "p1": worse}), Told()
    for night in range(1, nights + 1):
        one_night(setup, SAME, told)
        if told.rolled_back:
            return night
    return None


def differs_from_itself(seed: int, nights: int = NIGHTS, *, broken: float = 0.0) -> int:
    """A/A: in how many nights the champion is said to differ from itself; its twin has lost `broken`."""
    random = np.random.default_rng(seed)
    first = start(random)
    twin = Truth(first.train, np.clip(first.dev - broken, 0.01, 0.99))
    setup = Setup(random, TrainingState(champion="p0", allowed=ALLOWED), {"p0": first, "p1": twin})
    parts = night_parts(BUDGET, challenger=True, exploring=True, watching=False)
    half, beside = parts.control // 2, spread(DEV, parts.confirm // 2)
    found = 0
    for night in range(nights):
        tasks = spread(DEV, half, night * half).tasks
        sides = [trials(name, setup.profiles[name].dev, tasks, DEV, setup) for name in ("p0", "p1")]
        for _ in range(beside.attempts):  # its trials beside the challenger
            sides[1] += trials("p1", setup.profiles["p1"].dev, beside.tasks, DEV, setup)
        p = same_profile_p(*sides)
        found += p is not None and p <= ALPHA / NIGHTS
    return found


def report(seeds: range) -> None:
    """Print what each world comes to."""
    runs = len(seeds)
    print(f"{NIGHTS} nights x {BUDGET.trials} trials, {TASKS} dev tasks, {runs} runs each")
    for world in (USELESS, SAME, MIXED, OVERFIT, DEAR):
        told = many(world, seeds)
        print(
            f"{world.name:38} promoted {told.promoted / runs:5.2f} a run, harmful {told.harmful / runs:.3f}; "
            f"true {100 * told.gain:+5.1f} pt, claimed {100 * told.claimed:+5.1f}; "
            f"truth in the claim {told.covered}/{told.promoted}; rolled back {told.rolled_back}",
            flush=True,
        )
    for gain in (0.0, 0.05, 0.10, 0.18):
        told = priced(gain, seeds)
        print(
            f"one variant of {100 * gain:+.0f} pt: promoted in {told.promoted} of {runs} runs, ${told.usd:.0f} (median, 10 cents a trial)"
        )
    for broken in (0.0, 0.5):
        said = [differs_from_itself(seed, broken=broken) for seed in seeds]
        what = "the champion against itself" if not broken else "the champion against one that has lost 50 pt"
        print(f"{what}: an alarm in {sum(map(bool, said))} of {runs} runs, {sum(said)} of {runs * NIGHTS} nights")
    for loss in (0.0, 0.2, 0.3, 0.5):
        back = [worsened(loss, seed) for seed in seeds]
        hit = sorted(night for night in back if night is not None)
        when = f", in night {hit[len(hit) // 2]} (median)" if hit else ""
        print(
            f"a champion that has lost {100 * loss:.0f} pt: rolled back in {len(hit)} of {runs} runs of 10 nights{when}"
        )


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--runs", type=int, default=200, help="trainings of each kind")
    asked.add_argument("--first-seed", type=int, default=0, help="where their seeds begin: others measure anew")
    told = asked.parse_args()
    report(range(told.first_seed, told.first_seed + told.runs))
