"""Nights end to end: workers and supervisor killed, hung, interrupted; whatever happens, every trial counts once."""

import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Generator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from test_run import wait_for

from support.pace import seconds
from support.tasks import AGENTS
from support.warm import Warm
from terminalbench.experiments.batch import Batch
from terminalbench.index.results import open_view
from terminalbench.json_files import read_json, read_jsonl
from terminalbench.live.processes import Worker
from terminalbench.locks import start_ticks
from terminalbench.overnight.begin import NightRequest
from terminalbench.overnight.decisions import NightTimeouts
from terminalbench.overnight.episodes import EpisodeStore
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.loop import NightEnd, run_night
from terminalbench.overnight.night import (
    Heartbeat,
    IterationStatus,
    NightConfig,
    NightEvent,
    NightEventKind,
    NightState,
    Role,
    WorkerPhase,
)
from terminalbench.records.event import Event, EventKind
from terminalbench.runner.executors.local import OWN_PROCESSES
from terminalbench.sandbox.engine.kernel import is_privileged

HELD = '''

import json
import signal


class Held(Scripted):
    """Notes each try in the project, and waits there for the file `go`; kills its worker on task b when told to.

    Told to scribble, it changes its own code.
    """

    async def run(self, instruction, environment, context) -> None:
        here, trial = Path("{root}"), self.logs_dir.parent
        with open(here / "ledger", "a") as book:
            book.write(trial.name + "\\n")
        if trial.name.startswith("b__") and (here / "poison").exists():
            os.kill(json.loads((trial.parents[2] / ".lock").read_text())["pid"], signal.SIGKILL)
        if (here / "scribble").exists():
            try:
                Path(__file__).write_text("changed")
            except OSError as error:
                (here / "scribble").write_text(str(error))
        while not (here / "go").exists():
            await asyncio.sleep(0.02)
        await super().run(instruction, environment, context)
'''
SOLVER = '[profiles.p]\nagent = "lab_agents:Held"\noptions = { script = "echo forty-two > /app/answer.txt", cost_usd = 0.5 }\n'


