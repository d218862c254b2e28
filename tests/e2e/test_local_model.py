"""Trials with a model that is a file, with neither a key nor a server of one's own. The model is tiny and random.

With a real one: TBENCH_TEST_GGUF=FILE.gguf pytest --run-model tests/e2e/test_local_model.py
"""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.aftermath import descendants
from support.pace import seconds
from support.tasks import write_repository_task
from support.tiny_gguf import tiny_gguf
from terminalbench.json_files import read_jsonl
from terminalbench.llm.local.gguf import file_digest, read_model_file
from terminalbench.llm.local.lease import ServerAccess, models_folder, running, window_of
from terminalbench.locks import start_ticks
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import NightEvent, NightEventKind
from terminalbench.records.trial import Outcome
from terminalbench.runner.executors.local import OWN_PROCESSES

MEASURED = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)
WORKFLOW = """
name = "small"
[steps.patch]
generator = "patch"
guards = ["patch"]
rmax = 1
prompt = "Mend the bug with one edit: `search` is copied from the file, `replace` is the mended text."
"""
PROFILES = """
[profiles.terminus]
agent = "terminus-2"
model = "local:{model}"
options = {{ max_turns = {turns}, suppress_max_turns_warning = true, llm_call_kwargs = {{ max_tokens = 64 }} }}
[profiles.shell]
agent = "ollama"
model = "local:{model}"
options = {{ max_turns = {turns}, answer_tokens = 64 }}
"""
GUARDED = """
[profiles.guarded]
agent = "guarded"
workflow = "small.toml"
model = "local:{model}"
options = {{ tries = 2, context_tokens = 2048 }}
"""


def place(model: Path) -> Path:
    """Where the server of a file is told of."""
    return models_folder() / f"{file_digest(model)[:16]}-{window_of(read_model_file(model), None)}"


def wait_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + seconds(120)
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def ended(served: ServerAccess) -> bool:
    return start_ticks(served.pid) != served.ticks


def tokens(lab: Any, entry: dict[str, Any]) -> tuple[int, int]:
    """What a trial has read and written."""
    told = json.loads((lab.batch().folder / entry["results_json"]).read_text())["agent_result"]
    return told["n_input_tokens"], told["n_output_tokens"]


@pytest.fixture
def tiny(lab: Any) -> Path:
    """A file, so a server, of this test's process; a model with other weights might answer in no form at all."""
    return tiny_gguf(lab.root / "tiny.gguf", context=16384, note=str(os.getpid()))


def test_each_way_to_ask_it_is_measured_free_and_leaves_nothing(lab: Any, tiny: Path) -> None:
    write_repository_task(lab.root / "tasks" / "calc")
    lab.project.write("small.toml", WORKFLOW)
    text = (PROFILES + GUARDED).format(model="tiny.gguf", turns=2)
    ran = lab.tbench("run", lab.experiment(text, tasks=("calc",)))
    outcomes = lab.outcomes()
    assert {key for key, _ in outcomes} == {"terminus", "shell", "guarded"}
    assert {one for found in outcomes.values() for one in found} == {"failed"}, ran.stdout + ran.stderr
    assert ran.stderr.count("is served at") + ran.stdout.count("is served at") == 1, "one server for all"
    assert "written, " in ran.stderr + ran.stdout, "how fast it was"
    for entry in lab.index():
        assert entry["cost_usd"] == 0
        assert all(tokens(lab, entry)), "what it took is counted, also of answers that are cut off"
    wait_for(lambda: running(place(tiny)) is None, "the server is left behind")


def test_a_run_that_is_killed_takes_its_server_with_it(lab: Any, tiny: Path) -> None:
    process = lab.start("run", lab.experiment(PROFILES.format(model="tiny.gguf", turns=2)))
    wait_for(lambda: process.poll() is not None or running(place(tiny)), "no server")
    served = running(place(tiny))
    assert served is not None
    process.kill()
    process.communicate()
    wait_for(lambda: ended(served), "the server is left behind")


def test_a_night_has_one_server_and_leaves_nothing_when_all_of_it_is_killed(lab: Any, tiny: Path) -> None:
    lab.env[OWN_PROCESSES] = "1"
    night = NightFolder(lab.root / "night")
    suite = lab.experiment('[profiles.none]\nagent = "nop"\n', tasks=("a",))
    model = f"local:{tiny},max_turns=1,answer_tokens=64"
    begun = ("--suite", suite, "--output", night.folder, "--model", model, "--iterations", "50", "--workers", "1")
    process = lab.start("overnight", *begun)

    def happened(kind: NightEventKind, cause: str | None = None) -> bool:
        known = read_jsonl(night.events_jsonl, NightEvent).records if night.events_jsonl.exists() else []
        return process.poll() is not None or any(one.kind is kind and one.cause == cause for one in known)

    wait_for(lambda: happened(NightEventKind.NOTE, "model file"), "the night itself has no server")
    first = running(place(tiny))
    wait_for(lambda: happened(NightEventKind.ITERATION_ENDED), "no iteration ended")
    second = running(place(tiny))
    assert first is not None, process.communicate()
    assert second is not None, process.communicate()
    assert first.pid == second.pid, "one server for all iterations"
    for pid in {process.pid, *descendants(process.pid)} - {second.pid}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
    wait_for(lambda: ended(second), "the server is left behind")
    kept = [path for path in lab.root.rglob("*") if path.is_file() and path != tiny]
    assert not any(second.token.encode() in path.read_bytes() for path in kept), "its token is told to no file"
    plans = [json.loads(batch.plan_json.read_text()) for batch in night.batches()]
    assert file_digest(tiny) in json.dumps(plans[0]["profiles"][0]["content"]), "the id holds the file"


@pytest.mark.model
@pytest.mark.timeout(7200)
def test_a_real_file_solves_or_fails_starter_tasks(lab: Any) -> None:
    given = os.environ.get("TBENCH_TEST_GGUF")
    if not given:
        pytest.fail("name the file: TBENCH_TEST_GGUF=FILE.gguf")
    model = Path(given).resolve()
    lab.project.write("small.toml", WORKFLOW)
    run = "parallel = 1\nagent_timeout_sec = 3000"  # a small machine takes minutes for a prompt
    text = PROFILES.format(model=model, turns=2) + GUARDED.format(model=model)
    file = lab.experiment(text, tasks=("fix-failing-test",), run=run)
    file.write_text(file.read_text().replace('default_dataset = "tasks"', 'default_dataset = "starter"'))
    ran = lab.tbench("run", file)
    assert {entry["agent_key"] for entry in lab.index()} == {"terminus", "shell", "guarded"}
    for entry in lab.index():
        assert entry["outcome"] in MEASURED, ran.stdout + ran.stderr
        assert entry["cost_usd"] == 0
        assert all(tokens(lab, entry))
        print(entry["agent_key"], entry["outcome"], *tokens(lab, entry), entry["elapsed_sec"])
    print(ran.stderr)
    wait_for(lambda: running(place(model)) is None, "the server is left behind")
