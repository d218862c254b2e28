"""Pinned code that is removed, changed or gone is made again as it was or refused, and nobody else's worktree is touched."""

import os
import shutil
from pathlib import Path

import pytest

from runner.pinned import commit, night, profile_id, tree
from runner.pinned import project as project  # the fixture
from servers.git_http import git
from support.experiments import Project
from terminalbench.errors import UserError
from terminalbench.runner.repository import worktrees
from terminalbench.runner.worktree import ensure, pin, release, unregister


@pytest.mark.parametrize("dirty", [True, False])
def test_a_worktree_that_was_removed_is_made_again_as_it_was(project: Project, dirty: bool) -> None:
    if dirty:
        project.write("prompts/one.md", "captured")
        (project.root / "hook.sh").unlink()
    made = pin(project.root, night(project))
    before, profile = tree(Path(made.root)), profile_id(made, project)
    project.write("prompts/one.md", "later")
    commit(project.root)
    shutil.rmtree(made.folder)
    assert ensure(night(project)) == made
    assert (tree(Path(made.root)), profile_id(made, project)) == (before, profile)


def test_a_pin_that_was_changed_is_refused_by_name_and_made_again_when_it_is_removed(project: Project) -> None:
    made = pin(project.root, night(project))
    (Path(made.root) / "prompts/one.md").write_text("tampered")
    (Path(made.root) / "new.py").write_text("")
    (Path(made.root) / "__pycache__").mkdir()
    (Path(made.root) / "__pycache__/x.pyc").write_text("")
    with pytest.raises(UserError, match=r"was changed: prompts/one.md \("):
        ensure(night(project))
    shutil.rmtree(made.folder)
    assert ensure(night(project)) == made


def test_what_git_itself_or_python_makes_different_in_a_pin_is_no_change(project: Project) -> None:
    """Line endings that were declared later differ in a new checkout, not in the user's; bytecode is written anew."""
    (project.root / "build.bat").write_bytes(b"echo\r\n")
    os.utime(project.root / "build.bat", (1e9, 1e9))  # git trusts what it noted of it
    project.write("__pycache__/x.pyc", "tracked")
    commit(project.root)
    project.write(".gitattributes", "*.bat text eol=crlf\n")
    commit(project.root)
    made = pin(project.root, night(project))
    (Path(made.root) / "__pycache__/x.pyc").write_text("of another time")
    assert ensure(night(project)) == made
    shutil.rmtree(made.folder)
    assert ensure(night(project)) == made
    (Path(made.root) / "build.bat").write_bytes(b"echo else\r\n")
    with pytest.raises(UserError, match=r"was changed: build.bat \("):
        ensure(night(project))


def test_a_commit_in_a_pin_is_a_change(project: Project) -> None:
    made = pin(project.root, night(project))
    git(Path(made.root), "commit", "-q", "--allow-empty", "-m", "of an agent")
    with pytest.raises(UserError, match="was changed: the commit that is checked out"):
        ensure(night(project))


def test_a_commit_that_is_gone_is_refused_by_name(project: Project) -> None:
    made = pin(project.root, night(project))
    shutil.rmtree(made.folder)
    shutil.rmtree(project.root / ".git")
    git(project.root, "init", "-q")
    with pytest.raises(UserError, match="cannot be restored"):
        ensure(night(project))


def test_release_removes_its_own_worktree_and_no_other(project: Project, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    git(project.root, "worktree", "add", "-q", "--detach", str(theirs))
    gone = tmp_path / "gone"
    git(project.root, "worktree", "add", "-q", "--detach", str(gone))
    shutil.rmtree(gone)  # git would prune it; we do not
    made = pin(project.root, night(project))
    assert next(t for t in worktrees(project.root) if t.folder == Path(made.folder)).locked is not None
    release(night(project))
    assert not Path(made.folder).exists()
    assert {tree.folder for tree in worktrees(project.root)} == {project.root, theirs, gone}
    assert ensure(night(project)) == made, "a night that is resumed has its code again"


def test_code_that_is_unregistered_stays_to_be_read_and_is_made_a_worktree_again(
    project: Project, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    git(project.root, "worktree", "add", "-q", "--detach", str(gone))
    shutil.rmtree(gone)  # git would prune it; we do not
    project.write("prompts/one.md", "captured")
    made = pin(project.root, night(project))
    before, profile = tree(Path(made.root)), profile_id(made, project)
    for _ in range(2):
        unregister(night(project))
    assert {tree.folder for tree in worktrees(project.root)} == {project.root, gone}
    assert profile_id(made, project) == profile, "what was run with it can be read"
    assert not (Path(made.folder) / ".git").exists()

    repository = project.root / ".git"
    repository.rename(tmp_path / "elsewhere")
    git(project.root, "init", "-q")
    with pytest.raises(UserError, match="cannot be restored"):
        ensure(night(project))
    assert profile_id(made, project) == profile, "it stays where it cannot be made again"
    shutil.rmtree(repository)
    (tmp_path / "elsewhere").rename(repository)

    project.write("prompts/one.md", "later")
    commit(project.root)
    assert ensure(night(project)) == made
    assert (tree(Path(made.root)), profile_id(made, project)) == (before, profile)
    assert {tree.folder for tree in worktrees(project.root)} == {project.root, gone, Path(made.folder)}
    assert sorted(path.name for path in night(project).parent.iterdir()) == ["code", "code.json", "code.tar"]


def test_a_folder_and_a_worktree_of_others_are_refused(project: Project) -> None:
    into = night(project)
    git(project.root, "worktree", "add", "-q", "--detach", str(into))
    with pytest.raises(UserError, match="was not created by tbench"):
        pin(project.root, into)
    git(project.root, "worktree", "remove", str(into))
    made = pin(project.root, into)
    git(project.root, "worktree", "remove", "-f", "-f", str(into))
    git(project.root, "worktree", "add", "-q", "--detach", str(into))
    with pytest.raises(UserError, match="that tbench did not make"):
        release(into)
    assert Path(made.root).is_dir()


def test_a_pin_whose_making_was_interrupted_is_made_anew(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from terminalbench.runner import worktree

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(worktree, "unpack", killed)
        with pytest.raises(KeyboardInterrupt):
            pin(project.root, night(project))
    made = pin(project.root, night(project))
    assert tree(Path(made.root)) == tree(project.root)
    assert len(worktrees(project.root)) == 2
