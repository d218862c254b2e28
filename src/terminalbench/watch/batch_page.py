"""The page of a batch: its frame, renewed from the files of the batch, and what keys do to it."""

import time
from dataclasses import dataclass, replace

from rich.text import Text

from terminalbench.live.feed import Feed
from terminalbench.watch.controls import Controls, ScreenMode
from terminalbench.watch.logs import last_sign, read_tail
from terminalbench.watch.tables import Frame
from terminalbench.watch.view import render

SIGNS_SEC = 2.0
_SIGNS_LIMIT = 64


@dataclass
class BatchPage(Frame):
    """A `Frame` that follows its batch."""

    _signs_at: float = 0.0

    @classmethod
    def of(cls, feed: Feed, *, owner: bool) -> "BatchPage":
        """The page as it is shown first; `owner`: by the run itself."""
        return cls(feed, controls=Controls(owner=owner))

    @property
    def over(self) -> bool:
        """Whether the batch is over."""
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
        self.tail = None
        if self.controls.mode is ScreenMode.TAIL and self.controls.chosen is not None:
            self.tail = read_tail(self.feed.batch, self.controls.chosen, self.feed.secrets, self.controls.file)
            top = max(0, len(self.tail.lines) - 1)
            self.controls = replace(self.controls, scroll=min(self.controls.scroll, top))
        return render(self, width, height)
