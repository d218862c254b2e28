"""The event plugin inside real Harbor jobs: what it writes, and that it never harms the job."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from harbor.cli.job_plugins import plugin_configs_from_cli
from harbor.trial.hooks import TrialEvent
from jobkit import SOLVE, Job, scripted, stop, write_task

from terminalbench.experiments.plan import ExclusionKind
from terminalbench.harbor.agents.needs import LOCAL_SANDBOX
from terminalbench.harbor.jobs import PLUGIN
from terminalbench.harbor.limits.admission import Admission, Wait
from terminalbench.harbor.limits.budget import TrialRefusal
from terminalbench.harbor.limits.gate import Gate, GateState
from terminalbench.harbor.limits.hangs import EARLY_SEC
from terminalbench.harbor.plugin import EventPlugin
from terminalbench.harbor.read.notes import read_times
from terminalbench.records.event import Event, WaitKind
from terminalbench.records.trial import Outcome

LIFE = ["trial_started", "environment", "agent", "collect", "verifier", "trial_ended"]


def wait_for(job: Job, kind: str, count: int = 1, phase: str | None = None) -> None:
    """Wait until the events say so; the test's own time limit ends a wait in vain."""
    while True:
        found = [event for event in job.events(kind) if phase in (None, event.phase)]
        if len(found) >= count:
            return
        time.sleep(0.02)


def sleeping(seconds: str) -> bool:
    """Whether a process of this machine sleeps for just so long, in whatever sandbox."""
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                return True
        except OSError:
            continue
    return False


def attempts_told(job: Job) -> dict[str, int]:
    """The attempts in the events, by trial."""
    return {event.trial: event.attempt for event in job.events() if event.trial and event.attempt}


def test_the_life_of_a_job(tmp_path: Path) -> None:
    tasks = [write_task(tmp_path / "tasks" / name) for name in ("zeta", "alpha")]
    usage = {"n_input_tokens": 100, "n_cache_tokens": 40, "n_output_tokens": 7, "cost_usd": 0.5}
    solve_zeta = f"{SOLVE}; [ $(hostname) ]"
    job = Job(tmp_path, scripted(solve_zeta, usage=usage), tasks, settings={"n_attempts": 2})
    job.run()
    events = job.events()
    assert [events[0].kind, events[-1].kind] == ["job_started", "job_ended"]
    assert events[0].detail["trials"] == 4
    assert events[-1].detail == {"how": "completed", "trials": 4, "outcomes": {"passed": 4}}
    assert {(event.job, event.profile, event.pid) for event in events} == {("job", "scripted", events[0].pid)}
    trials = {trial.name: trial for trial in job.trials()}
    assert len(trials) == 4
    for name, trial in trials.items():
        mine = [event for event in events if event.trial == name]
        assert [event.phase or event.kind for event in mine] == LIFE
        assert {(event.task, event.dataset) for event in mine} == {(trial.task, "tests")}
        end = mine[-1]
        assert (end.outcome, end.reward, end.error) == ("passed", 1.0, None)
        assert end.usage == trial.usage
        assert end.usage is not None
        assert (end.usage.input_tokens, end.usage.cost_usd) == (60, 0.5)
    recorded = attempts_told(job)
    cells = {(trials[name].task, attempt) for name, attempt in recorded.items()}
    assert cells == {("zeta", 1), ("zeta", 2), ("alpha", 1), ("alpha", 2)}


def test_several_harbors_write_to_one_file(tmp_path: Path) -> None:
    task = write_task(tmp_path / "answer")
    jobs = [
        Job(tmp_path, scripted(SOLVE), [task], name=f"job-{n}", profile=f"p{n}", heartbeat_sec=0.01) for n in range(3)
    ]
    processes = [job.start() for job in jobs]
    try:
        for process in processes:
            output, _ = process.communicate(timeout=200)
            assert process.returncode == 0, output
    finally:
        for process in processes:
            stop(process)
    counts = Counter((event.profile, event.kind) for event in jobs[0].events())
    for n in range(3):
        assert counts[f"p{n}", "trial_ended"] == 1
        assert counts[f"p{n}", "job_ended"] == 1
        assert counts[f"p{n}", "heartbeat"] > 0


