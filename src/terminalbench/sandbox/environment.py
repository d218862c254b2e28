"""The Harbor environment `container_env = "local"`: a sandbox of namespaces and overlays on this machine.

    "environment": {"import_path": "terminalbench.sandbox.environment:LocalSandbox",
                    "kwargs": {"images": {"node:*": "/folder", "debian:*": "host"}, "scratch": "memory"}}

All kwargs are optional. See docs/sandbox.md for what it isolates, limits and refuses.
"""

import asyncio
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, override

from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import require_agent_environment_definition
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.config import ResourceMode
from harbor.utils.path_filter import filter_paths_by_patterns

from terminalbench.errors import did_you_mean
from terminalbench.sandbox import transfer
from terminalbench.sandbox.activity import Activity, LiveLogs
from terminalbench.sandbox.answers import Counts, Finished
from terminalbench.sandbox.base import HOST
from terminalbench.sandbox.cache import collect_once
from terminalbench.sandbox.certificates import Certificates
from terminalbench.sandbox.engine import views
from terminalbench.sandbox.errors import Refused, SandboxError
from terminalbench.sandbox.handover import Handed, Place, to_verifier
from terminalbench.sandbox.image.build import Builds, Built, build, define
from terminalbench.sandbox.image.needs import fetch_missing, says_host_base
from terminalbench.sandbox.image.table import ImageTable
from terminalbench.sandbox.images.manifest import ImageConfig
from terminalbench.sandbox.network.trial import TrialNetwork
from terminalbench.sandbox.plan import MEGABYTE, Bind, Limits, Plan, limits_for
from terminalbench.sandbox.probe import probe
from terminalbench.sandbox.session import Sandbox
from terminalbench.sandbox.system import system_folders

SCRATCHES = ("memory", "disk")
_SHELL = "bash"
_KNOWN = {*inspect.signature(BaseEnvironment.__init__).parameters} - {"self", "args", "kwargs"}


