"""The sandbox that an environment runs, and what is known of it: its life, its commands and its files."""

import asyncio
import contextlib
import shutil
import tempfile
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, override

from harbor.environments.base import BaseEnvironment
from harbor.utils.path_filter import filter_paths_by_patterns

from terminalbench.sandbox import transfer
from terminalbench.sandbox.activity import Activity, LiveLogs, LogMirror
from terminalbench.sandbox.answers import CommandResult, LimitCounts, VerifierFolders
from terminalbench.sandbox.builds.layers import BuiltImage
from terminalbench.sandbox.compose import MAIN
from terminalbench.sandbox.compose.project import Project
from terminalbench.sandbox.compose.services import TrialServices
from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.images.manifest import ImageConfig
from terminalbench.sandbox.network.trial import TrialNetwork
from terminalbench.sandbox.plan import DEFAULT_SHARED_MB, MEGABYTE, Bind, Certificates, SandboxLimits, SandboxPlan
from terminalbench.sandbox.session import Sandbox
from terminalbench.sandbox.setups import AgentSetup, content_digest, digest_of

SHELL = "bash"
_SHORT_SEC = 30

_CHUNK = 1 << 18


class RunningSandbox(BaseEnvironment, ABC):
    """An environment with at most one sandbox at a time."""

    _setup: AgentSetup | None = None
    _project: Project | None = None
    _services: TrialServices | None = None
    _sandbox: Sandbox | None = None
    _built: BuiltImage | None = None
    _seen = LimitCounts()
    _start_limits: SandboxLimits
    _scratch: str
    _binds: list[Bind]
    _network: TrialNetwork
    _certificates: Certificates
    _activity: Activity
    _mirror: LogMirror
    _live_logs: LiveLogs
    _background: list[asyncio.Task[CommandResult]]
    _uploads: contextlib.ExitStack

    async def bring_up(self, setup: Path | None = None, building: Path | None = None, hold: int | None = None) -> None:
        """Start the sandbox, in place of the one that runs; over a set-up, or to make one in the folder `building`."""
        await self.take_down()
        built, services = self._require_built(), self._services
        plan = SandboxPlan(
            built.base,
            self._start_limits,
            layers=built.layers,
            setup=setup,
            building=building,
            scratch=self._scratch if building is None else "disk",
            folders={mount["target"]: 0o777 for mount in self._mounts if self._is_log(mount)},
            binds=(*self._certificates.binds, *self._binds, *(services.binds(MAIN) if services is not None else ())),
            volumes=services.volumes(MAIN) if services is not None else (),
            shared_mb=(self._project.main.shared_mb if self._project is not None else None) or DEFAULT_SHARED_MB,
            way=self._network.way(),
            seat=services.seat(MAIN) if services is not None else None,
            host_network=self._network.settings.host,
            holds=(*built.locks, *([hold] if hold is not None else [])),
        )
        self._sandbox = await Sandbox.start(plan)
        if services is not None:
            await services.prepare_main(self._sandbox)
        if built.config.entrypoint:
            command = built.config.command if self._project is not None else []  # else Harbor replaces it
            argv = [*built.config.entrypoint, *(command or ["sh", "-c", "sleep infinity"])]
            env, account = self._merge_env(None) or {}, self._account(None)
            run = self._run(argv, cwd=self._workdir, env=env, account=account)
            self._background.append(asyncio.create_task(run))

    async def take_down(self) -> None:
        """Stop the sandbox, if one runs."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await sandbox.stop()

    async def _ready(self) -> Sandbox:
        """The sandbox as it is now; a set-up that was only answered so far is done."""
        if self._setup is not None:
            await self._setup.settle()
        return self._running()

    def _running(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxError("the sandbox is not running")
        return self._sandbox

    @property
    def _workdir(self) -> str:
        return self.task_env_config.workdir or self._image().workdir

    def _image(self) -> ImageConfig:
        return self._built.config if self._built is not None else ImageConfig("")

    def _account(self, user: str | int | None) -> str:
        """Return who a command runs as if it is to run as `user`."""
        who = self._resolve_user(user)
        return str(who) if who is not None else self._image().user or "root"

    def _require_built(self) -> BuiltImage:
        if self._built is None:
            raise SandboxError("the sandbox is not built")
        return self._built

    async def kill_processes(self) -> None:
        """End every process in the sandbox but the one that holds it; files and settings stay."""
        await (await self._ready()).kill_processes()

    async def processes(self) -> int:
        """Return how many processes there are inside."""
        done = await self._running().run([SHELL, "-c", "echo /proc/[0-9]*"], env={}, timeout_sec=_SHORT_SEC)
        return len(done.stdout.split())

    async def _run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: dict[str, str],
        account: str,
        timeout_sec: float | None = None,
        tests: VerifierFolders | None = None,
    ) -> CommandResult:
        sandbox, config = self._running(), self._image()
        self._activity.stir()
        callback = self._output_callback()

        async def on_output(text: str, stream: str) -> None:
            self._activity.stir()
            if callback is None:
                await asyncio.sleep(0)
            else:
                await callback(text, stream)  # ty: ignore[invalid-argument-type] - Harbor's stream name is a Literal

        async with self._live_logs.followed(sandbox):
            return await sandbox.run(
                argv,
                env={**self._certificates.environment, **config.env, **env},
                cwd=cwd,
                user=account,
                network=self._network.host,
                timeout_sec=timeout_sec,
                on_output=on_output,
                tests=tests,
            )

    async def _limit_notes(self) -> str:
        """One line for each limit that was reached since the last command that failed."""
        if self._sandbox is None:  # a set-up that was done before
            return ""
        try:
            counts = await self._running().counts()
        except SandboxError as error:
            return f"\nsandbox: {error}\n"
        reached = counts.reached_since(self._seen, self._running().plan.limits)
        self._seen = counts
        for text in reached:
            self.logger.warning("sandbox: %s", text)
        return "".join(f"\nsandbox: {text}\n" for text in reached)

    def _is_log(self, mount: Mapping[str, Any]) -> bool:
        """Harbor's own folders of the trial: made inside, copied out by Harbor."""
        trial = self.trial_paths.trial_dir.resolve()
        return mount["type"] == "bind" and Path(mount["source"]).resolve().is_relative_to(trial)

    def _agent_logs(self) -> str | None:
        """Return where the agent's logs are inside."""
        logs = (mount for mount in self._mounts if self._is_log(mount) and Path(mount["source"]).name == "agent")
        return next((mount["target"] for mount in logs), None)


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
