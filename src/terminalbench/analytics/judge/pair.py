"""Two profiles on one task, told by the judge: which trials stand for them, and what it said of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from terminalbench.analytics.judge.asker import Answers
from terminalbench.analytics.judge.evidence import QuoteBook
from terminalbench.analytics.judge.material import Material, NoMaterial, load_material
from terminalbench.analytics.judge.prompt import messages
from terminalbench.analytics.judge.request import NO_EVIDENCE, NOT_JUDGED, JudgeTrial, Narrative, Quote
from terminalbench.analytics.judge.rubric import PairAnswer, Rubric
from terminalbench.analytics.judge.select import TooSmall, fit
from terminalbench.llm.tokens import count_text
from terminalbench.records import Outcome

TIE = "tie"


@dataclass(frozen=True)
class Pair:
    """One trial of each of two profiles, at the same task."""

    new: JudgeTrial
    old: JudgeTrial

    @property
    def subject(self) -> str:
        """How the question about them is named."""
        return f"{self.new.key} against {self.old.key}"

    @property
    def first(self) -> JudgeTrial:
        """Which of them is called A: by a hash, so that neither profile always comes first."""
        digest = sha256(f"{self.new.task.dataset}/{self.new.task.id}/{self.new.profile}/{self.old.profile}".encode())
        return self.new if digest.digest()[0] % 2 else self.old


def pairs(trials: Sequence[JudgeTrial], contrasts: Sequence[tuple[str, str]]) -> list[Pair]:
    """One pair for each contrast, batch and task that both profiles have a trial of which ended.

    Of several attempts the first two with different outcomes stand for them, else the first of each.
    """
    found: list[Pair] = []
    measured = [t for t in trials if t.outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)]
    tasks = list(dict.fromkeys(map(_place, measured)))
    for new, old in contrasts:
        for task in tasks:
            here = [t for t in measured if _place(t) == task]
            options = [
                Pair(a, b) for a in here if a.profile == new for b in here if b.profile == old
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


def tell(pair: Pair, rubric: Rubric, answers: Answers, budget: int) -> Narrative:
    """What the judge says of a pair. The answer is about A and B; profiles are put back in here."""
    try:
        sides = {"A": load_material(pair.first), "B": load_material(_second(pair))}
        material = _shown(sides, budget)
    except (NoMaterial, TooSmall) as error:
        return _narrative(pair, reason=f"{NOT_JUDGED}{answers.skip(rubric, pair.subject, str(error)).reason}")
    facts = [f"{name} ended: {side.trial.outcome}" for name, side in sides.items()]
    facts += [f"{name}: {note}" for name, side in sides.items() for note in side.notes]
    answer = answers.put(rubric, pair.subject, messages(rubric, facts, material))
    if answer.parsed is None:
        return _narrative(pair, reason=f"{NOT_JUDGED}{answer.reason}")
    return _settle(pair, answer.parsed, sides)


def _second(pair: Pair) -> JudgeTrial:
    return pair.old if pair.first is pair.new else pair.new


def _shown(sides: dict[str, Material], budget: int) -> dict[str, str]:
    material: dict[str, str] = {}
    for name, side in sides.items():
        material[f"trial {name}: trajectory"] = fit(side.steps, budget // 2, count_text)
        material[f"trial {name}: verifier output (step 0)"] = side.verifier or "(none)"
    return material


def _settle(pair: Pair, said: PairAnswer, sides: dict[str, Material]) -> Narrative:
    books = {name: QuoteBook(side) for name, side in sides.items()}
    quotes = [
        Quote(sides[e.trial].trial.key, e.step, e.quote, books[e.trial].holds(e.step, e.quote)) for e in said.evidence
    ]
    held = {quote.trial for quote in quotes if quote.found}
    if said.better is None:
        return _narrative(pair, reason=f"cannot be told: {said.reason}", quotes=quotes)
    if held != {pair.new.key, pair.old.key}:
        reason = f"{NO_EVIDENCE} for {'either trial' if not held else 'one of the trials'}"
        return _narrative(pair, reason=reason, quotes=quotes)
    winner = TIE if said.better == TIE else sides[said.better].trial.profile
    return _narrative(
        pair, winner=winner, decisive=_named(said.decisive, pair), story=_named(said.story, pair), reason=said.reason,
        quotes=quotes,
    )  # fmt: skip


def _named(text: str, pair: Pair) -> str:
    """The legend for A and B, in front of a text that uses them."""
    return f"(A = {pair.first.profile}, B = {_second(pair).profile}) {text.strip()}"


def _narrative(pair: Pair, **said: object) -> Narrative:
    return Narrative(
        task=pair.new.task,
        new=pair.new.profile,
        old=pair.old.profile,
        new_trial=pair.new.key,
        old_trial=pair.old.key,
        **said,  # ty: ignore[invalid-argument-type]
    )
