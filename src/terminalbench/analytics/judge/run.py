"""The entry points: judge the trials of a batch, or say what that would cost."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from terminalbench.analytics.judge.answers import AnswerCache, Answers, Asker, Counting
from terminalbench.analytics.judge.output import write_result
from terminalbench.analytics.judge.questions import (
    TIE,
    Pair,
    default_contrasts,
    judge_trial,
    may_apply,
    pairs,
    synthesize,
    tell,
)
from terminalbench.analytics.judge.request import (
    CACHE,
    NO_EVIDENCE,
    Estimate,
    Judgement,
    JudgeRequest,
    JudgeResult,
    Narrative,
    Synthesis,
)
from terminalbench.analytics.judge.rubric import NAMES, Rubric, load_rubric
from terminalbench.errors import UserError
from terminalbench.llm.ask import Patience, interrupted_by_sigterm
from terminalbench.llm.choose import chat_model
from terminalbench.llm.model import OUTPUT_TOKENS, ChatModel
from terminalbench.records import Finding

_LEAST_TOKENS = 1000
_AROUND = 4000
"""Tokens of a question beside the trajectory: rubric, form, verifier output."""


def judge_batch(request: JudgeRequest, patience: Patience | None = None) -> JudgeResult:
    """Judge the trials and write judge.json and judge.md. Raises UserError for a wrong request, and ModelError for a
    model that cannot be asked at all (no key, no such model, nobody there) when the cache has no answers either.

    A model that fails on the way leaves the rest not judged, with the reason. Whatever was answered is in the cache, so
    that the same call goes on where it ended.
    """
    model = chat_model(request.model)
    work = _Work.of(request, model)
    asker = Asker(model, _cache(request), request.budget_usd, patience, request.progress)
    asker.total = work.questions
    parallel = 1 if request.budget_usd is not None and model.price() is None else request.concurrency
    try:
        with interrupted_by_sigterm():
            done = work.run(asker, parallel)
    except KeyboardInterrupt:
        asker.halt("interrupted")
        raise
    if asker.not_ready is not None and not asker.judged:
        raise asker.not_ready
    unusable = asker.cache.unusable
    notes = [f"{len(unusable)} unusable files in {CACHE} were asked again: {unusable[0]}"] if unusable else []
    result = JudgeResult(
        model=model.name,
        findings=_findings(work.rubrics, done, model.name),
        judgements=done.judgements,
        narratives=done.narratives,
        synthesis=done.synthesis,
        judged=asker.judged,
        not_judged=sorted(asker.not_judged, key=lambda entry: (entry.rubric, entry.trial)),
        unsupported=done.unsupported,
        spend=asker.spend,
        cache_hits=asker.hits,
        stopped=asker.stopped,
        notes=notes,
    )
    write_result(request.output, result)
    return result


def estimate(request: JudgeRequest) -> Estimate:
    """What `judge_batch` would ask, in tokens and money. Calls nothing and writes nothing."""
    model = chat_model(request.model)
    work = _Work.of(request, model)
    counting = Counting(model, _cache(request))
    work.run(counting, 1)
    return counting.estimate([rubric.name for rubric in work.rubrics])


@dataclass(frozen=True)
class _Done:
    judgements: list[Judgement]
    narratives: list[Narrative]
    synthesis: Synthesis | None

    @property
    def unsupported(self) -> int:
        told = [self.synthesis] if self.synthesis is not None else []
        return sum(said.reason.startswith(NO_EVIDENCE) for said in (*self.judgements, *self.narratives, *told))


@dataclass(frozen=True)
class _Work:
    """What there is to ask."""

    request: JudgeRequest
    rubrics: list[Rubric]
    pairs: list[Pair]
    budget: int

    @classmethod
    def of(cls, request: JudgeRequest, model: ChatModel) -> "_Work":
        rubrics = [load_rubric(name) for name in request.rubrics or NAMES]
        names = [rubric.name for rubric in rubrics]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UserError(f'two rubrics are called "{twice}"', hint="name each of them once")
        if not request.trials:
            raise UserError("there are no trials to judge")
        contrasts = request.contrasts or default_contrasts(request.trials)
        compared = pairs(request.trials, contrasts) if any(r.scope == "pair" for r in rubrics) else []
        return cls(request, rubrics, compared, _room(request, model))

    @property
    def questions(self) -> int:
        """At most how many questions there are."""
        of_trials = sum(may_apply(rubric, trial) for rubric in self.rubrics for trial in self.request.trials)
        return of_trials + len(self.pairs) * self._count("pair") + self._count("batch")

    def run(self, answers: Answers, parallel: int) -> _Done:
        """Ask everything: trials, then pairs, then the whole."""
        judged = _each(
            lambda trial: judge_trial(trial, self.rubrics, answers, self.budget), self.request.trials, parallel
        )
        judgements = [judgement for found in judged for judgement in found]
        told = [
            _each(lambda pair, r=rubric: tell(pair, r, answers, self.budget), self.pairs, parallel)
            for rubric in self.rubrics
            if rubric.scope == "pair"
        ]
        narratives = [narrative for found in told for narrative in found]
        whole = next((rubric for rubric in self.rubrics if rubric.scope == "batch"), None)
        synthesis = (
            synthesize(whole, self.request.trials, judgements, narratives, answers, self.budget) if whole else None
        )
        return _Done(judgements, narratives, synthesis)

    def _count(self, scope: str) -> int:
        return sum(rubric.scope == scope for rubric in self.rubrics)


def _each[T, R](work: Callable[[T], R], items: Sequence[T], parallel: int) -> list[R]:
    if parallel == 1:
        return [work(item) for item in items]
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="judge")
    try:
        return list(pool.map(work, items))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _cache(request: JudgeRequest) -> AnswerCache:
    return AnswerCache(*(request.caches or [request.output / CACHE]))


def _room(request: JudgeRequest, model: ChatModel) -> int:
    """Tokens for the trajectory of one question: as asked, unless the model reads less."""
    window = model.context_tokens()
    if window is None:
        return request.token_budget
    # Other vocabularies need more tokens for the same text.
    room = min(request.token_budget, int((window - OUTPUT_TOKENS) / 1.25) - _AROUND)
    if room < _LEAST_TOKENS:
        raise UserError(
            f"{model.name} reads only {window} tokens: too few for a trajectory", hint="choose another model"
        )
    return room


def _findings(rubrics: Sequence[Rubric], done: _Done, model: str) -> list[Finding]:
    by_name = {rubric.name: rubric for rubric in rubrics}
    found = [
        Finding(
            trial=j.trial,
            analyzer=by_name[j.rubric].analyzer,
            version=by_name[j.rubric].version(model),
            name=j.name,
            value=j.value,
            reason=j.reason or None,
            steps=sorted({quote.step for quote in j.quotes if quote.found and quote.step > 0}),
        )
        for j in done.judgements
    ]
    pair = next((rubric for rubric in rubrics if rubric.scope == "pair"), None)
    if pair is None:
        return found
    for told in done.narratives:
        value = None
        if told.winner is not None:
            value = TIE if told.winner == TIE else ("better" if told.winner == told.new else "worse")
        steps = sorted({q.step for q in told.quotes if q.found and q.step > 0 and q.trial == told.new_trial})
        name = f"compared_with_{told.old}"
        found.append(
            Finding(
                told.new_trial, pair.analyzer, pair.version(model), name, value, told.decisive or told.reason, steps
            )
        )
    return found
