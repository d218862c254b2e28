"""The work tree of a workspace: what an attempt changes is gone at the next, and what git ignores stays."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from terminalbench.workflow.tree import BadPath
from workflow.workspace import GIT_ENV, FolderWorkspace, repository

FILES = {
    "a.txt": "one\n",
    "no newline": b"end",
    "crlf.txt": b"a\r\nb\r\n",
    "run.sh": "#!/bin/sh\n",
    "sub/ü \"quoted\".txt": "x\n",
    ".gitignore": "node_modules/\n*.log\n",
    "kept.log": "tracked although ignored\n",
}  # fmt: skip


def build(root: Path) -> FolderWorkspace:
    repository(root, FILES)
    subprocess.run(["git", "add", "-f", "kept.log"], cwd=root, check=True, env=GIT_ENV)
    (root / "node_modules/x").mkdir(parents=True)
    (root / "node_modules/x/index.js").write_text("dependency")
    (root / "untracked.cfg").write_text("made by the image\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("/etc")
    (root / "empty").mkdir()
    return FolderWorkspace(root, root.parent / "keep")


@pytest.fixture
def space(tmp_path: Path) -> FolderWorkspace:
    return build(tmp_path / "repo")


def content(root: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(root)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(root.rglob("*"))
        if ".git/" not in f"{path}/" and (path.is_symlink() or path.is_file())
    }


def test_the_base_is_the_tree_as_it_was_found(space: FolderWorkspace) -> None:
    listed = asyncio.run(space.files())
    assert listed == sorted([*FILES, "link", "untracked.cfg"])
    read = asyncio.run(space.read_many([*listed, "absent"]))
    assert read["no newline"] == b"end"
    assert read["crlf.txt"] == b"a\r\nb\r\n"
    assert read["kept.log"] == b"tracked although ignored\n"
    assert "link" not in read
    assert "absent" not in read


def test_a_run_sees_the_files_and_leaves_nothing(space: FolderWorkspace) -> None:
    before = content(space.root)
    command = (
        "cat a.txt new/deep/f.txt; test ! -e crlf.txt && echo gone; test -x run.sh && echo executable; "
        "echo spoiled > a.txt; echo junk > junk.txt; mkdir -p node_modules/y && echo kept > node_modules/y/z; "
        "mkdir made && git -C made init -q; echo x > empty/file; rm run.sh; rm -r sub; exit 7"
    )
    files = {"a.txt": b"two\n", "new/deep/f.txt": b"new\n", "crlf.txt": None, "run.sh": b"#!/bin/sh\nexit 0\n"}
    ran = asyncio.run(space.run(["sh", "-c", command], timeout_sec=60, files=files))
    assert (ran.code, ran.stdout.split("\n")[:4]) == (7, ["two", "new", "gone", "executable"])
    assert content(space.root) == before | {"node_modules/y/z": b"kept\n"}
    assert (space.root / "run.sh").stat().st_mode & 0o111
    assert not (space.root / "made").exists()
    assert not (space.root / "new").exists()
    assert (space.root / "run.sh").is_file()


def test_a_command_over_its_time_is_stopped_and_the_tree_is_the_base(space: FolderWorkspace) -> None:
    before = content(space.root)
    ran = asyncio.run(space.run(["sh", "-c", "echo x > a.txt; exec sleep 60"], timeout_sec=0.3))
    assert ran.code is None
    assert content(space.root) == before


def test_a_diff_applies_with_git_and_keeps_ends_of_lines(space: FolderWorkspace) -> None:
    files = {"no newline": b"new end", "crlf.txt": b"a\r\nc\r\n", "sub/ü \"quoted\".txt": None, "b": b"\x00\x01"}  # fmt: skip
    patch = asyncio.run(space.diff(files))
    assert "\\ No newline at end of file" in patch
    before = content(space.root)
    assert asyncio.run(space.apply(patch)) is None
    expected = {path: data for path, data in {**before, **files}.items() if data is not None}
    assert content(space.root) == expected
    refused = asyncio.run(space.apply(patch.replace("-end\n", "-other\n")))
    assert refused is not None
    assert "no newline" in refused
    assert content(space.root) == before


def test_the_repositorys_own_git_is_neither_used_nor_changed(space: FolderWorkspace) -> None:
    git = ["git", "status", "--porcelain", "--ignored"]
    before = subprocess.run(git, cwd=space.root, env=GIT_ENV, capture_output=True, check=True).stdout
    asyncio.run(space.run(["sh", "-c", "rm -rf .git"], timeout_sec=60, files={"a.txt": b"two\n"}))
    assert content(space.root)["a.txt"] == b"one\n"
    assert b"untracked.cfg" in before


def test_no_file_of_an_attempt_is_written_through_a_link(space: FolderWorkspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (space.root / "node_modules/out").symlink_to(outside)
    asyncio.run(space.run(["true"], timeout_sec=60, files={"node_modules/out/f": b"x", "link/f": b"x"}))
    assert not list(outside.iterdir())
    with pytest.raises(BadPath):
        asyncio.run(space.run(["true"], timeout_sec=60, files={".git/hooks/x": b"x"}))
