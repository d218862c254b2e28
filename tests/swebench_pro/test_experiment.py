"""An experiment over arms: its file, its workers, its key, and what it refuses to go on with."""

import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.live import Teller, job_event
from support.live import plan as live_plan
from support.results import make_plan
from terminalbench.cli.main import main
from terminalbench.cli.swebench_pro import command as group
from terminalbench.cli.swebench_pro.options import log_file_of
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.live.state import replay
from terminalbench.locks import lock
from terminalbench.swebench_pro import experiment as experiments
from terminalbench.swebench_pro.experiment import (
    KEY,
    Wanted,
    arm_key,
    document,
    hand_over_key,
    key_variable,
    model_name,
    refuse_unknown_provider,
    run_experiment,
)
from terminalbench.swebench_pro.instances import TaskInstance
from terminalbench.swebench_pro.output import Output
from terminalbench.swebench_pro.workers import at_start, orders, shares


def wanted(tmp_path: Path, **more: Any) -> Wanted:
    one = TaskInstance("instance_a", tmp_path / "instance_a", "o/r", "python", "0" * 40)
    given: dict[str, Any] = {"arms": ("singleshot", "s1_tdd"), "model": "m", "provider": "openrouter", **more}
    return Wanted(instances=(one,), tasks=tmp_path, **given)


def test_the_file_names_arms_instances_and_limits(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "max_workers": 4,
        "trial_timeout_sec": 600.0,
        "max_cost_usd": 5.0,
        "base_url": "http://127.0.0.1:1/v1",
    }
    found = document(wanted(tmp_path, **more), Output(tmp_path / "out"))
    assert found["run"] == {
        "results_root": str(tmp_path / "out" / "batches"),
        "container_env": "docker",
        "parallel": 2,
        "profiles_parallel": 2,
        "agent_timeout_sec": 600.0,
        "budget_usd": 5.0,
    }
    assert found["profiles"]["s1_tdd"] == {
        "agent": "guarded",
        "model": "openrouter/m",
        "workflow": "s1_tdd",
        "env": ["OPENROUTER_API_KEY"],
        "options": {"base_url": "http://127.0.0.1:1/v1"},
    }
    claude = document(wanted(tmp_path, provider="claude-code", model="opus", base_url=None), Output(tmp_path / "out"))
    made = next(iter(claude["profiles"].values()))
    assert (made["model"], made["options"]) == ("claude-code:opus", {"temperature": 0}), "its CLI takes no other"
    with pytest.raises(UserError, match="named twice"):
        document(wanted(tmp_path, arms=("s1_tdd", "s1_tdd")), Output(tmp_path))


@pytest.mark.parametrize(
    ("provider", "model", "name", "variable"),
    [
        ("ollama", "qwen3:4b", "ollama:qwen3:4b", None),
        ("openrouter", "moonshotai/kimi-k2", "openrouter/moonshotai/kimi-k2", "OPENROUTER_API_KEY"),
        ("openai", "openai/gpt-5", "openai/gpt-5", "OPENAI_API_KEY"),
        ("together_ai", "x", "together_ai/x", "TOGETHERAI_API_KEY"),
        ("replay", "file.json", "replay:file.json", None),
    ],
)
def test_models_and_keys_by_provider(provider: str, model: str, name: str, variable: str | None) -> None:
    assert (model_name(provider, model), key_variable(provider)) == (name, variable)


def test_a_key_is_handed_over_in_this_process_only() -> None:
    environment = {KEY: "sk-secret"}
    hand_over_key("openrouter", None, environment)
    assert environment["OPENROUTER_API_KEY"] == "sk-secret"
    own = {"OPENAI_API_KEY": "sk-my-own", KEY: "sk-another"}
    hand_over_key("openai", None, own)
    assert own["OPENAI_API_KEY"] == "sk-my-own"
    local: dict[str, str] = {}
    hand_over_key("openai", "http://127.0.0.1:8000/v1", local)
    assert local == {"OPENAI_API_KEY": "no-key-is-needed-here"}
    for weak in ("none", "ollama", "EMPTY", "k", "sk-1234"):  # Harbor replaces it in every file of a trial
        with pytest.raises(UserError, match="the key in LLM_API_KEY is so short or so common"):
            hand_over_key("openai", "http://127.0.0.1:8000/v1", {KEY: weak})
    hand_over_key("ollama", None, {})
    with pytest.raises(UserError, match="neither LLM_API_KEY nor OPENAI_API_KEY is set"):
        hand_over_key("openai", None, {})


@pytest.mark.parametrize(
    ("provider", "hint"), [("openruoter", 'did you mean "openrouter"?'), ("nosuch", "known: openai")]
)
def test_an_unknown_provider_is_refused_before_its_key_is_missed(provider: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f'no provider is called "{provider}"') as error:
        run_experiment(wanted(tmp_path, provider=provider), Output(tmp_path / "out"), going_on=False)
    assert hint in (error.value.hint or "")
    refuse_unknown_provider("fireworks_ai", "m")


def test_an_arm_of_a_file_is_named_by_it() -> None:
    assert arm_key("mine/my_arm.toml") == "my_arm"
    with pytest.raises(UserError, match="cannot be the name"):
        arm_key("a/b")


