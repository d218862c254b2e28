"""The simulated agent, alone and in real Harbor jobs in the local sandbox."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from harbor.models.trajectories import Trajectory

from starter.jobs import environment_config, once, run_harbor, session_folder, trials
from support.tasks import write_task
from terminalbench.harbor.agents.simulated import (
    AttemptBook,
    AttemptClaim,
    Identity,
    SimulatedAgent,
    SimulatedOptions,
    draw,
    probability_for,
    taught,
)
from terminalbench.harbor.jobs import PLUGIN
from terminalbench.runner.waves import wave_name

AGENT = "terminalbench.harbor.agents.simulated:SimulatedAgent"
QUICK = ["git-one", "git-two", "log-one", "text-one"]
OPTIONS = {"seed": 11, "solve_probability": {"git": 0.8, "*": 0.3}, "error_probability": 0.15, "steps_mean": 3}

pytestmark = pytest.mark.timeout(600)  # whole jobs, on a busy machine


def write_tasks(folder: Path) -> None:
    for name in QUICK:
        toml = write_task(folder / name) / "task.toml"
        family = f'[metadata]\nfamily = "{name.partition("-")[0]}"\n'
        toml.write_text(toml.read_text().replace("[metadata]\n", family))


def job_config(folder: Path, options: dict[str, Any], **more: Any) -> dict[str, Any]:
    tasks = folder / "tasks"
    if "tasks" not in more and not tasks.exists():
        write_tasks(tasks)
    names = more.pop("task_ids", QUICK)
    return {
        "job_name": "job",
        "jobs_dir": str(folder),
        "n_concurrent_trials": 4,
        "quiet": True,
        "environment": environment_config(),
        "agents": [{"import_path": AGENT, "model_name": "lab/pretend-1", "kwargs": options}],
        "tasks": [{"path": str(tasks / name), "source": "tests"} for name in names],
        **more,
    }


def facts(result: dict[str, Any]) -> tuple[Any, ...]:
    """What must be the same whenever the job is run again: no names, no times."""
    agent, error = result["agent_result"], result["exception_info"]
    rewards = (result["verifier_result"] or {}).get("rewards")
    metadata = agent["metadata"]
    return (
        result["task_name"], metadata["attempt"], metadata["intended"], rewards and rewards["reward"],
        error and error["exception_type"], agent["n_input_tokens"], agent["n_output_tokens"], agent["cost_usd"],
    )  # fmt: skip


def trajectory(folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    return json.loads((folder / "job" / result["trial_name"] / "agent" / "trajectory.json").read_text())


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder for Harbor that the tests of this session share, so that environments are built only once."""
    return session_folder(tmp_path_factory) / "home"


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Path:
    """A job of 8 trials: some solve, some fail, some crash."""

    def produce(folder: Path) -> None:
        run_harbor(folder, job_config(folder, OPTIONS, n_attempts=2), home=home)

    return once(session_folder(tmp_path_factory) / "simulated", produce)


