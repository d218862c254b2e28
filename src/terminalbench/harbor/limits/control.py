"""The orders to a live run: a file in the batch, written by `tbench ctl` and the watchdog, read by every Harbor.

A profile called `*` means all of them. Only new trials are kept back by a pause, a smaller number at once or a stop;
running trials are ended by name.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from terminalbench.decode import decode
from terminalbench.experiments.plan import ExclusionKind
from terminalbench.harbor.limits.accounts import TrialRefusal
from terminalbench.json_files import write_json
from terminalbench.locks import changing

ALL = "*"


class Control(msgspec.Struct, omit_defaults=True):
    """The orders in force: profiles that are paused or stopped and why, trials at once of each, trials to be ended.

    `decided` profiles are stopped too: their comparisons need no more trials.
    """

    paused: dict[str, str] = {}
    stopped: dict[str, str] = {}
    parallel: dict[str, int] = {}
    cancel: dict[str, str] = {}
    requeue: dict[str, str] = {}
    decided: dict[str, str] = {}

    def why_paused(self, profile: str) -> str | None:
        """Return why no trial of a profile starts for now, or None."""
        return self.paused.get(profile) or self.paused.get(ALL)

    def why_stopped(self, profile: str) -> str | None:
        """Return why no trial of a profile starts any more, or None."""
        return self.stopped.get(profile) or self.stopped.get(ALL) or self.decided.get(profile)

    def refusal(self, profile: str) -> TrialRefusal | None:
        """Return the same as what its trials are told, with the kind of it."""
        reason = self.why_stopped(profile)
        if reason is None:
            return None
        by_order = profile in self.stopped or ALL in self.stopped
        return TrialRefusal(reason, ExclusionKind.STOPPED if by_order else ExclusionKind.DECIDED)

    def at_once(self, profile: str) -> int | None:
        """Return how many trials of a profile may run at once; None: as many as the run was started with."""
        return self.parallel.get(profile, self.parallel.get(ALL))


class ControlFile:
    """The orders of a batch on disk; no file means none. `gate` is the gate it shares with others, if it does.

    Beside a shared gate lie orders for all its batches. They hold too; only those of the batch are changed and cleared.
    """

    def __init__(self, path: Path, gate: Path | None = None) -> None:
        self.path = path
        self._shared = None if gate is None else shared_control(gate)

    def read(self) -> Control:
        """Return what is in force now."""
        found = self._own()
        return found if self._shared is None else _together(ControlFile(self._shared).read(), found)

    def _own(self) -> Control:
        try:
            return decode(self.path.read_bytes(), Control)
        except FileNotFoundError:
            return Control()

    def clear(self) -> None:
        """Forget what was said to an earlier run of the batch."""
        self.path.unlink(missing_ok=True)

    def change(self, change: Callable[[Control], None]) -> None:
        """Read, change and write under a lock: several processes may do so at once."""
        with changing(self.path):
            found = self._own()
            change(found)
            write_json(self.path, found)


def shared_control(gate: Path) -> Path:
    """Return where the orders to all batches of a shared gate are."""
    return gate.with_suffix(".control.json")


def _together(all_batches: Control, own: Control) -> Control:
    """Orders of both, where a batch's own say how many trials run at once."""
    names = Control.__struct_fields__
    return Control(**{name: {**getattr(all_batches, name), **getattr(own, name)} for name in names})
