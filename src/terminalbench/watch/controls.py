"""What a key does: the page that is shown, the trial that is chosen. Pure: nothing here acts on the run."""

from dataclasses import dataclass, replace
from enum import StrEnum

from terminalbench.live.model import TrialKey

PAGE = 10


class Mode(StrEnum):
    """What fills the screen."""

    TABLE = "table"
    TAIL = "tail"
    HELP = "help"
    ASK = "ask"


class Wish(StrEnum):
    """What a person asked for that ends the view."""

    LEAVE = "leave"
    STOP = "stop"


@dataclass(frozen=True)
class Controls:
    """Where the person is. `owner` is true in `run --watch`, where leaving is asked about."""

    owner: bool = False
    mode: Mode = Mode.TABLE
    chosen: TrialKey | None = None
    file: int = 0
    scroll: int = 0
    wish: Wish | None = None

    def press(self, key: str, trials: list[TrialKey]) -> "Controls":
        """The controls after a key; `trials` are those that can be chosen, in the order they are shown."""
        if self.mode is Mode.ASK:
            return self._answer(key)
        if key == "q":
            if self.mode is not Mode.TABLE:
                return replace(self, mode=Mode.TABLE)
            return replace(self, mode=Mode.ASK) if self.owner else replace(self, wish=Wish.LEAVE)
        if key == "?":
            return replace(self, mode=Mode.TABLE if self.mode is Mode.HELP else Mode.HELP)
        if self.mode is Mode.HELP:
            return replace(self, mode=Mode.TABLE)
        return self._in_tail(key) if self.mode is Mode.TAIL else self._in_table(key, trials)

    def _answer(self, key: str) -> "Controls":
        if key == "d":
            return replace(self, wish=Wish.LEAVE)
        if key == "s":
            return replace(self, wish=Wish.STOP)
        return replace(self, mode=Mode.TABLE)

    def _in_tail(self, key: str) -> "Controls":
        steps = {"up": 1, "k": 1, "down": -1, "j": -1, "page_up": PAGE, "page_down": -PAGE}
        if key in steps:
            return replace(self, scroll=max(0, self.scroll + steps[key]))
        if key in ("right", "l", "left", "h"):
            return replace(self, file=self.file + (1 if key in ("right", "l") else -1), scroll=0)
        if key in ("escape", "enter", "backspace"):
            return replace(self, mode=Mode.TABLE)
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
            return replace(self, mode=Mode.TAIL, chosen=chosen, file=0, scroll=0)
        if key == "escape":
            return replace(self, chosen=None)
        return self


_SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[C": "right",
    "\x1bOC": "right",
    "\x1b[D": "left",
    "\x1bOD": "left",
    "\x1b[5~": "page_up",
    "\x1b[6~": "page_down",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b": "escape",
}


def keys(data: bytes) -> list[str]:
    """The keys in what a terminal sent. Unknown escape sequences are no keys."""
    text, found = data.decode(errors="ignore"), []
    while text:
        known = next((s for s in sorted(_SEQUENCES, key=len, reverse=True) if text.startswith(s)), None)
        if known == "\x1b" and text[1:2] in ("[", "O"):
            end = next((i for i, c in enumerate(text[2:], start=2) if c.isalpha() or c == "~"), len(text) - 1)
            text = text[end + 1 :]
        elif known is not None:
            found.append(_SEQUENCES[known])
            text = text[len(known) :]
        else:
            found.append(text[0])
            text = text[1:]
    return found
