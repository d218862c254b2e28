"""What a task needs of this machine, known from its files; what stands for its images; what is asked of `prepare`."""

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from terminalbench.decode import NOT_DECODED, convert
from terminalbench.frozen import frozen
from terminalbench.sandbox.builds.dockerfile import fill
from terminalbench.sandbox.builds.recipe import BuildSource, StageReader
from terminalbench.sandbox.compose import COMPOSE, MAIN
from terminalbench.sandbox.errors import DOCKER_HINT, Refused
from terminalbench.sandbox.images.manifest import ImageConfig
from terminalbench.sandbox.root_filesystem import HOST, IMAGE, SCRATCH, rootfs

if TYPE_CHECKING:
    from terminalbench.sandbox.builds.layers import Definition

_LARGEST_FILE = 1 << 20
_BUILD_SEC = 600.0

STOOD_FOR = ("debian:*", "ubuntu:*", "python:3*")
"""Images whose everyday commands (sh, coreutils, python3, ...) the host's system folders have too."""
_DIGEST = "sha256:"


def normalized(image: str) -> str:
    """`image` without default registry and digest, with its tag spelled out."""
    name = image.partition("@")[0]
    for prefix in ("docker.io/", "index.docker.io/", "library/"):
        name = name.removeprefix(prefix)
    last = name.rpartition("/")[2]
    return name if ":" in last else f"{name}:latest"


@frozen
class ImageTable:
    """What stands for an image.

    `entries` map patterns to "host", to the folder of a root file system, or to another image; `pins` map images to
    the digests that they are to have. `host`: the task says that the host's system does where it can stand for them.
    """

    entries: Mapping[str, str] = field(default_factory=dict)
    pins: Mapping[str, str] = field(default_factory=dict)
    host: bool = False

    def stand_in(self, image: str) -> str:
        """Return what an image is to be taken from: "host", a folder, or the name of an image, mostly its own."""
        wanted = normalized(image)
        for pattern, base in self.entries.items():
            if fnmatchcase(wanted, pattern) or fnmatchcase(image, pattern):
                return base
        return HOST if self.host and any(fnmatchcase(wanted, pattern) for pattern in STOOD_FOR) else image

    def base_for(self, image: str, *, where: str | None = None) -> str:
        """Return the base for an image: "host", "scratch", a folder, or "image:<digest>" of the store, if it has it."""
        if image == SCRATCH:
            return SCRATCH
        taken = self.stand_in(image)
        digest = self.pins.get(taken) or (taken if taken.startswith(_DIGEST) else None)
        if digest is None and (taken == HOST or taken.startswith("/")):
            return taken
        return f"{IMAGE}{digest or _stored(taken, where)}"


@frozen
class TaskNeeds:
    """What a task needs: images of the store, what stands for others; or why the sandbox cannot run it.

    `images` are with the place that names each, unless that is a FROM, as usual; `names` are those of the task itself.
    """

    images: Mapping[str, str] = field(default_factory=dict)
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    names: frozenset[str] = frozenset()


def needs_of(task: Path, entries: Mapping[str, str], *, rebuilt: bool = False) -> TaskNeeds:
    """Return what the task in a folder needs, where `entries` say what stands for images.

    `rebuilt`: what has a Dockerfile is built by it.
    """
    told = read_task_file(task)
    image = image_to_use(task / "environment", told.docker_image, rebuilt=rebuilt)
    table, env = ImageTable(entries, host=told.says_host_base), told.compose_env
    wanted: dict[str, tuple[str, str]] = {}
    for folder in (task / "environment", task / "tests"):
        own = image if folder.name != "tests" else None
        if own is None and not (folder / "Dockerfile").is_file() and not (folder / COMPOSE).exists():
            if folder.name == "tests":
                continue  # it has no image of its own
            said = f"{folder} has no Dockerfile, and task.toml no docker_image (add one of them)"
            return (
                TaskNeeds(problem=said) if folder.is_dir() else TaskNeeds()
            )  # else the task is broken, and said to be
        try:
            wanted |= _images(folder, own, table, env)
            for taken, _where in wanted.values():
                if taken != HOST and _is_place(taken):
                    rootfs(taken)
        except Refused as error:
            return TaskNeeds(problem=str(error))
        except (OSError, ValueError) as error:
            return TaskNeeds(problem=f"{folder / 'Dockerfile'} cannot be read: {error}")
    images = {taken: where for taken, where in reversed(wanted.values()) if not _is_place(taken)}
    stand_ins = {name: taken for name, (taken, _where) in wanted.items() if _is_place(taken)}
    return TaskNeeds(dict(reversed(images.items())), stand_ins, names=frozenset(wanted))


