"""Answers to questions: from the cache, from the model within its limits, or only counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock
from typing import Any

import msgspec

from terminalbench.analytics.judge.request import CostEstimate, JudgeProgress, JudgeSpend, NotJudged, RubricEstimate
from terminalbench.analytics.judge.rubric import Rubric
from terminalbench.errors import TbenchError
from terminalbench.json_files import read_json, write_json
from terminalbench.llm.ask import RetryPatience, ask
from terminalbench.llm.model import (
    FATAL,
    OUTPUT_TOKENS,
    BadAnswer,
    ChatModel,
    Message,
    ModelError,
    Reply,
    Schema,
    parse,
)
from terminalbench.llm.replay import request_digest
from terminalbench.records.trial import Usage
from terminalbench.records.values import known_total
from terminalbench.text.numbers import dollars, plural


class CachedAnswer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One answer on disk. `request` is the digest of the question alone, so that `replay:` finds it for any model."""

    key: str
    request: str
    rubric: str
    asked: str
    text: str
    model: str
    usage: Usage = Usage()


class AnswerCache:
    """Answers kept in the first folder and looked up in all. A file that is torn or does not fit counts as absent."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders
        self.unusable: list[str] = []
        self._lock = Lock()

    def find(self, rubric: Rubric, model: ChatModel, messages: Sequence[Message]) -> object | None:
        """The checked answer to a question, or None."""
        key, _ = _keys(rubric, model, messages)
        found = (self._read(folder / _name(key), key, rubric.schema) for folder in self.folders)
        return next((answer for answer in found if answer is not None), None)

    def _read(self, file: Path, key: str, schema: Schema) -> object | None:
        try:
            kept = read_json(file, CachedAnswer)
            if kept.key != key:
                raise BadAnswer("it belongs to another question")
            return parse(kept.text, schema)
        except FileNotFoundError:
            return None
        except (TbenchError, OSError, BadAnswer) as error:
            with self._lock:
                self.unusable.append(f"{file.name}: {getattr(error, 'what', None) or error}")
            return None

    def keep(self, rubric: Rubric, model: ChatModel, messages: Sequence[Message], reply: Reply) -> None:
        """Remember an answer that passed its check."""
        key, request = _keys(rubric, model, messages)
        kept = CachedAnswer(
            key=key,
            request=request,
            rubric=rubric.name,
            asked=model.name,
            text=reply.text,
            model=reply.model,
            usage=reply.usage,
        )
        write_json(self.folders[0] / _name(key), kept)


def _keys(rubric: Rubric, model: ChatModel, messages: Sequence[Message]) -> tuple[str, str]:
    """Return what an answer is found by, and the digest of its question alone."""
    request = request_digest(messages, rubric.schema, model.options)
    return sha256("\n".join((rubric.digest, model.name, request)).encode()).hexdigest(), request


def _name(key: str) -> str:
    return f"{key[:40]}.json"


@dataclass(frozen=True)
class JudgeAnswer:
    """A checked answer, or why there is none."""

    parsed: Any = None
    reason: str = ""
    cached: bool = False


type Answers = JudgeClient | CountingModel


class JudgeClient:
    """Asks a model. Safe to use from several threads."""

    def __init__(
        self,
        model: ChatModel,
        cache: AnswerCache,
        budget_usd: float | None = None,
        patience: RetryPatience | None = None,
        progress: Callable[[JudgeProgress], None] | None = None,
    ) -> None:
        self.model = model
        self.cache = cache
        self.not_judged: list[NotJudged] = []
        self.judged = self.hits = 0
        self.total = 0
        self.stopped: str | None = None
        self.not_ready: ModelError | None = None
        self._budget = budget_usd
        self._halted = Event()
        self._patience = patience
        self._progress = progress
        self._price = model.price() if budget_usd is not None else None
        self._lock = Lock()
        self._reserved = self._dearest = 0.0
        self._usages: list[Usage] = []
        self._checked = False

    def put(self, rubric: Rubric, subject: str, messages: Sequence[Message]) -> JudgeAnswer:
        """The answer to one question: from the cache, from the model, or none with its reason."""
        kept = self.cache.find(rubric, self.model, messages)
        if kept is not None:
            return self._done(JudgeAnswer(kept, cached=True))
        reserve = self._start(messages)
        if isinstance(reserve, str):
            return self._unanswered(NotJudged(subject, rubric.name, reserve))
        try:
            most = reserve if self._budget is not None else None
            reply = ask(self.model, messages, rubric.schema, self._patience, self._halted, budget_usd=most)
        except ModelError as error:
            self._billed(reserve, error.usage)
            if error.fault in FATAL:
                self._stop(str(error))
            return self._unanswered(NotJudged(subject, rubric.name, str(error)))
        except BaseException:
            self._billed(reserve, None)
            raise
        self._billed(reserve, reply.usage)
        self.cache.keep(rubric, self.model, messages, reply)
        return self._done(JudgeAnswer(reply.parsed))

    def skip(self, rubric: Rubric, subject: str, reason: str) -> JudgeAnswer:
        """Count a question as not judged, because there is nothing to read."""
        return self._unanswered(NotJudged(subject, rubric.name, reason, nothing_there=True))

    def _unanswered(self, entry: NotJudged) -> JudgeAnswer:
        with self._lock:
            self.not_judged.append(entry)
        self._tell()
        return JudgeAnswer(reason=entry.reason)

    def halt(self, reason: str) -> None:
        """Ask nothing more, and end what is under way where that can be done. Answers that still come are kept."""
        self._stop(reason)
        self._halted.set()
        self.model.stop()

    def _stop(self, reason: str) -> None:
        with self._lock:
            self.stopped = self.stopped or reason

    @property
    def spend(self) -> JudgeSpend:
        """Return what the calls of this run cost so far."""
        with self._lock:
            costs = [usage.cost_usd for usage in self._usages]
            read = [(u.input_tokens, u.cache_read_tokens, u.cache_write_tokens) for u in self._usages]
            return JudgeSpend(
                calls=len(costs),
                input_tokens=sum(count or 0 for counts in read for count in counts),
                output_tokens=sum(usage.output_tokens or 0 for usage in self._usages),
                cost_usd=known_total(costs),
                unknown=costs.count(None),
            )

    def _start(self, messages: Sequence[Message]) -> float | str:
        """Make room in the budget for one question: the reserved amount, or why it must not start.

        A second try must fit into that too. Without a price one question is asked at a time, with all that is left.
        """
        with self._lock:
            if not self._checked and self.stopped is None:
                self._checked = True
                try:
                    self.model.ready()
                except ModelError as error:
                    self.not_ready, self.stopped = error, str(error)
            if self.stopped is not None:
                return self.stopped
            if self._budget is None:
                return 0.0
            spent = sum(usage.cost_usd or 0.0 for usage in self._usages)
            reserve, left = self._most(messages), self._budget - spent - self._reserved
            if left <= 0 or reserve > left:
                return f"the budget of {dollars(self._budget)} is spent ({dollars(spent)} so far)"
            reserve = left if self._price is None else reserve
            self._reserved += reserve
            return reserve

    def _most(self, messages: Sequence[Message]) -> float:
        """The most that one call can cost; by the dearest so far when there is no price."""
        if self._price is None:
            return self._dearest
        return self.model.count(messages).tokens * self._price.input_usd + OUTPUT_TOKENS * self._price.output_usd

    def _billed(self, reserve: float, usage: Usage | None) -> None:
        with self._lock:
            self._reserved -= reserve
            if usage is None:
                return
            self._usages.append(usage)
            self._dearest = max(self._dearest, usage.cost_usd or 0.0)
            if self._budget is not None and usage.cost_usd is None and self.stopped is None:
                self.stopped = f"the cost of {self.model.name} is unknown, so the budget cannot be enforced"

    def _done(self, answer: JudgeAnswer) -> JudgeAnswer:
        with self._lock:
            self.judged += 1
            self.hits += answer.cached
        self._tell()
        return answer

    def _tell(self) -> None:
        if self._progress is not None:
            done = self.judged + len(self.not_judged)
            self._progress(JudgeProgress(done, max(self.total, done), self.hits, self.spend.cost_usd or 0.0))


OUTPUT_PER_POINT = 150
"""Tokens that one answered point usually takes: a value, a reason, a quote or two."""
_OUTPUT_OF_SCOPE = {"pair": 700, "batch": 1500}


class CountingModel:
    """Stands where the model would: counts each question, answers only those that are in the cache."""

    def __init__(self, model: ChatModel, cache: AnswerCache, rubrics: Sequence[Rubric]) -> None:
        self.model = model
        self.total = 0
        self._cache = cache
        self._sums = {rubric.name: RubricEstimate(rubric.name) for rubric in rubrics}
        self._exact = True
        self._skipped = 0
        self._synthesis_open = False

    def put(self, rubric: Rubric, subject: str, messages: Sequence[Message]) -> JudgeAnswer:  # noqa: ARG002
        """Count one question."""
        total = self._sums[rubric.name]
        total.questions += 1
        kept = self._cache.find(rubric, self.model, messages)
        if kept is not None:
            total.cached += 1
            return JudgeAnswer(kept, cached=True)
        counted = self.model.count(messages)
        self._exact = self._exact and counted.exact
        total.input_tokens += counted.tokens
        total.output_tokens += len(rubric.points) * OUTPUT_PER_POINT or _OUTPUT_OF_SCOPE[rubric.scope]
        return JudgeAnswer(reason="only counted")

    def skip(self, rubric: Rubric, subject: str, reason: str) -> JudgeAnswer:  # noqa: ARG002
        """A question that would not be asked; the synthesis is asked once the others are answered."""
        if rubric.scope == "batch":
            self._synthesis_open = True
            self._sums[rubric.name].questions += 1
            self._sums[rubric.name].output_tokens += _OUTPUT_OF_SCOPE["batch"]
        else:
            self._skipped += 1
        return JudgeAnswer(reason=reason)

    def estimate(self) -> CostEstimate:
        """Return what was counted, in tokens and money."""
        sums = [counted for counted in self._sums.values() if counted.questions]
        entering = sum(counted.input_tokens for counted in sums)
        leaving = sum(counted.output_tokens for counted in sums)
        asked = sum(counted.questions - counted.cached for counted in sums)
        price = self.model.price()
        notes = [f"output tokens are assumed: about {OUTPUT_PER_POINT} for each point of a rubric"]
        if self._skipped:
            notes.append(f"{plural(self._skipped, 'question')} cannot be judged (no readable trajectory)")
        if self._synthesis_open:
            notes.append("the input of the synthesis is not counted, because it consists of the answers")
        if not self._exact:
            notes.append(f"input tokens are estimated: the tokenizer of {self.model.name} is not known here")
        if price is None:
            notes.append(f"the price of {self.model.name} is unknown, so the cost is unknown")
        return CostEstimate(
            model=self.model.name,
            rubrics=sums,
            input_tokens=entering,
            output_tokens=leaving,
            exact=self._exact,
            cost_usd=None if price is None else entering * price.input_usd + leaving * price.output_usd,
            most_usd=None if price is None else entering * price.input_usd + asked * OUTPUT_TOKENS * price.output_usd,
            price_source=price.source if price else None,
            notes=notes,
        )
