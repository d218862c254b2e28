"""Judging one trial by the rubrics that apply to it, and checking what comes back."""

from collections.abc import Sequence
from typing import Any

from terminalbench.analytics.judge.asker import Answer, Answers
from terminalbench.analytics.judge.clean import clean
from terminalbench.analytics.judge.evidence import QuoteBook
from terminalbench.analytics.judge.material import Material, NoMaterial, load_material
from terminalbench.analytics.judge.prompt import messages
from terminalbench.analytics.judge.request import NO_EVIDENCE, NOT_JUDGED, Judgement, JudgeTrial, Quote
from terminalbench.analytics.judge.rubric import Point, Rubric
from terminalbench.analytics.judge.select import TooSmall, fit
from terminalbench.llm.tokens import count_text
from terminalbench.records import Outcome

_REASON = 1000
FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT)


def may_apply(rubric: Rubric, trial: JudgeTrial) -> bool:
    """Whether a rubric has a question about this trial, as far as can be told without its trajectory."""
    if rubric.scope != "trial" or trial.outcome is Outcome.NOT_RUN:
        return False
    return trial.outcome in FAILURES if rubric.applies == "failed" else True


def judge_trial(trial: JudgeTrial, rubrics: Sequence[Rubric], answers: Answers, budget: int) -> list[Judgement]:
    """One trial by each rubric that applies. What cannot be judged is said, never guessed."""
    wanted = [rubric for rubric in rubrics if may_apply(rubric, trial)]
    if not wanted:
        return []
    try:
        material = load_material(trial)
    except NoMaterial as error:
        # Without a trajectory nobody knows whether MCP was in play.
        wanted = [rubric for rubric in wanted if rubric.applies != "mcp" or trial.mcp]
        return [j for r in wanted for j in _unanswered(r, trial, answers.skip(r, trial.key, str(error)))]
    wanted = [rubric for rubric in wanted if rubric.applies != "mcp" or trial.mcp or material.calls_mcp]
    try:
        text = fit(material.steps, budget, count_text)
    except TooSmall as error:
        return [j for r in wanted for j in _unanswered(r, trial, answers.skip(r, trial.key, str(error)))]
    book = QuoteBook(material)
    found: list[Judgement] = []
    for rubric in wanted:
        question = messages(rubric, facts(rubric, material), shown(rubric, material, text))
        found += _settle(rubric, trial, answers.put(rubric, trial.key, question), book)
    return found


def facts(rubric: Rubric, material: Material) -> list[str]:
    """What we know of the trial; a blind rubric is not told how it ended."""
    notes = list(material.notes)
    if rubric.blind:
        return notes
    trial = material.trial
    ended = f"the trial ended: {trial.outcome}"
    return [ended, *notes]


def shown(rubric: Rubric, material: Material, trajectory: str) -> dict[str, str]:
    """The material by name. The verifier's words give the outcome away, so a blind rubric does not get them."""
    parts = {"trajectory": trajectory}
    if not rubric.blind:
        parts["verifier output (step 0)"] = material.verifier or "(none)"
        if material.trial.error:
            parts["error of the trial"] = clean(material.trial.error)
    return parts


def _settle(rubric: Rubric, trial: JudgeTrial, answer: Answer, book: QuoteBook) -> list[Judgement]:
    if answer.parsed is None:
        return _unanswered(rubric, trial, answer)
    first, *others = rubric.points
    main = _judgement(rubric, trial, first, answer, book)
    found = [main]
    for point in others:
        if not point.evidence and main.value is None:
            reason = (
                main.reason if main.reason.startswith(NOT_JUDGED) else f"{NOT_JUDGED}{first.name} could not be told"
            )
            found.append(Judgement(trial=trial.key, rubric=rubric.name, name=point.name, reason=reason))
        else:
            found.append(_judgement(rubric, trial, point, answer, book))
    return found


def _judgement(rubric: Rubric, trial: JudgeTrial, point: Point, answer: Answer, book: QuoteBook) -> Judgement:
    given: Any = getattr(answer.parsed, point.name)
    cited = given.evidence if point.evidence else []
    quotes = [Quote(trial.key, e.step, e.quote, book.holds(e.step, e.quote)) for e in cited]
    held = sum(quote.found for quote in quotes)
    value, reason = given.value, _bounded(given.reason)
    if value is None:
        reason = f"cannot be told: {reason}" if reason else "cannot be told"
    elif point.evidence and not held:
        value, reason = None, f"{NO_EVIDENCE} (said {value!r}: {reason})"
    elif held < len(quotes):
        reason = f"{reason} ({len(quotes) - held} of {len(quotes)} quotes not found in the cited step)"
    return Judgement(
        trial=trial.key,
        rubric=rubric.name,
        name=point.name,
        value=value,
        reason=reason,
        quotes=quotes,
        cached=answer.cached,
    )


def _bounded(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _REASON else f"{flat[: _REASON - 1]}…"


def _unanswered(rubric: Rubric, trial: JudgeTrial, answer: Answer) -> list[Judgement]:
    reason = f"{NOT_JUDGED}{answer.reason}"
    return [Judgement(trial=trial.key, rubric=rubric.name, name=p.name, reason=reason) for p in rubric.points]
