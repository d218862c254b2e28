"""The code under test, pinned: prompts, hooks, MCP servers and agents of a project as they were at one moment.

In a repository of git the pin is a detached worktree at the commit that is checked out, with the changes that are not
committed on top; without git, or without a commit, a copy. It is made from things that stay after it: the commit, the
archive beside it (`<pin>.tar`) and its record (`<pin>.json`), so that it can be made again at any time. Git's list of
worktrees has it locked, with its token as the reason: only what bears that token is ever removed.

Results, episodes, environments, caches and the folder that the pin is in are left out, unless git tracks them. Env
files are not copied: the pin has links to them, so that their values are read where they are.

The content of a file of Git LFS stands in place of its pointer, where git-lfs keeps it or the project has it, if it is
what the pointer names. Nothing is downloaded, and the program git-lfs is not needed.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from terminalbench.errors import UserError
from terminalbench.experiments.profiles import is_passing, is_source
from terminalbench.experiments.tables import DEFAULT_ENV_FILE
from terminalbench.json_files import read_json, write_json
from terminalbench.modes import make_folder
from terminalbench.runner.file_archive import (
    capture,
    digest_of,
    digest_of_all,
    files_of,
    holds_secrets,
    left_out_of,
    remove,
    unpack,
)
from terminalbench.runner.repository import (
    Differences,
    GitError,
    differences,
    export,
    fill,
    git,
    head_of,
    ignored,
    top_of,
    worktrees,
)
from terminalbench.text.numbers import some

_CAP_SYS_CHROOT = 18


_SHOWN = 8
_WHOLE = "."
"""The name of the tree itself among the repositories that are written out instead of checked out."""


class CodePin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The code under test, in `folder`. `root` is the project's folder in there, `source` the one it was made from.

    `digest` is of the commit and of all that differs from it. `notes` say what of the project is not pinned.
    """

    kind: Literal["worktree", "copy", "in-place"]
    root: str
    source: str
    commit: str | None = None
    dirty: bool = False
    digest: str | None = None
    notes: tuple[str, ...] = ()
    folder: str = ""


class PinRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sources of a pin. Names are from `top`, the top of the working tree; `files` are by their digests.

    `inside` are the commits of repositories inside, `deleted` is not in the pin, `linked` leads to the original, `lfs`
    has its content from Git LFS. `unregistered`: git does not know the folder any more; its files are there to be read.
    """

    pin: CodePin
    token: str
    top: str
    files: dict[str, str] = {}
    deleted: tuple[str, ...] = ()
    inside: dict[str, str] = {}
    linked: tuple[str, ...] = ()
    lfs: tuple[str, ...] = ()
    unregistered: bool = False


@dataclass(frozen=True)
class NamedFiles:
    """The files that an experiment names, which are pinned though git ignores them: as copies, or as links."""

    copied: tuple[Path, ...] = ()
    linked: tuple[Path, ...] = ()


def pin(
    project_root: Path,
    into: Path,
    *,
    dirty: Literal["capture", "refuse"] = "capture",
    named: NamedFiles | None = None,
) -> CodePin:
    """Pin the code of a project in the folder `into`, which is made. What is not committed is captured, or refused."""
    source, into = project_root.resolve(), into.resolve()
    if record_file(into).is_file():
        release(into)  # its night did not get as far as to use it
    elif into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UserError("already exists, and was not created by tbench", where=str(into), hint="choose another folder")
    top = top_of(source)
    commit = head_of(top) if top is not None else None
    left_out = left_out_of(top or source, into.parent)
    found = differences(top, left_out) if top is not None else Differences(changed=list(files_of(source, left_out)))
    if dirty == "refuse":
        _refuse_dirty(found, commit, top, source)
    record = _capture(source, into, top or source, commit, found, named or NamedFiles())
    try:
        _make(record, into)
    except GitError as error:
        record = _written_out(record, error)
        write_json(record_file(into), record)
        _make(record, into)
    record = _settled(record, into)
    write_json(record_file(into), record)
    return record.pin


def ensure(into: Path) -> CodePin:
    """The pin in a folder, as it was made: one that was removed is made again; one that was changed is refused."""
    into = into.resolve()
    if not record_file(into).is_file():
        raise UserError("contains no pinned code", where=str(into))
    record: PinRecord = read_json(record_file(into), PinRecord)
    if record.pin.folder != str(into):
        raise UserError(
            f"has been moved: this code was pinned at {record.pin.folder}", where=str(into), hint="move the folder back"
        )
    if record.unregistered and into.exists():
        shutil.rmtree(_aside(into), ignore_errors=True)
        into.rename(_aside(into))
    if not into.exists():
        try:
            _make(record, into)
            if record.pin.kind == "worktree":
                fill(into, Path(record.top), record.lfs)
        except GitError as error:
            if record.unregistered and _aside(into).exists():
                shutil.rmtree(into, ignore_errors=True)
                _aside(into).rename(into)
            what = f"the pinned code cannot be restored: {error.what}"
            raise UserError(what, where=str(into), hint=f"{record.top} must contain the pinned commit") from error
        write_json(record_file(into), msgspec.structs.replace(record, unregistered=False))
        shutil.rmtree(_aside(into), ignore_errors=True)
    refuse_changed(into)
    return record.pin


def refuse_changed(into: Path) -> None:
    """Raise `UserError` where a pin is not as it was made. New files are no change."""
    record: PinRecord = read_json(record_file(into), PinRecord)
    changed = list(dict.fromkeys(_changed(record, into)))
    if changed:
        raise UserError(
            f"the pinned code was changed: {some(changed, _SHOWN)}",
            where=str(into),
            hint=f"undo the change, or remove {into.name}/: it is then restored",
        )


def make_read_only(into: Path) -> bool:
    """Make a pin read-only for this process and all that it starts from now on; return whether that can be.

    It takes a mount namespace, and so root, for whom file modes would not hold. Others have `refuse_changed`.
    """
    if sys.platform != "linux":
        return False
    from terminalbench.sandbox.engine import kernel  # loads what only Linux has

    if not kernel.is_privileged():
        return False
    try:
        mounted = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
        if not kernel.effective_capabilities() >> _CAP_SYS_CHROOT & 1 or "/" not in mounted:
            return False  # what is forked for this process could not join its mounts, or would leave its root
        os.unshare(os.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
        kernel.bind_read_only(str(into))
    except OSError:
        return False
    return True


def unregister(into: Path) -> None:
    """Take a worktree that was made here out of git's list; its files stay, for who reads what was run with them.

    `ensure` makes a worktree of it again.
    """
    into = into.resolve()
    record: PinRecord = read_json(record_file(into), PinRecord)
    if record.pin.kind != "worktree" or record.unregistered or not into.is_dir():
        return
    write_json(record_file(into), msgspec.structs.replace(record, unregistered=True))
    into.rename(_aside(into))  # git removes what it finds there
    try:
        _forget(record, into)
        (_aside(into) / ".git").unlink(missing_ok=True)
    finally:
        _aside(into).rename(into)


def _aside(into: Path) -> Path:
    return into.with_name(f"{into.name}.aside")


def release(into: Path) -> None:
    """Remove a pin that was made here; its record and archive stay, so that `ensure` can make it again."""
    into = into.resolve()
    record: PinRecord = read_json(record_file(into), PinRecord)
    if record.pin.kind == "worktree":
        _forget(record, into)
    if into.is_dir():
        shutil.rmtree(into)


def pinned_path(place: CodePin, path: Path) -> Path:
    """Return where a file of the project is in its pin; a file that is not in the project's tree stays where it is."""
    found = Path(os.path.normpath(Path(place.root) / os.path.relpath(path.resolve(), place.source)))
    return found if found.is_relative_to(place.folder) else path.resolve()


def record_file(into: Path) -> Path:
    """Return what the pin in a folder was made from."""
    return into.with_name(f"{into.name}.json")


