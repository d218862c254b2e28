"""The repository of a trial as a guarded workflow works on it: inside the trial's environment, by a git folder of our
own outside the tree.

The tree with which the trial begins is the base. It is kept twice: as a commit in that git folder, to which the tree is
reset, and as an archive on the host, from which files are read. What a test writes into the tree, `.git` included,
changes neither. What git ignores (dependencies, build output) stays where it is.
"""

import hashlib
import shlex
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Self

from harbor.environments.base import BaseEnvironment

from terminalbench.files import write_bytes
from terminalbench.harbor.verifier import EnvironmentBrokenError
from terminalbench.workflow.model import Ran

Changes = Mapping[str, bytes | None]
_GIT_SEC = 900
_KILL_SEC = 5
_GRACE_SEC = 30
_OUTPUT_BYTES = 200_000
_NO_OBJECT = "0" * 40
_PLAIN = "* -text -eol -filter -ident -working-tree-encoding -export-ignore -export-subst"
"""Bytes are bytes, whatever the attributes in the tree say."""
_OPEN = r"""
set -e
command -v git >/dev/null || { echo 'there is no git in the environment of this task' >&2; exit 1; }
for place in /var/lib /opt /var/tmp /tmp; do
  own=$(mktemp -d "$place/tbench-git.XXXXXXXXXX" 2>/dev/null) && break
done
[ -n "$own" ]
cd "$TREE"; tree=$(pwd -P)
export GIT_DIR="$own/git" GIT_WORK_TREE="$tree" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null HOME="$own"
git init -q --template= >/dev/null
mkdir -p "$GIT_DIR/info" "$GIT_DIR/objects/info"
printf '%s\n' "$PLAIN" > "$GIT_DIR/info/attributes"
git config gc.auto 0; git config core.autocrlf false; git config core.hooksPath /dev/null
if [ -e "$tree/.git" ]; then
  theirs=$(GIT_DIR="$tree/.git" git rev-parse --git-common-dir)
  [ ! -f "$theirs/info/exclude" ] || cat "$theirs/info/exclude" > "$GIT_DIR/info/exclude"
  if head=$(GIT_DIR="$tree/.git" git rev-parse -q --verify 'HEAD^{tree}'); then
    printf '%s/objects\n' "$theirs" > "$GIT_DIR/objects/info/alternates"
    git read-tree "$head"
  fi
fi
find . -path ./.git -prune -o -type d -empty -print > "$own/empty"
git add -A 2>/dev/null || git add -A --ignore-errors 2>/dev/null || true
made=$(git -c user.name=base -c user.email=base@localhost commit-tree -m base "$(git write-tree)")
git update-ref refs/heads/base "$made"
git -c pack.window=0 repack -a -d -q
rm -f "$GIT_DIR/objects/info/alternates"
git archive --format=tar -o "$own/base.tar" "$made"
printf '%s\n%s\n%s\n' "$own" "$tree" "$made"
"""
_RESET = (
    "git read-tree --reset -u {to} && git clean -ffdq && "
    'while IFS= read -r folder; do mkdir -p "$folder"; done < {own}/empty'
)


class WorkspaceError(RuntimeError):
    """The environment could not do what a workflow needs of it: there is no git, or a command of ours failed."""


class BadPath(ValueError):
    """A path that leads out of the repository, or into git's own folder."""


class _File(NamedTuple):
    """One file of the base, in the archive on the host."""

    offset: int
    size: int
    executable: bool


