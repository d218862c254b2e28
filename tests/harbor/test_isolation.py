"""Which tests no code of the work can reach: those that start isolated Python on plain files of their own."""

from pathlib import Path

import pytest
from jobkit import run_trial_dir, scripted, write_task

from terminalbench.harbor.isolation import isolated
from terminalbench.harbor.read.suspicion import read_safety
from terminalbench.starter import TASKS_DIR, task_ids

SCRIPT = """#!/bin/bash
# checks
export PATH=/usr/bin:/bin LC_ALL=C
reward=0
if timeout -k 5 90 python3 -I -B /tests/checks.py 2>&1; then reward=1; fi
rm -f /logs/verifier/reward.txt
echo "$reward" > /logs/verifier/reward.txt
"""
CHECKS = """import runpy, os, subprocess, unittest
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"]
def answer(): return subprocess.run(COMMAND, capture_output=True, text=True).stdout
class Checks(unittest.TestCase):
    def test_answer(self): self.assertEqual(answer(), "42\\n")
unittest.main()
"""


def test_the_starter_tasks_are() -> None:
    tests = [TASKS_DIR / name / "tests" for name in task_ids()]
    assert [folder for folder in tests if not isolated([folder], folder / "test.sh")] == []


@pytest.mark.parametrize(
    ("script", "checks"),
    [
        ("python3 -I -B /tests/checks.py", "python3 -B /tests/checks.py"),
        ("/tests/checks.py", "/app/checks.py"),
        ("/tests/checks.py", "-c 'import work'"),
        ("-I -B /tests/checks.py", "-I -m pytest /tests"),
        ("reward=0", "source /app/env"),
        ("reward=0", "cd /app; make"),
        ("reward=0", 'reward="$(/app/run)"'),
        ("reward=0", "export LD_PRELOAD=/app/lib.so"),
        ("PATH=", "PATH=/app/bin:"),
        ("; then", " | /app/filter; then"),
        ("python3 -I -B /tests/checks.py", "true"),
        ("import runpy", "import pickle, runpy"),
        ("import runpy", "import sys; sys.path.insert(0, '/app'); import runpy"),
        ("import runpy", "from sys import path; import runpy"),
        ("import runpy", "import work, runpy"),
        ("import runpy", "from . import work\nimport runpy"),
        ("unittest.main()", "compile('import work', '', 'exec')"),
        ("unittest.main()", "exec(open('/app/work.py').read())"),
        ("unittest.main()", "__import__('work')"),
        ("unittest.main()", "unittest.defaultTestLoader.discover('/app')"),
        ("unittest.main()", "runpy.run_path('/app/work.py')"),
        ("unittest.main()", "import importlib.util\nimportlib.util.spec_from_file_location('a', '/app/work.py')"),
        ("unittest.main()", "import importlib.util\nimportlib.util.spec_from_file_location('a', '/tests/more.py')"),
        ("unittest.main()", "unittest.main("),
    ],
)
def test_whatever_else_they_do_they_are_not(tmp_path: Path, script: str, checks: str) -> None:
    """The second text in the place of the first, in the script or in what it starts."""
    (tmp_path / "test.sh").write_text(SCRIPT)
    (tmp_path / "checks.py").write_text(CHECKS)
    (tmp_path / "more.py").write_text("import work\n")
    assert isolated([tmp_path], tmp_path / "test.sh")
    for path in (tmp_path / "test.sh", tmp_path / "checks.py"):
        path.write_text(path.read_text().replace(script, checks))
    assert not isolated([tmp_path], tmp_path / "test.sh")


@pytest.mark.parametrize(
    ("command", "repeated"),
    [('["/usr/bin/python3", "/app/run.py"]', None), ('["bash", "/app/run.sh"]', False)],
    ids=["confined", "a shell, which may read the tests"],
)
def test_they_run_once_unless_the_work_could_read_them(tmp_path: Path, command: str, repeated: bool | None) -> None:
    task = write_task(tmp_path / "isolated", test_sh=SCRIPT)
    (task / "tests/checks.py").write_text(CHECKS.replace("COMMAND", command))
    work = "echo 'print(42)' > /app/run.py; echo 'echo 42' > /app/run.sh"
    note = read_safety(run_trial_dir(tmp_path, task, scripted(work)))
    assert note is not None
    assert (note.passed_impossible, note.programs_confined, note.tampering) == (repeated, 1, [])
