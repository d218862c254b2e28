"""A lesson that was written by hand stands in the prompt of an agent, as a model server received it; and in the index."""

import json
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from servers.base import Turn
from servers.ollama import OllamaServer
from support.experiments import Project
from support.tasks import SOLVE
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import load
from terminalbench.experiments.lessons import draw
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.planner import plan_with_lessons
from terminalbench.index.exposures import exposed_trials
from terminalbench.json_files import read_json

MODEL = "small:1b"
LESSON = "Write the answer {{ once }} and {read} it again: naïve café $HOME 100%."
OWN = "Write the answer in small letters."
EXPERIMENT = """
schema_version = 2
slug = "s"
[run]
container_env = "local"
attempts = 2
parallel = 2
seed = 4
[tasks]
default_dataset = "tasks"
items = [{{ id = "a", family = "one" }}, {{ id = "b" }}]
[profiles.off]
agent = "ollama"
model = "{model}"
options = {{ base_url = "{url}" }}
[profiles.masked]
extends = "off"
lessons = {{ mode = "masked", k = 2, budget = {budget} }}
[profiles.recall]
extends = "off"
lessons = {{ mode = "recall", k = 2, budget = {budget} }}
"""


def lucky_experiment(lab: Any, url: str) -> Path:
    """The experiment, with a budget of tokens by whose luck lessons are both shown and withheld: ids of lessons are drawn."""
    batch = Batch(lab.root / "results" / "s" / "0")
    for budget in range(400, 500):
        file = lab.project.experiment(EXPERIMENT.format(model=MODEL, url=url, budget=budget))
        with lab.inside():
            planned = plan_with_lessons(load(file), batch, datetime.now(UTC)).experiment
        drawn = {
            one.key: [
                exposure
                for place in one.snapshot.tasks
                for attempt in (1, 2)
                for exposure in draw(one.snapshot, one.snapshot.digest, place, attempt, "4 s/0").exposures
            ]
            for one in planned.profiles
            if one.snapshot is not None
        }
        both = {one.shown for one in drawn["masked"]} == {True, False}
        if both and any(one.own and one.shown for one in drawn["recall"]):
            return file
    raise AssertionError("no luck")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, new_lab: Callable[[Project], Any]) -> Generator[tuple[Any, Any, str]]:
    """A batch with and without lessons, of which the second comes from task `a`; its server, and the id of the first."""
    root = tmp_path_factory.mktemp("lessons")
    lab = new_lab(Project(root))
    for task in "ab":
        (root / "tasks" / task / "instruction.md").write_text(f"Task {task}: write the answer to /app/answer.txt.\n")
    script = [Turn(tools=[("bash", {"command": SOLVE})]), Turn(tools=[("finish", {})])]
    with OllamaServer(script, model=MODEL) as server:
        first, second = (
            json.loads(lab.tbench("memory", "add", "--by", "ann", "--json", *more).stdout)
            for more in (("--do", LESSON), ("--do", OWN, "--task-folder", "tasks/a"))
        )
        if second["lesson"]["state"] != "active":
            assert lab.tbench("memory", "approve", second["lesson"]["id"], "--by", "ann").returncode == 0
        file = lucky_experiment(lab, server.url)
        done = lab.tbench("run", file)
        assert done.returncode == 0, done.stdout + done.stderr
        yield lab, server, first["lesson"]["id"]


def told(server: OllamaServer) -> list[tuple[int, str]]:
    """The attempt and the prompt of each trial: of its first request, whose seed is another for each attempt."""
    bodies = [request.body for request in server.native_chats]
    first = [body for body in bodies if [m["role"] for m in body["messages"]] == ["system", "user"]]
    return [(body["options"]["seed"] - 3, body["messages"][1]["content"]) for body in first]


