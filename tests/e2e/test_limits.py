"""Budget and deadline: running trials finish, nothing new starts, the rest can be resumed."""

import json
import os
import signal
import time
from collections import Counter
from datetime import UTC, datetime

import pytest
from test_run import at_work, scripted, wait_for

from support.aftermath import cost, results
from support.pace import seconds
from support.tasks import AGENTS
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.site import Site
from terminalbench.harbor.limits.accounts import KnownCost
from terminalbench.harbor.limits.gate import Gate, GateState


def gate(lab) -> GateState:
    return Gate(lab.batch().gate_json).read()


def counts(lab, profile: str) -> Counter[str]:
    return Counter(o for (key, _), found in lab.outcomes().items() if key == profile for o in found)


def test_sixteen_slots_at_ten_dollars_do_not_spend_a_budget_of_sixteen_ten_times(lab) -> None:
    """One trial tells what it costs before the others may start. What is exceeded is said, and is no success."""
    file = lab.experiment(
        scripted("p", cost_usd=10.0), tasks=("a",), run="attempts = 16\nparallel = 16\nbudget_usd = 16.0"
    )
    ran = lab.tbench("run", file)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert counts(lab, "p") == {"failed": 1, "not_run": 15}
    assert cost(lab.batch().folder) == 10.0
    said = "the budget of $16.00 is used up ($10.00 spent; another trial costs about $10.00)"
    assert {e["reason"] for e in lab.index() if e["outcome"] == "not_run"} == {said}
    waits = {(e.error, e.detail["cause"]) for e in lab.events() if e.kind == "trial_waiting"}
    assert waits == {
        ("the cost of a trial of p is unknown: one trial at a time until the first one reports it", "first_cost")
    }
    # The next batch knows it from the first one, and starts two of them at once where there is room for two.
    lab.experiment(scripted("p", cost_usd=10.0), tasks=("a",), run="attempts = 2\nparallel = 16\nbudget_usd = 19.0")
    planned = lab.tbench("plan", file)
    assert "p: a trial costs about $10.00 (1 earlier trial of the same profile)" in planned.stdout
    lab.experiment(
        scripted("p", cost_usd=10.0) + "likely_cost_usd = 1.0\n",
        tasks=("a",),
        run="attempts = 2\nparallel = 16\nbudget_usd = 19.0",
    )
    ran = lab.tbench("run", file)
    over = "the budget of $19.00 is exceeded by $1.00 ($20.00 spent)"
    assert ran.returncode == 100, "complete, and the budget did not hold"
    assert over in ran.stdout
    again = lab.tbench("resume", lab.batch(1).folder, "--json")
    assert again.returncode == 100
    assert json.loads(again.stdout)["budget"] == {
        "budget_usd": 19.0, "cost_usd": 20.0, "cost_unknown": 0, "over_usd": 1.0
    }  # fmt: skip
    assert lab.tbench("report", lab.batch(1).folder).returncode == 0
    for name in ("comparison_report.md", "report.html"):
        assert over in (lab.batch(1).analytics / name).read_text().replace("\\", ""), name
    assert "over budget by $1.00" in lab.tbench("list").stdout
    page = answer(Site(lab.root / "results", lambda: datetime.now(UTC)), "batches/s/1/", {}).body or b""
    assert "over budget by $1.00" in page.decode()


def test_a_dear_profile_does_not_shut_out_a_cheap_one(lab) -> None:
    """Two of eight dollars were left, none of the cheap trials had run, and no resume changed that."""
    dear = scripted("dear", cost_usd=3.0)
    file = lab.experiment(
        dear + scripted("cheap", cost_usd=0.1, sleep_sec=0.2),
        tasks=("a",),
        run="attempts = 3\nparallel = 4\nbudget_usd = 8.0",
    )
    ran = lab.tbench("run", file)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert counts(lab, "cheap") == {"failed": 3}
    assert counts(lab, "dear") == {"failed": 2, "not_run": 1}, "its half, and what the cheap one left of the other"
    said = "the budget of $8.00 is used up ($6.30 spent; another trial costs about $3.00)"
    assert {e["reason"] for e in lab.index() if e["outcome"] == "not_run"} == {said}


