"""`tbench kill` and containers, with a `docker` that only pretends; and processes that must be left alone."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.pace import seconds
from support.results import STAMP, make_plan
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.live.processes import Worker, announced
from terminalbench.locks import start_ticks
from terminalbench.records.event import Event
from terminalbench.runner.kill import end_containers, end_leftovers, find

ENGINE = f"""#!{sys.executable}
import os, pathlib, sys
home = pathlib.Path(__file__).parent
name = pathlib.Path(__file__).name
with (home / "calls.txt").open("a") as calls:
    print(name, *sys.argv[1:], file=calls)
if (home / "down").exists():
    sys.exit("Cannot connect to the Docker daemon")
listing = home / f"{{name}}.tsv"
rows = listing.read_text().splitlines()
if sys.argv[1] == "ps":
    print("\\n".join(rows))
elif sys.argv[1] == "stop" and not (home / "stubborn").exists():
    gone = sys.argv[4:]
    listing.write_text("".join(f"{{row}}\\n" for row in rows if row.split("\\t")[0] not in gone))
"""
OURS = {"c1": "a__abcdefg__env", "c2": "a__abcdefg__verifier__shared", "c3": "0_odd-id__hijklmn__env"}
STRANGERS = {"x1": "a__abcdefgh__env", "x2": "a__zzzzzzz__env", "x3": "", "x4": "my-a__abcdefg__env"}


@dataclass
class Host:
    """A machine with container engines that record what they are asked, and a batch that runs in one of them."""

    home: Path
    batch: Batch

    def running(self, engine: str = "docker") -> set[str]:
        return {row.split("\t")[0] for row in (self.home / f"{engine}.tsv").read_text().splitlines()}

    @property
    def calls(self) -> list[str]:
        file = self.home / "calls.txt"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Host]:
    home = tmp_path / "bin"
    home.mkdir()
    for engine in ("docker", "podman"):
        (home / engine).write_text(ENGINE)
        (home / engine).chmod(0o755)
        rows = {**OURS, **STRANGERS} if engine == "docker" else {"p1": "a__abcdefg__env", "p2": "other"}
        (home / f"{engine}.tsv").write_text(
            "".join(f"{identifier}\t{project}\n" for identifier, project in rows.items())
        )
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def make(environment: str) -> Host:
        batch = allocate(tmp_path / "results", "s")
        make_plan(batch, settings={"container_env": environment})
        for trial in ("a__AbCdEfG", "b__never-had-a-container"):
            append_jsonl(batch.events_jsonl, Event("t", "trial_started", f"{STAMP}__p", 1, profile="p", trial=trial))
        (batch.runs / f"{STAMP}__p" / "_odd.id__HiJkLmN").mkdir(parents=True)
        return Host(home, batch)

    return make


def test_only_containers_of_our_trials_are_listed_and_stopped(host: Callable[[str], Host], tbench) -> None:
    made = host("docker")
    listed = tbench("kill", made.batch.folder)
    assert listed.code == 2
    assert [line.split()[1] for line in listed.out.splitlines()] == ["c1", "c2", "c3"]
    assert made.running() == {*OURS, *STRANGERS}
    ended = tbench("kill", made.batch.folder, "--yes")
    assert (ended.code, ended.err) == (0, "")
    assert "none of its processes is running" in ended.out
    assert made.running() == set(STRANGERS)
    assert [call for call in made.calls if " stop " in call] == ["docker stop --time 10 c1 c2 c3"]
    assert tbench("kill", made.batch.folder).out == "nothing is running\n"


def test_every_container_only_on_request(host: Callable[[str], Host], tbench) -> None:
    made = host("docker")
    listed = tbench("kill", made.batch.folder, "--all-containers")
    assert listed.code == 2
    assert {line.split()[1] for line in listed.out.splitlines()} == {*OURS, *STRANGERS, "p1", "p2"}
    assert tbench("kill", made.batch.folder, "--all-containers", "--yes").code == 0
    assert made.running() == made.running("podman") == set()


def test_the_engine_is_the_one_the_batch_uses(host: Callable[[str], Host], tbench) -> None:
    made = host("podman")
    assert tbench("kill", made.batch.folder, "--yes").code == 0
    assert made.running("podman") == {"p2"}
    assert made.running() == {*OURS, *STRANGERS}
    assert {call.split()[0] for call in made.calls} == {"podman"}


def test_a_batch_without_containers_asks_no_engine(host: Callable[[str], Host], tbench) -> None:
    made = host("local")
    assert tbench("kill", made.batch.folder, "--yes").out == "nothing is running\n"
    assert made.calls == []


def test_what_cannot_be_verified_is_not_called_ended(host: Callable[[str], Host], tbench, tmp_path: Path) -> None:
    made = host("docker")
    (made.home / "stubborn").touch()
    ran = tbench("kill", made.batch.folder, "--yes")
    assert ran.code == 1
    assert "container c1" in ran.err
    (made.home / "down").touch()
    ran = tbench("kill", made.batch.folder, "--yes")
    assert (ran.code, ran.out) == (1, "")
    assert "containers could not be checked: docker ps: Cannot connect to the Docker daemon" in ran.err
    assert made.running() == {*OURS, *STRANGERS}


def test_without_the_engine_nothing_is_taken_for_granted(host: Callable[[str], Host], tbench, monkeypatch) -> None:
    made = host("docker")
    monkeypatch.setenv("PATH", "/nowhere")
    ran = tbench("kill", made.batch.folder)
    assert ran.code == 1
    assert "docker is not installed" in ran.err


def test_resume_ends_containers_whose_harbor_is_gone(host: Callable[[str], Host]) -> None:
    made = host("docker")
    assert not end_leftovers(made.batch)
    assert made.running() == set(STRANGERS)


def record(batch: Batch, pid: int) -> None:
    """Say that a process runs a job of the batch."""
    job = f"{STAMP}__p"
    worker = Worker(job, "p", pid, pid, socket.gethostname(), "now", start_ticks(pid), ["harbor"])
    write_json(batch.worker(job), worker)


@pytest.fixture
def sleeper() -> Generator[Callable[..., subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []

    def start(user: int | None = None) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(["sleep", "300"], start_new_session=True, user=user, group=user))
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.wait()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
def test_another_users_run_is_left_alone(host: Callable[[str], Host], tbench, sleeper) -> None:
    made = host("local")
    process = sleeper(user=65534)
    record(made.batch, process.pid)
    for arguments in ([], ["--yes"]):
        ran = tbench("kill", made.batch.folder, *arguments)
        assert (ran.code, ran.out) == (1, "")
        assert f"left alone: harbor {process.pid} belongs to user 65534" in ran.err
    assert process.poll() is None
    assert end_leftovers(made.batch).strangers


def test_a_process_of_ours_is_ended_and_verified(host: Callable[[str], Host], tbench, sleeper) -> None:
    made = host("local")
    process = sleeper()
    record(made.batch, process.pid)
    assert tbench("kill", made.batch.folder, "--yes").code == 0
    assert process.wait(60) == -2
    assert not list((made.batch.folder / "workers").glob("*.json"))


def test_all_is_all_of_this_user_or_of_one_results_folder(
    host: Callable[[str], Host], tbench, sleeper, tmp_path: Path
) -> None:
    here, there = host("local").batch, allocate(tmp_path / "elsewhere", "s")
    make_plan(there, settings={"container_env": "local"})
    one, other = sleeper(), sleeper()
    record(here, one.pid)
    record(there, other.pid)
    with announced(here), announced(there):
        for target in ([here.folder], [tmp_path / "exp.toml"], ["--batch", "0"]):
            ran = tbench("kill", *target, "--all", "--yes")
            assert (ran.code, "--all cannot be combined with a target" in ran.err) == (2, True)
        assert tbench("kill", "--all", "--results", tmp_path / "results", "--yes").code == 0
        assert one.wait(60) == -2
        assert other.poll() is None
        assert tbench("kill", "--all", "--yes").code == 0
    assert other.wait(60) == -2


def test_without_a_target_it_is_the_one_that_runs_not_the_newest(
    host: Callable[[str], Host], tbench, sleeper, tmp_path: Path
) -> None:
    older, newest = host("local").batch, host("local").batch
    both = sleeper(), sleeper()
    for batch, process in zip((older, newest), both, strict=True):
        record(batch, process.pid)
    asked = ("kill", "--results", tmp_path / "results", "--yes")
    ran = tbench(*asked)
    assert ran.code == 2
    assert all(str(batch.folder) in ran.err for batch in (older, newest))
    assert [process.poll() for process in both] == [None, None]
    assert tbench("kill", newest.folder, "--yes").code == 0
    listed = tbench(*asked[:-1])
    assert (listed.code, f"harbor {both[0].pid}" in listed.out) == (2, True)
    assert tbench(*asked).code == 0
    assert [process.wait(60) for process in both] == [-2, -2]
    assert tbench(*asked).out == "nothing is running\n"


def test_neither_itself_nor_what_started_it_is_ever_ended(host: Callable[[str], Host]) -> None:
    made = host("local")
    for pid in (os.getpid(), os.getppid()):
        record(made.batch, pid)
        assert not find([made.batch])


def test_the_containers_of_a_harbor_that_has_ended_are_stopped_and_no_others(host) -> None:
    made = host("docker")
    other = made.batch.runs / f"{STAMP}__q" / "a__AbCdEfG"
    other.mkdir(parents=True)
    end_containers(made.batch, f"{STAMP}__p")
    assert set(OURS.keys() | STRANGERS.keys()) - made.running() == {"c3"}, "its folder is in that job"
    end_containers(made.batch, f"{STAMP}__none")
    (made.home / "down").touch()
    end_containers(made.batch, f"{STAMP}__q")
    assert "c1" in made.running()
    (made.home / "down").unlink()
    end_containers(made.batch, f"{STAMP}__q")
    assert made.running() == STRANGERS.keys()


RUNNER = """
import os, sys, time
from pathlib import Path
from terminalbench.experiments.batch import Batch
from terminalbench.runner.executors.local import spawn
from terminalbench.runner.kill import when_orphaned
more = when_orphaned(Batch(Path(sys.argv[1])), sys.argv[2])
harbor = spawn([sys.executable, "-c", "import os, time; print(os.environ.keys() & %r, flush=True); time.sleep(600)"
                % set(more)], {**os.environ, **more}, 2)
time.sleep(600)
"""


@pytest.mark.parametrize("engine", ["docker", "podman", "local"])
def test_a_killed_runner_leaves_no_containers(host: Callable[[str], Host], engine: str) -> None:
    """Harbor is interrupted and ends; what it could not stop any more, the process beside it stops."""
    made = host(engine)
    command = [sys.executable, "-c", RUNNER, str(made.batch.folder), f"{STAMP}__p"]
    runner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert runner.stdout is not None
    assert runner.stdout.readline() == "set()\n", "Harbor does not see what was said to the process beside it"
    runner.kill()
    runner.wait(60)
    assert runner.stdout.read() == "", "Harbor has ended"
    if engine == "local":
        assert made.calls == []
        return
    gone = {"c3"} if engine == "docker" else set()  # the one with a folder in that job
    deadline = time.monotonic() + seconds(60)
    while not any(call.startswith(f"{engine} ps") for call in made.calls) or gone & made.running(engine):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (OURS.keys() | STRANGERS.keys()) - made.running() == gone
