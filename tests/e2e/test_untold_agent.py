"""Agents that tell neither tokens nor calls: their failures are explained, and their regressions fail a build."""

import json
import re
from pathlib import Path

from support.tasks import SOLVE, write_task

TASKS = tuple(f"t{number}" for number in range(6))
"""The fewest that decide a comparison."""
CHECK = """#!/bin/bash
cat > /tmp/check.py <<'END'
import unittest
class Answer(unittest.TestCase):
    def test_answer(self):
        self.assertEqual(open("/app/answer.txt").read().strip(), "forty-two")
unittest.main()
END
if python3 /tmp/check.py; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
MODEL = 'model = "openai/gpt-5"\nenv = ["OPENAI_API_KEY"]\n'
COMMAND = """
[profiles.{name}]
agent = "command"
{model}
[profiles.{name}.command]
run = ["{{files}}/{name}.sh", "{{instruction}}"]
files = ["{name}.sh"]
"""
KEY = "sk-test-0123456789abcdef"
SCRIPTS = {
    "good": f"echo thinking\n{SOLVE}\necho wrote it",
    "crash": "echo starting\necho $OPENAI_API_KEY >&2\nprintf 'no tool \\033[31mcalled\\033[2J fizz\\n' >&2\nexit 7",
    "traceback": "echo 'ModuleNotFoundError: No module named foo' >&2\nexit 1",
    "idle": "sleep 1.2",  # quicker, its results would be doubtful
    "wrong": "echo thinking\necho forty-three > /app/answer.txt\necho wrote it",
}
FORTY = "echo I could not; echo forty > /app/answer.txt"
OWN = """
from harbor.agents.base import BaseAgent
from harbor.agents.installed.base import BaseInstalledAgent


class Hosted(BaseAgent):
    COMMAND = {command!r}

    @staticmethod
    def name():
        return "hosted"

    def version(self):
        return {version!r}

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        await environment.exec(self.COMMAND)


class Installed(BaseInstalledAgent):
    COMMAND = {command!r}

    @staticmethod
    def name():
        return "installed"

    def version(self):
        return {version!r}

    async def install(self, environment):
        pass

    async def run(self, instruction, environment, context):
        await self.exec_as_agent(environment, "(" + self.COMMAND + ") 2>&1 | tee /logs/agent/mine.log")

    def populate_context_post_run(self, context):
        pass
