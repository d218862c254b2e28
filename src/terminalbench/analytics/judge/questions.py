"""The three kinds of question, and checking what comes back: one trial, two trials of one task, the whole batch."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from terminalbench.analytics.judge.asker import Answers, JudgeAnswer
from terminalbench.analytics.judge.material import Material, NoMaterial, clean, fit, load_material
from terminalbench.analytics.judge.request import (
    NO_EVIDENCE,
    NOT_JUDGED,
    JudgeClaim,
    Judgement,
    JudgeTrial,
    Narrative,
    Quote,
    Synthesis,
)
from terminalbench.analytics.judge.rubric import BatchAnswer, PairAnswer, Point, Rubric, messages
from terminalbench.llm.model import count_text
from terminalbench.records.trial import Outcome
from terminalbench.text.foreign import flat

_REASON = 1000
_TEXT = 240
TIE = "tie"
FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT)


def may_apply(rubric: Rubric, trial: JudgeTrial) -> bool:
    """Return whether a rubric has a question about this trial, as far as can be told without its trajectory."""
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
        text = fit(material.steps, budget, count_text)
    except NoMaterial as error:
        # Unread, only the result says whether MCP was in play.
        wanted = [rubric for rubric in wanted if rubric.applies != "mcp" or trial.mcp]
        return [j for r in wanted for j in _unanswered(r, trial, answers.skip(r, trial.key, str(error)))]
    wanted = [rubric for rubric in wanted if rubric.applies != "mcp" or trial.mcp or material.calls_mcp]
    found: list[Judgement] = []
    for rubric in wanted:
        question = messages(rubric, facts(rubric, material), shown(rubric, material, text))
        found += _checked(rubric, material, answers.put(rubric, trial.key, question))
    return found


def facts(rubric: Rubric, material: Material) -> list[str]:
    """Return what we know of the trial; a blind rubric is not told how it ended."""
    return [*([] if rubric.blind else [f"the trial ended: {material.trial.outcome}"]), *material.notes]


def shown(rubric: Rubric, material: Material, trajectory: str) -> dict[str, str]:
    """The material by name. The verifier's words give the outcome away, so a blind rubric does not get them."""
    parts = {"trajectory": trajectory}
    if not rubric.blind:
        parts["verifier output (step 0)"] = material.verifier or "(none)"
        if material.trial.error:
            parts["error of the trial"] = clean(material.trial.error, material.trial.files.secrets)
    return parts


def _checked(rubric: Rubric, material: Material, answer: JudgeAnswer) -> list[Judgement]:
    trial = material.trial
    if answer.parsed is None:
        return _unanswered(rubric, trial, answer)
    first, *others = rubric.points
    main = _judgement(rubric, material, first, answer)
    found = [main]
    for point in others:
        if not point.evidence and main.value is None:
            reason = main.reason if main.unsupported else f"{NOT_JUDGED}{first.name} could not be told"
            found.append(msgspec.structs.replace(main, name=point.name, reason=reason, quotes=[], cached=False))
        else:
            found.append(_judgement(rubric, material, point, answer))
    return found


def _judgement(rubric: Rubric, material: Material, point: Point, answer: JudgeAnswer) -> Judgement:
    given: Any = getattr(answer.parsed, point.name)
    trial, cited = material.trial, given.evidence if point.evidence else []
    quotes = [Quote(trial.key, e.step, e.quote, material.holds(e.step, e.quote)) for e in cited]
    held = sum(quote.found for quote in quotes)
    value, reason = given.value, flat(given.reason, _REASON)
    unsupported = value is not None and point.evidence and not held
    if value is None:
        reason = f"cannot be told: {reason}" if reason else "cannot be told"
    elif unsupported:
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
        unsupported=unsupported,
    )


def _unanswered(rubric: Rubric, trial: JudgeTrial, answer: JudgeAnswer) -> list[Judgement]:
    reason = f"{NOT_JUDGED}{answer.reason}"
    return [Judgement(trial=trial.key, rubric=rubric.name, name=p.name, reason=reason) for p in rubric.points]


