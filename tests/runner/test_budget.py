"""The gate that a run puts up: several processes on one, what earlier trials cost, who costs nothing.

`tests/harbor/test_budget.py` plays whole batches.
"""

import multiprocessing
import random
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import msgspec
import pytest

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import ProfileRecord, Provenance
from terminalbench.experiments.tables import FREE, ProfilePrice
from terminalbench.harbor.limits.accounts import KnownCost, LikelyCost, Turn
from terminalbench.harbor.limits.gate import Gate
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import write_json
from terminalbench.runner.run import BatchSpend, put_up_gate


def _spend(path: Path, seed: int, profile: str, start: Barrier) -> None:
    start.wait(120)
    luck, gate, number = random.Random(seed), Gate(path), 0
    running: list[str] = []
    while True:
        refused = None
        while len(running) < 2 and refused is None:
            number += 1
            refused = gate.enter(f"{profile}-{number}", profile)
            if refused is None:
                running.append(f"{profile}-{number}")
        if not running:
            assert refused is not None
            if refused.final:
                return
            time.sleep(0.01)  # the others hold the rest
            continue
        gate.leave(running.pop(luck.randrange(len(running))), profile, luck.uniform(0.0, 0.5))


@pytest.mark.parametrize("seed", [1, 2])
def test_processes_side_by_side_keep_the_bound_together(tmp_path: Path, seed: int) -> None:
    batch = Batch(tmp_path / "s" / "0")
    batch.folder.mkdir(parents=True)
    plan = make_plan(batch, ("p0", "p1", "p2"), settings={"budget_usd": 5.0})
    gate = put_up_gate(batch, plan, BatchSpend({"p0": KnownCost(1, 0.25)}), plan.jobs)
    context = multiprocessing.get_context("fork")
    start = context.Barrier(3)
    workers = [context.Process(target=_spend, args=(gate.path, seed + who, f"p{who}", start)) for who in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    state = gate.read()
    assert state.spent_usd == pytest.approx(state.known_usd)
    assert 4.0 < state.known_usd <= 5.0 + 3 * 2 * 0.5
    assert not any(account.running for account in state.accounts.values())
    assert all(account.closed for account in state.accounts.values())


def test_the_gate_of_a_resume_knows_what_each_profile_has_cost(tmp_path: Path) -> None:
    """Tries of unknown cost are priced by what is known of their profile now, and of no other."""
    batch = allocate(tmp_path, "s")
    plan = make_plan(batch, ("dear", "cheap"), settings={"budget_usd": 8.0})
    spent = BatchSpend({"dear": KnownCost(2, 6.0), "cheap": KnownCost(2, 0.2)}, {"cheap": 4})
    state = put_up_gate(batch, plan, spent, [job for job in plan.jobs if job.profile == "cheap"]).read()
    assert (state.known_usd, state.unknown, state.spent_usd) == pytest.approx((6.2, 4, 6.6))
    assert (state.account("dear").turn, state.account("cheap").turn) == (Turn.OVER, Turn.LATER)
    assert state.refusal("cheap", 0.0) is None


def test_earlier_trials_say_what_one_costs_and_a_declared_cost_before_them(tmp_path: Path) -> None:
    first = allocate(tmp_path, "s")
    records = tuple(ProfileRecord(key, f"id-{key}", {"agent": f"agent-{key}"}) for key in "pq")
    write_json(first.plan_json, msgspec.structs.replace(make_plan(first, ("p", "q")), profiles=records))
    for name, cost in (("a__1", 0.5), ("b__1", 0.75)):
        make_trial(first, name, cost=cost)
    scan_batch(first)
    batch = allocate(tmp_path, "s")
    plan = make_plan(batch, ("p", "q"), settings={"budget_usd": 8.0})
    plan = msgspec.structs.replace(plan, profiles=records)
    state = put_up_gate(batch, plan, BatchSpend(), plan.jobs).read()
    assert state.account("p").likely == LikelyCost(0.625, "the same profile", 2)
    alike = {"agent": "agent-p", "model": "m"}
    other = msgspec.structs.replace(
        plan,
        jobs=tuple(msgspec.structs.replace(job, profile_id=f"new-{job.profile}") for job in plan.jobs),
        profiles=(ProfileRecord("p", "new-p", {"agent": "agent-p"}), ProfileRecord("q", "new-q", alike)),
    )
    likely = {
        key: found.likely for key, found in put_up_gate(batch, other, BatchSpend(), other.jobs).read().accounts.items()
    }
    assert likely == {"p": None, "q": None}, "one that names no model may run any; the other model is another one"
    declared = tuple(msgspec.structs.replace(record, likely_cost_usd=2.0) for record in plan.profiles)
    state = put_up_gate(batch, msgspec.structs.replace(plan, profiles=declared), BatchSpend(), plan.jobs).read()
    assert {key: account.likely for key, account in state.accounts.items()} == {
        "p": LikelyCost(2.0),
        "q": LikelyCost(2.0),
    }


def test_a_price_of_zero_and_an_agent_of_the_project_without_a_model_are_beside_the_budget(tmp_path: Path) -> None:
    (tmp_path / "quiet_agents.py").write_text('class Quiet:\n    AGENT_INFO = {"model": False}\n')
    contents = {
        "own": ({"agent": "claude-code"}, FREE),
        "quiet": ({"agent": "quiet_agents:Quiet"}, None),
        "dear": ({"agent": "claude-code"}, ProfilePrice(3.0, 15.0)),
    }
    records = tuple(ProfileRecord(key, f"id-{key}", content, price=price) for key, (content, price) in contents.items())
    batch = allocate(tmp_path, "s")
    plan = make_plan(batch, tuple(contents), settings={"budget_usd": 1.0})
    plan = msgspec.structs.replace(plan, profiles=records, provenance=Provenance(root=str(tmp_path)))
    gate = put_up_gate(batch, plan, BatchSpend({"dear": KnownCost(1, 1.0)}))
    assert gate.enter("d", "dear") is not None
    for profile in ("own", "quiet"):
        assert gate.enter(profile, profile) is None
        gate.leave(profile, profile, None)
    assert (gate.read().spent_usd, gate.read().unknown) == (1.0, 0)
