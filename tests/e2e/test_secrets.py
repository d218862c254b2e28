"""An agent that repeats its secrets everywhere: no command, page, download or file shows one, while it runs and after."""

import base64
import contextlib
import json
import os
import signal
from pathlib import Path

from test_run import wait_for

from support.pace import seconds
from terminalbench.live.feed import Feed
from terminalbench.watch.logs import log_names, read_tail

CANARIES = {
    "CANARY_TOKEN": "canary-9f8e7d6c5b4a",
    "SERVICE": "00112233445566778899aabbccddeeff0011",
    "DB_PASSWORD": 'odd"<one>&\\two%three',
}
AGENTS = '''
import asyncio, base64, json, os
from harbor.agents.base import BaseAgent


class Leaky(BaseAgent):
    """Repeats what its environment holds, waits for the file "go", and fails with all of it in its message."""

    @staticmethod
    def name() -> str:
        return "leaky"

    def version(self) -> str:
        return "1"

    async def setup(self, environment) -> None:
        pass

    async def run(self, instruction, environment, context) -> None:
        words = " ".join(os.environ[name] for name in ("CANARY_TOKEN", "SERVICE", "DB_PASSWORD"))
        values = [os.environ[name].encode() for name in ("CANARY_TOKEN", "SERVICE", "DB_PASSWORD")]
        words += " " + " ".join(base64.b64encode(b"user:" + value).decode() + " " + value.hex() for value in values)
        print("printed", words, values, flush=True)
        (self.logs_dir / ("by-" + os.environ["CANARY_TOKEN"] + ".log")).write_text("named")
        (self.logs_dir / "agent.log").write_text("x" * 20_000 + "\\nlogged " + words + "\\n")
        (self.logs_dir / "raw.bin").write_bytes(b"\\0 " + words.encode())
        step = {"step_id": 1, "source": "agent", "message": "said " + words, "tool_calls": [
            {"tool_call_id": "c", "function_name": "bash", "arguments": {"command": "echo " + words}}],
            "observation": {"results": [{"source_call_id": "c", "content": "got " + words}]}}
        document = {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "leaky", "version": "1"},
            "steps": [step]}
        (self.logs_dir / "trajectory.json").write_text(json.dumps(document))
        while not (self.logs_dir.parents[6] / "go").exists():
            await asyncio.sleep(0.05)
        raise RuntimeError("refused: " + words)
'''
PROFILES = '[profiles.p]\nagent = "lab_agents:Leaky"\nenv_file = ".env"\n'


def leaks(data: bytes) -> list[str]:
    return [name for name, value in CANARIES.items() if any(spelled in data for spelled in spellings(value.encode()))]


def spellings(value: bytes) -> list[bytes]:
    coded = base64.b64encode(b"user:" + value)[8:-4]
    return [value, json.dumps(value.decode())[1:-1].encode(), value.hex().encode(), repr(value)[2:-1].encode(), coded]


def in_files(folder: Path) -> dict[str, list[str]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = {str(path): leaks(path.read_bytes() + bytes(path.relative_to(folder))) for path in files}
    return {path: names for path, names in found.items() if names}


def shown(lab, *arguments: str | Path) -> str:
    ran = lab.tbench(*arguments)
    assert "Traceback" not in ran.stderr
    assert leaks((ran.stdout + ran.stderr).encode()) == [], arguments
    return ran.stdout


def exported(lab, name: str) -> None:
    shown(lab, "view", "results", "--export", name)
    assert in_files(lab.root / name) == {}
    pages = [path.read_text(errors="replace") for path in (lab.root / name).rglob("*.html")]
    assert any("said [redacted]" in page for page in pages)
    assert [path for path in (lab.root / name).rglob("raw/agent/agent.log") if "logged [redacted]" in path.read_text()]


def test_no_secret_of_the_env_file_is_shown_or_left(lab) -> None:
    lab.project.write("lab_agents.py", AGENTS)
    lines = [f"{name}='{value}'" for name, value in CANARIES.items()]
    lab.project.write(".env", "\n".join(lines) + "\n")
    file = lab.experiment(PROFILES, tasks=("a",), run="attempts = 1")
    run = lab.start("run", file)
    try:
        wait_for(lambda: any(lab.batch().runs.glob("*/*/agent/trajectory.json")), run)
        assert leaks(_titles()) == []
        (trial,) = lab.batch().runs.glob("*/*/agent")
        name = trial.parent.name
        assert set(leaks((trial / "agent.log").read_bytes())) == set(CANARIES), "the test tests something"
        text = shown(lab, "show", name, "--full")
        assert "said [redacted] [redacted] [redacted]" in text
        shown(lab, "status")
        exported(lab, "while-it-runs")
        feed = Feed(lab.batch())
        feed.poll(0.0)
        key = (trial.parent.parent.name, name)
        tails = [read_tail(lab.batch(), key, feed.secrets, index) for index in range(len(log_names(trial.parent)))]
        words = "\n".join(line for tail in tails for line in tail.lines)
        assert "logged [redacted]" in words
        assert leaks(words.encode()) == []
    finally:
        worker = json.loads(next((lab.batch().folder / "workers").glob("*.json")).read_text())
        run.send_signal(signal.SIGSTOP)  # it would begin another wave
        os.killpg(worker["group"], signal.SIGKILL)
        run.kill()
        out, err = run.communicate(timeout=seconds(60))
    assert leaks((out + err).encode()) == []
    lab.project.write("go", "")
    shown(lab, "resume", file)
    left = {path: names for path, names in in_files(lab.root / "results").items() if not path.endswith("raw.bin")}
    assert left == {}, "nothing on disk: not the killed trial, not the ended one, no log, no event, no index"
    assert len(list(lab.batch().runs.glob("*/*/agent"))) == 2
    text = shown(lab, "show", max(lab.batch().runs.glob("*/*/result.json")).parent.name, "--full")
    assert "refused: [redacted]" in text
    for arguments in (["errors", file], ["analyze", file], ["report", file], ["query", "SELECT * FROM trials"]):
        shown(lab, *arguments)
    exported(lab, "after")
    assert in_files(lab.batch().analytics) == {}


def _titles() -> bytes:
    """The command lines of all processes."""
    found = b""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found += (process / "cmdline").read_bytes() if process.name.isdecimal() else b""
    return found