def test_a_profile_that_ran_before_the_others_comes_back_for_what_they_leave(lab) -> None:
    profiles = scripted("dear", cost_usd=3.0) + scripted("cheap", cost_usd=0.1)
    run = "attempts = 3\nparallel = 2\nprofiles_parallel = 1\nbudget_usd = 8.0"
    ran = lab.tbench("run", lab.experiment(profiles, tasks=("a",), run=run))
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert (counts(lab, "cheap"), counts(lab, "dear")) == ({"failed": 3}, {"failed": 2, "not_run": 1})
    started = [event.profile for event in lab.events() if event.kind == "job_started"]
    assert started == ["dear", "cheap", "dear"]
    held = {event.error for event in lab.events() if event.kind == "trial_held" and "share" in (event.error or "")}
    assert held == {
        "the share of dear in the budget of $8.00 is used up ($3.00 spent; another trial costs about "
        "$3.00); the rest is reserved for cheap"
    }


def test_a_budget_stops_launching_and_resume_goes_on_with_a_larger_one(lab) -> None:
    profile = scripted("p", cost_usd=1.0)
    file = lab.experiment(profile, run="attempts = 2\nparallel = 1\nbudget_usd = 2.0")
    ran = lab.tbench("run", file)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert counts(lab, "p") == {"failed": 2, "not_run": 2}
    assert "the budget of $2.00 is used up ($2.00 spent)" in ran.stdout
    assert "raise run.budget_usd in the experiment file" in ran.stdout
    assert gate(lab).known_usd == pytest.approx(2.0)
    again = lab.tbench("resume", file)
    assert again.returncode == 3
    assert [o for found in lab.outcomes().values() for o in found].count("failed") == 2
    lab.experiment(profile, run="attempts = 2\nparallel = 1\nbudget_usd = 20.0")
    ran = lab.tbench("resume", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [o for found in lab.outcomes().values() for o in found] == ["failed"] * 4
    assert gate(lab).known_usd == pytest.approx(4.0)
    assert "superseded" not in ran.stdout


def test_a_budget_smaller_than_the_guess_is_still_used(lab) -> None:
    """Nothing starts beside the first trial of a profile while its cost is unknown: the others wait, and then run."""
    profiles = scripted("p", cost_usd=0.1, sleep_sec=0.5) + scripted("q", cost_usd=0.1, sleep_sec=0.5)
    ran = lab.tbench("run", lab.experiment(profiles, tasks=("a",), run="attempts = 2\nparallel = 2\nbudget_usd = 0.35"))
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert gate(lab).known_usd == pytest.approx(0.3)
    assert not any(account.running for account in gate(lab).accounts.values())
    waits = {e.detail["cause"] for e in lab.events() if e.kind == "trial_waiting"}
    assert "first_cost" in waits
    reasons = {e["reason"] for e in lab.index() if e["outcome"] == "not_run"}
    assert reasons == {"the budget of $0.35 is used up ($0.30 spent; another trial costs about $0.10)"}


def test_what_a_killed_harbor_had_reserved_does_not_hold_the_others(lab) -> None:
    file = lab.experiment(
        scripted("p", cost_usd=1.0, free=0), tasks=("a",), run="attempts = 4\nparallel = 1\nbudget_usd = 2.5"
    )
    process = lab.start("run", file)
    wait_for(lambda: at_work(lab) == 1, process)
    (worker,) = (lab.batch().folder / "workers").glob("*.json")
    os.kill(json.loads(worker.read_text())["pid"], signal.SIGKILL)
    lab.go()
    out, err = process.communicate(timeout=seconds(200))
    assert process.returncode == 3, out + err
    state = gate(lab)
    assert (state.account("p").running, state.unknown, state.known_usd) == ({}, 1, 1.0)
    assert lab.outcomes()["p", "a"].count("failed") == 1
    said = "($1.00 spent and 1 try of unknown cost, taken as $1.00; another trial costs about $1.00)"
    assert said in " ".join(out.split())


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
    ran = lab.tbench("run", lab.experiment(priced + own, tasks=("a",), run=run))
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "the budget of $3.00 is used up ($3.00 spent)" in ran.stdout
    state = gate(lab)
    assert (state.account("p").known, state.unknown, list(state.accounts)) == (KnownCost(3, 3.0), 0, ["p"])
    assert list(lab.batch().superseded.glob("*/*-try1/planned.json"))
    for key in ("own", "silent"):
        assert [o for place, found in lab.outcomes().items() if place[0] == key for o in found] == ["failed"] * 2
    ended = [e.usage for e in lab.events() if e.kind == "trial_ended"]
    assert sorted((u.cost_usd, u.cost_source) for u in ended if u) == [(0.0, "declared")] * 4 + [(1.0, "declared")] * 3
    read = [(e["agent_key"], e["cost_usd"]) for e in lab.index() if e["outcome"] != "not_run"]
    assert sorted(read) == [("own", 0.0)] * 2 + [("p", 1.0)] * 3 + [("silent", 0.0)] * 2


def test_retries_and_unknown_costs_count_against_the_budget(lab) -> None:
    """Two simulated profiles side by side that crash now and then: every try is on disk, and every try was counted."""
    options = "steps_mean = 2, tokens_mean = 20000.0, cost_per_mtok_usd = 50.0, error_probability = 0.4, delay_sec = [0.2, 0.5]"
    profiles = "".join(
        f'[profiles.{key}]\nagent = "simulated"\noptions = {{ {options}, seed = {seed} }}\n'
        for key, seed in (("p", 1), ("q", 2))
    )
    profiles += '[profiles.free]\nagent = "oracle"\n'  # calls no model: beside the budget
    run = "attempts = 3\nparallel = 2\nretries = 1\nbudget_usd = "
    file = lab.experiment(profiles, tasks=("a",), run=f"{run}2.0")
    ran = lab.tbench("run", file)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "the budget of $2.00 is used up" in ran.stdout
    assert {entry["outcome"] for entry in lab.index() if entry["agent_key"] == "free"} == {"passed"}
    each = {r["id"]: (r.get("agent_result") or {}).get("cost_usd") for _, r in results(lab.batch().folder)}
    known = [cost for cost in each.values() if cost is not None]
    state = gate(lab)
    assert state.known_usd == pytest.approx(sum(known))
    assert list(lab.batch().superseded.glob("*/*-try1"))
    assert 0 < sum(known) <= state.spent_usd + 1e-9 <= 2.0 + 4 * max(*known, 1.0) + 1e-9
    listed = sum(entry["cost_usd"] or 0 for entry in lab.index())
    assert listed == pytest.approx(sum(known))
    lab.experiment(profiles, tasks=("a",), run=f"{run}100.0")
    again = lab.tbench("resume", file, "--retry-errors")
    assert again.returncode in (0, 3), again.stdout + again.stderr
    assert "not_run" not in {entry["outcome"] for entry in lab.index()}
    assert sum(entry["cost_usd"] or 0 for entry in lab.index()) == pytest.approx(cost(lab.batch().folder))


CLOCK = """
import time as clock

_real = clock.time
clock.time = lambda: _real() + ({offset} if Path({flag!r}).exists() else 0)


class Jumps(Scripted):
    async def run(self, instruction, environment, context) -> None:
        Path({flag!r}).touch()
        await super().run(instruction, environment, context)
"""


@pytest.mark.parametrize(("offset", "limit_sec"), [(86400.0, 3600.0), (-86400.0, 8.0)])
def test_a_clock_that_jumps_neither_ends_nor_extends_a_run(lab, monkeypatch, offset: float, limit_sec: float) -> None:
    """The time of day jumps by a day in `tbench` and in Harbor, once a trial has begun. Running trials finish."""
    flag, real = lab.root / "jumped", time.time
    lab.project.write("lab_agents.py", AGENTS + CLOCK.format(offset=offset, flag=str(flag)))
    forward = offset > 0
    run = f"attempts = {2 if forward else 6}\nparallel = 1\nrun_timeout_sec = {limit_sec}"
    profile = scripted("p", sleep_sec=0.5 if forward else 3.0).replace("Scripted", "Jumps")
    monkeypatch.setattr(time, "time", lambda: real() + (offset if flag.exists() else 0))
    ran = lab.tbench("run", lab.experiment(profile, tasks=("a",), run=run))
    outcomes = lab.outcomes()["p", "a"]
    assert set(outcomes) <= {"failed", "not_run"}, ran.stderr
    assert ("not_run" in outcomes) != forward
    assert ("the deadline (run.run_timeout_sec) has passed" in ran.stdout) != forward