class Nights:
    """A lab with a suite whose agents wait for the test, and the night that runs it."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab
        lab.env[OWN_PROCESSES] = "1"  # Harbor processes are forked from the one of the test session
        lab.project.write("lab_agents.py", AGENTS + HELD.replace("{root}", str(lab.root)))
        self.suite = lab.experiment(SOLVER, run="parallel = 2")
        self.folder = NightFolder(lab.root / "night")

    def start(self, *arguments: str | Path, command: str = "overnight"):
        return self.lab.start(command, *arguments)

    def begin(self, *arguments: str):
        return self.start("--suite", self.suite, "--output", self.folder.folder, *arguments)

    @property
    def state(self) -> NightState:
        return read_json(self.folder.state_json, NightState)

    @property
    def config(self) -> NightConfig:
        return read_json(self.folder.config_json, NightConfig)

    def events(self, *kinds: NightEventKind) -> list[NightEvent]:
        return [one for one in read_jsonl(self.folder.events_jsonl, NightEvent).records if one.kind in kinds]

    def tries(self) -> Counter[str]:
        book = self.lab.root / "ledger"
        return Counter(line.split("__")[0] for line in book.read_text().split()) if book.exists() else Counter()

    def beat(self, number: int = 1) -> Heartbeat | None:
        with contextlib.suppress(Exception):
            return read_json(self.folder.heartbeat(number, Role.ITERATION), Heartbeat)
        return None

    def at_work(self, tries: int) -> None:
        wait_for(lambda: sum(self.tries().values()) >= tries)

    def counted(self) -> dict[tuple[int, str], list[str]]:
        """By iteration and task the outcomes of planned trials; two batches of one iteration would be an error."""
        found: dict[tuple[int, str], list[str]] = {}
        seen = set()
        for batch in self.folder.batches():
            view = open_view(batch, self.folder.results_root)
            number = int(view.plan.labels["iteration"])
            assert number not in seen, "an iteration has two batches"
            seen.add(number)
            for cell in view.cells:
                found.setdefault((number, cell.task.id), []).append(str(cell.outcome))
        return found


@pytest.fixture
def nights(lab: Any) -> Nights:
    return Nights(lab)


def ended(process) -> tuple[int, str]:
    out, err = process.communicate(timeout=seconds(240))
    return process.returncode, out + err


def alive(pid: int) -> bool:
    return start_ticks(pid) is not None


def test_a_night_whose_worker_supervisor_and_all_are_killed_goes_on_as_if_nothing_had_happened(nights: Nights) -> None:
    first = nights.begin("--iterations", "2", "--tasks", "a", "--workers", "2", "--seed", "5")
    nights.at_work(2)
    refused = nights.start("--resume", nights.folder.folder)
    code, said = ended(refused)
    assert code == 2, said
    assert f"in use by tbench overnight night (pid {first.pid}" in said

    beat = nights.beat(1)
    assert beat is not None
    os.kill(beat.pid, signal.SIGKILL)
    wait_for(lambda: (again := nights.beat(1)) and again.pid != beat.pid and again.phase is WorkerPhase.RUNNING)
    assert "killed by signal 9" in nights.events(NightEventKind.WORKER_LOST)[0].said

    workers = [pid for number in (1, 2) if (one := nights.beat(number)) is not None for pid in [one.pid]]
    first.kill()
    first.communicate(timeout=seconds(60))
    (nights.lab.root / "go").touch()
    code, said = ended(nights.start("--resume", nights.folder.state_json, "--iterations", "3"))
    assert code == 0, said
    assert not any(map(alive, workers))
    assert nights.counted() == {(number, "a"): ["passed"] for number in (1, 2, 3)}
    assert nights.state.status == "finished"
    assert [work.status for work in nights.state.work] == [IterationStatus.DONE] * 3
    assert len({batch_seed(nights, number) for number in (1, 2, 3)}) == 3
    assert len({profile_id(nights, number) for number in (1, 2, 3)}) == 1
    assert nights.folder.report_md.exists()
    assert nights.folder.summary_json.exists()
    assert sorted(one.iteration for one in EpisodeStore.of_project(nights.lab.root).read().episodes) == [1, 2, 3]

    code, said = ended(nights.begin("--iterations", "3"))
    assert code == 0, said
    assert "this night is complete" in said
    assert len(list(nights.folder.batches())) == 3


def batch_seed(nights: Nights, number: int) -> int | None:
    plans = [json.loads(batch.plan_json.read_text()) for batch in nights.folder.batches()]
    return next(plan["settings"]["seed"] for plan in plans if plan["labels"]["iteration"] == str(number))


def profile_id(nights: Nights, number: int) -> str:
    plans = [json.loads(batch.plan_json.read_text()) for batch in nights.folder.batches()]
    return next(plan["jobs"][0]["profile_id"] for plan in plans if plan["labels"]["iteration"] == str(number))


@contextlib.contextmanager
def in_here(nights: Nights) -> Generator[None]:
    """This process as the supervisor of a night; its workers and their Harbor processes are forked."""
    with (
        mock.patch("terminalbench.runner.executors.local.spawn", Warm()),
        mock.patch.dict(os.environ, nights.lab.env, clear=True), contextlib.chdir(nights.lab.root),
    ):  # fmt: skip
        yield


def test_a_worker_that_hangs_is_ended_and_one_that_is_slow_is_not(nights: Nights) -> None:
    stopped: list[int] = []

    def meddle() -> None:
        nights.at_work(2)
        beat = nights.beat(2)
        assert beat is not None
        stopped.append(beat.pid)
        os.kill(beat.pid, signal.SIGSTOP)
        wait_for(lambda: (again := nights.beat(2)) and again.pid != beat.pid and again.phase is WorkerPhase.RUNNING)
        time.sleep(2.0)  # the other one is slow all this time
        (nights.lab.root / "go").touch()

    other = threading.Thread(target=meddle)
    with in_here(nights):
        other.start()
        request = NightRequest(suite=nights.suite, output=nights.folder.folder, tasks=("a",), iterations=2, workers=2)
        end: NightEnd = run_night(request, patience=NightTimeouts(silent_sec=seconds(5.0)))
    other.join()
    assert end.exit_code == 0
    lost = nights.events(NightEventKind.WORKER_LOST)
    assert [(one.iteration, one.pid) for one in lost] == [(2, stopped[0])]
    assert "has given no sign of life for" in lost[0].said
    assert nights.counted() == {(number, "a"): ["passed"] for number in (1, 2)}
    starts = {work.number: work.starts for work in nights.state.work}
    assert starts == {1: 1, 2: 2}


def test_orders_reach_a_live_night_and_whatever_is_killed_it_goes_on_and_tells_its_first_lines(nights: Nights) -> None:
    """Paused and slowed down by its gate, its Harbor killed, then all of it at once; the message comes at the end."""
    lab, gate = nights.lab, nights.folder.gate_json
    with inbox() as (address, got):
        suite = lab.experiment(f'{SOLVER}[notify]\nurls = ["${{LAB_NOTIFY}}"]\n', run="parallel = 2", name="told.toml")
        night = ("--suite", suite, "--output", nights.folder.folder, "--iterations", "2")
        code, said = ended(nights.start(*night))
        assert code == 2, said
        assert "LAB_NOTIFY is not set" in said
        assert not nights.folder.folder.exists()
        lab.env["LAB_NOTIFY"] = address
        running = nights.start(*night)
        nights.at_work(2)

        def ctl(*order: str) -> None:
            ran = lab.tbench("ctl", *order, "--gate", gate, "--reason", "the line is needed")
            assert ran.returncode == 0, ran.stdout + ran.stderr

        def waits() -> bool:
            return any(one.kind == EventKind.TRIAL_WAITING for one in read_jsonl(batch.events_jsonl, Event).records)

        (batch,) = nights.folder.batches()
        assert (batch.folder.parent.name, batch.number) == ("night", 1)
        ctl("pause")
        ctl("set", "parallel=1")
        for harbor in harbors(batch):
            os.kill(harbor, signal.SIGKILL)
        wait_for(lambda: nights.events(NightEventKind.INCIDENT) and waits(), running)
        (incident,) = nights.events(NightEventKind.INCIDENT)
        assert incident.iteration == 1
        assert "Harbor was killed by signal 9" in (incident.cause or "")
        assert sum(nights.tries().values()) == 2, "nothing starts while it is paused"
        ctl("resume")
        nights.at_work(3)
        time.sleep(1.0)
        assert sum(nights.tries().values()) == 3, "one at a time"

        beat = nights.beat(1)
        assert beat is not None
        for pid in (running.pid, beat.pid, *harbors(batch)):
            os.kill(pid, signal.SIGKILL)
        running.communicate(timeout=seconds(60))
        (lab.root / "go").touch()
        assert not got
        code, said = ended(nights.start("--resume", nights.folder.state_json))
    assert code == 0, said
    assert nights.counted() == {(number, task): ["passed"] for number in (1, 2) for task in "ab"}
    assert [(work.number, work.batch) for work in nights.state.work] == [(1, "night/1"), (2, "night/2")]
    headlines = json.loads(nights.folder.summary_json.read_text())["headlines"]
    (message,) = got
    assert message.splitlines()[:2] == [f"{nights.config.run_id}: {headlines[0]}", headlines[1]]


def harbors(batch: Batch) -> list[int]:
    return [worker.pid or 0 for file in batch.worker("x").parent.glob("*.json") for worker in [read_json(file, Worker)]]


@contextlib.contextmanager
def inbox() -> Generator[tuple[str, list[str]]]:
    """A local address for messages, and what arrived there."""
    got: list[str] = []

    class Box(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["message"])
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Box)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"json://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        server.server_close()


def test_a_task_that_kills_workers_twice_is_left_out_by_name(nights: Nights) -> None:
    (nights.lab.root / "go").touch()
    (nights.lab.root / "poison").touch()
    code, said = ended(nights.begin("--iterations", "2"))
    assert code == 0, said
    assert [(held.task, held.dataset) for held in nights.state.quarantine] == [("b", "tasks")]
    assert "b is left out" in said
    found = nights.counted()
    assert [found[number, "a"] for number in (1, 2)] == [["passed"], ["passed"]]
    assert {outcome for number in (1, 2) for outcome in found[number, "b"]} <= {"cancelled", "not_run"}
    assert nights.tries()["b"] == 2


def test_an_interrupt_drains_and_the_rest_is_run_by_a_resume_that_extends_it(nights: Nights) -> None:
    running = nights.begin("--iterations", "1", "--tasks", "a", "--budget-usd", "1.2", "--workers", "1")
    nights.at_work(1)
    running.send_signal(signal.SIGINT)
    code, said = ended(running)
    assert code == 130, said
    assert nights.state.status == "interrupted"
    assert nights.folder.report_md.exists()
    (nights.lab.root / "go").touch()

    code, said = ended(nights.start("--resume", nights.folder.folder, "--attempts", "2", "--iterations", "3"))
    assert code == 2
    assert "--attempts: the night has 1, not 2" in said
    code, said = ended(nights.start("--resume", nights.folder.folder, "--iterations", "3"))
    assert code == 3, said  # the second half dollar does not fit into the budget
    assert "budget" in (nights.state.stopped or "")
    assert "name another gate" not in said
    assert nights.config.iterations == 3
    assert "iterations: 1 -> 3" in nights.events(NightEventKind.RESUMED)[0].said
    assert nights.counted()[1, "a"] == ["passed"]
    assert len(nights.counted()) == 1  # one task, one iteration: 1 of 1, not 1 of 2
    code, said = ended(nights.start("--resume", nights.folder.folder, "--budget-usd", "5", "--json"))
    assert code == 0, said
    document = json.loads(said[said.index("{") :])
    assert (document["trials"], document["measured"], document["passed"], document["done"]) == (3, 3, 3, 3)


def test_nothing_starts_after_until_and_a_clock_that_is_set_moves_it(nights: Nights) -> None:
    (nights.lab.root / "go").touch()
    real, moved = time.time, []

    def wall() -> float:
        """Once the first iteration is done, somebody sets the clock an hour forward."""
        if moved or (nights.folder.state_json.exists() and any(one.status.over for one in nights.state.work)):
            moved.append(True)
        return real() + 3600.0 * bool(moved)

    with in_here(nights), mock.patch("terminalbench.overnight.night.time.time", wall):
        until = (datetime.now().astimezone() + timedelta(minutes=30)).isoformat()
        request = NightRequest(suite=nights.suite, output=nights.folder.folder, tasks=("a",), until=until)
        end = run_night(request)
    assert end.exit_code == 0  # nothing more was asked for
    assert end.state.status == "stopped"
    assert "deadline" in (end.state.stopped or "")
    told = nights.events(NightEventKind.NOTE, NightEventKind.WORKER_STARTED)
    set_at = next(place for place, one in enumerate(told) if "the wall clock went forward by 60.0 min" in one.said)
    assert not [one for one in told[set_at:] if one.kind is NightEventKind.WORKER_STARTED]
    # What has its batch by then tries nothing any more.
    ran = [outcomes for outcomes in nights.counted().values() if outcomes != ["not_run"]]
    assert sum(nights.tries().values()) == len(ran) >= 1


def test_a_sample_is_validated_in_a_batch_of_its_own_with_both_profiles_and_a_cap_of_its_own(nights: Nights) -> None:
    (nights.lab.root / "go").touch()
    with in_here(nights), mock.patch("terminalbench.overnight.begin.VALIDATOR", "simulated"):
        request = NightRequest(
            suite=nights.suite, output=nights.folder.folder, iterations=1, validation_rate=0.5, validation_budget_usd=3.0
        )  # fmt: skip
        assert run_night(request).exit_code == 0
    plans = [json.loads(batch.plan_json.read_text()) for batch in nights.folder.batches()]
    roles = {plan["labels"]["role"]: plan for plan in plans}
    assert len(plans) == 2
    assert [job["profile"] for job in roles["iteration"]["jobs"]] == ["p"]
    assert [job["profile"] for job in roles["validation"]["jobs"]] == ["p", "simulated"]
    assert roles["validation"]["settings"]["budget_usd"] == 3.0
    assert all(len(job["tasks"]) == 1 for job in roles["validation"]["jobs"])  # half of two
    assert roles["validation"]["jobs"][0]["profile_id"] == roles["iteration"]["jobs"][0]["profile_id"]
    assert nights.config.validation is not None


def test_without_claude_the_validation_is_off_and_said_to_be(nights: Nights) -> None:
    """Its agent would change the pinned code, which is read-only for it."""
    (nights.lab.root / "go").touch()
    if is_privileged():
        (nights.lab.root / "scribble").touch()
    lab = nights.lab
    lab.env = {name: value for name, value in lab.env.items() if not name.startswith(("ANTHROPIC", "CLAUDE"))}
    lab.env["PATH"] = "/usr/bin:/bin"
    ran = nights.begin("--iterations", "1", "--tasks", "a", "--claude-validation-rate", "1")
    code, said = ended(ran)
    assert code == 0, said
    assert "no validation by Claude: " in said
    assert nights.config.validation_off
    assert {work.role for work in nights.state.work} == {Role.ITERATION}
    assert not is_privileged() or "Read-only file system" in (nights.lab.root / "scribble").read_text()
