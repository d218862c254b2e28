"""Folders that `harbor run` left, not we: which profiles are in them, what counts once, and every command on them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from results_kit import at, error, rewarded

from cli.read_only import each_read_only
from support.results import make_plan
from support.results import make_trial as make_own_trial
from terminalbench.experiments.batch import allocate
from terminalbench.harbor.read.treatment import HIDDEN, treatment, treatment_id
from terminalbench.index.results import open_results
from terminalbench.index.scan import scan_batch
from terminalbench.lab.select import select

SECRET = "sk-ant-verysecret1234567890abcdef"
CLAUDE = {"name": "claude-code", "model_name": "anthropic/claude-sonnet-4-5", "kwargs": {"max_turns": 10}}


def make_trial(
    jobs: Path, job: str, task: str = "answer", number: int = 1, agent: dict[str, Any] = CLAUDE, reward: float = 1.0,
    *, version: str | None = "2.1.325", **changes: Any,
) -> Path:  # fmt: skip
    """A trial as Harbor leaves it: result with its whole configuration, configuration without defaults, logs."""
    name = f"{task}__{job[-3:]}{number}"
    config = {
        "task": {"path": f"/tasks/{task}", "source": None},
        "trial_name": name,
        "trials_dir": str(jobs / job),
        "timeout_multiplier": 1.0,
        "agent": {"import_path": None, "skills": [], "env": {}, "mcp_servers": [], "n_concurrent": None, **agent},
        "environment": {"type": "docker", "import_path": None, "delete": True, "kwargs": {}, "override_cpus": None},
        "verifier": {"disable": False, "override_timeout_sec": None},
        "source_trial": None,
    }
    document = rewarded(
        reward,
        id=f"id-{job}-{task}-{number}",
        trial_name=name,
        task_name=f"tests/{task}",
        task_id={"path": f"/tasks/{task}"},
        source=None,
        config=config,
        agent_info={"name": agent.get("name") or "mine", "version": version, "model_info": None},
        started_at=at(100 * int(job[-1:], 16) + number),
        **changes,
    )
    folder = jobs / job / name
    (folder / "agent").mkdir(parents=True)
    (folder / "verifier").mkdir()
    (folder / "result.json").write_text(json.dumps(document))
    lean = {"task": {"path": f"/tasks/{task}"}, "trial_name": name, "agent": agent, "environment": {"type": "docker"}}
    (folder / "config.json").write_text(json.dumps(lean))
    (folder / "trial.log").write_text("started\n")
    (folder / "agent" / "claude-code.txt").write_text("hello\n")
    (folder / "verifier" / "test-stdout.txt").write_text("1 test failed\n")
    for file in ("config.json", "result.json", "lock.json"):
        (jobs / job / file).write_text("{}")
    return folder


def make_job(jobs: Path, job: str, agent: dict[str, Any] = CLAUDE, rewards: str = "++x", **changes: Any) -> Path:
    for number, mark in enumerate(rewards):
        make_trial(jobs, job, "abcdefgh"[number], agent=agent, reward=float(mark == "+"), **changes)
    return jobs / job


def another(**changes: Any) -> dict[str, Any]:
    return {**CLAUDE, **changes}


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


OTHER = [
    ("options", another(kwargs={"max_turns": 20}), "options.max_turns: 10 -> 20"),
    ("prompt", another(kwargs={"max_turns": 10, "prompt_template_path": "/p.j2"}), "options.prompt_template_path: + /p.j2"),
    ("mcp", another(mcp_servers=[{"name": "lab", "transport": "stdio", "command": "lab"}]), "mcp_servers.lab: + "),
    ("env", another(env={"EFFORT": "high"}), "env.EFFORT: + high"),
    ("model", another(model_name="openrouter/claude-sonnet-4-5"), "model: anthropic/claude-sonnet-4-5 -> openrouter/"),
    ("import path", another(import_path="pkg.mod:Mine"), "agent: claude-code -> pkg.mod:Mine"),
    ("limit", another(override_timeout_sec=99.0), "limits.override_timeout_sec: + 99.0"),
]  # fmt: skip


@pytest.mark.parametrize(("agent", "told"), [row[1:] for row in OTHER], ids=[row[0] for row in OTHER])
def test_what_was_configured_otherwise_is_another_profile(
    jobs: Path, tbench: Callable[..., Any], agent: dict[str, Any], told: str
) -> None:
    make_job(jobs, "job-1")
    make_job(jobs, "job-2", agent)
    name = "claude-code/claude-sonnet-4-5"
    ran = tbench("compare", jobs)
    assert ran.code == 0, ran.err
    said = " ".join(ran.out.split())
    assert f"{name}@2 vs {name}: " in said
    assert f"{name}@2 has the same name but different content: {told}" in said
    listed = " ".join(tbench("list", "--results", jobs).out.split())
    assert f"{name}@2 3 trials 2 passed 1 failed" in listed
    assert told in listed


def test_another_version_of_the_agent_is_another_profile_and_an_unknown_one_is_not(
    jobs: Path, tbench: Callable[..., Any]
) -> None:
    make_job(jobs, "job-1")
    make_trial(jobs, "job-1", "late", version=None)
    make_job(jobs, "job-3", version=None)
    (view,) = select(jobs).views()
    assert [(job.profile, job.trials) for job in view.plan.jobs] == [("claude-code/claude-sonnet-4-5", 8)]
    shutil.rmtree(jobs / "job-3")
    make_job(jobs, "job-2", version="2.1.400")
    out = " ".join(tbench("compare", jobs, "--details").out.split())
    assert "the same name but different content: agent_version: 2.1.325 -> 2.1.400" in out
    assert "@3" not in out


def test_the_same_configuration_in_several_jobs_is_one_profile(jobs: Path, tbench: Callable[..., Any]) -> None:
    make_job(jobs, "job-1", another(env={"ANTHROPIC_API_KEY": "sk-a****890"}, n_concurrent=2))
    make_job(jobs, "job-2", another(env={"ANTHROPIC_API_KEY": "${ANTHROPIC_API_KEY}"}))
    (view,) = select(jobs).views()
    assert [(job.profile, job.trials) for job in view.plan.jobs] == [("claude-code/claude-sonnet-4-5", 6)]
    assert (len(view.cells), view.notes) == (6, ())
    assert [cell.attempt for cell in view.cells] == [1, 2, 1, 2, 1, 2]


def test_no_secret_is_in_a_name_or_a_sentence(jobs: Path, tbench: Callable[..., Any]) -> None:
    make_job(jobs, "job-1")
    make_job(jobs, "job-2", another(kwargs={"max_turns": 10, "api_key": SECRET}, env={"TOKEN": SECRET, "URL": f"http://a:{SECRET}@x"}))  # fmt: skip
    commands = (["list", "--results", jobs], ["compare", jobs], ["compare", jobs, "--json"], ["errors", jobs],
                ["query", "SELECT * FROM treatments", "--json", "--results", jobs], ["export", jobs])  # fmt: skip
    for command in commands:
        ran = tbench(*command)
        assert ran.code == 0, ran.err
        assert SECRET not in ran.out + ran.err, command
    assert f"options.api_key: + {HIDDEN}" in tbench("compare", jobs, "--details").out
    assert SECRET.encode() not in (jobs / "index.db").read_bytes()


def test_defaults_that_are_written_out_are_the_same_treatment(jobs: Path) -> None:
    from harbor.models.trial.config import TrialConfig

    folder = make_trial(jobs, "job-1")
    whole = json.loads((folder / "result.json").read_text())["config"]
    lean = json.loads((folder / "config.json").read_text())
    assert treatment_id(treatment(whole, {})) == treatment_id(treatment(lean, {}))
    assert treatment({}, {}) == {"agent": "oracle", "environment": {"type": "docker"}}
    servers = [{"name": "a", "url": "http://x"}, {"name": "b", "transport": "stdio", "command": "b", "args": ["-v"]}]
    agent = {**CLAUDE, "mcp_servers": servers, "env": {"A": "b"}, "skills": ["/s"], "max_timeout_sec": 9.0}
    for given in ({}, {"agent": agent, "environment": {"override_cpus": 2}}, {"environment": {"import_path": "a:B"}}):
        harbors = TrialConfig.model_validate({"task": {"path": "/x"}, "trial_name": "t", **given})
        dumped = [json.loads(harbors.model_dump_json(exclude_defaults=lean)) for lean in (False, True)]
        assert treatment(dumped[0], {}) == treatment(dumped[1], {})
    off, unset = (treatment({"agent": {"kwargs": given}}, {}) for given in ({"think": False, "n": 0}, {}))
    assert off["options"] == {"think": False, "n": 0}, "an option that is switched off is not one that is not given"
    assert "options" not in unset
    locked = {"skills": [{"name": "sql", "digest": "sha256:1", "source": "/a"}]}
    assert treatment(lean, locked)["skills"] == {"sql": "sha256:1"}, "by content, wherever it lay"
    files = {
        "user_prompt_template": {"path": "/u.md", "digest": "sha256:2"}, "user_persona": None,
        "bridge_inputs": {"rules": {"path": "/r", "digest": "sha256:3"}},
        "extra_docker_compose": [{"path": "/c.yaml", "digest": "sha256:4"}],
    }  # fmt: skip
    found = treatment(lean, files)
    assert found["user_files"] == {"user_prompt_template": "sha256:2", "rules": "sha256:3"}
    assert found["compose_files"] == {"1": "sha256:4"}


def test_a_copied_folder_counts_once(jobs: Path, tbench: Callable[..., Any]) -> None:
    make_job(jobs, "job-1", {"name": "nop"})
    make_job(jobs, "job-2")
    shutil.copytree(jobs / "job-2", jobs / "job-2-backup")
    (jobs / "job-9").symlink_to(jobs / "job-1")
    out = " ".join(tbench("compare", jobs, "--details").out.split())
    assert (
        "jobs: 6 trials in job-9, job-2-backup have the same id as another trial, so they are copies and counted once"
        in out
    )
    assert "6 of 12" not in out
    (batch,) = json.loads(tbench("list", "--results", jobs, "--json").out)
    assert (batch["trials"], batch["passed"], batch["failed"]) == (6, 4, 2)
    rows = json.loads(tbench("export", jobs, "--format", "json").out)
    assert len(rows) == 6
    assert "note: jobs: 6 trials in job-9, job-2-backup have" in tbench("errors", jobs).out
    shutil.copytree(jobs, jobs.parent / "backup")
    elsewhere = " ".join(
        tbench("compare", jobs / "job-1", jobs / "job-2", jobs.parent / "backup", "--details").out.split()
    )
    assert "backup: 6 trials in job-1, job-2 have the same id as another trial" in elsewhere


def test_a_copy_of_a_batch_of_ours_counts_once(tmp_path: Path, tbench: Callable[..., Any]) -> None:
    batch = allocate(tmp_path / "results", "s")
    make_plan(batch, ("p", "q"), "ab")
    for profile in "pq":
        for task in "ab":
            make_own_trial(batch, f"{task}__{profile}", profile=profile, reward=float(profile == "p"))
    shutil.copytree(tmp_path / "results", tmp_path / "backup")
    both = (batch.folder, tmp_path / "backup" / "s" / "0")
    found = json.loads(tbench("compare", *both, "--json").out)
    assert [(one["profile"], one["planned"], one["measured"]) for one in found["profiles"]] == [
        ("p", 2, 2),
        ("q", 2, 2),
    ]
    assert any("4 trials in" in line and "counted once" in line for line in found["warnings"])
    alone = json.loads(tbench("compare", both[0], "--json").out)
    assert alone["contrasts"][0]["estimate"] == found["contrasts"][0]["estimate"]


def test_one_job_several_jobs_or_their_folder(jobs: Path, tbench: Callable[..., Any]) -> None:
    make_job(jobs, "job-1", {"name": "oracle"})
    make_job(jobs, "job-2")
    make_job(jobs, "job-3", another(kwargs={"max_turns": 30}), rewards="xxx")
    one = tbench("compare", jobs / "job-3")
    assert one.code == 0, one.err
    assert "jobs/job-3: pass rate, baseline claude-code/claude-sonnet-4-5" in one.out, "alone it needs no number"
    two = tbench("compare", jobs / "job-2", jobs / "job-3", "--details").out
    assert "claude-code/claude-sonnet-4-5@2 vs claude-code/claude-sonnet-4-5: -66.7 pt" in two
    assert "oracle" not in two
    assert "oracle" in tbench("compare", "--results", jobs, "--details").out, (
        "a results folder of jobs alone is meant as a whole"
    )
    assert len(json.loads(tbench("export", jobs / "job-3", "--format", "json").out)) == 3
    assert {row["job"] for row in open_results(jobs / "job-2").trials()} == {"job-2"}
    wrong = tbench("compare", jobs / "job-1" / "a__b-11")
    assert (wrong.code, "no result format is recognised" in wrong.err) == (2, True), "one trial is no job"
    refused = tbench("resume", jobs)
    assert (refused.code, "Harbor jobs that tbench did not start" in refused.err) == (2, True)


def test_jobs_declare_nothing_and_nights_of_them_are_looks(jobs: Path, tbench: Callable[..., Any]) -> None:
    """A gate may name its baseline. A job after a job is a further look, as it is with batches of ours."""
    plain, more = ({"name": "terminus-2", "model_name": "openai/m", "kwargs": {"turns": n}} for n in (1, 2))
    told = {"agent_result": {"n_input_tokens": 10, "n_output_tokens": 10, "cost_usd": 0.1}}
    make_job(jobs, "job-1", plain, "xxxxxxxx", **told)
    make_job(jobs, "job-2", more, "++++++++", **told)
    gate = ("--baseline", "terminus-2/m@2", "--fail-if", "not-better")
    alone = tbench("compare", jobs, *gate)
    assert (alone.code, "Departures" in alone.out) == (100, False), alone.out
    assert tbench("compare", jobs, "--compare", "terminus-2/m", "terminus-2/m@2", *gate[2:]).code == 100
    make_job(jobs, "job-3", plain, "xxxxxxxx", **told)
    make_job(jobs, "job-4", more, "+++++++x", **told)
    held = tbench("compare", jobs, *gate)
    said = " ".join(held.out.split())
    assert held.code == 3
    assert "attempts: tasks were tried again by jobs that followed others: 2 times at which" in said
    assert tbench("compare", jobs, *gate, "--accept", "attempts").code == 100
    looks = json.loads(tbench("compare", jobs, "--json").out)["contrasts"][0]["sequential"]
    assert (looks["method"], looks["looks"]) == ("growth", 2)


def test_a_treatment_has_one_name_in_every_folder(jobs: Path, tbench: Callable[..., Any]) -> None:
    make_job(jobs, "job-1")
    make_job(jobs, "job-2", another(kwargs={"max_turns": 20}))
    make_job(jobs.parent / "more", "job-3", another(kwargs={"max_turns": 20}))
    make_job(jobs.parent / "more", "job-4", another(kwargs={"max_turns": 30}))
    found = json.loads(tbench("compare", jobs, jobs.parent / "more", "--json").out)
    name = "claude-code/claude-sonnet-4-5"
    assert [(one["profile"], one["planned"]) for one in found["profiles"]] == [
        (name, 3),
        (f"{name}@2", 6),
        (f"{name}@3", 3),
    ]


def test_report_and_analysis(jobs: Path, tbench: Callable[..., Any]) -> None:
    make_job(jobs, "job-1", {"name": "nop"}, rewards="xxx")
    make_job(jobs, "job-2")
    assert tbench("report", jobs).code == 0
    page = (jobs / "analytics" / "report.html").read_text()
    assert 'href="../job-2/a__b-21' in page or "../job-2/" in page
    ran = tbench("analyze", jobs / "job-2", "--no-llm")
    assert ran.code == 0, ran.err
    assert (jobs / "analytics" / "job-2" / "metrics_detail.csv").is_file()
    trial = next((jobs / "job-2").glob("c__*")).name
    by = ("--author", "ada", "--reason", "seen", "--results", jobs)
    assert tbench("label", trial, "failure_class", "loop", *by).code == 0
    for target in (jobs, jobs / "job-2"):
        assert "loop  [claude-code/claude-sonnet-4-5 1], 1 by a person" in tbench("errors", target).out


def test_show_names_files_that_exist(jobs: Path, tbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_trial(jobs, "job-1", reward=0.0, exception_info=error("RuntimeError", "boom"))
    (folder / "exception.txt").write_text("Traceback\n")
    for way in ([folder], [folder.name, "--results", jobs], [folder.name[:8], "--results", jobs / "job-1"]):
        ran = tbench("show", *way)
        assert ran.code == 0, ran.err
        assert "profile   claude-code/claude-sonnet-4-5" in ran.out
        assert "batch     jobs (Harbor jobs)\n  job       job-1" in ran.out
        lines = ran.out.splitlines()
        start = next(n for n, line in enumerate(lines) if line.startswith("  files"))
        named = [lines[start].split()[-1]]
        named += [f"{named[0]}/{line.strip()}" for line in lines[start + 1 :] if line.startswith(" " * 12)]
        assert [Path(name).name for name in named] == [
            folder.name, "claude-code.txt", "test-stdout.txt", "exception.txt", "trial.log",
        ]  # fmt: skip
        assert all(Path(name).exists() for name in named)
    monkeypatch.chdir(jobs / "job-1")
    assert tbench("show", folder.name).code == 0, "a folder of that name lies here"
    wrong = tbench("show", jobs / "job-1")
    assert (wrong.code, "is not the folder of a trial" in wrong.err) == (2, True)


def test_odd_folders(jobs: Path, tbench: Callable[..., Any]) -> None:
    make_job(jobs, "job-1")
    torn = make_trial(jobs, "job-1", "torn")
    (torn / "result.json").write_text('{"task_na')
    running = make_trial(jobs, "job-1", "running")
    (running / "result.json").unlink()
    blank = make_trial(jobs, "job-1", "blank")
    (blank / "result.json").write_text("[]")
    (blank / "config.json").unlink()
    bare = make_job(jobs, "job-2", {"name": "nop"})
    for file in ("config.json", "result.json", "lock.json"):
        (bare / file).unlink()
    (jobs / "notes").mkdir()
    (jobs / "readme.txt").write_text("mine\n")
    (view,) = select(jobs).views()
    assert {(cell.profile, cell.state) for cell in view.cells if cell.task.id not in "abc"} == {
        ("claude-code/claude-sonnet-4-5", "errored"),
        ("claude-code/claude-sonnet-4-5", "running"),
    }
    assert [(job.profile, len(job.tasks)) for job in view.plan.jobs] == [
        ("claude-code/claude-sonnet-4-5", 6),
        ("nop", 3),
    ]
    assert tbench("compare", jobs).code == 0
    assert tbench("errors", jobs / "job-2").code == 0
    assert tbench("compare", jobs / "notes").code == 2


def test_what_is_indexed_is_not_read_again(jobs: Path) -> None:
    make_job(jobs, "job-1")
    make_job(jobs, "job-2", {"name": "nop"})
    (one,) = select(jobs / "job-1").batches
    assert scan_batch(one).read == 3, "the job beside it is left alone"
    (both,) = select(jobs).batches
    assert (scan_batch(both).read, scan_batch(both).read, scan_batch(one).seen) == (3, 0, 3)
    shutil.rmtree(jobs / "job-1")
    assert scan_batch(both).removed == 3


def test_a_folder_that_cannot_be_written(jobs: Path, tmp_path: Path) -> None:
    make_job(jobs, "job-1")
    make_job(jobs, "job-2", another(kwargs={"max_turns": 20}))
    trial = next((jobs / "job-1").glob("a__*"))
    commands = [
        ["compare", str(jobs)],
        ["errors", str(jobs / "job-1")],
        ["show", str(trial)],
        ["report", str(jobs), "-o", str(tmp_path / "report")],
    ]
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ended = each_read_only(jobs, tmp_path / "told", [(arguments, env) for arguments in commands])
    assert [one.code for one in ended] == [0, 0, 0, 0], ended
    assert not (jobs / "index.db").exists()
