"""What is found before the first trial, asked of the real Harbor."""

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.experiments import BASE, ORACLE, good
from support.tasks import AGENTS, write_task
from terminalbench.errors import UserError
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.planner import make_plan
from terminalbench.harbor import preflight as harbor_preflight
from terminalbench.harbor.agents import needs
from terminalbench.harbor.jobs import job_config
from terminalbench.harbor.preflight import JobRequest, PreflightReport, PreflightRequest, check, dropped
from terminalbench.runner import preflight
from terminalbench.runner.environment import child_environment

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOCAL = '[run]\ncontainer_env = "local"\n'


def report(
    project,
    profiles: str,
    *,
    items: str = '{ id = "a", dataset = "tasks" }',
    shell: dict[str, str] | None = None,
    change=None,
) -> PreflightReport:
    if not (project.root / "tasks").exists():
        write_task(project.root / "tasks" / "a")
    project.write("lab_agents.py", AGENTS)
    experiment = good(project, BASE.replace('{ id = "a" }', items) + LOCAL + profiles)
    batch = Batch(project.root / "results" / "s" / "0")
    requests = []
    for job, profile in zip(make_plan(experiment, batch, NOW).jobs, experiment.profiles, strict=True):
        config = job_config(experiment, profile, job, batch)
        requests.append(
            JobRequest(
                job.name,
                change(config) if change else config,
                child_environment(profile, project.root, shell or {"PATH": os.environ["PATH"]}),
            )
        )
    return check(PreflightRequest(tuple(requests)))


def problems(found: PreflightReport) -> list[str]:
    return [problem for job in found.jobs for problem in job.problems]


def test_nothing_is_wrong_with_a_good_job(project) -> None:
    found = report(project, '[profiles.o]\nagent = "oracle"\n[profiles.s]\nagent = "lab_agents:Scripted"\n')
    assert (found.environment, problems(found), found.tasks) == (None, [], {})


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ('no_mcp = true\nmodel = "anthropic/x"\n', "claude-code needs ANTHROPIC_API_KEY"),
        ('agent = "terminus-2"\nmodel = "openai/x"\n', "terminus-2 needs OPENAI_API_KEY"),
        ('agent = "oracle"\nenv = ["MISSING_ONE", "AND_TWO"]\n', "MISSING_ONE, AND_TWO are not set (put them into "),
        ('agent = "terminus-2"\n', 'needs a model (set model = "provider/name" in its profile)'),
        ('agent = "no_such_module:Agent"\n', "the agent cannot be used"),
        ('agent = "simulated"\noptions = { solve_probability = 7 }\n', "solve_probability"),
    ],
)  # fmt: skip
def test_a_bad_profile_is_named_and_the_others_are_fine(project, profile: str, expected: str) -> None:
    found = report(project, f'[profiles.bad]\n{profile}[profiles.o]\nagent = "oracle"\n')
    assert expected in found.jobs[0].problems[0]
    assert found.jobs[1].problems == ()
    assert found.tasks == {}


@pytest.mark.parametrize(
    "profile",
    [
        'agent = "terminus-2"\nmodel = "ollama_chat/qwen3"\n',
        'agent = "terminus-2"\nmodel = "openai/x"\noptions = { api_base = "http://127.0.0.1:1/v1" }\n',
        'agent = "simulated"\nmodel = "simulated/x"\n',
        'agent = "terminus-2"\nmodel = "openai/x"\nenv = ["OPENAI_API_KEY"]\n',
    ],
)
def test_keys_that_are_there_or_not_needed(project, profile: str) -> None:
    shell = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-a-key-1"}
    assert problems(report(project, f"[profiles.p]\n{profile}", shell=shell)) == []


@pytest.mark.parametrize(("value", "weak"), [("none", True), ("postgres", True), ("k", True), ("sk-a-key-1", False)])
def test_a_key_that_other_text_holds_too_is_refused(project, value: str, weak: bool) -> None:
    """Harbor would cut it out of every file of a trial."""
    shell = {"PATH": os.environ["PATH"], "LAB_AUTH": value, "LEVEL": value}
    found = problems(report(project, '[profiles.p]\nagent = "oracle"\nenv = ["LAB_AUTH", "LEVEL"]\n', shell=shell))
    told = "the value of LAB_AUTH is so short or common that it also occurs in other text, where Harbor would remove it"
    assert [one.partition(" (use a longer")[0] for one in found] == ([told] if weak else [])


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ("gpus = 1", "gpu"),
        ('[metadata]\nverifier_system = "agnet"', 'verifier_system in [metadata] must be "pristine" or "agent"'),
    ],
)
def test_a_task_the_environment_cannot_hold_is_named(project, environment: str, expected: str) -> None:
    write_task(project.root / "tasks" / "a")
    write_task(project.root / "tasks" / "bad", environment=environment)
    items = '{ id = "a", dataset = "tasks" }, { id = "bad", dataset = "tasks" }'
    found = report(project, '[profiles.o]\nagent = "oracle"\n[profiles.n]\nagent = "nop"\n', items=items)
    assert problems(found) == []
    assert list(found.tasks) == [1]
    assert expected in found.tasks[1].lower()


