"""A workspace in a folder of a test: the scripts of a trial's workspace, run here."""

import asyncio
import os
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from terminalbench.workflow import tree
from terminalbench.workflow.model import CommandRun

GIT_ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


class FolderWorkspace:
    """A `Workspace` over a folder. `commands` are those that were run, in order."""

    def __init__(self, root: Path, keep: Path, env: Mapping[str, str] | None = None) -> None:
        self.tree = tree.Tree(str(root), str(keep))
        self.root = root
        self.env = {**GIT_ENV, **(env or {})}
        self.commands: list[Sequence[str]] = []
        self._script(tree.begin(self.tree))
        self._script(tree.listing(self.tree))
        self.base = tree.read_listing(Path(self.tree.made).read_bytes())

    async def files(self) -> Sequence[str]:
        return list(self.base)

    async def read(self, path: str) -> bytes | None:
        return (await self.read_many([path])).get(path)

    async def read_many(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        self._script(tree.archive(self.tree))
        with tarfile.open(self.tree.made, "r:", errors="surrogateescape") as archive:
            plain = {member.name: member for member in archive if member.isreg()}
            files = {path: archive.extractfile(plain[path]) for path in paths if path in plain}
            return {path: file.read() for path, file in files.items() if file is not None}

    async def run(
        self, command: Sequence[str], *, timeout_sec: float, files: Mapping[str, bytes | None] | None = None
    ) -> CommandRun:
        self.commands.append(command)
        self._script(tree.checkout(self.tree), tree.attempt(files or {}, self.base))
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", tree.inside(self.tree, command),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=self.env, start_new_session=True,
        )  # fmt: skip
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
            code = process.returncode
        except TimeoutError:
            os.killpg(process.pid, 9)
            out, err = await process.communicate()
            code = None
        self._script(tree.reset(self.tree))
        return CommandRun(code, out.decode(errors="replace"), err.decode(errors="replace"))

    async def diff(self, files: Mapping[str, bytes | None]) -> str:
        given = tree.attempt(files, self.base)
        self._script(tree.diff(self.tree), given)
        try:
            return Path(self.tree.made).read_bytes().decode()
        except UnicodeDecodeError:
            self._script(tree.diff(self.tree, binary=True), given)
            return Path(self.tree.made).read_bytes().decode()

    async def apply(self, patch: str) -> str | None:
        Path(self.tree.given).write_bytes(patch.encode(errors="surrogateescape"))
        ran = self._ran(tree.apply(self.tree))
        return ran.stderr.decode(errors="replace").strip() or "git refused it" if ran.returncode else None

    def _ran(self, script: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["sh", "-c", script], capture_output=True, env=self.env, timeout=600, check=False)

    def _script(self, script: str, given: bytes | None = None) -> None:
        if given is not None:
            Path(self.tree.given).write_bytes(given)
        ran = self._ran(script)
        if ran.returncode:
            raise RuntimeError(ran.stderr.decode(errors="replace"))


def repository(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """A git repository with one commit of `files`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "base", "--allow-empty"]):
        subprocess.run([*git, *words], cwd=root, check=True, env=GIT_ENV, capture_output=True, timeout=600)
    return root
