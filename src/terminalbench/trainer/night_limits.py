"""What the night that a training belongs to still allows: its budget, its deadline, and what a person told it.

All of it is in the gate of the night, which the batches of the training share with the iterations.
"""

from dataclasses import dataclass
from pathlib import Path

from terminalbench.campaign.gate import follow, refusals, standing
from terminalbench.errors import Incomplete
from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.accounts import Account, KnownCost, Turn
from terminalbench.harbor.limits.gate import change_account, read_shared
from terminalbench.index.queries import BatchView, Rerun
from terminalbench.records.counts import Spend
from terminalbench.records.values import known_total
from terminalbench.trainer.journal import ModelSpend


class TrainingStopped(Incomplete):
    """The night allows no more: the night of the training is not over, and a resume goes on with it."""


@dataclass(frozen=True)
class NightLimits:
    """The limits of a night, by its gate; `until` is their moment by the wall clock."""

    gate: Path
    until: float | None = None

    def check(self) -> None:
        """Raise TrainingStopped where nothing may start any more."""
        follow(self.gate, self.until)
        if (shut := standing(self.gate).shut) is not None:
            raise TrainingStopped(shut)

    def check_ended(self, batch: Batch, view: BatchView) -> None:
        """Raise TrainingStopped where the gate is why trials of a batch did not start."""
        if any(cell.rerun is Rerun.RESUME for cell in view.cells):
            why = next((said for said in refusals(batch, view) if said is not None), None)
            if why is not None:
                raise TrainingStopped(why)

    @property
    def left_usd(self) -> float | None:
        """Return what may still be spent; None without a budget."""
        budget = read_shared(self.gate).budget_usd
        return None if budget is None else max(0.0, budget - standing(self.gate).spent_usd)

    def pay(self, asked: ModelSpend) -> None:
        """Have the gate count what a chat model has charged in this night so far."""
        known = KnownCost(asked.questions - asked.cost_unknown, asked.cost_usd or 0.0)
        account = Account(Turn.OVER, known=known, unknown=asked.cost_unknown)
        change_account(self.gate, self._model, lambda _: account)

    @property
    def _model(self) -> str:
        """Return what the model is called in the gate."""
        return str(self.gate.parent / "training-model")

    def spent(self, batches: Path) -> Spend:
        """Return what the training has cost in this night by its gate: its batches, in this folder, and its model."""
        held = read_shared(self.gate).batches
        own = [share for name, share in held.items() if name == self._model or Path(name).parent == batches]
        accounts = [account for share in own for account in share.accounts.values()]
        costs = [one.known.usd for one in accounts if one.known.trials or one.known.usd]
        return Spend(known_total(costs), sum(one.unknown for one in accounts))
