"""Every agent is told which attempt it is: one number a counted trial, whatever wave it ran in."""

import json
import signal

from test_resume import worker
from test_run import LIMIT_SEC, alive, wait_for

AGENT = '''
import asyncio
from pathlib import Path
from harbor.agents.base import BaseAgent

class Told(BaseAgent):
    """Attempt 1 hangs while the file `hang` is there, attempt 2 finds no provider while `broken` is."""

    @staticmethod
    def name():
        return "told"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        await environment.exec('echo "$TBENCH_ATTEMPT" > /logs/agent/seen.txt')
        here, attempt = Path(__file__).parent, self.extra_env["TBENCH_ATTEMPT"]
        while attempt == "1" and (here / "hang").exists():
            await asyncio.sleep(0.05)
        if attempt == "2" and (here / "broken").exists():
            raise ConnectionError("broken")
'''


def counted(lab) -> list[int]:
    """The numbers in the index, each checked against what the trial's agent saw, its folder and its events."""
    told = {event.trial: event.attempt for event in lab.events() if event.kind == "trial_ended"}
    numbers = []
    for entry in lab.index():
        if not entry.get("superseded"):
            folder = lab.batch().folder / entry["trial_dir"]
            assert (folder / "agent" / "seen.txt").read_text() == f"{entry['attempt']}\n"
            assert json.loads((folder / "planned.json").read_text())["attempt"] == entry["attempt"]
            assert told.get(folder.name, entry["attempt"]) == entry["attempt"]
            numbers.append(entry["attempt"])
    return numbers


def test_an_agent_is_told_its_attempt_in_every_wave(lab) -> None:
    lab.project.write("told_agents.py", AGENT)
    lab.project.write("hang", "")
    lab.project.write("broken", "")
    file = lab.experiment('[profiles.p]\nagent = "told_agents:Told"\n', tasks=("a",), run="attempts = 3\nparallel = 3")
    process = lab.start("run", file)
    wait_for(lambda: sum(event.kind == "trial_ended" for event in lab.events()) == 2, process)
    harbor = worker(lab)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=LIMIT_SEC)
    wait_for(lambda: not alive(harbor))
    (lab.root / "hang").unlink()
    assert lab.tbench("resume", file).returncode == 3, "attempt 2 is errored"
    assert counted(lab) == [1, 2, 3], "the one that was cut off has its number again"
    (lab.root / "broken").unlink()
    assert lab.tbench("resume", file, "--retry-errors", "--attempts", "4").returncode == 0
    assert counted(lab) == [1, 2, 3, 4], "the one that is run again has its number again"
    assert sum(bool(entry.get("superseded")) for entry in lab.index()) == 2
