"""A program as an agent through what happens to agents: a kill, a budget, an outage, lessons; and one of npm."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any, override

from test_run import LIMIT_SEC, wait_for

from servers.base import Handler, Refusal, Request, Tokens, Turn
from servers.openai import OpenAIServer
from support.tasks import write_task
from support.tools import NODE
from terminalbench.harbor.read.results import read_job
from terminalbench.records.trial import Outcome

KEY = "sk-scripted-0123456789"
PYTHON = """
import json, os, sys, urllib.request
body = json.dumps({"model": sys.argv[1], "messages": [{"role": "user", "content": sys.argv[2]}]}).encode()
asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, {
    "content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
try:
    answer = json.load(urllib.request.urlopen(asked, timeout=600))
except urllib.error.HTTPError as error:
    sys.exit(f"API error {error.code}: {error.read().decode()}")
open("/app/answer.txt", "w").write(answer["choices"][0]["message"]["content"])
print(json.dumps({"usage": answer["usage"], "cost": 10}))
"""
PROFILE = """
[profiles.mine]
agent = "command"
model = "scripted"
env = {{ OPENAI_API_KEY = "${{OPENAI_API_KEY}}", OPENAI_BASE_URL = "{url}/v1" }}
{more}
[profiles.mine.command]
run = ["python3", "{{files}}/cli.py", "{{model}}", "{{instruction}}"]
files = ["cli.py"]
usage = {{ input = "usage.prompt_tokens", output = "usage.completion_tokens", cost = "cost" }}
"""
RIGHT = Turn("forty-two", (), Tokens(120, 0, 0, 7))
REFUSALS = {
    "auth": Refusal(401, "invalid_api_key", "Incorrect API key provided"),
    "rate_limit": Refusal(429, "rate_limit_exceeded", "Rate limit reached, try again later"),
    "provider": Refusal(503, "overloaded", "The server is overloaded"),
}


class Model(OpenAIServer):
    """A model that may keep all but its first answer back, and that refuses as the instruction says."""

    def __init__(self) -> None:
        super().__init__([RIGHT])
        self.free: int | None = None
        self.go = threading.Event()

    @override
    def reply(self, to: Handler, request: Request) -> None:
        told = json.dumps(request.body)
        refusal = next((one for name, one in REFUSALS.items() if f"behave: {name}." in told), None)
        if refusal is not None:
            return to.send_json({"error": {"message": refusal.message, "code": refusal.kind}}, refusal.status)
        if self.free is not None and len(self.chats) > self.free:
            self.go.wait(LIMIT_SEC)
        return super().reply(to, request)


def write(lab: Any, url: str, more: str = "", **given: Any) -> Path:
    lab.project.write("cli.py", PYTHON)
    lab.env["OPENAI_API_KEY"] = KEY
    return lab.experiment(PROFILE.format(url=url, more=more), **given)


def test_a_kill_costs_no_trial_of_a_program(lab) -> None:
    with Model() as model:
        model.free = 1
        file = write(lab, model.url, run="attempts = 2\nparallel = 2")
        process = lab.start("run", file)
        wait_for(lambda: len(model.chats) >= 3, process)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=LIMIT_SEC)
        model.go.set()
        ran = lab.tbench("resume", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lab.outcomes() == {("mine", "a"): ["passed"] * 2, ("mine", "b"): ["passed"] * 2}
    current = [entry for entry in lab.index() if not entry.get("superseded")]
    assert len({entry["attempt"] for entry in current if entry["task_id"] == "a"}) == 2


def test_a_budget_holds_a_program_that_tells_its_cost(lab) -> None:
    with Model() as model:
        file = write(lab, model.url, tasks=("a",), run="attempts = 5\nparallel = 4\nbudget_usd = 25.0")
        ran = lab.tbench("run", file)
        assert len(model.chats) == 2, ran.stdout
    assert ran.returncode == 3
    said = " ".join(ran.stdout.split())
    assert "the budget of $25.00 is used up ($20.00 spent; another trial costs about $10.00)" in said
    assert sorted(lab.outcomes()["mine", "a"]) == ["not_run"] * 3 + ["passed"] * 2


def test_what_its_provider_refuses_is_told_by_its_class(lab) -> None:
    tasks = (*REFUSALS, "network")
    for task in tasks:
        folder = write_task(lab.root / "tasks" / task)
        (folder / "instruction.md").write_text(f"Write the answer. behave: {task}.\n")
    with Model() as model:
        file = write(lab, model.url, tasks=tuple(REFUSALS), run="parallel = 3\non_auth_failure = 'continue'")
        assert lab.tbench("run", file).returncode == 1, "nothing was measured"
    file = write(lab, model.url, tasks=("network",))  # where nobody listens any more
    lab.tbench("run", file)
    found = {}
    for number in (0, 1):
        (job,) = (folder for folder in lab.batch(number).runs.iterdir() if folder.is_dir())
        found |= {one.trial.task: one.trial for one in read_job(job) if one.trial is not None}
    assert {task: (trial.outcome, trial.error_class) for task, trial in found.items()} == {
        task: (Outcome.ERRORED, task) for task in tasks
    }
    for file in (lab.root / "results").rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file


def test_lessons_reach_a_program_with_the_instruction(lab) -> None:
    lesson = 'Mind the `answer`: it is "$HOME" and {instruction} in words, naïve café.'
    assert lab.tbench("memory", "add", "--by", "ann", "--do", lesson).returncode == 0
    with Model() as model:
        ran = lab.tbench("run", write(lab, model.url, "lessons = { withhold = 0.0 }", tasks=("a",)))
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (asked,) = model.chats
    prompt = asked.body["messages"][0]["content"]
    assert f"Do: {lesson}\n" in prompt
    assert prompt.index(lesson) < prompt.index("Write the answer")


CLI = """#!/usr/bin/env node
const { answer } = require("../lib/answer");
const at = process.argv.indexOf("--prompt");
console.log(JSON.stringify({ type: "thread.started", thread_id: "t" }));
console.log(JSON.stringify({ type: "item.completed", item: { id: "1", type: "agent_message", text: process.argv[at + 1] } }));
require("fs").writeFileSync("/app/answer.txt", answer);
console.log(JSON.stringify({ type: "turn.completed", usage: { input_tokens: 900, cached_input_tokens: 100, output_tokens: 30 } }));
"""


def test_a_package_of_npm_from_nothing_to_a_comparison(lab, tmp_path: Path) -> None:
    """Installed for all of the machine, as `npm install -g` does: found on PATH, mounted with its package and its Node."""
    package = tmp_path / "prefix" / "lib" / "node_modules" / "@me" / "my-cli"
    for name, text in (("bin/cli.js", CLI), ("lib/answer.js", 'exports.answer = "wrong";\n')):
        (package / name).parent.mkdir(parents=True)
        (package / name).write_text(text)
    (package / "bin" / "cli.js").chmod(0o755)
    bins = tmp_path / "prefix" / "bin"
    bins.mkdir()
    (bins / "my-cli").symlink_to(package / "bin" / "cli.js")
    (bins / "node").symlink_to(NODE.path())
    lab.env["PATH"] = f"{bins}{os.pathsep}{lab.env['PATH']}"
    init = lab.tbench("init", "--agent", "hasty", "--", "my-cli", "--prompt", "{instruction}")
    assert init.returncode == 0, init.stderr
    lab.project.write("prompts/a.txt", "x")
    assert lab.tbench("init", "--agent", "filed", "--", "my-cli", "prompts/a.txt", "{instruction}").returncode == 0
    filed = (lab.root / "experiments" / "filed.toml").read_text()
    assert 'programs = ["my-cli"]' in filed
    assert 'files = ["prompts/a.txt"]' in filed
    careful = ("my-cli", "--prompt", "Be careful. {instruction}")
    assert lab.tbench("init", "--agent", "careful", "--slug", "hasty", "--", *careful).returncode == 0
    file = lab.root / "experiments" / "hasty.toml"
    assert 'programs = ["my-cli"]' in file.read_text()
    ran = lab.tbench("run", file, "--profiles", "hasty", "careful", "--tasks", "a")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    batch = lab.root / "results" / "hasty" / "0"
    shown = json.loads(lab.tbench("show", batch, "careful", "a", "--json").stdout)
    used = shown["usage"]
    assert (used["input_tokens"], used["cache_read_tokens"], used["output_tokens"]) == (800, 100, 30)
    (trajectory,) = batch.glob("runs/*careful*/a__*/agent/trajectory.json")
    assert "Be careful. Write the answer" in trajectory.read_text()
    assert lab.tbench("compare", batch).returncode in (0, 3)
    (package / "lib" / "answer.js").write_text('exports.answer = "forty-two";\n')
    refused = lab.tbench("resume", batch, "--attempts", "2")
    assert refused.returncode == 2
    assert "has changed: programs.my-cli" in refused.stderr
    assert lab.tbench("run", file, "--profiles", "hasty", "--tasks", "a").returncode == 0
    plans = [json.loads((batch.parent / number / "plan.json").read_text()) for number in "01"]
    assert plans[0]["profiles"][0]["id"] != plans[1]["profiles"][0]["id"]
