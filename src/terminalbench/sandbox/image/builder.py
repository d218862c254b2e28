"""What a Dockerfile's image is: the base file system that stands for its FROM, and every instruction carried out."""

import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import PurePosixPath
from typing import BinaryIO

from terminalbench.sandbox import helper
from terminalbench.sandbox.base import HOST, IMAGE
from terminalbench.sandbox.engine.run import DEFAULT_PATH
from terminalbench.sandbox.errors import DOCKER_HINT, Refused, SandboxError
from terminalbench.sandbox.image.context import Context, Entry, archive_entries, write_entries
from terminalbench.sandbox.image.dockerfile import Instruction, expand, fill, words
from terminalbench.sandbox.images.manifest import ImageConfig
from terminalbench.sandbox.network.policy import CLOSED, OPEN
from terminalbench.sandbox.session import Sandbox

BUILTIN: dict[str, str] = {
    "debian:*": HOST,
    "ubuntu:*": HOST,
    "python:3*": HOST,
}
"""Images whose everyday commands (sh, coreutils, python3, ...) the host's system folders can stand for."""

STORE = "store"
"""What an image is mapped to that is to be itself, where the host would stand for it."""

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_SHELL = ("/bin/sh", "-c")


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
        """Return what stands for `image`: "host", a rootfs folder, or the image itself, if the store has it."""
        wanted = normalized(image)
        if image == "scratch":
            raise Refused("FROM scratch starts from an empty file system", where=where)
        for pattern, base in {**self.entries, **{k: v for k, v in BUILTIN.items() if k not in self.entries}}.items():
            if fnmatchcase(wanted, pattern) or fnmatchcase(image, pattern):
                if base == STORE:
                    return self._stored(image, where)
                return self.rootfs if base == HOST and self.rootfs else base
        return self._stored(image, where)

    def _stored(self, image: str, where: str | None) -> str:
        from terminalbench.sandbox.images.store import ImageStore

        found = ImageStore().find(image)
        if found is None:
            hint = f"fetch it: tbench images pull {image}; or {DOCKER_HINT}"
            raise Refused(f"the image {image} is not here", where=where, hint=hint)
        return f"{IMAGE}{found.digest}"


@dataclass(frozen=True)
class Definition:
    """What is to be built: what follows FROM in a checked Dockerfile, the ARGs before it, its context and base."""

    instructions: tuple[Instruction, ...]
    outer: Mapping[str, str]
    text: str
    context: Context
    image: str
    base: str
    where: str

    @property
    def settings(self) -> ImageConfig:
        """What the image that it starts from says about commands."""
        if not self.base.startswith(IMAGE):
            return ImageConfig(self.image)
        from terminalbench.sandbox.images.store import ImageStore

        found = ImageStore().image(self.base.removeprefix(IMAGE))
        return found.settings if found is not None else ImageConfig(self.image)

    @property
    def is_python(self) -> bool:
        """Whether it starts from a python image, which has programs that a host may lack."""
        return normalized(self.image).startswith("python:")


def platform_arguments() -> dict[str, str]:
    """The arguments BuildKit declares by itself, for this machine."""
    machine = os.uname().machine
    arch = _MACHINES.get(machine, machine)
    values = {"ARCH": arch, "OS": "linux", "PLATFORM": f"linux/{arch}"}
    return {f"{side}{name}": value for side in ("TARGET", "BUILD") for name, value in values.items()}


def declared(instruction: Instruction, known: Mapping[str, str]) -> dict[str, str]:
    """What an ARG line sets: its default, else the value known so far; nothing when there is neither."""
    found = {}
    for word in words(instruction.value, known):
        name, given, value = word.partition("=")
        if given:
            found[name] = value
        elif name in known:
            found[name] = known[name]
    return found


