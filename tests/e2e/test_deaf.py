"""Agents that cannot be ended: they swallow every cancellation, or block Harbor's event loop."""

import os
import signal
import time

import pytest
from test_run import LIMIT_SEC, alive, at_work, scripted, wait_for

from support.aftermath import descendants
from support.pace import seconds
from support.warm import OWN_ATTENDANTS
from terminalbench.json_files import read_json
from terminalbench.live.processes import Worker
from terminalbench.text.numbers import duration

AGENTS = '''
import asyncio
import time
from pathlib import Path

from harbor.agents.base import BaseAgent


class Agent(BaseAgent):
    """Works on the task "b"; cannot be ended on the task "a". Every run leaves a mark."""

    @staticmethod
    def name() -> str:
        return "deaf"

    def version(self) -> str:
        return "1"

    async def setup(self, environment) -> None:
        pass

    async def run(self, instruction, environment, context) -> None:
        context.cost_usd = 0.5
        await environment.exec("true")
        (self.logs_dir / "mark").touch()
        if self.logs_dir.parent.name.startswith("a__"):
            await self.resist()
        while not (Path(__file__).with_name("go")).exists():
            await asyncio.sleep(0.05)

    async def resist(self) -> None:
        raise NotImplementedError


class Swallows(Agent):
    async def resist(self) -> None:
        while True:
            try:
                await asyncio.sleep(100)
            except BaseException:
                continue


class Blocks(Agent):
    async def resist(self) -> None:
        time.sleep(100_000)


class Spins(Agent):
    """In a task of its own, as agents that gather do."""

    async def resist(self) -> None:
        async def spin() -> None:
            while True:
                sum(range(100_000))
                time.sleep(0.2)  # the machine is others' too

        await asyncio.gather(spin(), asyncio.sleep(0))
'''
SOON = "parallel = 2\ngrace_sec = 8.0"


@pytest.fixture
def deaf(lab):
    """Starts a run of agents that cannot be ended, a profile each, and waits until each has begun with the task "a"."""
    lab.project.write("lab_agents.py", AGENTS)

    def start(*kinds: str, agent_sec: float = 3600.0):
        toml = lab.root / "tasks" / "a" / "task.toml"
        toml.write_text(toml.read_text().replace("timeout_sec = 3600.0", f"timeout_sec = {agent_sec}"))
        profiles = [f'[profiles.{key}]\nagent = "lab_agents:{kind}"\n' for key, kind in zip("pqr", kinds, strict=False)]
        lab.file = lab.experiment("".join(profiles), run=SOON)
        process = lab.start("run", lab.file)
        wait_for(lambda: len(stuck(lab)) == len(kinds), process)
        return process

    return start


def stuck(lab) -> list[str]:
    """The trials that cannot be ended."""
    return [mark.parents[1].name for mark in lab.batch().runs.glob("*/a__*/agent/mark")]


@pytest.mark.long
def test_a_trial_that_cannot_be_ended_is_hung_and_its_sibling_runs_on(lab, deaf) -> None:
    agent_sec = round(seconds(1.0), 1)  # it has to begin by then
    process = deaf("Swallows", "Blocks", "Spins", agent_sec=agent_sec)
    wait_for(lambda: sum(e.outcome == "errored" for e in lab.events()) == 3, process)
    lab.go()
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 3, out + err
    assert lab.outcomes() == {(p, task): [how] for p in "pqr" for task, how in (("a", "errored"), ("b", "failed"))}
    for hung in (entry for entry in lab.index() if entry["task_id"] == "a"):
        assert f"the agent did not end within {duration(agent_sec + 8.0)}" in hung["reason"]
        assert hung["cost_usd"] == 0.5, "what it cost until then is known"
    ended = {e.profile: e for e in lab.events() if e.kind == "trial_ended" and e.outcome == "errored"}
    assert {(e.task, e.detail["error_class"]) for e in ended.values()} == {("a", "hung")}
    for profile, end in ended.items():
        said = [e for e in lab.events() if e.profile == profile and e.kind == "note" and "ended" in (e.error or "")]
        assert all(e.time >= end.time for e in said), "nothing is said to have ended before it has"
        assert len(list(lab.batch().runs.glob(f"*__{profile}.job.json"))) == 2, "one further wave: none was suspected"
    assert not [e for e in lab.events() if e.kind == "job_died"]


def test_a_cancel_that_is_ignored_ends_the_process(lab, deaf) -> None:
    process = deaf("Swallows", "Blocks")
    trials = stuck(lab)
    ran = lab.tbench("ctl", "cancel", *trials, "--reason", "wrong", "--in", lab.batch().folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for trial in trials:
        assert f"{trial} has ended: cancelled" in ran.stdout, ran.stdout
        assert [e.outcome for e in lab.events() if e.kind == "trial_ended" and e.trial == trial] == ["cancelled"]
    lab.go()
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 3, out + err
    assert lab.outcomes() == {(p, task): [how] for p in "pq" for task, how in (("a", "cancelled"), ("b", "failed"))}
    reasons = [e["reason"] for e in lab.index() if e["task_id"] == "a"]
    assert all(reason.startswith("cancelled: wrong; it ignored 2 cancellations") for reason in reasons), reasons


@pytest.mark.long
def test_nothing_outlives_a_killed_runner(lab, deaf) -> None:
    """One Harbor with an agent that swallows its cancellation, and one that is stopped: not even a thread of it runs."""
    lab.env[OWN_ATTENDANTS] = "1"
    process = deaf("Swallows", "Swallows")
    workers = [read_json(file, Worker) for file in (lab.batch().folder / "workers").glob("*.json")]
    below = [pid for worker in workers for pid in (worker.pid, *descendants(worker.pid))]
    assert len(below) > 2 * 2, "the sandboxes are there"
    os.kill(next(worker.pid for worker in workers if worker.profile == "q"), signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=LIMIT_SEC)
    begun = time.monotonic()
    wait_for(lambda: not any(alive(pid) for pid in below))
    assert time.monotonic() - begun < seconds(60.0), "the one promise about time: a minute"
    lab.go()
    lab.project.write("lab_agents.py", AGENTS.replace('"a__"', '"c__"'))
    ran = lab.tbench("resume", lab.file, "--accept-changed")
    if ran.returncode == 3:  # the short limits of this experiment can strike on a busy machine
        ran = lab.tbench("resume", lab.file, "--retry-errors")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lab.outcomes() == {(profile, task): ["failed"] for profile in "pq" for task in "ab"}


def test_a_harbor_that_was_stopped_goes_on_as_if_nothing_had_been(lab) -> None:
    """Stopped for longer than its agent has: the agent could not work, so it has not run out of time."""
    limit_sec = seconds(10.0)
    toml = lab.root / "tasks" / "a" / "task.toml"
    toml.write_text(toml.read_text().replace("timeout_sec = 3600.0", f"timeout_sec = {limit_sec}"))
    process = lab.start("run", lab.experiment(scripted("p", free=0), tasks=("a",)))
    wait_for(lambda: at_work(lab) == 1, process)
    harbor = read_json(next((lab.batch().folder / "workers").glob("*.json")), Worker).pid
    os.kill(harbor, signal.SIGSTOP)
    time.sleep(limit_sec + 1.0)
    lab.go()
    os.kill(harbor, signal.SIGCONT)
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 0, out + err
    (ended,) = [e for e in lab.events() if e.kind == "trial_ended"]
    assert (ended.outcome, ended.detail.get("error_class"), ended.detail["agent_status"]) == (
        "failed",
        None,
        "completed",
    )
    assert "failed, but clock_jumped: the clock jumped" in out, "how long it took is unknown"