def _images(folder: Path, image: str | None, table: ImageTable, env: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The images that a folder's files name, each with what it is taken from, and where it is named.

    What cannot be done is refused.
    """
    found: dict[str, tuple[str, str]] = {}
    for source in image_sources(folder, image, env).values():
        recipe = source.recipe()
        for stage in recipe.needed():
            StageReader(recipe, ImageConfig(stage.image)).read(stage)
        begun = {stage.line for stage in recipe.stages}
        for name, line in recipe.images().items():
            if name != SCRATCH:
                found.setdefault(name, (table.stand_in(name), "" if line in begun else f"{recipe.where}:{line}: "))
    return found


def image_sources(folder: Path, docker_image: str | None, env: Mapping[str, str]) -> dict[str, BuildSource]:
    """Return what the images of a task's environment folder are made of, by service."""
    if not (folder / COMPOSE).exists():
        return {MAIN: BuildSource(folder, docker_image)}
    from terminalbench.sandbox.compose.project import read_project  # few tasks have services

    project = read_project(folder, env)
    return {name: project.source(service, docker_image) for name, service in project.services.items()}


def _is_place(taken: str) -> bool:
    """Return whether it is used as it is: the host, or the folder of a root file system; archives and layouts are taken
    in."""
    return taken == HOST or (taken.startswith("/") and Path(taken).is_dir() and not Path(taken, "oci-layout").exists())


def image_to_use(environment: Path, image: str | None, *, rebuilt: bool) -> str | None:
    """Return the prebuilt image that a task runs on; None if it is built: it names none, or that is asked for."""
    return None if rebuilt and (environment / "Dockerfile").is_file() else image


class _EnvironmentTable(msgspec.Struct):
    docker_image: str | None = None
    build_timeout_sec: float = 0.0
    env: dict[str, str] = {}


class _MetadataTable(msgspec.Struct):
    host_base: Any = False


class TaskFile(msgspec.Struct):
    """What of a task's task.toml decides about its images."""

    environment: _EnvironmentTable = msgspec.field(default_factory=_EnvironmentTable)
    metadata: _MetadataTable = msgspec.field(default_factory=_MetadataTable)

    @property
    def docker_image(self) -> str | None:
        """The prebuilt image that the task names."""
        return self.environment.docker_image

    @property
    def build_sec(self) -> float:
        """Return how long the image of the task may take to build."""
        return self.environment.build_timeout_sec if self.environment.build_timeout_sec > 0 else _BUILD_SEC

    @property
    def compose_env(self) -> dict[str, str]:
        """Return the variables that its compose file may refer to: this process's, and those that the task sets."""
        return {**os.environ, **{name: fill(text, os.environ) for name, text in self.environment.env.items()}}

    @property
    def says_host_base(self) -> bool:
        """Return whether the task says that the host's system does for its images."""
        return self.metadata.host_base is True


def read_task_file(task: Path) -> TaskFile:
    """Return what the task.toml of a folder says; one that cannot be read says nothing (others say why)."""
    try:
        with (task / "task.toml").open("rb") as stream:
            return convert(tomllib.loads(stream.read(_LARGEST_FILE).decode()), TaskFile)
    except (OSError, ValueError, *NOT_DECODED):
        return TaskFile()


def fetch_missing(definition: "Definition") -> None:
    """Fetch the images of a definition that are pinned and not here: on a node of a cluster, or after a prune."""
    from terminalbench.sandbox.images.store import ImageStore

    for base, name in definition.names.items():
        if base.startswith(IMAGE):
            store, digest = ImageStore(), base.removeprefix(IMAGE)
            if store.image(digest) is None:
                store.pull(f"{name.partition('@')[0]}@{digest}")


class TaskBuild(msgspec.Struct, frozen=True):
    """A task whose image is to be built: its folder, and the parts of its task.toml that decide about it.

    `seconds` is how long its commands may take together.
    """

    name: str
    folder: str
    docker_image: str | None = None
    seconds: float = 600.0


class PrepareRequest(msgspec.Struct, frozen=True):
    """What is to be had: images by name or archive, and builds of tasks.

    `pins` are digests that images must have. `lookup`: images that are not here are only asked for. `entries`, `ca`
    and `network` are as in the options of the sandbox.
    """

    images: tuple[str, ...] = ()
    pins: dict[str, str] = {}
    builds: tuple[TaskBuild, ...] = ()
    entries: dict[str, str] = {}
    ca: str = ""
    host_network: bool = False
    force: bool = False
    lookup: bool = False


class PrepareStep(msgspec.Struct, frozen=True, tag="step"):
    """What is being done, in a line, and how far it is."""

    text: str


class ImageReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """An image: its digest, whether it is here, how much there is to fetch; or why it cannot be had."""

    digest: str | None = None
    here: bool = True
    size: int = 0
    problem: str | None = None
    moved_to: str | None = None


class PrepareReport(msgspec.Struct, frozen=True, tag="report"):
    """What came of it: images by name; of each task when its build was made, or why it failed."""

    images: dict[str, ImageReport] = {}
    built: dict[str, str | None] = {}
    failed: dict[str, str] = {}


def unfitting(patterns: Iterable[str], images: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns that fit none of these images."""
    names = {spelled for image in images for spelled in (image, normalized(image))}
    return tuple(one for one in patterns if not any(fnmatchcase(name, one) for name in names))


def _stored(image: str, where: str | None) -> str:
    from terminalbench.sandbox.images.store import ImageStore

    found = ImageStore().find(image)
    if found is None:
        raise Refused(f"the image {image} is not on this machine", where=where, hint=ways_out(image))
    return found.digest


def ways_out(image: str) -> str:
    """Return what to do about an image that is not here and cannot be fetched."""
    return (
        f"fetch it: tbench images pull {image}; or import it from an archive or folder: tbench images import PATH "
        f"{image}; or name a replacement in [run.images]; or {DOCKER_HINT}"
    )


def settings_of_base(base: str, image: str) -> ImageConfig:
    """Return what the base for an image says about commands.

    The host's Python may leave its packages to the host's own package manager, which an image of Python does not.
    """
    if not base.startswith(IMAGE):
        is_python = base == HOST and fnmatchcase(normalized(image), "python:*")
        return ImageConfig(image, env={"PIP_BREAK_SYSTEM_PACKAGES": "1"} if is_python else {})
    from terminalbench.sandbox.images.store import ImageStore

    found = ImageStore().image(base.removeprefix(IMAGE))
    return found.settings if found is not None else ImageConfig(image)
