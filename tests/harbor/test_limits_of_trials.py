"""Waiting for a provider and ending what hangs, inside real Harbor jobs."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from jobkit import SOLVE, Job, scripted, write_task

from support.pace import seconds
from terminalbench.harbor.limits.admission import Admission
from terminalbench.harbor.limits.cancellation import (
    INSIST_SEC,
    CancellationHooks,
    OverduePhase,
    PhaseWatch,
    TrialCanceller,
)
from terminalbench.harbor.limits.clock import ASLEEP_SEC, AwakeClock, give_time, take_time_back
from terminalbench.harbor.limits.gate import Gate, GateState
from terminalbench.harbor.limits.hangs import AGENT_SEC, ASKS, GRACE_SEC, has_agent_limit, phase_limits


def test_a_rate_limit_holds_the_next_trial_as_long_as_the_log_asks(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate.json")
    gate.create(GateState(seed=1))
    agent = scripted(error="429", error_type="ApiRateLimitError", logs={"a.log": "429: Retry-After: 6"}, model_name="m")
    tasks = [write_task(tmp_path / "tasks" / name) for name in ("one", "two")]
    job = Job(tmp_path, agent, tasks, settings={"n_concurrent_trials": 1})
    job.run("--pk", f"gate={gate.path}")
    first, second = job.events("trial_ended")
    assert first.detail["error_class"] == "rate_limit"
    assert first.detail["asked_wait_sec"] == 6
    (waiting,) = job.events("trial_waiting")
    assert (waiting.trial, waiting.error) == (second.trial, "rate limit of m")
    assert waiting.detail["cause"] == "rate_limit"
    started = next(e for e in job.events("trial_started") if e.trial == second.trial)
    assert first.time < waiting.detail["until"] <= started.time
    trial = next(t for t in job.trials() if t.name == second.trial)
    assert trial.started_at is not None
    assert trial.started_at >= waiting.detail["until"][:-1], "waiting is no part of the trial's time"
    assert gate.read().lanes["m"].level == 2


def test_a_retry_waits_and_says_so(tmp_path: Path) -> None:
    settings = {"retry": {"max_retries": 1, "min_wait_sec": 0.01, "wait_multiplier": 1.0, "max_wait_sec": 0.01}}
    broken = scripted(error="broke", error_type="ConnectionError")
    job = Job(tmp_path, broken, [write_task(tmp_path / "one")], settings=settings, plugin=False)
    job.run("--plugin", "scripted:LatePlugin", "--pk", f"events={job.events_path}")
    (waiting,) = job.events("trial_waiting")
    assert (waiting.detail["cause"], waiting.error) == ("retry", "pause before the next try")
    again = job.events("trial_started")[1]
    assert waiting.detail["until"] <= again.time
    assert (tmp_path / "superseded" / "job" / f"{again.trial}-try1" / "result.json").is_file()


def test_a_task_without_a_limit_for_its_agent_gets_one(tmp_path: Path) -> None:
    task = write_task(tmp_path / "one")
    toml = task / "task.toml"
    toml.write_text(toml.read_text().replace("[agent]\ntimeout_sec = 60.0\n", ""))
    bounded = write_task(tmp_path / "two")
    job = Job(tmp_path, scripted(SOLVE), [task, bounded])
    job.run()
    configs = {t.task: json.loads((job.folder / t.name / "config.json").read_text()) for t in job.trials()}
    assert configs["one"]["agent"]["override_timeout_sec"] == AGENT_SEC
    assert "override_timeout_sec" not in configs["two"]["agent"]
    assert [trial.outcome for trial in job.trials()] == ["passed", "passed"]


def test_an_agent_has_the_time_that_is_planned_for_its_task(tmp_path: Path) -> None:
    slow, fine = (write_task(tmp_path / name) for name in ("slow", "fine"))
    tasks = [{"ref": {"id": "slow", "dataset": "d"}, "label": "tests", "config": {}, "timeout_sec": 1.5},
             {"ref": {"id": "fine", "dataset": "d"}, "label": "tests", "config": {}}]  # fmt: skip
    (tmp_path / "plan.json").write_text(json.dumps({"jobs": [{"tasks": tasks}]}))
    job = Job(tmp_path, scripted(f"sleep 4; {SOLVE}", timeout_sec=50), [slow, fine])
    job.run()
    configs = {t.task: json.loads((job.folder / t.name / "config.json").read_text()) for t in job.trials()}
    assert {task: config["agent"]["override_timeout_sec"] for task, config in configs.items()} == {
        "slow": 1.5,
        "fine": 50,
    }
    assert {t.task: (t.outcome, t.error_class) for t in job.trials()} == {
        "slow": ("failed", "agent_timeout"), "fine": ("passed", None),
    }  # fmt: skip


def test_a_phase_that_harbor_does_not_bound_is_ended_and_named(tmp_path: Path) -> None:
    hanging = write_task(tmp_path / "hangs")
    fine = write_task(tmp_path / "fine")
    agent = scripted(SOLVE)
    environment = {"import_path": "hanging:HangsWhenCollecting"}
    job = Job(tmp_path, agent, [hanging, fine], settings={"environment": environment})
    job.run("--pk", "grace_sec=24", expect=None)
    trials = {trial.task: trial for trial in job.trials()}
    hung = trials["hangs"]
    assert (hung.outcome, hung.error_class, hung.error_phase) == ("errored", "environment", "collect")
    assert hung.error_message == "collecting the agent's files did not end within 24 s"
    assert trials["fine"].outcome == "passed"
    (note,) = job.events("note")
    assert note.error == f"{hung.name}: {hung.error_message}; cancelled"
    end = next(e for e in job.events("trial_ended") if e.trial == hung.name)
    assert (end.outcome, end.detail["error_class"]) == ("errored", "environment")


class _Config:
    timeout_multiplier = 0.5
    agent_timeout_multiplier = None
    verifier_timeout_multiplier = 2.0
    agent_setup_timeout_multiplier = None
    environment_build_timeout_multiplier = None

    class agent:
        override_timeout_sec = None
        max_timeout_sec = 100.0
        override_setup_timeout_sec = 40.0

    class verifier:
        override_timeout_sec = None
        max_timeout_sec = None


def test_signs_of_life_come_from_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that is kept from answering is told of in them; time in which it only waited for a processor is not."""
    beats: list[float] = []
    starved = [0.0]
    monkeypatch.setattr("terminalbench.harbor.limits.cancellation._starved_sec", lambda _: starved[0])
    hooks = CancellationHooks(
        lambda *_, **__: None, lambda where, error: None, lambda _: None, lambda: None, beats.append
    )  # fmt: skip
    ender = TrialCanceller(Admission(None, None, "p"), "p", 60.0, 0.02, hooks, set())
    slots = SimpleNamespace(grow_to=lambda _: None)

    async def job() -> None:
        ender.start(asyncio.get_running_loop(), Path("/none"), slots)  # ty: ignore[invalid-argument-type]
        await blocked_until(lambda: len(beats) > 5 and beats[-1] > 0.1)
        beats.clear()

        def starve() -> bool:
            starved[0] += 1000.0
            return len(beats) > 5

        await blocked_until(starve)
        assert beats[-1] < 0.1, "it would have answered, had it had a processor"
        ender.stop()

    async def blocked_until(seen: Callable[[], bool]) -> None:
        await asyncio.sleep(0.05)
        deadline = time.monotonic() + seconds(60)
        while not seen():
            assert time.monotonic() < deadline
            time.sleep(0.02)  # what an import of seconds does

    asyncio.run(job())


