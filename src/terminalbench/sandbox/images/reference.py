"""Names of images: `ubuntu:24.04`, `ghcr.io/owner/name@sha256:...`, as every tool of containers reads them."""

import re
from dataclasses import dataclass, replace

from terminalbench.sandbox.errors import Refused

DOCKER_HUB = "docker.io"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]+)?")


@dataclass(frozen=True)
class ImageReference:
    """The name of an image: where it is, and which of the images there. A digest wins over a tag."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def wanted(self) -> str:
        """Return what a registry is asked for."""
        return self.digest or self.tag or "latest"

    @property
    def name(self) -> str:
        """The name without tag and digest, as a person writes it."""
        if self.registry != DOCKER_HUB:
            return f"{self.registry}/{self.repository}"
        return self.repository.removeprefix("library/")

    def at(self, digest: str) -> "ImageReference":
        """Return the same name pinned to a digest."""
        return replace(self, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}" + (f"@{self.digest}" if self.digest else "")


def parse_reference(text: str, *, where: str | None = None) -> ImageReference:
    """Return the reference that a text is; one that no registry could have is refused."""
    rest, _, digest = text.partition("@")
    first, slash, more = rest.partition("/")
    registry, path = DOCKER_HUB, rest
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, path = first, more
    if registry in ("index.docker.io", "registry-1.docker.io"):
        registry = DOCKER_HUB
    repository, _, tag = path.partition(":")
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    fits = (
        _HOST.fullmatch(registry)
        and _REPOSITORY.fullmatch(repository)
        and (_TAG.fullmatch(tag) if ":" in path else True)
        and (_DIGEST.fullmatch(digest) if "@" in text else True)
    )
    if not fits:
        hint = "write it as name:tag, host/name:tag or name@sha256:..., in lower case"
        raise Refused(f'"{text}" is not the name of an image', where=where, hint=hint)
    return ImageReference(registry, repository, tag or (None if digest else "latest"), digest or None)
