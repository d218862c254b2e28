"""Files into a sandbox and out of it, as Harbor asks for them."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, override

from harbor.utils.path_filter import filter_paths_by_patterns

from terminalbench.sandbox import transfer
from terminalbench.sandbox.answers import CommandResult
from terminalbench.sandbox.plan import MEGABYTE
from terminalbench.sandbox.running import RunningSandbox
from terminalbench.sandbox.session import Sandbox
from terminalbench.sandbox.setups import content_digest, digest_of

_CHUNK = 1 << 18


class FileExchange(RunningSandbox):
    """A sandbox that files are brought into and out of."""

    @property
    def _most_bytes(self) -> int:
        """Return how much one download may bring out."""
        return 2 * self._running().plan.limits.storage_mb * MEGABYTE

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        source = Path(source_path)
        await self._put(source, target_path, transfer.pack_file(source), rename=source.name)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        source = Path(source_dir)
        await self._put(source, target_dir, transfer.pack_folder(source))

    async def _put(
        self, source: Path, target: str, write: Callable[[BinaryIO], None], *, rename: str | None = None
    ) -> None:
        if not source.exists():
            raise FileNotFoundError(f"{source}, which should be copied to {target}, does not exist")
        if self._setup is None or self._setup.is_over:
            await (await self._ready()).put(target, write, rename=rename)
            return
        # It may be done later, or once more, when the agent has removed what it copied from.
        kept = self._uploads.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  closed with the others
        await asyncio.to_thread(write, kept)

        def again(stream: BinaryIO) -> None:
            kept.seek(0)
            shutil.copyfileobj(kept, stream, _CHUNK)

        async def do() -> CommandResult:
            await self._running().put(target, again, rename=rename)
            return CommandResult(0, "", "")

        content = await asyncio.to_thread(content_digest, source)
        await self._setup.call(digest_of("put", target, rename, content), do)

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await self._take_file(await self._ready(), source_path, Path(target_path))

    async def _take_file(self, sandbox: Sandbox, source: str, target: Path) -> None:
        if target.is_dir():
            target /= Path(source).name
        await sandbox.get(source, transfer.unpack_file(target, self._most_bytes), single=True)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await self._take(source_dir, target_dir)

    @override
    async def download_dir_with_exclusions(
        self, *, source_dir: str, target_dir: Path | str, exclude: list[str]
    ) -> None:
        await self._take(source_dir, target_dir, exclude=exclude)

    @override
    async def download_dir_filtered(
        self,
        *,
        source_dir: str,
        target_dir: Path | str,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        protect: Sequence[str] | None = None,
    ) -> None:
        paths = await (await self._ready()).list_files(source_dir)
        selected = filter_paths_by_patterns(paths, include=include, exclude=exclude)
        selected += [path for path in paths if path in (protect or ()) and path not in selected]
        await self._take(source_dir, target_dir, names=selected)

    async def _take(
        self,
        source: str,
        target: Path | str,
        *,
        names: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        sandbox: Sandbox | None = None,
    ) -> None:
        """Bring a folder out as far as it can be taken, and say what was left."""
        sandbox = sandbox or await self._ready()
        if source == self._agent_logs():
            self._mirror.remove()
        read = transfer.unpack_folder(Path(target), self._most_bytes)
        left = await sandbox.get(source, read, names=names, exclude=exclude, limit_bytes=self._most_bytes)
        if left.count:
            self.logger.warning(
                "sandbox: %d files or folders of %s stay inside (nested too deep, too many or too large), as %s",
                left.count,
                source,
                left.example,
            )
