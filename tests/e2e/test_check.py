"""`tbench check`: tasks that cannot be trusted are found, and can be left out."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from test_run import LIMIT_SEC, wait_for

from support.tasks import SOLVE, TEST_SH, write_task

BOTH = '[profiles.oracle]\nagent = "oracle"\n'


def test_a_task_without_a_right_solution_or_solved_by_nothing_is_found(lab) -> None:
    write_task(lab.root / "tasks" / "unsolved", solve="true")
    with (lab.root / "tasks" / "a" / "task.toml").open("a") as stream:
        stream.write('[verifier.env]\nWORD = "${LAB_WORD}"\n')  # the trusted agents get it as every profile does
    lab.project.write("experiments/.env", "LAB_WORD=x\n")
    (lab.root / "tasks" / "a" / "tests" / "test.sh").write_text(f'[ "$WORD" = x ] || exit 1\n{TEST_SH}')
    free = write_task(lab.root / "tasks" / "free")
    (free / "environment" / "Dockerfile").write_text(f"FROM debian:bookworm-slim\nWORKDIR /app\nRUN {SOLVE}\n")
    system = write_task(lab.root / "tasks" / "system", solve=f"{SOLVE}; echo > /usr/bin/installed")
    (system / "tests" / "test.sh").write_text(f"#!/bin/bash\n[ -e /usr/bin/installed ] || rm -f /app/*\n{TEST_SH}")
    file = lab.experiment(BOTH, tasks=("a", "unsolved", "free", "system"))
    ran = lab.tbench("check", file, "--quarantine", "--json")
    assert ran.returncode == 1
    assert not (lab.root / "results" / "s").exists()
    assert not list((lab.root / "results" / ".check").glob("s/*/*.errors.log"))
    said = {t["task"]["id"]: t["said"] for t in json.loads(ran.stdout)["tasks"]}
    assert said["a"] == []
    problems = {t["task"]["id"]: t["problem"] for t in json.loads(ran.stdout)["tasks"]}
    assert problems["a"] is None
    assert "its own solution does not pass" in problems["unsolved"]
    assert "an agent that does nothing does not fail" in problems["free"]
    assert 'set verifier_system = "agent" in [metadata] of its task.toml' in problems["system"]

    kept = (file.parent / "exp.quarantine.toml").read_text()
    assert 'id = "unsolved"' in kept
    assert "quarantined: its own solution does not pass" in lab.tbench("plan", file).stdout
    ran = lab.tbench("run", file)
    assert ran.returncode == 3
    assert lab.outcomes() == {
        ("oracle", "a"): ["passed"],
        ("oracle", "unsolved"): ["not_run"],
        ("oracle", "free"): ["not_run"],
        ("oracle", "system"): ["not_run"],
    }
    assert lab.tbench("check", file, "--quarantine", "--tasks", "unsolved", "free").returncode == 1
    assert (file.parent / "exp.quarantine.toml").read_text() == kept


def test_a_quarantined_task_is_released_once_it_is_in_order(lab) -> None:
    file = lab.experiment(BOTH, tasks=("a", "b"))
    held = file.parent / "exp.quarantine.toml"
    entry = '[[task]]\nid = "{}"\ndataset = "tasks"\nreason = "{}"\n'
    held.write_text(
        "# mine\n" + entry.format("a", "was broken") + entry.format("b", "is broken") + entry.format("z", "gone")
    )
    said = lab.tbench("validate", file).stdout
    assert "note: a is quarantined and will not run: was broken" in said
    assert 'note: exp.quarantine.toml names "z" of tasks, which is not a task of this experiment' in said
    planned = lab.tbench("plan", file).stdout
    assert "= 2, 2 of them left out" in planned
    assert "(tbench check experiments/exp.toml --release checks quarantined tasks again)" in planned
    (lab.root / "tasks" / "b" / "solution" / "solve.sh").write_text("true\n")
    ran = lab.tbench("check", file, "--release")
    assert ran.returncode == 1
    assert "released from experiments/exp.quarantine.toml: a\n" in ran.stderr
    assert "still quarantined: b" in ran.stderr
    kept = held.read_text()
    assert kept.startswith("# mine\n")
    assert 'id = "a"' not in kept
    assert 'reason = "is broken"' in kept
    assert 'id = "z"' in kept
    held.unlink()
    ran = lab.tbench("check", file, "--release")
    assert ran.returncode == 2
    assert "no task is quarantined" in ran.stderr


def test_a_wrong_quarantine_file_is_a_user_error(lab) -> None:
    file = lab.experiment(BOTH)
    (file.parent / "exp.quarantine.toml").write_text('[[task]]\nid = "a"\nresaon = "x"\n')
    ran = lab.tbench("validate", file)
    assert ran.returncode == 2
    assert 'exp.quarantine.toml: task[0].resaon: unknown key (did you mean "reason"?)' in ran.stderr


def test_tasks_are_proven_even_when_no_profile_can_run(lab) -> None:
    ran = lab.tbench("check", lab.experiment('[profiles.k]\nno_mcp = true\nmodel = "anthropic/x"\n', tasks=("a",)))
    assert ran.returncode == 1
    assert "a     passed  failed  ok" in ran.stdout
    assert "ANTHROPIC_API_KEY" in ran.stdout


def command_lines() -> Iterator[list[str]]:
    """The words of every process of this machine."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            yield file.read_text(errors="replace").rstrip("\0").split("\0")


def test_an_interrupted_check_says_so_and_leaves_no_error_log(lab) -> None:
    nap = f"3600.{os.getpid()}"  # found among the processes of this machine: the solution is at work
    (lab.root / "tasks" / "a" / "solution" / "solve.sh").write_text(f"#!/bin/bash\nsleep {nap}\n")
    process = lab.start("check", lab.experiment(BOTH, tasks=("a",)))
    wait_for(lambda: any(words == ["sleep", nap] for words in command_lines()), process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 130, out + err
    assert out.startswith("interrupted: only the finished checks are shown\n")
    assert "not checked" in out
    assert "problem" not in out
    assert out.endswith("kept in results/.check/s/0\n")
    assert "Traceback" not in err
    assert not list((lab.root / "results" / ".check").rglob("*.errors.log"))
