"""The states of a batch before it grew, time after time: at each it could be looked at. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec


class GrownFrom(msgspec.Struct, frozen=True, omit_defaults=True):
    """A batch before it became more: the attempts of every task. `added` are the tasks (`dataset/id`) it got then."""

    attempts: int
    added: tuple[str, ...] = ()


class Extent(NamedTuple):
    """The tasks of a batch, and how many attempts of each there are."""

    attempts: int
    tasks: Sequence[str]


class EarlierExtent(NamedTuple):
    """The part of a batch at an earlier time: so many attempts of every task, `without` tasks added since."""

    attempts: int
    without: frozenset[str] = frozenset()


def earlier(grown_from: Iterable[GrownFrom | int], declared: Extent, now: Extent) -> tuple[EarlierExtent, ...]:
    """Return what there was each time before it became more, from what was declared to what there is now.

    An earlier version did not say: it may have been any number of attempts, and all tasks that were added at once.
    """
    known = [one if isinstance(one, GrownFrom) else GrownFrom(one) for one in grown_from]
    steps = [one for one in known if declared.attempts <= one.attempts < now.attempts + bool(one.added)]
    if declared.attempts < now.attempts and (not steps or steps[0].attempts != declared.attempts):
        steps = [GrownFrom(n) for n in range(declared.attempts, now.attempts)] + [one for one in steps if one.added]
    told = {*declared.tasks, *(task for one in steps for task in one.added)}
    if untold := tuple(task for task in now.tasks if task not in told):
        steps.append(GrownFrom(now.attempts, untold))
    return tuple(
        EarlierExtent(one.attempts, frozenset(task for later in steps[place:] for task in later.added))
        for place, one in enumerate(steps)
    )
