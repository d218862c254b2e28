"""Reading a Dockerfile: instructions, continuation lines, heredocs, variables. Nothing is executed here.

What the sandbox honours: FROM WORKDIR ENV ARG COPY ADD RUN USER SHELL ENTRYPOINT VOLUME, and for the services of a
compose file CMD and HEALTHCHECK (elsewhere Harbor replaces the command). Ignored because they change nothing here:
LABEL EXPOSE MAINTAINER STOPSIGNAL ONBUILD. Everything else is refused.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from terminalbench.frozen import frozen
from terminalbench.sandbox.errors import Refused

HONOURED = ("FROM", "WORKDIR", "ENV", "ARG", "COPY", "ADD", "RUN", "USER", "SHELL", "ENTRYPOINT", "VOLUME")
IGNORED = ("CMD", "LABEL", "EXPOSE", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "ONBUILD")
_FLAGS = {
    "FROM": {"platform"},
    "COPY": {"chown", "chmod", "link", "from"},
    "ADD": {"chown", "chmod", "link", "checksum"},
    "RUN": {"mount", "network"},
}
_MOUNTS = ("bind", "cache", "tmpfs")
_MOUNT_WORDS = {"dst": "target", "destination": "target", "src": "source", "readonly": "ro", "readwrite": "rw"}
_DIRECTIVE = re.compile(r"^#\s*(\w+)\s*=\s*(\S+)\s*$")
_SPACED = re.compile(r"^\d*<<$")
_HEREDOC = re.compile(r"""^\d*<<(-?)(["']?)([A-Za-z_][\w.-]*)\2$""")
_WORD = re.compile(r"""(?:[^\s"']|"(?:\\.|[^"\\])*"|'[^']*')+""")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_GIT = re.compile(r"\.git(?:[#?].*)?$")


@frozen
class Heredoc:
    """Text that follows an instruction: its word, its content, and whether variables in it are filled in."""

    name: str
    content: str
    expand: bool


@frozen
class Instruction:
    """One instruction: its line (from 1), name, `--flags`, the rest as written, and its heredocs."""

    line: int
    name: str
    value: str
    flags: tuple[tuple[str, str], ...] = ()
    heredocs: tuple[Heredoc, ...] = ()
    raw_heredocs: str = ""

    @property
    def items(self) -> list[str] | None:
        """The JSON form's strings; None when it is not written so."""
        if not self.value.startswith("["):
            return None
        try:
            items = json.loads(self.value)
        except ValueError:
            return None
        return items if isinstance(items, list) and all(isinstance(item, str) for item in items) else None

    def flag(self, name: str) -> str | None:
        """The last value of a flag; None when it is not there."""
        return dict(self.flags).get(name)

    @property
    def mounts(self) -> list[dict[str, str]]:
        """Return what each `--mount` of a RUN says, with its parts by the names that they are known by."""
        found = []
        for flag, value in self.flags:
            if flag == "mount":
                parts = (part.partition("=") for part in value.split(","))
                told = {_MOUNT_WORDS.get(name, name): text for name, _, text in parts}
                found.append({"type": "bind", **told})
        return found


@dataclass
class _DockerfileReader:
    lines: list[str]
    escape: str = "\\"
    at: int = 0
    found: list[Instruction] = field(default_factory=list)


def parse(text: str, where: str = "Dockerfile") -> list[Instruction]:
    """The instructions of a Dockerfile; one that the sandbox cannot honour is refused with its line."""
    reader = _DockerfileReader(text.replace("\r\n", "\n").split("\n"))
    for match in itertools.takewhile(bool, map(_DIRECTIVE.match, reader.lines)):
        if match is not None and match[1].lower() == "escape":
            reader.escape = match[2]
    while reader.at < len(reader.lines):
        _read_instruction(reader, where)
    check(reader.found, where)
    return reader.found


def _read_instruction(reader: _DockerfileReader, where: str) -> None:
    start, logical = reader.at + 1, ""
    while reader.at < len(reader.lines):
        line = reader.lines[reader.at]
        reader.at += 1
        if not line.strip() or line.lstrip().startswith("#"):
            if not logical:
                start = reader.at + 1
            continue
        body = line.rstrip()
        if not body.endswith(reader.escape):
            logical += line.rstrip() if logical else line.strip()
            break
        logical += body[:-1] if logical else body[:-1].lstrip()
    if not logical.strip():
        return
    name, _, value = logical.strip().partition(" ") if " " in logical.strip() else logical.strip().partition("\t")
    name, value = name.upper(), value.strip()
    flags: list[tuple[str, str]] = []
    while name in (*_FLAGS, "HEALTHCHECK") and (match := re.match(r"--([a-z-]+)(?:=(\S*))?(?:\s+|$)", value)):
        flags.append((match[1], match[2] or ""))
        value = value[match.end() :]
    heredocs, raw = _read_heredocs(reader, name, value, f"{where}:{start}")
    reader.found.append(Instruction(start, name, value, tuple(flags), heredocs, raw))


def _documents(reader: _DockerfileReader, name: str, found: list[str]) -> Iterator[str]:
    """The words that may begin a here-document; of a command also `<< EOF`, if a line ends it."""
    for word, after in zip(found, [*found[1:], ""], strict=True):
        spaced = name == "RUN" and _SPACED.match(word) is not None
        yield f"{word}{after}" if spaced and after.strip("\"'") in reader.lines[reader.at :] else word


def _read_heredocs(reader: _DockerfileReader, name: str, value: str, where: str) -> tuple[tuple[Heredoc, ...], str]:
    if name not in ("RUN", "COPY", "ADD") or "<<" not in value or value.startswith("["):
        return (), ""
    found, raw = [], []
    for match in filter(None, map(_HEREDOC.match, _documents(reader, name, _WORD.findall(value)))):
        content = []
        while True:
            if reader.at >= len(reader.lines):
                raise Refused(f"the heredoc {match[3]} never ends", where=where, hint=f"end it with a line {match[3]}")
            line = reader.lines[reader.at]
            reader.at += 1
            raw.append(line)
            if (line.lstrip("\t") if match[1] else line) == match[3]:
                break
            content.append(line.lstrip("\t") if match[1] else line)
        found.append(Heredoc(match[3], "".join(f"{line}\n" for line in content), expand=not match[2]))
    return tuple(found), "".join(f"{line}\n" for line in raw)


def check(instructions: list[Instruction], where: str) -> None:
    """Refuse what the sandbox cannot honour, before anything is built."""
    if not any(instruction.name == "FROM" for instruction in instructions):
        raise Refused("the Dockerfile has no FROM", where=where, hint="start it with a FROM line")
    for instruction in instructions:
        place = f"{where}:{instruction.line}"
        if instruction.name not in (*HONOURED, *IGNORED):
            hint = "Docker does not have it either; check whether the previous line is cut off"
            raise Refused(f"there is no instruction {instruction.name}", where=place, hint=hint)
        for flag, value in instruction.flags:
            _check_flag(instruction.name, flag, value, place)
        for source in (instruction.items or instruction.value.split())[:-1] if instruction.name == "ADD" else ():
            if source.startswith(("git@", "git://", "ssh://")) or (is_address(source) and _GIT.search(source)):
                raise Refused(
                    f"ADD of the repository {source}", where=place, hint="clone it in a RUN, or copy its files"
                )


def _check_flag(name: str, flag: str, value: str, where: str) -> None:
    if name in IGNORED:
        return
    if flag not in _FLAGS.get(name, ()):
        raise Refused(f"{name} --{flag}", where=where)
    if name == "RUN" and flag == "mount":
        _check_mount(value, where)
    if name == "RUN" and flag == "network" and value not in ("none", "default"):
        raise Refused(f"RUN --network={value}", where=where)


def _check_mount(value: str, where: str) -> None:
    (told,) = Instruction(0, "RUN", "", (("mount", value),)).mounts
    if told["type"] in ("secret", "ssh"):
        what = f"RUN --mount={value}: builds get no secrets"
        raise Refused(what, where=where, hint="fetch it before the build, and COPY what is not secret")
    if told["type"] not in _MOUNTS:
        raise Refused(f"RUN --mount={value}", where=where)
    if not told.get("target", "").startswith("/"):
        raise Refused(f"RUN --mount={value} has no absolute target", where=where, hint="add target=/folder")


def is_address(source: str) -> bool:
    """Return whether the source of an ADD is fetched from elsewhere."""
    return source.startswith(("http://", "https://"))


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`text` as one word: variables filled in, quotes removed."""
    return "".join(words(text, variables, split=False))


def fill(text: str, variables: Mapping[str, str]) -> str:
    """`text` with its variables filled in and everything else, quotes too, as written."""
    result, at = [], 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text) and text[at + 1] in "$\\":
            result.append(text[at + 1])
            at += 2
        elif text[at] == "$":
            value, at = _variable(text, at, variables)
            result.append(value)
        else:
            result.append(text[at])
            at += 1
    return "".join(result)


def words(text: str, variables: Mapping[str, str], *, split: bool = True) -> list[str]:
    """The words of `text`: split at blanks outside quotes, variables filled in, quotes removed."""
    found: list[str] = []
    word: list[str] | None = None
    quote, at = "", 0
    while at < len(text):
        char = text[at]
        at += 1
        if split and not quote and char.isspace():
            if word is not None:
                found.append("".join(word))
            word = None
            continue
        word = [] if word is None else word
        if char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
        elif char == "\\" and quote != "'" and at < len(text):
            if quote and text[at] not in '\\"$':
                word.append(char)
            word.append(text[at])
            at += 1
        elif char == "$" and quote != "'":
            value, at = _variable(text, at - 1, variables)
            word.append(value)
        else:
            word.append(char)
    return [*found, "".join(word)] if word is not None else found


def _variable(text: str, at: int, variables: Mapping[str, str]) -> tuple[str, int]:
    """The value of the variable that starts at `at`, and where the rest of the text begins."""
    if text.startswith("${", at):
        end = _closing(text, at + 2)
        body = text[at + 2 : end]
        match = _VARIABLE.match(body)
        if match is None or end >= len(text):
            return text[at : end + 1], end + 1
        value, rest = variables.get(match[0]), body[match.end() :]
        return _modified(value, rest, variables), end + 1
    match = _VARIABLE.match(text, at + 1)
    if match is None:
        return "$", at + 1
    return variables.get(match[0], ""), match.end()


def _closing(text: str, at: int) -> int:
    depth = 1
    while at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return at
        at += 1
    return at


def _modified(value: str | None, rest: str, variables: Mapping[str, str]) -> str:
    empty = value is None or (rest.startswith(":") and not value)
    operator = rest.lstrip(":")[:1]
    other = fill(rest.lstrip(":")[1:], variables)
    if operator == "-":
        return other if empty else value or ""
    if operator == "+":
        return "" if empty else other
    return value or ""