class TestJob:
    def test_each_trial_ends_as_its_luck_says(self, job: Path) -> None:
        options = SimulatedOptions.model_validate(OPTIONS)
        found = trials(job)
        assert len(found) == 8
        for result in found:
            name, attempt, intended, reward, error, *_ = facts(result)
            luck = draw(options, Identity("lab/pretend-1", name, attempt), 0.8 if "/git-" in name else 0.3)
            assert intended == ("crash" if luck.crash_step else "solve" if luck.solves else "fail")
            assert reward == {"crash": None, "solve": 1, "fail": 0}[intended]
            assert error == ("SimulatedOutage" if luck.crash_step else None)
        assert set(Counter(facts(result)[2] for result in found)) == {"crash", "solve", "fail"}

    def test_the_attempts_of_a_task_are_numbered_and_differ(self, job: Path) -> None:
        attempts: dict[str, list[tuple[Any, ...]]] = {}
        for result in trials(job):
            attempts.setdefault(result["task_name"], []).append(facts(result))
        assert len(attempts) == len(QUICK)
        for found in attempts.values():
            assert sorted(item[1] for item in found) == [1, 2]
            assert len({item[5:] for item in found}) == 2

    def test_every_trial_says_it_is_simulated(self, job: Path) -> None:
        for result in trials(job):
            assert result["agent_info"]["name"] == "simulated"
            assert result["agent_result"]["metadata"]["simulated"] is True
            assert result["agent_result"]["metadata"]["cost_is_simulated"] is True
            recorded = trajectory(job, result)
            assert recorded["extra"]["simulated"] is True
            assert recorded["agent"]["extra"]["simulated"] is True
            assert recorded["final_metrics"]["extra"]["simulated"] is True

    def test_trajectories_are_valid_and_agree_with_the_result(self, job: Path) -> None:
        for result in trials(job):
            recorded = Trajectory.model_validate(trajectory(job, result))
            agent = result["agent_result"]
            steps = [step for step in recorded.steps if step.source == "agent"]
            metrics = [step.metrics for step in steps if step.metrics is not None]
            assert len(metrics) == len(steps)
            assert recorded.final_metrics is not None
            assert recorded.final_metrics.total_steps == len(recorded.steps)
            if not steps:  # it crashed before its first step: nothing is known of tokens and cost
                assert (agent["n_input_tokens"], agent["cost_usd"]) == (None, None)
                continue
            assert sum(item.prompt_tokens or 0 for item in metrics) == agent["n_input_tokens"]
            assert sum(item.completion_tokens or 0 for item in metrics) == agent["n_output_tokens"]
            assert sum(item.cached_tokens or 0 for item in metrics) == agent["n_cache_tokens"]
            total = agent["n_input_tokens"] + agent["n_output_tokens"]
            assert agent["cost_usd"] == pytest.approx(total * 3 / 1e6)
            assert sum(item.cost_usd or 0 for item in metrics) == pytest.approx(agent["cost_usd"])
            assert agent["model_usage"]["lab/pretend-1"]["n_input_tokens"] == agent["n_input_tokens"]

    def test_it_really_ran_commands(self, job: Path) -> None:
        for result in trials(job):
            intended = facts(result)[2]
            recorded = trajectory(job, result)
            calls = [step for step in recorded["steps"] if step.get("tool_calls")]
            for step in calls:
                assert step["observation"]["results"][0]["source_call_id"] == step["tool_calls"][0]["tool_call_id"]
            if intended != "crash":
                assert calls[-1]["observation"]["results"][0]["content"].startswith("exit 0\n")
                command = calls[-1]["tool_calls"][0]["arguments"]["command"]
                assert ("/solution/solve.sh" in command) == (intended == "solve")
                assert "tool_calls" not in recorded["steps"][-1]


def test_running_again_gives_the_same(job: Path, home: Path, tmp_path: Path) -> None:
    run_harbor(tmp_path, job_config(tmp_path, OPTIONS, n_attempts=2, task_ids=QUICK[2:]), home=home)
    before = [found for found in map(facts, trials(job)) if found[0].endswith(tuple(QUICK[2:]))]
    assert sorted(map(facts, trials(tmp_path)), key=str) == sorted(before, key=str)


def test_a_resumed_job_ends_as_if_it_had_not_been_stopped(home: Path, tmp_path: Path) -> None:
    config = job_config(tmp_path, {"seed": 5, "steps_mean": 2}, n_attempts=2, task_ids=QUICK[:1])
    run_harbor(tmp_path, config, home=home)
    before = {result["trial_name"]: facts(result) for result in trials(tmp_path)}
    for name in sorted(before)[:1]:
        (tmp_path / "job" / name / "result.json").unlink()
    run_harbor(tmp_path, config, home=home)
    after = {result["trial_name"]: facts(result) for result in trials(tmp_path)}
    assert set(after) != set(before)
    assert sorted(after.values(), key=str) == sorted(before.values(), key=str)