"""


ENDS = {"Hosted": " after 1 command", "Installed": '; mine.log ends "I could not"'}
"""What is said of the end of each class."""


def commands(lab, *names: str, tasks: tuple[str, ...] = TASKS) -> Path:
    """An experiment of these programs, at tasks whose verifier names the check that failed."""
    for task in tasks:
        write_task(lab.root / "tasks" / task)
        (lab.root / "tasks" / task / "tests" / "test.sh").write_text(CHECK)
    for name in names:
        (lab.root / f"{name}.sh").write_text(f"#!/bin/bash\n{SCRIPTS[name]}\n")
        (lab.root / f"{name}.sh").chmod(0o755)
    lab.env["OPENAI_API_KEY"] = KEY
    return lab.experiment("".join(COMMAND.format(name=name, model=MODEL) for name in names), tasks=tasks)


def flat(text: str) -> str:
    return " ".join(text.split())


def assert_worse(lab, new: str, old: str, *batches: object) -> None:
    verdict = lab.tbench("compare", *batches, "--compare", new, old, "--accept", "contrasts", "--fail-if", "worse")
    assert verdict.returncode == 100, verdict.stdout + verdict.stderr
    assert f"{new} vs {old} is worse" in verdict.stderr


def test_programs_that_tell_no_tokens_and_pass_none_of_what_one_passed_fail_the_build(lab) -> None:
    """What other failures of programs are told as, one task shows below."""
    ran = lab.tbench("run", commands(lab, "good", "wrong"))
    assert ran.returncode == 0, ran.stderr
    assert "Doubtful" not in ran.stdout
    assert_worse(lab, "wrong", "good", lab.batch().folder)


def test_classes_that_report_nothing_and_pass_none_of_what_they_passed_fail_the_build(lab) -> None:
    commands(lab)
    profile = f'[profiles.Hosted]\nagent = "own:Hosted"\n{MODEL}'
    file = lab.experiment(profile, tasks=TASKS)
    for version, command in (("1", f"{SOLVE}; echo done"), ("2", FORTY)):
        lab.project.write("own.py", OWN.format(command=command, version=version))
        ran = lab.tbench("run", file)
        assert ran.returncode == 0, ran.stderr
        assert "Doubtful" not in ran.stdout
    assert_worse(lab, "Hosted@1", "Hosted@0", "s/0", "s/1")
    said = flat(lab.tbench("errors", "s/1").stdout)
    assert "6 wrong_answer [Hosted 6]" in said
    assert "failed: AssertionError: 'forty' != 'forty-two'" in said


def test_failures_are_explained_by_the_exit_code_the_last_words_and_the_failing_check(lab) -> None:
    file = commands(lab, "crash", "idle", "wrong", "traceback", tasks=("t0",))
    lab.project.write("own.py", OWN.format(command=FORTY, version="1"))
    file.write_text(file.read_text() + "".join(f'[profiles.{kind}]\nagent = "own:{kind}"\n{MODEL}' for kind in ENDS))
    ran = lab.tbench("run", file)
    assert ran.returncode == 0, ran.stderr
    assert "Doubtful" not in ran.stdout
    assert {outcome for found in lab.outcomes().values() for outcome in found} == {"failed"}, "all are measured"
    check = "test_answer failed: AssertionError: 'forty-three' != 'forty-two'"
    reasons = {
        "crash": ("agent_crash", "exit 7: no tool called␛[2J fizz"),
        "idle": ("no_output", "it ended with exit 0; it printed nothing; test_answer failed: FileNotFoundError"),
        "wrong": ("wrong_answer", f'it ended with exit 0; stdout.txt ends "wrote it"; {check}'),
    }
    batch = lab.batch().folder
    told = lab.tbench("errors", batch)
    found = json.loads(lab.tbench("errors", batch, "--json").stdout)
    classes = {group["what"]: {trial["profile"] for trial in group["trials"]} for group in found["classes"]}
    assert set(classes) == {name for name, _ in reasons.values()}
    for profile, (name, reason) in reasons.items():
        assert profile in classes[name]
        assert reason in flat(told.stdout), told.stdout
        shown = lab.tbench("show", batch, profile, "t0").stdout
        assert reason in flat(shown), shown
        assert f"why {name}: " in flat(shown) or f"error {name} " in flat(shown)
        assert KEY not in shown + told.stdout
        assert "\x1b" not in shown + told.stdout
    for kind, end in ENDS.items():
        assert f"it ended without an error{end}" in flat(lab.tbench("show", batch, kind, "t0").stdout)
    assert "stdout.txt says thinking wrote it" in flat(lab.tbench("show", batch, "wrong", "t0").stdout)
    ran = lab.tbench("analyze", batch)
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"wrong\s+wrong_answer\s+1", ran.stdout), ran.stdout
    assert not re.search(r"missing: .*behaviour", ran.stdout), ran.stdout


def test_a_gate_that_is_undecided_says_why_and_passes_only_where_that_is_allowed(lab) -> None:
    ran = lab.tbench("run", commands(lab, "good", "wrong", tasks=("t0", "t1")))
    assert ran.returncode == 0, ran.stderr
    gate = ("compare", lab.batch().folder, "--fail-if", "worse")
    held = lab.tbench(*gate)
    assert held.returncode == 3
    assert "wrong vs good: inconclusive" in held.stderr
    assert "--allow-undecided lets it pass" in held.stderr
    allowed = lab.tbench(*gate, "--allow-undecided")
    assert allowed.returncode == 0
    assert "is undecided; --allow-undecided accepts this" in flat(allowed.stdout)
    assert lab.tbench("compare", lab.batch().folder, "--allow-undecided").returncode == 2
