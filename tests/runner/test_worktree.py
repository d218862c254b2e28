"""The code under test, pinned as it was at one moment."""

import os
import shutil
from pathlib import Path

import pytest

from runner.pinned import EXPERIMENT, commit, night, profile_id, tree
from runner.pinned import project as project  # the fixture
from servers.git_http import git
from support.experiments import Project
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import load
from terminalbench.json_files import read_json
from terminalbench.runner import file_archive
from terminalbench.runner import named_files as named_files_module
from terminalbench.runner.environment import child_environment
from terminalbench.runner.named_files import named_files, unpinned
from terminalbench.runner.repository import worktrees
from terminalbench.runner.worktree import PinRecord, ensure, pin, pinned_path, record_file, release


def test_a_pin_is_a_detached_worktree_that_has_the_files_of_the_commit(project: Project) -> None:
    made = pin(project.root, night(project), dirty="refuse")
    assert (made.kind, made.dirty, made.commit) == ("worktree", False, git(project.root, "rev-parse", "HEAD"))
    assert tree(Path(made.root)) == tree(project.root)
    assert os.access(Path(made.root) / "hook.sh", os.X_OK)
    assert git(Path(made.root), "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"


def test_an_edit_during_the_night_changes_no_profile_id(project: Project) -> None:
    made = pin(project.root, night(project))
    before = profile_id(made, project)
    project.write("prompts/one.md", "second")
    assert profile_id(made, project) == before
    assert load(project.root / "experiments/exp.toml").profiles[0].id != before
    commit(project.root)
    assert profile_id(ensure(night(project)), project) == before


def test_what_is_not_committed_is_captured(project: Project) -> None:
    project.write("prompts/one.md", "changed")
    project.write("new/tool.py", "x = 1\n").chmod(0o755)
    (project.root / "hook.sh").unlink()
    (project.root / "link").symlink_to("prompts/one.md")
    made = pin(project.root, night(project))
    assert made.dirty
    assert tree(Path(made.root)) == tree(project.root)
    assert (Path(made.root) / "link").read_text() == "changed"
    assert os.access(Path(made.root) / "new/tool.py", os.X_OK)


def test_a_file_in_place_of_a_link_or_a_folder_stays_in_the_pin(project: Project, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    (project.root / "was-link").symlink_to(outside)
    project.write("was-file", "x")
    commit(project.root)
    (project.root / "was-link").unlink()
    project.write("was-link", "ours")
    (project.root / "was-file").unlink()
    project.write("was-file/inner", "y")
    made = pin(project.root, night(project))
    assert tree(Path(made.root)) == tree(project.root)
    assert outside.read_text() == "theirs"


def test_with_refuse_the_files_are_named_and_nothing_is_made(project: Project) -> None:
    project.write("prompts/one.md", "changed")
    project.write("untracked.py", "")
    with pytest.raises(UserError, match=r"not committed: prompts/one.md, untracked.py"):
        pin(project.root, night(project), dirty="refuse")
    assert not night(project).exists()
    assert len(worktrees(project.root)) == 1


def test_changes_that_git_was_told_not_to_see_are_captured(project: Project) -> None:
    git(project.root, "update-index", "--skip-worktree", "prompts/one.md")
    git(project.root, "update-index", "--assume-unchanged", "hook.sh")
    project.write("prompts/one.md", "hidden")
    made = pin(project.root, night(project))
    assert (Path(made.root) / "prompts/one.md").read_text() == "hidden"
    assert "hook.sh" not in read_json(record_file(night(project)), PinRecord).files


def test_the_folder_of_the_night_results_and_environments_are_not_in_the_pin(project: Project) -> None:
    project.write(".gitignore", "")
    project.write("runs/batch/index.db", "")
    project.write("runs/batch/night/1/result.json", "{}")
    project.write(".venv/lib/x.py", "")
    project.write("results/night 1/batches/x", "")
    project.write(".terminalbench/gym/episodes.jsonl", "{}")
    into = night(project)
    made = pin(project.root, into)
    assert not {"runs", ".venv", "results", ".terminalbench"} & {path.name for path in Path(made.root).iterdir()}
    release(into)
    pin(project.root, project.root / "results" / "night 2" / "code")
    again = pin(project.root, into)
    assert again.digest == made.digest, "the pin of another night is no part of this one"
    project.write(".terminalbench/gym/episodes.jsonl", "{}\n{}")
    release(into)
    assert pin(project.root, into).digest == made.digest, "nor are the episodes that it added"


def test_a_project_in_a_subfolder_of_the_repository_is_pinned_with_what_is_beside_it(tmp_path: Path) -> None:
    inner = Project(_folder(tmp_path / "repo/labs/bench"))
    inner.experiment(EXPERIMENT.replace("prompts/one.md", "../../shared.md"))
    (tmp_path / "repo/shared.md").write_text("shared")
    commit(tmp_path / "repo")
    made = pin(inner.root, inner.root / "results/n/code")
    assert made.root.endswith("results/n/code/labs/bench")
    before = profile_id(made, inner)
    (tmp_path / "repo/shared.md").write_text("edited")
    assert profile_id(made, inner) == before
    assert unpinned(load(pinned_path(made, inner.root / "experiments/exp.toml"), made.root), made) == []


def test_submodules_and_repositories_inside_are_pinned_at_their_own_commits(project: Project, tmp_path: Path) -> None:
    module = Project(_folder(tmp_path / "module"))
    module.write("server.py", "v = 1\n")
    commit(module.root)
    git(project.root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(module.root), "servers/mod")
    commit(project.root)
    nested = _folder(project.root / "clone")
    (nested / "tool.py").write_text("t = 1\n")
    commit(nested)
    project.write("servers/mod/server.py", "v = 2\n")
    made = pin(project.root, night(project))
    assert (Path(made.root) / "servers/mod/server.py").read_text() == "v = 2\n"
    assert (Path(made.root) / "clone/tool.py").read_text() == "t = 1\n"
    (nested / "tool.py").write_text("t = 2\n")
    commit(nested)
    shutil.rmtree(made.folder)
    ensure(night(project))
    assert (Path(made.root) / "clone/tool.py").read_text() == "t = 1\n"


def test_a_submodule_that_is_not_checked_out_is_said(project: Project, tmp_path: Path) -> None:
    module = _folder(tmp_path / "module")
    (module / "x").write_text("")
    commit(module)
    git(project.root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(module), "mod")
    commit(project.root)
    git(project.root, "submodule", "deinit", "-q", "-f", "mod")
    assert pin(project.root, night(project)).notes == ("submodule mod is not checked out, so it is not pinned",)


def test_content_of_git_lfs_is_pinned_without_git_lfs(project: Project) -> None:
    import hashlib

    content = b"the real weights"
    oid = hashlib.sha256(content).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n"
    project.write(".gitattributes", "*.bin filter=lfs\n")
    project.write("a.bin", pointer)
    project.write("b.bin", pointer.replace(oid, "0" * 64))
    commit(project.root)
    (project.root / "a.bin").write_bytes(content)
    git(project.root, "update-index", "--assume-unchanged", "a.bin")
    clean = project.root.parent / "clean.sh"  # git may ask it of a pointer, too: that stays one
    clean.write_text(
        f"text=$(cat; echo .)\ncase $text in version*) printf %s \"${{text%.}}\" ;; *) printf '{pointer}' ;; esac\n"
    )
    git(project.root, "config", "filter.lfs.clean", f"sh '{clean}'")
    git(project.root, "config", "filter.lfs.smudge", "false")
    git(project.root, "config", "filter.lfs.required", "true")
    made = pin(project.root, night(project))
    assert (Path(made.root) / "a.bin").read_bytes() == content
    assert made.notes == ("b.bin is a Git LFS pointer without its content (run git lfs pull)",)
    ensure(night(project))
    shutil.rmtree(made.folder)
    (project.root / "a.bin").write_bytes(b"other")
    with pytest.raises(UserError, match=r"content of a.bin \(Git LFS\) no longer exists"):
        ensure(night(project))


def test_no_hook_of_the_user_runs(project: Project, tmp_path: Path) -> None:
    hook = project.write(".git/hooks/post-checkout", f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
    hook.chmod(0o755)
    pin(project.root, night(project))
    assert not (tmp_path / "ran").exists()


def test_a_repository_that_takes_no_worktree_is_written_out(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from terminalbench.runner import worktree
    from terminalbench.runner.repository import GitError

    def refusing(folder: Path, *arguments: str, **more: object) -> bytes:
        if arguments[:2] == ("worktree", "add"):
            raise GitError("git worktree: read-only")
        return real(folder, *arguments, **more)  # ty: ignore[invalid-argument-type]

    real = worktree.git
    monkeypatch.setattr(worktree, "git", refusing)
    project.write("prompts/one.md", "captured")
    made = pin(project.root, night(project))
    assert (made.kind, made.commit is None) == ("copy", False)
    assert tree(Path(made.root)) == tree(project.root)
    shutil.rmtree(made.folder)
    assert ensure(night(project)) == made


def test_without_a_commit_and_without_git_the_pin_is_a_copy(project: Project) -> None:
    shutil.rmtree(project.root / ".git")
    project.write("node_modules/x/index.js", "")
    made = pin(project.root, night(project))
    assert (made.kind, made.commit) == ("copy", None)
    assert sorted(tree(Path(made.root))) == [
        ".gitignore", "experiments/exp.toml", "hook.sh", "prompts/one.md", "pyproject.toml"]  # fmt: skip
    project.write("prompts/one.md", "later")
    shutil.rmtree(made.folder)
    assert ensure(night(project)) == made
    assert (Path(made.root) / "prompts/one.md").read_text() == "first"
    git(project.root, "init", "-q")
    project.write("ignored.secret", "x")
    again = pin(project.root, project.root / "results/n2/code")
    assert again.kind == "copy"
    assert "ignored.secret" not in tree(Path(again.root))
    with pytest.raises(UserError, match="no commit yet"):
        pin(project.root, project.root / "results/n3/code", dirty="refuse")


def test_a_pin_in_a_bare_repository_s_worktree(project: Project, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(project.root), "bare.git")
    git(tmp_path / "bare.git", "worktree", "add", "-q", "--lock", "--detach", str(tmp_path / "work"))
    made = pin(tmp_path / "work", tmp_path / "night/code")
    assert made.kind == "worktree"
    assert tree(Path(made.root)) == tree(tmp_path / "work")


def test_env_files_are_read_where_they_are_and_never_copied(project: Project) -> None:
    project.write("experiments/.env", "KEY=first-value\n")
    project.write("keys.env", "KEY=other-value\n")  # neither tracked nor ignored
    made = pin(project.root, night(project), dirty="refuse")
    for folder in (night(project).parent, Path(made.folder)):
        held = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        assert not any(b"-value" in path.read_bytes() for path in held)
    experiment = load(pinned_path(made, project.root / "experiments/exp.toml"), made.root)
    project.write("experiments/.env", "KEY=rotated-value\n")
    assert child_environment(experiment.profiles[0], experiment.root)["KEY"] == "rotated-value"
    assert any("experiments/.env when each trial starts" in line for line in unpinned(experiment, made))


def test_what_an_experiment_names_is_pinned_though_git_ignores_it(project: Project) -> None:
    project.write("local/prompt.md", "ignored by git")
    project.task("local/tasks", "a")
    file = project.experiment(
        EXPERIMENT.replace("prompts/one.md", "local/prompt.md")
        .replace("starter", "local/tasks")
        .replace("csv-clean", "a")
    )
    made = pin(project.root, night(project), named=named_files(load(file)))
    before = profile_id(made, project)
    project.write("local/prompt.md", "edited")
    assert profile_id(made, project) == before
    experiment = load(pinned_path(made, file), made.root)
    assert unpinned(experiment, made) == [
        f"tasks are read from {project.root}/local/tasks; a batch reports when one of them changes"]  # fmt: skip
    assert ensure(night(project)) == made


def test_what_lies_outside_is_said(project: Project, tmp_path: Path) -> None:
    outside = tmp_path / "prompt.md"
    outside.write_text("x")
    (project.root / "out").symlink_to(tmp_path)
    project.write("agents/mine.py", "")
    file = project.experiment(EXPERIMENT.replace("prompts/one.md", str(outside)))
    made = pin(project.root, night(project))
    assert made.notes == ("out is a link that leads out of the pin",)
    lines = unpinned(load(pinned_path(made, file), made.root), made)
    assert lines == [f'profile "one": {outside} is outside the project, so it is not pinned']


def test_code_of_a_pin_that_lies_in_the_project_is_the_pinned_code(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("agents/mine.py", "")
    file = project.experiment(EXPERIMENT)
    made = pin(project.root, project.root / "results" / "night")
    assert Path(made.folder).is_relative_to(project.root)
    experiment = load(pinned_path(made, file), made.root)
    monkeypatch.setattr(named_files_module, "_import_paths", lambda *_: ["mine:Agent"])
    for place, said in ((Path(made.root), 0), (project.root, 1)):
        monkeypatch.setattr(named_files_module, "code_place", lambda *_, at=place: at / "agents/mine.py")
        lines = [line for line in unpinned(experiment, made) if "not the pinned code" in line]
        assert len(lines) == said * len(experiment.profiles)


def test_more_data_than_code_is_refused_with_the_folder_that_holds_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_archive, "MOST_BYTES", 1000)
    project.write("data/big/file", "x" * 2000)
    with pytest.raises(UserError, match="Most of them are in data/big"):
        pin(project.root, night(project))


def test_batches_of_a_pin_record_its_commit(project: Project) -> None:
    from datetime import UTC, datetime

    from terminalbench.experiments.planner import Selection, make_plan
    from terminalbench.runner.provenance import git_state

    made = pin(project.root, night(project))
    experiment = load(pinned_path(made, project.root / "experiments/exp.toml"), made.root)
    plan = make_plan(experiment, Batch(night(project).parent / "batches/night/1"), datetime.now(UTC), Selection())
    assert plan.profiles[0].id == profile_id(made, project)
    state = git_state(Path(made.root))
    assert state is not None
    assert state.commit == made.commit


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path
