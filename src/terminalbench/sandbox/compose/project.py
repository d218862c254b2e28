"""The services of a compose file, read and checked: what a sandbox cannot do is refused with its line."""

import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from terminalbench.errors import did_you_mean
from terminalbench.sandbox.builds.recipe import BuildSource, nanoseconds, platform_arguments
from terminalbench.sandbox.compose import COMPOSE, MAIN
from terminalbench.sandbox.compose.document import ComposeMapping, read_document
from terminalbench.sandbox.engine.views import SYSTEM
from terminalbench.sandbox.errors import DOCKER_HINT, Refused
from terminalbench.sandbox.images.manifest import HealthCheck
from terminalbench.sandbox.system import BOOKS, is_system

STARTED, HEALTHY, COMPLETED = "service_started", "service_healthy", "service_completed_successfully"
RESTARTS = ("always", "unless-stopped", "on-failure")
_LOGS = "/tbench-logs"
"""What stands for the trial's own folder of logs, which `main` has anyway."""
_LOG_NAMES = {"VERIFIER": "verifier", "AGENT": "agent", "ARTIFACTS": "artifacts"}
_MEGABYTE = 1 << 20
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*")
_MOST_SERVICES = 64
_CORRECT = "correct the file"

_FILE_KEYS = {"services", "networks", "volumes", "version", "name"}
_TAKEN = {
    "image", "build", "command", "entrypoint", "environment", "env_file", "working_dir", "user", "hostname",
    "container_name", "depends_on", "healthcheck", "volumes", "restart", "networks", "network_mode", "links",
    "extra_hosts", "deploy", "mem_limit", "cpus", "pids_limit", "shm_size",
    "platform", "profiles", "tmpfs", "privileged", "read_only",
}  # fmt: skip
_WITHOUT_EFFECT = {
    "annotations", "attach", "cap_drop", "domainname", "expose", "init", "labels", "logging", "ports", "pull_policy",
    "stdin_open", "stop_grace_period", "stop_signal", "tty", "ulimits", "oom_score_adj", "oom_kill_disable",
    "mem_swappiness", "mem_reservation", "memswap_limit", "cpu_shares",
}  # fmt: skip
_DEPLOY = {
    "resources", "replicas", "mode", "restart_policy", "labels", "placement", "update_config", "rollback_config",
    "endpoint_mode",
}  # fmt: skip
_HEALTH = {"test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"}
_BUILD = {"context", "dockerfile", "args", "target", "labels", "tags", "cache_from", "cache_to", "pull", "network"}
_REASONS = {
    "cap_add": "a sandbox gives no rights beyond Docker's usual ones",
    "devices": "a sandbox has no devices of this machine",
    "gpus": "a sandbox has no devices of this machine",
    "secrets": "a service is given no secrets",
}


@dataclass(frozen=True)
class ServiceMount:
    """What a service sees at `target`: a folder or file of the project, or a volume by its name."""

    target: str
    path: Path | None = None
    volume: str | None = None
    read_only: bool = False


@dataclass(frozen=True)
class Service:
    """One service, as its compose file describes it; None and empty is what its image says."""

    name: str
    where: str
    image: str | None = None
    build: BuildSource | None = None
    command: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    user: str | None = None
    hostname: str | None = None
    names: frozenset[str] = frozenset()
    extra_names: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    health: HealthCheck | None = None
    mounts: tuple[ServiceMount, ...] = ()
    restart: str = "no"
    tries: int | None = None
    """How often it is started again; None: as often as it ends."""
    shared_mb: int | None = None
    networks: frozenset[str] = frozenset()
    memory_mb: int | None = None
    cpus: float | None = None
    processes: int | None = None


