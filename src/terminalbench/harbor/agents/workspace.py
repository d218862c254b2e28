"""The repository of a trial as a guarded workflow works on it: inside the trial's environment, by a git folder of our
own outside the tree (`workflow.tree`).

The tree with which the agent begins is the base. It is kept twice: as a commit in that git folder, to which the tree is
reset, and as an archive on the host, from which files are read. What a test writes into the tree, `.git` included,
changes neither. What git ignores (dependencies, build output) stays where it is.
"""

import asyncio
import secrets
import shlex
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from harbor.environments.base import BaseEnvironment

from terminalbench.errors import TbenchError
from terminalbench.files import write_bytes
from terminalbench.harbor.preparation import EnvironmentBrokenError
from terminalbench.workflow import tree as scripts
from terminalbench.workflow.model import CommandRun

Changes = Mapping[str, bytes | None]
_GIT_SEC = 900
_KILL_SEC = 5
_GRACE_SEC = 30
_CLOSE_SEC = 20.0
_OUTPUT_BYTES = 200_000
_PLACES = "/var/lib /opt /var/tmp /tmp"
_FIND = r"""
command -v git >/dev/null || { echo 'there is no git in the environment of this task' >&2; exit 1; }
cd -- "$TREE" && for place in $PLACES; do
  if mkdir -m 700 "$place/$NAME" 2>/dev/null; then pwd -P; echo "$place/$NAME"; exit 0; fi
done
"""


class WorkspaceError(RuntimeError):
    """The environment could not do what a workflow needs of it: there is no git, or a command of ours failed."""