def test_limits_of_phases() -> None:
    task = {"agent": {"timeout_sec": 300}, "verifier": {"timeout_sec": 50}, "environment": {"build_timeout_sec": 80}}
    assert phase_limits(task, _Config, 10.0) == {"environment": 70.0, "agent": 60.0, "collect": 10.0, "verifier": 250.0}
    unknown = phase_limits({}, _Config)
    assert unknown["collect"] == GRACE_SEC
    held = phase_limits(task, _Config)["agent"] - phase_limits(task, _Config, 0.0)["agent"] + ASKS * INSIST_SEC
    assert held == 120, "an agent that swallows cancellation holds its slot for two minutes"
    steps = {"steps": [{"agent": {"timeout_sec": 10}}, {"agent": {"timeout_sec": 30}, "verifier": {"timeout_sec": 7}}]}
    assert phase_limits(steps, _Config, 0.0)["agent"] == 15.0


@pytest.mark.parametrize(
    ("task", "known"),
    [
        ({"agent": {"timeout_sec": 1}}, True),
        ({"agent": {}}, False),
        ({}, False),
        ({"steps": [{"agent": {"timeout_sec": 1}}, {}]}, False),
        ({"steps": [{"agent": {"timeout_sec": 1}}]}, True),
        ({"agent": "x", "steps": "y"}, False),
    ],
)
def test_who_bounds_the_agent(task: dict, known: bool) -> None:
    assert has_agent_limit(task) is known