@dataclass(frozen=True)
class Project:
    """The services of a task, `main` among them, each after those that it needs."""

    folder: Path
    services: Mapping[str, Service]
    internal: frozenset[str] = frozenset()
    """Networks without a way out."""

    @property
    def main(self) -> Service:
        """The service that the agent works in."""
        return self.services[MAIN]

    def others(self) -> list[Service]:
        """The services beside it."""
        return [one for one in self.services.values() if one.name != MAIN]

    def source(self, service: Service, docker_image: str | None = None) -> BuildSource:
        """Return what a service's image is made of; `main` is built as a task without services is."""
        if service.build is not None:
            return service.build
        if service.name == MAIN and (docker_image is not None or (self.folder / "Dockerfile").is_file()):
            return BuildSource(self.folder, docker_image)
        for other in self.services.values():
            if other.build is not None and other.image is not None and other.image == service.image:
                return other.build
        if service.image is None:
            raise Refused(f"the service {service.name} has no image", where=service.where, hint="add image or build")
        return BuildSource(self.folder, service.image, where=service.where)

    def is_internal(self, service: Service) -> bool:
        """Return whether a service has no way out of the trial's own network."""
        return bool(service.networks) and service.networks <= self.internal

    def shared_volumes(self) -> set[str]:
        """The volumes, and folders of the project, that several services see and one of them may write."""
        seen: dict[str, list[bool]] = {}
        for service in self.services.values():
            for mount in service.mounts:
                if (name := volume_of(mount)) is not None and not (mount.path is not None and mount.path.is_file()):
                    seen.setdefault(name, []).append(mount.read_only)
        return {name for name, read_only in seen.items() if len(read_only) > 1 and not all(read_only)}


def volume_of(mount: ServiceMount) -> str | None:
    """Return what a mount shows, as one name; None for a folder of the service's own."""
    return mount.volume if mount.path is None else str(mount.path)


def read_project(folder: Path, env: Mapping[str, str]) -> Project:
    """Return the services of the compose file in a folder; `env` are the variables that it may refer to."""
    path = folder / COMPOSE
    variables = _variables(folder, env)
    document = read_document(path, variables)
    empty = {key for key in document if not document[key]}
    _check_keys(document, _FILE_KEYS | empty, "a compose file", str(path))
    services = document.get("services") or ComposeMapping(1)
    if not isinstance(services, ComposeMapping):
        raise Refused("services is not a table", where=f"{path}:{document.line_of('services')}", hint=_CORRECT)
    found: dict[str, Service] = {}
    for name, told in services.items():
        where = f"{path}:{services.line_of(name)}"
        if not _NAME.fullmatch(name) or not isinstance(told, ComposeMapping | None):
            raise Refused(f'the service "{name}" is not a table with a plain name', where=where, hint=_CORRECT)
        table = told if told is not None else ComposeMapping(0)
        reader = _ServiceReader(folder, str(path), name, table, services.line_of(name), variables)
        if not reader.is_optional():
            found[name] = reader.read()
    found.setdefault(MAIN, Service(MAIN, str(path), networks=frozenset({"default"})))
    if len(found) > _MOST_SERVICES:
        raise Refused(f"{len(found)} services; the limit is {_MOST_SERVICES}", where=str(path))
    _check_volumes(document, found, str(path))
    project = Project(folder, _in_order(found), _internal(document, str(path)))
    _check_networks(project, frozenset(document.get("networks") or ()), str(path))
    shared = project.shared_volumes()
    for mount in project.main.mounts:
        if volume_of(mount) in shared and not mount.read_only and is_system(mount.target, (*SYSTEM, *BOOKS)):
            what = f"main shares {mount.target} with other services: the tests need the system as its image has it"
            raise Refused(what, where=project.main.where, hint="mount it elsewhere, or add :ro")
    return project


def _check_keys(table: ComposeMapping, known: Collection[str], of: str, path: str) -> None:
    """Refuse a table that has other keys than these; what begins with `x-` is nobody's."""
    for key in table:
        if key not in known and not key.startswith("x-"):
            reason = f": {_REASONS[key]}" if key in _REASONS else ""
            hint = did_you_mean(key, sorted(known), limit=0) or DOCKER_HINT
            what = f'the key "{key}" of {of} is not supported{reason}'
            raise Refused(what, where=f"{path}:{table.line_of(key)}", hint=hint)


