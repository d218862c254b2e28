"""Which tasks end workers, and are not run any more: told apart from a machine that ends processes at random."""

from collections.abc import Collection

import msgspec

POISON_DEATHS = 2
"""A task that runs when so many workers in a row die, more often than all beside it, is not run any more."""
SURE_DEATHS = 3
"""The same whatever ran beside it."""
_CHANCE = 0.01
"""How likely it may be, at most, that the deaths in a row of a task came by chance, as those of the other tasks did."""


class Suspects(msgspec.Struct, omit_defaults=True):
    """What workers ended on in a night, by task (`dataset/id`).

    `in_a_row` are workers that died while it ran, without a finished trial of it in between; `deaths` are all of them,
    `finished` the workers under which it came to an end; `lost` are the workers that died in all.
    """

    in_a_row: dict[str, int] = {}
    deaths: dict[str, int] = {}
    finished: dict[str, int] = {}
    lost: int = 0

    def worker_ended(self, finished: Collection[str]) -> None:
        """A worker has come to its end: whatever finished under it is innocent."""
        for task in finished:
            self.finished[task] = self.finished.get(task, 0) + 1
            self.in_a_row.pop(task, None)

    def worker_died(self, running: Collection[str], finished: Collection[str]) -> list[str]:
        """A worker has died while tasks were running: those that are to be left out from here on.

        Deaths count in a row: a machine that ends processes at random does so to all tasks alike, and they finish the
        next time. Two that ran side by side each time are told apart by running them alone. Where workers also die
        without the task, as many in a row must be unlikely at that rate.
        """
        self.worker_ended([task for task in finished if task not in running])
        self.lost += 1
        for task in set(running):
            self.in_a_row[task] = self.in_a_row.get(task, 0) + 1
            self.deaths[task] = self.deaths.get(task, 0) + 1
        worst = max((self.in_a_row[task] for task in running), default=0)
        of_worst = sorted({task for task in running if self.in_a_row[task] == worst})
        if worst < (POISON_DEATHS if len(of_worst) == 1 else SURE_DEATHS):
            return []
        poison = [task for task in of_worst if self._by_chance(task) < _CHANCE]
        for task in poison:
            del self.in_a_row[task]
        return poison

    def _by_chance(self, task: str) -> float:
        """Return how likely it is that some innocent task comes to so many deaths in a row, at the rate of the
        others."""
        without = self.lost - self.deaths[task]
        others = sum(count for name, count in self.finished.items() if name != task) + without
        rate = without / others if others else 0.0
        runs = others + self.deaths[task] + self.finished.get(task, 0)
        return min(1.0, runs * rate ** self.in_a_row[task])
