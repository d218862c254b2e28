"""The merge commit must have the right parents, and its pricing.py must do what both branches wanted."""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

MAIN, DISCOUNTS = "efb974c8dc968e5803ef02b62a3bc04c7771e2c7", "b76c5ec76c91f0463960e63441d11f3a65741066"
ENV = {
    "PATH": "/usr/bin:/bin:/usr/local/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}
CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
import pricing
answers = []
for args, kwargs in json.load(sys.stdin):
    try:
        answers.append(pricing.line(*args, **kwargs))
    except (KeyError, ValueError) as error:
        answers.append(type(error).__name__)
print("ANSWERS " + json.dumps(answers))
"""
CASES = [
    (["tea", 3, 250], {}, "tea x3 750 CHF"),
    (["tea", 2, 250], {"currency": "EUR"}, "tea x2 525 EUR"),
    (["tea", 2, 250], {"discount": 10}, "tea x2 450 CHF (-10%)"),
    (["nuts", 1, 199], {"discount": 33, "currency": "JPY"}, "nuts x1 21333 JPY (-33%)"),
    (["nuts", 3, 333], {"currency": "EUR", "discount": 15}, "nuts x3 892 EUR (-15%)"),
    (["pin", 1, 110], {"discount": 5, "currency": "EUR"}, "pin x1 110 EUR (-5%)"),
    (["free", 4, 100], {"discount": 100}, "free x4 0 CHF (-100%)"),
    (["full", 4, 100], {"discount": 0, "currency": "JPY"}, "full x4 64000 JPY"),
    (["x", 1, 1], {"discount": -1}, "ValueError"),
    (["x", 1, 1], {"discount": 100.5}, "ValueError"),
    (["x", 1, 1], {"currency": "XXX"}, "KeyError"),
]
TESTS = ("test_plain", "test_currency", "test_unknown_currency", "test_discount", "test_discount_out_of_range")


def git(*arguments):
    command = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-C", "/app/shop", *arguments]
    return subprocess.run(command, env=ENV, preexec_fn=CONFINE, capture_output=True, text=True, timeout=30, check=True).stdout


class Merge(unittest.TestCase):
    def test_history(self):
        self.assertEqual(git("rev-parse", "main^1", "main^2").split(), [MAIN, DISCOUNTS])
        self.assertEqual(git("rev-parse", "discounts").strip(), DISCOUNTS)
        self.assertEqual(git("rev-list", "--count", f"{MAIN}..main", f"^{DISCOUNTS}").strip(), "1")
        self.assertEqual(git("symbolic-ref", "HEAD").strip(), "refs/heads/main")
        self.assertEqual(git("status", "--porcelain", "--untracked-files=no"), "")

    def test_both_behaviours(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "pricing.py").write_text(git("show", "main:pricing.py"))
            child = subprocess.run(
                [sys.executable, "-I", "-c", CHILD, folder],
                preexec_fn=CONFINE,
                capture_output=True,
                text=True,
                timeout=30,
                input=json.dumps([case[:2] for case in CASES]),
                check=False,
            )
        lines = [line for line in child.stdout.splitlines() if line.startswith("ANSWERS ")]
        self.assertEqual(len(lines), 1, child.stderr)
        self.assertEqual(json.loads(lines[0].removeprefix("ANSWERS ")), [case[2] for case in CASES])

    def test_both_test_suites(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("pricing.py", "test_pricing.py"):
                Path(folder, name).write_text(git("show", f"main:{name}"))
            child = subprocess.run(
                [sys.executable, "-B", "-m", "unittest", "-v"],
                preexec_fn=CONFINE,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
        self.assertEqual(child.returncode, 0, child.stderr)
        for name in TESTS:
            self.assertRegex(child.stderr, rf"(?m)^{name} .*\bok$")

    def test_changes(self):
        lines = [line.strip() for line in git("show", "main:CHANGES.md").splitlines() if line.strip()]
        expected = ["- Japanese yen.", "- Currencies.", "- Discounts in percent.", "- Invoice lines."]
        self.assertEqual(lines, ["# Changes", "## Next", *expected])


if __name__ == "__main__":
    unittest.main()
