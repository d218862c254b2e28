"""What a training rests on is checked before a trial is paid: profiles, tasks, and the batches of earlier nights."""

import pytest

from support.experiments import Project
from terminalbench.errors import UserError
from terminalbench.trainer.lineage import LineageStore, Why
from terminalbench.trainer.plan import load_plan
from terminalbench.trainer.run import run_training

PLAN = """
schema_version = 1
slug = "mine"
environment = "starter"
nights = 4
[profile]
agent = "simulated"
model = "m"
[run]
container_env = "local"
[split]
train = 0.2
dev = 0.6
[budget]
trials = 60
[[variants]]
reason = "r"
sections = { "A" = "Read twice." }
"""


def test_a_profile_whose_table_was_edited_is_not_measured(project: Project) -> None:
    plan = load_plan(project.write("plan.toml", PLAN))
    store = LineageStore(plan.root)
    first = store.add("mine", plan.start, reason="r", source="s")
    store.crown("mine", first.id, Why.STARTED, reason="r")
    store.log.write_text(store.log.read_text().replace('"model":"m"', '"model":"stronger"', 1))
    with pytest.raises(UserError, match=f"profile {first.id} is no longer what was recorded: model: m -> stronger"):
        run_training(plan)
    assert not (plan.root / "results").exists()
