"""The start of the next trial after a model provider refused one: exponential backoff with full jitter. Pure.

A *lane* is what shares a rate limit: one provider's model. Endings of trials that started before the lane was raised
say nothing new: they neither raise it further nor lower it.
"""

from typing import Any

import msgspec

from terminalbench.faults import ErrorClass
from terminalbench.harbor.read.usage import price_table

FIRST_SEC = 1.0
LONGEST_SEC = 300.0

OVERLOADED = frozenset({"ApiOverloadedError", "OverloadedError", "ServiceUnavailableError"})
"""Exceptions that ask for patience as a rate limit does, though their class is another."""
OVERLOADED_STATUS = frozenset({"503", "529"})
"""The same, by the status that an agent was given until its time ran out."""


class Lane(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pressure on one provider's model. Times are those of the gate's clock; level 0 means none."""

    level: int = 0
    raised_at: float = 0.0
    not_before: float = 0.0


def lane_name(model: str | None, agent: str) -> str:
    """Return what a trial shares its rate limit with: `provider/model`, or its agent when it names no model."""
    if not model:
        return agent
    price = price_table().find(model) if "/" not in model else None
    return f"{price.provider}/{model}" if price else model


def lane_of(agent: Any) -> str:
    """The same, of an agent as Harbor configures it."""
    return lane_name(agent.model_name, agent.name or agent.import_path or "agent")


def is_pressure(error_class: ErrorClass | None, error_type: str | None, status: str | None = None) -> bool:
    """Return whether an ending means that the provider wants fewer requests."""
    return error_class is ErrorClass.RATE_LIMIT or error_type in OVERLOADED or status in OVERLOADED_STATUS


def window_sec(level: int) -> float:
    """The longest wait of a level: 2, 4, 8 ... seconds, at most `LONGEST_SEC`."""
    return min(LONGEST_SEC, FIRST_SEC * 2.0 ** min(level, 60))


def pressed(lane: Lane, *, started_at: float, now: float, asked_sec: float | None) -> Lane:
    """The lane after a trial that started at `started_at` was rate limited, and was asked to wait `asked_sec`."""
    not_before = max(lane.not_before, now + (asked_sec or 0.0))
    if lane.level and started_at < lane.raised_at:
        return msgspec.structs.replace(lane, not_before=not_before)
    return Lane(lane.level + 1, now, not_before)


def eased(lane: Lane, *, started_at: float) -> Lane:
    """The lane after a trial ended without a rate limit."""
    return lane if started_at < lane.raised_at else Lane(not_before=lane.not_before)


def start_at(lane: Lane, luck: float) -> float:
    """Return when a trial may start; `luck` from 0 to 1 places it in the lane's window."""
    if not lane.level:
        return lane.not_before
    return max(lane.raised_at, lane.not_before) + _within(lane.level, luck)


def retry_at(ended_at: float, tries: int, luck: float) -> float:
    """Return when a trial that has failed `tries` times for whatever reason may be tried again."""
    return ended_at + _within(tries, luck)


def draw(*seeds: object) -> float:
    """A number from 0 to 1 that is the same for the same seeds."""
    import random

    return random.Random(":".join(map(str, seeds))).random()  # noqa: S311 - nothing secret about it


def _within(level: int, luck: float) -> float:
    return FIRST_SEC + luck * (window_sec(level) - FIRST_SEC)