class TrialWorkspace:
    """The port `Workspace` of a workflow, in the environment of one trial. Made by `open`, ended by `close`."""

    def __init__(self, environment: BaseEnvironment, tree: scripts.Tree, hidden: Sequence[str] = ()) -> None:
        self.tree = tree
        names = [name for name in hidden if name.isidentifier()]
        self._unset = f"unset {' '.join(names)}\n" if names else ""
        self._environment = environment
        self._folder = tempfile.TemporaryDirectory(prefix="tbench-workspace-", ignore_cleanup_errors=True)
        self._archive = Path(self._folder.name) / "base.tar"
        self._base: dict[str, str] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._patched = False

    @classmethod
    async def open(cls, environment: BaseEnvironment, workdir: str | None, hidden: Sequence[str] = ()) -> Self:
        """Take the tree as it is now as the base. Raises `WorkspaceError`.

        No command sees the `hidden` variables: Harbor gives an agent's keys to all that runs in its environment, and
        this agent needs them on the host only.
        """
        env = {"TREE": workdir or ".", "NAME": f"tbench-{secrets.token_hex(8)}", "PLACES": _PLACES}
        done = await environment.exec(_FIND, env=env, timeout_sec=_GIT_SEC)
        told = (done.stdout or "").splitlines()
        if done.return_code != 0 or len(told) != 2:
            raise WorkspaceError(f"the repository cannot be read: {_said(done.stderr, done.stdout)}")
        made = cls(environment, scripts.Tree(*told), hidden)
        try:
            await made._read_base()
        except BaseException:
            await made.close()
            raise
        return made

    async def _read_base(self) -> None:
        await self._script(scripts.begin(self.tree))
        self._base = scripts.read_listing(await self._made(scripts.listing(self.tree)))
        await self._script(scripts.archive(self.tree))
        await self._environment.download_file(self.tree.made, self._archive)
        with tarfile.open(self._archive, "r:", errors="surrogateescape") as archive:
            self._places = {m.name: (m.offset_data, m.size) for m in archive if m.isreg()}

    async def close(self) -> None:
        """Remove what is ours: the copy on the host, and the git folder, as far as the environment still answers."""
        self._folder.cleanup()
        try:
            await asyncio.wait_for(self._exec(f"rm -rf -- {self.tree.keep}"), _CLOSE_SEC)
        except (TimeoutError, RuntimeError, OSError, TbenchError) as error:
            self._environment.logger.debug("the git folder of the workflow was not removed: %s", error)

    async def files(self) -> Sequence[str]:
        """The paths of all files of the base, sorted."""
        return list(self._base)

    async def read(self, path: str) -> bytes | None:
        """A plain file of the base; None when there is none."""
        return (await self.read_many([path])).get(path)

    async def read_many(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Plain files of the base; those that are none are left out."""
        found: dict[str, bytes] = {}
        with self._archive.open("rb") as archive:
            for path in paths:
                if (place := self._places.get(path)) is not None:
                    archive.seek(place[0])
                    found[path] = archive.read(place[1])
        return found

    async def run(self, command: Sequence[str], *, timeout_sec: float, files: Changes | None = None) -> CommandRun:
        """Run a command on the base with `files` over it. What it leaves running is ended; then the tree is reset."""
        if files:
            await self._script(scripts.checkout(self.tree), scripts.attempt(files, self._base))
        elif self._patched:
            await self._script(scripts.reset(self.tree))
        self._patched = False
        try:
            return await self._ran(command, timeout_sec)
        finally:
            await self._script(scripts.reset(self.tree))

    async def _ran(self, command: Sequence[str], timeout_sec: float) -> CommandRun:
        out, err = f"{self.tree.keep}/out", f"{self.tree.keep}/err"
        inner = shlex.quote(scripts.inside(self.tree, command))
        # `timeout` leads a process group, whose stragglers must not write into the tree of the next attempt.
        script = self._unset + (
            f"timeout -k {_KILL_SEC} {timeout_sec:g} sh -c {inner} >{out} 2>{err} </dev/null & "
            "p=$!; wait $p; c=$?; kill -9 -- -$p 2>/dev/null; "
            f"tail -c {_OUTPUT_BYTES} {out}; tail -c {_OUTPUT_BYTES} {err} >&2; exit $c"
        )
        limit = int(timeout_sec) + _KILL_SEC + _GRACE_SEC
        done = await self._environment.exec(script, cwd=self.tree.root, timeout_sec=limit)
        stopped = done.return_code in (124, 137)  # at its limit, or killed because it would not stop
        return CommandRun(None if stopped else done.return_code, done.stdout or "", done.stderr or "")

    async def diff(self, files: Changes) -> str:
        """Return git's diff when `files` are written over the base; where that is no text, a binary patch."""
        given = scripts.attempt(files, self._base)
        try:
            return (await self._made(scripts.diff(self.tree), given)).decode()
        except UnicodeDecodeError:
            return (await self._made(scripts.diff(self.tree, binary=True), given)).decode()

    async def apply(self, patch: str) -> str | None:
        """Leave the base tree with `patch` applied. When it does not apply: what git said, and the tree is the base."""
        if not patch.strip():
            await self._script(scripts.reset(self.tree))
            return None
        await self._give(patch.encode(errors="surrogateescape"))
        await self._script(scripts.reset(self.tree))
        taken = await self._exec(scripts.apply(self.tree))
        if taken.code != 0:
            await self._script(scripts.reset(self.tree))
            return _said(taken.stderr)
        self._patched = True
        return None

    async def _give(self, data: bytes) -> None:
        file = Path(self._folder.name) / "given"
        write_bytes(file, data, durable=False)
        await self._environment.upload_file(file, self.tree.given)

    async def _made(self, script: str, given: bytes | None = None) -> bytes:
        """Return what a script leaves in `made`."""
        await self._script(script, given)
        file = Path(self._folder.name) / "made"
        await self._environment.download_file(self.tree.made, file)
        return file.read_bytes()

    async def _script(self, script: str, given: bytes | None = None) -> None:
        """Run one of our scripts, which has to end well."""
        if given is not None:
            await self._give(given)
        ran = await self._exec(script)
        if ran.code == 0:
            return
        said = _said(ran.stderr, ran.stdout)
        if (await self._exec(f"test -f {self.tree.git_dir}/refs/base")).code != 0:
            raise EnvironmentBrokenError(f"the tests of the workflow have destroyed its git folder: {said}")
        raise WorkspaceError(f"git failed in the environment (exit {ran.code}): {said}")

    async def _exec(self, script: str) -> CommandRun:
        done = await self._environment.exec(script, cwd="/", timeout_sec=_GIT_SEC)
        return CommandRun(done.return_code, done.stdout or "", done.stderr or "")


def _said(*texts: str | None) -> str:
    return "\n".join(filter(None, (text and text.strip()[-2000:] for text in texts))) or "no reason given"