@dataclass(frozen=True)
class TrialPair:
    """One trial of each of two profiles, at the same task."""

    new: JudgeTrial
    old: JudgeTrial

    @property
    def subject(self) -> str:
        """Return how the question about them is named."""
        return f"{self.new.key} against {self.old.key}"

    @property
    def first(self) -> JudgeTrial:
        """Return which of them is called A: by a hash, so that neither profile always comes first."""
        digest = sha256(f"{self.new.task.name}/{self.new.profile}/{self.old.profile}".encode())
        return self.new if digest.digest()[0] % 2 else self.old

    @property
    def second(self) -> JudgeTrial:
        """Return which of them is called B."""
        return self.old if self.first is self.new else self.new


def pairs(trials: Sequence[JudgeTrial], contrasts: Sequence[tuple[str, str]]) -> list[TrialPair]:
    """One pair for each contrast, batch and task that both profiles have a trial of which ended.

    Of several attempts the first two with different outcomes stand for them, else the first of each.
    """
    found: list[TrialPair] = []
    measured = [t for t in trials if t.outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)]
    tasks = list(dict.fromkeys(map(_place, measured)))
    for new, old in contrasts:
        for task in tasks:
            here = [t for t in measured if _place(t) == task]
            options = [
                TrialPair(a, b) for a in here if a.profile == new for b in here if b.profile == old
            ]  # in the order of attempts
            differing = [pair for pair in options if pair.new.outcome != pair.old.outcome]
            found += (differing or options)[:1]
    return found


def _place(trial: JudgeTrial) -> tuple[object, ...]:
    """Trials of different batches are never paired: more than the profile may differ between them."""
    return trial.files.batch, trial.task.dataset, trial.task.id


def default_contrasts(trials: Sequence[JudgeTrial]) -> list[tuple[str, str]]:
    """Each profile against the first."""
    profiles = list(dict.fromkeys(trial.profile for trial in trials))
    return [(profile, profiles[0]) for profile in profiles[1:]]


