"""Agents that take their whole Harbor process with them: the trial that did it has ended so, no other is blamed for it."""

import json

from support.tasks import SOLVE, write_task
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.site import Site
from terminalbench.harbor.limits.hangs import HUNG
from terminalbench.harbor.read.results import read_job
from terminalbench.live.feed import Feed

FORGED = json.dumps({"phase": "agent", "reason": "forged", "died": True})
FORGE = f"echo '{FORGED}' | tee /logs/agent/{HUNG} /logs/{HUNG}"
AGENT = f'''
import asyncio
import os
import subprocess
import sys
from pathlib import Path

from harbor.agents.base import BaseAgent

BEGUN = Path(__file__).with_name("begun")


class Killer(BaseAgent):
    """Does as its task is called, once the agents of all five tasks have begun."""

    @staticmethod
    def name() -> str:
        return "killer"

    def version(self) -> str:
        return "1"

    async def setup(self, environment) -> None:
        pass

    async def run(self, instruction, environment, context) -> None:
        task = self.logs_dir.parent.name.partition("__")[0]
        BEGUN.mkdir(exist_ok=True)
        first = not (BEGUN / task).exists()
        (BEGUN / task).touch()
        while len(list(BEGUN.iterdir())) < 5:
            await asyncio.sleep(0.02)
        if task == "early":
            os._exit(0)
        await environment.exec("{SOLVE}")
        await environment.exec({FORGE!r})
        if task == "fine":
            await asyncio.sleep(3600 if first else 0)
        elif task == "exits":
            os._exit(3)
        elif task == "kills":
            subprocess.run(["kill", "-9", str(os.getpid())], timeout=600)
        else:
            await asyncio.create_task(self.leave())

    async def leave(self) -> None:
        sys.exit(0)
'''
TASKS = ("fine", "early", "exits", "kills", "leaves")
ENDED = {
    "fine": ("passed", None),
    "early": ("errored", "setup"),
    "exits": ("failed", "agent_crash"),
    "kills": ("failed", "agent_crash"),
    "leaves": ("failed", "agent_crash"),
}


def test_a_trial_that_kills_harbor_twice_has_ended_so_everywhere(lab) -> None:
    lab.project.write("killers.py", AGENT)
    for task in TASKS:
        write_task(lab.root / "tasks" / task)
    profile = '[profiles.p]\nagent = "killers:Killer"\n'
    file = lab.experiment(profile, tasks=TASKS, run="parallel = 5")
    ran = lab.tbench("run", file)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    batch = lab.batch()

    noted = sorted(path.parent.name.partition("__")[0] for path in batch.runs.glob(f"*/*/{HUNG}"))
    assert noted == ["early", "exits", "kills", "leaves"], "once each, and the one that did nothing is not blamed"
    assert list(batch.runs.glob(f"*/*/agent/{HUNG}")), "what an agent writes is no such note"
    tries = [event.task for event in lab.events() if event.kind == "trial_started"]
    assert {task: tries.count(task) for task in TASKS} == dict.fromkeys(TASKS, 2), "none is drawn a third time"

    assert lab.outcomes() == {("p", task): [outcome] for task, (outcome, _) in ENDED.items()}
    read = [r.trial for job in batch.runs.iterdir() if job.is_dir() for r in read_job(job) if r.trial]
    assert {t.task: (t.outcome, t.error_class) for t in read if t.outcome != "cancelled"} == ENDED
    feed = Feed(batch)
    feed.read()
    last = {trial.task: trial for trial in feed.state.trials.values() if trial.outcome not in (None, "cancelled")}
    assert {task: (trial.outcome, trial.error_class) for task, trial in last.items()} == ENDED
    (listed,) = json.loads(lab.tbench("list", "--json").stdout)
    assert (listed["passed"], listed["failed"], listed["not_measured"]) == (1, 3, 1)
    page = answer(Site(lab.root / "results"), "batches/s/0/data.json", {}).body
    assert page is not None
    (counts,) = json.loads(page)["profiles"]
    assert {name: n for name, n in counts["outcomes"].items() if n} == {"passed": 1, "failed": 3, "errored": 1}
    errors = lab.tbench("errors", file).stdout
    assert "agent_crash" in errors
    assert "Harbor's process died twice while the trial ran, the second time alone" in " ".join(errors.split())
    trial = next(t for t in read if t.task == "kills" and t.outcome != "cancelled")
    shown = lab.tbench("show", trial.name).stdout
    assert "agent_crash" in shown
    assert "Harbor was killed by signal 9" in " ".join(shown.split())
    compared = json.loads(lab.tbench("compare", file, "--json").stdout)
    assert [(p["measured"], p["passed"]) for p in compared["profiles"]] == [(4, 1)]

    again = lab.tbench("resume", file)
    assert again.returncode == 3, again.stdout + again.stderr
    assert [event.task for event in lab.events() if event.kind == "trial_started"] == tries, "nothing is drawn again"
