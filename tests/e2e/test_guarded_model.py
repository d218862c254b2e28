"""A real model, however small, drives a guarded workflow from end to end: its score does not matter, its robustness does.

TBENCH_TEST_MODEL=openai/small TBENCH_TEST_BASE_URL=http://127.0.0.1:8080/v1 pytest --run-model tests/e2e/test_guarded_model.py
"""

import json
import os
from typing import Any

import pytest

from support.tasks import write_repository_task
from terminalbench.workflow.trace import TraceEventKind, WorkflowEnding, read_trace

WORKFLOW = """
name = "small"
[steps.analysis]
generator = "analysis"
guards = ["analysis"]
rmax = 1
prompt = "Find the cause of the bug in the file that is shown. Name only files of the repository map."
[steps.patch]
generator = "patch"
guards = ["patch", "lint"]
requires = ["analysis"]
rmax = 2
retry_temperature = 0.6
patience = 2
e_max = 1
escalate = ["analysis"]
prompt = "Mend the bug with one edit: `search` is copied from the file, `replace` is the mended text."
"""
PROFILE = """
[profiles.small]
agent = "guarded"
workflow = "small.toml"
model = "{model}"
options = {{ context_tokens = 2000, tries = 3{base_url} }}
"""


@pytest.mark.model
@pytest.mark.timeout(3600)
def test_a_real_model_drives_an_arm_from_end_to_end(lab: Any) -> None:
    model, base_url = os.environ.get("TBENCH_TEST_MODEL"), os.environ.get("TBENCH_TEST_BASE_URL")
    if not model:
        pytest.fail("name the model: TBENCH_TEST_MODEL=openai/NAME, and TBENCH_TEST_BASE_URL where its server is")
    write_repository_task(lab.root / "tasks" / "calc", agent_sec=3000.0)
    lab.project.write("small.toml", WORKFLOW)
    told = f', base_url = "{base_url}"' if base_url else ""
    ran = lab.tbench("run", lab.experiment(PROFILE.format(model=model, base_url=told), tasks=("calc",)))
    [ended] = [event for event in lab.events() if event.kind == "trial_ended"]
    assert ended.outcome in ("passed", "failed", "timed_out"), ran.stdout + ran.stderr
    [result] = lab.batch().runs.glob("*/*/result.json")
    trace = read_trace(result.parent)
    assert not trace.bad
    assert trace.records[0].kind is TraceEventKind.RUN_START
    end = trace.records[-1]
    assert end.ending in (WorkflowEnding.DONE, WorkflowEnding.EXHAUSTED, WorkflowEnding.FATAL, WorkflowEnding.TIME)
    attempts = [event for event in trace.records if event.kind is TraceEventKind.ATTEMPT]
    assert attempts
    served = [event.usage.output_tokens or 0 for event in attempts if event.usage is not None]
    assert len(served) == len(attempts)
    assert all(served)
    used = json.loads(result.read_text())["agent_result"]
    assert used["n_output_tokens"] == sum(served)
    print(
        f"{model}: {ended.outcome}, {end.ending} after {len(attempts)} attempts, {used['n_output_tokens']} tokens out"
    )
