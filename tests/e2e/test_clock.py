"""The time of day is set while a run goes on: no time that is shown is wrong."""

import json

from support.tasks import AGENTS, CLOCK
from terminalbench.live.state import replay

JUMPS = """

class Jumps(Scripted):
    async def run(self, instruction, environment, context) -> None:
        move_clock({"a": 7200.0, "b": -7200.0}[self.logs_dir.parent.name[0]])
        await super().run(instruction, environment, context)
"""
PROFILES = """
[profiles.p]
agent = "lab_agents:Jumps"
[profiles.q]
agent = "lab_agents:Scripted"
"""


def test_a_jump_makes_times_unknown_and_nothing_older(lab) -> None:
    lab.project.write("lab_agents.py", AGENTS + CLOCK + JUMPS)
    file = lab.experiment(PROFILES, run="parallel = 1")
    ran = lab.tbench("run", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "failed, but clock_jumped: the clock jumped" in ran.stdout
    rows = json.loads(lab.tbench("export", lab.batch().folder, "--format", "json").stdout)
    times = {(row["profile"], row["task"]): row for row in rows}
    for task in "ab":
        assert (times["p", task]["agent_sec"], times["p", task]["wall_sec"]) == (None, None)
        assert times["p", task]["environment_sec"] is not None, "it jumped later"
        assert times["q", task]["agent_sec"] is not None
    shown = lab.tbench("show", times["p", "a"]["trial"]).stdout
    assert "time      unknown: the clock jumped while it ran" in shown
    events = lab.events()
    assert all(trial.duration is not None and trial.duration < 3600 for trial in replay(None, events).finished)
    ages = []
    for number in range(len(events)):
        state = replay(None, events[: number + 1])
        ages += [abs((state.last or 0) - trial.started) for trial in state.running if trial.started is not None]
    assert max(ages) < 3600, "what runs is no hours old"
