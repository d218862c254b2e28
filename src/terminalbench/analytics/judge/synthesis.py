"""What the judgements of a batch say together."""

from collections import Counter
from collections.abc import Sequence

from terminalbench.analytics.judge.asker import Answers
from terminalbench.analytics.judge.clean import clean
from terminalbench.analytics.judge.prompt import messages
from terminalbench.analytics.judge.request import (
    NO_EVIDENCE,
    NOT_JUDGED,
    Claim,
    Judgement,
    JudgeTrial,
    Narrative,
    Synthesis,
)
from terminalbench.analytics.judge.rubric import BatchAnswer, Rubric
from terminalbench.llm.tokens import count_text

_TEXT = 240


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
    return _settle(answer.parsed, {number: key for key, number in numbers.items()})


def _settle(said: BatchAnswer, keys: dict[str, str]) -> Synthesis:
    claims = [
        Claim(
            claim.text,
            [keys.get(number, number) for number in claim.trials],
            bool(claim.trials) and all(number in keys for number in claim.trials),
            claim.confidence,
        )
        for claim in said.claims
    ]
    if claims and not any(claim.supported for claim in claims):
        return Synthesis(reason=f"{NO_EVIDENCE}: no claim cites trials that exist", claims=claims)
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


def _compared(narratives: Sequence[Narrative], numbers: dict[str, str]) -> list[str]:
    return [
        f"{clean(n.task.id)}: {numbers.get(n.new_trial)} ({clean(n.new)}) against {numbers.get(n.old_trial)} "
        f"({clean(n.old)}): {f'better: {clean(n.winner)}; {_short(n.decisive or str())}' if n.winner else 'not judged'}"
        for n in narratives
    ]


def _short(text: str) -> str:
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= _TEXT else f"{flat[: _TEXT - 1]}…"


def _within(lines: list[str], budget: int) -> str:
    """As many lines as fit, and a mark for the rest."""
    kept: list[str] = []
    left = budget
    for line in lines:
        left -= count_text(line) + 1
        if left < 20:
            return "\n".join([*kept, f"[cut: {len(lines) - len(kept)} lines]"])
        kept.append(line)
    return "\n".join(kept) or "(none)"
