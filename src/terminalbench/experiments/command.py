"""The table `command` of a profile: which program agent `command` runs, with its files."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from terminalbench.errors import UserError
from terminalbench.experiments.mcp import held_in
from terminalbench.experiments.profiles import CommandFile, CommandSetup, handed_files
from terminalbench.experiments.project import from_root
from terminalbench.experiments.tables import CommandTable
from terminalbench.secrets.find import secrets_in
from terminalbench.strict import Problems, find_path, join

PLACE = "/opt/agent"
"""Where the files of a command are in the sandbox, unless its table says else."""
USAGE_KEYS = ("input", "output", "cached", "cost")
"""What `usage` may say where to find."""
_MCP_WORD = "{mcp_file}"
_PRIVATE = (".env", ".env.*")


def words_of(line: str) -> list[str]:
    """Return the words of a command as a shell would split them."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UserError(f"{line}: {error}", hint="quote it as for a shell") from None
    if not words:
        raise UserError("the command has no word", hint="as in 'python3 agent.py {instruction}'")
    return words


def split(words: Sequence[str], root: Path) -> dict[str, Any]:
    """Return the table of a command: words that name files of the project are copied in, and named as they are there.

    Files are looked for from where this process is.
    """
    files: dict[str, None] = {}
    run = []
    for word in words:
        path = Path.cwd() / word
        inside = "{" not in word and word != "/" and path.exists() and path.resolve().is_relative_to(root.resolve())
        if inside and path.resolve() != root.resolve():
            files[from_root(path.resolve(), root.resolve())] = None
            run.append(f"{{files}}/{path.name}")
        else:
            run.append(word)
    return {"run": run, **({"files": list(files)} if files else {})}


@dataclass(frozen=True)
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
            problems.add(f"{at}.run", "names no program", 'as in ["my-program", "{instruction}"]')
        for name in table.usage or ():
            if name not in USAGE_KEYS:
                problems.add(f"{at}.usage.{name}", f"must be one of {', '.join(USAGE_KEYS)}")
        for secret in secrets_in({"env": table.env, "run": table.run, "install": table.install}, at):
            hint = "put it in the env file and name the variable in env of the profile"
            problems.add(secret, "looks like a secret", hint)
        if servers_at is not None and not any(_MCP_WORD in word for word in table.run):
            hint = f"put {_MCP_WORD} into its words where it takes the path of a file of MCP servers"
            problems.add(servers_at, "the command is not told of MCP servers", hint)
        named = table.files if isinstance(table.files, dict) else dict.fromkeys(table.files)
        found: dict[str, CommandFile] = {}
        for name, target in named.items():
            file = self._file(name, target, join(f"{at}.files", name))
            if file is not None and file.target in found:
                what = f"{file.target} would be {found[file.target].name} and {name}"
                problems.add(f"{at}.files", what, 'give one another place: files = { "a.py" = "/opt/agent/one.py" }')
            elif file is not None:
                found[file.target] = file
        return CommandSetup(table, tuple(found.values()))

    def _file(self, name: str, target: str | None, at: str) -> CommandFile | None:
        path = find_path(name, self.root, at, self.problems)
        if path is None:
            return None
        if not path.exists():
            self.problems.add(at, f"no file or folder at {path}")
            return None
        place = target or f"{PLACE}/{path.name}"
        if not place.startswith("/") or ".." in PurePosixPath(place).parts:
            self.problems.add(at, f'"{place}" is no absolute path in the sandbox')
            return None
        files = handed_files(path) if path.is_dir() else [path]
        private = held_in(path, self.private) if path.is_dir() else None
        secret = next((str(file) for file in files if any(file.match(one) for one in _PRIVATE)), None)
        if private is not None or secret is not None:
            what = f"{path} holds {private or secret}, which the agent would see"
            self.problems.add(at, what, "name the files that it needs, or give it a folder of its own")
            return None
        return CommandFile(name, path, place)
