"""The agent `ollama` in real Harbor, with a scripted server on the wire."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, override

from jobkit import ANSWER, SOLVE, Job, write_task

from servers.base import Handler, Request, Tokens, Turn
from servers.ollama import OllamaServer
from terminalbench.records.trial import Trial

MODEL = "small:1b"


def _bash(command: str, **more: Any) -> Turn:
    return Turn(tools=[("bash", {"command": command})], **more)


DONE = Turn(tools=[("finish", {"summary": "done"})])


def _job(tmp_path: Path, server: OllamaServer, tasks: Sequence[str] = ("one",), **options: Any) -> Job:
    kwargs = {"base_url": server.url, "tries": 2, **options}
    agent = {"import_path": "terminalbench.harbor.agents.ollama:OllamaAgent", "model_name": MODEL, "kwargs": kwargs}
    return Job(tmp_path, agent, [write_task(tmp_path / "tasks" / name) for name in tasks])


def _one(job: Job) -> Trial:
    job.run()
    (trial,) = job.trials()
    return trial


def _trajectory(job: Job, trial: Trial) -> dict[str, Any]:
    return json.loads((job.folder / trial.name / "agent" / "trajectory.json").read_text())


def test_a_model_works_with_tools_until_it_is_done(tmp_path: Path) -> None:
    script = [
        Turn(
            "I look.",
            tools=[("bash", {"command": "pwd; echo to-stderr >&2"}), ("shell", {})],
            tokens=Tokens(900, output=20),
        ),
        Turn(tools=[("write_file", {"path": "sub/answer.txt", "content": ANSWER})], tokens=Tokens(1100, output=30)),
        _bash("cp sub/answer.txt answer.txt; seq 100000; false", tokens=Tokens(0, output=7)),
        _bash("sleep 60", tokens=Tokens(1300, output=1)),
        DONE,
    ]
    with OllamaServer(script, model=MODEL, ids=True) as server:
        job = _job(
            tmp_path, server, num_ctx=8192, keep_alive="7m", seed=40, temperature=0.3, command_sec=2, output_chars=400
        )
        trial = _one(job)
        chats = [request.body for request in server.native_chats]
    assert (trial.outcome, trial.error_class) == ("passed", None)
    assert trial.usage.input_tokens == 900 + 1100 + 0 + 1300 + 1000
    assert trial.usage.output_tokens == 20 + 30 + 7 + 1 + 50
    first, last = chats[0], chats[-1]
    assert first["options"] == {"num_ctx": 8192, "num_predict": 2048, "seed": 40, "temperature": 0.3}
    assert (first["keep_alive"], first["truncate"], first["stream"]) == ("7m", False, True)
    assert [tool["function"]["name"] for tool in first["tools"]] == ["bash", "write_file", "finish"]
    said = [m for m in last["messages"] if m["role"] == "assistant"]
    assert [len(m["tool_calls"]) for m in said] == [2, 1, 1, 1], "each answer once, with its calls"
    results = [m for m in last["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == ["served-0", "served-1", "served-0", "served-0", "served-0"]
    assert results[0]["content"] == "/app\nto-stderr\n"
    assert 'there is no tool "shell"' in results[1]["content"]
    assert "bytes left out]" in results[3]["content"]
    assert results[3]["content"].endswith("99999\n100000\n\n[exit code 1]")
    assert len(results[3]["content"]) < 500
    assert "ended after 2 s" in results[4]["content"]
    document = _trajectory(job, trial)
    agent_steps = [step for step in document["steps"] if step["source"] == "agent"]
    assert [step["metrics"]["completion_tokens"] for step in agent_steps] == [20, 30, 7, 1, 50]
    assert [[c["tool_call_id"] for c in s["tool_calls"]] for s in agent_steps] == [
        [r["source_call_id"] for r in s["observation"]["results"]] for s in agent_steps
    ]
    assert document["extra"]["ending"] == "finished"
    assert document["extra"]["model_digest"] == "0" * 64


def test_a_model_without_tools_works_in_words(tmp_path: Path) -> None:
    call = json.dumps({"name": "bash", "arguments": {"command": SOLVE}})
    script = [Turn("Well."), Turn(f"```json\n{call}\n```"), Turn('<tool_call>{"name": "finish", "arguments": {}}')]
    with OllamaServer(script, model=MODEL, capabilities=["completion"]) as server:
        trial = _one(_job(tmp_path, server))
        last = server.native_chats[-1].body
    assert trial.outcome == "passed"
    assert "tools" not in last
    assert "<tool_call>" in last["messages"][0]["content"]
    assert [m["role"] for m in last["messages"]] == ["system", "user", "assistant", "user", "assistant", "user"]


def test_a_server_that_breaks_off_or_is_busy_is_asked_again_and_the_model_is_not_blamed(tmp_path: Path) -> None:
    with OllamaServer([_bash(SOLVE), DONE], model=MODEL, breaks=1) as server:
        trial = _one(_job(tmp_path, server))
        chats = len(server.native_chats)
    assert (trial.outcome, chats) == ("passed", 3)
    assert trial.usage.output_tokens == 100, "what broke off is no answer"


class Faulty(OllamaServer):
    """Fails as the task says."""

    @override
    def _chat(self, to: Handler, request: Request) -> None:
        fault = request.body["messages"][1]["content"].strip()
        if fault == "broken":
            return to.send_json({"error": "the runner has crashed"}, 500)
        self.breaks, self.silent = int(fault == "breaks"), int(fault == "silent")
        return super()._chat(to, request)


def test_faults_of_the_server_are_errors_of_the_bench(tmp_path: Path) -> None:
    with Faulty([DONE], model=MODEL) as server:
        job = _job(tmp_path, server, ("broken", "silent", "breaks"), silence_sec=0.5)
        job.settings["n_concurrent_trials"] = 1
        for task in job.tasks:
            (task / "instruction.md").write_text(f"{task.name}\n")
        job.run()
    found = {trial.task: (trial.outcome, trial.error_class) for trial in job.trials()}
    assert found == dict.fromkeys(("broken", "silent", "breaks"), ("errored", "provider"))
    with OllamaServer([DONE], model="small:7b", others=["other:1b"]) as server:
        missing = _one(_job(tmp_path / "missing", server))
    assert (missing.outcome, missing.error_class) == ("errored", "model_not_found")
    dead = _one(_job(tmp_path / "dead", server))
    assert (dead.outcome, dead.error_class) == ("errored", "network")
    assert "no Ollama server answers" in (dead.error_message or "")


def test_another_model_under_the_same_name_is_refused(tmp_path: Path) -> None:
    with OllamaServer([DONE], model=MODEL) as server:
        server.digest = "ab" * 32
        trial = _one(_job(tmp_path, server, digest="0" * 64))
        assert server.native_chats == []
    assert (trial.outcome, trial.error_class) == ("errored", "setup")
    assert "small:1b was pulled again: its digest is abababababab" in (trial.error_message or "")


def test_each_attempt_has_another_seed(tmp_path: Path) -> None:
    with OllamaServer([DONE], model=MODEL) as server:
        job = _job(tmp_path, server, seed=2**31 - 1)
        job.settings["n_attempts"] = 3
        job.run()
        seeds = [request.body["options"]["seed"] for request in server.native_chats]
    assert sorted(seeds) == [0, 1, 2**31 - 1]


def test_what_a_model_leaves_is_judged_although_it_goes_in_circles(tmp_path: Path) -> None:
    with OllamaServer([_bash(SOLVE), _bash("echo same")], model=MODEL) as server:
        job = _job(tmp_path, server)
        trial = _one(job)
    assert (trial.outcome, trial.error_class) == ("passed", None)
    assert _trajectory(job, trial)["extra"]["ending"] == "repeating"
