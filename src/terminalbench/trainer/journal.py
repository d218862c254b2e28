"""The journal of a training: one line for each night that is over, append-only. What a resume goes on from.

.terminalbench/training/<slug>/
  plan.json             the plan as it was declared
  nights.jsonl          every night: its batches, scores, verdicts, and where the training stood after it
  nights/003/*.toml     the experiments of a night; its batches are found by their labels
  holdout.jsonl         what was measured on the holdout
  training.lock         held by the process that runs it

explored -> waiting -> confirm -> canary -> champion -> watched
                          |          |                     |
                        dropped    dropped            rolled back
"""

import hashlib
from pathlib import Path
from typing import Any, Literal

import msgspec

from terminalbench.json_files import append_jsonl, read_log
from terminalbench.trainer.gate import GateAction, GateVerdict

type Phase = Literal["confirm", "canary"]


class Challenger(msgspec.Struct, frozen=True):
    """Who is measured against the champion, and for how many nights of this phase."""

    id: str
    phase: Phase = "confirm"
    nights: int = 0


class TrainingState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
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

    def next_night(self) -> "TrainingState":
        """The next night, with its challenger."""
        return msgspec.structs.replace(self, night=self.night + 1).challenged()

    def challenged(self) -> "TrainingState":
        """The oldest of those that wait is challenger, where there is none and one is allowed."""
        if self.challenger is not None or not self.waiting or self.begun >= self.allowed:
            return self
        first, *rest = self.waiting
        return msgspec.structs.replace(self, challenger=Challenger(first), waiting=tuple(rest), begun=self.begun + 1)

    @property
    def exploring(self) -> bool:
        """Return whether a search can still lead to a challenger."""
        return self.begun + len(self.waiting) < self.allowed

    @property
    def searching(self) -> bool:
        """Return whether this night searches: not while somebody challenges, who gets the trials of the search as
        well."""
        return self.exploring and self.challenger is None

    def explored(self, winner: str | None) -> "TrainingState":
        """Return the state after the search: the winner waits for its turn, unless it has been there before."""
        seen = {self.champion, self.control, *self.known}
        if winner is None or winner in seen:
            return self
        return msgspec.structs.replace(self, waiting=(*self.waiting, winner), known=(*self.known, winner))

    def judged(self, verdict: GateVerdict) -> "TrainingState":
        """Return the state after the challenger's night."""
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

    def watched(self, verdict: GateVerdict) -> "TrainingState":
        """Return the state after the watch over the champion. Who challenged one that is rolled back begins anew
        against the other."""
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


TRAINING = Path(".terminalbench/training")
TRAINING_LABEL, NIGHT_LABEL, PART_LABEL = "training", "night", "part"
"""Labels of every batch of a training; the night of a batch on the holdout is the number of its look."""
HOLDOUT_PART = "holdout"


class PlanDeclaration(msgspec.Struct, frozen=True):
    """A plan as it was when it was declared: everything that decides what is tried and what has to be shown.

    `tasks` are the digests of the environment's tasks, by `dataset/id`.
    """

    slug: str
    digest: str
    declared_at: str
    content: dict[str, Any]
    tasks: dict[str, str] = {}


class PairMeasurement(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Two profiles side by side in one batch (`<slug>/<n>`), and what was decided."""

    batch: str
    new: str
    old: str
    phase: Phase | None = None
    verdict: GateVerdict | None = None


class CandidateResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A candidate of the search: how far it came, passed of measured trials, and why it was tried."""

    id: str
    rounds: int
    passed: int
    measured: int
    reason: str = ""


class RefusedChange(msgspec.Struct, frozen=True):
    """A change that was proposed and not tried: its reason, and why not."""

    reason: str
    why: str


class ModelSpend(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a search asked a chat model. `cost_usd` is what is known of it; failed questions count."""

    model: str
    questions: int
    cost_usd: float | None = None
    cost_unknown: int = 0


class NightEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A night that is over. `cost_usd` is what is known of it; `same_p`: the champion against itself, by luck alone.

    `searched` are the batches of its search, all on train; `stopped` is why it ended early.
    """

    night: int
    time: str
    after: TrainingState
    control: PairMeasurement
    explored: tuple[CandidateResult, ...] = ()
    searched: tuple[str, ...] = ()
    refused: tuple[RefusedChange, ...] = ()
    stopped: str | None = None
    asked: ModelSpend | None = None
    winner: str | None = None
    confirm: PairMeasurement | None = None
    same_p: float | None = None
    trials: int = 0
    measured: int = 0
    cost_usd: float | None = None
    cost_unknown: int = 0
    notes: tuple[str, ...] = ()

    @property
    def champion(self) -> str:
        """Return who was champion in this night."""
        return self.control.new

    @property
    def batches(self) -> dict[str, str | None]:
        """The batches that it rests on (`<slug>/<n>`), each with its part of the night; None: one of the search."""
        judged = {self.confirm.batch: self.confirm.phase} if self.confirm is not None else {}
        return {**dict.fromkeys(self.searched), self.control.batch: "control", **judged}


class HoldoutLook(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A measurement on the holdout, the `look`th look of the project; without a verdict it has begun and no more."""

    look: int
    reason: str
    new: str
    old: str
    batch: str | None = None
    verdict: GateVerdict | None = None
    trials: int = 0
    measured: int = 0
    cost_usd: float | None = None
    cost_unknown: int = 0


def seed_of(slug: str, night: int, name: str) -> int:
    """A seed of its own for each batch and draw of a night, the same whenever it is asked: no two share their luck."""
    return int.from_bytes(hashlib.sha256(f"{slug}\0{night}\0{name}".encode()).digest()[:4])


def training_folder(root: Path, slug: str) -> Path:
    """The folder of a training in its project."""
    return root / TRAINING / slug


def plan_json(folder: Path) -> Path:
    """The plan as it was declared, in the folder of a training."""
    return folder / "plan.json"


def training_lock(folder: Path) -> Path:
    """Held by the process that runs a training, in its folder."""
    return folder / "training.lock"


def nights_file(folder: Path) -> Path:
    """The journal in the folder of a training."""
    return folder / "nights.jsonl"


def read_nights(folder: Path) -> list[NightEntry]:
    """The nights that are over, in order. A line that was cut off is a night that is not."""
    return read_log(nights_file(folder), NightEntry)


def add_night(folder: Path, entry: NightEntry) -> None:
    """Record a night, once all of it is over."""
    append_jsonl(nights_file(folder), entry, durable=True)


def evidence(nights: list[NightEntry], new: str, old: str, phase: Phase) -> list[str]:
    """The batches of earlier nights that measured this pair in this phase."""
    held = [night.confirm for night in nights if night.confirm is not None]
    return [one.batch for one in held if (one.new, one.old, one.phase) == (new, old, phase)]


def _holdout_file(folder: Path) -> Path:
    return folder / "holdout.jsonl"


def read_sealed(folder: Path) -> list[HoldoutLook]:
    """The measurements in the folder of a training, in their order, each as it is now."""
    found = {one.look: one for one in read_log(_holdout_file(folder), HoldoutLook)}
    return list(found.values())


def add_sealed(folder: Path, entry: HoldoutLook) -> None:
    """Record that a measurement on the holdout begins, or is over."""
    append_jsonl(_holdout_file(folder), entry, durable=True)
