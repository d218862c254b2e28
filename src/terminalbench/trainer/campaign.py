"""Where a training stands: who is champion, who challenges, what comes next. Pure.

explored -> waiting -> confirm -> canary -> champion -> watched
                          |          |                     |
                        dropped    dropped            rolled back
"""

from typing import Literal

import msgspec

from terminalbench.trainer.gate import GateAction, GateVerdict

type Phase = Literal["confirm", "canary"]


class Challenger(msgspec.Struct, frozen=True):
    """Who is measured against the champion, and for how many nights of this phase."""

    id: str
    phase: Phase = "confirm"
    nights: int = 0


class Campaign(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of a training after a night. `begun` are the challengers so far, of at most `allowed`.

    `control` is the champion before this one, `since` the night from which it is watched.
    """

    champion: str
    allowed: int
    night: int = 0
    control: str | None = None
    since: int = 0
    begun: int = 0
    challenger: Challenger | None = None
    waiting: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    def next_night(self) -> "Campaign":
        """The next night, with its challenger."""
        return msgspec.structs.replace(self, night=self.night + 1).challenged()

    def challenged(self) -> "Campaign":
        """The oldest of those that wait is challenger, where there is none and one is allowed."""
        if self.challenger is not None or not self.waiting or self.begun >= self.allowed:
            return self
        first, *rest = self.waiting
        return msgspec.structs.replace(self, challenger=Challenger(first), waiting=tuple(rest), begun=self.begun + 1)

    @property
    def exploring(self) -> bool:
        """Whether a search can still lead to a challenger."""
        return self.begun + len(self.waiting) < self.allowed

    @property
    def searching(self) -> bool:
        """Whether this night searches: not while somebody challenges, who gets the trials of the search as well."""
        return self.exploring and self.challenger is None

    def explored(self, winner: str | None) -> "Campaign":
        """After the search: the winner waits for its turn, unless it has been there before."""
        seen = {self.champion, self.control, *self.known}
        if winner is None or winner in seen:
            return self
        return msgspec.structs.replace(self, waiting=(*self.waiting, winner), known=(*self.known, winner))

    def judged(self, verdict: GateVerdict) -> "Campaign":
        """After the challenger's night."""
        one = self.challenger
        if one is None:
            return self
        if verdict.action is GateAction.GO_ON:
            return msgspec.structs.replace(self, challenger=Challenger(one.id, one.phase, one.nights + 1))
        if verdict.action is GateAction.CANARY:
            return msgspec.structs.replace(self, challenger=Challenger(one.id, "canary"))
        if verdict.action is GateAction.PROMOTE:
            return msgspec.structs.replace(
                self, champion=one.id, control=self.champion, since=self.night, challenger=None
            )
        return msgspec.structs.replace(self, challenger=None)

    def watched(self, verdict: GateVerdict) -> "Campaign":
        """After the watch over the champion. Who challenged one that is rolled back begins anew against the other."""
        if verdict.action is not GateAction.ROLL_BACK or self.control is None:
            return self
        one = self.challenger
        return msgspec.structs.replace(
            self,
            champion=self.control,
            control=None,
            since=self.night,
            challenger=None,
            waiting=(one.id, *self.waiting) if one is not None else self.waiting,
            known=(*self.known, self.champion),
        )