@pytest.mark.parametrize("damage", ["compose", "mount", "image", "prebuilt", "no-tests"])
def test_a_definition_that_cannot_be_honoured_is_named(project, damage: str) -> None:
    task = write_task(project.root / "tasks" / "a")
    write_task(project.root / "tasks" / "good")
    environment = task / "environment"
    if damage == "compose":
        (environment / "docker-compose.yaml").write_text(
            "services:\n  main:\n    build: .\n  db:\n    image: postgres\n"
        )
    elif damage == "mount":
        (environment / "Dockerfile").write_text("FROM debian:bookworm\nRUN --mount=type=secret,id=x true\n")
    elif damage == "image":
        (environment / "Dockerfile").write_text("FROM quay.io/somebody/else:1\n")
    elif damage == "prebuilt":
        (environment / "Dockerfile").unlink()
        toml = task / "task.toml"
        image = 'build_timeout_sec = 120.0\ndocker_image = "registry.example/private:1"\n'
        toml.write_text(toml.read_text().replace("build_timeout_sec = 120.0\n", image))
    else:
        shutil.rmtree(task / "tests")
    items = '{ id = "a", dataset = "tasks" }, { id = "good", dataset = "tasks" }'
    found = report(project, '[profiles.o]\nagent = "oracle"\n', items=items)
    assert list(found.tasks) == [0], found


def test_a_broken_agent_is_not_blamed_on_its_only_task(project) -> None:
    project.write(
        "bad_agent.py",
        AGENTS.replace(
            "    options_model = Options\n",
            "    def __init__(self, *a, **k):\n        raise RuntimeError('my agent is broken')\n",
        ),
    )
    found = report(project, '[profiles.b]\nagent = "bad_agent:Scripted"\n[profiles.o]\nagent = "oracle"\n')
    assert found.tasks == {}
    assert "my agent is broken" in found.jobs[0].problems[0]
    assert found.jobs[1].problems == ()


def test_a_key_harbor_drops_is_refused(project) -> None:
    found = report(project, '[profiles.o]\nagent = "oracle"\n', change=lambda c: {**c, "n_atempts": 3})
    assert problems(found) == ["Harbor ignores the key n_atempts"]
    assert list(dropped({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]})) == [".a[0].c"]
    assert list(dropped({"a": [1, 2]}, {"a": [1]})) == [".a"]


def test_an_agent_that_cannot_be_installed_offline(project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "reached", lambda _hosts: {})
    monkeypatch.setattr(needs, "SYSTEM_PATH", str(project.root))
    local = {"import_path": needs.LOCAL_SANDBOX}
    claude_code, oracle = agent_info("claude-code"), agent_info("oracle")
    assert claude_code is not None
    assert oracle is not None
    assert "downloads.claude.ai cannot be reached" in (needs.not_installable(claude_code, local, ()) or "")
    mounts = {**local, "mounts": [{"type": "bind", "source": "/x/claude", "target": "/usr/local/bin/claude"}]}
    assert needs.not_installable(claude_code, mounts, ()) is None
    assert needs.not_installable(claude_code, local, ("--mounts", '["/x/claude:/usr/local/bin/claude"]')) is None
    assert needs.not_installable(claude_code, {"type": "docker"}, ()) is None
    assert needs.not_installable(oracle, local, ()) is None
    project.write("claude", "#!/bin/sh\n").chmod(0o755)
    assert needs.not_installable(claude_code, local, ()) is None


def test_a_nearly_full_disk_is_refused(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _p: usage._replace(free=100 * 1024 * 1024))
    with pytest.raises(UserError, match="only 100 MB are free"):
        preflight.refuse_a_full_disk(tmp_path / "not" / "there" / "yet")


@pytest.mark.parametrize("place", ["/proc/nowhere/results", "/sys/results"])
def test_results_that_cannot_be_written_name_the_key_and_the_next_step(project, tbench, place: str) -> None:
    file = project.experiment(BASE + f'[run]\nresults_root = "{place}"\n' + ORACLE)
    ran = tbench("run", file)
    assert (ran.code, ran.out) == (2, "")
    assert f"{file}: run.results_root: cannot write results to {place}: " in ran.err
    assert "(name another folder in results_root of [run])" in ran.err


