"""Runs the program on generated trees and compares every mode with the policy; then looks at /app/site."""

import os
import random
import runpy
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

RANDOM = random.Random(31337)
FOLDERS = ["bin", "drop", "secrets", "pages", "a b", "-x", "new\nline", "bin.d", "Secrets", "*"]
FILES = ["run", "read me", "-rf", "it's", "new\nfile", "*", "k.key", ".hidden", "secrets", "drop", "bin"]
CONTENTS = [b"", b"#", b"#!/bin/bash\n", b"text\n", b" #!no\n", b"\xff\x00"]


def run(*arguments, cwd="/"):
    return subprocess.run(
        ["/app/fix-permissions", *arguments],
        preexec_fn=CONFINE,
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def grow(folder, depth):
    folder.mkdir()
    for name in RANDOM.sample(FILES, 5):
        (folder / name).write_bytes(RANDOM.choice(CONTENTS))
        (folder / name).chmod(RANDOM.choice([0o600, 0o644, 0o666, 0o700, 0o755, 0o777, 0o4755, 0o6711, 0o400]))
    if depth:
        taken = {path.name for path in folder.iterdir()}
        for name in [name for name in RANDOM.sample(FOLDERS, 5) if name not in taken][:4]:
            grow(folder / name, depth - 1)
    folder.chmod(RANDOM.choice([0o700, 0o755, 0o775, 0o777, 0o2775, 0o1777, 0o750]))


def wanted(root, path, content):
    parents = [root.name, *path.relative_to(root).parts]
    folders = parents if content is None else parents[:-1]
    secret = "secrets" in folders
    if content is None:
        return 0o700 if secret else 0o1777 if parents[-1] == "drop" else 0o755
    if secret:
        return 0o600
    return 0o755 if folders[-1] == "bin" and content.startswith(b"#!") else 0o644


def snapshot(root):
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        kind = path.lstat()
        if stat.S_ISLNK(kind.st_mode):
            found[path] = (None, os.readlink(path))
        else:
            found[path] = (stat.S_IMODE(kind.st_mode), path.read_bytes() if stat.S_ISREG(kind.st_mode) else None)
    return found


class Permissions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.base = Path(folder.name)

    def check(self, root, before):
        after = snapshot(root)
        self.assertEqual({path: item[1] for path, item in after.items()}, {p: item[1] for p, item in before.items()})
        for path, (mode, content) in after.items():
            if mode is not None:
                expected = wanted(root, path, content)
                self.assertEqual(oct(mode), oct(expected), path)

    def test_generated_trees(self):
        for number in range(4):
            root = self.base / f"tree {number}"
            grow(root, 3)
            before = snapshot(root)
            result = run(str(root))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.check(root, before)
            changed = {path: path.lstat().st_ctime_ns for path in snapshot(root)}
            self.assertEqual(run(f"tree {number}/", cwd=self.base).returncode, 0)
            self.assertEqual({path: path.lstat().st_ctime_ns for path in snapshot(root)}, changed)

    def test_links_are_left_alone(self):
        outside, root = self.base / "outside", self.base / "tree"
        outside.mkdir()
        (outside / "file").write_text("#!x")
        (outside / "file").chmod(0o640)
        outside.chmod(0o751)
        grow(root, 1)
        (root / "to-folder").symlink_to("../outside")
        (root / "to-file").symlink_to(outside / "file")
        (root / "broken").symlink_to("nowhere")
        before = snapshot(root)
        self.assertEqual(run(str(root)).returncode, 0)
        self.check(root, before)
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (outside, outside / "file")]
        self.assertEqual(modes, [0o751, 0o640])

    def test_wrong_argument(self):
        grow(self.base / "tree", 0)
        (self.base / "link").symlink_to("tree")
        (self.base / "file").write_text("")
        before = snapshot(self.base)
        for arguments in ([], ["missing"], ["file"], ["link"], [""]):
            result = run(*arguments, cwd=self.base)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertTrue(result.stderr.strip(), "no message")
        self.assertEqual(snapshot(self.base), before)

    def test_the_site(self):
        root = Path("/app/site")
        before = snapshot(root)
        self.check(root, before)
        names = {str(path.relative_to(root)) for path in before}
        self.assertEqual(
            names,
            {
                ".",
                "-rf",
                "bin",
                "bin/README",
                "bin/deploy",
                "drop",
                "linked",
                "old stuff",
                "old stuff/bin",
                "old stuff/bin/run me",
                "pages",
                "pages/a *.html",
                "pages/common.txt",
                "pages/index.html",
                "pages/looks-like-a-script.sh",
                "secrets",
                "secrets/keys",
                "secrets/keys/deploy.key",
                "secrets/rotate",
            },
        )
        shared = [stat.S_IMODE(os.stat(path).st_mode) for path in ("/app/shared", "/app/shared/common.txt")]
        self.assertEqual(shared, [0o750, 0o640])


if __name__ == "__main__":
    unittest.main()
