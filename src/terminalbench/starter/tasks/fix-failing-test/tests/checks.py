"""Runs the module in a child process on visible and hidden cases and compares with what the docstrings say."""

import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

PYTHON = sys.executable
CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
import durations
answers = []
for name, value in json.load(sys.stdin):
    try:
        answers.append(getattr(durations, name)(value))
    except ValueError:
        answers.append("ValueError")
    except Exception as error:
        answers.append("wrong exception " + repr(error))
print("ANSWERS " + json.dumps(answers))
"""
SIZES = {"d": 86400, "h": 3600, "m": 60, "s": 1}
BAD = [
    "",
    " ",
    "s",
    "5",
    "5x",
    "1h30",
    "h1",
    "30m1h",
    "1h1h",
    "1s2m",
    "-5s",
    "1.5h",
    "1h,30m",
    "1h-30m",
    "5s!",
    "x5s",
    "1 h",
    "1d2",
    "+3s",
    "0x10s",
    "1h 30",
    "\u0663s",
]
GOOD = {
    "0s": 0,
    "0d0h0m0s": 0,
    "1m": 60,
    "90m": 5400,
    "1d": 86400,
    "1d1s": 86401,
    " 2h ": 7200,
    "1d 2h  3m 4s": 93784,
    "007s": 7,
    "100d": 8640000,
    "2d4h": 187200,
    "1h 30m": 5400,
}


def expected_text(seconds):
    parts = []
    for unit, size in SIZES.items():
        count, seconds = divmod(seconds, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def ask(questions):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy("/app/durations.py", folder)
        child = subprocess.run(
            [PYTHON, "-I", "-c", CHILD, folder],
            preexec_fn=CONFINE,
            input=json.dumps(questions),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    lines = [line for line in child.stdout.splitlines() if line.startswith("ANSWERS ")]
    if len(lines) != 1:
        raise AssertionError(f"the module did not answer: {child.stderr[-2000:]}")
    return json.loads(lines[0].removeprefix("ANSWERS "))


class Durations(unittest.TestCase):
    def test_parse_reads_what_is_valid(self):
        answers = ask([["parse", text] for text in GOOD])
        self.assertEqual(dict(zip(GOOD, answers)), GOOD)

    def test_parse_refuses_what_is_not(self):
        answers = ask([["parse", text] for text in BAD])
        self.assertEqual(dict(zip(BAD, answers)), dict.fromkeys(BAD, "ValueError"))

    def test_render(self):
        numbers = [*range(130), *(k * 3571 for k in range(400)), 3600, 86399, 86400, 86401, 10**7]
        answers = ask([["render", n] for n in numbers])
        wrong = [(n, answer) for n, answer in zip(numbers, answers) if answer != expected_text(n)]
        self.assertEqual(wrong[:10], [])
        self.assertEqual(ask([["render", -1], ["render", -90000]]), ["ValueError"] * 2)

    def test_round_trip(self):
        numbers = [k * 7919 for k in range(300)]
        answers = ask([["parse", expected_text(n)] for n in numbers])
        self.assertEqual([pair for pair in zip(numbers, answers) if pair[0] != pair[1]][:10], [])

    def test_the_visible_tests_pass_and_are_as_they_were(self):
        pristine = Path("/tests/visible_tests.py")
        self.assertEqual(Path("/app/test_durations.py").read_bytes(), pristine.read_bytes())
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy("/app/durations.py", folder)
            shutil.copy(pristine, Path(folder, "test_durations.py"))
            child = subprocess.run(
                [PYTHON, "-m", "unittest", "-v"], cwd=folder, preexec_fn=CONFINE, capture_output=True, text=True, timeout=30, check=False
            )
        self.assertEqual(child.returncode, 0, child.stderr)
        self.assertIn("Ran 4 tests", child.stderr)


if __name__ == "__main__":
    unittest.main()
