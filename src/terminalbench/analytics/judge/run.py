"""The entry points: judge the trials of a batch, or say what that would cost."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from terminalbench.analytics.judge.asker import AnswerCache, Answers, CountingModel, JudgeClient
from terminalbench.analytics.judge.output import write_result
from terminalbench.analytics.judge.questions import (
    TIE,
    default_contrasts,
    judge_trial,
    may_apply,
    pairs,
    synthesize,
    tell,
)
from terminalbench.analytics.judge.request import CACHE, CostEstimate, JudgeRequest, JudgeResult, Narrative
from terminalbench.analytics.judge.rubric import NAMES, Rubric, load_rubric
from terminalbench.errors import UserError
from terminalbench.llm.ask import RetryPatience, interrupted_by_sigterm
from terminalbench.llm.model import OUTPUT_TOKENS, ChatModel, chat_model
from terminalbench.records.trial import Finding

_LEAST_TOKENS, _MOST_TOKENS = 1000, 60_000
_AROUND = 4000
"""Tokens of a question beside the trajectory: rubric, form, verifier output."""


def judge_batch(request: JudgeRequest, patience: RetryPatience | None = None) -> JudgeResult:
    """Judge the trials and write judge.json and judge.md. Raises UserError for a wrong request, and ModelError for a
    model that cannot be asked at all (no key, no such model, no server) when the cache has no answers either.

    A model that fails on the way leaves the rest not judged, with the reason. Whatever was answered is in the cache, so
    that the same call continues where it ended.
    """
    model, rubrics = chat_model(request.model), _rubrics(request)
    asker = JudgeClient(model, _cache(request), request.budget_usd, patience, request.progress)
    parallel = 1 if request.budget_usd is not None and model.price() is None else request.concurrency
    try:
        with interrupted_by_sigterm():
            done = _ask_all(request, rubrics, asker, parallel)
    except KeyboardInterrupt:
        asker.halt("interrupted")
        raise
    if asker.not_ready is not None and not asker.judged:
        raise asker.not_ready
    unusable = asker.cache.unusable
    result = msgspec.structs.replace(
        done,
        findings=_findings(rubrics, done),
        judged=asker.judged,
        not_judged=sorted(asker.not_judged, key=lambda entry: (entry.rubric, entry.trial)),
        spend=asker.spend,
        cache_hits=asker.hits,
        stopped=asker.stopped,
        notes=[f"{len(unusable)} unusable files in {CACHE} were asked again: {unusable[0]}"] if unusable else [],
    )
    write_result(request.output, result)
    return result


def estimate(request: JudgeRequest) -> CostEstimate:
    """Return what `judge_batch` would ask, in tokens and money. Calls nothing and writes nothing."""
    rubrics = _rubrics(request)
    counting = CountingModel(chat_model(request.model), _cache(request), rubrics)
    _ask_all(request, rubrics, counting, 1)
    return counting.estimate()


def _rubrics(request: JudgeRequest) -> list[Rubric]:
    rubrics = [load_rubric(name) for name in request.rubrics or NAMES]
    names = [rubric.name for rubric in rubrics]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f'two rubrics are called "{twice}"', hint="name each of them once")
    if not request.trials:
        raise UserError("there are no trials to judge")
    return rubrics


def _ask_all(request: JudgeRequest, rubrics: Sequence[Rubric], answers: Answers, parallel: int) -> JudgeResult:
    """Ask everything: trials, then pairs, then the whole."""
    trials, room = request.trials, _room(answers.model)
    of_pair = [rubric for rubric in rubrics if rubric.scope == "pair"]
    of_batch = [rubric for rubric in rubrics if rubric.scope == "batch"]
    compared = pairs(trials, request.contrasts or default_contrasts(trials)) if of_pair else []
    asked = sum(may_apply(rubric, trial) for rubric in rubrics for trial in trials)
    answers.total = asked + len(compared) * len(of_pair) + len(of_batch)
    judged = _each(lambda trial: judge_trial(trial, rubrics, answers, room), trials, parallel)
    judgements = [judgement for found in judged for judgement in found]
    narratives: list[Narrative] = []
    for rubric in of_pair:
        narratives += _each(lambda pair, r=rubric: tell(pair, r, answers, room), compared, parallel)
    whole = synthesize(of_batch[0], trials, judgements, narratives, answers, room) if of_batch else None
    said = [*judgements, *narratives, *([whole] if whole is not None else [])]
    return JudgeResult(
        model=answers.model.name,
        judgements=judgements,
        narratives=narratives,
        synthesis=whole,
        unsupported=sum(one.unsupported for one in said),
    )


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


def _room(model: ChatModel) -> int:
    """Tokens for the trajectory of one question, fewer when the model reads less."""
    window = model.context_tokens()
    if window is None:
        return _MOST_TOKENS
    # Other vocabularies need more tokens for the same text.
    room = min(_MOST_TOKENS, int((window - OUTPUT_TOKENS) / 1.25) - _AROUND)
    if room < _LEAST_TOKENS:
        raise UserError(
            f"{model.name} reads only {window} tokens: too few for a trajectory", hint="choose another model"
        )
    return room


def _findings(rubrics: Sequence[Rubric], done: JudgeResult) -> list[Finding]:
    by_name = {rubric.name: rubric for rubric in rubrics}
    found = [
        Finding(
            trial=j.trial,
            analyzer=by_name[j.rubric].analyzer,
            version=by_name[j.rubric].version(done.model),
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
        reason, me = told.decisive or told.reason, (pair.analyzer, pair.version(done.model))
        found.append(Finding(told.new_trial, *me, f"compared_with_{told.old}", value, reason, steps))
    return found
