"""The agent `guarded` in real Harbor with a scripted model: one batch of every ending, one at its time limit, one cut off."""

import json
import os
import signal
import subprocess
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from test_run import LIMIT_SEC, wait_for

from servers.base import Refusal
from servers.workflow import STALL, Answer, Asked, WorkflowServer
from support.experiments import Project
from support.tasks import write_repository_task
from terminalbench.workflow.trace import TraceEvent, TraceEventKind, answer_file, patch_file, read_trace

pytestmark = pytest.mark.timeout(600)

WORKFLOW = """
name = "two_steps"
[steps.analysis]
generator = "analysis"
guards = ["analysis"]
rmax = 1
prompt = "Say why."
[steps.patch]
generator = "patch"
guards = ["patch", "lab_guards:Works"]
requires = ["analysis"]
rmax = 2
retry_temperature = 0.4
patience = 2
e_max = 1
escalate = ["analysis"]
prompt = "Mend it."
"""
ALONE = """
name = "alone"
[steps.patch]
generator = "patch"
guards = ["patch"]
prompt = "Mend it."
"""
THEN_REVIEW = """
name = "then_review"
[steps.patch]
generator = "patch"
guards = ["patch"]
prompt = "Mend it."
[steps.review]
generator = "review"
guards = ["review_schema"]
requires = ["patch"]
prompt = "Judge it."
"""
GUARDS = '''
"""A guard of the project: the program works, and its check leaves forged files all over the sandbox."""

from terminalbench.workflow.generators import answer_of
from terminalbench.workflow.model import GuardResult
from terminalbench.workflow.patches import changes

FORGE = """
mkdir -p workflow /logs/agent /logs/artifacts/workflow; env > /logs/artifacts/env.txt
for f in workflow/trace.jsonl /logs/agent/trajectory.json /logs/agent/trace.jsonl; do echo '{"forged": true}' > $f; done
rm -rf .git; git init -q; echo broken > calc.pyc; echo lost > deps/new
"""


class Works:
    name = "works"

    async def check(self, artifact, context):
        made = await changes(answer_of(artifact), context.workspace)
        if b"boom" in made.files["calc.py"]:
            raise KeyError("a bug of this guard")
        script = FORGE + 'python3 -B -c "import calc; assert calc.add(2, 3) == 5, calc.add(2, 3)"'
        ran = await context.workspace.run(["sh", "-c", script], timeout_sec=60, files=made.files)
        if ran.code:
            return GuardResult(passed=False, guard=self.name, feedback=ran.stderr, signature=ran.stderr.splitlines()[-1])
        return GuardResult(passed=True, guard=self.name)
'''
HASTY = '''
"""The guarded agent, whose time is over as soon as the file `go` is there: no clock decides."""

import asyncio
from pathlib import Path

from terminalbench.harbor.agents.guarded import GuardedAgent


class Hasty(GuardedAgent):
    async def run(self, instruction, environment, context):
        self.limit_sec = 0.0
        async with asyncio.timeout(None) as limit:
            waiting = asyncio.create_task(self._over(limit))
            try:
                await super().run(instruction, environment, context)
            finally:
                waiting.cancel()

    async def _over(self, limit):
        while not Path(__file__).with_name("go").exists():
            await asyncio.sleep(0.02)
        limit.reschedule(0)
'''
HEAD = """
schema_version = 2
slug = "s"
[run]
container_env = "local"
parallel = 12
{run}
[tasks]
default_dataset = "tasks"
items = [{items}]
"""
GUARDED = """
[profiles.{name}]
agent = "guarded"
workflow = "{workflow}"
model = "openai/scripted"
options = {{ base_url = "{url}/v1", tries = 2 }}
"""
ANALYSIS = {"root_cause": "the sign", "fix_approach": "add", "files": ["calc.py"]}
SCENARIOS = ("good", "mended", "back", "hopeless", "busy", "limited", "broken", "locked", "bug")


def edit(replace: str, search: str = "a - b") -> dict[str, Any]:
    return {"edits": [{"action": "modify", "path": "calc.py", "search": search, "replace": replace}], "reasoning": "so"}


def answers(asked: Asked) -> Answer:
    """What the model says in each scenario."""
    match asked.scenario, asked.form, asked.number:
        case "busy", "patch", 1:
            return Refusal(429, "rate_limit_exceeded", "slow down", {"retry-after": "0"})
        case "limited", _, _:
            return Refusal(429, "rate_limit_exceeded", "slow down", {"retry-after": "0.2"})
        case "broken", _, _:
            return Refusal(503, "server_error", "down for maintenance")
        case "locked", _, _:
            return Refusal(401, "invalid_api_key", "no such key")
        case "mended", "patch", 1:
            return "I would rather talk about it."
        case _, "analysis", _:
            return ANALYSIS
        case "back", "patch", 1 | 2:
            return edit(f"a * b  # {asked.number}")
        case "hopeless", "patch", _:
            return edit("a", search=f"not in the file {asked.number}")
        case "bug", "patch", _:
            return edit("a + b  # boom")
        case "slow", "review", _:
            return STALL
        case "quick", "review", _:
            return {"verdict": "approve", "reasoning": "fine"}
    return edit("a + b")


