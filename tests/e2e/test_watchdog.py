"""What goes wrong in a real run is named while it runs: no activity, no key, a dead child, rate limits."""

import json
import os
import signal

from test_run import LIMIT_SEC, wait_for

from terminalbench.live.notices import Alert, Alerts

AGENTS = '''
import asyncio
from harbor.agents.base import BaseAgent
from harbor.agents.installed.base import AgentAuthenticationError


class Quiet(BaseAgent):
    """Does nothing until the file "go" is there."""

    @staticmethod
    def name() -> str:
        return "quiet"

    def version(self) -> str:
        return "1"

    async def setup(self, environment) -> None:
        pass

    async def run(self, instruction, environment, context) -> None:
        while not (self.logs_dir.parents[6] / "go").exists():
            await asyncio.sleep(0.05)


class Keyless(Quiet):
    """Is refused; the third time only when the file is there: what became of the first two can be looked at."""

    runs = 0

    async def run(self, instruction, environment, context) -> None:
        Keyless.runs += 1
        if Keyless.runs == 3:
            await super().run(instruction, environment, context)
        raise AgentAuthenticationError("invalid x-api-key")
'''
PROFILES = '[profiles.quiet]\nagent = "lab_agents:Quiet"\n[profiles.keyless]\nagent = "lab_agents:Keyless"\n'


def alerts(lab) -> list[tuple[str, str, str | None]]:
    found = [e for e in lab.events() if e.kind == "alert"]
    return [(e.detail["cause"], e.detail["state"], e.profile) for e in found]


def standing(lab) -> list[Alert]:
    board = Alerts()
    for event in lab.events():
        board.add(event)
    return list(board.standing.values())


def test_stall_auth_and_a_dead_child_are_named_and_dealt_with(lab) -> None:
    lab.project.write("lab_agents.py", AGENTS)
    run = "parallel = 1\nattempts = 4\nstall_sec = 1.0"
    process = lab.start("run", lab.experiment(PROFILES, tasks=("a",), run=run))

    wait_for(lambda: any(alert.cause == "stall" and alert.profile == "quiet" for alert in standing(lab)), process)
    wait_for(lambda: ("auth", "raised", "keyless") in alerts(lab), process)
    wait_for(lambda: any(e.kind == "control" for e in lab.events()), process)
    both = {("stall", "quiet"), ("auth", "keyless")}
    wait_for(lambda: both <= {(alert.cause, alert.profile) for alert in standing(lab)}, process)
    said = lab.tbench("status", "--results", lab.root / "results").stdout
    assert "warning (stall): a__" in said
    assert "error (auth): keyless: authentication failed" in said
    (worker,) = list((lab.batch().folder / "workers").glob("*quiet.json"))
    os.kill(json.loads(worker.read_text())["pid"], signal.SIGKILL)
    lab.go()
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 3, out + err
    assert ("dead_child", "raised", "quiet") in alerts(lab)
    assert ("dead_child", "cleared", "quiet") in alerts(lab)
    board = [found for found in alerts(lab) if found[1] == "raised"]
    assert len(board) == sum(found[1] == "cleared" for found in alerts(lab)), "nothing stands after the run"
    assert lab.outcomes()["quiet", "a"] == ["failed"] * 4
    keyless = lab.outcomes()["keyless", "a"]
    assert keyless in (["errored"] * 3 + ["not_run"], ["errored"] * 2 + ["not_run"] * 2), "the policy stopped it"
    reasons = {e["reason"] for e in lab.index() if e["outcome"] == "not_run"}
    assert all("authentication failed" in reason for reason in reasons)
    (stop,) = [e for e in lab.events() if e.kind == "control" and e.detail["action"] == "stop"]
    assert (stop.detail["action"], stop.detail["target"], stop.detail["by"]) == ("stop", "keyless", "watchdog")
