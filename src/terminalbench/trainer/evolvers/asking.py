"""Asking a chat model in a search: each question once a night, its price counted and capped, its failure the end.

A failure is kept as well: the night that runs again does not ask a second time, and decides the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from terminalbench.archivist.reflection import ReflectionLimits, too_dear
from terminalbench.llm.ask import RetryPatience, ask
from terminalbench.llm.model import BadAnswer, ChatModel, Message, ModelError, Schema, chat_model
from terminalbench.llm.replay import request_digest
from terminalbench.records.values import known_total
from terminalbench.trainer.evolvers.protocol import SearchStopped
from terminalbench.trainer.evolvers.search import Search
from terminalbench.trainer.journal import ModelSpend
from terminalbench.trainer.night_limits import TrainingStopped


class _EvolverAnswer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What came of a question: the answer, or why there is none; what it cost, None when that is not known."""

    parsed: Any = None
    failed: str | None = None
    billed: bool = True
    cost_usd: float | None = None


@dataclass
class SearchModel:
    """The questions of a night's search to one model; `lost` were asked by a process that was killed meanwhile."""

    search: Search
    model: ChatModel
    patience: RetryPatience | None = None
    answers: list[_EvolverAnswer] = field(default_factory=list)
    lost: int = 0

    @classmethod
    def of(cls, search: Search) -> "SearchModel":
        """Those to the model that the plan names."""
        return cls(search, chat_model(search.plan.table.evolver.model or ""))

    def ask(self, messages: Sequence[Message], schema: Schema) -> Any:
        """The checked answer. Raises SearchStopped when there is none, or it may cost too much."""
        self._check_night(messages)
        key = f"question {len(self.answers) + 1} {request_digest(messages, schema)[:16]}"
        answer = self.search.once(key, _EvolverAnswer, lambda: self._ask(messages, schema))
        self.answers.append(answer)
        self.lost += self.search.lost(key)
        self.search.asked = self.told()
        if self.search.limits is not None:
            self.search.limits.pay(self.search.asked)
        if answer.failed is not None:
            raise SearchStopped(f"{self.model.name}: {answer.failed}")
        try:
            return schema.check(answer.parsed)
        except BadAnswer as error:  # kept by another version
            raise SearchStopped(f"a stored answer does not have the expected form: {error}") from None

    def told(self) -> ModelSpend:
        """Return what was asked so far, for the journal."""
        billed = [one for one in self.answers if one.billed]
        return ModelSpend(
            model=self.model.name,
            questions=len(self.answers) + self.lost,
            cost_usd=known_total(one.cost_usd for one in billed),
            cost_unknown=sum(one.cost_usd is None for one in billed) + self.lost,
        )

    def _ask(self, messages: Sequence[Message], schema: Schema) -> _EvolverAnswer:
        limits = self._limits()
        if limits.usd is not None and any(one.billed and one.cost_usd is None for one in self.answers):
            return _EvolverAnswer(failed="its price is unknown, so evolver.usd cannot be enforced", billed=False)
        if why := too_dear(self.model, messages, limits):
            return _EvolverAnswer(failed=why, billed=False)
        try:
            reply = ask(self.model, messages, schema, self.patience, budget_usd=limits.usd)
        except ModelError as error:
            cost = error.usage.cost_usd if error.usage is not None else None
            failed = f"{error.what} ({error.hint})" if error.hint else error.what
            return _EvolverAnswer(failed=failed, billed=error.usage is not None, cost_usd=cost)
        return _EvolverAnswer(parsed=msgspec.to_builtins(reply.parsed), cost_usd=reply.usage.cost_usd)

    def _check_night(self, messages: Sequence[Message]) -> None:
        """Raise TrainingStopped where the night, of which this training is a part, has no money for a question."""
        night = self.search.limits
        if night is None:
            return
        night.check()
        if why := too_dear(self.model, messages, replace(self._limits(), usd=night.left_usd)):
            raise TrainingStopped(f"{self.model.name}: {why}")

    def _limits(self) -> ReflectionLimits:
        cap = self.search.plan.table.evolver.usd
        costs = [one.cost_usd for one in self.answers if one.cost_usd is not None]
        return ReflectionLimits(usd=None if cap is None else cap - sum(costs), likely_usd=max(costs, default=0.0))
