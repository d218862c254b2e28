"""The page of a batch: its frame, renewed from the files of the batch, and what keys do to it."""

import time
from dataclasses import dataclass, field, replace

from rich.text import Text

from terminalbench.live.feed import Feed
from terminalbench.live.model import TrialKey
from terminalbench.records.trial import Outcome
from terminalbench.watch.controls import Controls, ScreenMode
from terminalbench.watch.logs import check_of, last_sign, read_tail, spent_of
from terminalbench.watch.tables import Frame
from terminalbench.watch.view import render

SIGNS_SEC = 2.0
_SIGNS_LIMIT = 64
_CHECKS_LIMIT = 20
_READING_SEC = 0.1
"""So long a look reads logs that grew; the next one reads those that it did not come to."""


@dataclass
class BatchPage(Frame):
    """A `Frame` that follows its batch."""

    _signs_at: float = 0.0
    _spent_at: dict[TrialKey, float] = field(default_factory=dict)

    @classmethod
    def of(cls, feed: Feed, *, owner: bool) -> "BatchPage":
        """The page as it is shown first; `owner`: by the run itself."""
        return cls(feed, controls=Controls(owner=owner))

    @property
    def over(self) -> bool:
        """Return whether the batch is over."""
        return self.feed.over

    def poll(self) -> bool:
        """Take in what the batch did."""
        return self.feed.poll(time.time())

    def press(self, key: str) -> None:
        """Take a key; trials are chosen in the order they are shown."""
        trials = [trial.key for trial in [*self.state.running, *reversed(self.state.finished)]]
        self.controls = self.controls.press(key, trials)

    def lines(self, width: int, height: int) -> list[Text]:
        """The picture as it is now."""
        self.now = time.time()
        if not 0 <= self.now - self._signs_at < SIGNS_SEC:
            self._signs_at = self.now
            found = {one.key: last_sign(self.feed.batch, one.key) for one in self.state.running[:_SIGNS_LIMIT]}
            self.signs = {key: sign for key, sign in found.items() if sign is not None}
            self._read_spent()
            self._read_checks()
        self.tail = None
        if self.controls.mode is ScreenMode.TAIL and self.controls.chosen is not None:
            self.tail = read_tail(self.feed.batch, self.controls.chosen, self.feed.secrets, self.controls.file)
            top = max(0, len(self.tail.lines) - 1)
            self.controls = replace(self.controls, scroll=min(self.controls.scroll, top))
        return render(self, width, height)

    def _read_spent(self) -> None:
        """Read what running trials have used, those first that were read longest ago; only of logs that grew since."""
        until = time.monotonic() + _READING_SEC
        running = {one.key for one in self.state.running}
        self.spent = {key: spent for key, spent in self.spent.items() if key in running}
        for key in sorted(self.signs.keys() & running, key=lambda key: self._spent_at.get(key, 0.0)):
            if self.signs[key] <= self._spent_at.get(key, 0.0):
                continue
            if time.monotonic() > until:
                break
            self._spent_at[key] = self.signs[key]
            if (found := spent_of(self.feed.batch, key, self.feed.secrets)) is not None:
                self.spent[key] = found

    def _read_checks(self) -> None:
        """Read which check failed, once of each trial that failed and is among the last."""
        last = [trial for trial in list(self.state.finished)[-_CHECKS_LIMIT:] if trial.outcome == Outcome.FAILED]
        known, self.checks = self.checks, {}
        for trial in last:
            said = known.get(trial.key)
            self.checks[trial.key] = (
                said if said is not None else check_of(self.feed.batch, trial.key, self.feed.secrets)
            )
