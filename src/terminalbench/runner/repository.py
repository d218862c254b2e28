"""Git's view of a project: its commit, what differs from it, the repositories inside it, the files of Git LFS.

Git is asked as a reader: no hook of the user's runs, no lock of the index is taken, nothing is downloaded.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from terminalbench.errors import TbenchError, UserError
from terminalbench.files import read_plain
from terminalbench.text.names import from_here
from terminalbench.text.numbers import some

_TIMEOUT_SEC = 600
_NO_LFS = ("filter.lfs.smudge=", "filter.lfs.process=", "filter.lfs.required=false")


class GitError(TbenchError):
    """Git refused; `what` is its last line."""


@dataclass
class Differences:
    """The differences of a working tree from its commit: the files, and the commits of the repositories inside it.

    A changed file that is gone is in `changed` too. A repository inside is a submodule that is checked out, or one that
    git does not track; its commit is None as long as it has none. `not_here` are submodules that are not checked out,
    `moved` those whose commit or content is not as the tree around them has it.
    """

    changed: list[str] = field(default_factory=list)
    inside: dict[str, str | None] = field(default_factory=dict)
    not_here: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)


def git(folder: Path, *arguments: str, lfs: bool = True, given: bytes = b"", index: str | None = None) -> bytes:
    """Return what git prints; `GitError` with its last line when it refuses. Without `lfs`, pointers stay pointers."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    if index is not None:
        env["GIT_INDEX_FILE"] = index
    settings = ["core.hooksPath=/dev/null", "core.fsmonitor=false", *(() if lfs else _NO_LFS)]
    command = ["git", "-C", str(folder), *(part for setting in settings for part in ("-c", setting)), *arguments]
    ran = subprocess.run(
        command, capture_output=True, timeout=_TIMEOUT_SEC, input=given, env=env, start_new_session=True
    )
    if ran.returncode != 0:
        said = ran.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(f"git {arguments[0]}: {said[-1] if said else f'exit code {ran.returncode}'}", where=str(folder))
    return ran.stdout


def top_of(folder: Path) -> Path | None:
    """The top of the working tree that a folder is in; None outside of one, and without git."""
    marked = any((above / ".git").exists() for above in (folder, *folder.parents))
    if shutil.which("git") is None:
        return None
    try:
        return Path(os.fsdecode(git(folder, "rev-parse", "--show-toplevel").rstrip(b"\n")))
    except GitError as error:
        if not marked or "work tree" in error.what:
            return None
        raise UserError(
            error.what, where=str(folder), hint="git must be able to read the project's repository"
        ) from None


def would_track(file: Path) -> bool:
    """Return whether git tracks a file, or would by `git add`; False outside of a repository and without git."""
    if top_of(file.parent) is None:
        return False
    try:
        git(file.parent, "check-ignore", "--quiet", "--", file.name)
    except GitError:
        return True
    return False


def env_file_notes(files: Iterable[Path | None]) -> list[str]:
    """Return a note for each env file that is there and that git would track."""
    return [
        f"{from_here(file)} contains secrets, and git does not ignore it: add it to .gitignore (if it is tracked "
        f"already: git rm --cached)"
        for file in dict.fromkeys(files)
        if file is not None and file.is_file() and would_track(file)
    ]