@given(st.integers(1, 20), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10), min_size=1))
def test_workers_are_never_more_than_asked_for_and_none_is_idle_without_need(
    workers: int, left: dict[str, int]
) -> None:
    found = shares(workers, left)
    assert sum(found.values()) == min(workers, sum(left.values()))
    assert all(0 < many <= left[arm] for arm, many in found.items())


@pytest.mark.parametrize(
    ("workers", "arms", "expected"), [(1, 3, (1, 1)), (4, 2, (2, 2)), (5, 3, (3, 1)), (2, 3, (2, 1))]
)
def test_arms_run_side_by_side_as_far_as_workers_reach(workers: int, arms: int, expected: tuple[int, int]) -> None:
    assert at_start(workers, arms) == expected


def test_an_arm_that_has_ended_leaves_its_workers_to_the_others() -> None:
    planned = live_plan(("a", "b"), ("t1", "t2", "t3", "t4", "t5"), profiles_parallel=2, parallel=1)
    started = [job_event(0, "job_started", "a"), job_event(0, "job_started", "b")]
    assert orders(2, replay(planned, started)) == {"a": 1, "b": 1}
    ended = [event for n in range(1, 6) for event in Teller(f"t{n}__1", f"t{n}", "a").whole(n, n + 1)]
    over = replay(planned, [*started, *ended, job_event(9, "job_ended", "a")])
    assert orders(2, over) == {"b": 2}
    waiting = live_plan(("a", "b", "c"), ("t1", "t2"), profiles_parallel=2)
    assert orders(2, replay(waiting, started)) == {}, "an arm whose turn has not come takes the place of one that ended"


def test_toml_of_the_shell_script_is_valid(tmp_path: Path) -> None:
    import tomlkit

    text = tomlkit.dumps(document(wanted(tmp_path), Output(tmp_path / "an output folder")))
    assert tomllib.loads(text)["slug"] == "swe-bench-pro"


def test_a_log_file_is_taken_before_and_after_the_command(tmp_path: Path) -> None:
    command = group.get_command(click.Context(group), "experiment")
    assert command is not None
    option = next(one for one in command.params if one.name == "log_file")
    before = click.Context(group)
    before.params["log_file"] = tmp_path / "before.log"
    assert log_file_of(click.Context(command, parent=before), option, None) == tmp_path / "before.log"
    assert log_file_of(click.Context(command, parent=before), option, tmp_path / "after.log") == tmp_path / "after.log"
    assert main(["swebench-pro", "--log-file", "x", "list-instances"]) == 2


def test_bad_usage_is_refused_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = ["swebench-pro", "experiment", "--provider", "ollama", "--output-dir", str(tmp_path / "out")]
    for more, said in (
        (["--tasks", str(tmp_path / "none")], "tbench swebench-pro tasks"),
        (["--tasks", str(tmp_path), "--split", "train"], "go with rows"),
        (["--tasks", "hf:abc"], "--evaluator CHECKOUT"),
        (["--arms", " , "], "--arms names nothing"),
    ):
        assert main([*usual, *more]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_at_once_in_one_folder_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "_understood", lambda *_: "")
    output = Output(tmp_path / "out")
    with lock(output.lock, "the first"), pytest.raises(UserError, match=r"is being run by the first \(pid"):
        run_experiment(wanted(tmp_path, provider="ollama"), output, going_on=False)


def test_a_wrong_workflow_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("nonsense = 1\n")
    with pytest.raises(UserError) as error:
        run_experiment(
            wanted(tmp_path, provider="ollama", arms=(str(tmp_path / "mine.toml"),)),
            Output(tmp_path / "out"),
            going_on=False,
        )
    assert ".toml: " not in str(error.value).replace("mine.toml", "")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "asked"),
    [(["--resume"], None), (["--retry-errors"], "all"), (["--retry-errors", "agent_timeout"], "agent_timeout")],
)
def test_errors_are_run_again_on_request(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: list[str],
    asked: str | None,
) -> None:
    calls: list[str | None] = []

    def stopped(_experiment: Any, *, retry_errors: str | None = None, **_more: Any) -> Any:
        calls.append(retry_errors)
        raise UserError("nothing is run here")

    monkeypatch.setattr(experiments, "refuse_differences", lambda *_: None)
    monkeypatch.setattr(experiments, "resume", stopped)
    monkeypatch.setattr(experiments, "_understood", lambda *_: "")
    monkeypatch.setattr(experiments, "load", lambda *_: None)
    batch = Batch(tmp_path / "out" / "batches" / "swe-bench-pro" / "0")
    batch.folder.mkdir(parents=True)
    make_plan(batch, ("singleshot",), "a")
    task = tmp_path / "tasks" / "instance_a" / "task.toml"
    task.parent.mkdir(parents=True)
    task.write_text("[metadata]\nswebench_pro = true\n")
    ask = ["swebench-pro", "experiment", "--provider", "ollama", "--tasks", str(task.parents[1])]
    ask += ["--output-dir", str(tmp_path / "out")]
    for more, said in ((given, "nothing is run here"), ([], "holds an experiment already")):
        assert main([*ask, *more]) == 2
        assert said in capsys.readouterr().err
    assert calls == [asked]


def test_an_address_that_is_none_is_refused_before_any_trial(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not-a-url is no address"):
        run_experiment(wanted(tmp_path, base_url="not-a-url"), Output(tmp_path / "out"), going_on=False)
    assert not (tmp_path / "out").exists()
