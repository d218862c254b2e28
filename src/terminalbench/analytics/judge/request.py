"""What a judgement is asked with and what comes back. Written as `analytics/judge.json`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

import msgspec

from terminalbench.analytics.findings.trial_files import TrialFiles
from terminalbench.analytics.selection import SelectedBatch, analytics_of, ran
from terminalbench.analytics.settings import settings_of
from terminalbench.errors import UserError
from terminalbench.records.trial import Finding, Outcome, TaskRef
from terminalbench.text.numbers import cost, plural

CONCURRENCY = 4
CACHE = "judge-cache"
NOT_JUDGED = "not judged: "
NO_EVIDENCE = f"{NOT_JUDGED}evidence not found"


@dataclass(frozen=True, kw_only=True)
class JudgeTrial:
    """One trial to judge."""

    files: TrialFiles
    task: TaskRef
    profile: str
    outcome: Outcome

    @property
    def key(self) -> str:
        """`<job>/<name>` within the batch, as in a Finding."""
        return self.files.key

    @property
    def error(self) -> str | None:
        """Return what went wrong with the trial itself, if anything did."""
        record = self.files.record
        return record.error_message if record is not None else self.files.reason

    @property
    def mcp(self) -> bool:
        """Return whether MCP tools were offered or called, as far as its result tells; its trajectory may tell more."""
        record = self.files.record
        return record is not None and bool(record.delivery.mcp_configured or record.delivery.mcp_calls)


@dataclass(frozen=True)
class JudgeProgress:
    """How far a judgement is: questions answered (from the cache or not), and what the new ones cost so far."""

    done: int
    total: int
    cached: int
    spent_usd: float


@dataclass(frozen=True)
class JudgeAsk:
    """Which model judges, by which rubrics, for at most how much.

    `rubrics` are names of our own or paths of TOML files; without them all of ours. `contrasts` are pairs (new, old) of
    profiles; without them each profile stands against the first.
    """

    model: str
    rubrics: Sequence[str] = ()
    budget_usd: float | None = None
    contrasts: Sequence[tuple[str, str]] = ()
    progress: Callable[[JudgeProgress], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.budget_usd is not None and not (isfinite(self.budget_usd) and self.budget_usd >= 0):
            # Nothing is ever more than "nan": the cap would be off.
            raise UserError(
                f"the budget of the judge cannot be {self.budget_usd:g} dollars", hint="give --judge-budget in dollars"
            )


@dataclass(frozen=True, kw_only=True)
class JudgeRequest(JudgeAsk):
    """The same of these trials, with so many questions at a time.

    `output` is where judge.json and judge.md go. Answers are kept in the first of `caches` and looked up in all of
    them; without any, in `judge-cache` below `output`.
    """

    trials: Sequence[JudgeTrial]
    output: Path
    concurrency: int = CONCURRENCY
    caches: Sequence[Path] = ()


def request_of(chosen: Sequence[SelectedBatch], ask: JudgeAsk, output: Path) -> JudgeRequest:
    """The chosen trials as a request; answers of an earlier run, whatever part of the batch it judged, are found."""
    trials = [
        JudgeTrial(files=part.files(cell.row), task=cell.task, profile=cell.profile, outcome=cell.outcome)
        for part in chosen
        for cell in part.cells
        if cell.row is not None and ran(cell)
    ]
    # One cache for a batch, whatever part of it is judged and wherever the result goes.
    batches = [part.batch for part in chosen]
    caches = dict.fromkeys([analytics_of(batches), *(batch.analytics for batch in batches)])
    # Trials of different batches are never paired, so the first batch's contrasts serve for all.
    asked = replace(ask, contrasts=ask.contrasts or settings_of([chosen[0].view]).contrasts)
    return JudgeRequest(**vars(asked), trials=trials, output=output, caches=[folder / CACHE for folder in caches])


class Quote(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of evidence: where it was said to be, and whether it is there. Step 0 is the verifier's output."""

    trial: str
    step: int
    text: str
    found: bool


class Judgement(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One answer about one trial, with everything it rests on. `value` None: not judged, and `reason` says why.

    `unsupported`, here and below: an answer was given, and dropped because its evidence was not found.
    """

    trial: str
    rubric: str
    name: str
    value: bool | int | float | str | None = None
    reason: str = ""
    quotes: list[Quote] = []
    cached: bool = False
    unsupported: bool = False


class Narrative(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Two profiles on one task, told. `winner` is a profile, "tie", or None when it was not judged."""

    task: TaskRef
    new: str
    old: str
    new_trial: str
    old_trial: str
    winner: str | None = None
    decisive: str | None = None
    story: str | None = None
    reason: str = ""
    quotes: list[Quote] = []
    unsupported: bool = False


class JudgeClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """One statement about the whole batch. `trials` are those it cites; `supported` when each of them exists."""

    text: str
    trials: list[str]
    supported: bool
    confidence: str = ""


class Synthesis(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the judgements say together. `summary` None: not judged, and `reason` says why."""

    summary: str | None = None
    claims: list[JudgeClaim] = []
    improvements: list[str] = []
    limitations: list[str] = []
    reason: str = ""
    unsupported: bool = False


class JudgeSpend(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the calls of this run cost. `cost_usd` sums the known ones; `unknown` counts the others."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    unknown: int = 0


class NotJudged(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question without an answer, and why. `nothing_there`: it was not asked, because there was nothing to read."""

    trial: str
    rubric: str
    reason: str
    nothing_there: bool = False


class JudgeResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything that came of it. `judged` and `not_judged` count questions, not answers within them.

    `unsupported` counts answers that were given and dropped because none of their quotes was found. `stopped` says why
    the rest was not asked: a fault of the model, the budget.
    """

    model: str
    findings: list[Finding] = []
    judgements: list[Judgement] = []
    narratives: list[Narrative] = []
    synthesis: Synthesis | None = None
    judged: int = 0
    not_judged: list[NotJudged] = []
    unsupported: int = 0
    spend: JudgeSpend = JudgeSpend()
    cache_hits: int = 0
    stopped: str | None = None
    notes: list[str] = []

    @property
    def incomplete(self) -> bool:
        """Return whether an answer is missing that a model could have given."""
        return self.stopped is not None or any(not entry.nothing_there for entry in self.not_judged)

    def sentence(self) -> str:
        """The result in one line, for a person."""
        asked = plural(self.judged + len(self.not_judged), "question")
        spent = f"cost {cost(self.spend.cost_usd, self.spend.unknown)}" if self.spend.calls else "nothing spent"
        line = f"{self.model} judged {self.judged} of {asked} ({self.cache_hits} from the cache), {spent}"
        if self.unsupported:
            line += f"; {plural(self.unsupported, 'answer')} dropped: quotes were not found"
        return f"{line}; stopped: {self.stopped}" if self.stopped else line


@dataclass
class RubricEstimate:
    """What one rubric would ask: questions, how many are in the cache, tokens of the rest."""

    rubric: str
    questions: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class CostEstimate:
    """What a judgement would cost. `cost_usd` None: the price is unknown. `exact`: input tokens were counted."""

    model: str
    rubrics: list[RubricEstimate]
    input_tokens: int
    output_tokens: int
    exact: bool
    cost_usd: float | None = None
    most_usd: float | None = None
    price_source: str | None = None
    notes: Sequence[str] = ()