def archive_file(into: Path) -> Path:
    """The files of a pin that its commit does not have."""
    return into.with_name(f"{into.name}.tar")


def _refuse_dirty(found: Differences, commit: str | None, top: Path | None, source: Path) -> None:
    names = [*(name for name in found.changed if not holds_secrets(name)), *found.moved]
    hint = "commit the changes, or let them be captured (--dirty capture)"
    if top is None:
        raise UserError("is not in a git repository, so nothing in it is committed", where=str(source), hint=hint)
    if commit is None:
        raise UserError("its repository has no commit yet", where=str(top), hint=hint)
    if names:
        raise UserError(f"not committed: {some(names, _SHOWN)}", where=str(top), hint=hint)


def _capture(
    source: Path, into: Path, top: Path, commit: str | None, found: Differences, named: NamedFiles
) -> PinRecord:
    """Keep what the commit does not have, and say what a pin is made from."""
    linked = tuple(dict.fromkeys(_linked(source, top, found, named)))
    wanted = [*found.changed, *_named(top, named, commit)]
    files = capture(top, [name for name in wanted if name not in linked], archive_file(into))
    place = CodePin(
        kind="worktree" if commit is not None else "copy",
        root=str(into / source.relative_to(top)),
        source=str(source),
        commit=commit,
        dirty=commit is not None and bool({*found.changed, *found.moved}.difference(linked)),
        notes=tuple(f"submodule {name} is not checked out, so it is not pinned" for name in found.not_here),
        folder=str(into),
    )
    record = PinRecord(
        place,
        os.urandom(8).hex(),
        str(top),
        files,
        tuple(name for name in found.changed if name not in files and name not in linked),
        {name: at for name, at in found.inside.items() if at is not None},
        linked,
    )
    write_json(record_file(into), record)  # before git is told of the worktree: what is made is known as ours
    return record


def _named(top: Path, named: NamedFiles, commit: str | None) -> list[str]:
    """The files that are named, and that no other rule takes."""
    inside = [path for path in named.copied if path.is_relative_to(top) and path.exists()]
    names = [path.relative_to(top).as_posix() for path in inside]
    if commit is not None:
        files = ignored(top, names)
    else:
        below = ((path, files_of(path, left_out_of(path, path / ".git"))) for path in inside if path.is_dir())
        files = [f"{path.relative_to(top).as_posix()}/{name}" for path, found in below for name in found]
        files += [name for name in names if (top / name).is_file()]
    return [name for name in files if is_source(name.rpartition("/")[2]) and not holds_secrets(name)]


def _linked(source: Path, top: Path, found: Differences, named: NamedFiles) -> Iterator[str]:
    """Return what the pin has links to: env files, and what was named so."""
    yield from (name for name in found.changed if holds_secrets(name) and (top / name).exists())
    for path in (source / DEFAULT_ENV_FILE, *named.linked):
        if path.is_relative_to(top) and path != top and path.exists():
            yield path.relative_to(top).as_posix()


def _make(record: PinRecord, into: Path) -> None:
    """Make a pin from its commit, the repositories inside, and its archive. Raises `GitError`."""
    top, commit = Path(record.top), record.pin.commit or ""
    make_folder(into.parent)
    if record.pin.kind == "worktree":
        _forget(record, into)
        lock = ("--lock", "--reason", _reason(record))
        git(top, "worktree", "add", "--quiet", "--detach", *lock, str(into), commit, lfs=False)
    make_folder(into)
    for name, inner in record.inside.items():
        export(top / name, inner, into / name)
    remove(into, record.deleted)
    unpack(archive_file(into), into)
    for name in record.linked:
        target = into / name
        make_folder(target.parent)
        if target.is_symlink() or target.is_file():
            target.unlink()
        if not target.exists():
            target.symlink_to(top / name)


