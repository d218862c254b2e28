"""Runs the script on folders with hard names and compares every file before and after."""

import gzip
import os
import random
import resource
import runpy
import subprocess
import tempfile
import unittest
from pathlib import Path

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

NAMES = [
    "a.log",
    "two words.log",
    " lead.log",
    "trail .log",
    "-n.log",
    "--help.log",
    ".hidden.log",
    "star*.log",
    "quote'\".log",
    "dollar$HOME.log",
    "back\\slash.log",
    "new\nline.log",
    "tab\there.log",
    "ünï.log",
    "[ab].log",
    "semi;rm x.log",
    ".log",
    "$(touch pwned).log",
    "`id`.log",
    "?.log",
]


def run(*arguments, cwd="/", largest_file=None):
    """Run the script; with `largest_file`, writing more bytes than that to one file fails, as on a full disk."""

    def limit():
        if CONFINE is not None:
            CONFINE()
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    return subprocess.run(
        ["/bin/bash", "/app/archive-logs.sh", *arguments],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
        preexec_fn=limit,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def tree(folder):
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = "-> " + os.readlink(path)
        elif path.is_dir():
            found[name] = "folder"
        elif name.endswith(".gz"):
            found[name] = gzip.decompress(path.read_bytes())
        else:
            found[name] = path.read_bytes()
    return found


class ArchiveLogs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.source = self.root / "in"
        self.source.mkdir()

    def archived(self, result, count, status=0):
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout.rstrip("\n").split("\n")[-1], f"archived {count}")

    def test_every_name(self):
        for number, name in enumerate(NAMES):
            Path(self.source, name).write_bytes(b"line\n" * number + name.encode())
        self.archived(run(str(self.source), str(self.root / "out")), len(NAMES))
        self.assertEqual(tree(self.source), {})
        expected = {f"{name}.gz": b"line\n" * number + name.encode() for number, name in enumerate(NAMES)}
        self.assertEqual(tree(self.root / "out"), expected)

    def test_what_is_not_a_log_stays(self):
        (self.source / "sub").mkdir()
        (self.source / "folder.log").mkdir()
        for name in ("sub/x.log", "folder.log/y.log", "readme.txt", "log", "x.log.bak", "X.LOG"):
            Path(self.source, name).write_text(name)
        (self.source / "link.log").symlink_to("readme.txt")
        (self.source / "dangling.log").symlink_to("nowhere")
        before = tree(self.source)
        (self.source / "real.log").write_text("real")
        self.archived(run(str(self.source), str(self.root / "deep/er/out")), 1)
        self.assertEqual(tree(self.source), before)
        self.assertEqual(tree(self.root / "deep/er/out"), {"real.log.gz": b"real"})

    def test_no_logs_is_not_an_error(self):
        (self.source / "keep.txt").write_text("k")
        self.archived(run(str(self.source), str(self.root / "out")), 0)
        self.assertEqual(tree(self.source), {"keep.txt": b"k"})

    def test_relative_paths_with_spaces(self):
        (self.root / "my logs").mkdir()
        (self.root / "my logs/a b.log").write_text("1")
        self.archived(run("my logs", "the archive/of it", cwd=self.root), 1)
        self.assertEqual(tree(self.root / "the archive/of it"), {"a b.log.gz": b"1"})
        (self.root / "-dash").mkdir()
        (self.root / "-dash/c.log").write_text("2")
        self.archived(run("-dash", "-out", cwd=self.root), 1)
        self.assertEqual(tree(self.root / "-out"), {"c.log.gz": b"2"})

    def test_same_folder(self):
        (self.source / "a.log").write_text("1")
        self.archived(run("in", "in", cwd=self.root), 1)
        self.assertEqual(tree(self.source), {"a.log.gz": b"1"})

    def test_archives_are_never_overwritten(self):
        out = self.root / "out"
        for round_ in range(4):
            (self.source / "app log.log").write_text(f"round {round_}")
            self.archived(run(str(self.source), str(out)), 1)
        expected = {"app log.log.gz": b"round 0"}
        expected.update({f"app log.log.{n}.gz": f"round {n}".encode() for n in (1, 2, 3)})
        self.assertEqual(tree(out), expected)

    def test_a_failing_gzip_loses_nothing(self):
        noise = random.Random(5).randbytes(300_000)
        for name in ("a.log", "c.log"):
            (self.source / name).write_text("fine")
        (self.source / "b.log").write_bytes(noise)
        result = run(str(self.source), str(self.root / "out"), largest_file=50_000)
        self.archived(result, 2, status=1)
        self.assertEqual(tree(self.source), {"b.log": noise})
        self.assertEqual(tree(self.root / "out"), {"a.log.gz": b"fine", "c.log.gz": b"fine"})

    def test_a_name_that_is_too_long_loses_nothing(self):
        long = "x" * 249 + ".log"
        for name in ("a.log", long, "z.log"):
            (self.source / name).write_text("fine")
        self.archived(run(str(self.source), str(self.root / "out")), 2, status=1)
        self.assertEqual(tree(self.source), {long: b"fine"})
        self.assertEqual(tree(self.root / "out"), {"a.log.gz": b"fine", "z.log.gz": b"fine"})

    def test_wrong_arguments_touch_nothing(self):
        (self.source / "a.log").write_text("1")
        (self.root / "file").write_text("f")
        before = tree(self.root)
        wrong = [[], ["in"], ["in", "out", "x"], ["missing", "out"], ["file", "out"], ["", "out"]]
        for arguments in wrong:
            with self.subTest(arguments):
                result = run(*arguments, cwd=self.source if arguments == [] else self.root)
                self.assertEqual(result.returncode, 2)
                self.assertTrue(result.stderr.strip(), "no message")
                self.assertEqual(tree(self.root), before)


if __name__ == "__main__":
    unittest.main()