@dataclass(frozen=True)
class Ran:
    """A batch that has run, and the server that it asked."""

    lab: Any
    server: WorkflowServer
    ran: subprocess.CompletedProcess[str]

    def trial(self, task: str, profile: str = "arm") -> Path:
        runs = self.lab.batch().runs
        found = [path.parent for path in runs.glob(f"*__{profile}/*/result.json") if path.parent.name.startswith(task)]
        assert len(found) == 1, (task, found, self.ran.stdout + self.ran.stderr)
        return found[0]

    def result(self, task: str, profile: str = "arm") -> dict[str, Any]:
        return json.loads((self.trial(task, profile) / "result.json").read_text())

    def trace(self, task: str, profile: str = "arm") -> list[TraceEvent]:
        found = read_trace(self.trial(task, profile))
        assert not found.bad
        assert [event.number for event in found.records] == list(range(1, len(found.records) + 1))
        return found.records

    def row(self, task: str, profile: str = "arm") -> dict[str, Any]:
        rows = [row for row in self.lab.index() if (row["task_id"], row["agent_key"]) == (task, profile)]
        assert len(rows) == 1
        return rows[0]


def make(project: Project, new_lab: Any, tasks: Mapping[str, float], workflows: Mapping[str, str]) -> Any:
    lab = new_lab(project)
    for name, agent_sec in tasks.items():
        folder = write_repository_task(project.root / "tasks" / name, agent_sec=agent_sec)
        (folder / "instruction.md").write_text(f"SCENARIO {name}: `add(2, 3)` of calc.py returns -1, it should be 5.\n")
    for name, text in workflows.items():
        project.write(name, text)
    project.write("lab_guards.py", GUARDS)
    lab.env |= {"NO_PROXY": "127.0.0.1", "OPENAI_API_KEY": "sk-scripted-0123456789"}
    return lab


def experiment(project: Project, tasks: Mapping[str, float], profiles: str, run: str = "") -> Path:
    items = ", ".join(f'{{ id = "{task}" }}' for task in tasks)
    return project.experiment(HEAD.format(run=run, items=items) + profiles, "exp.toml")


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory, new_lab: Any) -> Generator[Ran]:
    root = tmp_path_factory.mktemp("guarded") / "project"
    root.mkdir()
    project, tasks = Project(root), dict.fromkeys(SCENARIOS, 3600.0)
    lab = make(project, new_lab, tasks, {"two.toml": WORKFLOW})
    with WorkflowServer(answers) as server:
        profile = GUARDED.format(name="arm", workflow="two.toml", url=server.url)
        profile += 'env = { OPENAI_API_KEY = "${OPENAI_API_KEY}" }\n'
        ran = lab.tbench("run", experiment(project, tasks, profile))
        yield Ran(lab, server, ran)


def test_each_scenario_ends_as_it_should(batch: Ran) -> None:
    ended = [event for event in batch.lab.events() if event.kind == "trial_ended"]
    found = {event.task: (event.outcome, event.detail.get("error_class")) for event in ended}
    assert found == {
        "good": ("passed", None),
        "mended": ("passed", None),
        "back": ("passed", None),
        "hopeless": ("failed", None),
        "busy": ("passed", None),
        "limited": ("errored", "rate_limit"),
        "broken": ("errored", "provider"),
        "locked": ("errored", "auth"),
        "bug": ("errored", "guard"),
    }, batch.ran.stdout + batch.ran.stderr


@pytest.mark.parametrize("task", ["good", "mended", "back", "hopeless", "busy"])
def test_tokens_are_those_that_the_server_served(batch: Ran, task: str) -> None:
    told = batch.result(task)["agent_result"]
    assert (told["n_input_tokens"], told["n_output_tokens"]) == batch.server.served[task]
    answered = sum(asked.scenario == task for asked in batch.server.asked) - (task == "busy")
    assert told["n_cache_tokens"] == 7 * answered
    last = batch.trace(task)[-1].usage
    assert last is not None
    assert (last.total_tokens, last.output_tokens) == (sum(batch.server.served[task]), batch.server.served[task][1])