def head_of(top: Path) -> str | None:
    """The commit that is checked out; None as long as there is none."""
    try:
        return git(top, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()
    except GitError:
        return None


def differences(top: Path, left_out: Callable[[Path], bool]) -> Differences:
    """Return what the working tree has that its commit has not, those of the repositories inside it included.

    What git does not track may be `left_out`.
    """
    found = Differences()
    _collect(top, "", left_out, found)
    return found


def _collect(top: Path, prefix: str, left_out: Callable[[Path], bool], found: Differences) -> None:
    inside: list[str] = []
    listed = git(
        top, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=none"
    )
    for entry in _names(listed):
        name = entry[3:]
        path = top / name
        if entry.startswith("??") and left_out(path):
            continue
        if name.endswith("/"):
            inside.append(name.rstrip("/"))
        elif path.is_dir() and not path.is_symlink() and (path / ".git").exists():
            found.moved.append(prefix + name)
        else:
            found.changed.append(prefix + name)
    found.changed += [prefix + name for name in _hidden(top) if prefix + name not in found.changed]
    for name in _submodules(top):
        if (top / name / ".git").exists():
            inside.append(name)
        else:
            found.not_here.append(prefix + name)
    for name in inside:
        found.inside[prefix + name] = head_of(top / name)
        _collect(top / name, f"{prefix}{name}/", left_out, found)


def _hidden(top: Path) -> list[str]:
    """Files that differ, where git was told not to look (`--assume-unchanged`, `--skip-worktree`)."""
    told = (entry for entry in _names(git(top, "ls-files", "-v", "-z")) if entry[0].islower() or entry[0] == "S")
    names = [entry[2:] for entry in told if (top / entry[2:]).is_file() and "\n" not in entry]
    if not names:
        return []
    staged = {entry.partition("\t")[2]: entry.split()[1] for entry in _names(git(top, "ls-files", "--stage", "-z"))}
    now = git(top, "hash-object", "--stdin-paths", given="\n".join(names).encode(errors="surrogateescape"))
    return [name for name, found in zip(names, now.decode().split(), strict=True) if staged.get(name) != found]


def ignored(top: Path, names: Iterable[str]) -> list[str]:
    """Return which of these files, or the files of these folders, git ignores."""
    paths = [f":(top,literal){name}" for name in names]
    if not paths:
        return []
    return list(_names(git(top, "ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--", *paths)))


def _submodules(top: Path) -> list[str]:
    staged = _names(git(top, "ls-files", "--stage", "-z"))
    return [entry.partition("\t")[2] for entry in staged if entry.startswith("160000 ")]


def export(repository: Path, commit: str, folder: Path) -> None:
    """Write the files of a commit below a folder, as a checkout would; the repository's own index stays as it is."""
    with tempfile.TemporaryDirectory(prefix="tbench-index-") as place:
        index = f"{place}/index"
        git(repository, "read-tree", commit, lfs=False, index=index)
        git(repository, "checkout-index", "--all", "--force", f"--prefix={folder}/", lfs=False, index=index)


@dataclass(frozen=True)
class Worktree:
    """A working tree in git's own list. `locked` is the reason for which git must not remove it, if it is locked."""

    folder: Path
    locked: str | None


def worktrees(repository: Path) -> list[Worktree]:
    """The working trees of a repository, as git lists them."""
    found: list[Worktree] = []
    for block in git(repository, "worktree", "list", "--porcelain", "-z").split(b"\0\0"):
        lines = dict(os.fsdecode(line).partition(" ")[::2] for line in block.split(b"\0") if line)
        if "worktree" in lines:
            found.append(Worktree(Path(lines["worktree"]), lines.get("locked")))
    return found


_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n")
_POINTER_BYTES = 1024


@dataclass(frozen=True)
class LfsFiles:
    """The files that have their content, and those that are pointers in the project too."""

    files: list[str] = field(default_factory=list)
    pointers: list[str] = field(default_factory=list)


def fill(worktree: Path, top: Path, before: Collection[str] = ()) -> LfsFiles:
    """Put content in place of the pointers in a worktree of the project at `top`; what was filled `before` must be."""
    found = LfsFiles()
    store = Path(os.fsdecode(git(worktree, "rev-parse", "--git-common-dir").rstrip(b"\n"))) / "lfs" / "objects"
    for name in _names(git(worktree, "ls-files", "-z", ":(attr:filter=lfs)")):
        oid = _named_by(worktree / name)
        if oid is None:
            continue
        wanted = name in before or _named_by(top / name) is None
        places = (store / oid[:2] / oid[2:4] / oid, top / name)
        content = next((place for place in places if wanted and _is_object(place, oid)), None)
        if content is None:
            found.pointers.append(name)
        else:
            shutil.copyfile(content, worktree / name)
            found.files.append(name)
    lost = [name for name in before if name not in found.files]
    if lost:
        raise UserError(f"the content of {some(lost)} (Git LFS) no longer exists", where=str(top))
    return found


def _named_by(path: Path) -> str | None:
    """The object that a pointer names; None for any other file."""
    found = _POINTER.match(read_plain(path, _POINTER_BYTES) or b"")
    return found[1].decode() if found is not None else None


def _is_object(path: Path, oid: str) -> bool:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == oid
    except OSError:
        return False


def _names(output: bytes) -> Iterator[str]:
    return (os.fsdecode(name) for name in output.split(b"\0") if name)
