"""A results root for the dashboard, made without running anything."""

import asyncio
import json
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import msgspec

from support.results import STAMP, make_plan, make_trial
from support.warm import start_tbench
from terminalbench.dashboard.answers import HttpReply, answer
from terminalbench.dashboard.site import Site
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import ProfileRecord
from terminalbench.index.scan import scan_all
from terminalbench.json_files import write_json

PROFILES = ("p", "q")
VIEW_TOKEN = "the-token-of-the-tests"
CONTENT = {
    "p": {"agent": "oracle", "prompt": "Be brief.\nTest your work."},
    "q": {"agent": "nop", "prompt": "Be brief.\nThink twice.\nTest your work.", "options": {"effort": "high"}},
}


@dataclass
class Root:
    """The root, and what is in it."""

    path: Path
    site: Site

    @property
    def batch(self) -> Batch:
        return Batch(self.path / "study" / "0")

    def scan(self) -> None:
        """Look at every trial: tests edit results in place, and on a slow machine the batch has settled by then."""
        scan_all(self.path, thorough=True)

    def get(self, path: str, **query: str) -> HttpReply:
        return answer(self.site, path, query)

    def text(self, path: str, **query: str) -> str:
        body = self.get(path, **query).body
        assert body is not None
        return body.decode()


def trial(name: str, profile: str = "p") -> str:
    """The path of a trial's page."""
    return f"batches/study/0/trials/{STAMP}__{profile}/{name}/"


def steps(*commands: str, output: str = "ok", first: str = "Do it.") -> dict[str, Any]:
    """A trajectory: the instruction, then one call a step."""
    found: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": first}]
    for number, command in enumerate(commands, start=2):
        call = {"tool_call_id": f"c{number}", "function_name": "bash", "arguments": {"command": command}}
        found.append(
            {
                "step_id": number,
                "source": "agent",
                "message": f"now {command}",
                "reasoning_content": "what next?",
                "timestamp": f"2026-01-23T16:30:{number % 60:02}Z",
                "tool_calls": [call],
                "observation": {
                    "results": [{"source_call_id": f"c{number}", "content": output, "extra": {"exit_code": 0}}]
                },
                "metrics": {"prompt_tokens": 100, "completion_tokens": 10, "cost_usd": 0.01},
            }
        )
    return {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": found}


def add_trajectory(folder: Path, document: dict[str, Any] | bytes) -> None:
    """Write the trajectory of a trial."""
    (folder / "agent").mkdir(exist_ok=True)
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    (folder / "agent" / "trajectory.json").write_bytes(data)


def fill(batch: Batch, rewards: dict[tuple[str, str], float | None]) -> None:
    records = tuple(ProfileRecord(key, f"id-{key}", CONTENT[key], f"the {key} way") for key in PROFILES)
    number = batch.number
    plan = make_plan(batch, PROFILES, "ab", 2, provenance={"created_at": f"2026-01-2{3 + number}T16:26:48Z"})
    write_json(batch.plan_json, msgspec.structs.replace(plan, profiles=records))
    for second, ((profile, name), reward) in enumerate(rewards.items()):
        folder = make_trial(
            batch,
            name,
            profile=profile,
            reward=reward,
            second=second,
            cost=0.25,
            error=None if reward is not None else "RuntimeError",
        )
        (folder / "verifier").mkdir()
        (folder / "verifier" / "test-stdout.txt").write_text(f"1 {'passed' if reward else 'failed'}\n")
        (folder / "trial.log").write_text("started\nended\n")


def make_root(path: Path) -> Root:
    """Such a root at `path`."""
    rewards = {
        ("p", "a__1"): 0.0, ("p", "a__2"): 0.0, ("p", "b__1"): 1.0, ("p", "b__2"): None,
        ("q", "a__3"): 1.0, ("q", "a__4"): 1.0, ("q", "b__3"): 1.0,
    }  # fmt: skip
    first, second = allocate(path, "study"), allocate(path, "study")
    fill(first, rewards)
    fill(second, dict.fromkeys(rewards, 1.0))
    add_trajectory(first.runs / f"{STAMP}__p" / "a__1", steps("ls", "cat notes", "echo wrong > answer", "exit"))
    add_trajectory(
        first.runs / f"{STAMP}__q" / "a__3", steps("ls", "cat notes", "python solve.py", "cat answer", "exit")
    )
    made = Root(path, Site(path))
    made.scan()
    return made


@dataclass
class Answered:
    """What an app answered."""

    status_code: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)


class Http:
    """Asks an app without a network. Paths are sent as they stand, dots and all; cookies are kept, nothing is followed."""

    def __init__(self, app: Any, host: str, token: str | None = None) -> None:
        self._app = app
        self._host = host
        self._cookie: str | None = None
        self._sent = {"authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str, **options: Any) -> Answered:
        """A GET request."""
        return self.request("GET", path, **options)

    def request(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, params: dict[str, str] | None = None
    ) -> Answered:
        """One request."""
        sent = {
            "host": self._host,
            **self._sent,
            **({"cookie": self._cookie} if self._cookie else {}),
            **(headers or {}),
        }
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": unquote(path),
            "raw_path": path.encode(), "query_string": urlencode(params or {}).encode(), "root_path": "",
            "headers": [(n.encode(), v.encode("latin-1")) for n, v in sent.items()], "server": ("127.0.0.1", 1),
            "client": ("127.0.0.1", 2),
        }  # fmt: skip
        messages: list[Any] = []

        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()  # it stays connected
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        asyncio.run(self._app(scope, receive, send))
        start, *bodies = messages
        found = {name.decode().lower(): value.decode("latin-1") for name, value in start["headers"]}
        if "set-cookie" in found:
            self._cookie = found["set-cookie"].partition(";")[0]
        return Answered(start["status"], found, b"".join(m.get("body", b"") for m in bodies))


@contextmanager
def served(results: Path, *arguments: str, env: dict[str, str] | None = None) -> Generator[str]:
    """`tbench view` as a process on a free port: its address, without the token that `watched` brings along."""
    env = {**(env or os.environ), "TERMINALBENCH_VIEW_TOKEN": VIEW_TOKEN}
    process = start_tbench(["view", str(results), "--port", "0", *arguments], env, Path.cwd())
    try:
        lines = [process.stdout.readline(), process.stdout.readline()]
        yield lines[1].split()[0].removesuffix(f"?token={VIEW_TOKEN}")
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) == 0