def _variables(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return what a compose file may refer to: its .env file, the environment, and what Harbor sets for its own
    files."""
    own: dict[str, str] = {}
    dotenv = folder / ".env"
    if dotenv.is_file():
        own |= dict(_assignments(dotenv, str(dotenv)))
    logs = {f"HOST_{name}_LOGS_PATH": f"{_LOGS}/{place}" for name, place in _LOG_NAMES.items()}
    logs |= {f"ENV_{name}_LOGS_PATH": f"/logs/{place}" for name, place in _LOG_NAMES.items()}
    logs |= {"HOST_ARTIFACTS_PATH": f"{_LOGS}/artifacts", "ENV_ARTIFACTS_PATH": "/logs/artifacts"}
    return {**own, **env, **logs, "CONTEXT_DIR": str(folder)}


def _assignments(path: Path, where: str) -> Iterator[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read: {error}", where=where, hint=_CORRECT) from None
    for line in lines:
        name, given, value = line.strip().removeprefix("export ").partition("=")
        if given and name and not name.startswith("#"):
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            yield name.strip(), value[1:-1] if quoted else value.partition(" #")[0].strip()


def _internal(document: ComposeMapping, where: str) -> frozenset[str]:
    """The networks without a way out."""
    found = set()
    networks = document.get("networks")
    networks = networks if isinstance(networks, ComposeMapping) else ComposeMapping(0)
    for name, told in networks.items():
        table = told if isinstance(told, ComposeMapping) else ComposeMapping(networks.line_of(name))
        if _true(table.get("external")):
            raise Refused(f"the external network {name}", where=f"{where}:{table.line_of('external')}")
        if _true(table.get("internal")):
            found.add(name)
    return frozenset(found)


def _check_volumes(document: ComposeMapping, services: Mapping[str, Service], where: str) -> None:
    volumes = document.get("volumes")
    known = volumes if isinstance(volumes, ComposeMapping) else ()
    for service in services.values():
        for mount in service.mounts:
            if mount.volume is not None and mount.volume not in known:
                what = f"the volume {mount.volume} of the service {service.name} is not declared"
                raise Refused(what, where=service.where, hint=f"add it to volumes: of {where}")
    for name, told in volumes.items() if isinstance(volumes, ComposeMapping) else ():
        for key in told if isinstance(told, ComposeMapping) else ():
            harmless = key in ("name", "labels") or (key == "driver" and told[key] == "local")
            if not harmless and _true(told[key] if isinstance(told[key], str) else "true"):
                raise Refused(f"{key} of the volume {name}", where=f"{where}:{told.line_of(key)}")


def _check_networks(project: Project, declared: frozenset[str], where: str) -> None:
    """All services are in one network here: what a file keeps apart would not be. One needs to be declared."""
    for service in project.services.values():
        if unknown := service.networks - declared - {"default"}:
            what = f"the network {min(unknown)} of the service {service.name} is not declared"
            raise Refused(what, where=service.where, hint=f"add it to networks: of {where}")
    main = project.main
    if project.is_internal(main):
        raise Refused("a network without a way out (internal) for the service main", where=main.where)
    for service in project.services.values():
        for other in project.services.values():
            apart = service.networks and other.networks and not service.networks & other.networks
            if apart:
                raise Refused(f"networks that keep {service.name} and {other.name} apart", where=service.where)


def _in_order(services: dict[str, Service]) -> dict[str, Service]:
    """Each service after those that it needs."""
    done: dict[str, Service] = {}
    waiting = dict(services)
    while waiting:
        ready = [one for one in waiting.values() if not one.needs.keys() & waiting.keys()]
        for service in ready:
            if unknown := service.needs.keys() - services.keys():
                what = f"the service {service.name} depends on {min(unknown)}, which the file does not have"
                raise Refused(what, where=service.where, hint=_CORRECT)
            done[service.name] = waiting.pop(service.name)
        if not ready:
            first = next(iter(waiting.values())).where
            raise Refused(f"services that wait for each other: {', '.join(waiting)}", where=first, hint=_CORRECT)
    return done


class _ServiceReader:
    """Reads one service."""

    def __init__(
        self, folder: Path, path: str, name: str, told: ComposeMapping, line: int, variables: Mapping[str, str]
    ) -> None:
        self._folder, self._path, self._name, self._told, self._line = folder, path, name, told, line
        self._variables = variables

    def _place(self, key: str) -> str:
        return f"{self._path}:{self._told.lines.get(key, self._line)}"

    def _refused(self, key: str, what: str, hint: str | None = DOCKER_HINT) -> Refused:
        return Refused(f"{what} (service {self._name})", where=self._place(key), hint=hint)

    def is_optional(self) -> bool:
        """Return whether it is started only where somebody asks for its profile."""
        return bool(self._told.get("profiles")) and self._name != MAIN

    def read(self) -> Service:
        told = self._told
        _check_keys(told, _TAKEN | _WITHOUT_EFFECT, f"the service {self._name}", self._path)
        for key in ("privileged", "read_only"):
            if _true(told.get(key)):
                raise self._refused(key, key)
        self._check_platform()
        networks, aliases = self._networks()
        names = {self._name, *aliases, *filter(None, [self._text("container_name"), self._text("hostname")])}
        for one in sorted(names):
            if not _NAME.fullmatch(one) or one == "localhost":
                raise self._refused("hostname", f'the name "{one}"', _CORRECT)
        limits = self._limits()
        restart, tries = self._restart()
        return Service(
            self._name,
            f"{self._path}:{self._line}",
            self._text("image"),
            self._build(),
            self._argv("command"),
            self._argv("entrypoint"),
            self._env(),
            self._text("working_dir"),
            self._text("user"),
            self._text("hostname"),
            frozenset(names),
            self._extra_names(),
            self._needs(),
            self._health(),
            tuple(self._mounts()),
            restart,
            tries,
            self._megabytes("shm_size", told.get("shm_size")),
            networks,
            self._megabytes("mem_limit", told.get("mem_limit")) or limits.get("memory"),
            self._number("cpus", told.get("cpus")) or limits.get("cpus"),
            int(self._number("pids_limit", told.get("pids_limit")) or limits.get("pids") or 0) or None,
        )

    def _text(self, key: str) -> str | None:
        value = self._told.get(key)
        if value is not None and not isinstance(value, str):
            raise self._refused(key, f"{key} is not a text", _CORRECT)
        return value or None

    def _texts(self, key: str, value: Any) -> list[str]:
        found = _listed(value)
        if not all(isinstance(one, str) for one in found):
            raise self._refused(key, f"{key} is not a list of texts", _CORRECT)
        return found

    def _number(self, key: str, value: Any) -> float | None:
        if value is None:
            return None
        try:
            found = float(value)
        except (TypeError, ValueError):
            raise self._refused(key, f"{key}: {value} is not a number", _CORRECT) from None
        return found if found > 0 else None

    def _megabytes(self, key: str, value: Any) -> int | None:
        if value is None:
            return None
        found = _SIZE.fullmatch(str(value).strip())
        if found is None:
            raise self._refused(key, f"{key}: {value} is not a size", _CORRECT)
        return max(1, round(float(found[1]) * 1024 ** _POWERS[found[2].lower()] / _MEGABYTE))

    def _check_platform(self) -> None:
        wanted, here = self._text("platform"), platform_arguments()["TARGETPLATFORM"]
        if wanted is not None and wanted != here and not wanted.startswith(f"{here}/"):
            raise self._refused("platform", f"platform {wanted} on a {here} machine")

    def _argv(self, key: str) -> tuple[str, ...] | None:
        value = self._told.get(key)
        if value is None:
            return None
        if isinstance(value, str):
            try:
                return tuple(shlex.split(value))
            except ValueError as error:
                raise self._refused(key, f"{key}: {error}", _CORRECT) from None
        return tuple(self._texts(key, value))

    def _build(self) -> BuildSource | None:
        value = self._told.get("build")
        if value is None:
            return None
        table = ComposeMapping(0) if isinstance(value, str) else self._table("build", value, _BUILD)
        context = self._inside("build", value if isinstance(value, str) else str(table.get("context") or "."))
        dockerfile = str(table.get("dockerfile") or "Dockerfile")
        if not (context / dockerfile).is_file():
            raise self._refused("build", f"there is no {context / dockerfile}", _CORRECT)
        given = self._assigned("build", table.get("args"))
        return BuildSource(context, None, dockerfile, given, table.get("target"), self._place("build"))

    def _inside(self, key: str, text: str) -> Path:
        """A path of the project, and no other."""
        path = Path(os.path.normpath(self._folder / Path(text).expanduser()))
        if "://" in text or not path.resolve().is_relative_to(self._folder.resolve()):
            raise self._refused(key, f"{text} is not in the task's environment folder")
        return path

    def _assigned(self, key: str, value: Any) -> dict[str, str]:
        """A table of variables, or a list of assignments; a name without a value has that of the file's variables."""
        if isinstance(value, ComposeMapping):
            pairs = [(name, text if isinstance(text, str) else None) for name, text in value.items()]
        else:
            told = [text.partition("=") for text in self._texts(key, value)]
            pairs = [(name, text if given else None) for name, given, text in told]
        found = {name: self._variables.get(name) if text is None else text for name, text in pairs}
        return {name: text for name, text in found.items() if text is not None}

    def _env(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in _listed(self._told.get("env_file")):
            name = one.get("path", "") if isinstance(one, ComposeMapping) else str(one)
            needed = not (isinstance(one, ComposeMapping) and one.get("required") == "false")
            path = self._inside("env_file", name)
            if needed or path.is_file():
                found |= dict(_assignments(path, self._place("env_file")))
        return found | self._assigned("environment", self._told.get("environment"))

    def _needs(self) -> dict[str, str]:
        value = self._told.get("depends_on")
        if not isinstance(value, ComposeMapping):
            return dict.fromkeys(self._texts("depends_on", self._told.get("depends_on")), STARTED)
        found = {}
        for name, told in value.items():
            table = self._table("depends_on", told, ("condition", "required", "restart"), value.line_of(name))
            condition = table.get("condition") or STARTED
            if condition not in (STARTED, HEALTHY, COMPLETED):
                raise self._refused("depends_on", f"depends_on with the condition {condition}", _CORRECT)
            if table.get("required") != "false":
                found[name] = condition
        return found

    def _health(self) -> HealthCheck | None:
        value = self._told.get("healthcheck")
        if value is None:
            return None
        table = self._table("healthcheck", value, _HEALTH)
        if _true(table.get("disable")):
            return HealthCheck(("NONE",))
        test = table.get("test")
        words = ("CMD-SHELL", test) if isinstance(test, str) else tuple(self._texts("healthcheck", test))
        if words and words[0] not in ("NONE", "CMD", "CMD-SHELL"):
            raise self._refused("healthcheck", f"healthcheck.test begins with {words[0]}", "use CMD or CMD-SHELL")
        times = [self._time(table, key) for key in ("interval", "timeout", "start_period")]
        return HealthCheck(words, *times, int(self._number("healthcheck", table.get("retries")) or 0))

    def _time(self, table: ComposeMapping, key: str) -> int:
        text = str(table.get(key) or "")
        found = nanoseconds(text)
        if text and not found and text.strip("0.nusmh"):
            where = f"{self._path}:{table.line_of(key)}"
            raise Refused(f"{key}: {text} is no time (service {self._name})", where=where, hint="write 10s or 1m30s")
        return found

    def _mounts(self) -> Iterator[ServiceMount]:
        for one in _listed(self._told.get("volumes")):
            mount = self._long_mount(one) if isinstance(one, ComposeMapping) else self._short_mount(str(one))
            if mount is not None:
                yield mount
        for text in self._texts("tmpfs", self._told.get("tmpfs")):
            yield ServiceMount(text.partition(":")[0])

    def _short_mount(self, text: str) -> ServiceMount | None:
        parts = text.split(":")
        if len(parts) == 1:
            return ServiceMount(self._target(parts[0]))
        modes = parts[2].split(",") if len(parts) > 2 else []
        return self._mount(parts[0], parts[1], read_only="ro" in modes)

    def _long_mount(self, told: ComposeMapping) -> ServiceMount | None:
        kind, target = told.get("type") or "volume", str(told.get("target") or "")
        if kind not in ("bind", "volume", "tmpfs"):
            raise self._refused("volumes", f"a volume of the type {kind}")
        if kind == "tmpfs" or not told.get("source"):
            return ServiceMount(self._target(target))
        source = str(told["source"])
        if kind == "bind" and not source.startswith((".", "/", "~")):
            source = f"./{source}"
        return self._mount(source, target, read_only=_true(told.get("read_only")))

    def _mount(self, source: str, target: str, *, read_only: bool) -> ServiceMount | None:
        target = self._target(target)
        if source == _LOGS or source.startswith(f"{_LOGS}/"):
            if self._name != MAIN:
                raise self._refused("volumes", "the trial's own logs in a service other than main")
            return None  # it has them
        if not source.startswith((".", "/", "~")):
            return ServiceMount(target, volume=source, read_only=read_only)
        return ServiceMount(target, self._inside("volumes", source), read_only=read_only)

    def _target(self, text: str) -> str:
        if not text.startswith("/") or ".." in PurePosixPath(text).parts:
            raise self._refused("volumes", f'a volume at "{text}", which is not an absolute path', _CORRECT)
        return os.path.normpath(text)

    def _restart(self) -> tuple[str, int | None]:
        value, _, tries = (self._text("restart") or "no").partition(":")
        if value not in ("no", "false", *RESTARTS) or (tries and not tries.isdigit()):
            raise self._refused("restart", f"restart: {self._text('restart')}", _CORRECT)
        return value, int(tries) if tries else None

    def _table(self, key: str, value: Any, known: Collection[str], line: int | None = None) -> ComposeMapping:
        """A table with these keys and no others."""
        if value is None:
            return ComposeMapping(0)
        place = line if line is not None else self._told.line_of(key)
        if not isinstance(value, ComposeMapping):
            raise Refused(f"{key} is not a table (service {self._name})", where=f"{self._path}:{place}", hint=_CORRECT)
        _check_keys(value, known, f"{key} of the service {self._name}", self._path)
        return value

    def _networks(self) -> tuple[frozenset[str], set[str]]:
        """The networks of it, and the names that it has there besides its own."""
        mode = self._text("network_mode")
        if mode not in (None, "bridge", "default"):
            raise self._refused("network_mode", f"network_mode: {mode}")
        value = self._told.get("networks")
        aliases = {text.partition(":")[2] for text in self._texts("links", self._told.get("links")) if ":" in text}
        if aliases:
            raise self._refused("links", "links with other names", "give the service aliases in networks")
        if not isinstance(value, ComposeMapping):
            return frozenset(self._texts("networks", self._told.get("networks")) or ["default"]), set()
        for told in value.values():
            table = told if isinstance(told, ComposeMapping) else ComposeMapping(0)
            _check_keys(table, ("aliases", "priority"), f"a network of the service {self._name}", self._path)
            aliases |= set(self._texts("networks", table.get("aliases")))
        return frozenset(value), aliases

    def _extra_names(self) -> dict[str, str]:
        value = self._told.get("extra_hosts")
        given = value.items() if isinstance(value, ComposeMapping) else ()
        listed = () if given else self._texts("extra_hosts", value)
        found = {}
        for name, address in (*given, *(re.split("[:=]", f"{one}=", maxsplit=1) for one in listed)):
            address = address.removesuffix("=")
            if address == "host-gateway" or not address:
                raise self._refused("extra_hosts", f"extra_hosts: {name} on this machine")
            found[name] = address.strip("[]")
        return found

    def _limits(self) -> dict[str, Any]:
        table = self._table("deploy", self._told.get("deploy"), _DEPLOY)
        if (self._number("deploy", table.get("replicas")) or 1) > 1:
            raise self._refused("deploy", "several replicas of a service")
        resources = self._table("deploy", table.get("resources"), ("limits", "reservations"))
        reserved = resources.get("reservations")
        if isinstance(reserved, ComposeMapping) and reserved.get("devices"):
            raise self._refused("deploy", "devices of this machine")
        limits = self._table("deploy", resources.get("limits"), ("memory", "cpus", "pids", "devices"))
        return {
            "memory": self._megabytes("deploy", limits.get("memory")),
            "cpus": self._number("deploy", limits.get("cpus")),
            "pids": self._number("deploy", limits.get("pids")),
        }


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _true(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in ("true", "yes", "on")
