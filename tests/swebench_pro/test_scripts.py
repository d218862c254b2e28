"""The scripts inside the images, run on a repository of this machine: history is pruned, the patch is read, scored."""

import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

ENV = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a"}
ENV |= {"GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}


def template(name: str) -> Path:
    return Path(str(files("terminalbench.swebench_pro") / "templates" / name))


class Repository:
    """A repository in the shape of an image's: main is ahead of the base and holds the fix, and much remembers it."""

    def __init__(self, root: Path) -> None:
        self.root, self.app = root, root / "app"
        self.env: dict[str, str] = {}
        (root / "logs").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", "-b", "main", self.app], check=True, env=ENV)
        self.commit("first", {"a.txt": "one\n", ".gitignore": "cache/\n"})
        self.base = self.commit("base", {"b.txt": "broken\n"})
        self.fix = self.commit("the fix", {"b.txt": "SECRET\n"})

    def commit(self, message: str, tree: dict[str, str]) -> str:
        for name, text in tree.items():
            (self.app / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-qm", message)
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.app), *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, errors="replace", env=ENV
        ).stdout.strip()

    def script(self, name: str, *arguments: str, **marks: str) -> subprocess.CompletedProcess[str]:
        text = template(name).read_text()
        places = {"/opt/swebench": self.root / "second", "/logs/artifacts": self.root / "logs", "/app": self.app}
        marks = {**{old: str(new) for old, new in places.items()}, "/tmp/": f"{self.root}/", **marks}
        text = re.sub("|".join(marks), lambda match: marks[match[0]], text)
        shell = "bash" if text.startswith("#!") else "sh"  # the collect hook is a command, for any shell
        return subprocess.run([shell, "-c", text, name, *arguments], capture_output=True, text=True, env=ENV | self.env)

    def collected(self) -> bytes | None:
        self.script("collect.sh", **{"@BASE@": self.base})
        file = self.root / "logs" / "model.patch"
        return file.read_bytes() if file.exists() else None


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_nothing_after_the_base_is_left_however_it_was_kept(repository: Repository) -> None:
    git = repository.git
    (repository.app / "b.txt").write_text("stashed SECRET\n")
    git("stash")
    git("notes", "add", "-m", "SECRET note")
    git("tag", "v1")
    git("tag", "-a", "-m", "SECRET", "v1-annotated")
    git("branch", "release")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    git("remote", "add", "origin", "nowhere.example")
    git("worktree", "add", "-q", "--detach", str(repository.root / "other"), "HEAD")
    git("replace", repository.base, repository.fix)
    git("repack", "-q", "-a", "-d")
    git("update-server-info")
    git("commit-graph", "write", "--reachable")
    for pack in (repository.app / ".git/objects/pack").glob("*.pack"):
        pack.with_suffix(".keep").touch()
    (repository.app / ".git" / "FETCH_HEAD").write_text(repository.fix)
    (repository.app / "built").mkdir()
    (repository.app / "built" / "of the image.o").write_text("x")
    ran = repository.script("prune.sh", repository.base, repository.fix)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert git("log", "--all", "--format=%s") == "base\nfirst"
    assert git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert (git("remote"), git("stash", "list"), git("reflog"), git("status", "--porcelain")) == ("", "", "", "")
    stored = git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    assert sorted(stored) == sorted({line[:40] for line in git("rev-list", "--objects", "HEAD").splitlines()})
    assert "SECRET" not in git("cat-file", "--batch-all-objects", "--batch")
    named = [
        path for path in repository.root.rglob("*") if path.is_file() and repository.fix.encode() in path.read_bytes()
    ]
    assert [path.relative_to(repository.root).parts[0] for path in named] == ["other"] * len(named)
    assert (repository.app / "b.txt").read_text() == "broken\n"
    assert (repository.app / "built" / "of the image.o").exists()
    assert repository.collected() == b""


def test_a_repository_of_another_user_is_pruned_too(repository: Repository) -> None:
    """In an image /app may be anybody's: git itself has a variable that lets it take every folder for another's."""
    repository.env["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    ran = repository.script("prune.sh", repository.base, repository.fix)
    assert ran.returncode == 0, ran.stderr
    assert not (repository.root / "prune.gitconfig").exists()


def test_a_prune_that_is_not_proven_fails_the_build(repository: Repository) -> None:
    ran = repository.script("prune.sh", repository.fix, repository.fix)
    assert (ran.returncode, "the fix can still be read" in ran.stdout) == (4, True)
    hidden = repository.app / ".git" / "hooks" / "note"
    hidden.write_text(f"see {repository.fix}")
    ran = repository.script("prune.sh", repository.base, "0" * 40, repository.fix)
    assert (ran.returncode, "the fix is named in" in ran.stdout) == (4, True)
    assert repository.script("prune.sh", "no-such-commit").returncode != 0


def test_the_patch_of_an_agent_is_read_whatever_it_did_to_git(repository: Repository) -> None:
    app = repository.app
    other = Repository(repository.root / "library")
    repository.git("checkout", "-q", repository.base)
    repository.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.app), "a library")
    repository.base = repository.commit("with a submodule", {})
    (app / "a library" / "new.o").write_text("built")
    subprocess.run(["git", "-C", app / "a library", "checkout", "-q", "HEAD~1"], check=True, env=ENV)
    ran = repository.script("prune.sh", repository.base)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert repository.collected() == b""
    (app / "b.txt").write_text("mended\n")
    repository.git("commit", "-qam", "mine", "--amend")
    repository.git("reflog", "expire", "--expire=now", "--all")
    repository.git("gc", "-q", "--prune=now")
    repository.git("config", "diff.noprefix", "true")
    repository.git("config", "core.autocrlf", "true")
    (app / 'odd "näme".txt').write_text("x\r\n")
    (app / "link").symlink_to("/etc/passwd")
    (app / "a.txt").chmod(0o755)
    (app / "data.bin").write_bytes(bytes(range(256)))
    (app / "cache").mkdir()
    (app / "cache" / "ignored").write_text("x")
    patch = repository.collected()
    assert patch is not None
    for name in (b"b.txt", b"link", b"data.bin", b"old mode 100644", b"+x\r\n"):
        assert name in patch
    assert b"cache/ignored" not in patch
    assert b"library" not in patch
    subprocess.run(["rm", "-rf", app / ".git"], check=True)
    assert repository.collected() == patch
    fresh = Repository(repository.root / "fresh")
    fresh.git("checkout", "-q", fresh.base)
    subprocess.run(["git", "-C", fresh.app, "apply", "-"], input=patch, check=True, env=ENV)
    assert (fresh.app / "b.txt").read_text() == "mended\n"
    assert (fresh.app / "data.bin").read_bytes() == bytes(range(256))