def test_a_retried_crash_has_other_luck(home: Path, tmp_path: Path) -> None:
    retry = {"max_retries": 12, "min_wait_sec": 0.0, "max_wait_sec": 0.0}
    options = {"seed": 5, "solve_probability": 1.0, "error_probability": 0.6}
    run_harbor(tmp_path, job_config(tmp_path, options, retry=retry, n_attempts=2, task_ids=QUICK[:1]), home=home)
    found = trials(tmp_path)
    assert [facts(result)[3] for result in found] == [1.0] * 2
    assert any(result["agent_result"]["metadata"]["retry"] for result in found)
    assert sorted(facts(result)[1] for result in found) == [1, 2]


def test_a_timeout_keeps_what_was_done_so_far(home: Path, tmp_path: Path) -> None:
    config = job_config(tmp_path, {"delay_sec": [30, 30], "steps_mean": 60}, task_ids=QUICK[:1])
    config["agents"][0]["override_timeout_sec"] = 4.0
    run_harbor(tmp_path, config, home=home)
    [result] = trials(tmp_path)
    assert result["exception_info"]["exception_type"] == "AgentTimeoutError"
    assert result["agent_result"]["metadata"]["simulated"] is True
    recorded = Trajectory.model_validate(trajectory(tmp_path, result))
    assert 1 < len(recorded.steps) < 60
    assert recorded.final_metrics is not None
    assert recorded.final_metrics.total_prompt_tokens == result["agent_result"]["n_input_tokens"] > 0


def test_a_task_of_several_steps_is_one_attempt(home: Path, tmp_path: Path) -> None:
    task = tmp_path / "two-steps"
    (task / "environment").mkdir(parents=True)
    (task / "environment" / "Dockerfile").write_text("FROM debian:bookworm-slim\nWORKDIR /app\n")
    (task / "task.toml").write_text(
        'schema_version = "1.4"\n[task]\nname = "lab/two-steps"\n[environment]\nnetwork_mode = "no-network"\n'
        '[metadata]\nhost_base = true\n[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
    )
    for step in ("one", "two"):
        scripts = {
            "instruction.md": f"Write the file {step}.\n",
            "solution/solve.sh": f"#!/bin/bash\necho {step} > /app/{step}\n",
            "tests/test.sh": f"#!/bin/bash\ngrep -c {step} /app/{step} > /logs/verifier/reward.txt\n",
        }
        for name, text in scripts.items():
            path = task / "steps" / step / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    config = job_config(
        tmp_path,
        {"solve_probability": 1.0, "steps_mean": 2},
        n_attempts=2,
        tasks=[{"path": str(task), "source": "lab"}],
    )
    run_harbor(tmp_path, config, home=home)
    attempts = []
    for result in trials(tmp_path):
        steps = result["step_results"]
        assert [step["verifier_result"]["rewards"]["reward"] for step in steps] == [1, 1]
        numbers = {step["agent_result"]["metadata"]["attempt"] for step in steps}
        assert all(step["agent_result"]["metadata"]["simulated"] is True for step in steps)
        assert len(numbers) == 1
        attempts += numbers
    assert sorted(attempts) == [1, 2]


