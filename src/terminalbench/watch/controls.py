"""What a key does: the page that is shown, the trial that is chosen. Pure: nothing here acts on the run."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from terminalbench.live.model import TrialKey
from terminalbench.watch.terminal import ViewEnd

PAGE = 10


class ScreenMode(StrEnum):
    """What fills the screen."""

    TABLE = "table"
    TAIL = "tail"
    HELP = "help"
    ASK = "ask"


@dataclass(frozen=True)
class Controls:
    """Where the person is. `owner` is true in `run --watch`, where leaving is asked about.

    `wish` is how the person wants the view to end.
    """

    owner: bool = False
    mode: ScreenMode = ScreenMode.TABLE
    chosen: TrialKey | None = None
    file: int = 0
    scroll: int = 0
    wish: ViewEnd | None = None

    def press(self, key: str, trials: list[TrialKey]) -> "Controls":
        """The controls after a key; `trials` are those that can be chosen, in the order they are shown."""
        if self.mode is ScreenMode.ASK:
            return self._answer(key)
        if key == "q":
            if self.mode is not ScreenMode.TABLE:
                return replace(self, mode=ScreenMode.TABLE)
            return replace(self, mode=ScreenMode.ASK) if self.owner else replace(self, wish=ViewEnd.LEFT)
        if key == "?":
            return replace(self, mode=ScreenMode.TABLE if self.mode is ScreenMode.HELP else ScreenMode.HELP)
        if self.mode is ScreenMode.HELP:
            return replace(self, mode=ScreenMode.TABLE)
        return self._in_tail(key) if self.mode is ScreenMode.TAIL else self._in_table(key, trials)

    def _answer(self, key: str) -> "Controls":
        wish = {"d": ViewEnd.LEFT, "s": ViewEnd.STOP}.get(key)
        return replace(self, wish=wish) if wish is not None else replace(self, mode=ScreenMode.TABLE)

    def _in_tail(self, key: str) -> "Controls":
        steps = {"up": 1, "k": 1, "down": -1, "j": -1, "page_up": PAGE, "page_down": -PAGE}
        if key in steps:
            return replace(self, scroll=max(0, self.scroll + steps[key]))
        if key in ("right", "l", "left", "h"):
            return replace(self, file=self.file + (1 if key in ("right", "l") else -1), scroll=0)
        if key in ("escape", "enter", "backspace"):
            return replace(self, mode=ScreenMode.TABLE)
        return self

    def _in_table(self, key: str, trials: list[TrialKey]) -> "Controls":
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page_up": -PAGE, "page_down": PAGE}
        if key in steps and trials:
            if self.chosen not in trials:
                return replace(self, chosen=trials[0])
            place = trials.index(self.chosen) + steps[key]
            return replace(self, chosen=trials[min(max(place, 0), len(trials) - 1)])
        if key == "enter" and trials:
            chosen = self.chosen if self.chosen in trials else trials[0]
            return replace(self, mode=ScreenMode.TAIL, chosen=chosen, file=0, scroll=0)
        if key == "escape":
            return replace(self, chosen=None)
        return self


_SEQUENCES = {"A": "up", "B": "down", "C": "right", "D": "left", "5~": "page_up", "6~": "page_down"}
_CHARACTERS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x1b": "escape"}
_KEY = re.compile(r"\x1b[\[O]([^A-Za-z~]*[A-Za-z~]?)|(.)", re.DOTALL)


def keys(data: bytes) -> list[str]:
    """The keys in what a terminal sent. Unknown escape sequences are no keys."""
    found = _KEY.findall(data.decode(errors="ignore"))
    named = (_CHARACTERS.get(character, character) or _SEQUENCES.get(sequence) for sequence, character in found)
    return [key for key in named if key is not None]
