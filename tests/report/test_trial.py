"""`tbench show`: one trial, its steps, and nothing that acts on the terminal."""

import json
from pathlib import Path

import pytest

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.records.trial import Usage
from terminalbench.report.trial import usage_lines
from terminalbench.text.doubts import doubt

HOSTILE = "red \x1b[31m bell \x07 title \x1b]0;owned\x07 \u202e"


def write_trajectory(folder: Path, steps: list[dict]) -> None:
    (folder / "agent").mkdir(exist_ok=True)
    document = {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": {"name": "x", "version": "1"},
        "steps": steps,
    }
    (folder / "agent" / "trajectory.json").write_text(json.dumps(document))


def call(number: int, command: str, output: str, code: int | None = None) -> dict:
    extra = {} if code is None else {"extra": {"exit_code": code}}
    return {
        "step_id": number,
        "source": "agent",
        "message": f"step {number}",
        "tool_calls": [{"tool_call_id": f"c{number}", "function_name": "Bash", "arguments": {"command": command}}],
        "observation": {"results": [{"source_call_id": f"c{number}", "content": output, **extra}]},
        "metrics": {"prompt_tokens": 1200, "completion_tokens": 34},
    }


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    made = allocate(tmp_path / "results", "s")
    make_plan(made, ("p",), "ab", 1)
    folder = make_trial(made, "a__1")
    steps = [{"step_id": 1, "source": "user", "message": "Fix the build.\nThen stop."}]
    steps += [
        call(n, f"make -j{n} && echo {HOSTILE}", f"line one {HOSTILE}\n" + "more\n" * 60, n % 2) for n in range(2, 61)
    ]
    write_trajectory(folder, steps)
    (folder / "verifier").mkdir()
    (folder / "verifier" / "test-stdout.txt").write_bytes(b"\xff\x1b[2Jok\n" + b"passed\n" * 40)
    return made


def test_a_trial_is_told_from_instruction_to_verifier(tbench, batch: Batch) -> None:
    out = tbench("show", "a__1", "--results", batch.folder.parent.parent).out
    assert (
        out.index("instruction") < out.index("Fix the build.") < out.index("steps     60") < out.index("verifier said")
    )
    assert "#2 agent  (1,200 in, 34 out)" in out
    assert "> Bash make -j2" in out
    assert "exit 1" in out
    assert "... 30 steps left out: --steps 6-35 or --full shows them" in out
    assert "(57 more lines)" in out
    assert not set("\x1b\x07\u202e") & set(out)
    assert len(out.splitlines()) < 400


def test_steps_are_picked_and_full_cuts_nothing(tbench, batch: Batch) -> None:
    root = batch.folder.parent.parent
    some = tbench("show", "a__1", "--steps", "10-11", "--results", root).out
    assert "#10 agent" in some
    assert "#11 agent" in some
    assert "#12 agent" not in some
    full = tbench("show", "a__1", "--full", "--results", root).out
    assert full.count("#") >= 60
    assert "more lines" not in full
    assert not set("\x1b\x07\u202e") & set(full)
    assert "none from 90 to 95: they are 1 to 60" in tbench("show", "a__1", "--steps", "90-95", "--results", root).out


@pytest.mark.parametrize("wrong", ["x", "5-2", "1-", "-"])
def test_wrong_steps_are_refused(tbench, batch: Batch, wrong: str) -> None:
    ran = tbench("show", "a__1", f"--steps={wrong}", "--results", batch.folder.parent.parent)
    assert ran.code == 2
    assert "names no steps" in ran.err


def test_without_a_trajectory_the_task_on_disk_tells(tbench, batch: Batch, tmp_path: Path) -> None:
    folder = make_trial(batch, "b__1", reward=0.0)
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "instruction.md").write_text("Count the words.\n")
    (folder / "config.json").write_text(json.dumps({"task": {"path": str(tmp_path / "task")}}))
    out = tbench("show", "b__1", "--results", batch.folder.parent.parent).out
    assert "Count the words." in out
    assert "steps" not in out


def test_a_broken_trajectory_is_named(tbench, batch: Batch) -> None:
    folder = make_trial(batch, "b__1", reward=0.0)
    (folder / "agent").mkdir()
    (folder / "agent" / "trajectory.json").write_text("{")
    (folder / "verifier").mkdir()
    (folder / "verifier" / "test-stdout.txt").symlink_to("/etc/passwd")
    out = tbench("show", "b__1", "--results", batch.folder.parent.parent).out
    assert "agent/trajectory.json: is no JSON" in out
    assert "root:" not in out


def test_a_trial_that_was_held_back_used_nothing(tbench, batch: Batch) -> None:
    folder = make_trial(batch, "b__1")
    config = json.loads((folder / "result.json").read_text())["config"]
    (folder / "result.json").unlink()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "held.json").write_text('{"reason": "the budget is used up", "kind": "budget"}')
    out = tbench("show", "b__1", "--results", batch.folder.parent.parent).out
    assert "  state     held: the budget is used up\n  usage     none: it never started\n" in out


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        (Usage(cost_usd=0.25, source="harbor", cost_source="harbor"), "tokens unknown; $0.25 (harbor)"),
        (Usage(cost_usd=0.25), "tokens unknown; $0.25"),
        (Usage(all_tokens=7), "7 tokens in all; cost unknown"),
        (Usage(input_tokens=7, source="stream"), "input 7 tokens from stream; cost unknown"),
    ],
)
def test_what_is_unknown_comes_from_nowhere(usage: Usage, said: str) -> None:
    assert usage_lines(usage) == [f"  usage     {said}"]


def test_a_doubtful_result_says_why_and_what_to_do(tbench, batch: Batch) -> None:
    folder = make_trial(batch, "b__2")
    (folder / "safety.json").write_text(json.dumps({"mode": "shared", "rewards_found": ["/logs/verifier/reward.txt"]}))
    out = " ".join(tbench("show", "b__2", "--results", batch.folder.parent.parent).out.split())
    assert f"doubtful {doubt('tampering:reward_file')}" in out


def test_the_output_of_an_agent_that_failed_is_shown_where_no_calls_are_told(tbench, batch: Batch) -> None:
    folder = make_trial(batch, "b__2", reward=0.0)
    (folder / "agent").mkdir(exist_ok=True)
    (folder / "agent" / "mine.log").write_text(f"{HOSTILE}\n" + "long " * 200 + "\n\n")
    (folder / "agent" / "link.log").symlink_to("/etc/passwd")
    out = tbench("show", "b__2", "--results", batch.folder.parent.parent).out
    assert "root:" not in out
    assert "\x1b" not in out
    flat = " ".join(out.split())
    assert 'why wrong_answer: it ended without an error; mine.log ends "long long' in flat
    assert "…" in flat.partition("mine.log ends")[2][:200]
    assert "mine.log says" in out