@dataclass
class Builder:
    """Carries out one Dockerfile in a sandbox, instruction by instruction."""

    definition: Definition
    sandbox: Sandbox
    workdir: str = "/"
    user: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    shell: list[str] = field(default_factory=lambda: list(_SHELL))
    entrypoint: list[str] = field(default_factory=list)

    async def build(self) -> ImageConfig:
        """Every instruction in order; the configuration the image ends up with."""
        start = self.definition.settings
        self.workdir, self.user, self.env = start.workdir, start.user, dict(start.env)
        self.entrypoint, self.shell = list(start.entrypoint), start.shell or self.shell
        # The one thing a python image has that a host may lack under that name.
        if self.definition.is_python and not self.sandbox.plan.base.has_program("python"):
            await self._must(["/bin/sh", "-c", "ln -s $(command -v python3) /usr/local/bin/python"], "FROM")
        for instruction in self.definition.instructions:
            await self._step(instruction)
        return ImageConfig(self.definition.image, self.workdir, self.env, self.user, self.entrypoint)

    @property
    def variables(self) -> dict[str, str]:
        """What an instruction can refer to; ENV wins over ARG. PATH is set from the start, as by Docker's images."""
        return {"PATH": DEFAULT_PATH, **self.arguments, **self.env}

    def _place(self, instruction: Instruction) -> str:
        return f"{self.definition.where}:{instruction.line}"

    async def _step(self, instruction: Instruction) -> None:
        match instruction.name:
            case "ARG":
                self.arguments |= declared(instruction, {**self.definition.outer, **self.variables})
            case "ENV":
                self.env |= _assignments(instruction.value, self.variables)
            case "WORKDIR":
                self.workdir = str(PurePosixPath(self.workdir, expand(instruction.value, self.variables)))
                await self._make_folders([self.workdir])
            case "VOLUME":
                await self._make_folders(instruction.items or words(instruction.value, self.variables))
            case "USER":
                self.user = expand(instruction.value, self.variables) or None
            case "SHELL":
                self.shell = instruction.items or self.shell
            case "ENTRYPOINT":
                self.entrypoint = (
                    instruction.items if instruction.items is not None else [*self.shell, instruction.value]
                )
            case "RUN":
                await self._run(instruction)
            case "COPY" | "ADD":
                await self._copy(instruction)

    async def _make_folders(self, folders: list[str]) -> None:
        await self._must(["mkdir", "-p", "--", *folders], "WORKDIR", cwd="/", user="root")

    async def _run(self, instruction: Instruction) -> None:
        value = instruction.value
        if instruction.heredocs:
            only = len(instruction.heredocs) == 1 and len(value.split()) == 1
            content = instruction.heredocs[0].content
            if only and content.startswith("#!"):
                await self._script(content, instruction)
                return
            value = content if only else f"{value}\n{instruction.raw_heredocs}"
        argv = instruction.items if not instruction.heredocs else None
        await self._must(
            argv or [*self.shell, value],
            f"{self._place(instruction)}: RUN {instruction.value}",
            cwd=self.workdir,
            user=self.user or "root",
            network=instruction.flag("network") != "none",
        )

    async def _script(self, content: str, instruction: Instruction) -> None:
        path = "tmp/.run-heredoc"
        entry = [Entry(path, content.encode())]
        await self.sandbox.put("/", lambda stream: write_entries(stream, entry, owner=(0, 0), mode=0o755))
        where = f"{self._place(instruction)}: RUN {instruction.value}"
        await self._must([f"/{path}"], where, cwd=self.workdir, user=self.user or "root", network=True)
        await self._must(["rm", "-f", f"/{path}"], where)

    async def _must(
        self, argv: list[str], what: str, *, cwd: str = "/", user: str = "root", network: bool = False
    ) -> None:
        if self.sandbox.link is not None:
            await self.sandbox.link.enter(OPEN if network else CLOSED, "build")
        done = await self.sandbox.run(argv, env=self.variables, cwd=cwd, user=user, network=network)
        if done.exit_code != 0:
            output = "\n".join(part.strip() for part in (done.stdout, done.stderr) if part.strip())[-4000:]
            hint = None
            if helper.helper().ids == "one":
                hint = "an ordinary user's sandbox has one user id: chown and USER need root or subordinate ids"
            raise SandboxError(f"{what} failed with exit code {done.exit_code}\n{output}", hint=hint)

    async def _copy(self, instruction: Instruction) -> None:
        where = self._place(instruction)
        given = instruction.items
        paths = [expand(item, self.variables) for item in given] if given else words(instruction.value, self.variables)
        if len(paths) < 2:
            raise Refused(
                f"{instruction.name} needs a source and a destination", where=where, hint="add the missing one"
            )
        *sources, last = paths
        target = str(PurePosixPath(self.workdir, last))
        into_folder = last.endswith(("/", "/.")) or last == "." or len(sources) > 1
        owner = await self._owner(instruction)
        mode = int(instruction.flag("chmod") or "0", 8) if instruction.flag("chmod") else None
        documents = {document.name: document for document in instruction.heredocs}

        async def put(entries: list[Entry], *, rename: bool = False) -> None:
            name = entries[0].target if rename else None
            await self.sandbox.put(
                target, lambda stream: write_entries(stream, entries, owner=owner, mode=mode), rename=name
            )

        for source in sources:
            document = documents.get(source.removeprefix("<<").removeprefix("-")) if source.startswith("<<") else None
            if document is not None:
                content = fill(document.content, self.variables) if document.expand else document.content
                await put([Entry(document.name, content.encode())], rename=not into_folder)
                continue
            found = self.definition.context.find(source, where)
            for path in found:
                real = path.resolve()
                archive = archive_entries(real) if instruction.name == "ADD" and not real.is_dir() else None
                if archive is not None:
                    with archive:
                        await self.sandbox.put(target, partial(_repack, archive, owner=owner))
                elif real.is_dir():
                    await put([Entry(name, entry) for name, entry in self.definition.context.below(real)])
                else:
                    await put([Entry(path.name, real)], rename=not into_folder and len(found) == 1)

    async def _owner(self, instruction: Instruction) -> tuple[int, int]:
        wanted = expand(instruction.flag("chown") or "", self.variables)
        if not wanted:
            return 0, 0
        name, _, group = wanted.partition(":")
        command = 'id -u -- "$1" && { [ -z "$2" ] && id -g -- "$1" || getent group "$2" | cut -d: -f3; }'
        numbers = [part for part in (name, group or name) if part.isdigit()]
        if len(numbers) == 2:
            return int(numbers[0]), int(numbers[1])
        done = await self.sandbox.run(["/bin/sh", "-c", command, "sh", name, group], env={})
        found = done.stdout.split()
        if done.exit_code != 0 or len(found) != 2:
            raise SandboxError(f"{instruction.name} --chown={wanted}: no such user or group in the image")
        return int(found[0]), int(found[1])


def _assignments(value: str, variables: Mapping[str, str]) -> dict[str, str]:
    first = value.split(None, 1)
    if first and "=" not in first[0]:  # the old form: ENV NAME the rest of the line
        return {first[0]: expand(first[1], variables) if len(first) > 1 else ""}
    return dict(word.split("=", 1) for word in words(value, variables) if "=" in word)


def _repack(archive: tarfile.TarFile, stream: BinaryIO, *, owner: tuple[int, int]) -> None:
    """Pass the members of an archive on; names that climb out of it are dropped."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as out:
        for member in archive:
            if member.name.startswith("/") or ".." in member.name.split("/"):
                continue
            member.uid, member.gid = owner
            if member.islnk():
                target = archive.getmember(member.linkname)
                member.type, member.size = tarfile.REGTYPE, target.size
                out.addfile(member, archive.extractfile(target))
            elif member.isreg():
                out.addfile(member, archive.extractfile(member))
            elif member.isdir() or member.issym():
                out.addfile(member)