def test_a_prediction_is_taken_as_it_is_and_a_second_git_that_is_gone_is_no_patch(repository: Repository) -> None:
    assert repository.script("prune.sh", repository.base).returncode == 0
    (repository.app / "b.txt").write_text("else\n")
    (repository.root / "logs" / "prediction.patch").write_bytes(b"no patch at all \xff")
    assert repository.collected() == b"no patch at all \xff"
    (repository.root / "logs" / "prediction.patch").unlink()
    subprocess.run(["rm", "-rf", repository.root / "second"], check=True)
    assert repository.collected() is None
    assert "no diff could be made" in (repository.root / "logs" / "model.error").read_text()


def scored(
    work: Path, output: object, *, patch: str = "x", code: str = "0", control: object = None
) -> tuple[int, dict | None]:
    """The exit code and the reward that score.py gives for what a parser wrote."""
    (work / "control").mkdir(parents=True)
    for place, written in ((work, output), (work / "control", control)):
        if written is not None:
            (place / "output.json").write_text(written if isinstance(written, str) else json.dumps(written))
    (work / "patch.diff").write_text(patch)
    (work / "apply.code").write_text(f"{code}\n")
    (work / "tests.json").write_text(json.dumps({"fail_to_pass": [" a "], "pass_to_pass": ["b", "c"]}))
    command = [sys.executable, str(template("score.py")), "verdict", str(work), str(work / "tests.json"), str(work)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    reward = work / "reward.json"
    return ran.returncode, json.loads(reward.read_text()) if reward.exists() else None


def reported(**status: str) -> dict:
    return {"tests": [{"name": name.replace("_", " "), "status": value} for name, value in status.items()]}


def test_a_verdict_needs_every_name_as_it_is_and_marks_a_patch_that_does_not_apply(tmp_path: Path) -> None:
    full = reported(_a_="PASSED", b="PASSED", c="PASSED")
    assert scored(tmp_path / "1", full)[1] == {
        "reward": 1,
        "patch_applied": 1,
        "fail_to_pass": 1.0,
        "pass_to_pass": 1.0,
    }
    assert scored(tmp_path / "2", reported(a="PASSED", b="PASSED", c="SKIPPED"), code="1") == (
        0, {"reward": 0, "patch_applied": 0, "fail_to_pass": 0.0, "pass_to_pass": 0.5},
    )  # fmt: skip
    twice = {"tests": [*full["tests"], {"name": "b", "status": "FAILED"}]}
    assert scored(tmp_path / "3", twice)[1] == {
        "reward": 1,
        "patch_applied": 1,
        "fail_to_pass": 1.0,
        "pass_to_pass": 1.0,
    }
    assert scored(tmp_path / "4", full, patch="")[1] == {"reward": 1, "fail_to_pass": 1.0, "pass_to_pass": 1.0}


@pytest.mark.parametrize("output", [None, "", "{", '{"tests": 1}', '{"tests": [{}]}', {"tests": []}])
def test_without_a_report_there_is_no_reward_unless_the_patch_is_what_silenced_it(
    tmp_path: Path, output: object
) -> None:
    assert scored(tmp_path / "dead", output) == (9, None)
    code, reward = scored(tmp_path / "silenced", output, control=reported(b="PASSED"))
    assert (code, reward) == (0, {"reward": 0, "patch_applied": 1, "fail_to_pass": 0.0, "pass_to_pass": 0.0})


def test_binary_sections_are_taken_out_of_a_patch(tmp_path: Path) -> None:
    text, binary = b"diff --git a/x b/x\n+\xff\n", b"diff --git a/y b/y\nGIT binary patch\nliteral 1\n\n"
    (tmp_path / "in").write_bytes(text + binary + b"diff --git a/z b/z\nBinary files a/z and b/z differ\n" + text)
    command = [sys.executable, str(template("score.py")), "strip", str(tmp_path / "in"), str(tmp_path / "out")]
    subprocess.run(command, check=True)
    assert (tmp_path / "out").read_bytes() == text + text
