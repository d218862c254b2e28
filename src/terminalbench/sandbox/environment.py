"""The Harbor environment `container_env = "local"`: a sandbox of namespaces and overlays on this machine.

    "environment": {"import_path": "terminalbench.sandbox.environment:LocalSandbox",
                    "kwargs": {"images": {"node:*": "/folder", "debian:*": "host"}, "scratch": "memory"}}

All kwargs are optional. See docs/sandbox.md for what it isolates, limits and refuses.
"""

import asyncio
import contextlib
import dataclasses
import glob
import inspect
import os
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, override

from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import require_agent_environment_definition
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.config import ResourceMode

from terminalbench.decode import decode
from terminalbench.errors import did_you_mean
from terminalbench.sandbox import CHECKED
from terminalbench.sandbox.activity import Activity, LiveLogs, LogMirror
from terminalbench.sandbox.answers import CommandResult
from terminalbench.sandbox.builds.layers import BuildSettings, BuiltImage, build, define
from terminalbench.sandbox.builds.needs import ImageTable, fetch_missing, image_to_use, read_task_file
from terminalbench.sandbox.builds.recipe import BuildSource
from terminalbench.sandbox.cache import collect_once
from terminalbench.sandbox.compose import COMPOSE, MAIN
from terminalbench.sandbox.compose.project import read_project
from terminalbench.sandbox.compose.services import ServiceSurroundings, TrialServices, with_settings
from terminalbench.sandbox.errors import Refused, SandboxError
from terminalbench.sandbox.network.policy import EgressPolicy
from terminalbench.sandbox.network.trial import TrialNetwork
from terminalbench.sandbox.plan import Bind, Certificates, SandboxLimits, limits_for
from terminalbench.sandbox.probe import probe
from terminalbench.sandbox.root_filesystem import HOST
from terminalbench.sandbox.running import SHELL, FileExchange
from terminalbench.sandbox.setups import AgentSetup, decisive, digest_of
from terminalbench.sandbox.verifier_stage import VerifierStage
from terminalbench.secrets.values import Secrets

SCRATCHES = ("memory", "disk")
_CHUNK = 1 << 18
_KNOWN = {*inspect.signature(BaseEnvironment.__init__).parameters} - {"self", "args", "kwargs"}


def _state(path: str) -> tuple[int, int]:
    """Return what changes with a file that is put in place of another."""
    about = os.stat(path)  # noqa: PTH116
    return about.st_size, about.st_mtime_ns


