"""What a shell command does: reads, searches, edits, writes, tests. By its words alone; nothing is run.

The words and what they mean are data, `taxonomies/shell.toml`. A command line that cannot be taken apart is "run".
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from posixpath import normpath

TABLES = Path(__file__).parent / "taxonomies"
_LONGEST = 20_000
_DEPTH = 3
_TOKEN = re.compile(
    r"(?P<redirect>\d*(?:&>>?|>>?\|?|<<<|<)(?:&\d+)?)"
    r"|(?P<end>&&|\|\||;;|[;&|\n()]|\$\(|`)"
    r"""|(?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s;&|<>()'"\\`])+)"""
    r"|(?P<odd>['\"\\])",
    re.DOTALL,
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_EDIT_BLOCK = re.compile(r"^(edit \d+:\d+)\n.*?(?:\nend_of_edit|\Z)", re.DOTALL | re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_QUOTES = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""", re.DOTALL)
_PATCH_FILE = re.compile(r"(?m)^\*\*\* (Update|Add|Delete) File: (.+?)\s*$")
_PATCHES = {"Update": "edit", "Add": "write", "Delete": "delete"}
PLACES = {"read": "reads", "edit": "edits", "write": "writes", "delete": "deletes"}
"""The kinds that touch files, and where `Effects` has them."""
_SENT = re.compile(r"(?<!(?<!\\)\s2)>(?!&\d|\s*/dev/)")
_IN_PLACE = re.compile(r"-n?i|--in-place")
_APART = bytes(code if re.match(rb"[\w.-]", bytes([code])) else 32 for code in range(256))
"""Each byte as itself or, between the words of a command line, as a space."""
CHANGES = frozenset({"edit", "write", "delete"})
"""Kinds that change files."""
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_NO_FILE = ("/dev/", "&")


@dataclass(frozen=True, slots=True)
class Effects:
    """What one call does. `kinds` are its parts in order, each once."""

    kinds: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()


@dataclass
class _Command:
    words: list[str] = field(default_factory=list)
    targets: list[tuple[str, bool]] = field(default_factory=list)


@dataclass(frozen=True)
class _ShellTables:
    prefixes: dict[str, int]
    kinds: dict[str, str]
    longest: int
    test: re.Pattern[str]
    may_test: frozenset[str]
    may_change: frozenset[str]
    options: dict[str, list[str]]
    failed: re.Pattern[str]
    passed: re.Pattern[str]


@cache
def _tables() -> _ShellTables:
    raw = tomllib.loads((TABLES / "shell.toml").read_text())
    kinds = {name: kind for kind, names in raw["kinds"].items() for name in names}
    telling = {kind: {_flat(name).split()[-1] for name in raw["kinds"][kind]} for kind in ("test", *CHANGES)}
    return _ShellTables(
        prefixes=raw["prefixes"],
        kinds=kinds,
        longest=max(name.count(" ") + 1 for name in kinds),
        test=re.compile(raw["patterns"]["test"]),
        may_test=frozenset(word for word in telling["test"] if not _says_test(word)),
        may_change=frozenset({"perl", "-delete"}.union(*(telling[kind] for kind in CHANGES))),
        options=raw["options"],
        failed=_one_of(raw["test_results"]["failed"]),
        passed=_one_of(raw["test_results"]["passed"]),
    )


def _one_of(beginnings: list[str]) -> re.Pattern[str]:
    """Return a pattern that finds a line with any of these beginnings, in one pass over the text."""
    return re.compile(f"(?m)^(?:{'|'.join(beginnings)})")


def may(command: str) -> tuple[bool, bool]:
    """Return whether a command line may run tests, and change files: true for all that do, and quick."""
    tables, flat = _tables(), _flat(command)
    words = [*flat.split(), *_flat(command, b"").split()]  # a quote without its other half ends a word
    tests = _says_test(flat) or not tables.may_test.isdisjoint(words)
    if (">" in command and _SENT.search(command)) or "*** " in command or ("sed" in words and _IN_PLACE.search(flat)):
        return tests, True
    return tests, not tables.may_change.isdisjoint(words)


def _flat(command: str, quotes: bytes = b"'\"\\") -> str:
    """Return the words of a command line, spaces between them: its quotes left out, as a shell does."""
    return command.encode(errors="replace").translate(_APART, quotes).decode()


def _says_test(words: str) -> bool:
    return "test" in words or "check" in words or "Test" in words


def summary_of_tests(output: str) -> bool | None:
    """Return what the last words of a test run say; None when they say nothing we know."""
    tail = output[-_LONGEST:]
    tables = _tables()
    if tables.failed.search(tail):
        return False
    return True if tables.passed.search(tail) else None


@lru_cache(maxsize=4096)
def command_effects(command: str, depth: int = 0) -> Effects:
    """Return what the command line does."""
    found = _ShellFindings()
    for change, path in _PATCH_FILE.findall(command[:_LONGEST]):
        found.put(_PATCHES[change], path)
    for simple in _commands(_without_heredocs(command[:_LONGEST])):
        found.add(simple, depth)
    return found.effects()


def patch_effects(text: str) -> Effects:
    """Return what an `apply_patch` text changes."""
    found = _ShellFindings()
    for change, path in _PATCH_FILE.findall(text):
        found.put(_PATCHES[change], path)
    return found.effects() if found.kinds else Effects(("edit",))


@dataclass
class _ShellFindings:
    """The kinds in order, and the files by kind."""

    kinds: list[str] = field(default_factory=list)
    files: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in PLACES})

    def effects(self) -> Effects:
        files = (tuple(dict.fromkeys(map(normpath, paths))) for paths in self.files.values())
        return Effects(tuple(dict.fromkeys(self.kinds)), *files)

    def put(self, kind: str, path: str) -> None:
        self.kinds.append(kind)
        self.files[kind].append(path)

    def add(self, command: _Command, depth: int) -> None:
        words = _real_words(command.words)
        for path, appended in command.targets:
            self.put("edit" if appended else "write", path)
        if not words:
            return
        if words[0] in _SHELLS and depth < _DEPTH:
            inner = _inner_script(words)
            if inner is not None:
                effects = command_effects(inner, depth + 1)
                self.kinds += effects.kinds
                for kind, place in PLACES.items():
                    self.files[kind] += getattr(effects, place)
                return
        kind = _kind(words)
        if kind in ("say", "read") and command.targets:
            return  # `cat > file` and `echo x > file` only write
        self.kinds.append(kind)
        if kind in PLACES:
            self.files[kind] += _files(kind, words)
        if words[0] == "find" and "-exec" in words:
            self.add(_Command(words[words.index("-exec") + 1 :]), depth)


def _files(kind: str, words: list[str]) -> list[str]:
    """The files that a command of this kind is about."""
    files = _arguments(words)
    if kind == "read":
        return files[1:] if words[0] in ("sed", "awk", "gawk", "jq") and "-f" not in words else files
    if kind == "edit":
        return files[1:] if words[0] in ("sed", "perl", "chmod", "chown") else files
    return files[-1:] if kind == "write" and words[0] not in ("tee", "touch") else files


def _kind(words: list[str]) -> str:
    tables = _tables()
    name = words[0].rsplit("/", 1)[-1] if words[0].startswith("/") else words[0]
    if name == "sed" and any(w.startswith(("-i", "-ni")) or w == "--in-place" for w in words[1:]):
        return "edit"
    if name == "perl" and any(re.match(r"-\w*i", w) for w in words[1:]):
        return "edit"
    if name == "tee" and "-a" in words:
        return "edit"
    if name == "find" and "-delete" in words:
        return "delete"
    for length in range(min(tables.longest, len(words)), 0, -1):
        found = tables.kinds.get(" ".join([name, *words[1:length]]))
        if found is not None:
            return found
    script = next((w for w in words[:3] if not w.startswith("-") and "." in w), "")
    return "test" if tables.test.search(script) else "run"


def _real_words(words: list[str]) -> list[str]:
    """The words from the real command on: without assignments, `sudo`, `timeout 5`, `uv run`."""
    prefixes = _tables().prefixes
    rest = list(words)
    while rest:
        pair = " ".join(rest[:2])
        if _ASSIGNMENT.match(rest[0]):
            rest = rest[1:]
        elif pair in prefixes:
            rest = rest[2:]
        elif rest[0] in prefixes and len(rest) > 1:
            takes, rest = prefixes[rest[0]], rest[1:]
            while rest and rest[0].startswith("-"):
                rest = rest[1:]
            rest = rest[takes:]
        else:
            break
    return rest


def _inner_script(words: list[str]) -> str | None:
    for position, word in enumerate(words[1:], start=1):
        if word.startswith("-") and word.endswith("c") and position + 1 < len(words):
            return words[position + 1]
    return None


def _arguments(words: list[str]) -> list[str]:
    """The words that may be files: no options, and not what an option takes."""
    takes = _tables().options.get(words[0], [])
    found: list[str] = []
    skip = False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in takes:
            skip = True
        elif word and not word.startswith("-"):
            found.append(word)
    return found


def _commands(text: str) -> Iterator[_Command]:
    """The simple commands of a command line, with where each sends its output."""
    current = _Command()
    redirect: str | None = None
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match.lastgroup == "redirect":
            redirect = None if "&" in token[1:] else token
        elif match.lastgroup == "word":
            word = _plain(token)
            if redirect is None:
                current.words.append(word)
            elif (
                redirect.lstrip("012")[:1] in (">", "&")
                and not redirect.startswith("2")
                and word
                and not word.startswith(_NO_FILE)
            ):
                current.targets.append((word, ">>" in redirect))
            redirect = None
        else:
            redirect = None
            if current.words or current.targets:
                yield current
            current = _Command()
    if current.words or current.targets:
        yield current


def _plain(token: str) -> str:
    if "'" not in token and '"' not in token and "\\" not in token:
        return token
    return _QUOTES.sub(lambda m: next((g for g in m.groups() if g is not None), ""), token)


def _without_heredocs(text: str) -> str:
    if text.startswith("edit "):  # SWE-agent's own editor: the text it puts there is no command
        text = _EDIT_BLOCK.sub(r"\1", text)
    if "<<" not in text:
        return text
    kept: list[str] = []
    waiting: list[str] = []
    for line in text.split("\n"):
        if waiting:
            if line.strip() == waiting[0]:
                waiting.pop(0)
            continue
        waiting = [m.group(2) for m in _HEREDOC.finditer(line)]
        kept.append(_HEREDOC.sub("", line))
    return "\n".join(kept)