class _Task:
    def done(self) -> bool:
        return False


def test_a_watch_asks_twice_and_then_knows_that_it_is_in_vain() -> None:
    now, task = [0.0], _Task()
    watch = PhaseWatch(lambda: now[0])
    watch.started("t", {"agent": 5.0, "collect": 2.0}, task)  # ty: ignore[invalid-argument-type]
    now[0] = 100.0
    assert watch.overdue() == [], "no phase, no limit"
    watch.phase("t", "agent")
    now[0] = 105.0
    assert watch.overdue() == []
    now[0] = 105.1
    assert watch.overdue() == [OverduePhase("t", "agent", 5.0)]
    assert watch.ask("t") is task
    watch.phase("t", "collect")
    now[0] += INSIST_SEC
    assert watch.overdue() == [], "it stays in the phase that hung"
    assert watch.to_ask_again() == []
    now[0] += 0.1
    assert (watch.to_ask_again(), watch.deaf()) == (["t"], [])
    watch.ask("t")
    assert (watch.to_ask_again(), watch.deaf()) == ([], [])
    now[0] += INSIST_SEC + 0.1
    assert (watch.to_ask_again(), watch.deaf()) == ([], ["t"])
    watch.ended("t")
    assert watch.ask("t") is None
    assert watch.deaf() == []


def test_time_in_which_one_trial_has_the_loop_to_itself_counts_for_that_one_only() -> None:
    now = [0.0]
    watch = PhaseWatch(lambda: now[0])
    for name in ("blocks", "waits"):
        watch.started(name, {"agent": 5.0}, None)
        watch.phase(name, "agent")
    for _ in range(6):
        now[0] += 1.0
        watch.pardon(1.0, "blocks")
    assert watch.overdue() == [OverduePhase("blocks", "agent", 5.0)]


def test_who_had_no_processor_has_not_ignored_a_cancellation() -> None:
    now = [0.0]
    watch = PhaseWatch(lambda: now[0])
    watch.started("t", {"agent": 5.0}, _Task())  # ty: ignore[invalid-argument-type]
    for _ in range(2):
        watch.ask("t")
        now[0] += INSIST_SEC + 10.0
        watch.pardon(11.0, None)
        assert (watch.to_ask_again(), watch.deaf()) == ([], [])
        now[0] += 1.1
    assert watch.deaf() == ["t"]


@pytest.mark.parametrize("away", [7200.0, ASLEEP_SEC + 0.1])
def test_who_was_stopped_or_asleep_has_not_waited_in_vain(away: float) -> None:
    now = [0.0]
    awake = AwakeClock(lambda: now[0])
    awake()
    for _ in range(10):
        now[0] += 1.0
        awake()
    now[0] += away
    assert awake() == 11.0
    now[0] -= 3600.0
    assert awake() == 11.0


def test_a_loop_that_was_stopped_ends_nothing_that_had_time() -> None:
    now = [50.0]
    awake = AwakeClock(lambda: now[0])

    async def works(away: float) -> bool:
        give_time(asyncio.get_running_loop(), awake)
        async with asyncio.timeout(60.0) as limit:
            now[0] += away
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        take_time_back(asyncio.get_running_loop())
        assert asyncio.get_running_loop().time() == pytest.approx(time.monotonic(), abs=300), "its own again"
        return not limit.expired()

    assert asyncio.run(works(7200.0)), "stopped for two hours"
    with pytest.raises(TimeoutError):
        asyncio.run(_in_vain(now, awake))


async def _in_vain(now: list[float], awake: AwakeClock) -> None:
    """Awake for longer than it has time."""
    give_time(asyncio.get_running_loop(), awake)
    async with asyncio.timeout(60.0):
        for _ in range(100):
            now[0] += 1.0
            await asyncio.sleep(0)