def tell(pair: TrialPair, rubric: Rubric, answers: Answers, budget: int) -> Narrative:
    """Return what the judge says of a pair. The answer is about A and B; profiles are put back in here."""
    try:
        sides = {"A": load_material(pair.first), "B": load_material(pair.second)}
        material: dict[str, str] = {}
        for name, side in sides.items():
            material[f"trial {name}: trajectory"] = fit(side.steps, budget // 2, count_text)
            material[f"trial {name}: verifier output (step 0)"] = side.verifier or "(none)"
    except NoMaterial as error:
        return _narrative(pair, reason=f"{NOT_JUDGED}{answers.skip(rubric, pair.subject, str(error)).reason}")
    facts = [f"{name} ended: {side.trial.outcome}" for name, side in sides.items()]
    facts += [f"{name}: {note}" for name, side in sides.items() for note in side.notes]
    answer = answers.put(rubric, pair.subject, messages(rubric, facts, material))
    if answer.parsed is None:
        return _narrative(pair, reason=f"{NOT_JUDGED}{answer.reason}")
    return _told(pair, answer.parsed, sides)


def _told(pair: TrialPair, said: PairAnswer, sides: dict[str, Material]) -> Narrative:
    quotes = [
        Quote(sides[e.trial].trial.key, e.step, e.quote, sides[e.trial].holds(e.step, e.quote)) for e in said.evidence
    ]
    held = {quote.trial for quote in quotes if quote.found}
    if said.better is None:
        return _narrative(pair, reason=f"cannot be told: {said.reason}", quotes=quotes)
    if held != {pair.new.key, pair.old.key}:
        reason = f"{NO_EVIDENCE} for {'either trial' if not held else 'one of the trials'}"
        return _narrative(pair, reason=reason, quotes=quotes, unsupported=True)
    winner = TIE if said.better == TIE else sides[said.better].trial.profile
    legend = f"(A = {pair.first.profile}, B = {pair.second.profile})"
    decisive, story = (f"{legend} {text.strip()}" for text in (said.decisive, said.story))
    return _narrative(pair, winner=winner, decisive=decisive, story=story, reason=said.reason, quotes=quotes)


def _narrative(pair: TrialPair, **said: object) -> Narrative:
    return Narrative(
        task=pair.new.task,
        new=pair.new.profile,
        old=pair.old.profile,
        new_trial=pair.new.key,
        old_trial=pair.old.key,
        **said,  # ty: ignore[invalid-argument-type]
    )


def synthesize(
    rubric: Rubric,
    trials: Sequence[JudgeTrial],
    judgements: Sequence[Judgement],
    narratives: Sequence[Narrative],
    answers: Answers,
    budget: int,
) -> Synthesis:
    """One question about all that was judged. A claim that cites a trial which does not exist is marked."""
    numbers = {trial.key: f"T{at}" for at, trial in enumerate(trials, start=1)}
    if not any(judgement.value is not None for judgement in judgements) and not any(n.winner for n in narratives):
        return Synthesis(reason=f"{NOT_JUDGED}{answers.skip(rubric, 'batch', 'nothing was judged to draw on').reason}")
    material = {
        "outcomes": _outcomes(trials),
        "judgements": _within(_judged(trials, judgements, numbers), budget * 2 // 3),
        "comparisons": _within(_compared(narratives, numbers), budget // 3),
    }
    answer = answers.put(rubric, "batch", messages(rubric, [], material))
    if answer.parsed is None:
        return Synthesis(reason=f"{NOT_JUDGED}{answer.reason}")
    return _cited(answer.parsed, {number: key for key, number in numbers.items()})


def _cited(said: BatchAnswer, keys: dict[str, str]) -> Synthesis:
    claims = [
        JudgeClaim(
            claim.text,
            [keys.get(number, number) for number in claim.trials],
            bool(claim.trials) and all(number in keys for number in claim.trials),
            claim.confidence,
        )
        for claim in said.claims
    ]
    if claims and not any(claim.supported for claim in claims):
        reason = f"{NO_EVIDENCE}: no claim cites trials that exist"
        return Synthesis(reason=reason, claims=claims, unsupported=True)
    return Synthesis(summary=said.summary, claims=claims, improvements=said.improvements, limitations=said.limitations)


def _outcomes(trials: Sequence[JudgeTrial]) -> str:
    lines = []
    for profile in dict.fromkeys(trial.profile for trial in trials):
        counts = Counter(str(trial.outcome) for trial in trials if trial.profile == profile)
        lines.append(f"{clean(profile)}: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return "\n".join(lines)


def _judged(trials: Sequence[JudgeTrial], judgements: Sequence[Judgement], numbers: dict[str, str]) -> list[str]:
    of = {key: [j for j in judgements if j.trial == key] for key in numbers}
    lines = []
    for trial in trials:
        said = [f"{j.name} = {_short(str(j.value))}" for j in of[trial.key] if j.value is not None]
        said += sorted({f"{j.rubric} not judged" for j in of[trial.key] if j.value is None})
        why = next((f" ({_short(j.reason)})" for j in of[trial.key] if j.name == "root_cause" and j.value), "")
        head = f"{numbers[trial.key]} {clean(trial.profile)} on {clean(trial.task.id)}: {trial.outcome}"
        lines.append("; ".join([head, *said]) + why)
    return lines


def _short(text: str) -> str:
    return flat(clean(text), _TEXT)


def _compared(narratives: Sequence[Narrative], numbers: dict[str, str]) -> list[str]:
    return [
        f"{clean(n.task.id)}: {numbers.get(n.new_trial)} ({clean(n.new)}) against {numbers.get(n.old_trial)} "
        f"({clean(n.old)}): {f'better: {clean(n.winner)}; {_short(n.decisive or str())}' if n.winner else 'not judged'}"
        for n in narratives
    ]


def _within(lines: list[str], budget: int) -> str:
    """Return as many lines as fit, and a mark for the rest."""
    kept: list[str] = []
    left = budget
    for line in lines:
        left -= count_text(line) + 1
        if left < 20:
            return "\n".join([*kept, f"[cut: {len(lines) - len(kept)} lines]"])
        kept.append(line)
    return "\n".join(kept) or "(none)"
