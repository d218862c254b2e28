import multiprocessing
from pathlib import Path

import msgspec
import pytest

from terminalbench.experiments.plan import Exclusion, ExclusionKind
from terminalbench.harbor.limits.accounts import Account, KnownCost, LikelyCost, TrialRefusal, Turn
from terminalbench.harbor.limits.gate import Gate, GateState
from terminalbench.harbor.limits.hangs import HoldReason
from terminalbench.records.event import WaitKind


def gate(tmp_path: Path, **fields: object) -> Gate:
    found = Gate(tmp_path / "gate.json")
    found.create(GateState(**fields))  # ty: ignore[invalid-argument-type]
    return found


def test_without_limits_everything_enters(tmp_path: Path) -> None:
    assert gate(tmp_path).enter("t", "p") is None


def test_until_a_profile_has_told_a_cost_one_trial_runs_at_a_time(tmp_path: Path) -> None:
    accounts = {"p": Account(Turn.NOW, 9), "q": Account(Turn.NOW, 9)}
    found = gate(tmp_path, budget_usd=0.1, guess_usd=1.0, accounts=accounts)
    assert found.enter("a", "p") is None, "the first one fits into anything"
    said = "the cost of a trial of p is unknown: one trial at a time until the first one reports it"
    assert found.enter("b", "p") == TrialRefusal(said, ExclusionKind.BUDGET, WaitKind.FIRST_COST)
    said = "p and q have reported no cost yet: near the budget of $0.10, they take turns"
    assert found.enter("x", "q") == TrialRefusal(said, ExclusionKind.BUDGET, WaitKind.FIRST_COST)
    found.leave("a", "p", 0.02)
    assert found.enter("x", "q") is None
    found.leave("x", "q", 0.01)
    assert found.enter("b", "p") is None
    found.leave("b", "p", 0.06)
    said = "the budget of $0.10 is used up ($0.09 spent; another trial costs about $0.04)"
    assert found.enter("c", "p") == TrialRefusal(said, ExclusionKind.BUDGET)
    assert found.read().account("p").closed == TrialRefusal(said, ExclusionKind.BUDGET)
    assert found.enter("y", "q") is None, "closed for the profile that has no room, and for no other"


def test_sixteen_slots_at_ten_dollars_with_a_budget_of_sixteen_spend_twenty(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=16.0)
    entered = [number for number in range(16) if found.enter(f"t{number}", "p") is None]
    assert entered == [0]
    found.leave("t0", "p", 10.0)
    assert [number for number in range(1, 16) if found.enter(f"t{number}", "p") is None] == []


def test_what_is_spent_closes_at_once_though_others_run(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=1.0, accounts={"p": Account(to_start=4, likely=LikelyCost(0.1))})
    for trial in "abc":
        assert found.enter(trial, "p") is None
    found.leave("a", "p", 1.2)
    assert found.enter("d", "p") == TrialRefusal("the budget of $1.00 is used up ($1.20 spent)", ExclusionKind.BUDGET)


def test_what_a_dead_harbor_held_is_settled_as_unknown(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=2.5, accounts={"p": Account(to_start=9, likely=LikelyCost(1.0))})
    for job, trial in (("dead", "a"), ("alive", "b")):
        assert found.enter(trial, "p") is None
        (tmp_path / job / trial).mkdir(parents=True)
    assert found.enter("c", "p") == TrialRefusal(
        "the rest of the budget of $2.50 is reserved for running trials", ExclusionKind.BUDGET, WaitKind.BUDGET
    )
    found.leave("b", "p", 0.5)
    found.settle_dead(tmp_path / "dead", "p")
    account = found.read().account("p")
    assert (account.running, account.known, account.unknown) == ({}, KnownCost(1, 0.5), 1)
    assert found.read().spent_usd == 1.0, "at what is known of the profile since"


def test_what_other_jobs_of_a_profile_hold_is_theirs_when_one_dies(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=9.0, accounts={"p": Account(likely=LikelyCost(1.0))})
    found.begin("p", 2)
    found.begin("p", 3, more=True)
    assert found.read().account("p").to_start == 5
    for job, trial in (("dead", "a"), ("alive", "b"), (None, "c")):
        assert found.enter(trial, "p") is None
        if job is not None:
            (tmp_path / job / trial).mkdir(parents=True)
    found.settle_dead(tmp_path / "dead", "p", [tmp_path / "alive"])
    account = found.read().account("p")
    assert (set(account.running), account.unknown, account.to_start) == ({"b"}, 1, 2)


def test_a_profile_is_priced_by_its_own_trials_and_by_no_others(tmp_path: Path) -> None:
    accounts = {
        "p": Account(known=KnownCost(2, 0.4)),
        "q": Account(known=KnownCost(1, 4.0)),
        "new": Account(to_start=5),
    }
    state = gate(tmp_path, budget_usd=6.0, accounts=accounts).read()
    assert state.account("p").price_usd == pytest.approx(0.2)
    assert state.account("new").price_usd is None
    state.change("new", Account(to_start=5, unknown=1))
    assert state.spent_usd == pytest.approx(0.4 + 4.0 + 1.0), "a guess, not the mean of a dearer one"