def test_a_task_without_an_entry_is_an_error_of_that_trial_only(home: Path, tmp_path: Path) -> None:
    config = job_config(tmp_path, {"solve_probability": {"git": 1.0}}, task_ids=["git-two", "text-one"])
    run_harbor(tmp_path, config, home=home)
    errors = {result["task_name"]: result["exception_info"] for result in trials(tmp_path)}
    assert errors["tests/git-two"] is None
    assert 'no entry for task "tests/text-one"' in errors["tests/text-one"]["exception_message"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"solve_probabilty": 0.5}, "Unknown option 'solve_probabilty'"),
        ({"solve_probability": 1.5}, "less than or equal to 1"),
        ({"solve_probability": {"a": -0.1}}, "greater than or equal to 0"),
        ({"solve_probability": {}}, "at least one entry"),
        ({"delay_sec": [2, 1]}, "smaller first"),
        ({"delay_sec": 3}, "delay_sec"),
        ({"steps_mean": 1}, "steps_mean"),
        ({"tokens_mean": 0}, "tokens_mean"),
        ({"cost_per_mtok_usd": -1}, "cost_per_mtok_usd"),
        ({"skill_text": {"x": 1.5}}, "less than or equal to 1"),
        ({"skill_text": {" ": 0.1}}, "an empty text is part of every instruction"),
    ],
)
def test_wrong_options_are_refused_before_any_trial(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        SimulatedAgent.preflight(options)


def test_a_wrong_option_ends_the_job_at_once(home: Path, tmp_path: Path) -> None:
    printed = run_harbor(tmp_path, job_config(tmp_path, {"luck": 1}), home=home, status=1)
    assert "Unknown option 'luck'" in printed
    assert trials(tmp_path) == []


def test_a_further_wave_goes_on_with_the_numbers(home: Path, tmp_path: Path) -> None:
    first = "2031-01-02__03-04-05__pretend"
    plugin = ("--plugin", PLUGIN, "--pk", f"events={tmp_path}/events.jsonl")
    for name, attempts in ((first, 2), (wave_name(first, 2), 1), ("2031-01-02__03-04-05__another", 1)):
        config = job_config(
            tmp_path, {"seed": 5, "steps_mean": 2}, n_attempts=attempts, task_ids=QUICK[:1], job_name=name
        )
        run_harbor(tmp_path, config, *plugin, home=home)
    numbers = {
        folder.name: sorted(
            json.loads(path.read_text())["agent_result"]["metadata"]["attempt"] for path in folder.glob("*/result.json")
        )
        for folder in tmp_path.glob("2031*")
    }
    assert numbers[first] == [1, 2]
    assert numbers[wave_name(first, 2)] == [3]
    assert numbers["2031-01-02__03-04-05__another"] == [1]


class TestLuck:
    def test_the_share_of_solved_is_the_probability(self) -> None:
        for chance in (0.1, 0.5, 0.9):
            solved = sum(draw(SimulatedOptions(), Identity("m", f"t{n}", 1), chance).solves for n in range(4000))
            assert solved / 4000 == pytest.approx(chance, abs=0.03)

    def test_never_and_always(self) -> None:
        options = SimulatedOptions(error_probability=1.0)
        for n in range(500):
            identity = Identity("m", "t", n)
            assert not draw(options, identity, 0.0).solves
            luck = draw(options, identity, 1.0)
            assert luck.solves
            assert luck.crash_step is not None
            assert 1 <= luck.crash_step <= luck.steps
            assert draw(SimulatedOptions(), identity, 1.0).crash_step is None

    def test_means(self) -> None:
        options = SimulatedOptions(steps_mean=9, tokens_mean=50_000, delay_sec=(1.0, 3.0))
        lucks = [draw(options, Identity("m", "t", n), 0.5) for n in range(3000)]
        assert sum(luck.tokens for luck in lucks) / 3000 == pytest.approx(50_000, rel=0.05)
        assert sum(luck.steps for luck in lucks) / 3000 == pytest.approx(9, rel=0.05)
        assert sum(luck.delay_sec for luck in lucks) / 3000 == pytest.approx(2, rel=0.05)
        assert all(1 <= luck.delay_sec <= 3 for luck in lucks)

    def test_it_depends_on_each_part_of_the_identity_and_on_nothing_else(self) -> None:
        base = Identity("m", "t", 1)
        others = [Identity("n", "t", 1), Identity("m", "u", 1), Identity("m", "t", 2), Identity("m", "t", 1, 1)]
        luck = draw(SimulatedOptions(), base, 0.5)
        assert luck == draw(SimulatedOptions(), base, 0.5)
        assert len({luck.tokens, *(draw(SimulatedOptions(), other, 0.5).tokens for other in others)}) == 5
        assert draw(SimulatedOptions(seed=1), base, 0.5).tokens != luck.tokens
        dearer = draw(SimulatedOptions(cost_per_mtok_usd=9, steps_mean=30, delay_sec=(5, 6)), base, 0.5)
        assert (dearer.solves, dearer.tokens) == (luck.solves, luck.tokens)

    def test_a_better_profile_with_the_same_seed_solves_a_superset(self) -> None:
        identities = [Identity("m", f"t{n}", 1) for n in range(300)]
        worse = {i.task for i in identities if draw(SimulatedOptions(), i, 0.4).solves}
        better = {i.task for i in identities if draw(SimulatedOptions(), i, 0.6).solves}
        assert worse < better


@pytest.mark.parametrize(
    ("task", "family", "expected"),
    [
        ("starter/csv-clean", "data", 0.1),
        ("starter/json-sessions", "data", 0.2),
        ("starter/git-lost-commit", "git", 0.4),
        ("starter/git-merge", "git", 0.3),
        ("other/git-merge", None, 0.3),
        ("starter/x", None, 0.5),
        ("plain", "shell", 0.6),
    ],
)
def test_the_most_particular_entry_counts(task: str, family: str | None, expected: float) -> None:
    table = {
        "*": 0.6, "starter/*": 0.5, "git-*": 0.35, "git-merge": 0.3, "starter/git-lost-commit": 0.4, "data": 0.2,
        "csv-clean": 0.1,
    }  # fmt: skip
    assert probability_for(table, task, family) == expected
    assert probability_for(0.7, task, family) == 0.7


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [("Mend it.", 0.5), ("Look twice. Mend it.", 0.8), ("Skip tests. Look twice.", 0.2), ("LOOK TWICE", 0.5)],
)
def test_what_it_is_told_changes_its_chance(instruction: str, expected: float) -> None:
    table = {"Look twice": 0.3, "Skip tests": -0.6}
    assert taught(0.5, table, instruction) == pytest.approx(expected)
    assert taught(0.9, table, "Look twice") == 1.0
    assert taught(0.1, table, "Skip tests") == 0.0


