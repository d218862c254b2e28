"""The branch must be the lost commit itself, found by its hash; nothing else may have moved."""

import os
import runpy
import subprocess
import unittest

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

LOST = "a565ed77eaf2ce172862c63a05670befa273194d"
HEADS = {"main": "8ab84d0f40f0b0d80c1071b5e30bbb063a07a349", "archive/2023": "5b65c1394e89ee4ec72d553f008a7725326152b6"}
ENV = {
    "PATH": "/usr/bin:/bin:/usr/local/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(*arguments):
    command = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-C", "/app/billing", *arguments]
    return subprocess.run(command, env=ENV, preexec_fn=CONFINE, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


class LostCommit(unittest.TestCase):
    def test_the_branch_is_the_lost_commit(self):
        self.assertEqual(git("rev-parse", "refs/heads/invoice-rounding"), LOST)

    def test_its_content_is_in_the_repository(self):
        self.assertFalse(os.path.lexists("/app/billing/.git/objects/info/alternates"))
        self.assertEqual(git("replace", "-l"), "")
        git("fsck", "--strict", "--no-dangling")
        self.assertIn("rounded once, half a cent up", git("show", f"{LOST}:invoice.py"))

    def test_the_other_branches_did_not_move(self):
        listing = git("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads")
        heads = dict(line.rsplit(" ", 1) for line in listing.splitlines())
        self.assertEqual(heads, {**HEADS, "invoice-rounding": LOST})


if __name__ == "__main__":
    unittest.main()