class TrialWorkspace:
    """The port `Workspace` of a workflow, in the environment of one trial. Made by `open`, ended by `close`."""

    def __init__(self, environment: BaseEnvironment, own: str, tree: str, base: str) -> None:
        self._environment = environment
        self._own, self.tree, self._base = own, tree, base
        self._folder = tempfile.TemporaryDirectory(prefix="tbench-workspace-", ignore_cleanup_errors=True)
        self._archive = Path(self._folder.name) / "base.tar"
        self._files: dict[str, _File] = {}
        self._trees: dict[str, str] = {}
        self._uploads = 0

    @classmethod
    async def open(cls, environment: BaseEnvironment, workdir: str | None) -> Self:
        """Take the tree as it is now as the base. Raises `WorkspaceError`."""
        done = await environment.exec(_OPEN, env={"TREE": workdir or ".", "PLAIN": _PLAIN}, timeout_sec=_GIT_SEC)
        told = (done.stdout or "").splitlines()
        if done.return_code != 0 or len(told) != 3:
            raise WorkspaceError(f"the repository cannot be read: {_said(done.stderr, done.stdout)}")
        made = cls(environment, *told)
        try:
            await environment.download_file(f"{told[0]}/base.tar", made._archive)
            made._read_archive()
        except BaseException:
            made._folder.cleanup()
            raise
        return made

    def _read_archive(self) -> None:
        with tarfile.open(self._archive, "r:") as archive:
            for member in archive:
                if member.isreg() and member.name.isprintable():
                    self._files[member.name] = _File(member.offset_data, member.size, bool(member.mode & 0o100))

    def close(self) -> None:
        """Forget the copy on the host."""
        self._folder.cleanup()

    async def files(self) -> Sequence[str]:
        """The paths of all files of the base, sorted."""
        return sorted(self._files)

    async def read(self, path: str) -> bytes | None:
        """A file of the base; None when there is none."""
        found = self._files.get(path)
        if found is None:
            return None
        with self._archive.open("rb") as archive:
            archive.seek(found.offset)
            return archive.read(found.size)

    async def run(self, command: Sequence[str], *, timeout_sec: float, files: Changes | None = None) -> Ran:
        """Run a command on the base with `files` over it. All that it starts ends with it; then the tree is reset."""
        await self._check_out(await self._tree_of(files or {}))
        try:
            return await self._ran(command, timeout_sec)
        finally:
            await self._check_out(self._base, files or {})

    async def _ran(self, command: Sequence[str], timeout_sec: float) -> Ran:
        out, err = f"{self._own}/out", f"{self._own}/err"
        # `timeout` leads a process group, whose stragglers must not write into the next attempt's tree.
        script = (
            f"timeout -k {_KILL_SEC} {timeout_sec:g} {shlex.join(command)} >{out} 2>{err} </dev/null & "
            f"p=$!; wait $p; c=$?; "
            f"kill -9 -- -$p 2>/dev/null; tail -c {_OUTPUT_BYTES} {out}; tail -c {_OUTPUT_BYTES} {err} >&2; exit $c"
        )
        limit = int(timeout_sec) + _KILL_SEC + _GRACE_SEC
        done = await self._environment.exec(script, cwd=self.tree, timeout_sec=limit)
        stopped = done.return_code in (124, 137)  # at its limit, or killed because it would not stop
        return Ran(None if stopped else done.return_code, done.stdout or "", done.stderr or "")

    async def diff(self, files: Changes) -> str:
        """What git says has changed when `files` are written over the base, as text: other bytes as a binary patch."""
        tree = await self._tree_of(files)
        binary = [path for path in files if not await self._is_text(path, files[path])]
        out = f"{self._own}/diff"
        show = f"git --literal-pathspecs diff-tree -p -r --binary --no-renames --no-ext-diff {self._base} {tree}"
        attributes = f"{self._own}/git/info/attributes"
        script = f"{show} > {out}"
        if binary:
            text = sorted(set(files) - set(binary))
            script = f"{_paths(show, text)} > {out}" if text else f": > {out}"
            script += (
                f"; echo '* -diff' >> {attributes}; {_paths(show, binary)} >> {out}; echo '{_PLAIN}' > {attributes}"
            )
        await self._git(script)
        place = Path(self._folder.name) / "diff"
        await self._environment.download_file(out, place)
        return place.read_bytes().decode()

    async def _is_text(self, path: str, new: bytes | None) -> bool:
        try:
            (await self.read(path) or b"").decode()
            (new or b"").decode()
        except UnicodeDecodeError:
            return False
        return True

    async def apply(self, patch: str) -> str | None:
        """Leave the base tree with `patch` applied. When it does not apply: what git said, and the tree is the base."""
        if not patch.strip():
            await self._check_out(self._base)
            return None
        place = await self._upload({"patch.diff": patch.encode("utf-8", errors="surrogateescape")})
        index = f"export GIT_INDEX_FILE={self._own}/index.apply; git read-tree {self._base}"
        taken = await self._git(
            f"{index} && {{ git apply --cached --whitespace=nowarn {place}/patch.diff || exit 9; }} && git write-tree",
            refused=9,
        )
        if taken.code == 9:
            await self._check_out(self._base)
            return _said(taken.stderr)
        await self._check_out(taken.stdout.split()[-1])
        return None

    async def _tree_of(self, files: Changes) -> str:
        """The id of the tree that is the base with `files` over it, written by git: through no link, out of nowhere."""
        if not files:
            return self._base
        for path in files:
            check_path(path)
        digest = hashlib.sha256()
        for path in sorted(files):
            content = files[path]
            digest.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
            digest.update(content or b"")
        known = digest.hexdigest()
        if known not in self._trees:
            self._trees[known] = await self._write_tree(files)
        return self._trees[known]

    async def _write_tree(self, files: Changes) -> str:
        upload: dict[str, bytes] = {}
        entries: list[bytes] = []
        for number, (path, content) in enumerate(sorted(files.items())):
            mode, name = "0", _NO_OBJECT
            if content is not None:
                upload[f"{number:06d}"] = content
                base = self._files.get(path)
                mode = "100755" if base is not None and base.executable else "100644"
                name = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
            entries.append(f"{mode} {name}\t{path}\0".encode())
        place = await self._upload({**upload, "entries": b"".join(entries)})
        hashed = (
            f"find {place} -type f ! -name entries -print | git hash-object -w --no-filters --stdin-paths >/dev/null"
        )
        written = await self._git(
            f"{hashed if upload else ':'} && export GIT_INDEX_FILE={self._own}/index.write && "
            f"git read-tree {self._base} && "
            f"git update-index -z --replace --index-info < {place}/entries && git write-tree"
        )
        return written.stdout.split()[-1]

    async def _upload(self, files: Mapping[str, bytes]) -> str:
        """Put files into a new folder of ours in the environment; where it is."""
        self._uploads += 1
        target = f"{self._own}/in{self._uploads}"
        with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            for name, content in files.items():
                write_bytes(Path(folder) / name, content, durable=False)
            await self._environment.upload_dir(folder, target)
        return target

    async def _check_out(self, tree: str, written: Changes | None = None) -> None:
        """Make the tree `tree`: files that are neither in it nor ignored are gone, `written` ones in any case."""
        gone = [path for path, content in (written or {}).items() if content is not None and path not in self._files]
        also = f"rm -f -- {shlex.join(gone)}; " if gone else ""
        await self._git(also + _RESET.format(to=tree, own=self._own))

    async def _git(self, script: str, refused: int | None = None) -> Ran:
        """Run a script in the tree that speaks to our git folder."""
        env = {
            "GIT_DIR": f"{self._own}/git",
            "GIT_WORK_TREE": self.tree,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "HOME": self._own,
        }
        done = await self._environment.exec(script, cwd=self.tree, env=env, timeout_sec=_GIT_SEC)
        if done.return_code in (0, refused):
            return Ran(done.return_code, done.stdout or "", done.stderr or "")
        said = _said(done.stderr, done.stdout)
        left = await self._environment.exec(f"test -f {self._own}/git/refs/heads/base", cwd="/", timeout_sec=_GIT_SEC)
        if left.return_code != 0:
            raise EnvironmentBrokenError(f"what the workflow's tests did has destroyed its git folder: {said}")
        raise WorkspaceError(f"git failed in the environment (exit {done.return_code}): {said}")


def check_path(path: str) -> None:
    """Refuse a path that is not one of a file in the repository. Raises `BadPath`."""
    parts = PurePosixPath(path).parts
    wrong = not parts or path != "/".join(parts) or "\0" in path or path.startswith("/")
    if wrong or ".." in parts or any(part.lower() == ".git" for part in parts):
        raise BadPath(f"{path!r} is not the path of a file in the repository")


def _paths(show: str, paths: Sequence[str]) -> str:
    return f"{show} -- {shlex.join(paths)}"


def _said(*texts: str | None) -> str:
    return "\n".join(filter(None, (text and text.strip()[-2000:] for text in texts))) or "no reason was given"
