import multiprocessing
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terminalbench.experiments.plan import Exclusion, ExclusionKind
from terminalbench.harbor.limits.gate import Gate, GateState, Known, Refusal
from terminalbench.harbor.limits.hangs import Held


def gate(tmp_path: Path, **fields: object) -> Gate:
    found = Gate(tmp_path / "gate.json")
    found.create(GateState(**fields))  # ty: ignore[invalid-argument-type]
    return found


def test_without_limits_everything_enters(tmp_path: Path) -> None:
    assert gate(tmp_path).enter("t", "p") is None


def test_the_first_trial_enters_whatever_the_guess(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=0.1, guess_usd=1.0)
    assert found.enter("a", "p") is None
    assert found.enter("b", "p") == Refusal(
        "running trials hold the rest of the budget of $0.10", ExclusionKind.BUDGET, final=False
    )
    found.leave("a", "p", 0.02)
    assert found.enter("b", "p") is None, "it was cheaper than the guess: there is room"
    found.leave("b", "p", 0.06)
    said = "the budget of $0.10 is used up ($0.08 spent; another trial probably costs $0.04)"
    assert found.enter("c", "p") == Refusal(said, ExclusionKind.BUDGET)
    assert found.read().shut == Refusal(said, ExclusionKind.BUDGET)


def test_what_is_spent_closes_at_once_though_others_run(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=1.0, guess_usd=0.1)
    for trial in "abc":
        assert found.enter(trial, "p") is None
    found.leave("a", "p", 1.2)
    assert found.enter("d", "p") == Refusal("the budget of $1.00 is used up ($1.20 spent)", ExclusionKind.BUDGET)


def test_what_a_dead_harbor_had_reserved_is_settled_as_unknown(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=2.5, guess_usd=1.0)
    for job, trial in (("dead", "a"), ("alive", "b")):
        assert found.enter(trial, "p") is None
        (tmp_path / job / trial).mkdir(parents=True)
    assert found.enter("c", "p") == Refusal(
        "running trials hold the rest of the budget of $2.50", ExclusionKind.BUDGET, final=False
    )
    found.settle_dead(tmp_path / "dead", "p")
    state = found.read()
    assert (state.reserved, state.spent_usd, state.priced) == ({"b": 1.0}, 1.0, 1)
    found.settle_dead(tmp_path / "alive", "p")
    refused = found.enter("c", "p")
    assert refused is not None
    assert refused.final, "nobody is left whose end could make room"


def test_a_profiles_own_history_is_the_estimate(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=1.0, guess_usd=5.0, costs={"p": Known(2, 0.4), "q": Known(1, 4.0)}, spent_usd=0.2)
    assert found.read().likely_usd("p") == pytest.approx(0.2)
    assert found.read().likely_usd("q") == 4.0
    assert found.read().likely_usd("new") == pytest.approx(4.4 / 3)
    assert found.enter("a", "p") is None
    refused = found.enter("b", "q")
    assert refused is not None
    assert not refused.final


def test_an_unknown_cost_is_taken_to_be_the_likely_one(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=10.0, guess_usd=2.0)
    found.enter("a", "p")
    found.leave("a", "p", None)
    state = found.read()
    assert (state.spent_usd, state.priced, state.costs) == (2.0, 1, {})


