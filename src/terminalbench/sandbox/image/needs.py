"""What a task needs of this machine, known from its files: images, and what the sandbox can carry out."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from terminalbench.sandbox.base import HOST, IMAGE
from terminalbench.sandbox.errors import Refused
from terminalbench.sandbox.image.steps import StageReader, recipe_of
from terminalbench.sandbox.image.table import ImageTable
from terminalbench.sandbox.images.manifest import ImageConfig

if TYPE_CHECKING:
    from terminalbench.sandbox.image.build import Definition

HOST_BASE = "host_base"
"""The key of `[metadata]` by which a task says that the host's system does for its images."""
COMPOSE = "docker-compose.yaml"
"""The file by which a task has further services; by another name it is one of the task's own."""
_LARGEST_FILE = 1 << 20


@dataclass(frozen=True)
class TaskNeeds:
    """What a task needs: images of the store, what stands for others; or why the sandbox cannot run it."""

    images: tuple[str, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None


def needs_of(task: Path, entries: Mapping[str, str]) -> TaskNeeds:
    """Return what the task in a folder needs, where `entries` say what stands for images."""
    config = _config(task)
    image = _image_of(config)
    table = ImageTable(entries, host=_on_host(config))
    wanted: dict[str, str] = {}
    for folder in (task / "environment", task / "tests"):
        if not (folder / "Dockerfile").is_file() and (folder.name == "tests" or not image):
            continue  # a verifier's own image is rare; of a missing Dockerfile Harbor says so
        try:
            wanted |= _images(folder, image, table)
        except Refused as error:
            return TaskNeeds(problem=str(error))
        except (OSError, ValueError) as error:
            return TaskNeeds(problem=f"{folder / 'Dockerfile'} cannot be read: {error}")
    own = tuple(dict.fromkeys(taken for taken in wanted.values() if not _is_place(taken)))
    return TaskNeeds(own, {name: taken for name, taken in wanted.items() if _is_place(taken)})


def _images(folder: Path, image: str | None, table: ImageTable) -> dict[str, str]:
    """The images that a folder's Dockerfile names, each with what it is taken from; what cannot be done is refused."""
    if (folder / COMPOSE).exists():
        raise Refused("a task with Docker Compose services", where=str(folder / COMPOSE))
    recipe = recipe_of(folder, image)
    for stage in recipe.needed():
        StageReader(recipe, ImageConfig(stage.image)).read(stage)
    if "scratch" in (wanted := recipe.images()):
        table.base_for("scratch", where=recipe.where)
    return {name: table.stand_in(name) for name in wanted}


def _is_place(taken: str) -> bool:
    """Whether it is used as it is: the host, or the folder of a root file system; archives and layouts are taken in."""
    return taken == HOST or (taken.startswith("/") and Path(taken).is_dir() and not Path(taken, "oci-layout").exists())


def docker_image(task: Path) -> str | None:
    """The prebuilt image that a task names."""
    return _image_of(_config(task))


def _image_of(config: Mapping[str, Any]) -> str | None:
    environment = config.get("environment")
    image = environment.get("docker_image") if isinstance(environment, dict) else None
    return image if isinstance(image, str) else None


def says_host_base(task: Path) -> bool:
    """Whether a task says that the host's system does for its images."""
    return _on_host(_config(task))


def _on_host(config: Mapping[str, Any]) -> bool:
    metadata = config.get("metadata")
    return isinstance(metadata, dict) and metadata.get(HOST_BASE) is True


def _config(task: Path) -> dict[str, Any]:
    try:
        with (task / "task.toml").open("rb") as stream:
            return tomllib.loads(stream.read(_LARGEST_FILE).decode())
    except (OSError, ValueError, RecursionError):  # said by whoever reads the whole task
        return {}


def fetch_missing(definition: "Definition") -> None:
    """Fetch the images of a definition that are pinned and not here: on a node of a cluster, or after a prune."""
    from terminalbench.sandbox.images.store import ImageStore

    for base, name in definition.names.items():
        if base.startswith(IMAGE):
            store, digest = ImageStore(), base.removeprefix(IMAGE)
            if store.image(digest) is None:
                store.pull(f"{name.partition('@')[0]}@{digest}")