def test_what_went_wrong_is_in_the_event(tmp_path: Path) -> None:
    agent = scripted(error="cannot go on with sk-ant-api03-SECRETSECRET", usage={"n_output_tokens": 3})
    job = Job(tmp_path, agent, [write_task(tmp_path / "answer")])
    job.run()
    (end,) = job.events("trial_ended")
    assert (end.outcome, end.reward) == ("failed", None)
    assert end.error == "RuntimeError: cannot go on with [redacted]"
    assert end.detail == {"agent_status": "crashed", "error_class": "agent_crash"}
    assert end.usage is not None
    assert end.usage.output_tokens == 3


RETRY = {"max_retries": 1, "min_wait_sec": 0.01, "max_wait_sec": 0.01}


def test_what_a_profile_does_is_not_tried_again_nor_what_has_a_verdict(tmp_path: Path) -> None:
    """Harbor alone would try both again, and delete the first try."""
    crash = scripted("true", error="my own fault")
    done = scripted(SOLVE, error="429", error_type="ApiRateLimitError")
    leaves = scripted("true", error="3", error_type="SystemExit")  # would end Harbor's process
    gives_up = scripted("true", error="", error_type="CancelledError")  # would look like an interruption
    cases = {"crash": (crash, "failed"), "done": (done, "passed")}
    cases |= {"leaves": (leaves, "failed"), "gives_up": (gives_up, "failed")}
    for name, (agent, outcome) in cases.items():
        job = Job(tmp_path / name, agent, [write_task(tmp_path / name / "answer")], settings={"retry": RETRY})
        job.run()
        (end,) = job.events("trial_ended")
        assert (end.outcome, "retried" in end.detail) == (outcome, False)
        assert [trial.outcome for trial in job.trials()] == [outcome]
        assert job.events("job_ended")[0].detail["how"] == "completed"
        assert name == "done" or end.detail["error_class"] == "agent_crash"


def test_every_try_of_a_retried_trial_is_kept(tmp_path: Path) -> None:
    used = {"n_input_tokens": 10, "n_output_tokens": 5, "cost_usd": 0.25}
    agent = scripted("true", error="flaky", error_type="ConnectionError", usage=used)
    job = Job(tmp_path, agent, [write_task(tmp_path / "answer")], settings={"retry": RETRY})
    job.run()
    assert len(job.trials()) == 1, "Harbor deletes the folder of the first try"
    first, second = job.events("trial_ended")
    assert first.detail.get("retried") is True
    assert "retried" not in second.detail
    assert second.detail["try"] == 2
    assert (first.trial, first.attempt) == (second.trial, second.attempt)
    assert first.usage is not None
    assert first.usage.cost_usd == 0.25
    assert job.events("job_ended")[0].detail["outcomes"] == {"errored": 1}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_complete_story(tmp_path: Path, number: signal.Signals) -> None:
    # While a phase begins, Harbor can miss that it is cancelled: the agent's own program has to run.
    seconds = f"{5_000_000 + os.getpid()}.{int(number)}"  # no other test's
    job = Job(tmp_path, scripted(f"sleep {seconds}"), [write_task(tmp_path / "answer", agent_sec=600)])
    process = job.start()
    try:
        while not sleeping(seconds):
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, number)
        process.communicate(timeout=600)
    finally:
        stop(process)
    assert process.returncode == 130
    assert job.events()[-1].kind == "job_ended"
    assert job.events("job_ended")[0].detail == {"how": "interrupted", "trials": 1, "outcomes": {"cancelled": 1}}
    if number is signal.SIGINT:  # SIGTERM can hit Harbor where it does not notice that a trial was cancelled
        assert len(job.events("trial_cancelled")) == 1
        assert [read_times(path.parent).cancelled for path in job.folder.glob("*/times.json")] == [True]
    (end,) = job.events("trial_ended")
    assert (end.outcome, end.reward) == ("cancelled", None)
    assert job.trial().outcome is Outcome.CANCELLED