def test_the_trace_is_the_hosts_whatever_the_sandbox_writes(batch: Ran) -> None:
    kinds = [(e.kind, e.step) for e in batch.trace("good") if e.kind is not TraceEventKind.GUARD]
    assert kinds == [
        ("run_start", None), ("step_start", "analysis"), ("attempt", "analysis"), ("step_pass", "analysis"),
        ("step_start", "patch"), ("attempt", "patch"), ("step_pass", "patch"), ("run_end", None),
    ]  # fmt: skip
    trial = batch.trial("good")
    trajectory = json.loads((trial / "agent/trajectory.json").read_text())
    assert [step["source"] for step in trajectory["steps"]] == ["user", "agent", "agent"]
    seen = [result["content"] for result in trajectory["steps"][2]["observation"]["results"]]
    assert [text.partition(": ")[0] for text in seen] == ["patch", "lab_guards:Works"]
    assert trajectory["final_metrics"]["total_completion_tokens"] == batch.server.served["good"][1]
    assert (trial / "agent/trace.jsonl").exists(), "the forger was at work"
    assert not (trial / "workflow/objects").is_symlink()
    start = batch.trace("good")[0]
    told = batch.result("good")["agent_result"]["metadata"]
    assert told["workflow_digest"] == start.config
    assert start.context == told["context_hash"]
    assert told["language"] == "python"


def test_the_accepted_patch_is_left_and_dependencies_stay(batch: Ran) -> None:
    trial = batch.trial("good")
    patch = patch_file(trial).read_text()
    assert "\n-    return a - b\n+    return a + b\n" in patch
    told = batch.result("good")["agent_result"]["metadata"]
    assert (told["ending"], told["patch_applied"]) == ("done", True)
    assert (trial / "verifier/test-stdout.txt").read_text().startswith("kept\n")


def test_no_key_reaches_the_sandbox(batch: Ran) -> None:
    seen = (batch.trial("good") / "artifacts/logs/artifacts/env.txt").read_text()
    assert "PATH=" in seen
    assert "OPENAI_API_KEY" not in seen
    for file in batch.lab.batch().folder.rglob("*"):
        assert not file.is_file() or b"sk-scripted" not in file.read_bytes(), file


def test_malformed_replies_are_repaired_and_counted(batch: Ran) -> None:
    attempts = [event for event in batch.trace("mended") if event.kind is TraceEventKind.ATTEMPT]
    assert [(event.step, event.attempt, event.tries) for event in attempts] == [("analysis", 1, 1), ("patch", 1, 2)]
    assert (
        "That answer cannot be used" in [asked for asked in batch.server.asked if asked.scenario == "mended"][-1].prompt
    )
    assert [len(event.rejected) for event in attempts] == [0, 1]
    assert answer_file(batch.trial("mended"), attempts[1].rejected[0]).read_text(), "the malformed reply is kept"


def test_a_step_that_repeats_its_error_sends_the_run_back_and_all_are_told(batch: Ran) -> None:
    trace = batch.trace("back")
    assert [e.kind for e in trace if e.kind in (TraceEventKind.STAGNATION, TraceEventKind.ESCALATE, TraceEventKind.INVALIDATE)] == [
        "stagnation", "escalate", "invalidate"
    ]  # fmt: skip
    attempts = [(e.step, e.cycle, e.attempt, e.temperature) for e in trace if e.kind is TraceEventKind.ATTEMPT]
    assert attempts == [
        ("analysis", 1, 1, 0), ("patch", 1, 1, 0), ("patch", 1, 2, 0.4), ("analysis", 2, 1, 0), ("patch", 2, 1, 0)
    ]  # fmt: skip
    prompts = [asked.prompt for asked in batch.server.asked if asked.scenario == "back"]
    assert "AssertionError: 6" in prompts[2]
    assert all("AssertionError: 6" in prompt for prompt in prompts[3:]), "every re-run is told of the failure"
    assert batch.result("back")["agent_result"]["metadata"]["ending"] == "done"


def test_an_exhausted_run_leaves_the_tree_as_it_was(batch: Ran) -> None:
    end = batch.trace("hopeless")[-1]
    assert (end.kind, end.ending, end.step, end.guard) == ("run_end", "exhausted", "patch", "patch")
    told = batch.result("hopeless")["agent_result"]["metadata"]
    assert (told["ending"], told["patch_applied"]) == ("exhausted", False)
    assert not patch_file(batch.trial("hopeless")).exists()
    assert batch.result("hopeless")["exception_info"] is None


