"""What stands for the images that tasks name: themselves, as the store has them, unless somebody says else."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase

from terminalbench.frozen import frozen
from terminalbench.sandbox.errors import DOCKER_HINT, Refused
from terminalbench.sandbox.images.manifest import ImageConfig
from terminalbench.sandbox.root_filesystem import HOST, IMAGE, SCRATCH

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
