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
from terminalbench.cli.swebench_pro import log_file_of
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.live.state import replay
from terminalbench.locks import LockHeld, lock
from terminalbench.swebench_pro import experiment as experiments
from terminalbench.swebench_pro.arms import (
    KEY,
    ArmModel,
    arm_key,
    arm_profiles,
    hand_over_key,
    key_variable,
    model_name,
    price_of,
    refuse_unknown_provider,
)
from terminalbench.swebench_pro.convert import Picks, TaskInstance, select
from terminalbench.swebench_pro.experiment import ExperimentRequest, at_start, document, orders, run_experiment, shares
from terminalbench.swebench_pro.projections import Output


def wanted(tmp_path: Path, **more: Any) -> ExperimentRequest:
    one = TaskInstance("instance_a", tmp_path / "instance_a", "o/r", "python", "0" * 40)
    asked: dict[str, Any] = {"model": "m", "provider": "openrouter"}
    asked |= {name: more.pop(name) for name in ("model", "provider", "base_url", "price") if name in more}
    given: dict[str, Any] = {"arms": ("singleshot", "s1_tdd"), **more}
    return ExperimentRequest(instances=(one,), tasks=tmp_path, asked=ArmModel(**asked), **given)


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
        with pytest.raises(UserError, match="the key in LLM_API_KEY is so short or common"):
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
        (["--tasks", str(tmp_path), "--split", "train"], "work with rows"),
        (["--tasks", "hf:abc"], "--evaluator CHECKOUT"),
        (["--arms", " , "], "--arms names no arm"),
    ):
        assert main([*usual, *more]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_at_once_in_one_folder_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "_understood", lambda *_: "")
    output = Output(tmp_path / "out")
    with lock(output.lock, "the first"), pytest.raises(LockHeld, match=r"in use by the first \(pid"):
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

    monkeypatch.setattr(experiments, "differences", lambda *_: [])
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
    for more, said in ((given, "nothing is run here"), ([], "already contains an experiment")):
        assert main([*ask, *more]) == 2
        assert said in capsys.readouterr().err
    assert calls == [asked]


def test_an_address_that_is_none_is_refused_before_any_trial(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not-a-url is not an address"):
        run_experiment(wanted(tmp_path, base_url="not-a-url"), Output(tmp_path / "out"), going_on=False)
    assert not (tmp_path / "out").exists()


def test_any_agent_any_program_and_any_profile_of_a_file_is_an_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside workflows, in one experiment; each with the model that it asks, and the way to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".tbench").touch()
    (tmp_path / "my-cli.py").write_text("print()\n")
    task = tmp_path / "tasks" / "one" / "task.toml"
    task.parent.mkdir(parents=True)
    task.write_text("")
    (tmp_path / "exp.toml").write_text(
        'schema_version = 2\nslug = "s"\n[tasks]\ndefault_dataset = "tasks"\nitems = [{ id = "one" }]\n'
        '[defaults]\nmodel = "anthropic/claude-x"\n[profiles.mine]\nagent = "mini-swe-agent"\n[profiles.other]\nagent = "nop"\n'
    )
    arms = (
        "s1_tdd",
        "claude-code",
        "mini-swe-agent",
        "command:python3 my-cli.py {instruction}",
        "exp.toml:mine",
        "oracle",
    )
    asked = ArmModel("m", "openai", "http://127.0.0.1:1/v1", price={"input": 3.0, "output": 15.0})
    found = arm_profiles(arms, asked)
    assert {key: table["agent"] for key, table in found.items()} == {
        "s1_tdd": "guarded", "claude-code": "claude-code", "mini-swe-agent": "mini-swe-agent",
        "my-cli": "command", "mine": "mini-swe-agent", "oracle": "oracle",
    }  # fmt: skip
    assert {key: table.get("model") for key, table in found.items()} == {
        "s1_tdd": "openai/m", "claude-code": "openai/m", "mini-swe-agent": "openai/m",
        "my-cli": None, "mine": "anthropic/claude-x", "oracle": None,
    }  # fmt: skip
    assert found["claude-code"]["env"]["ANTHROPIC_BASE_URL"] == asked.base_url
    assert found["mini-swe-agent"]["env"]["OPENAI_API_KEY"] == "${OPENAI_API_KEY}"
    assert found["mini-swe-agent"]["env"]["OPENAI_BASE_URL"] == asked.base_url
    assert found["my-cli"]["command"] == {
        "run": ["python3", "{files}/my-cli.py", "{instruction}"],
        "files": [str(tmp_path / "my-cli.py")],
    }
    asks = arm_profiles(["command:python3 my-cli.py {model}"], asked)["my-cli"]
    assert (asks["model"], asks["price"], asks["env"]["OPENAI_BASE_URL"]) == ("openai/m", asked.price, asked.base_url)
    assert [key for key, table in found.items() if "price" in table] == ["s1_tdd", "claude-code", "mini-swe-agent"]
    for wrong, said in (
        ("claude-cod", 'did you mean "claude-code"'),
        ("exp.toml:none", 'has no profile "none"'),
        ("a b", "cannot be the name of an arm"),
    ):
        with pytest.raises(UserError) as error:
            arm_profiles([wrong], asked)
        assert said in f"{error.value} {error.value.hint}"