def test_sigkill_and_resume_number_the_attempts_once(tmp_path: Path) -> None:
    # The first attempt hangs, the second solves the task at once: after the kill only attempt 2 is on disk.
    flag = tmp_path / "slow"
    flag.write_text("")
    agent = {"import_path": "scripted:FirstIsSlow", "kwargs": {"flag": str(flag), "script": SOLVE}}
    settings = {"n_attempts": 3, "n_concurrent_trials": 2}
    job = Job(tmp_path, agent, [write_task(tmp_path / "answer")], settings=settings, heartbeat_sec=0.05)
    process = job.start()
    try:
        wait_for(job, "trial_ended")
        wait_for(job, "heartbeat")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=600)
    finally:
        stop(process)
    assert not job.events("job_ended"), "a killed process says nothing: its pid and heartbeat are the evidence"
    (done,) = [reading for reading in job.readings() if reading.trial is not None][:1]
    recorded = attempts_told(job)
    before = recorded[done.name]
    result = job.folder / "result.json"
    if not result.read_bytes().strip():  # Harbor was killed while it wrote it, and would refuse to resume
        result.unlink()
    job.run()
    after = attempts_told(job)
    assert after[done.name] == before
    finished = [reading.name for reading in job.readings() if reading.trial is not None]
    assert sorted(after[name] for name in finished) == [1, 2, 3]


def test_job_goes_on_when_nothing_can_be_written(tmp_path: Path) -> None:
    job = Job(tmp_path, scripted(SOLVE), [write_task(tmp_path / "answer")])
    job.events_path.mkdir()
    output = job.run()
    assert "terminalbench events: write: IsADirectoryError" in output
    assert job.trial().outcome is Outcome.PASSED


def test_job_goes_on_when_every_hook_breaks(tmp_path: Path) -> None:
    job = Job(tmp_path, scripted(SOLVE), [write_task(tmp_path / "answer")], plugin=False)
    options = ["--plugin", "scripted:BrokenPlugin", "--pk", f"events={job.events_path}"]
    output = job.run(*options)
    assert job.trial().outcome is Outcome.PASSED
    assert "KeyError: 'broken on purpose'" in output
    counted = sum(event.detail.get("failures", 0) for event in job.events())
    assert counted == len(LIFE), "the hooks' failures are counted in the next line"
    assert (tmp_path / "events.jsonl.errors.log").exists()


def test_agent_cannot_hang_harbor_with_a_pipe(tmp_path: Path) -> None:
    # Harbor reads trajectory.json on its event loop; without the plugin this job never ends.
    links = "ln -s /etc/passwd /logs/agent/link; ln -s scripted.txt /logs/agent/ok"
    script = f"{SOLVE}; mkfifo /logs/agent/trajectory.json; {links}"
    job = Job(tmp_path, scripted(script), [write_task(tmp_path / "answer")])
    job.run()
    trial = job.trial()
    assert trial.outcome is Outcome.PASSED
    assert sorted(path.name for path in (job.folder / trial.name / "agent").iterdir()) == ["ok", "scripted.txt"]


def test_wrong_option_is_refused_before_the_first_trial(tmp_path: Path) -> None:
    job = Job(tmp_path, scripted(SOLVE), [write_task(tmp_path / "answer")], plugin=False)
    job.run("--plugin", PLUGIN, "--pk", "evnts=x", expect=1)
    assert job.readings() == []


@pytest.mark.parametrize("options", [["evnts=x"], ["events=x", "colour=red"], ["events=x", "heartbeat_sec=0"]])
def test_wrong_options_make_no_plugin(options: list[str]) -> None:
    (config,) = plugin_configs_from_cli([PLUGIN], options)
    with pytest.raises((TypeError, ValueError)):
        EventPlugin(**config.kwargs)


