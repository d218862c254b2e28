"""What lessons are worth, learned from trials that were shown them by chance: on simulated trials with known effects."""

import random
from dataclasses import dataclass

import pytest

from terminalbench.archivist.utility import (
    PRIOR_SD,
    ExposedTrial,
    believed,
    chance_of_harm,
    is_harmful,
    is_idle,
    learn,
    prior,
    weight,
)
from terminalbench.records.lesson import Lesson, Utility

SHOWN = 0.7


@dataclass
class World:
    """Tasks of different difficulty, and lessons of known effect."""

    effects: dict[str, float]
    seed: int
    tasks: int = 40

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.rates = [0.2 + 0.6 * self.chance.random() for _ in range(self.tasks)]

    def night(self, active: list[str], trials: int, eligible: int = 3) -> list[ExposedTrial]:
        found = []
        for number in range(trials):
            task = number % self.tasks
            offered = frozenset(self.chance.sample(active, min(eligible, len(active))))
            shown = frozenset(name for name in sorted(offered) if self.chance.random() < SHOWN)
            rate = self.rates[task] + sum(self.effects[name] for name in shown)
            found.append(ExposedTrial(f"t{task}", self.chance.random() < rate, offered, shown))
        return found


def test_before_any_trial_the_importance_is_all_there_is() -> None:
    assert prior(0.5) == Utility(0.0, PRIOR_SD, 0)
    assert weight(Lesson(id="a", importance=0.5)) == 0.5
    assert weight(Lesson(id="a", importance=1.0)) > 0.6
    assert not is_harmful(prior(0.0))
    assert learn([], {"a": prior(1.0)}) == {"a": prior(1.0)}


def test_a_helpful_lesson_is_kept_a_harmful_one_retired_and_a_useless_one_shows_no_gain() -> None:
    world = World({"helps": 0.15, "harms": -0.15, "idle": 0.0}, seed=3)
    found = learn(world.night(list(world.effects), 2400), {name: prior(0.5) for name in world.effects})
    for name, effect in world.effects.items():
        belief = found[name]
        assert abs(belief.mean - effect) < 2.5 * belief.sd, name
        assert belief.n == 2400
    assert is_harmful(found["harms"])
    assert chance_of_harm(found["helps"]) < 0.001
    assert abs(found["idle"].mean) < 0.05


def test_what_simulated_trials_showed_counts_for_simulated_agents_only() -> None:
    pretended = Utility(0.2, 0.01, 400, 200, model="m", simulated=True)
    lesson = Lesson(id="l", do="x", importance=0.5, utility=pretended, effects=[pretended])
    for model in (None, "m", "n"):
        assert believed(lesson, model, simulated=False) == prior(0.5)
        assert weight(lesson, model, simulated=False) == 0.5 < weight(lesson, model, simulated=True)


def test_few_trials_leave_the_belief_near_the_prior() -> None:
    world = World({"helps": 0.15}, seed=1)
    few = learn(world.night(["helps"], 8), {"helps": prior(0.5)})["helps"]
    many = learn(world.night(["helps"], 4000), {"helps": prior(0.5)})["helps"]
    assert abs(few.mean) < PRIOR_SD
    assert few.sd > 0.9 * PRIOR_SD
    assert many.sd < PRIOR_SD / 3


def test_ninety_five_of_a_hundred_intervals_hold_the_effect() -> None:
    held = total = 0
    for seed in range(16):
        chance = random.Random(1000 + seed)
        effects = {f"l{n}": chance.gauss(0, PRIOR_SD) for n in range(10)}
        world = World(effects, seed)
        world.rates = [0.35 + 0.3 * rate for rate in world.rates]  # no probability beyond 0 and 1
        found = learn(world.night(list(effects), 800), {name: prior(0.5) for name in effects})
        held += sum(abs(found[name].mean - effect) < 1.96 * found[name].sd for name, effect in effects.items())
        total += len(effects)
    assert 0.90 <= held / total <= 0.99


def test_tasks_of_different_difficulty_are_not_taken_for_an_effect() -> None:
    """The lesson is shown mostly where tasks are easy; within a task it changes nothing."""
    chance = random.Random(5)
    found = []
    for number in range(1200):
        easy = number % 2 == 0
        shown = frozenset({"idle"}) if chance.random() < (0.9 if easy else 0.1) else frozenset()
        passed = chance.random() < (0.9 if easy else 0.2)
        found.append(ExposedTrial("easy" if easy else "hard", passed, frozenset({"idle"}), shown))
    pooled = [sum(one.passed for one in found if bool(one.shown) is has) / 600 for has in (True, False)]
    assert pooled[0] - pooled[1] > 0.4
    assert abs(learn(found, {"idle": prior(0.5)})["idle"].mean) < 0.06


def test_a_lesson_that_was_never_eligible_keeps_its_prior() -> None:
    world = World({"a": 0.1}, seed=2)
    assert learn(world.night(["a"], 50), {"a": prior(0.5), "b": prior(0.9)})["b"] == prior(0.9)


@pytest.mark.parametrize("seed", range(2))
def test_randomised_utility_beats_keeping_all_and_keeping_what_seems_important(seed: int) -> None:
    chance = random.Random(seed)
    effects = {f"l{n}": 0.12 if n < 5 else -0.08 if n < 10 else 0.0 for n in range(24)}
    importance = {name: chance.random() for name in effects}
    world = World(effects, seed + 50)
    active, exposures = list(effects), []
    for _ in range(7):
        exposures += world.night(active, 400)
        found = learn(exposures, {name: prior(importance[name]) for name in effects})
        active = [name for name in active if not is_harmful(found[name])] or active

    def gain(kept: list[str]) -> float:
        return sum(effects[name] for name in kept) / len(kept)

    important = sorted(effects, key=lambda name: -importance[name])[: len(active)]
    assert gain(active) > gain(list(effects)) + 0.005
    assert gain(active) > gain(important)
    assert sum(name in active for name in list(effects)[:5]) >= 4


@pytest.mark.parametrize(
    ("mean", "sd", "n", "idle"),
    [
        (0.0, 0.03, 900, False),
        (-0.02, 0.03, 900, True),
        (0.0, 0.015, 900, True),
        (0.0, 0.015, 0, False),
        (-0.05, 0.05, 90, False),
        (0.012, 0.005, 9000, False),
    ],
)
def test_idle_is_what_is_known_to_change_hardly_anything(mean: float, sd: float, n: int, *, idle: bool) -> None:
    """Not what is hardly tried, nor what is proven to help a little."""
    assert is_idle(Utility(mean, sd, n)) is idle
