"""What a Dockerfile says, worked out before anything runs: its stages, and every instruction as a step.

All of it is known in advance but what commands do: variables, folders, users and settings do not depend on them. So
the layer of a step can be looked for before it is made.
"""

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import msgspec

from terminalbench.sandbox.builds.dockerfile import Instruction, expand, fill, parse, words
from terminalbench.sandbox.engine import DEFAULT_PATH
from terminalbench.sandbox.errors import Refused
from terminalbench.sandbox.images.manifest import HealthCheck, ImageConfig, architecture

_SHELL = ("/bin/sh", "-c")
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h)")
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


class RunMount(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `--mount` of a RUN: what it shows at `target`; `origin` is a stage or an image, else it is the context."""

    kind: str
    target: str
    source: str = ""
    origin: str | None = None
    writable: bool = False
    name: str = ""


class FolderStep(msgspec.Struct, frozen=True, tag="folders"):
    """Make folders, as root."""

    line: int
    folders: tuple[str, ...]


class RunStep(msgspec.Struct, frozen=True, tag="run"):
    """Run a command; `script` is a file of a heredoc that is run instead."""

    line: int
    text: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    user: str
    network: bool
    mounts: tuple[RunMount, ...] = ()
    script: str | None = None


class CopyStep(msgspec.Struct, frozen=True, tag="copy"):
    """Copy files into the image: of the context, of a stage or an image (`origin`), of an address, or `documents`."""

    line: int
    text: str
    sources: tuple[str, ...]
    target: str
    into_folder: bool
    owner: str = ""
    mode: int | None = None
    origin: str | None = None
    documents: dict[str, str] = {}
    unpacks: bool = False
    checksum: str | None = None


Step = FolderStep | RunStep | CopyStep


@dataclass(frozen=True)
class Stage:
    """One FROM and what follows it. It starts from an image, or from the stage of number `parent`."""

    number: int
    name: str | None
    image: str
    parent: int | None
    line: int
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Recipe:
    """A Dockerfile that was read: its stages, and the arguments before the first of them."""

    stages: tuple[Stage, ...]
    arguments: Mapping[str, str]
    where: str
    given: Mapping[str, str] = field(default_factory=dict)
    """Values that arguments have whatever their lines say."""

    def stage(self, name: str) -> Stage | None:
        """Return the stage that COPY or a mount means by a name or a number; None: it means an image."""
        if name.isdigit() and int(name) < len(self.stages):
            return self.stages[int(name)]
        return next((one for one in self.stages if one.name == name.lower()), None)

    def needed(self) -> list[Stage]:
        """Return the stages that the last one is made of, itself last."""
        found: dict[int, Stage] = {}
        stack = [self.stages[-1]]
        while stack:
            stage = stack.pop()
            found[stage.number] = stage
            others = [self.stage(name) for name, _line in _origins(stage)]
            others += [self.stages[stage.parent]] if stage.parent is not None else []
            stack += [one for one in others if one is not None and one.number not in found]
        return [found[number] for number in sorted(found)]

    def images(self) -> dict[str, int]:
        """Return the images that are needed, each with the line that names it first."""
        found: dict[str, int] = {}
        for stage in self.needed():
            if stage.parent is None:
                found.setdefault(stage.image, stage.line)
            for name, line in _origins(stage):
                if self.stage(name) is None:
                    found.setdefault(name, line)
        return found


@dataclass(frozen=True)
class BuildSource:
    """What an image is made of: the Dockerfile of a folder up to its stage `target`, or a prebuilt `image` as it is."""

    folder: Path
    image: str | None = None
    dockerfile: str = "Dockerfile"
    arguments: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    where: str | None = None

    def recipe(self) -> Recipe:
        """Read it."""
        if self.image is not None:
            where = self.where or f"docker_image of {self.folder.parent.name}"
            return read_recipe(f"FROM {self.image}\n", where)
        path = self.folder / self.dockerfile
        found = read_recipe(path.read_text(encoding="utf-8"), str(path), self.arguments)
        if self.target is None:
            return found
        last = found.stage(self.target)
        if last is None:
            raise Refused(f"{path} has no stage {self.target}", where=self.where, hint="name one of its stages")
        return dataclasses.replace(found, stages=found.stages[: last.number + 1])


def read_recipe(text: str, where: str, given: Mapping[str, str] | None = None) -> Recipe:
    """Return what a Dockerfile says; what the sandbox cannot honour is refused with its line."""
    arguments = platform_arguments()
    stages: list[Stage] = []
    current: list[Instruction] = []
    for instruction in parse(text, where):
        if instruction.name == "FROM":
            current = []
            stages.append(_stage(instruction, stages, arguments, where))
        elif stages:
            current.append(instruction)
            stages[-1] = _with(stages[-1], current)
        elif instruction.name == "ARG":
            arguments |= declared(instruction, arguments, given or {})
        elif instruction.name not in ("LABEL", "MAINTAINER"):
            raise Refused(f"{instruction.name} before FROM", where=where, hint="start the Dockerfile with FROM")
    found = Recipe(tuple(stages), arguments, where, given or {})
    for stage in found.stages:
        for name, line in _origins(stage):
            other = found.stage(name)
            if other is not None and other.number >= stage.number:
                raise Refused(f"the stage {name} is used before it is made", where=f"{where}:{line}", hint=None)
    return found


def _with(stage: Stage, instructions: Sequence[Instruction]) -> Stage:
    return Stage(stage.number, stage.name, stage.image, stage.parent, stage.line, tuple(instructions))


def _stage(instruction: Instruction, before: Sequence[Stage], arguments: Mapping[str, str], where: str) -> Stage:
    place = f"{where}:{instruction.line}"
    wanted = expand(instruction.flag("platform") or "", arguments)
    if wanted and wanted != arguments["TARGETPLATFORM"] and not arguments["TARGETPLATFORM"].startswith(f"{wanted}/"):
        raise Refused(f"FROM --platform={wanted} on a {arguments['TARGETPLATFORM']} machine", where=place)
    parts = instruction.value.split()
    image = expand(parts[0] if parts else "", arguments)
    if not image:
        raise Refused(
            f"FROM {instruction.value} names no image", where=place, hint="give its ARG a value, or name the image"
        )
    name = parts[2].lower() if len(parts) == 3 and parts[1].upper() == "AS" else None
    parent = next((one.number for one in reversed(before) if one.name == image.lower()), None)
    return Stage(len(before), name, image, parent, instruction.line, ())


def _origins(stage: Stage) -> Iterator[tuple[str, int]]:
    """The names of stages and images that a stage takes files from, each with its line."""
    for instruction in stage.instructions:
        if instruction.name == "COPY" and (name := instruction.flag("from")):
            yield name, instruction.line
        if instruction.name == "RUN":
            yield from ((mount["from"], instruction.line) for mount in instruction.mounts if mount.get("from"))


def platform_arguments() -> dict[str, str]:
    """The arguments BuildKit declares by itself, for this machine."""
    arch = architecture()
    values = {"ARCH": arch, "OS": "linux", "PLATFORM": f"linux/{arch}"}
    return {f"{side}{name}": value for side in ("TARGET", "BUILD") for name, value in values.items()}


def declared(instruction: Instruction, known: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return what an ARG line sets: what is given, its default, else the value known so far; nothing when there is
    none."""
    found = {}
    for word in words(instruction.value, known):
        name, has_default, value = word.partition("=")
        if name in given:
            found[name] = given[name]
        elif has_default:
            found[name] = value
        elif name in known:
            found[name] = known[name]
    return found


@dataclass
class StageReader:
    """Turns the instructions of a stage into steps, and keeps the settings that its image has in the end."""

    recipe: Recipe
    settings: ImageConfig
    arguments: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        start = self.settings
        self.workdir, self.user, self.env = start.workdir, start.user, dict(start.env)
        self.entrypoint, self.shell = list(start.entrypoint), start.shell or list(_SHELL)
        self.command, self.health = list(start.command), start.health

    def read(self, stage: Stage) -> list[Step]:
        """Return the steps of a stage."""
        return [step for instruction in stage.instructions for step in self._steps(instruction)]

    def config(self, image: str) -> ImageConfig:
        """Return the settings after what was read."""
        shell = self.shell if self.shell != list(_SHELL) else []
        own = (self.entrypoint, shell, self.command, self.health)
        return ImageConfig(image, self.workdir, self.env, self.user, *own)

    @property
    def _variables(self) -> dict[str, str]:
        """Return what an instruction can refer to; ENV wins over ARG. PATH is set from the start, as by Docker's
        images."""
        return {"PATH": DEFAULT_PATH, **self.arguments, **self.env}

    def _steps(self, instruction: Instruction) -> Iterator[Step]:
        match instruction.name:
            case "ARG":
                self.arguments |= declared(instruction, {**self.recipe.arguments, **self._variables}, self.recipe.given)
            case "ENV":
                self.env |= _assignments(instruction.value, self._variables)
            case "WORKDIR":
                self.workdir = os.path.normpath(PurePosixPath(self.workdir, expand(instruction.value, self._variables)))
                yield FolderStep(instruction.line, (self.workdir,))
            case "VOLUME":
                folders = instruction.items or words(instruction.value, self._variables)
                yield FolderStep(instruction.line, tuple(folders))
            case "USER":
                self.user = expand(instruction.value, self._variables) or None
            case "SHELL":
                self.shell = instruction.items or self.shell
            case "ENTRYPOINT":
                self.entrypoint = self._argv(instruction)
                self.command = []  # what the image below it would run
            case "CMD":
                self.command = self._argv(instruction)
            case "HEALTHCHECK":
                self.health = _health(instruction)
            case "RUN":
                yield self._run(instruction)
            case "COPY" | "ADD":
                yield self._copy(instruction)

    def _argv(self, instruction: Instruction) -> list[str]:
        return instruction.items if instruction.items is not None else [*self.shell, instruction.value]

    def _run(self, instruction: Instruction) -> RunStep:
        value, script = instruction.value, None
        if instruction.heredocs:
            only = len(instruction.heredocs) == 1 and len(value.split()) == 1
            content = instruction.heredocs[0].content
            if only and content.startswith("#!"):
                script = content
            value = content if only else f"{value}\n{instruction.raw_heredocs}"
        argv = instruction.items if not instruction.heredocs else None
        return RunStep(
            instruction.line,
            f"RUN {instruction.value}",
            tuple(argv or [*self.shell, value]),
            self._variables,
            self.workdir,
            self.user or "root",
            instruction.flag("network") != "none",
            tuple(map(self._mount, instruction.mounts)),
            script,
        )

    def _mount(self, told: Mapping[str, str]) -> RunMount:
        target = expand(told["target"], self._variables)
        source = expand(told.get("source", ""), self._variables)
        writable = "rw" in told or told["type"] != "bind"
        return RunMount(told["type"], target, source, told.get("from"), writable, told.get("id") or target)

    def _copy(self, instruction: Instruction) -> CopyStep:
        given, variables = instruction.items, self._variables
        paths = [expand(item, variables) for item in given] if given else words(instruction.value, variables)
        if len(paths) < 2:
            where = f"{self.recipe.where}:{instruction.line}"
            what = f"{instruction.name} needs a source and a destination"
            raise Refused(what, where=where, hint="add the missing one")
        *sources, last = paths
        documents = {
            f"<<{one.name}": fill(one.content, variables) if one.expand else one.content for one in instruction.heredocs
        }
        mode = instruction.flag("chmod")
        return CopyStep(
            instruction.line,
            f"{instruction.name} {instruction.value}",
            tuple(source.replace("<<-", "<<", 1) if source.startswith("<<-") else source for source in sources),
            str(PurePosixPath(self.workdir, last)),
            last.endswith(("/", "/.")) or last == "." or len(sources) > 1,
            expand(instruction.flag("chown") or "", variables),
            self._mode(expand(mode, variables), instruction) if mode else None,
            instruction.flag("from"),
            documents,
            instruction.name == "ADD",
            instruction.flag("checksum"),
        )

    def _mode(self, text: str, instruction: Instruction) -> int:
        try:
            return int(text, 8)
        except ValueError:
            where = f"{self.recipe.where}:{instruction.line}"
            raise Refused(f"{instruction.name} --chmod={text}", where=where, hint="write an octal mode") from None


def _assignments(value: str, variables: Mapping[str, str]) -> dict[str, str]:
    first = value.split(None, 1)
    if first and "=" not in first[0]:  # the old form: ENV NAME the rest of the line
        return {first[0]: expand(first[1], variables) if len(first) > 1 else ""}
    return dict(word.split("=", 1) for word in words(value, variables) if "=" in word)


def _health(instruction: Instruction) -> HealthCheck:
    """Return what a HEALTHCHECK says; its words are `NONE`, or CMD with a command."""
    kind, _, rest = instruction.value.partition(" ")
    told = Instruction(instruction.line, instruction.name, rest.strip())
    test = ("CMD", *told.items) if told.items is not None else ("CMD-SHELL", told.value)
    times = (instruction.flag(name) or "" for name in ("interval", "timeout", "start-period"))
    retries = instruction.flag("retries") or ""
    patience = (*map(nanoseconds, times), int(retries) if retries.isdigit() else 0)
    return HealthCheck(("NONE",) if kind.upper() == "NONE" else test, *patience)


def nanoseconds(text: str) -> int:
    """Return a time as Docker writes it (`1m30s`); 0 for one that cannot be understood."""
    if re.fullmatch(rf"(?:{_TIME.pattern})+", text) is None:
        return 0
    return round(sum(float(number) * _UNITS[unit] for number, unit in _TIME.findall(text)))


def segments(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """Return the steps in parts that become a layer each: a command with what is copied for it, and what is left."""
    found: list[tuple[Step, ...]] = []
    current: list[Step] = []
    for step in steps:
        current.append(step)
        if isinstance(step, RunStep):
            found.append(tuple(current))
            current = []
    return [*found, tuple(current)] if current else found