class LocalSandbox(BaseEnvironment):
    """A sandbox on this machine, without daemon, image registry or root."""

    preflight_notes: tuple[str, ...] = ()
    """What the last preflight found worth saying: limits that do not hold here as they do elsewhere."""

    def __init__(
        self,
        *args: Any,
        images: Mapping[str, str] | None = None,
        pins: Mapping[str, str] | None = None,
        prepared_at: float | None = None,
        ca: str = "",
        scratch: str = "memory",
        network: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        """`images` maps patterns of images to "host", to a folder or to another image, `pins` images to digests;
        builds that failed after `prepared_at` are not tried again; `ca` says whose certificates are trusted;
        `scratch` says where written files go: "memory" (limited exactly) or "disk" (limited by measuring);
        `network` is what may be reached in each phase (see `network.trial`)."""
        options = ("images", "pins", "prepared_at", "ca", "scratch", "network")
        for name in kwargs:
            if name not in _KNOWN:
                raise Refused(f'the local sandbox has no option "{name}"', hint=did_you_mean(name, options))
        if scratch not in SCRATCHES:
            raise Refused(f'scratch = "{scratch}"', hint='use "memory" or "disk"')
        self._images, self._pins = dict(images or {}), dict(pins or {})
        self._prepared_at, self._certificates = prepared_at, Certificates(ca)
        self._scratch = scratch
        self._sandbox: Sandbox | None = None
        self._built: Built | None = None
        self._seen = Counts()
        self._handed: list[str] | None = None
        self._background: list[asyncio.Task[Finished]] = []
        super().__init__(*args, **kwargs)
        asked = [self._network_policy, *self._phase_network_policies]
        self._network = TrialNetwork(network, self.trial_paths.trial_dir, asked)
        self._network.check(self.environment_dir.parent)
        self._activity = Activity(self.trial_paths.trial_dir)
        self._live_logs = LiveLogs(self._agent_logs(), self._activity)

    @staticmethod
    @override
    def type() -> str:
        return "local"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        """Log folders are not mounted but copied out: a link, a pipe or a setuid file in them stays inside."""
        return EnvironmentCapabilities(
            disable_internet=True,
            dynamic_network_policy=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv6_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            network_allowlist_ipv6_cidrs=True,
        )

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True)

    @classmethod
    @override
    def preflight(cls) -> None:
        found = probe()
        if not found.works:
            raise SystemExit("\n".join(found.lines))
        cls.preflight_notes = found.notes

    # What a task may ask for

    @override
    def _validate_definition(self) -> None:
        require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)
        for name in ("docker-compose.yaml", "docker-compose.yml"):
            if (self.environment_dir / name).exists():
                raise Refused("a task with Docker Compose services", where=str(self.environment_dir / name))
        table = ImageTable(self._images, self._pins, host=says_host_base(self.environment_dir.parent))
        self._definition = define(self.environment_dir, self.task_env_config.docker_image, table)
        has_dockerfile = (self.environment_dir / "Dockerfile").is_file()
        if not self._enable_environment_dir_upload and self._definition.base == HOST and not has_dockerfile:
            raise Refused(f"the verifier image {self._definition.image}, which brings its own tests")
        self._binds = [self._bind(mount) for mount in self._mounts if not self._is_log(mount)]

    @override
    def _validate_extra_docker_compose_support(self) -> None:
        if self.extra_docker_compose_paths:
            raise Refused("extra_docker_compose", where=str(self.environment_dir))

    @override
    def _validate_gpu_support(self) -> None:
        if self._effective_gpus > 0:
            raise Refused(f"a task that needs {self._effective_gpus} GPU(s)", where=str(self.environment_dir))

    def _is_log(self, mount: Mapping[str, Any]) -> bool:
        """Harbor's own folders of the trial: made inside, copied out by Harbor."""
        trial = self.trial_paths.trial_dir.resolve()
        return mount["type"] == "bind" and Path(mount["source"]).resolve().is_relative_to(trial)

    def _agent_logs(self) -> str | None:
        """Where the agent's logs are inside."""
        logs = (mount for mount in self._mounts if self._is_log(mount) and Path(mount["source"]).name == "agent")
        return next((mount["target"] for mount in logs), None)

    def _bind(self, mount: Mapping[str, Any]) -> Bind:
        if mount["type"] != "bind":
            raise Refused(f"a mount of type {mount['type']} on {mount['target']}")
        source = Path(mount["source"]).expanduser().resolve()
        if not source.exists():
            raise Refused(f"the mount source {source} does not exist", hint="create it or correct environment.mounts")
        return Bind(str(source), mount["target"], bool(mount.get("read_only")))

    def _limits(self) -> Limits:
        config = self.task_env_config
        limits = limits_for(
            self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT),
            config.storage_mb,
            self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT),
            scratch=self._scratch,
        )
        if limits.clamped:
            self.logger.warning("sandbox: lowered %s", limits.clamped)
        return limits

    # Life

    @override
    async def start(self, force_build: bool) -> None:
        await asyncio.to_thread(collect_once)
        limits = self._limits()
        how = Builds(
            dataclasses.replace(limits, cpus=None),
            force=force_build,
            host_network=self._network.settings.host,
            certificates=self._certificates,
        )
        how.since = self._prepared_at if self._prepared_at is not None else how.since
        try:
            await asyncio.to_thread(fetch_missing, self._definition)
            built = await build(self._definition, how)
        except SandboxError as error:
            raise SandboxBuildFailedError(str(error)) from error
        self._built = built
        plan = Plan(
            built.base,
            limits,
            layers=built.layers,
            scratch=self._scratch,
            folders={mount["target"]: 0o777 for mount in self._mounts if self._is_log(mount)},
            binds=(*self._certificates.binds, *self._binds),
            way=self._network.way(),
            host_network=self._network.settings.host,
            holds=built.locks,
        )
        try:
            self._sandbox = await Sandbox.start(plan)
            self._network.enter_by = self._sandbox.enter
        finally:
            built.close()
        if built.config.entrypoint:
            argv = [*built.config.entrypoint, "sh", "-c", "sleep infinity"]
            self._background.append(asyncio.create_task(self._run(argv)))
        await self._upload_environment_dir_after_start()

    @override
    async def stop(self, delete: bool) -> None:
        """End everything. Nothing is kept: files live as long as the sandbox (built layers are cached apart)."""
        sandbox, self._sandbox, self._network.enter_by = self._sandbox, None, None
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._background.clear()
        if sandbox is not None:
            await sandbox.stop()

    async def hand_to_verifier(
        self, *, pristine: bool, keep: bool, tests: str, logs: str, rewards: Sequence[str]
    ) -> Handed:
        """End all that the agent started, unless it is to `keep` running, and get ready for the tests.

        Their folders are new, `logs` the verifier's user's, and no link leads into them. If `pristine`, the system is
        the image's, and only its work is the agent's. Raises `BrokenContent` where what it left is in the way.
        """
        self._handed = self._system(tests, logs) if pristine and not keep else None
        place = Place(tests, logs, rewards, self._account(None), self._workdir)
        return await to_verifier(self._running(), place, self._handed, keep=keep)

    async def hand_to_agent(self) -> None:
        """After a step's tests: the agent's system again, with the work as it is now."""
        if self._handed is not None:
            system, self._handed = self._handed, None
            await self._running().renew(views.AGENT, system)

    def _system(self, *own: str) -> list[str]:
        return system_folders(self._image().env, self._workdir, *own)

    async def runs_programs(self) -> bool:
        """Whether a program of the agent's runs that the tests have started by `$TBENCH_RUN_PROGRAM`."""
        return await self._running().runs_programs()

    async def limit_counts(self) -> Counts:
        """How often each limit was reached so far."""
        return await self._running().counts()

    @property
    def _workdir(self) -> str:
        return self.task_env_config.workdir or self._image().workdir

    def _image(self) -> ImageConfig:
        return self._built.config if self._built is not None else ImageConfig("")

    def _account(self, user: str | int | None) -> str:
        """Who a command runs as if it is to run as `user`."""
        who = self._resolve_user(user)
        return str(who) if who is not None else self._image().user or "root"

    async def kill_processes(self) -> None:
        """End every process in the sandbox but the one that holds it; files and settings stay."""
        await self._running().kill_processes()

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        """The relay cuts what is no longer allowed; what runs in the host's own network must not keep it."""
        if self._network.host and self._sandbox is not None and network_policy.network_mode != NetworkMode.PUBLIC:
            await self._sandbox.kill_processes(only_networked=True)
        await self._network.ask(network_policy)

    def _running(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxError("the sandbox is not running")
        return self._sandbox

    # Commands

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run `bash -c command`. A timeout or a cancellation ends everything the command started."""
        try:
            done = await self._run([_SHELL, "-c", command], cwd=cwd, env=env, timeout_sec=timeout_sec, user=user)
        except (TimeoutError, asyncio.CancelledError) as error:
            for note in getattr(error, "__notes__", ()):
                self.logger.warning("sandbox: %s", note)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
        stderr = done.stderr
        if done.exit_code != 0:
            stderr += await self._limit_notes()
        return ExecResult(stdout=done.stdout, stderr=stderr, return_code=done.exit_code)

    async def _run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> Finished:
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
                env={**self._certificates.environment, **config.env, **(self._merge_env(env) or {})},
                cwd=cwd or self._workdir,
                user=self._account(user),
                network=self._network.host,
                timeout_sec=timeout_sec,
                on_output=on_output,
            )

    async def _limit_notes(self) -> str:
        """One line for each limit that was reached since the last command that failed."""
        try:
            counts = await self._running().counts()
        except SandboxError as error:
            return f"\nsandbox: {error}\n"
        reached = counts.reached_since(self._seen, self._running().plan.limits)
        self._seen = counts
        for text in reached:
            self.logger.warning("sandbox: %s", text)
        return "".join(f"\nsandbox: {text}\n" for text in reached)

    # Files

    @property
    def _most_bytes(self) -> int:
        """How much one download may bring out."""
        return 2 * self._running().plan.limits.storage_mb * MEGABYTE

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        source = Path(source_path)
        await self._running().put(target_path, transfer.pack_file(source), rename=source.name)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._running().put(target_dir, transfer.pack_folder(Path(source_dir)))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        target = Path(target_path)
        if target.is_dir():
            target /= Path(source_path).name
        await self._running().get(source_path, transfer.unpack_file(target, self._most_bytes), single=True)

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
        paths = await self._running().list_files(source_dir)
        selected = filter_paths_by_patterns(paths, include=include, exclude=exclude)
        selected += [path for path in paths if path in (protect or ()) and path not in selected]
        await self._take(source_dir, target_dir, names=selected)

    async def _take(
        self, source: str, target: Path | str, *, names: Sequence[str] | None = None, exclude: Sequence[str] = ()
    ) -> None:
        """Bring a folder out as far as it can be taken, and say what was left."""
        read = transfer.unpack_folder(Path(target), self._most_bytes)
        left = await self._running().get(source, read, names=names, exclude=exclude, limit_bytes=self._most_bytes)
        if left.count:
            self.logger.warning(
                "sandbox: %d files or folders of %s stay inside (nested too deep, too many or too large), as %s",
                left.count,
                source,
                left.example,
            )
