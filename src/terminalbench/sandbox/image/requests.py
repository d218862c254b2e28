"""What the program that prepares images is asked, and what it answers."""

import msgspec


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
