"""Copies the folder, changes things in it, and looks at what `make` made again. File times are set, never awaited."""

import os
import runpy
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

PRISTINE = {
    "src/header.inc": "== @NAME@ ==\n",
    "src/apple.txt": "An apple a day\nkeeps the doctor away.\n",
    "src/banana.txt": "Bananas are berries.\n",
    "src/cherry.txt": "Cherries come\nin pairs.\n",
}


def rendered(header, name, text):
    lines = [f"{number:3d}  {line}\n" for number, line in enumerate(text.splitlines(), 1)]
    return header.replace("@NAME@", name) + "".join(lines)


class Makefile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name, "copy of it")
        (self.root / "src").mkdir(parents=True)
        (self.root / "tools").mkdir()
        shutil.copy("/app/Makefile", self.root / "Makefile")
        shutil.copy("/tests/render.sh", self.root / "tools/render.sh")
        (self.root / "tools/render.sh").chmod(0o755)
        for name, text in PRISTINE.items():
            (self.root / name).write_text(text)
        self.now = int(time.time()) - 10_000

    def make(self, *arguments, status=0):
        result = subprocess.run(
            ["make", *arguments],
            preexec_fn=CONFINE,
            cwd=self.root,
            env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def age(self):
        """Give every file a time in the past, what is made from others a later one, and remember them."""
        self.now += 100
        for path in sorted(self.root.rglob("*")):
            made = path.suffix == ".out" or path.name == "bundle.txt"
            os.utime(path, (self.now + 20 * made + 20 * (path.name == "bundle.txt"),) * 2)
        self.times = {path: path.stat().st_mtime for path in (self.root / "build").iterdir()}

    def change(self, name, text=None):
        if text is not None:
            (self.root / name).write_text(text)
        os.utime(self.root / name, (self.now + 60,) * 2)

    def remade(self):
        return sorted(path.name for path, then in self.times.items() if path.stat().st_mtime != then)

    def check_bundle(self):
        header = (self.root / "src/header.inc").read_text()
        texts = sorted((self.root / "src").glob("*.txt"))
        expected = "".join(rendered(header, text.stem, text.read_text()) for text in texts)
        self.assertEqual((self.root / "build/bundle.txt").read_text(), expected)
        for text in texts:
            output = (self.root / "build" / f"{text.stem}.out").read_text()
            self.assertEqual(output, rendered(header, text.stem, text.read_text()))

    def test_fresh_parallel_and_idle(self):
        self.make("-j4")
        self.check_bundle()
        self.age()
        self.make("-q")
        self.make()
        self.assertEqual(self.remade(), [])
        self.make("all", "-q")

    def test_only_what_changed(self):
        self.make()
        self.age()
        self.change("src/banana.txt", "Bananas are berries.\nStrawberries are not.\n")
        self.make()
        self.assertEqual(self.remade(), ["banana.out", "bundle.txt"])
        self.check_bundle()
        self.make("-q")

    def test_header_and_tool_change_everything(self):
        self.make()
        for name, text in (("src/header.inc", "## @NAME@\n"), ("tools/render.sh", None)):
            self.age()
            self.change(name, text)
            self.make("-j2")
            self.assertEqual(self.remade(), ["apple.out", "banana.out", "bundle.txt", "cherry.out"])
            self.check_bundle()

    def test_new_texts(self):
        self.make()
        self.age()
        for name in ("aardvark", "zebra"):
            self.change(f"src/{name}.txt", f"{name}\n")
        self.make()
        self.assertEqual(self.remade(), ["bundle.txt"])
        self.check_bundle()

    def test_failing_text(self):
        (self.root / "src/banana.txt").write_text("fine\n!error\n")
        self.make(status=2)
        self.assertFalse((self.root / "build/banana.out").exists(), "a half-written output stayed")
        self.assertFalse((self.root / "build/bundle.txt").exists())
        self.make("-q", status=1)
        (self.root / "src/banana.txt").write_text("fine\n")
        self.make()
        self.check_bundle()
        self.age()
        self.change("src/cherry.txt", "!error\n")
        self.make("-k", status=2)
        self.assertFalse((self.root / "build/cherry.out").exists(), "a half-written output stayed")
        self.make("-q", status=1)

    def test_clean_and_all_are_not_files(self):
        for name in ("clean", "all"):
            (self.root / name).write_text("")
        self.make("all")
        self.check_bundle()
        self.make("clean")
        self.assertFalse((self.root / "build").exists())
        self.make("clean")

    def test_nothing_else_was_changed(self):
        for name, text in PRISTINE.items():
            self.assertEqual(Path("/app", name).read_text(), text)
        self.assertEqual(Path("/app/tools/render.sh").read_bytes(), Path("/tests/render.sh").read_bytes())


if __name__ == "__main__":
    unittest.main()
