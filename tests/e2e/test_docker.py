"""`container_env = "docker"`, on a scripted engine: containers of namespaces behind a `docker` of our own (servers/docker.py)."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.experiments import Project
from support.pace import seconds
from support.tasks import ANSWER, write_task

HEAD = """
schema_version = 2
slug = "s"
[run]
container_env = "docker"
harbor_args = ["--mounts", {mounts}]
[tasks]
default_dataset = "tasks"
items = [{items}]
"""
ORACLE = '[profiles.oracle]\nagent = "oracle"\n'
WAITS = '[profiles.waits]\nagent = "lab_agents:Scripted"\noptions = { script = "cp /shared/word /app/answer.txt", free = 0 }\n'


class Engine:
    """The engine of a test: what it was asked, and what runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()
        source = (Path(__file__).parents[1] / "servers" / "docker.py").read_text()
        (home / "docker").write_text(f"#!{sys.executable} -IS\n{source}")
        (home / "docker").chmod(0o755)

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.home / "calls.jsonl").read_text().splitlines()]

    def running(self) -> list[str]:
        ran = subprocess.run([self.home / "docker", "ps"], capture_output=True, text=True, check=True)
        return [line.split("\t")[0] for line in ran.stdout.splitlines()]


@pytest.fixture
def engine(lab, tmp_path: Path) -> Engine:
    rootless = ["--user", "--map-root-user"] if os.getuid() else []
    probe = ["unshare", *rootless, "--mount", "--pid", "--fork", "mount", "-t", "proc", "proc", "/proc"]
    if shutil.which("nsenter") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no namespaces for the scripted engine")
    made = Engine(tmp_path / "engine")
    lab.env["PATH"] = f"{made.home}:{lab.env['PATH']}"
    return made


def experiment(project: Project, profiles: str, *tasks: str) -> Path:
    project.write("shared/word", f"{ANSWER}\n")
    mounts = [{"type": "bind", "source": str(project.root / "shared"), "target": "/shared", "read_only": True}]
    items = ", ".join(f'{{ id = "{task}" }}' for task in tasks)
    return project.experiment(HEAD.format(mounts=json.dumps(json.dumps(mounts)), items=items) + profiles)


def test_images_compose_files_and_mounts_reach_the_engine(lab, engine: Engine) -> None:
    built = write_task(lab.root / "tasks" / "built", solve="cat /shared/word > answer.txt; test -s /app/in/given.txt")
    (built / "environment" / "given.txt").write_text("given\n")
    (built / "environment" / "Dockerfile").write_text("FROM debian:12\nWORKDIR /app\nCOPY given.txt in/given.txt\n")
    pulled = write_task(lab.root / "tasks" / "pulled", environment='docker_image = "registry.example/pulled:1"')
    (pulled / "environment" / "docker-compose.yaml").write_text("services:\n  db:\n    image: postgres:16\n")
    (pulled / "solution" / "solve.sh").write_text(f"mkdir -p /app; echo {ANSWER} > /app/answer.txt\n")
    ran = lab.tbench("run", experiment(lab.project, ORACLE, "built", "pulled"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lab.outcomes() == {("oracle", "built"): ["passed"], ("oracle", "pulled"): ["passed"]}
    asked = {
        task: [call for call in engine.calls() if call[2:3] and call[2].startswith(task)]
        for task in ("built", "pulled")
    }
    assert [call for call in asked["built"] if call[-1] == "build"], "its Dockerfile"
    assert not [call for call in asked["pulled"] if call[-1] == "build"], "its image is taken as it is"
    assert any("docker-compose.yaml" in word for call in asked["pulled"] for word in call)
    assert engine.running() == []
    removed = [call for calls in asked.values() for call in calls if "--rmi" in call]
    assert not removed, "images stay: delete is false"
    assert len({call[2] for calls in asked.values() for call in calls if call[-2:] == ["--detach", "--wait"]}) == 2


def test_kill_ends_the_containers_and_a_resume_goes_on(lab, engine: Engine) -> None:
    file = experiment(lab.project, WAITS, "a")
    run = lab.start("run", file)
    deadline = time.monotonic() + seconds(120)
    while not (lab.root / "begun").exists():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    [container] = engine.running()
    assert container.startswith("a__")
    killed = lab.tbench("kill", lab.batch().folder, "--yes")
    assert killed.returncode == 0, killed.stderr
    assert "none of its processes is running" in killed.stdout
    assert engine.running() == []
    run.wait()
    lab.go()
    resumed = lab.tbench("resume", file)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert lab.outcomes() == {("waits", "a"): ["passed"]}
    assert engine.running() == []
    assert [event.kind for event in lab.events()].count("trial_started") == 2
