"""`tbench show`: one trial, its steps, and nothing that acts on the terminal."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from support.results import make_plan, make_trial
from terminalbench.analytics import atif, long_trajectory
from terminalbench.analytics.findings.deciding import story_of_failure
from terminalbench.analytics.findings.failure import FailureAnalyzer
from terminalbench.analytics.findings.trial_files import TrialFiles
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.files import read_plain
from terminalbench.index.queries import trial_rows
from terminalbench.index.scan import scan_batch
from terminalbench.records.trial import Usage
from terminalbench.report import trial as report_trial
from terminalbench.report.trial import ShownSteps, trial_text, usage_lines
from terminalbench.secrets.values import Secrets
from terminalbench.text.reasons import doubt

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
    tool, arguments = "Bash", {"command": command}
    if command.startswith("edit "):
        tool, arguments = "Edit", {"file_path": command[5:], "new_string": f"{number} 'x'"}
    return {
        "step_id": number,
        "source": "agent",
        "message": f"step {number}",
        "tool_calls": [{"tool_call_id": f"c{number}", "function_name": tool, "arguments": arguments}],
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
    assert "is not a range of steps" in ran.err


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
    assert "agent/trajectory.json: is not JSON" in out
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
    note = {"mode": "shared", "rewards_found": ["/logs/verifier/reward.txt"], "not_repeated": "no_time_left"}
    (folder / "safety.json").write_text(json.dumps(note))
    out = " ".join(tbench("show", "b__2", "--results", batch.folder.parent.parent).out.split())
    assert "tests passed, and not run once more: too little of their limit was left" in out
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


def random_steps(seed: int) -> list[dict]:
    """Steps of a trial, with what the rules of a failure look for, and a secret on both sides of a step's end."""
    chance = random.Random(seed)
    commands = ("ls src", "cat notes.txt", "sed -i s/a/b/ lib/x.py", "echo 1 > out/{n}.py", "pytest -q", "make all",
                "edit lib/w.py", "edit out/{n}.py", "ls 2>&1 | tee out/{n}.txt", "sed -n 1,9p lib/z.py")  # fmt: skip
    usual = chance.sample(commands, chance.randint(1, 6))
    steps = [call(n, chance.choice(usual).format(n=n), chance.choice(SAID), n % 3) for n in range(1, 90)]
    for n in range(chance.choice((0, 0, 3)), 89, 17):
        steps[n] = {"step_id": n + 1, "source": "user", "message": f"Fix lib/{chance.choice('xyz')}.py: {SECRET}"}
    steps[chance.randrange(89)] |= {"is_copied_context": True}
    steps[chance.randrange(89)] |= {"timestamp": "2026-01-01T00:00:00Z"}
    return steps


SECRET = "b7Hq2-Zk81vTnw0s"
SAID = ("3 passed in 0.1s", "1 failed, 2 passed in 0.1s", "", f'{{"step_id": 1}} {SECRET}')


def test_a_long_trajectory_is_read_once_and_told_as_a_short_one(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    read, concealed = [], []
    real_open, real_conceal = report_trial.open_plain, Secrets.conceal_bytes
    monkeypatch.setattr(long_trajectory, "_PIECE", 3000)
    monkeypatch.setattr(long_trajectory, "_TOGETHER", 10)
    monkeypatch.setattr(report_trial, "open_plain", lambda path: (read.append(path), real_open(path))[1])
    monkeypatch.setattr(atif, "read_plain", lambda path, limit: (read.append(path), read_plain(path, limit))[1])
    monkeypatch.setattr(
        Secrets, "conceal_bytes", lambda self, data: (concealed.append(len(data)), real_conceal(self, data))[1]
    )
    folder = make_trial(batch, "b__1", reward=0.0)
    write_trajectory(folder, random_steps(0))
    scan_batch(batch)
    whys = set()
    for seed in range(40):
        steps = random_steps(seed)
        write_trajectory(folder, steps)
        row = next(row for row in trial_rows(batch.folder.parent.parent, "s/0") if row.name == "b__1")
        for only in (None, (40, 50), (500, 600)):
            shown = ShownSteps(only, secrets=Secrets.of([SECRET]))
            texts = []
            for limit in (1 << 30, 0):
                monkeypatch.setattr(long_trajectory, "LONG", limit)
                read.clear()
                concealed.clear()
                texts.append(trial_text(folder, "s/0", row, shown))
            assert texts[0] == texts[1], seed
            assert SECRET not in texts[1]
            assert [path.name for path in read] == ["trajectory.json"], "once, and never as a whole"
            assert sum(concealed) < (folder / "agent" / "trajectory.json").stat().st_size * 0.7
        whys.add(texts[1].partition("  why       ")[2].partition(":")[0])
    assert len(whys) >= 4, whys


def test_the_findings_of_a_long_trial_are_those_of_all_its_steps(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the steps that show them, by which the deciding one is told."""
    monkeypatch.setattr(long_trajectory, "_PIECE", 3000)
    monkeypatch.setattr(long_trajectory, "LONG", 0)
    folder = make_trial(batch, "b__1", reward=0.0)
    write_trajectory(folder, random_steps(0))
    scan_batch(batch)
    row = next(row for row in trial_rows(batch.folder.parent.parent, "s/0") if row.name == "b__1")
    kinds = set()
    for seed in range(60):
        write_trajectory(folder, random_steps(seed))
        trial = TrialFiles.of(row, folder, batch.folder, Secrets.of([SECRET]))
        short = replace(trial, told=story_of_failure(trial))
        assert short.told is not None
        whole, found = (list(FailureAnalyzer().analyze(one, one.story.trajectory)) for one in (trial, short))
        assert found == whole, seed
        kinds.add(whole[0].value)
    assert len(kinds) >= 4, kinds
