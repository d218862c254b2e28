"""The repository of a trial as a workflow works on it: git's real work, on a folder of this machine."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from terminalbench.faults import ErrorClass
from terminalbench.harbor.agents.workspace import TrialWorkspace, WorkspaceError
from terminalbench.harbor.preparation import EnvironmentBrokenError
from terminalbench.harbor.read.error_classes import error_class
from terminalbench.workflow.tree import BadPath, check_path

MAKE = r"""
git init -q; printf 'a\nb' > f.txt; printf '\351\n' > latin.txt; echo x > 'sp ace.sh'; chmod +x 'sp ace.sh'
printf 'node_modules\n*.log\n' > .gitignore; mkdir -p node_modules/x empty; echo dep > node_modules/x/y; echo t > tracked.log
git add -A; git add -f tracked.log; git -c user.name=t -c user.email=t@t commit -qm x; echo '* text eol=crlf' > .gitattributes
ln -s /etc outside
"""
CHANGES = {"f.txt": b"a\nc", "new/d.py": b"x=1\n", "latin.txt": b"\xe8\n", "sp ace.sh": b"y\n", "tracked.log": None}


def awaited(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


class FolderEnvironment:
    """Harbor's environment as far as the workspace needs it, on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def exec(self, command: str, cwd: str | None = None, env: Any = None, timeout_sec: int | None = None) -> Any:
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", command,
            cwd=cwd or self.folder, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        return SimpleNamespace(return_code=process.returncode, stdout=out.decode(), stderr=err.decode())

    async def download_file(self, source: str, target: Path) -> None:
        shutil.copy(source, target)

    async def upload_file(self, source: Path, target: str) -> None:
        shutil.copy(source, target)


@pytest.fixture(autouse=True)
def _kept_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("terminalbench.harbor.agents.workspace._PLACES", str(tmp_path))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    subprocess.run(["sh", "-ec", MAKE], cwd=folder, check=True)
    return folder


def state(tree: Path) -> dict[str, Any]:
    """Everything in the tree but git's own folder."""
    found = {}
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree).as_posix()
        if not name.startswith(".git/") and name != ".git":
            plain = path.is_file() and not path.is_symlink()
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o111) if plain else None
    return found


async def opened(tree: Path) -> TrialWorkspace:
    return await TrialWorkspace.open(FolderEnvironment(tree), None)  # ty: ignore[invalid-argument-type]


@awaited
async def test_reads_runs_and_resets(tree: Path) -> None:
    before = state(tree)
    workspace = await opened(tree)
    assert await workspace.files() == [
        ".gitattributes", ".gitignore", "f.txt", "latin.txt", "outside", "sp ace.sh", "tracked.log"
    ]  # fmt: skip
    assert await workspace.read("latin.txt") == b"\xe9\n"
    assert await workspace.read("node_modules/x/y") is None
    mess = "cat f.txt new/d.py; ls tracked.log; rm -rf .git f.txt; mkdir junk; echo > junk/a; echo '*' > .gitignore; exit 3"
    ran = await workspace.run(["sh", "-c", mess], timeout_sec=60, files={**CHANGES, "made.log": b"ignored\n"})
    assert (ran.code, ran.stdout) == (3, "a\ncx=1\n")
    assert "tracked.log" in ran.stderr
    assert state(tree) == before, "the tree is the base, what git ignores is where it was"
    assert await workspace.read("f.txt") == b"a\nb"
    await workspace.close()
    assert [path.name for path in tree.parent.iterdir()] == ["app"], "what was ours is gone"


@awaited
async def test_a_command_at_its_limit_is_ended_with_all_it_started(tree: Path) -> None:
    workspace = await opened(tree)
    late = "(sleep 2; echo late > late.txt) & sleep 60"
    assert (await workspace.run(["sh", "-c", late], timeout_sec=0.2)).code is None
    assert (await workspace.run(["sh", "-c", "(sleep 0.5; echo late > late.txt) & exit 0"], timeout_sec=60)).code == 0
    await asyncio.sleep(0.7)
    assert not (tree / "late.txt").exists()


@awaited
async def test_a_diff_is_applied_whole_or_not_at_all(tree: Path) -> None:
    before = state(tree)
    workspace = await opened(tree)
    patch = await workspace.diff(CHANGES)
    assert "GIT binary patch" in patch, "a patch is text, whatever the files are"
    assert "\\ No newline at end of file" in await workspace.diff({"f.txt": b"a\nc"})
    assert state(tree) == before, "asking changes nothing"
    assert await workspace.apply(patch) is None
    after = state(tree)
    assert {name: after.get(name) for name in CHANGES} == {
        "f.txt": (b"a\nc", 0), "new/d.py": (b"x=1\n", 0), "latin.txt": (b"\xe8\n", 0), "sp ace.sh": (b"y\n", 0o111),
        "tracked.log": None,
    }  # fmt: skip
    assert "tracked.log" not in after
    said = await workspace.apply((await workspace.diff({"f.txt": b"a\nc", "new.py": b""})).replace("-b", "-z"))
    assert said is not None
    assert "f.txt" in said
    assert state(tree) == before
    assert await workspace.apply(patch) is None
    assert state(tree) == after
    assert (await workspace.run(["cat", "f.txt"], timeout_sec=60)).stdout == "a\nb", "commands run on the base"
    assert await workspace.apply(patch) is None
    assert await workspace.apply("") is None
    assert state(tree) == before


@pytest.mark.parametrize("path", ["../x", "/etc/x", ".git/config", "sub/.GIT/hooks/x", "", "a//b", "./a", "a\0b"])
def test_no_path_leads_out(path: str) -> None:
    with pytest.raises(BadPath):
        check_path(path)


@awaited
async def test_nothing_is_written_through_a_link(tree: Path, tmp_path: Path) -> None:
    (tree / "outside").unlink()
    (tree / "outside").symlink_to(tmp_path)
    workspace = await opened(tree)
    await workspace.run(["true"], timeout_sec=60, files={"outside/planted": b"x"})
    with pytest.raises(BadPath):
        await workspace.run(["true"], timeout_sec=60, files={"../planted": b"x"})
    assert not (tmp_path / "planted").exists()
    assert (tree / "outside").is_symlink()


@awaited
async def test_a_tree_without_a_repository_is_its_own_base(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "f").write_text("one\n")
    workspace = await opened(folder)
    patch = await workspace.diff({"f": b"two\n"})
    assert await workspace.apply(patch) is None
    assert state(folder) == {"f": (b"two\n", 0)}
    assert not (folder / ".git").exists()


@awaited
async def test_whose_fault_it_is_that_git_cannot_go_on(tree: Path) -> None:
    workspace = await opened(tree)
    with pytest.raises(EnvironmentBrokenError):
        await workspace.run(["sh", "-c", f"rm -rf {tree.parent}/tbench-*/git"], timeout_sec=60)
    with pytest.raises(WorkspaceError, match="cannot be read"):
        await TrialWorkspace.open(FolderEnvironment(tree), "/no/such/folder")  # ty: ignore[invalid-argument-type]
    assert error_class("WorkspaceError", "", "agent") is ErrorClass.ENVIRONMENT
