"""`tbench resume --top-up`: attempts go where profiles are unstable, under the declared rule, until it is fulfilled."""

import json

from support.tasks import BOTH
from terminalbench.experiments.plan import Plan
from terminalbench.json_files import read_json

LUCKY = """
[profiles.steady]
agent = "simulated"
options = { solve_probability = 1.0, cost_per_mtok_usd = 50.0, steps_mean = 2 }
[profiles.lucky]
agent = "simulated"
options = { solve_probability = { a = 0.5, b = 1.0 }, seed = 3, cost_per_mtok_usd = 50.0, steps_mean = 2 }
"""
RULE = "[top_up]\ninterval_width = 0.01\nmax_attempts = 3\ntrials_per_round = 4\n"


def attempts(lab) -> dict[tuple[str, str], int]:
    return {cell: len(outcomes) for cell, outcomes in lab.outcomes().items()}


def test_attempts_are_added_where_luck_decides_until_the_budget_or_the_rule_says_enough(lab) -> None:
    file = lab.experiment(LUCKY + RULE, run="attempts = 2\nparallel = 2")
    assert lab.tbench("run", file).returncode == 0
    assert set(attempts(lab).values()) == {2}
    spent = sum(entry["cost_usd"] for entry in lab.index())
    lab.experiment(LUCKY + RULE, run=f"attempts = 2\nparallel = 1\nbudget_usd = {spent * 1.2:.2f}")
    ran = lab.tbench("resume", file, "--top-up")
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "top-up ends: the budget of" in ran.stderr
    assert 8 < sum(o in ("passed", "failed") for found in lab.outcomes().values() for o in found) < 12
    lab.experiment(LUCKY + RULE, run="attempts = 2\nparallel = 2\nbudget_usd = 1000.0")
    ran = lab.tbench("resume", file, "--top-up")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    grown = attempts(lab)
    assert grown["lucky", "a"] == grown["steady", "a"] == 3
    assert max(grown.values()) <= 3
    assert all(o in ("passed", "failed") for found in lab.outcomes().values() for o in found)
    notes = [event.detail["top_up"] for event in lab.events() if "top_up" in event.detail]
    assert notes
    assert notes[0]["added"][0]["task"] == "a", "the unstable task comes first"
    assert "top-up ends: every task that could help has 3 attempts" in ran.stderr
    plan: Plan = read_json(lab.batch().plan_json, Plan)
    assert plan.top_up is not None
    assert plan.top_up.max_attempts == 3
    assert not plan.departures
    again = lab.tbench("resume", file, "--top-up", "--json")
    assert again.returncode == 0
    assert len(json.loads(again.stdout)["cells"]) == sum(grown.values()), "nothing more to add"


def test_no_rule_means_no_top_up_and_one_declared_late_is_a_departure(done) -> None:
    lab, file = done.lab, done.file
    refused = lab.tbench("resume", file, "--top-up")
    assert refused.returncode == 2
    assert "has no [top_up] rule" in refused.stderr
    lab.experiment(BOTH + RULE.replace("max_attempts = 3", "max_attempts = 2"))
    ran = lab.tbench("resume", file, "--top-up")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    late = read_json(lab.batch().plan_json, Plan)
    assert list(map(str, late.departures)) == ["top-up: the rule was declared after the batch had started"]
    shown = lab.tbench("compare", lab.batch().folder)
    assert "declared after the batch had started" in shown.stdout
    wrong = lab.tbench("resume", file, "--top-up", "--attempts", "9")
    assert wrong.returncode == 2
