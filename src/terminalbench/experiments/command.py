"""The table `command` of a profile: which program agent `command` runs, with its files."""

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from terminalbench.errors import UserError, closest
from terminalbench.experiments.mcp import private_in
from terminalbench.experiments.profiles import CommandFile, CommandSetup
from terminalbench.experiments.project import from_root
from terminalbench.experiments.tables import CommandTable
from terminalbench.frozen import frozen
from terminalbench.secrets.patterns import secrets_in
from terminalbench.strict import Problems, find_path, join

PLACE = "/opt/agent"
"""Where the files of a command are in the sandbox, unless its table says else."""
USAGE_KEYS = ("input", "output", "cached", "cost")
"""What `usage` may say where to find."""
_INTERPRETER = re.compile(r"env|(?:ba|z)?sh|node|deno|bun|python[\d.]*|uv|run|npx")
_SYSTEM_FOLDERS = tuple(map(Path, ("/bin", "/usr/bin", "/sbin", "/usr/sbin")))
_SCRIPT = re.compile(r"\.{1,2}/.+|\w[\w./-]*\.(?:py|sh|js|mjs|cjs|ts|rb|pl)")
_WORD = re.compile(r"(?<!\$)\{([A-Za-z_]+)\}")
_KNOWN_WORDS = ("instruction", "instruction_file", "model", "files", "mcp_file")
_MEANT = {"prompt": "instruction", "task": "instruction", "input": "instruction", "query": "instruction"}
_MCP_WORD = "{mcp_file}"


def words_of(line: str) -> list[str]:
    """Return the words of a command as a shell would split them."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UserError(f"{line}: {error}", hint="quote the words as a shell would need it") from None
    if not words:
        raise UserError("the command is empty", hint="write it as in 'python3 agent.py {instruction}'")
    return words


def is_interpreter(word: str) -> bool:
    """Return whether a word of a command is a program that runs others, which every system has its own of."""
    return _INTERPRETER.fullmatch(Path(word).name) is not None


def command_profile(words: Sequence[str], root: Path) -> dict[str, Any]:
    """Return the table of a profile that runs a command.

    Words that name files of the project are copied in, and named as they are there; a program that is installed on this
    machine, and not with its system, is mounted. Files are looked for from where this process is.
    """
    files: dict[str, None] = {}
    run = []
    for place, word in enumerate(words):
        path = Path.cwd() / word
        inside = "{" not in word and word != "/" and path.exists() and path.resolve().is_relative_to(root.resolve())
        if inside and path.resolve() != root.resolve():
            files[from_root(path.resolve(), root.resolve())] = None
            run.append(f"{{files}}/{path.name}")
        else:
            run.append(word)
        started = place == 0 or (place == 1 and is_interpreter(words[0]))  # others may name what it is to write
        if started and _SCRIPT.fullmatch(word) and not path.exists():
            raise UserError(f"there is no file {word}", hint="correct the path, or write the profile by hand")
    if "/" not in run[0] and not is_interpreter(run[0]) and shutil.which(run[0]) is None:
        raise UserError(f"there is no program {run[0]}", hint="install it here, or write the profile by hand")
    programs = [words[0]] if run[0] == words[0] and _is_installed(words[0]) else []
    table = {"run": run, **({"files": list(files)} if files else {})}
    return {"agent": "command", **({"programs": programs} if programs else {}), "command": table}


def _is_installed(word: str) -> bool:
    """Return whether a program is on PATH here, and is none of the system's own: images have those themselves."""
    found = shutil.which(word) if "/" not in word and not is_interpreter(word) else None
    return found is not None and Path(found).resolve().parent not in _SYSTEM_FOLDERS


@frozen
class CommandReader:
    """Reads the table at the key `at`. `private` are folders that no agent may see, and what they are."""

    root: Path
    private: Mapping[Path, str]
    at: str
    problems: Problems

    def read(self, table: CommandTable | None, servers_at: str | None) -> CommandSetup | None:
        """Return the command, checked; what is wrong is noted. `servers_at`: the profile names MCP servers there."""
        at, problems = self.at, self.problems
        if table is None:
            if not problems.at(at):
                hint = 'add [profiles.<key>.command] with run = ["my-program", "{instruction}"]'
                problems.add(at, "is missing: agent command needs one", hint)
            return None
        if not table.run or not table.run[0].strip():
            problems.add(f"{at}.run", "does not name a program", 'as in ["my-program", "{instruction}"]')
        for name in table.usage or ():
            if name not in USAGE_KEYS:
                problems.add(f"{at}.usage.{name}", f"must be one of {', '.join(USAGE_KEYS)}")
        for secret in secrets_in({"env": table.env, "run": table.run, "install": table.install}, at):
            hint = "put it in the env file and name the variable in env of the profile"
            problems.add(secret, "looks like a secret", hint)
        if servers_at is not None and not any(_MCP_WORD in word for word in table.run):
            hint = f"put {_MCP_WORD} where the command takes the path of a file of MCP servers"
            problems.add(servers_at, "the command gets no MCP servers", hint)
        named = table.files if isinstance(table.files, dict) else dict.fromkeys(table.files)
        found: dict[str, CommandFile] = {}
        for name, target in named.items():
            file = self._file(name, target, join(f"{at}.files", name))
            if file is not None and file.target in found:
                what = f"{file.target} would be both {found[file.target].name} and {name}"
                problems.add(
                    f"{at}.files",
                    what,
                    'choose another place for one of them: files = { "a.py" = "/opt/agent/one.py" }',
                )
            elif file is not None:
                found[file.target] = file
        self._check_words(table.run, found)
        return CommandSetup(table, tuple(found.values()))

    def _check_words(self, run: Sequence[str], files: Mapping[str, CommandFile]) -> None:
        """Note words that nothing would be filled in for, and files that are not there."""
        for word in dict.fromkeys(_WORD.findall(" ".join(run))):
            meant = _MEANT.get(word) or closest(word, _KNOWN_WORDS)
            if word not in _KNOWN_WORDS and meant is not None:
                hint = f"did you mean {{{meant}}}?"
                self.problems.add(f"{self.at}.run", f"{{{word}}} is not a known placeholder", hint)
        for word in run:
            inner = word.partition("{files}/")[2]
            unknown = inner and not self.problems.at(f"{self.at}.files")
            if unknown and not self._holds(files, f"{PLACE}/{inner}"):
                self.problems.add(f"{self.at}.run", f"none of its files is at {PLACE}/{inner}", "name it in files")

    @staticmethod
    def _holds(files: Mapping[str, CommandFile], place: str) -> bool:
        """Return whether one of the files, or of what a folder among them holds, is at a place."""
        return any(
            place == target or (place.startswith(f"{target}/") and (one.path / place[len(target) + 1 :]).exists())
            for target, one in files.items()
        )

    def _file(self, name: str, target: str | None, at: str) -> CommandFile | None:
        path = find_path(name, self.root, at, self.problems)
        if path is None:
            return None
        if not path.exists():
            self.problems.add(at, f"no file or folder at {path}")
            return None
        place = target or f"{PLACE}/{path.name}"
        if not place.startswith("/") or ".." in PurePosixPath(place).parts:
            self.problems.add(at, f'"{place}" is not an absolute path in the sandbox')
            return None
        if (held := private_in(path, self.private)) is not None:
            what = f"{path} holds {held}, which the agent would see"
            self.problems.add(at, what, "name only the files that it needs, or give it a separate folder")
            return None
        return CommandFile(name, path, place)