class LocalSandbox(FileExchange, VerifierStage):
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
        setups_since: float | None = 0.0,
        scratch: str = "memory",
        network: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        """`images` maps patterns of images to "host", to a folder or to another image, `pins` images to digests;
        builds that failed after `prepared_at` are not tried again; `ca` says whose certificates are trusted; set-ups of
        agents that were made since `setups_since` are used again, none if that is None;
        `scratch` says where written files go: "memory" (limited exactly) or "disk" (limited by measuring);
        `network` is what may be reached in each phase (see `network.trial`)."""
        options = ("images", "pins", "prepared_at", "ca", "setups_since", "scratch", "network")
        for name in kwargs:
            if name not in _KNOWN:
                raise Refused(f'the local sandbox has no option "{name}"', hint=did_you_mean(name, options))
        if scratch not in SCRATCHES:
            raise Refused(f'scratch = "{scratch}"', hint='use "memory" or "disk"')
        self._images, self._pins = dict(images or {}), dict(pins or {})
        self._prepared_at, self._certificates = prepared_at, Certificates(ca)
        self._scratch, self._setups_since = scratch, setups_since
        self._all_built: dict[str, BuiltImage] = {}
        self._background: list[asyncio.Task[CommandResult]] = []
        self._uploads = contextlib.ExitStack()
        super().__init__(*args, **kwargs)
        asked = [self._network_policy, *self._phase_network_policies]
        self._network = TrialNetwork(network, self.trial_paths.trial_dir, asked)
        self._network.check(self.environment_dir.parent, services=self._project is not None)
        self._network.enter_by = self._enter
        self._activity = Activity(self.trial_paths.trial_dir)
        self._mirror = LogMirror(self.trial_paths.agent_dir, Secrets.of_environment())
        self._live_logs = LiveLogs(self._agent_logs(), self._activity, self._mirror.take)

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
            docker_compose=True,
        )

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True)

    @classmethod
    @override
    def preflight(cls) -> None:
        if os.environ.pop(CHECKED, None) is not None:  # not for what is started from here
            return
        found = probe()
        if not found.works:
            raise SystemExit("\n".join(found.lines))
        cls.preflight_notes = found.notes

    # What a task may ask for

    @override
    def _validate_definition(self) -> None:
        require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)
        if (self.environment_dir / COMPOSE).exists():
            self._project = read_project(self.environment_dir, {**os.environ, **self._persistent_env})
        self._define(self.task_env_config.docker_image)
        has_dockerfile = (self.environment_dir / "Dockerfile").is_file()
        main = self._definitions[MAIN]
        if not self._enable_environment_dir_upload and main.base == HOST and not has_dockerfile:
            raise Refused(f"the verifier image {main.image}, which brings its own tests")
        self._binds = [self._bind(mount) for mount in self._mounts if not self._is_log(mount)]

    def _define(self, image: str | None) -> None:
        table = ImageTable(self._images, self._pins, host=read_task_file(self.environment_dir.parent).says_host_base)
        sources = {MAIN: BuildSource(self.environment_dir, image)}
        if self._project is not None:
            sources = {name: self._project.source(one, image) for name, one in self._project.services.items()}
        self._definitions = {name: define(source, table) for name, source in sources.items()}

    @override
    def _validate_extra_docker_compose_support(self) -> None:
        if self.extra_docker_compose_paths:
            raise Refused("extra_docker_compose", where=str(self.environment_dir))

    @override
    def _validate_gpu_support(self) -> None:
        if self._effective_gpus > 0:
            raise Refused(f"a task that needs {self._effective_gpus} GPU(s)", where=str(self.environment_dir))

    def _bind(self, mount: Mapping[str, Any]) -> Bind:
        if mount["type"] != "bind":
            raise Refused(f"a mount of type {mount['type']} on {mount['target']}")
        source = Path(mount["source"]).expanduser().resolve()
        if not source.exists():
            raise Refused(f"the mount source {source} does not exist", hint="create it or correct environment.mounts")
        return Bind(str(source), mount["target"], bool(mount.get("read_only")))

    def _limits(self) -> SandboxLimits:
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
        how = BuildSettings(
            dataclasses.replace(limits, cpus=None),
            force=force_build,
            host_network=self._network.settings.host,
            certificates=self._certificates,
        )
        how.since = self._prepared_at if self._prepared_at is not None else how.since
        if force_build and self.task_env_config.docker_image is not None:
            self._define(image_to_use(self.environment_dir, self.task_env_config.docker_image, rebuilt=True))
        self._start_limits = limits
        try:
            built = await self._build(how)
            if self._services is not None:
                await self._services.open()
                await self._services.start(after_main=False)
        except SandboxError as error:
            raise SandboxBuildFailedError(str(error)) from error
        for bind in self._binds:
            if f"{self._workdir.rstrip('/')}/".startswith(f"{bind.target.rstrip('/')}/"):
                said = Refused(f"the mount on {bind.target} hides the task's working folder", hint="mount it elsewhere")
                raise SandboxBuildFailedError(str(said))
        filled = self._project is not None and bool(self._project.main.mounts)
        plain = not built.config.entrypoint and not filled and not self._network.settings.host
        if self._setups_since is not None and plain:
            since = max(self._setups_since, how.since if force_build else 0.0)
            self._setup = AgentSetup(
                self, self._setup_key(), self.trial_paths.trial_dir, since, image=built.config.image
            )
        if self._setup is not None:
            self._network.before_phase = self._setup.before_phase
            await self._setup.start()
        else:
            await self.bring_up()
        if self._services is not None:
            try:
                await self._services.start(after_main=True)
                await self._services.check_main(self._check)
            except SandboxError as error:
                raise SandboxBuildFailedError(str(error)) from error
        await self._upload_environment_dir_after_start()

    async def _check(self, argv: Sequence[str], timeout_sec: float) -> CommandResult:
        """Run a health check of the sandbox itself."""
        await self._ready()
        env, account = self._merge_env(None) or {}, self._account(None)
        return await self._run(argv, cwd=self._workdir, env=env, account=account, timeout_sec=timeout_sec)

    async def _build(self, how: BuildSettings) -> BuiltImage:
        """The image of the sandbox, and those of the services beside it."""
        for name, definition in self._definitions.items():
            await asyncio.to_thread(fetch_missing, definition)
            self._all_built[name] = await build(definition, how)
        self._built = built = self._all_built[MAIN]
        if self._project is None:
            return built
        self._built = built = with_settings(built, self._project.main)
        given = ServiceSurroundings(
            self.trial_paths.trial_dir,
            self._scratch,
            self._start_limits.storage_mb,
            self._certificates,
            self._network.another_way,
            lambda text: self.logger.warning("sandbox: %s", text),
        )
        self._services = TrialServices(self._project, self._all_built, given)
        return built

    def _setup_key(self) -> str:
        """Return what decides about the set-up of an agent besides what it does: the image, the agent, who and where it
        is."""
        try:
            told = decode(self.trial_paths.config_path.read_bytes())["agent"]
            agent = [told.get(name) for name in ("name", "import_path", "kwargs")]
        except (OSError, KeyError, TypeError, AttributeError, ValueError):
            agent = []
        built, binds = self._require_built(), [(one.source, one.target, _state(one.source)) for one in self._binds]
        parts = (built.key, self._certificates.kind, binds, self._workdir, self.default_user, agent)
        return digest_of(*parts)[:32]

    async def _enter(self, policy: EgressPolicy, phase: str) -> None:
        """Another phase of the trial: told to all of its sandboxes."""
        if self._sandbox is not None:
            await self._sandbox.enter(policy, phase)
        if self._services is not None:
            await self._services.enter(policy, phase)

    @override
    @contextlib.contextmanager
    def scoped_exec_env(self, env: dict[str, str]) -> Generator[None]:
        """Harbor's own; the first time, it is the agent's set-up that happens within."""
        setup = self._setup if self._setup is not None and self._setup.begin(env) else None
        try:
            with super().scoped_exec_env(env):
                yield
        except BaseException:
            if setup is not None:
                setup.end(failed=True)
            raise
        if setup is not None:
            setup.end(failed=False)

    @override
    async def stop(self, delete: bool) -> None:
        """End everything. Nothing is kept: files live as long as the sandbox (layers are cached apart)."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._background.clear()
        await self.take_down()
        self._uploads.close()
        if self._setup is not None:
            await self._setup.close()
        if self._services is not None:
            await self._services.stop()
        for built in self._all_built.values():
            built.close()
        self._all_built.clear()
        self._built = None

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        """The relay cuts what is no longer allowed; what runs in the host's own network must not keep it."""
        if self._network.host and self._sandbox is not None and network_policy.network_mode != NetworkMode.PUBLIC:
            await self._sandbox.kill_processes(only_networked=True)
        await self._network.ask(network_policy)

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
        place, given, account = cwd or self._workdir, self._merge_env(env) or {}, self._account(user)

        async def do() -> CommandResult:
            argv = [SHELL, "-c", command]
            return await self._run(argv, cwd=place, env=given, account=account, timeout_sec=timeout_sec)

        try:
            if self._setup is None:
                done = await do()
            else:
                done = await self._setup.call(digest_of("exec", command, place, decisive(given), account), do)
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

    @override
    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        """Return whether root sees a folder there, by our own code: a shell costs more, and the agent may have removed
        it; what another user sees, its shell says."""
        if self._account(user) not in ("root", "0"):
            return await super().is_dir(path, user)
        found = await (await self._ready()).find(glob.escape(f"{self._workdir}/{path}" if path[:1] != "/" else path))
        return any(is_folder for _, is_folder in found)

    # Services

    def _beside(self) -> TrialServices:
        if self._services is None:
            raise SandboxError("the task has no services")
        return self._services

    @override
    async def service_exec(
        self,
        command: str,
        *,
        service: str | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command in a service of the task."""
        if service is None or self.is_main_service(service):
            return await self.exec(command, cwd=cwd, env=env, timeout_sec=timeout_sec, user=user)
        argv, account = ["sh", "-c", command], str(user) if user is not None else None
        try:
            done = await self._beside().run(service, argv, cwd=cwd, env=env, user=account, timeout_sec=timeout_sec)
        except TimeoutError:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.exit_code)

    @override
    async def service_download_file(
        self, source_path: str, target_path: Path | str, *, service: str | None = None
    ) -> None:
        """Bring a file of a service out."""
        if service is None or self.is_main_service(service):
            await self.download_file(source_path, target_path)
        else:
            await self._take_file(self._beside().sandbox(service), source_path, Path(target_path))

    @override
    async def service_download_dir(
        self, source_dir: str, target_dir: Path | str, *, service: str | None = None
    ) -> None:
        """Bring a folder of a service out."""
        if service is None or self.is_main_service(service):
            await self.download_dir(source_dir, target_dir)
        else:
            await self._take(source_dir, target_dir, sandbox=self._beside().sandbox(service))

    @override
    async def stop_service(self, service: str) -> None:
        """End one service; of the main one, all that runs in it."""
        if self.is_main_service(service):
            await self.kill_processes()
        else:
            await self._beside().stop_one(service)
