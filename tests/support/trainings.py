"""A training on disk as nights leave it, without running one: a promotion, a rejection, one undecided, one refused."""

from pathlib import Path

import msgspec

from terminalbench.analytics.model import Interval
from terminalbench.experiments.champions import LOG
from terminalbench.experiments.profiles import content_id
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.trainer.gate import GateAction, GateVerdict
from terminalbench.trainer.journal import (
    CandidateResult,
    Challenger,
    NightEntry,
    PairMeasurement,
    Phase,
    PlanDeclaration,
    RefusedChange,
    TrainingState,
    add_night,
    plan_json,
    training_folder,
)
from terminalbench.trainer.lineage import ChampionChange, ChampionReason, Variant


def plan_text(
    rest: str = "", *, profile: str = "", nights: int = 9, split: tuple[float, float] = (0.2, 0.6), trials: int = 60
) -> str:
    """Return a small training plan: `profile` goes on in its first table, `rest` after the trials of its budget."""
    return f"""
schema_version = 1
slug = "mine"
environment = "starter"
nights = {nights}
[profile]
agent = "simulated"
model = "m"
{profile}[run]
container_env = "local"
[split]
train = {split[0]}
dev = {split[1]}
[budget]
trials = {trials}
{rest}"""


HOSTILE = "<script>document.title='owned'</script>\x1b[2J"


def _content(reason: str) -> dict[str, str]:
    return {"model": "m", "prompt": reason}


REASONS = ("where the training starts", "look at the result", HOSTILE, "plan first")
START, CHECK, HURRY, PLAN = (content_id(_content(reason)) for reason in REASONS)


def make_training(root: Path, slug: str = "prompts", batch: str = "study/0") -> Path:
    """The folder of a training of four nights; every comparison was on one batch."""
    folder, log = training_folder(root, slug), root / LOG
    write_json(
        plan_json(folder), PlanDeclaration(slug, "0" * 16, "2026-01-20T20:00:00Z", {"nights": 6, "lineage": None})
    )
    for number, (name, parent, reason) in enumerate(
        [
            (START, None, REASONS[0]),
            (CHECK, START, REASONS[1]),
            (HURRY, START, HOSTILE),
            (PLAN, CHECK, REASONS[3]),
        ]
    ):
        variant = Variant(
            lineage=slug,
            id=name,
            reason=reason,
            source="listed",
            table={},
            content=_content(reason),
            parent=parent,
            simulated=True,
            seq=number,
            time="2026-01-20T20:00:00Z",
        )
        append_jsonl(log, variant)
    gain = Interval(low=0.02, high=0.22, level=0.95, method="bootstrap")
    better = GateVerdict(
        action=GateAction.PROMOTE, reason="the gain shows again", difference=0.12, interval=gain, tasks=20, trials=80
    )
    dropped = GateVerdict(
        action=GateAction.DROP, reason="not shown to be better in 2 looks", difference=-0.01, p=0.8, level=0.03
    )
    open_ = GateVerdict(
        action=GateAction.GO_ON, reason="not decided yet", difference=0.05, p=0.2, level=0.01, look=1, looks=2
    )
    kept = GateVerdict(action=GateAction.KEEP, reason="no loss was shown", difference=0.1)
    for time, name, why, before, verdict in (
        ("2026-01-20T20:00:00Z", START, ChampionReason.STARTED, None, None),
        ("2026-01-22T06:00:00Z", CHECK, ChampionReason.PROMOTED, START, better),
    ):
        numbers = msgspec.to_builtins(verdict) if verdict is not None else {}
        made = ChampionChange(
            lineage=slug, id=name, why=why, reason="the first", before=before, evidence=numbers, time=time
        )
        append_jsonl(log, made)
    first = TrainingState(champion=START, allowed=3, night=1, waiting=(CHECK,), known=(CHECK,))
    states = [
        first,
        TrainingState(champion=CHECK, allowed=3, night=2, control=START, begun=1, waiting=(HURRY,)),
        TrainingState(champion=CHECK, allowed=3, night=3, control=START, begun=2, waiting=(PLAN,)),
        TrainingState(
            champion=CHECK,
            allowed=3,
            night=4,
            control=START,
            begun=3,
            challenger=Challenger(PLAN, nights=1),
        ),
    ]
    confirms: list[tuple[str, str, Phase, GateVerdict] | None] = [
        None,
        (CHECK, START, "canary", better),
        (HURRY, CHECK, "confirm", dropped),
    ]
    confirms.append((PLAN, CHECK, "confirm", open_))
    for state, confirm in zip(states, confirms, strict=True):
        champion = START if state.night < 3 else CHECK
        other = START if state.night > 2 else f"{START}-again"
        held = (
            PairMeasurement(batch=batch, new=confirm[0], old=confirm[1], phase=confirm[2], verdict=confirm[3])
            if confirm
            else None
        )
        entry = NightEntry(
            night=state.night,
            time=f"2026-01-2{state.night}T06:00:00Z",
            after=state,
            control=PairMeasurement(batch=batch, new=champion, old=other, verdict=kept if state.night > 2 else None),
            explored=(CandidateResult(id=CHECK, rounds=2, passed=9, measured=10, reason="look at the result"),)
            if state.night == 1
            else (),
            searched=("gone/9",) if state.night == 1 else (),
            refused=(RefusedChange("copy the answer", "holds text of a solution"),) if state.night == 1 else (),
            winner=CHECK if state.night == 1 else None,
            confirm=held,
            trials=40,
            measured=39,
        )
        add_night(folder, entry)
    return folder