def test_a_budget_does_not_hold_agents_that_cost_nothing(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate.json")
    gate.create(GateState(budget_usd=1.5, free=["oracle"]))
    assert gate.enter("free-1", "oracle") is None
    assert gate.enter("paid-1", "p") is None, "a free trial reserves nothing"
    gate.leave("free-1", "oracle", 0.0)
    assert gate.read().likely_usd("q") == 1.0, "what costs nothing does not make others look cheap"
    gate.leave("paid-1", "p", 1.4)
    assert gate.enter("paid-2", "p") is not None
    assert gate.enter("free-2", "oracle") is None, "closed for those who pay"
    assert (gate.read().spent_usd, gate.read().priced) == (1.4, 0)
    assert gate.read().why_shut("p", 0.0) is not None
    assert gate.read().why_shut("oracle", 0.0) is None


def test_a_deadline_closes_for_good(tmp_path: Path) -> None:
    found = gate(tmp_path, deadline=100.0)
    assert found.enter("a", "p", now=99.0) is None
    assert found.enter("b", "p", now=100.0) == Refusal(
        "the deadline (run.run_timeout_sec) has passed", ExclusionKind.DEADLINE
    )
    assert found.enter("c", "p", now=50.0) is not None


@settings(max_examples=100, deadline=None)
@given(
    budget=st.floats(0.5, 20),
    slots=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    unknown=st.floats(0, 0.3),
    retry=st.floats(0, 0.4),
)
def test_the_budget_is_passed_by_at_most_one_trial_a_slot(
    tmp_path_factory: pytest.TempPathFactory, budget: float, slots: int, seed: int, unknown: float, retry: float
) -> None:
    """Random costs, retries and unknowns: what is spent stays below the budget plus the dearest trial of each slot."""
    luck = random.Random(seed)
    found = gate(tmp_path_factory.mktemp("gate"), budget_usd=budget, guess_usd=0.5)
    running: dict[str, float] = {}
    spent, dearest, number = 0.0, 0.5, 0
    while True:
        while len(running) < slots:
            number += 1
            if found.enter(f"t{number}", "p") is not None:
                break
            running[f"t{number}"] = luck.uniform(0.01, 2.0)
        if not running:
            break
        trial = luck.choice(sorted(running))
        cost = running.pop(trial)
        known = luck.random() >= unknown
        likely = found.read().reserved[trial]
        found.leave(trial, "p", cost if known else None)
        spent += cost if known else likely
        dearest = max(dearest, cost)
        if luck.random() < retry and found.enter(trial, "p") is None:
            running[trial] = luck.uniform(0.01, 2.0)
        assert number < 10_000
    assert spent == pytest.approx(found.read().spent_usd)
    assert spent <= budget + slots * dearest


def _spend(path: Path, who: int) -> None:
    found = Gate(path)
    for number in range(40):
        if found.enter(f"{who}-{number}", f"p{who}") is None:
            found.leave(f"{who}-{number}", f"p{who}", 0.01)


def test_several_processes_share_one_budget(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=100.0, guess_usd=0.01)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_spend, args=(found.path, who)) for who in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    state = found.read()
    assert state.spent_usd == pytest.approx(120 * 0.01)
    assert state.reserved == {}


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("quarantined: the oracle fails", ExclusionKind.QUARANTINED),
        ("the budget of $8.00 is used up ($8.10 spent)", ExclusionKind.BUDGET),
        ("the deadline (run.run_timeout_sec) has passed", ExclusionKind.NOT_STARTED),
    ],
)
def test_plans_of_versions_without_kinds_are_read(reason: str, kind: ExclusionKind) -> None:
    old = {"reason": reason, "profile": "p", "task": {"id": "a", "dataset": "d"}}
    assert msgspec.json.decode(msgspec.json.encode(old), type=Exclusion).kind is kind
    new = msgspec.json.decode(msgspec.json.encode({**old, "kind": "stopped"}), type=Exclusion)
    assert new.kind is ExclusionKind.STOPPED, "what is recorded counts, not its sentence"


@pytest.mark.parametrize(
    ("note", "finished"),
    [
        ({"reason": "cancelled: wrong", "cancelled": True}, True),
        ({"reason": "the budget of $1.00 is used up"}, False),
        ({"reason": "any words", "kind": "cancelled"}, True),
        ({"reason": "cancelled: is how this sentence begins", "kind": "budget"}, False),
    ],
)
def test_whether_a_held_trial_runs_again_is_not_read_from_its_sentence(note: dict, finished: bool) -> None:
    assert msgspec.json.decode(msgspec.json.encode(note), type=Held).finished is finished
