"""The real Claude Code CLI against a provider that refuses, cuts off or hangs until the agent's time is over; and with a hook that hangs.

One batch: a task for each behaviour of the provider, all at once, so that together they take as long as one.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, override

import pytest
from test_run_clients import VERSION

from servers.anthropic import AnthropicServer
from servers.base import Handler, Refusal, Request, Turn
from support.experiments import Project
from support.tasks import SOLVE, write_task
from support.tools import CLAUDE
from terminalbench.faults import ErrorClass
from terminalbench.harbor.read.results import read_job
from terminalbench.records.trial import AgentStatus, Outcome, Trial

AGENT_SEC = 60.0
"""Long enough for nine CLIs that start at once on a busy machine, where nothing computes meanwhile; after three minutes of
refusals a CLI gives up by itself.
"""
END_BY_THEMSELVES = ("credit", "long", "recovers")
REFUSALS = {
    "401": Refusal(401, "authentication_error", "invalid x-api-key"),
    "429": Refusal(429, "rate_limit_error", "slow down"),
    "529": Refusal(529, "overloaded_error", "Overloaded"),
    "credit": Refusal(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
    "long": Refusal(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"),
}
OUTAGES = {
    "401": ErrorClass.AUTH,
    "429": ErrorClass.RATE_LIMIT,
    "529": ErrorClass.PROVIDER,
    "cut": ErrorClass.NETWORK,
}
FIRST = {"529": Refusal(500, "api_error", "Internal server error")}
"""What is said once before: the last refusal tells whose fault it is, each is counted."""
HOOK = {"type": "command", "command": "sleep 100000", "timeout": 1}
EVENT = {"type": "system", "subtype": "api_retry", "error_status": 529, "retry_delay_ms": 9000, "session_id": "s"}
FORGED = f"echo '{json.dumps(EVENT)}' | tee -a /logs/agent/claude-code.txt; sleep 100000"
TASKS = (*REFUSALS, "cut", "hang", "forged", "recovers")


class Provider(AnthropicServer):
    """Behaves as the instruction of the task says, and counts how often it refused."""

    def __init__(self) -> None:
        super().__init__([Turn("done")])
        self.refusals: Counter[str] = Counter()
        self.gone = threading.Event()
        self._turn = threading.Lock()

    @override
    def reply(self, to: Handler, request: Request) -> None:
        told = json.dumps(request.body)
        how = next((task for task in TASKS if f"behave: {task}." in told), None)
        if request.method != "POST" or how is None or not request.body.get("tools"):
            with self._turn:
                return super().reply(to, request)
        if how == "hang":
            self.gone.wait(10 * AGENT_SEC)
            return None
        if how in ("forged", "recovers") and not (how == "recovers" and self.refusals[how] < 2):
            command = FORGED if how == "forged" else SOLVE
            with self._turn:  # several tasks ask at once
                self.script = (Turn("", [("Bash", {"command": command, "description": "Work"})]), Turn("Done."))
                return super().reply(to, request)
        self.refusals[how] += 1
        if how == "cut":
            to.start_chunks("text/event-stream")
            to.close_connection = True
            return None
        refusal = REFUSALS.get(how, REFUSALS["429"])
        refusal = FIRST.get(how, refusal) if self.refusals[how] == 1 else refusal
        error = {"type": refusal.kind, "message": refusal.message}
        return to.send_json({"type": "error", "error": error}, refusal.status)


class Ran:
    """The batch that has run: its trials by task, and what the provider counted."""

    def __init__(self, lab: Any, provider: Provider, said: str) -> None:
        self.lab, self.said = lab, said
        self.refusals = provider.refusals
        (job,) = (folder for folder in lab.batch().runs.iterdir() if folder.is_dir())
        self.trials: dict[str, Trial] = {r.trial.task: r.trial for r in read_job(job) if r.trial is not None}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, new_lab: Callable[[Project], Any]) -> Generator[Ran]:
    root: Path = tmp_path_factory.mktemp("outage") / "project"
    root.mkdir()
    lab = new_lab(Project(root))
    lab.env["ANTHROPIC_API_KEY"] = "sk-ant-scripted"
    for task in TASKS:
        limit = 600.0 if task in END_BY_THEMSELVES else AGENT_SEC
        folder = write_task(root / "tasks" / task, agent_sec=limit)
        (folder / "instruction.md").write_text(f"Write the answer. behave: {task}.\n")
    lab.project.write("hooks.json", json.dumps({"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [HOOK]}]}}))
    with Provider() as provider:
        profile = (
            f'[profiles.cc]\nno_mcp = true\nhooks = "hooks.json"\nmodel = "claude-sonnet-4-5"\nagent_version = "{VERSION}"\n'
            f'env = {{ ANTHROPIC_API_KEY = "${{ANTHROPIC_API_KEY}}", ANTHROPIC_BASE_URL = "{provider.url}" }}\n'
        )
        mount = {"type": "bind", "source": str(CLAUDE.path()), "target": "/usr/local/bin/claude", "read_only": True}
        arguments = f"harbor_args = ['--mounts', '{json.dumps([mount])}']"
        run = f"parallel = {len(TASKS)}\non_auth_failure = 'continue'\n{arguments}"
        done = lab.tbench("run", lab.experiment(profile, tasks=TASKS, run=run))
        provider.gone.set()
    assert done.returncode == 3, done.stdout + done.stderr
    yield Ran(lab, provider, done.stdout)
    lab.end()


def an_outage_until_the_agents_time_is_over_is_the_providers(ran: Ran, task: str) -> None:
    trial = ran.trials[task]
    assert (trial.outcome, trial.error_class) == (Outcome.ERRORED, OUTAGES[task])
    assert (trial.agent_status, trial.reward) == (AgentStatus.TIMED_OUT, 0.0)
    assert trial.wait is not None
    status = "none" if task == "cut" else task
    told = trial.wait.retries
    assert ran.refusals[task] - 1 <= told <= ran.refusals[task], "the last one may have met an agent at its end"
    first = {str(FIRST[task].status): 1} if task in FIRST else {}
    assert trial.wait.refused == {**first, status: told - len(first)}, "every refusal counts once"
    assert trial.wait.at_end == told > 0
    ended = next(e for e in ran.lab.events() if e.kind == "trial_ended" and e.task == task)
    assert (ended.outcome, ended.detail["error_class"]) == ("errored", OUTAGES[task])
    assert ended.detail.get("rate_limit_hits") == (told if task == "429" else None)


def a_provider_that_hangs_from_the_start_is_the_reason(ran: Ran) -> None:
    trial = ran.trials["hang"]
    assert (trial.outcome, trial.error_class) == (Outcome.ERRORED, ErrorClass.PROVIDER)
    assert trial.error_message == "the provider never answered; the agent waited until its time ran out"


def what_the_agent_prints_or_writes_into_its_log_buys_nothing(ran: Ran) -> None:
    trial = ran.trials["forged"]
    assert (trial.outcome, trial.error_class) == (Outcome.FAILED, ErrorClass.AGENT_TIMEOUT)
    assert trial.wait is not None
    assert (trial.wait.retries, trial.wait.at_end) == (0, 0)


def used_up_credit_and_context_are_told_by_their_words(ran: Ran) -> None:
    poor, long = ran.trials["credit"], ran.trials["long"]
    assert (poor.outcome, poor.error_class) == (Outcome.ERRORED, ErrorClass.CREDIT)
    assert poor.error_message == "Credit balance is too low"
    assert (long.outcome, long.error_class) == (Outcome.FAILED, ErrorClass.AGENT_LIMIT)
    assert long.error_message is not None
    assert long.error_message.startswith("Prompt is too long")


def a_provider_that_comes_back_leaves_a_measurement_and_the_evidence_of_waiting(ran: Ran) -> None:
    trial = ran.trials["recovers"]
    assert (trial.outcome, trial.error_class) == (Outcome.PASSED, None)
    assert trial.wait is not None
    assert (trial.wait.retries, trial.wait.refused, trial.wait.at_end) == (2, {"429": 2}, 0)
    assert trial.wait.backoff_sec
    shown = ran.lab.tbench("show", trial.name).stdout
    assert "  provider  refused 2 x 429; 2 retries, " in shown


def the_batch_measures_only_what_the_profile_did(ran: Ran) -> None:
    counts = Counter(trial.outcome for trial in ran.trials.values())
    assert counts == {Outcome.ERRORED: 6, Outcome.FAILED: 2, Outcome.PASSED: 1}


def a_hook_that_hangs_is_given_up_and_named(ran: Ran) -> None:
    assert "passed, but hook_timed_out: its hook PreToolUse ran out of time" in " ".join(ran.said.split())


@pytest.mark.long
def test_whose_fault_it_is_when_a_provider_fails(ran: Ran) -> None:
    """One test of all: each worker that took one of several would run the batch anew."""
    for task in OUTAGES:
        an_outage_until_the_agents_time_is_over_is_the_providers(ran, task)
    a_provider_that_hangs_from_the_start_is_the_reason(ran)
    what_the_agent_prints_or_writes_into_its_log_buys_nothing(ran)
    used_up_credit_and_context_are_told_by_their_words(ran)
    a_provider_that_comes_back_leaves_a_measurement_and_the_evidence_of_waiting(ran)
    a_hook_that_hangs_is_given_up_and_named(ran)
    the_batch_measures_only_what_the_profile_did(ran)