def test_what_a_killed_check_left_behind_is_removed_by_the_next(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with harbor_preflight._throw_away() as mine:
        here, pid, rest = Path(mine).name.split(".", 2)
        alive, dead = tmp_path / f"{here}.{pid}.{rest}x", tmp_path / f"{here}.{pid}.1-x"
        elsewhere, old, new = (tmp_path / f"tbench-preflight-{name}" for name in ("1.2.3-x", "old", "new"))
        for folder in (alive, dead, elsewhere, old, new):
            (folder / "inside").mkdir(parents=True)
        (tmp_path / "tbench-preflight-link").symlink_to(tmp_path / "kept")
        os.utime(old, (0, 0))
        with harbor_preflight._throw_away():
            left = {folder.name for folder in tmp_path.iterdir()}
        assert {Path(mine).name, alive.name, elsewhere.name, new.name, "tbench-preflight-link"} < left
        assert left.isdisjoint({dead.name, old.name})


def test_what_only_the_class_of_an_agent_tells_is_found_before_the_run(project) -> None:
    project.write(
        "odd_agent.py",
        "from harbor.agents.nop import NopAgent\n"
        "from harbor.agents.options import AgentOptions\n"
        "class Odd(NopAgent):\n"
        "    def __init__(self, *args, greeting='', **kwargs):\n        super().__init__(*args, **kwargs)\n"
        "class Options(AgentOptions):\n    most_steps: int = 20\n"
        "class Typed(NopAgent):\n    options_model = Options\n"
        "class Other:\n    pass\n",
    )
    project.write("lacking.py", "import missing_library\nclass A:\n    pass\n")
    written = [
        ("greeting", "odd_agent:Odd", 'greeting = "hi"'),
        ("greting", "odd_agent:Odd", 'greting = "hi"'),
        ("typed", "odd_agent:Typed", 'most_steps = "many"'),
        ("other", "odd_agent:Other", ""),
        ("lacking", "lacking:A", ""),
    ]
    profile = '[profiles.{0}]\nagent = "{1}"\noptions = {{ {2} }}\n'
    found = report(project, "".join(profile.format(*one) for one in written))
    assert found.jobs[0].problems == ()
    assert found.jobs[1].problems == ('agent odd_agent:Odd has no option "greting" (did you mean "greeting"?)',)
    assert "most_steps: Input should be a valid integer" in found.jobs[2].problems[0]
    assert found.jobs[3].problems == ("Other is not a Harbor agent (declare it as class Other(BaseAgent))",)
    assert found.jobs[4].problems == (
        "the agent cannot be used: Failed to import module 'lacking': No module named 'missing_library'",
    )


def test_tasks_that_look_beyond_their_folder_and_their_variables_are_refused(project) -> None:
    """Nothing of a host's keys or proxy passwords gets into a task, unless every profile declares it."""
    shell = {
        "PATH": os.environ["PATH"],
        "https_proxy": "http://user:pa55@proxy",
        "LAB_KEY": "sk-a-key-1",
        "GITHUB_TOKEN": "t",
    }
    takes = {"a": "LAB_KEY", "token": "GITHUB_TOKEN", "proxy": "https_proxy", "half": "HALF"}
    for name, variable in takes.items():
        task = write_task(project.root / "tasks" / name)
        with (task / "task.toml").open("a") as stream:
            stream.write(f'[verifier.env]\nX = "${{{variable}}}"\n')
    linked = write_task(project.root / "tasks" / "linked")
    items = ", ".join(f'{{ id = "{name}", dataset = "tasks" }}' for name in (*takes, "linked"))
    profiles = (
        '[profiles.o]\nagent = "oracle"\nenv = ["LAB_KEY", "HALF"]\n[profiles.n]\nagent = "nop"\nenv = ["LAB_KEY"]\n'
    )
    experiment = good(project, BASE.replace('{ id = "a" }', items) + LOCAL + profiles)
    (linked / "instruction.md").unlink()
    (linked / "instruction.md").symlink_to("/etc/passwd")  # after the file was loaded
    plan = make_plan(experiment, Batch(project.root / "results" / "s" / "0"), NOW)
    found = {e.task.id: e.reason for e in preflight.prepare(experiment, plan, shell).plan.excluded if e.task}
    assert sorted(found) == ["half", "linked", "proxy", "token"]
    assert "takes GITHUB_TOKEN of this machine (verifier.env.X), which not every profile declares" in found["token"]
    assert "takes https_proxy" in found["proxy"]
    assert "takes HALF" in found["half"]
    assert found["linked"] == (
        "instruction.md leads out of the task's folder, to /etc/passwd (copy it into the folder)"
    )
    assert "pa55" not in str(found)
