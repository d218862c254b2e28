"""The truths that are simulated, and the tests on many made-up results at once; the product's own code judges one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

type Chances = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class World:
    """Two profiles: `draw` gives the pass probabilities (old, new) of tasks, in any shape."""

    name: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], Chances]


def _moved(effect: float, varied: float) -> Callable[[np.random.Generator, tuple[int, ...]], Chances]:
    """An effect that moves tasks the more, the less settled they are; `varied` is its spread over tasks."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> Chances:
        old = random.beta(0.5, 0.6, shape)
        soft = 4 * old * (1 - old)
        return old, np.clip(old + (effect + random.normal(0, 1, shape) * varied) * soft, 0, 1)

    return draw


def _swap(random: np.random.Generator, shape: tuple[int, ...]) -> Chances:
    old, luck = random.beta(0.5, 0.6, shape), random.random(shape)
    return np.select([luck < 0.15, luck < 0.3], [0.05, 0.95], old), np.select(
        [luck < 0.15, luck < 0.3], [0.95, 0.05], old
    )


def _lopsided(share: float, odd: tuple[float, float], rest: tuple[float, float]):
    """Equal on average: a share of tasks loses much, the others win a little."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> Chances:
        lost = random.random(shape) < share
        return np.where(lost, odd[0], rest[0]), np.where(lost, odd[1], rest[1])

    return draw


def gaining(gap: float) -> World:
    """Every task gains alike."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> Chances:
        hard = random.beta(0.5, 0.6, shape) * (1 - gap)
        return hard, hard + gap

    return World(f"{100 * gap:+.1f} pt on all", draw)


SAME = World("identical", _moved(0.0, 0.0))
VARIED = World("equal on average", _moved(0.0, 0.15))
SWAP = World("30 % solved by one only", _swap)
FIVE = World("+5 pt", _moved(0.1, 0.0))
TEN = World("+10 pt", _moved(0.2, 0.05))
TWENTY = World("+20 pt", _moved(0.45, 0.05))
NULL = (SAME, VARIED, SWAP)
LOPSIDED = (
    World("10 % lose 90 pt", _lopsided(0.1, (0.95, 0.05), (0.45, 0.55))),
    World("5 % lose 95 pt", _lopsided(0.05, (0.97, 0.02), (0.475, 0.525))),
    World("20 % lose 60 pt", _lopsided(0.2, (0.8, 0.2), (0.425, 0.575))),
    World("10 % lose 90 pt, rest easy", _lopsided(0.1, (0.95, 0.05), (0.8, 0.9))),
    World("30 % lose 35 pt", _lopsided(0.3, (0.675, 0.325), (0.425, 0.575))),
)


@cache
def truth_of(world: World) -> float:
    """The mean difference over all tasks there could be."""
    old, new = world.draw(np.random.default_rng(0), (1_000_000,))
    return float((new - old).mean())


def differences(world: World, random: np.random.Generator, reps: int, tasks: int, attempts: int) -> np.ndarray:
    """Passes of new less passes of old, `reps` rows of tasks."""
    old, new = world.draw(random, (reps, tasks))
    return random.binomial(attempts, new) - random.binomial(attempts, old)


def many_p(values: np.ndarray) -> np.ndarray:
    """`sign_flip.sign_flip_p` of each row, through cosines (absolute precision 1e-12)."""
    sizes = np.abs(values)
    top, far = int(sizes.max()), int(sizes.sum(1).max())
    if top == 0:
        return np.ones(len(values))
    points = 1 << (2 * far + 1).bit_length()
    wave = np.cos(np.outer(np.arange(1, top + 1), 2 * np.pi * np.arange(points // 2 + 1) / points))
    counts = np.stack([(sizes == m).sum(1) for m in range(1, top + 1)], 1).astype(float)
    logs, negative = np.log(np.maximum(np.abs(wave), 1e-300)), (wave < 0).astype(float)
    p = np.empty(len(values))
    for rows in np.array_split(np.arange(len(values)), max(1, len(values) * points // 2**20)):
        turned = np.exp(counts[rows] @ logs) * (1 - 2 * ((counts[rows] @ negative) % 2))
        law = np.fft.irfft(turned, points, axis=1)[:, : far + 1]
        below = np.concatenate([np.zeros((len(rows), 1)), 2 * np.cumsum(law, 1) - law[:, :1]], 1)
        p[rows] = 1 - below[np.arange(len(rows)), np.abs(values[rows].sum(1))]
    return np.clip(p, 0, 1)


def many_skewness(values: np.ndarray) -> np.ndarray:
    """`sign_flip.skewness_term` of each row."""
    count = values.shape[1]
    second = np.maximum((values**2.0).mean(1), 1e-12)
    against = np.maximum(0.0, -np.sign(values.sum(1)) * (values**3.0).mean(1) / second**1.5)
    x = np.abs(values.sum(1)) / np.sqrt(count * second)
    return against * (2 * x**2 + 1) * np.exp(-(x**2) / 2) / (3 * np.sqrt(2 * np.pi * count))


def many_strict(values: np.ndarray, most: int) -> np.ndarray:
    """`sign_flip.strict_p` of each row: the same integral, by tables of the few values there are."""
    side = np.where(values.sum(1) < 0, 1, -1)
    turned = side[:, None] * values
    weights = np.arange(-most, most + 1) / most
    counts = np.stack([(turned == value).sum(1) for value in range(-most, most + 1)], 1).astype(float)
    counts[:, -1] += 1
    step = 0.1
    t = np.exp(np.arange(-14, 14, step))
    size = np.exp(-(counts @ np.log1p(np.outer(weights, t) ** 2)) / 2)
    turned = size * np.sin(counts @ np.arctan(np.outer(weights, t)))
    turned[:, 0] /= 1 - np.exp(-step)
    found = np.where((counts[:, :most] > 0).any(1), 0.5 + turned.sum(1) * step / np.pi, 1.0)
    return np.clip(2 * found, 0.0, 1.0)


def many_decision_p(values: np.ndarray) -> np.ndarray:
    """The p that decides, of each row."""
    return np.minimum(1.0, many_p(values) + many_skewness(values))