def test_what_a_provider_does_is_no_attempt_of_the_model(batch: Ran) -> None:
    assert [event.tries for event in batch.trace("busy") if event.kind is TraceEventKind.ATTEMPT] == [1, 2]
    assert json.loads((batch.trial("busy") / "seen.json").read_text())["wait"]["refused"] == {"429": 1}
    for task in ("limited", "broken", "locked"):
        kinds = [event.kind for event in batch.trace(task)]
        assert kinds == ["run_start", "step_start", "run_end"]
        assert batch.trace(task)[-1].ending == "error"
    ended = {event.task: event for event in batch.lab.events() if event.kind == "trial_ended"}
    assert ended["limited"].detail["asked_wait_sec"] == 0.2
    assert ended["limited"].detail["rate_limit_hits"] == 2


def test_a_bug_of_a_guard_is_no_failure_of_the_model(batch: Ran) -> None:
    end = batch.trace("bug")[-1]
    assert (end.kind, end.ending, end.guard) == ("run_end", "error", "lab_guards:Works")
    assert end.reason == "guard lab_guards:Works failed: KeyError: 'a bug of this guard'"
    told = batch.result("bug")
    assert told["exception_info"]["exception_type"] == "GuardFaultError"
    assert told["exception_info"]["exception_message"] == end.reason
    assert told["agent_result"]["metadata"]["ending"] == "error"


def test_the_run_told_where_each_trial_was(batch: Ran) -> None:
    told = [e.detail["at"] for e in batch.lab.events() if e.task == "back" and "at" in e.detail]
    assert list(dict.fromkeys((at["step"], at["attempt"], at["cycle"]) for at in told)) == [
        ("analysis", 1, 1), ("patch", 1, 1), ("patch", 2, 1), ("patch", 3, 1), ("analysis", 1, 2), ("patch", 1, 2)
    ]  # fmt: skip
    assert [at.get("retries", 0) for at in told] == [0, 0, 0, 1, 1, 1, 1]


def test_two_arms_on_one_repository_and_the_best_patch_at_the_time_limit(project: Project, new_lab: Any) -> None:
    tasks = {"slow": 3600.0}
    lab = make(project, new_lab, tasks, {"alone.toml": ALONE, "review.toml": THEN_REVIEW, "hasty.py": HASTY})
    with WorkflowServer(answers) as server:
        # Ollama's protocol here, which needs no large client.
        profiles = GUARDED.format(name="late", workflow="review.toml", url=server.url)
        profiles = profiles.replace('"guarded"', '"hasty:Hasty"')
        profiles += GUARDED.format(name="other", workflow="alone.toml", url=server.url)
        profiles = profiles.replace("openai/scripted", "ollama:scripted").replace("/v1", "")
        over = Thread(target=lambda: server.stalled.wait() and lab.go(), daemon=True)
        over.start()
        batch = Ran(lab, server, lab.tbench("run", experiment(project, tasks, profiles)))
    assert lab.outcomes() == {("late", "slow"): ["passed"], ("other", "slow"): ["passed"]}, batch.ran.stdout
    ended = {event.profile: event for event in lab.events() if event.kind == "trial_ended"}
    assert ended["late"].detail["agent_status"] == "timed_out"
    end = batch.trace("slow", "late")[-1]
    assert (end.ending, end.step) == ("time", "review")
    assert batch.result("slow", "late")["agent_result"]["metadata"]["patch_applied"] is True
    assert patch_file(batch.trial("slow", "late")).read_text() == patch_file(batch.trial("slow", "other")).read_text()
    starts = [batch.trace("slow", profile)[0] for profile in ("late", "other")]
    assert starts[0].context == starts[1].context
    assert starts[0].config != starts[1].config


def test_an_interrupt_in_the_middle_of_a_model_call_ends_the_trial(project: Project, new_lab: Any, tbench: Any) -> None:
    tasks = {"slow": 3600.0}
    lab = make(project, new_lab, tasks, {"review.toml": THEN_REVIEW})
    with WorkflowServer(answers) as server:
        profile = GUARDED.format(name="late", workflow="review.toml", url=server.url)
        process = lab.start("run", experiment(project, tasks, profile))
        wait_for(server.stalled.is_set, process)
        status = json.loads(tbench("status", "--json", "--results", lab.root / "results").out)
        assert [step["at"] for one in status for step in one["steps"]] == [{"step": "review", "attempt": 1, "cycle": 1}]
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=min(30, LIMIT_SEC))
    assert process.returncode == 130, out + err
    batch = Ran(lab, server, subprocess.CompletedProcess([], 130, out, err))
    assert batch.row("slow", "late")["outcome"] == "cancelled"
    assert [(e.kind, e.ending) for e in batch.trace("slow", "late")][-1] == ("run_end", "stopped")
    told = batch.result("slow", "late")["agent_result"]
    assert (told["n_input_tokens"], told["n_output_tokens"]) == server.served["slow"]
