"""An executor of several machines, with machines that only pretend: when it is let go, and when a lost job runs again."""

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.experiments import BASE, Project
from support.results import STAMP, make_plan, make_trial
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import ExclusionKind
from terminalbench.experiments.tables import RayTable, RunTable
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.lab.run import run
from terminalbench.live import processes
from terminalbench.live.processes import Worker
from terminalbench.records.event import Event
from terminalbench.runner import kill, supervise
from terminalbench.runner import run as runner
from terminalbench.runner.executors import ray_executor
from terminalbench.runner.executors.base import CLUSTER_GONE, NO_ROOM, NODE_FENCED, NODE_LOST, JobRun
from terminalbench.runner.executors.ray_executor import RayExecutor
from terminalbench.runner.executors.ray_messages import JoinRequest
from terminalbench.runner.supervise import MAX_LOST, BatchSupervisor
from terminalbench.runner.waves import Launch


@dataclass
class Machines:
    """A cluster that loses its first job, which may run on for `afterlife_sec`; the next one finishes its trial."""

    batch: Batch | None = None
    afterlife_sec: float = 0.0
    said: list[str] = field(default_factory=list)
    polls: int = 0
    at_once: int = 0

    def ready(self, settings: RunTable) -> None:
        self.said.append("ready")
        self.at_once = settings.parallel

    def wave_trials(self, settings: RunTable, trials: int) -> int:
        return 1

    def waits(self, worker: Worker) -> bool:
        return False

    def leave(self) -> None:
        self.said.append("leave")

    def start(self, job: JobRun) -> Worker:
        self.said.append("start")
        return Worker(job.name, job.profile, reference=job.name)

    def poll(self, worker: Worker) -> int:
        if self.said.count("start") == 1:
            self.polls += 1
            if self.polls == 5 and self.batch is not None:
                append_jsonl(self.batch.events_jsonl, Event("t", "job_ended", worker.job, 1, "p"))
            return NODE_LOST
        if self.batch is not None:
            make_trial(self.batch, "a__2", job=worker.job)
        return 0

    def stop(self, worker: Worker, *, now: bool = False) -> None:
        return None

    def alive(self, worker: Worker) -> bool:
        return False


def use(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (supervise, "executor"),
        (kill, "executor"),
        (processes, "executor"),
        (runner, "find_executor"),
    ):
        monkeypatch.setattr(module, name, lambda _name: machines)


def test_when_planning_fails_the_machines_are_let_go(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines()
    use(machines, monkeypatch)
    project.task("tasks", "a")
    project.write("broken.env", "no variable\n")
    text = BASE.replace("[tasks]", '[run]\ncontainer_env = "local"\n[tasks]\ndefault_dataset = "tasks"')
    profile = '[profiles.{key}]\nagent = "oracle"\nenv_file = "broken.env"\nparallel = {parallel}\n'
    profiles = profile.format(key="p", parallel=3) + profile.format(key="q", parallel=64)
    file = project.experiment(f"{text}{profiles}")
    with pytest.raises(UserError, match="nothing can run"):
        run(file)
    assert machines.said == ["ready", "leave"]
    assert machines.at_once == 64, "a node must have room for the largest job"
    with pytest.raises(UserError, match="nothing can run"):
        run(file, profiles=("p",))
    assert machines.at_once == 3, "of those that run"


@pytest.mark.parametrize("afterlife_sec", [0.0, 3600.0])
def test_a_lost_job_runs_again_when_it_must_have_ended_or_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, afterlife_sec: float
) -> None:
    batch = allocate(tmp_path, "s")
    plan = make_plan(batch, ("p",), "a", 1)
    machines = Machines(batch, afterlife_sec)
    use(machines, monkeypatch)
    monkeypatch.setattr(supervise, "_POLL_SEC", 0.0)
    launch = Launch(plan.jobs[0], lambda _job: {}, lambda _job: [], {})
    left_over = BatchSupervisor(batch, [launch], 0, lambda _event: None, lambda: None).run()
    assert left_over == {}
    assert machines.said == ["start", "start"]
    assert (machines.polls >= 5) == (afterlife_sec > 0), "not before it has said its end"


@dataclass
class Losing(Machines):
    """A cluster whose jobs end with one code; those of `fruitful` number leave a trial."""

    code: int = NODE_FENCED
    fruitful: int = -1

    def start(self, job: JobRun) -> Worker:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        job.log.write_text("why it ended\n")
        return super().start(job)

    def poll(self, worker: Worker) -> int:
        if self.batch is not None and self.said.count("start") == self.fruitful:
            make_trial(self.batch, f"a__{self.fruitful}", job=worker.job)
        return self.code


