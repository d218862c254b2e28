"""A provider that says 429 a few times: trials wait as long as it asks, are tried again, and nothing is lost."""

import json
from datetime import datetime, timedelta

import pytest
from test_run import LIMIT_SEC, wait_for
from test_run_clients import VERSION, mounts  # noqa: F401  the fixture that brings Claude Code

from servers.anthropic import AnthropicServer
from servers.base import Refusal, Tokens, Turn
from support.tasks import SOLVE

PROFILE = f"""
[profiles.cc]
no_mcp = true
model = "claude-sonnet-4-5"
agent_version = "{VERSION}"
env = {{{{ ANTHROPIC_API_KEY = "${{{{ANTHROPIC_API_KEY}}}}", ANTHROPIC_BASE_URL = "{{url}}", CLAUDE_CODE_MAX_RETRIES = "1" }}}}
"""
SCRIPT = [
    Turn("", [("Bash", {"command": SOLVE, "description": "Write the file"})], Tokens(1000, 0, 0, 60)),
    Turn("Done.", (), Tokens(1200, 0, 0, 70)),
]


def test_a_rate_limited_trial_waits_as_asked_is_tried_again_and_its_evidence_is_kept(lab, mounts: str) -> None:  # noqa: F811
    lab.env["ANTHROPIC_API_KEY"] = "sk-ant-scripted"
    # The client itself asks twice, and leaves "retry_delay_ms": 2000 in its log; then the trial is given up.
    refusal = Refusal(429, "rate_limit_error", "slow down", {"retry-after": "2"}, times=2)
    with AnthropicServer(SCRIPT, refusal, pace_sec=0.6) as server:
        run = f"retries = 2\nseed = 1\nharbor_args = ['--mounts', '{mounts}']"
        ran = lab.tbench("run", lab.experiment(PROFILE.format(url=server.url), tasks=("a",), run=run))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lab.outcomes() == {("cc", "a"): ["passed"]}
    first, _ = [event for event in lab.events() if event.kind == "trial_ended"]
    assert (first.outcome, first.detail["error_class"], first.detail["retried"]) == ("errored", "rate_limit", True)
    assert first.detail["asked_wait_sec"] == 2
    refused = next(event for event in lab.events() if event.phase == "collect")
    again = [event for event in lab.events() if event.kind == "trial_started"][-1]
    assert datetime.fromisoformat(again.time) - datetime.fromisoformat(refused.time) >= timedelta(seconds=2)
    for waiting in [event for event in lab.events() if event.kind == "trial_waiting"]:  # none where that took so long
        assert waiting.error in ("rate limit of anthropic/claude-sonnet-4-5", "pause before the next try")
        assert waiting.detail["until"] <= again.time
    kept = list(lab.batch().superseded.rglob("claude-code.txt"))
    assert len(kept) == 1
    assert '"retry_delay_ms":2000' in kept[0].read_text()
    end = json.loads(kept[0].read_text().splitlines()[-1])
    assert (end["type"], end["is_error"], end["api_error_status"]) == ("result", True, 429)
    assert "slow down" in end["result"]
    result = json.loads((kept[0].parents[1] / "result.json").read_text())
    assert result["exception_info"]["exception_type"] == "ApiRateLimitError"
    assert result["verifier_result"]["rewards"]["reward"] == 0.0
    assert len(server.main_requests) == 2 + len(SCRIPT), "the first try and one retry, then the trial that passed"
    lanes = json.loads(lab.batch().gate_json.read_text())["lanes"]
    assert lanes["anthropic/claude-sonnet-4-5"].get("level", 0) == 0, "a success resets the pressure"
    assert "1 superseded trial was run again" in ran.stdout


@pytest.mark.long
def test_pressure_on_one_profile_holds_the_other_and_status_says_why(lab, tbench) -> None:
    limited = """
[defaults]
model = "some/model"
[profiles.limited]
agent = "lab_agents:Limited"
[profiles.other]
agent = "lab_agents:Late"
"""
    lab.project.write("lab_agents.py", AGENTS)
    process = lab.start("run", lab.experiment(limited, tasks=("a", "b"), run="parallel = 1\nseed = 3\nretries = 0"))
    shown: list[tuple[str, str]] = []

    def status_says_why() -> bool:
        """Asked in this process, which is quick enough for what lasts a few seconds on any machine."""
        status = json.loads(tbench("status", "--json", "--results", lab.root / "results").out)
        shown.extend((waiting["profile"], waiting["reason"]) for batch in status for waiting in batch["waiting"])
        return ("other", "rate limit of some/model") in shown

    def it_waits() -> bool:
        events = lab.batch().events_jsonl
        return events.exists() and any(e.kind == "trial_waiting" and e.profile == "other" for e in lab.events())

    wait_for(it_waits, process)
    wait_for(status_says_why, process)
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 3, out + err
    waits = [e for e in lab.events() if e.kind == "trial_waiting" and e.profile == "other"]
    assert {e.error for e in waits} == {"rate limit of some/model"}
    assert {reason for _, reason in shown} == {"rate limit of some/model"}
    assert lab.outcomes()["other", "b"] == ["failed"]


AGENTS = '''
import asyncio
from harbor.agents.base import BaseAgent
from harbor.agents.installed.base import ApiRateLimitError


class Late(BaseAgent):
    """Works, slowly enough that somebody else is rate limited meanwhile."""

    @staticmethod
    def name() -> str:
        return "late"

    def version(self) -> str:
        return "1"

    async def setup(self, environment) -> None:
        pass

    async def run(self, instruction, environment, context) -> None:
        jobs = self.logs_dir.parents[2]
        while "trial_ended" not in (jobs.parent / "events.jsonl").read_text():
            await asyncio.sleep(0.05)


class Limited(Late):
    """Is told to wait, and gives up."""

    async def run(self, instruction, environment, context) -> None:
        (self.logs_dir / "log.txt").write_text("429 Too Many Requests; Retry-After: 12")
        raise ApiRateLimitError("429")
'''
