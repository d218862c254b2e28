"""Budget and deadline: running trials finish, nothing new starts, the rest can be resumed."""

import json
import os
import signal

import pytest
from test_run import LIMIT_SEC, at_work, running, scripted, wait_for

from support.aftermath import cost, results


def gate(lab) -> dict:
    return json.loads(lab.batch().gate_json.read_text())


def test_a_budget_stops_launching_and_resume_goes_on_with_a_larger_one(lab) -> None:
    profile = scripted("p", cost_usd=1.0)
    file = lab.experiment(profile, run="attempts = 4\nparallel = 1\nbudget_usd = 3.0")
    ran = lab.tbench("run", file)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    counts = [o for found in lab.outcomes().values() for o in found]
    assert counts.count("failed") == 3
    assert counts.count("not_run") == 5
    assert "the budget of $3.00 is used up ($3.00 spent)" in ran.stdout
    assert "raise run.budget_usd in the experiment file" in ran.stdout
    assert gate(lab)["spent_usd"] == pytest.approx(3.0)
    again = lab.tbench("resume", file)
    assert again.returncode == 3
    assert [o for found in lab.outcomes().values() for o in found].count("failed") == 3
    lab.experiment(profile, run="attempts = 4\nparallel = 1\nbudget_usd = 20.0")
    ran = lab.tbench("resume", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [o for found in lab.outcomes().values() for o in found] == ["failed"] * 8
    assert gate(lab)["spent_usd"] == pytest.approx(8.0)
    assert "superseded" not in ran.stdout


def test_a_budget_smaller_than_the_guess_is_still_used(lab) -> None:
    """Side by side, nothing fits beside the first trial while its cost is a guess: the others wait, and then run."""
    profiles = scripted("p", cost_usd=0.1, sleep_sec=0.5) + scripted("q", cost_usd=0.1, sleep_sec=0.5)
    ran = lab.tbench("run", lab.experiment(profiles, run="attempts = 2\nparallel = 2\nbudget_usd = 0.75"))
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert gate(lab)["spent_usd"] == pytest.approx(0.7)
    assert gate(lab).get("reserved", {}) == {}
    waits = {(e.error, e.detail["cause"]) for e in lab.events() if e.kind == "trial_waiting"}
    assert waits == {("running trials hold the rest of the budget of $0.75", "budget")}
    reasons = {e["reason"] for e in lab.index() if e["outcome"] == "not_run"}
    assert reasons == {"the budget of $0.75 is used up ($0.70 spent; another trial probably costs $0.10)"}


def test_what_a_killed_harbor_had_reserved_does_not_hold_the_others(lab) -> None:
    file = lab.experiment(
        scripted("p", cost_usd=1.0, free=0), tasks=("a",), run="attempts = 4\nparallel = 1\nbudget_usd = 2.5"
    )
    process = lab.start("run", file)
    wait_for(lambda: at_work(lab) == 1, process)
    (worker,) = (lab.batch().folder / "workers").glob("*.json")
    os.kill(json.loads(worker.read_text())["pid"], signal.SIGKILL)
    lab.go()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 3, out + err
    state = gate(lab)
    assert (state.get("reserved", {}), state["priced"]) == ({}, 1)
    assert state["spent_usd"] == pytest.approx(2.0), "the guess for the one that was cut off, and what is known"
    assert lab.outcomes()["p", "a"].count("failed") == 1


def test_profiles_that_had_no_turn_are_not_run(lab) -> None:
    profiles = scripted("p", cost_usd=1.0) + scripted("q", cost_usd=1.0)
    file = lab.experiment(profiles, run="profiles_parallel = 1\nparallel = 1\nbudget_usd = 1.0")
    ran = lab.tbench("run", file)
    assert ran.returncode == 3, ran.stdout
    assert lab.outcomes()["q", "a"] == ["not_run"]
    reasons = {e["reason"] for e in lab.index() if e["outcome"] == "not_run"}
    assert reasons == {"the budget of $1.00 is used up ($1.00 spent)"}


def test_a_declared_price_counts_in_the_gate_and_in_every_trial_read_later(lab) -> None:
    """Tries that broke too; a profile of price 0 is beside the budget, whatever its agent says it cost."""
    priced = scripted("p", tokens=[1_000_000, 100_000], outage="no") + "price = { input = 0.5, output = 5.0 }\n"
    own = scripted("own", cost_usd=7.0) + "price = 0\n" + scripted("silent") + "price = 0\n"
    run = "attempts = 2\nparallel = 1\nprofiles_parallel = 1\nretries = 1\nbudget_usd = 3.0"
    ran = lab.tbench("run", lab.experiment(priced + own, run=run))
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "the budget of $3.00 is used up ($3.00 spent)" in ran.stdout
    state = gate(lab)
    assert (state["spent_usd"], state["costs"], state.get("priced", 0)) == (3.0, {"p": {"trials": 3, "usd": 3.0}}, 0)
    assert list(lab.batch().superseded.glob("*/*-try1/planned.json"))
    for key in ("own", "silent"):
        assert [o for place, found in lab.outcomes().items() if place[0] == key for o in found] == ["failed"] * 4
    ended = [e.usage for e in lab.events() if e.kind == "trial_ended"]
    assert sorted((u.cost_usd, u.cost_source) for u in ended if u) == [(0.0, "declared")] * 8 + [(1.0, "declared")] * 3
    read = [(e["agent_key"], e["cost_usd"]) for e in lab.index() if e["outcome"] != "not_run"]
    assert sorted(read) == [("own", 0.0)] * 4 + [("p", 1.0)] * 3 + [("silent", 0.0)] * 4


def test_retries_and_unknown_costs_count_against_the_budget(lab) -> None:
    """Two simulated profiles side by side that crash now and then: every try is on disk, and every try was counted."""
    options = "tokens_mean = 20000.0, cost_per_mtok_usd = 50.0, error_probability = 0.4, delay_sec = [0.2, 0.5]"
    profiles = "".join(
        f'[profiles.{key}]\nagent = "simulated"\noptions = {{ {options}, seed = {seed} }}\n'
        for key, seed in (("p", 1), ("q", 2))
    )
    profiles += '[profiles.free]\nagent = "oracle"\n'  # calls no model: beside the budget
    file = lab.experiment(profiles, run="attempts = 3\nparallel = 2\nretries = 1\nbudget_usd = 4.0")
    ran = lab.tbench("run", file)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "the budget of $4.00 is used up" in ran.stdout
    assert {entry["outcome"] for entry in lab.index() if entry["agent_key"] == "free"} == {"passed"}
    each = {r["id"]: (r.get("agent_result") or {}).get("cost_usd") for _, r in results(lab.batch().folder)}
    known = [cost for cost in each.values() if cost is not None]
    state = gate(lab)
    assert sum(told["trials"] for told in state["costs"].values()) == len(known)
    assert sum(told["usd"] for told in state["costs"].values()) == pytest.approx(sum(known))
    assert list(lab.batch().superseded.glob("*/*-try1"))
    assert 0 < sum(known) <= state["spent_usd"] + 1e-9 <= 4.0 + 4 * max(*known, 1.0) + 1e-9
    listed = sum(entry["cost_usd"] or 0 for entry in lab.index())
    assert listed == pytest.approx(sum(known))
    lab.experiment(profiles, run="attempts = 3\nparallel = 2\nretries = 1\nbudget_usd = 100.0")
    again = lab.tbench("resume", file, "--retry-errors")
    assert again.returncode in (0, 3), again.stdout + again.stderr
    assert "not_run" not in {entry["outcome"] for entry in lab.index()}
    assert sum(entry["cost_usd"] or 0 for entry in lab.index()) == pytest.approx(cost(lab.batch().folder))


CLOCK = """
import os
import time

_real = time.time
time.time = lambda: _real() + ({offset} if os.path.exists({flag!r}) else 0)
"""


@pytest.mark.parametrize(("offset", "limit_sec"), [(86400.0, 3600.0), (-86400.0, 8.0)])
def test_a_clock_that_jumps_neither_ends_nor_extends_a_run(lab, offset: float, limit_sec: float) -> None:
    """The time of day jumps by a day in every process of the run, once a trial has begun. Running trials finish."""
    flag = lab.root / "jumped"
    lab.project.write("jump/sitecustomize.py", CLOCK.format(offset=offset, flag=str(flag)))
    lab.env["PYTHONPATH"] = str(lab.root / "jump")
    lab.fresh = True
    forward = offset > 0
    run = f"attempts = {3 if forward else 30}\nparallel = 1\nrun_timeout_sec = {limit_sec}"
    process = lab.start("run", lab.experiment(scripted("p", sleep_sec=0.5), tasks=("a",), run=run))
    wait_for(lambda: running(lab) or process.poll() is not None)
    flag.touch()
    out, err = process.communicate(timeout=LIMIT_SEC)
    outcomes = lab.outcomes()["p", "a"]
    assert set(outcomes) <= {"failed", "not_run"}, err
    assert ("not_run" in outcomes) != forward
    assert ("the deadline (run.run_timeout_sec) has passed" in out) != forward