def test_a_provider_is_asked_for_only_where_an_arm_asks_its_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--provider is missing"):
        run_experiment(
            wanted(tmp_path, provider=None, arms=("oracle", "s1_tdd")), Output(tmp_path / "o"), going_on=False
        )


@pytest.mark.parametrize(
    ("text", "price"),
    [("3,15", {"input": 3.0, "output": 15.0}), ("1,2,0.1", {"input": 1, "output": 2, "cache_read": 0.1}), ("0", 0)],
)
def test_a_price_is_of_a_million_tokens(text: str, price: Any) -> None:
    assert price_of(text) == price
    for wrong in ("3", "a,b", "-1,2", "1,2,3,4", "inf,1"):
        with pytest.raises(UserError, match="is not a price"):
            price_of(wrong)


def instances(**of: int) -> list[TaskInstance]:
    return [
        TaskInstance(f"{repo}-{n:03}", Path(), f"o/{repo}", "go" if repo == "go" else "python", "0")
        for repo, many in of.items()
        for n in range(many)
    ]


@given(st.integers(0, 9), st.integers(1, 40), st.integers(1, 4))
def test_a_sample_has_each_stratums_share_and_a_larger_one_holds_it_in_every_shard(
    seed: int, many: int, shards: int
) -> None:
    found = instances(go=8, big=24, small=8)
    first = select(found, Picks(sample=many, seed=seed))
    counts = {repo: sum(one.repo == f"o/{repo}" for one in first) for repo in ("go", "big", "small")}
    assert all(abs(counts[repo] - many * share) <= 1 for repo, share in (("go", 0.2), ("big", 0.6), ("small", 0.2)))
    assert [one for one in found if one in first] == first, "in their order"
    parts = [select(found, Picks(sample=many, seed=seed, shard=(n + 1, shards))) for n in range(shards)]
    assert sorted(one.instance_id for part in parts for one in part) == [
        one.instance_id for one in sorted(first, key=lambda one: one.instance_id)
    ]
    more = [select(found, Picks(sample=many + 5, seed=seed, shard=(n + 1, shards))) for n in range(shards)]
    assert all(set(part) <= set(larger) for part, larger in zip(parts, more, strict=True)), "an experiment grows"
    languages = select(found, Picks(sample=10, seed=seed, stratify="language"))
    assert sum(one.language == "go" for one in languages) == 2


def test_another_seed_draws_another_sample_and_a_shard_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    found = instances(big=40)
    assert select(found, Picks(sample=10, seed=1)) != select(found, Picks(sample=10, seed=2))
    assert main(["swebench-pro", "list-instances", "--tasks", "x", "--shard", "5/4"]) == 2
    assert "such as 1/4" in capsys.readouterr().err