@pytest.mark.parametrize(
    ("environment", "early"), [(LOCAL_SANDBOX, False), (None, True), ("container_like:ContainerLike", True)]
)
def test_no_agent_begins_as_early_as_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: str | None, early: bool
) -> None:
    """The verifier takes what is half a second younger than a container for a part of it, and spares it."""
    done: list[Any] = []

    async def sleep(seconds: float) -> None:
        done.append(seconds)

    monkeypatch.setattr("terminalbench.harbor.plugin.asyncio.sleep", sleep)
    plugin = EventPlugin(events=str(tmp_path / "events.jsonl"))
    monkeypatch.setattr(plugin, "_write", lambda kind, *_, **fields: done.append(fields["phase"]))
    config = SimpleNamespace(environment=SimpleNamespace(import_path=environment))
    for kind in (TrialEvent.ENVIRONMENT_START, TrialEvent.AGENT_START):
        event = SimpleNamespace(event=kind, trial_name="t", config=config, result=SimpleNamespace(step_results=None))
        asyncio.run(plugin._trial_phase(cast(Any, event)))
    waits = [one for one in done if isinstance(one, float) and one]
    assert [one for one in done if isinstance(one, str)] == ["environment", "agent"]
    assert done.index("agent") == len(done) - 1
    assert len(waits) == early
    assert all(wait > EARLY_SEC for wait in waits)


@pytest.mark.parametrize(
    "profile", ["claude", "12", "true", "null", "1e3", "[a]", '{"x": 1}', "a=b", " spaced ", 'q"uote']
)
def test_every_profile_key_survives_harbors_parser(tmp_path: Path, profile: str) -> None:
    path = tmp_path / "a b=c.jsonl"
    words = [f"events={json.dumps(str(path))}", f"profile={json.dumps(profile)}"]
    (config,) = plugin_configs_from_cli([PLUGIN], words)
    plugin = EventPlugin(**config.kwargs)
    assert plugin._profile == profile
    assert plugin._path == path


def test_by_hand_a_profile_called_true_or_12_is_still_a_name() -> None:
    (config,) = plugin_configs_from_cli([PLUGIN], ["events=e.jsonl", "profile=true"])
    assert EventPlugin(**config.kwargs)._profile == "true"
    (config,) = plugin_configs_from_cli([PLUGIN], ["events=e.jsonl", "profile=12"])
    assert EventPlugin(**config.kwargs)._profile == "12"


def test_events_decode_with_the_records_type(tmp_path: Path) -> None:
    job = Job(tmp_path, {"name": "nop"}, [write_task(tmp_path / "answer")], profile="nop")
    job.run()
    for line in job.events_path.read_bytes().splitlines():
        event = msgspec.json.decode(line, type=Event, strict=True)
        assert event.time.endswith("Z")
    assert job.trial().outcome is Outcome.FAILED


