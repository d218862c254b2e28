"""Which base file system stands for which image.

The table maps a pattern of image names to a rootfs folder, or to "host". The user's entries come first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from terminalbench.sandbox.base import HOST
from terminalbench.sandbox.errors import DOCKER_HINT, Refused

BUILTIN: dict[str, str] = {
    "debian:*": HOST,
    "ubuntu:*": HOST,
    "python:3*": HOST,
}
"""Images whose everyday commands (sh, coreutils, python3, ...) the host's system folders can stand for."""


def normalized(image: str) -> str:
    """`image` without default registry and digest, with its tag spelled out."""
    name = image.partition("@")[0]
    for prefix in ("docker.io/", "index.docker.io/", "library/"):
        name = name.removeprefix(prefix)
    last = name.rpartition("/")[2]
    return name if ":" in last else f"{name}:latest"


@dataclass(frozen=True)
class ImageTable:
    """The user's table over the built-in one; `rootfs` takes the place of the host, if given."""

    entries: Mapping[str, str]
    rootfs: str | None = None

    def base_for(self, image: str, *, where: str | None = None) -> str:
        """ "host" or the rootfs folder for `image`; an image nobody mapped is refused."""
        wanted = normalized(image)
        if image == "scratch":
            raise Refused("FROM scratch starts from an empty file system", where=where)
        for pattern, base in {**self.entries, **{k: v for k, v in BUILTIN.items() if k not in self.entries}}.items():
            if fnmatchcase(wanted, pattern) or fnmatchcase(image, pattern):
                return self.rootfs if base == HOST and self.rootfs else base
        known = ", ".join([*self.entries, *BUILTIN])
        hint = f'{DOCKER_HINT}, or map it: images = {{"{wanted}" = "/path/to/rootfs"}}; mapped so far: {known}'
        raise Refused(f"the image {image} is not mapped to a base file system", where=where, hint=hint)
