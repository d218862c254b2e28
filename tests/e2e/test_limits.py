"""Budget and deadline: running trials finish, nothing new starts, the rest can be resumed."""

import json

import pytest
from test_run import scripted


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


def test_the_budget_is_shared_by_profiles_side_by_side(lab) -> None:
    profiles = scripted("p", cost_usd=1.0, sleep_sec=0.3) + scripted("q", cost_usd=1.0, sleep_sec=0.3)
    profiles += '[profiles.free]\nagent = "oracle"\n'
    file = lab.experiment(profiles, run="attempts = 4\nparallel = 2\nbudget_usd = 6.0")
    ran = lab.tbench("run", file)
    assert ran.returncode == 3
    assert gate(lab)["spent_usd"] <= 6.0 + 4 * 1.0
    measured = [e for e in lab.index() if e["outcome"] in ("passed", "failed") and e["agent_key"] != "free"]
    assert len(measured) == pytest.approx(gate(lab)["spent_usd"])


def test_a_deadline_lets_running_trials_finish(lab) -> None:
    file = lab.experiment(scripted("p", sleep_sec=2.0), run="attempts = 5\nparallel = 1\nrun_timeout_sec = 3.0")
    ran = lab.tbench("run", file)
    assert ran.returncode in (1, 3), ran.stdout + ran.stderr
    outcomes = [o for found in lab.outcomes().values() for o in found]
    assert set(outcomes) <= {"failed", "not_run"}
    assert "not_run" in outcomes
    assert "the deadline (run.run_timeout_sec) has passed" in ran.stdout


def test_profiles_that_had_no_turn_are_not_run(lab) -> None:
    profiles = scripted("p", cost_usd=1.0) + scripted("q", cost_usd=1.0)
    file = lab.experiment(profiles, run="profiles_parallel = 1\nparallel = 1\nbudget_usd = 1.0")
    ran = lab.tbench("run", file)
    assert ran.returncode == 3, ran.stdout
    assert lab.outcomes()["q", "a"] == ["not_run"]
    reasons = {e["reason"] for e in lab.index() if e["outcome"] == "not_run"}
    assert reasons == {"the budget of $1.00 is used up ($1.00 spent)"}