class TestAttemptBook:
    def test_numbers_retries_and_cells(self, tmp_path: Path) -> None:
        book = AttemptBook(tmp_path)
        assert [book.claim("a", "t1"), book.claim("a", "t2"), book.claim("b", "t3")] == [
            AttemptClaim(1, 0),
            AttemptClaim(2, 0),
            AttemptClaim(1, 0),
        ]
        assert book.claim("a", "t1") == AttemptClaim(1, 1)
        assert book.claim("a", "t4") == AttemptClaim(3, 0)

    def test_it_goes_on_from_what_is_on_disk(self, tmp_path: Path) -> None:
        metadata = {"simulated": True, "cell": "a", "attempt": 2, "retry": 0}
        contents = {
            "kept": json.dumps({"agent_result": {"metadata": metadata}}),
            "steps": json.dumps(
                {"agent_result": None, "step_results": [{"agent_result": {"metadata": {**metadata, "attempt": 4}}}]}
            ),
            "torn": '{"agent_result": {"meta',
            "other-agent": json.dumps({"agent_result": {"metadata": {"attempt": 1, "cell": "a"}}}),
            "never-ran": json.dumps({"agent_result": None}),
            "cut-off": json.dumps(
                {
                    "agent_result": {"metadata": {**metadata, "attempt": 3}},
                    "exception_info": {"exception_type": "CancelledError"},
                }
            ),
        }
        for name, text in contents.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "result.json").write_text(text)
        book = AttemptBook(tmp_path)
        assert [book.finished("a", attempt) for attempt in range(1, 5)] == [0, 1, 0, 1]
        assert [book.claim("a", f"new{n}").attempt for n in range(3)] == [1, 3, 5]
