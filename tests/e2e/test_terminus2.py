"""Harbor's Terminus-2 in the local sandbox against scripted OpenAI-compatible and Ollama servers."""

import json
from pathlib import Path
from typing import Any

import pytest
from harbor.models.trajectories import Trajectory

from servers.base import Refusal, Tokens, Turn
from servers.harbor_job import SOLVE, Trial, run_trial
from servers.ollama import OllamaServer
from servers.openai import OpenAIServer
from support.tools import TMUX
from terminalbench.analytics.run import AnalysisRequest, run_analysis
from terminalbench.harbor.read.results import read_trial
from terminalbench.json_files import read_jsonl
from terminalbench.lab.select import select
from terminalbench.records.trial import Finding

MODEL = "qwen3-coder:30b"
MODEL_INFO = {
    "max_input_tokens": 32000,
    "max_output_tokens": 4096,
    "input_cost_per_token": 1e-6,
    "output_cost_per_token": 2e-6,
}


def act(**fields: Any) -> str:
    """One answer in Terminus-2's JSON protocol."""
    return json.dumps({"analysis": "a", "plan": "p", "commands": [], "task_complete": False, **fields})


# Terminus-2 asks once more before it takes "complete" for an answer.
SCRIPT = [
    Turn(act(commands=[{"keystrokes": f"{SOLVE}\n", "duration": 3.0}]), (), Tokens(700, 0, 100, 40)),
    Turn(act(task_complete=True), (), Tokens(900, 0, 200, 30)),
    Turn(act(task_complete=True), (), Tokens(1000, 0, 300, 20)),
]
INPUT, CACHED, OUTPUT = 3200, 600, 90


@pytest.fixture(autouse=True)
def tmux() -> None:
    """Terminus-2 works through tmux."""
    TMUX.path()


def run_terminus(folder: Path, model: str, api_base: str, **kwargs: Any) -> Trial:
    options = {"api_base": api_base, "record_terminal_session": False, "model_info": MODEL_INFO, **kwargs}
    agent = {"name": "terminus-2", "model_name": model, "kwargs": options}
    return run_trial(folder, agent, env={"OPENAI_API_KEY": "scripted"})


def assert_solved(trial: Trial, *, cached: int) -> None:
    assert (trial.reward, trial.error) == (1.0, None)
    used = trial.result["agent_result"]
    assert (used["n_input_tokens"], used["n_cache_tokens"], used["n_output_tokens"]) == (INPUT, cached, OUTPUT)
    trajectory = Trajectory.model_validate(trial.json("agent/trajectory.json"))
    assert sum(step.source == "agent" for step in trajectory.steps) == len(SCRIPT)


def assert_analysed(trial: Trial) -> None:
    """What the analysis of Harbor's jobs folder finds in the trajectory of the real agent."""
    done = run_analysis(AnalysisRequest(select(trial.folder.parents[1]).batches))
    found = {f.name: f for f in read_jsonl(done.output / "findings.jsonl", Finding).records}
    names = ("success", "agent_steps", "tool_calls", "mcp_calls", "files_written", "files_edited", "first_edit_step")
    assert [found[name].value for name in names] == [True, 3, 3, 0, 1, 0, 2]
    assert found["files_written"].reason == "/app/out.txt"
    assert (found["tool_mix.write"].value, found["tool_mix.finish"].value) == (1, 2)
    assert found["tool_errors"].value is None, "keys typed into a terminal have no exit code"
    assert (found["tokens"].value, found["context_first_tokens"].value) == (INPUT + OUTPUT, 800)
    assert done.missing == ()
    read = read_trial(trial.folder).trial
    assert read is not None
    had = read.delivery
    assert (had.told_by, had.model, had.cli_version) == ("trajectory", "openai/scripted", read.agent_version)
    assert (had.tools, had.permission_mode) == (None, None), "it does not tell"


def test_an_openai_compatible_server(tmp_path: Path) -> None:
    with OpenAIServer(SCRIPT) as server:
        trial = run_terminus(tmp_path, "openai/scripted", f"{server.url}/v1")
    assert_solved(trial, cached=CACHED)
    assert trial.result["agent_result"]["cost_usd"] == pytest.approx((INPUT * 1 + OUTPUT * 2) / 1e6, abs=1e-12)
    assert [request.headers["authorization"] for request in server.chats] == ["Bearer scripted"] * 3
    assert_analysed(trial)


def test_ollamas_own_api_with_its_context_length(tmp_path: Path) -> None:
    with OllamaServer(SCRIPT, model=MODEL) as server:
        trial = run_terminus(tmp_path, f"ollama_chat/{MODEL}", server.url, llm_call_kwargs={"num_ctx": 32768})
    assert_solved(trial, cached=0)
    assert trial.result["agent_result"]["cost_usd"] is None, "what a local model costs is not known"
    assert [request.body["options"]["num_ctx"] for request in server.native_chats] == [32768] * 3
    assert {request.body["model"] for request in server.native_chats} == {MODEL}


def test_ollamas_openai_compatible_api(tmp_path: Path) -> None:
    with OllamaServer(SCRIPT, model=MODEL) as server:
        trial = run_terminus(tmp_path, f"openai/{MODEL}", f"{server.url}/v1")
    assert_solved(trial, cached=CACHED)
    assert server.native_chats == []


