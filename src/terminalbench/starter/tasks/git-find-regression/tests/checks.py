"""The hash must be that of the commit that broke slug.py, in an untouched repository."""

import os
import runpy
import subprocess
import unittest
from pathlib import Path

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

CULPRIT, MAIN, TAG = (
    "75a55cc7b17a9d7f8bca36d6f64168bbffd2442e",
    "00589a65ef56b0a39f3dae1ea93ce75b56e85ddd",
    "adfe3e587738af78a47ab21be9ea6306db67a907",
)
ENV = {
    "PATH": "/usr/bin:/bin:/usr/local/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(*arguments):
    command = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-C", "/app/slugs", *arguments]
    return subprocess.run(command, env=ENV, preexec_fn=CONFINE, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


class Regression(unittest.TestCase):
    def test_culprit(self):
        self.assertEqual(Path("/app/culprit.txt").read_text().split(), [CULPRIT])

    def test_the_repository_is_as_it_was(self):
        self.assertEqual(git("rev-parse", "refs/heads/main", "v1.0").split(), [MAIN, TAG])
        self.assertEqual(
            git("for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags").split(),
            ["refs/heads/main", "refs/tags/v1.0"],
        )


if __name__ == "__main__":
    unittest.main()