def test_a_try_that_broke_before_it_cost_anything_says_nothing_about_the_price(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=16.0)
    assert found.enter("a", "p") is None
    found.leave("a", "p", 0.0, measured=False)
    assert found.enter("b", "p") is None
    waits = found.enter("c", "p")
    assert waits is not None
    assert waits.waits_for is WaitKind.FIRST_COST


def test_an_unknown_cost_is_repriced_by_what_is_known_since(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=10.0, guess_usd=2.0)
    found.enter("a", "p")
    found.leave("a", "p", None)
    assert (found.read().spent_usd, found.read().unknown) == (2.0, 1)
    found.enter("b", "p")
    found.leave("b", "p", 0.25)
    assert (found.read().spent_usd, found.read().known_usd) == (0.5, 0.25)


def test_a_dear_profile_does_not_shut_out_a_cheap_one(tmp_path: Path) -> None:
    """Six dollars of eight were the dear one's, and two were left over: each has its half until the other needs less."""
    accounts = {"dear": Account(Turn.NOW, 10), "cheap": Account(Turn.NOW, 10)}
    found = gate(tmp_path, budget_usd=8.0, accounts=accounts)
    assert found.enter("d1", "dear") is None
    found.leave("d1", "dear", 3.0)
    waits = found.enter("d2", "dear")
    said = "dear has used its share of the budget of $8.00; waiting for what cheap do not need"
    assert waits == TrialRefusal(said, ExclusionKind.BUDGET, WaitKind.SHARE)
    for number in range(10):
        assert found.enter(f"c{number}", "cheap") is None, number
        found.leave(f"c{number}", "cheap", 0.1)
    found.through("cheap")
    assert found.enter("d2", "dear") is None, "what the cheap one left is the other's"
    found.leave("d2", "dear", 3.0)
    said = "the budget of $8.00 is used up ($7.00 spent; another trial costs about $3.00)"
    assert found.enter("d3", "dear") == TrialRefusal(said, ExclusionKind.BUDGET)


def test_a_profile_whose_share_is_used_makes_room_for_those_in_line(tmp_path: Path) -> None:
    """It would wait for ever for what profiles leave that wait for its place."""
    accounts = {"p": Account(Turn.NOW, 9, known=KnownCost(1, 3.0)), "q": Account(Turn.LATER, 9)}
    found = gate(tmp_path, budget_usd=8.0, accounts=accounts)
    said = (
        "the share of p in the budget of $8.00 is used up ($3.00 spent; another trial costs about $3.00); "
        "the rest is reserved for q"
    )
    assert found.enter("a", "p") == TrialRefusal(said, ExclusionKind.BUDGET)
    found.through("p")
    found.begin("q", 9)
    for number in range(5):
        assert found.enter(f"q{number}", "q") is None
        found.leave(f"q{number}", "q", 1.0)
    assert found.enter("q5", "q") is not None


def test_a_budget_does_not_hold_agents_that_cost_nothing(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate.json")
    gate.create(GateState(budget_usd=1.5, free=["oracle"]))
    assert gate.enter("free-1", "oracle") is None
    assert gate.enter("paid-1", "p") is None, "a free trial reserves nothing"
    gate.leave("free-1", "oracle", 0.0)
    assert gate.read().account("q").price_usd is None, "what costs nothing does not make others look cheap"
    gate.leave("paid-1", "p", 1.4)
    assert gate.enter("paid-2", "p") is not None
    assert gate.enter("free-2", "oracle") is None, "closed for those who pay"
    assert (gate.read().spent_usd, gate.read().unknown) == (1.4, 0)
    assert gate.why_closed("p") is not None
    assert gate.why_closed("oracle") is None


def test_a_deadline_closes_for_good(tmp_path: Path) -> None:
    found = gate(tmp_path, deadline=100.0)
    assert found.enter("a", "p", now=99.0) is None
    assert found.enter("b", "p", now=100.0) == TrialRefusal(
        "the deadline (run.run_timeout_sec) has passed", ExclusionKind.DEADLINE
    )
    assert gate(tmp_path, deadline=found.read().clock.now() - 1.0).why_closed("p") is not None


def _spend(path: Path, who: int) -> None:
    found = Gate(path)
    for number in range(40):
        if found.enter(f"{who}-{number}", f"p{who}") is None:
            found.leave(f"{who}-{number}", f"p{who}", 0.01)


def test_several_processes_share_one_budget(tmp_path: Path) -> None:
    found = gate(tmp_path, budget_usd=100.0)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_spend, args=(found.path, who)) for who in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    state = found.read()
    assert state.spent_usd == pytest.approx(120 * 0.01)
    assert not any(account.running for account in state.accounts.values())


def test_a_gate_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    found = Gate(tmp_path / "gate.json")
    old = {"budget_usd": 3.0, "spent_usd": 2.5, "reserved": {}, "costs": {"p": {"trials": 3, "usd": 1.5}}, "priced": 2}
    found.path.write_bytes(msgspec.json.encode({**old, "shut": {"reason": "x", "kind": "budget", "final": True}}))
    assert (found.read().known_usd, found.read().unknown) == (1.5, 2)


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
    assert msgspec.json.decode(msgspec.json.encode(note), type=HoldReason).finished is finished
