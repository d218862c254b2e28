"""Counting what a judgement would ask, without asking."""

from collections.abc import Sequence
from dataclasses import dataclass

from terminalbench.analytics.judge.asker import Answer
from terminalbench.analytics.judge.cache import AnswerCache
from terminalbench.analytics.judge.request import Estimate, RubricEstimate
from terminalbench.analytics.judge.rubric import Rubric
from terminalbench.llm.model import OUTPUT_TOKENS, ChatModel, Message
from terminalbench.llm.replay import request_digest

OUTPUT_PER_POINT = 150
"""Tokens that one answered point usually takes: a value, a reason, a quote or two."""
_OUTPUT_OF_SCOPE = {"pair": 700, "batch": 1500}


@dataclass
class _Sum:
    questions: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Counting:
    """Stands where the model would: counts each question, answers only those that are in the cache."""

    def __init__(self, model: ChatModel, cache: AnswerCache) -> None:
        self.model = model
        self._cache = cache
        self._sums: dict[str, _Sum] = {}
        self._exact = True
        self._skipped = 0
        self._synthesis_open = False

    def put(self, rubric: Rubric, subject: str, messages: Sequence[Message]) -> Answer:  # noqa: ARG002
        """Count one question."""
        total = self._sums.setdefault(rubric.name, _Sum())
        total.questions += 1
        request = request_digest(messages, rubric.schema)
        kept = self._cache.find(self._cache.key(rubric.digest, self.model.name, request), rubric.schema)
        if kept is not None:
            total.cached += 1
            return Answer(kept, cached=True)
        counted = self.model.count(messages)
        self._exact = self._exact and counted.exact
        total.input_tokens += counted.tokens
        total.output_tokens += len(rubric.points) * OUTPUT_PER_POINT or _OUTPUT_OF_SCOPE[rubric.scope]
        return Answer(reason="only counted")

    def skip(self, rubric: Rubric, subject: str, reason: str) -> Answer:  # noqa: ARG002
        """A question that would not be asked; the synthesis is asked once the others are answered."""
        if rubric.scope == "batch":
            self._synthesis_open = True
            total = self._sums.setdefault(rubric.name, _Sum())
            total.questions += 1
            total.output_tokens += _OUTPUT_OF_SCOPE["batch"]
        else:
            self._skipped += 1
        return Answer(reason=reason)

    def estimate(self, rubrics: Sequence[str]) -> Estimate:
        """What was counted, in tokens and money."""
        sums = {name: self._sums[name] for name in rubrics if name in self._sums}
        entering = sum(total.input_tokens for total in sums.values())
        leaving = sum(total.output_tokens for total in sums.values())
        asked = sum(total.questions - total.cached for total in sums.values())
        price = self.model.price()
        notes = [f"output tokens are assumed: about {OUTPUT_PER_POINT} for each point of a rubric"]
        if self._skipped:
            notes.append(f"{self._skipped} questions cannot be asked (no readable trajectory)")
        if self._synthesis_open:
            notes.append("the input of the synthesis is not counted: it is made of the answers")
        if not self._exact:
            notes.append(f"input tokens are estimated: the tokenizer of {self.model.name} is not known here")
        if price is None:
            notes.append(f"the price of {self.model.name} is unknown, so the cost is")
        return Estimate(
            model=self.model.name,
            rubrics=[
                RubricEstimate(name, total.questions, total.cached, total.input_tokens, total.output_tokens)
                for name, total in sums.items()
            ],
            input_tokens=entering,
            output_tokens=leaving,
            exact=self._exact,
            cost_usd=None if price is None else entering * price.input_usd + leaving * price.output_usd,
            most_usd=None if price is None else entering * price.input_usd + asked * OUTPUT_TOKENS * price.output_usd,
            price_source=price.source if price else None,
            notes=notes,
        )