def test_a_trial_keeps_its_place_until_its_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next one, kept back by `tbench ctl set parallel=1`, would start before this one has ended."""
    plugin = EventPlugin(str(tmp_path / "events.jsonl"))
    door = plugin._door
    assert isinstance(door, Admission)
    places: list[bool] = []

    async def tell(event: object) -> None:
        places.append("t" in door._inside)
        raise OSError("the disk is full")

    monkeypatch.setattr(plugin, "_tell_end", tell)
    assert door.ask("t", "lane") is None
    with pytest.raises(OSError, match="full"):
        asyncio.run(plugin._trial_ended(SimpleNamespace(trial_name="t")))  # ty: ignore[invalid-argument-type]
    assert (places, door._inside) == ([True], set())


def test_a_trial_that_is_cancelled_as_it_starts_gives_its_place_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(tmp_path / "gate.json")
    gate.create(GateState(budget_usd=1.0))
    plugin = EventPlugin(str(tmp_path / "events.jsonl"), gate=str(gate.path))
    door = plugin._door
    assert isinstance(door, Admission)

    async def no_wait(event: object) -> None:
        door.ask("t", "lane")

    def cancelled(*_: object) -> dict[str, float]:
        raise asyncio.CancelledError

    monkeypatch.setattr(plugin, "_wait", no_wait)
    monkeypatch.setattr("terminalbench.harbor.plugin.limits_of", cancelled)
    config = SimpleNamespace(agent=SimpleNamespace(name="oracle", import_path=None))
    event = SimpleNamespace(trial_name="t", config=config)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(plugin._trial_started(event))  # ty: ignore[invalid-argument-type]
    assert (door._inside, plugin._running) == (set(), set())
    state = gate.read()
    assert (state.account("").running, state.spent_usd) == ({}, 0.0), "and its money: it cost nothing"
    door.ask("t", "lane")  # the thread that was letting it in comes late
    assert (door._inside, gate.read().account("").running) == (set(), {})


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_on_a_full_disk_what_is_held_stays_held_and_what_is_cancelled_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the hook would let the trial start."""
    signals: list[tuple[int, int]] = []
    plugin = EventPlugin(str(tmp_path / "events.jsonl"))
    monkeypatch.setattr("terminalbench.harbor.plugin.write_json", full)
    monkeypatch.setattr("terminalbench.harbor.plugin._DRAIN_SEC", 0.0)
    monkeypatch.setattr("terminalbench.harbor.plugin.os.kill", lambda *sent: signals.append(sent))
    monkeypatch.setattr(plugin, "_write", lambda *_args, **_fields: None)
    monkeypatch.setattr(
        plugin._door,
        "ask",
        lambda trial, _lane: (
            TrialRefusal("closed", ExclusionKind.BUDGET) if trial != "w" else Wait(WaitKind.PAUSED, "p")
        ),
    )
    agent = SimpleNamespace(name="nop", import_path=None, model_name=None)
    start = plugin._hook(TrialEvent.START)

    async def main() -> None:
        events = [SimpleNamespace(trial_name=name, config=SimpleNamespace(agent=agent)) for name in ("a", "b", "w")]
        trials = [asyncio.create_task(start(cast(Any, event))) for event in events]
        while len(plugin._held) < 2 or not signals:  # the test's own time limit ends a wait in vain
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # a second signal would come at once
        assert not any(trial.done() for trial in trials)
        for trial in trials:
            trial.cancel()
        ends = await asyncio.gather(*trials, return_exceptions=True)
        assert [type(end) for end in ends] == [asyncio.CancelledError] * 3

    asyncio.run(main())
    assert signals == [(os.getpid(), signal.SIGINT)], "one signal, though two are held"


def test_a_trial_that_begins_meanwhile_is_not_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = EventPlugin(str(tmp_path / "events.jsonl"))
    monkeypatch.setattr("terminalbench.harbor.plugin.os.kill", full)
    plugin._held, plugin._running = {"h"}, {"t"}
    plugin._interrupt()
    assert not plugin._interrupted


def test_money_is_settled_whatever_goes_wrong_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next trial would wait for ever until there is room beside this one."""
    gate = Gate(tmp_path / "gate.json")
    gate.create(GateState(budget_usd=1.5, guess_usd=1.0))
    plugin = EventPlugin(str(tmp_path / "events.jsonl"), gate=str(gate.path))

    async def tell(_event: object) -> None:
        raise RecursionError

    monkeypatch.setattr(plugin, "_tell_end", tell)
    assert plugin._door.ask("t", "lane") is None
    with pytest.raises(RecursionError):
        asyncio.run(plugin._trial_ended(SimpleNamespace(trial_name="t")))  # ty: ignore[invalid-argument-type]
    state = gate.read()
    assert (state.account("").running, state.spent_usd, state.unknown) == ({}, 1.0, 1)
