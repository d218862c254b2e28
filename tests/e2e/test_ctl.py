"""Steering a live run from another terminal: pause, resume, fewer at once, requeue, cancel."""

import json

import pytest
from test_run import LIMIT_SEC, wait_for

AGENTS = '''
import asyncio
from harbor.agents.base import BaseAgent


class Patient(BaseAgent):
    """Works until the file "go" is there; each run leaves a mark."""

    @staticmethod
    def name() -> str:
        return "patient"

    def version(self) -> str:
        return "1"

    async def setup(self, environment) -> None:
        pass

    async def run(self, instruction, environment, context) -> None:
        context.cost_usd = 0.5
        (self.logs_dir / "mark").touch()
        root = self.logs_dir.parents[6]
        while not (root / "go").exists():
            await asyncio.sleep(0.05)
'''
PROFILES = '[profiles.p]\nagent = "lab_agents:Patient"\n'


@pytest.fixture
def live(lab):
    """A run whose trials go on until `lab.go()`."""
    lab.project.write("lab_agents.py", AGENTS)

    def start(profiles: str = PROFILES, run: str = "parallel = 2", **kwargs: object):
        return lab.start("run", lab.experiment(profiles, run=run, **kwargs))

    return start


def at_work(lab) -> int:
    """How many agents have begun to work, and to cost, and are known to have."""
    return min(len(started(lab)), len(list(lab.batch().runs.glob("*/*/agent/mark"))))


def started(lab) -> list[str]:
    return [e.trial for e in lab.events() if e.kind == "trial_started"]


def ctl(lab, *arguments: str, code: int = 0) -> str:
    ran = lab.tbench("ctl", *arguments, "--in", lab.batch().folder)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_pause_and_resume_and_fewer_at_once(lab, live) -> None:
    process = live(tasks=("a", "b"), run="parallel = 2\nattempts = 2")
    wait_for(lambda: at_work(lab) == 2, process)
    assert "pause: p" in ctl(lab, "pause", "p", "--reason", "quota")
    assert "parallel must be at least 1" in ctl(lab, "set", "parallel=0", "--reason", "x", code=2)
    ctl(lab, "set", "parallel=1", "--reason", "load")
    lab.go()
    wait_for(lambda: sum(e.kind == "trial_waiting" for e in lab.events()) == 2, process)
    assert {e.error for e in lab.events() if e.kind == "trial_waiting"} == {"paused: quota"}
    assert "waiting: paused: quota (2 trials)" in lab.tbench("status", "--results", lab.root / "results").stdout
    assert len(started(lab)) == 2
    ctl(lab, "pause", "--reason", "all")
    assert "everything is paused: all" in ctl(lab, "resume", "p", "--reason", "but p", code=2)
    (lab.root / "go").unlink()
    ctl(lab, "resume", "--reason", "new day")
    wait_for(lambda: any(e.error == "at most 1 trial of p at once" for e in lab.events()), process)
    lab.go()
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 0, out + err
    events = lab.events()
    third, fourth = [e for e in events if e.kind == "trial_started"][2:]
    end = next(e for e in events if e.kind == "trial_ended" and e.trial == third.trial)
    assert end.time <= fourth.time
    orders = [(e.detail["action"], e.error, e.detail["target"]) for e in events if e.kind == "control"]
    assert orders == [
        ("pause", "quota", "p"),
        ("set", "load", "*"),
        ("pause", "all", "*"),
        ("resume", "new day", "*"),
    ]


def test_more_at_once_than_the_run_was_started_with_and_fewer_again(lab, live) -> None:
    process = live(PROFILES + PROFILES.replace(".p]", ".q]"), tasks=("a", "b"), run="parallel = 1\nattempts = 2")
    wait_for(lambda: at_work(lab) == 2, process)
    ctl(lab, "set", "parallel=3", "p", "--reason", "new quota")
    wait_for(lambda: at_work(lab) == 4, process)
    by_profile = [e.profile for e in lab.events() if e.kind == "trial_started"]
    assert (by_profile.count("p"), by_profile.count("q")) == (3, 1), "only where it was asked for"
    ctl(lab, "set", "parallel=1", "--reason", "enough: all of them")
    lab.go()
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 0, out + err
    waits = {(e.profile, e.error) for e in lab.events() if e.kind == "trial_waiting"}
    assert waits <= {("p", "at most 1 trial of p at once")}, "q has one slot, so nobody of it waits in one"
    assert {(e["agent_key"], e["task_id"], e["outcome"]) for e in lab.index()} == {
        (profile, task, "failed") for profile in "pq" for task in "ab"
    }
    assert len(lab.index()) == 8
    config = json.loads(next(lab.batch().runs.glob("*__p.job.json")).read_text())
    assert config["n_concurrent_trials"] == 1, "what a person can run by hand is as planned"


def test_a_requeued_trial_runs_again_and_its_cost_counts(lab, live) -> None:
    process = live(tasks=("a", "b"))
    wait_for(lambda: at_work(lab) == 2, process)
    trial = next(name for name in started(lab) if name.startswith("a__"))
    ctl(lab, "requeue", trial, "--reason", "looked stuck")
    wait_for(lambda: any(e.kind == "trial_ended" and e.trial == trial for e in lab.events()), process)
    lab.go()
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 0, out + err
    assert lab.outcomes() == {("p", "a"): ["failed"], ("p", "b"): ["failed"]}
    assert "1 superseded trial was run again" in out
    assert "$1.50" in out, "both tries of a, and b"
    done = [e for e in lab.events() if e.kind == "control" and e.detail.get("done")]
    assert [(e.trial, e.error, e.detail["action"]) for e in done] == [(trial, "looked stuck", "requeue")]


def test_cancelling_a_trial_and_a_profile(lab, live) -> None:
    profiles = PROFILES + '[profiles.q]\nagent = "lab_agents:Patient"\n'
    process = live(profiles, tasks=("a", "b"), run="parallel = 1")
    wait_for(lambda: at_work(lab) == 2, process)
    events = [e for e in lab.events() if e.kind == "trial_started"]
    trial = next(e.trial for e in events if e.profile == "p")
    assert 'no profile, running or waiting trial is called "nobody"' in ctl(
        lab, "cancel", "nobody", "--reason", "x", code=2
    )
    ctl(lab, "cancel", trial, "--reason", "wrong prompt")
    ctl(lab, "cancel", "q", "--reason", "wrong model")
    wait_for(lambda: sum(e.kind == "trial_cancelled" for e in lab.events()) == 2, process)
    lab.go()
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 3, out + err
    assert lab.outcomes() == {
        ("p", "a"): ["cancelled"],
        ("p", "b"): ["failed"],
        ("q", "a"): ["cancelled"],
        ("q", "b"): ["not_run"],
    }
    reasons = {(e["agent_key"], e["task_id"]): e["reason"] for e in lab.index()}
    assert reasons["p", "a"] == "cancelled: wrong prompt"
    assert reasons["q", "b"] == "cancelled: wrong model"
    again = lab.tbench("ctl", "pause", "--reason", "x", "--in", lab.batch().folder)
    assert again.returncode == 2
    assert "is not running" in again.stderr


def test_what_makes_no_sense_is_refused(lab) -> None:
    for arguments, said in (
        (("set", "--reason", "x"), "only parallel=N can be set"),
        (("set", "speed=3", "--reason", "x"), "only parallel=N can be set"),
        (("pause", "--reason", " "), "--reason is empty"),
        (("pause",), "--reason"),
        (("dance", "--reason", "x"), "dance"),
    ):
        ran = lab.tbench("ctl", *arguments)
        assert ran.returncode == 2
        assert said in ran.stderr