def test_what_the_model_received_is_what_was_drawn(ran: tuple[Any, Any, str]) -> None:
    lab, server, first = ran
    prompts = told(server)
    assert len(prompts) == 12
    trials = exposed_trials(lab.root / "results")
    assert len(trials) == 8
    for trial in trials:
        texts = {one.lesson: LESSON if one.lesson == first else OWN for one in trial.exposures}
        shown = {texts[one.lesson] for one in trial.exposures if one.shown}
        alike = [p for n, p in prompts if n == trial.attempt and f"Task {trial.task}:" in p]
        assert any({text for text in (LESSON, OWN) if text in prompt} == shown for prompt in alike), trial
        assert (trial.outcome, trial.mode) == ("passed", trial.profile)
        assert {one.propensity for one in trial.exposures} == {0.7}
    masked = [trial for trial in trials if trial.profile == "masked"]
    assert {len(trial.exposures) for trial in masked if trial.task == "a"} == {1}
    assert {one.shown for trial in masked for one in trial.exposures} == {True, False}
    plain = sum("lessons-" not in prompt for _, prompt in prompts)
    assert plain == 4 + sum(not any(one.shown for one in trial.exposures) for trial in trials)
    assert sum(LESSON in prompt for _, prompt in prompts) == sum(
        one.shown for trial in trials for one in trial.exposures if one.lesson == first
    )


def test_a_query_shows_that_no_masked_trial_saw_its_own_task(ran: tuple[Any, Any, str]) -> None:
    lab, _, _ = ran
    asked = "SELECT mode, sum(own), sum(own AND shown) > 0 FROM exposures GROUP BY mode ORDER BY mode"
    rows = json.loads(lab.tbench("query", asked, "--json").stdout)
    assert [list(row.values()) for row in rows] == [["masked", 0, 0], ["recall", 2, 1]]


def test_the_agent_is_itself_in_every_file(ran: tuple[Any, Any, str]) -> None:
    lab, _, _ = ran
    rows = json.loads(lab.tbench("query", "SELECT DISTINCT agent, model, usage_source FROM trials", "--json").stdout)
    assert len(rows) == 1, rows
    assert (rows[0]["agent"], rows[0]["model"]) == ("ollama", MODEL)
    plan = read_json(lab.batch().plan_json, Plan)
    assert len({job.profile_id for job in plan.jobs}) == 3
    trial = next(lab.batch().runs.glob("*__masked/a__*"))
    shown = lab.tbench("show", trial)
    assert "1 of 1 lesson" in shown.stdout or "0 of 1 lesson" in shown.stdout, shown.stdout


def test_a_resume_draws_the_same_whatever_memory_holds_by_then(ran: tuple[Any, Any, str]) -> None:
    lab, server, first = ran
    batch = lab.batch()
    before = {(t.profile, t.task, t.attempt): t.exposures for t in exposed_trials(lab.root / "results")}
    plan = read_json(batch.plan_json, Plan)
    assert lab.tbench("memory", "retire", first, "--reason", "test", "--by", "ann").returncode == 0
    for result in sorted(batch.runs.glob("*__masked/*/result.json"))[:3]:
        result.unlink()
    asked = len(told(server))
    file = lab.root / "experiments" / "exp.toml"
    file.write_text(file.read_text() + '[profiles.late]\nagent = "simulated"\nlessons = "recall"\n')
    again = lab.tbench("resume", file)
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(told(server)) == asked + 3
    after = {(t.profile, t.task, t.attempt): t.exposures for t in exposed_trials(lab.root / "results")}
    late = {one.lesson for place, found in after.items() if place[0] == "late" for one in found}
    assert {place: found for place, found in after.items() if place[0] != "late"} == before
    assert len(late) == 1, "a profile that comes later has what memory holds now"
    assert first not in late
    assert read_json(batch.plan_json, Plan).profiles[:3] == plan.profiles
    new = json.loads(lab.tbench("plan", lab.root / "experiments" / "exp.toml", "--json").stdout)
    assert new["profiles"][1]["id"] != plan.profiles[1].id, "a new batch has another treatment"
    assert new["profiles"][1]["policy_id"] == plan.profiles[1].policy_id
    snapshot = batch.lessons("masked")
    kept = snapshot.read_bytes()
    next(batch.runs.glob("*__masked/*/result.json")).unlink()
    for damaged in (kept.replace(b"naive", b"Naive").replace(b"again", b"twice"), None):
        snapshot.unlink()
        if damaged is not None:
            snapshot.write_bytes(damaged)
        refused = lab.tbench("resume", batch.folder)
        assert refused.returncode == 2
        assert str(snapshot) in refused.stderr
        snapshot.write_bytes(kept)
    assert len(told(server)) == asked + 3
