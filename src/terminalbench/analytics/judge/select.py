"""Fitting a trajectory into a number of tokens: the telling steps first, the rest in short, what is cut is marked."""

from collections.abc import Callable, Sequence

from terminalbench.analytics.judge.material import Level, Numbered, Rank, render

type Counter = Callable[[str], int]


class TooSmall(Exception):
    """Not even the mark for what is left out fits."""


def fit(steps: Sequence[Numbered], budget: int, count: Counter) -> str:
    """The steps as text of at most `budget` tokens as `count` sees them. The same input gives the same text.

    The ends, failed calls, edits and test runs come first, each kind from the newest on, and get a short form; then
    every other step gets one line, then a short form; then all of them, in the same order, their whole text. A later
    pass begins only when the one before it is complete.
    """
    filling = _Filling(steps, budget, count)
    telling = [at for at in filling.order if steps[at].rank < Rank.OTHER]
    rest = [at for at in filling.order if steps[at].rank == Rank.OTHER]
    complete = filling.give(telling, Level.SHORT)
    complete = filling.give(telling, Level.LINE) and complete
    complete = filling.give(rest, Level.LINE) and complete
    for group, level in ((rest, Level.SHORT), (telling, Level.WHOLE), (rest, Level.WHOLE)):
        complete = complete and filling.give(group, level)
    return filling.text()


class _Filling:
    """Steps that are given more and more room while some is left."""

    def __init__(self, steps: Sequence[Numbered], budget: int, count: Counter) -> None:
        self.steps = steps
        self.budget = budget
        self.count = count
        self.order = sorted(range(len(steps)), key=lambda at: (steps[at].rank, -at))
        self.levels = [Level.NONE] * len(steps)
        longest = max((entry.number for entry in steps), default=0)
        self._mark = count(f"{_gap(longest, longest + 1)}\n\n")
        self._cost = [0] * len(steps)
        self._left = budget - self._mark

    def give(self, group: Sequence[int], level: Level) -> bool:
        """Raise the steps of `group` to `level`, in order, until one does not fit. Whether all did."""
        for at in group:
            if self.levels[at] >= level:
                continue
            # A step that is shown parts a gap in two, so it may cost one more mark.
            wanted = self.count(f"{render(self.steps[at], level)}\n\n") + self._mark
            if wanted - self._cost[at] > self._left:
                return False
            self._left -= wanted - self._cost[at]
            self._cost[at], self.levels[at] = wanted, level
        return True

    def text(self) -> str:
        """What was chosen. Tokens need not add up over joined texts: what is over goes, the least telling first."""
        text = self._join()
        for at in reversed(self.order):
            if self.count(text) <= self.budget:
                return text
            self.levels[at] = Level.NONE
            text = self._join()
        if self.count(text) > self.budget:
            raise TooSmall(f"{self.budget} tokens are too few to show anything of it")
        return text

    def _join(self) -> str:
        parts: list[str] = []
        gap: list[int] = []
        for entry, level in zip(self.steps, self.levels, strict=True):
            if level is Level.NONE:
                gap.append(entry.number)
                continue
            parts += [_gap(gap[0], gap[-1])] if gap else []
            gap = []
            parts.append(render(entry, level))
        parts += [_gap(gap[0], gap[-1])] if gap else []
        return "\n\n".join(parts)


def _gap(first: int, last: int) -> str:
    return f"[cut: step {first}]" if first == last else f"[cut: steps {first} to {last}]"