def _written_out(record: PinRecord, error: GitError) -> PinRecord:
    """The record of a pin for which git makes no worktree (a repository that cannot be written, an old git)."""
    if record.pin.kind != "worktree" or record.pin.commit is None:
        raise UserError(f"the code cannot be pinned: {error.what}", where=record.top) from error
    note = f"the commit was written out as a copy: {error.what}"
    place = msgspec.structs.replace(record.pin, kind="copy", notes=(*record.pin.notes, note))
    return msgspec.structs.replace(record, pin=place, inside={_WHOLE: record.pin.commit, **record.inside})


def _reason(record: PinRecord) -> str:
    return f"tbench {record.token}"


def _forget(record: PinRecord, into: Path) -> None:
    """Take a worktree that we made out of git's list; one that bears another mark is refused."""
    top = Path(record.top)
    for tree in worktrees(top) if top.is_dir() else ():
        if tree.folder != into:
            continue
        if tree.locked not in (_reason(record), "initializing"):
            raise UserError("is a worktree of git that tbench did not make", where=str(into), hint="remove it yourself")
        git(top, "worktree", "unlock", str(into))
        try:
            git(top, "worktree", "remove", "--force", str(into))
        except GitError:  # git was killed while it made it
            shutil.rmtree(into, ignore_errors=True)
            git(top, "worktree", "prune")


def _settled(record: PinRecord, into: Path) -> PinRecord:
    """The record of a pin that is made: the digests of what the worktree does not tell, and what is to be said."""
    files, notes = dict(record.files), list(record.pin.notes)
    if record.pin.kind == "worktree":
        filled = fill(into, Path(record.top))
        record = msgspec.structs.replace(record, lfs=tuple(filled.files))
        files |= {name: digest_of(into / name) or "" for name in filled.files}
        with suppress(GitError):  # whoever compares the pin says it
            known = {*files, *record.deleted, *record.linked, *record.inside}
            born = (name for name in differences(into, lambda _untracked: True).changed if name not in known)
            files |= {name: digest for name in born if (digest := digest_of(into / name))}  # by line endings or filters
        notes += [
            f"{name} is a Git LFS pointer without its content (run git lfs pull)" for name in filled.pointers[:_SHOWN]
        ]
    for name in record.inside:
        inner = (path.relative_to(into).as_posix() for path in (into / name).rglob("*"))
        files |= {one: digest for one in inner if one not in record.linked and (digest := digest_of(into / one))}
    notes += [
        f"{name} is a link that leads out of the pin" for name in list(_leading_out(into, record.linked))[:_SHOWN]
    ]
    inside = [f"{name} {commit}" for name, commit in record.inside.items()]
    digest = digest_of_all(files, record.pin.commit or "", *record.deleted, *inside)
    place = msgspec.structs.replace(record.pin, digest=digest, notes=tuple(notes))
    return msgspec.structs.replace(record, pin=place, files=files)


def _leading_out(into: Path, linked: Iterable[str]) -> Iterator[str]:
    """The links of a pin that lead out of it, but for those that we made."""
    for name in files_of(into, lambda path: path.name == ".git"):
        path = into / name
        if path.is_symlink() and name not in linked and not path.resolve().is_relative_to(into):
            yield name


def _changed(record: PinRecord, into: Path) -> Iterator[str]:
    """Return what was pinned and is not as it was. New files are no change: agents may leave some beside their code;
    nor is bytecode, which Python writes anew."""
    kept = ((name, digest) for name, digest in record.files.items() if not _changes_by_itself(name))
    yield from (name for name, digest in kept if digest_of(into / name) != digest)
    if record.pin.kind != "worktree":
        return
    known = {*record.files, *record.deleted, *record.linked, *record.inside}
    try:
        tracked = differences(into, lambda _untracked: True).changed
    except GitError as error:
        what = f"the repository of the pinned code cannot be read: {error.what}"
        raise UserError(what, where=str(into), hint=f"put {record.top} back") from error
    yield from (name for name in tracked if name not in known and not _changes_by_itself(name))
    if head_of(into) != record.pin.commit:
        yield "the commit that is checked out"


def _changes_by_itself(name: str) -> bool:
    return any(is_passing(part) for part in name.split("/"))
