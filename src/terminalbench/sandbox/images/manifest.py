"""What registries and archives say of images: indexes, manifests and configurations, and the one for this machine."""

import os
from typing import Any

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.sandbox.errors import ImageError, ImageFault

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "ppc64le": "ppc64le"}
_FOREIGN = "nondistributable", "foreign"


class Platform(msgspec.Struct, frozen=True):
    """The machine that an image is for."""

    architecture: str = ""
    os: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """A document or layer by its digest and size."""

    digest: str
    size: int
    media_type: str = ""
    platform: Platform | None = None


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """An image, or an index of images for several machines."""

    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] = ()
    manifests: tuple[Descriptor, ...] = ()


class HealthCheck(msgspec.Struct, frozen=True, rename="pascal"):
    """How to see that a service works: a command, and how long to be patient with it. Times are in nanoseconds."""

    test: tuple[str, ...] = ()
    interval: int = 0
    timeout: int = 0
    start_period: int = 0
    retries: int = 0


class _ImageSettings(msgspec.Struct, frozen=True, rename="pascal"):
    env: list[str] | None = None
    working_dir: str | None = None
    user: str | None = None
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    shell: list[str] | None = None
    healthcheck: HealthCheck | None = None


class _RootFs(msgspec.Struct, frozen=True):
    diff_ids: tuple[str, ...] = ()


class ConfigFile(msgspec.Struct, frozen=True):
    """The configuration of an image."""

    architecture: str = ""
    os: str = ""
    variant: str = ""
    config: _ImageSettings | None = None
    rootfs: _RootFs = _RootFs()
    created: str | None = None


class ImageConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an image says about the commands run in it."""

    image: str
    workdir: str = "/"
    env: dict[str, str] = msgspec.field(default_factory=dict)
    user: str | None = None
    entrypoint: list[str] = msgspec.field(default_factory=list)
    shell: list[str] = msgspec.field(default_factory=list)
    command: list[str] = msgspec.field(default_factory=list)
    health: HealthCheck | None = None


def architecture() -> str:
    """Return what images call this machine."""
    machine = os.uname().machine
    return _MACHINES.get(machine, machine)


def read_document[T](data: bytes, kind: type[T], name: str) -> T:
    """Return a document of an image; one that cannot be read is damaged."""
    try:
        found: Any = decode(data, kind)
    except NOT_DECODED as error:
        raise ImageError(ImageFault.DAMAGED, f"{name}: a document of the image cannot be read: {error}") from None
    return found


def chosen(index: Manifest, name: str) -> Descriptor:
    """Return the image of an index that runs on this machine."""
    wanted = architecture()
    fits = [one for one in index.manifests if (p := one.platform) and (p.os, p.architecture) == ("linux", wanted)]
    if fits:
        return min(fits, key=lambda one: (one.platform or Platform()).variant not in ("", "v8"))
    there = ", ".join(sorted({str(one.platform) for one in index.manifests if one.platform} - {"unknown/unknown"}))
    raise _other_machine(name, there or "unknown machines")


def check_image(manifest: Manifest, config: ConfigFile, name: str) -> None:
    """Refuse an image that this machine cannot run, or whose layers are elsewhere."""
    if manifest.config is None or not manifest.layers:
        raise no_image(name)
    if config.os not in ("", "linux") or config.architecture not in ("", architecture()):
        raise _other_machine(name, f"{config.os}/{config.architecture}")
    if len(config.rootfs.diff_ids) != len(manifest.layers):
        raise ImageError(ImageFault.DAMAGED, f"{name}: its configuration does not fit its layers")
    for layer in manifest.layers:
        if any(word in layer.media_type for word in _FOREIGN):
            raise ImageError(
                ImageFault.UNSUPPORTED, f"{name}: one of its layers is stored elsewhere ({layer.media_type})"
            )


def settings_of(config: ConfigFile, name: str) -> ImageConfig:
    """Return what a configuration says about commands."""
    told = config.config or _ImageSettings()
    env = dict(entry.partition("=")[::2] for entry in told.env or ())
    return ImageConfig(
        name,
        told.working_dir or "/",
        env,
        told.user or None,
        list(told.entrypoint or ()),
        list(told.shell or ()),
        list(told.cmd or ()),
        told.healthcheck,
    )


def no_image(name: str) -> ImageError:
    """Return that a document is of something else than an image."""
    what = f"{name} is not an image of layers"
    return ImageError(ImageFault.UNSUPPORTED, what, hint="push it again with a current tool")


def _other_machine(name: str, there: str) -> ImageError:
    what = f"{name} is for {there}; this machine is linux/{architecture()}"
    return ImageError(ImageFault.PLATFORM, what, hint="run it on such a machine, or use another image")