def test_a_refusing_server_is_named_in_the_result(tmp_path: Path) -> None:
    with OpenAIServer(refusal=Refusal(401, "invalid_api_key", "scripted refusal")) as server:
        trial = run_terminus(tmp_path, "openai/scripted", f"{server.url}/v1")
    assert trial.error == "AuthenticationError"
    assert "scripted refusal" in trial.result["exception_info"]["exception_message"]


def test_a_provider_that_fails_until_the_agents_time_is_over_is_seen_on_the_host(lab) -> None:
    """Harbor's client tries again in silence: no log tells of it."""
    task = lab.root / "tasks" / "a" / "task.toml"
    task.write_text(task.read_text().replace("timeout_sec = 3600.0", "timeout_sec = 8.0"))
    lab.env["OPENAI_API_KEY"] = "scripted"
    with OpenAIServer(refusal=Refusal(500, "server_error", "scripted failure")) as server:
        options = f'{{ api_base = "{server.url}/v1", record_terminal_session = false }}'
        profile = f'[profiles.t]\nagent = "terminus-2"\nmodel = "openai/scripted"\noptions = {options}\n'
        ran = lab.tbench("run", lab.experiment(profile, tasks=("a",)))
    assert ran.returncode == 1, ran.stdout + ran.stderr
    (folder,) = lab.batch().runs.glob("*__t/a__*")
    trial = read_trial(folder).trial
    assert trial is not None
    assert (trial.outcome, trial.error_class, trial.error_type) == ("errored", "provider", "AgentTimeoutError")
    assert trial.wait is not None
    assert list(trial.wait.refused) == ["500"]
    assert trial.wait.retries == trial.wait.at_end > 0
    assert trial.wait.backoff_sec


DECLARED = """
[profiles.stated]
agent = "terminus-2"
model = "openai/scripted"
options = {{ record_terminal_session = false }}
env = {{ OPENAI_API_KEY = "${{OPENAI_API_KEY}}", OPENAI_BASE_URL = "{url}/v1" }}
[profiles.referred]
extends = "stated"
env = {{ OPENAI_BASE_URL = "${{MODEL_URL}}" }}
[profiles.unread]
extends = "stated"
model = "mistral/scripted"
env = {{ OPENAI_BASE_URL = "", MISTRAL_API_KEY = "${{OPENAI_API_KEY}}", MISTRAL_API_BASE = "{url}/v1" }}
"""


def test_a_declared_endpoint_is_asked_by_whoever_asks_the_model(lab) -> None:
    """Also where LiteLLM, in Harbor's process, does not read the variable; what it asks is in the trial's log."""
    lab.env["OPENAI_API_KEY"] = "sk-scripted-0123456789"
    solves = Turn(act(commands=[{"keystrokes": "echo forty-two > /app/answer.txt\n", "duration": 1.0}]))
    with OpenAIServer([solves, *SCRIPT[1:]]) as server:
        lab.env["MODEL_URL"] = f"{server.url}/v1"
        run = 'parallel = 3\n[run.network]\nagent = "model-only"\n'
        ran = lab.tbench("run", lab.experiment(DECLARED.format(url=server.url), tasks=("a",), run=run))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lab.outcomes() == {(name, "a"): ["passed"] for name in ("stated", "referred", "unread")}
    assert len(server.chats) == 3 * len(SCRIPT)
    port = int(server.url.rpartition(":")[2])
    for log in lab.batch().runs.glob("*/a__*/egress.jsonl"):
        asked = [line for line in map(json.loads, log.read_text().splitlines()) if line.get("by") == "harbor"]
        assert [(line["host"], line["port"]) for line in asked] == [("127.0.0.1", port)] * len(SCRIPT)


ELSEWHERE = '''
from harbor.agents.base import BaseAgent


class Elsewhere(BaseAgent):
    """Asks its model where its profile does not say."""

    AGENT_INFO = {"asks_from_host": True}

    @staticmethod
    def name():
        return "elsewhere"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        import litellm

        asked = [{"role": "user", "content": instruction}]
        await litellm.acompletion(model=self.model_name, messages=asked, api_base="URL/v1", api_key="k")
'''


def test_a_model_elsewhere_is_refused_where_the_network_is_the_models_own(lab) -> None:
    with OpenAIServer([Turn("ok")]) as server:
        lab.project.write("litellm_elsewhere.py", ELSEWHERE.replace("URL", server.url))
        lab.env |= {"OPENAI_API_KEY": "sk-scripted-0123456789"}
        profile = (
            '[profiles.e]\nagent = "litellm_elsewhere:Elsewhere"\nmodel = "openai/scripted"\nenv = ["OPENAI_API_KEY"]\n'
        )
        file = lab.experiment(profile, tasks=("a",), run='[run.network]\nagent = "model-only"\n')
        ran = lab.tbench("run", file)
        assert ran.returncode == 1
        assert "the agent calls its model at 127.0.0.1" in " ".join(ran.stdout.split())
        assert server.requests == []
        assert lab.tbench("run", lab.experiment(profile, tasks=("a",))).returncode == 0
        assert len(server.chats) == 1