def supervised(machines: Losing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts: int = 2) -> BatchSupervisor:
    """Two profiles of one task, run by these machines."""
    machines.batch = batch = allocate(tmp_path, "s")
    plan = make_plan(batch, ("p", "q"), "a", attempts)
    use(machines, monkeypatch)
    monkeypatch.setattr(supervise, "_POLL_SEC", 0.0)
    launches = [Launch(job, lambda _job: {}, lambda _job: [], {}) for job in plan.jobs]
    return BatchSupervisor(batch, launches, 1, lambda _event: None, lambda: None)


def test_waves_that_are_lost_in_a_row_end_a_profile_and_a_trial_in_between_begins_the_count_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Losing(fruitful=2)
    left_over = supervised(machines, tmp_path, monkeypatch).run()
    assert {why.kind for why in left_over.values()} == {ExclusionKind.CLUSTER_LOST}
    assert all("was lost, 3 times in a row without a trial that ended" in why.reason for why in left_over.values())
    assert {profile for profile, _ in left_over} == {"p", "q"}
    assert machines.said.count("start") == (2 + MAX_LOST) + MAX_LOST


def test_without_room_a_profile_ends_and_without_a_cluster_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Losing(code=NO_ROOM)
    left_over = supervised(machines, tmp_path / "room", monkeypatch).run()
    assert {(profile, why.reason, why.kind) for (profile, _), why in left_over.items()} == {
        (profile, "why it ended", ExclusionKind.CLUSTER_LOST) for profile in ("p", "q")
    }
    assert machines.said.count("start") == 2, "the next profile is tried: it may be smaller"
    machines = Losing(code=CLUSTER_GONE)
    supervisor = supervised(machines, tmp_path / "gone", monkeypatch)
    assert {why.reason for why in supervisor.run().values()} == {"why it ended"}
    assert supervisor.stop is not None
    assert machines.said.count("start") == 1


def test_a_cluster_that_cannot_be_joined_again_is_given_up_once_for_all_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a real bridge, to an address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setattr(ray_executor, "AGAIN_SEC", 6.0)
    executor = RayExecutor()
    executor._settings = RunTable(executor="ray", ray=RayTable(address))

    def start(name: str) -> Worker:
        write_json(tmp_path / "config.json", {})
        argv = ["harbor", "run", "-c", str(tmp_path / "config.json")]
        return executor.start(JobRun(name, "p", argv, {}, tmp_path / name, tmp_path / f"{name}.log"))

    first = start("first")
    while (code := executor.poll(first)) is None:
        time.sleep(0.05)
    assert code == CLUSTER_GONE
    bridge = executor._bridge
    assert executor.poll(start("second")) == CLUSTER_GONE, "at once"
    assert executor._bridge is bridge
    assert f"no Ray cluster can be joined at {address}: " in (tmp_path / "second.log").read_text()
    executor.leave()


def test_what_a_killed_runner_had_elsewhere_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, notes = allocate(tmp_path, "s"), []
    use(Machines(afterlife_sec=3600.0), monkeypatch)
    kill.await_ends(batch, notes.append)
    assert notes == []
    write_json(batch.worker(f"{STAMP}__p"), Worker(f"{STAMP}__p", "p", 1, executor="machines"))

    def note(text: str) -> None:
        """It says its end only now."""
        notes.append(text)
        append_jsonl(batch.events_jsonl, Event("t", "job_ended", f"{STAMP}__p", 1, "p"))

    kill.await_ends(batch, note)
    assert notes == ["waiting up to 60.0 min for jobs of the previous run to end on other machines"]


class Web(BaseHTTPRequestHandler):
    """A server of web pages."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def listening(answer: bytes) -> Generator[int]:
    """A port whose listener says this to who connects, and then waits for what is said to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def serve() -> None:
            kept.append(server.accept()[0])
            kept[0].sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        for one in kept:
            one.close()


def joined(port: int) -> str | None:
    return JoinRequest(f"127.0.0.1:{port}", 1.0, 0, 1, 18.0).obstacle()


def test_what_listens_at_an_address_and_is_no_ray_is_told_without_ray() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        assert joined(web.server_port) == "it answers, but is not Ray"
        web.shutdown()
    with listening(b"SSH-2.0-OpenSSH_9.2\r\n") as port:
        assert joined(port) == "it answers, but is not Ray"
    with listening(bytes([0, 0, 6, 4, 0, 0, 0, 0, 0])) as port:
        assert joined(port) is None, "a frame of settings: so a server of gRPC begins"


def test_a_silent_listener_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("terminalbench.runner.executors.ray_messages._ANSWER_SEC", 0.2)
    with listening(b"") as port:
        assert joined(port) == "it does not answer"
    assert JoinRequest("somewhere", 1.0, 0, 1, 18.0).obstacle() == "an address is HOST:PORT"
