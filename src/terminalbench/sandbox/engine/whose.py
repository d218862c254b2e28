"""Whose program an exec runs: the tests' own, or one of the agent's work. Pure.

Work is a program outside the system, and an interpreter or a build tool that runs something there. What is handed the
folder of the reward writes it for the tests; so does a runner from an environment that the tests have made in the work.
A shell that git starts in the work runs what the work's settings of git say: its hooks, filters and monitors.
"""

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

_INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|php|node|lua|luajit|tclsh|guile|gforth|octave|julia|scala|kotlin|groovy|erl|escript|elixir|"
    r"iex|ghci?|runghc|runhaskell|stack|ocaml|racket|sbcl|clisp|java|javaw|dotnet|mono|deno|bun|tsx?|ts-node|R|Rscript|"
    r"swift|crystal|nim|dart|bash|sh|dash|ash|ksh|mksh|zsh|fish|busybox|pwsh|awk|gawk|mawk|sed|gdb|wine|qemu-\w+|expect|"
    r"make|gmake|ninja|cmake|npm|npx|yarn|pnpm|cargo|go|mvn|gradle|ant|rake|bundle|sbt|mix|meson|scons|just|tox|nox|"
    r"bazel|rebar3|lein|composer|jupyter|gunicorn|uvicorn|flask|hypercorn|ld-(?:linux|musl)[\w.-]*|ld\.so|"
    r"vi|vim|vim\.\w+|nvim|ex|ed|emacs|emacs-\w+|sqlite3|gnuplot|(?:pdf|xe|lua)?(?:la)?tex)"
    r"[\d.]*(?:\.exe)?"
)
_BUILDERS = re.compile(
    r"(?:make|gmake|ninja|cmake|npm|npx|yarn|pnpm|cargo|go|mvn|gradle|ant|rake|bundle|sbt|mix|meson|scons|just|tox|nox|"
    r"bazel|rebar3|lein|composer|dotnet|swift|dart|crystal|deno|bun|stack)[\d.]*"
)
_READERS = re.compile(
    r"psql|mysql|mariadb|mongo|mongosh|duckdb|m4|dc|valgrind|(?:mem|cache|call)(?:check|grind)-\w+-linux|wasmtime|wasmer|bats|"
    r"nginx|apache2|apachectl|httpd|haproxy|caddy|lighttpd|squid|redis-server|logrotate|rsyslogd|fluent-bit|telegraf|vector|"
    r"supervisord|monit|ansible|ansible-playbook|terraform|tofu|packer|doxygen|sphinx-build|mkdocs|snakemake|celery|"
    r"streamlit|daphne|alembic|scrapy|dbt|airflow|behave|robot|pylint|flake8|latexmk"
)
"""Programs that run, or write where they are told by, a file that they are handed: no interpreters by themselves."""
_DATABASES = re.compile(r"psql|mysql|mariadb|mongo|mongosh|duckdb|sqlite3|m4|dc")
_SHELLS = re.compile(r"(?:bash|sh|dash|ash|ksh|mksh|zsh|fish)[\d.]*")
_PATHS = re.compile(r"(?<![\w.~$}/-])/[\w.@+-][\w./@+-]*")
_BESIDE = re.compile(r"(?<![\w./])\.{1,2}/[\w@+-][\w./@+-]*")
_IMPORTS = re.compile(r"(?:^|[\n;:,])\s*(?:from\s+([A-Za-z_]\w*)|import\s+([A-Za-z_]\w*))")
_RUNNERS = ("bin", "sbin", ".bin")
_INPUT = ("-", "-s", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_TOLD_BY_WORK = ("cron", "crond", "atd", "supervisord", "tmux: server", "screen")
"""Programs that have shells run what files of the work say. Git does so by those of the folder that it runs in."""


class FileOwnership(NamedTuple):
    """What is whose: the system's folders, the tests' and the reward's, without their leading slash.

    `exists` tells whether a path is there, `is_made` whether the tests themselves made the environment that a program
    is in.
    """

    system: frozenset[str]
    tests: str
    logs: str
    exists: Callable[[str], bool]
    is_made: Callable[[str], bool]

    def is_work(self, path: str) -> bool:
        """Whether an absolute path is neither the system's nor the tests'."""
        plain = posixpath.normpath(path).strip("/")
        return bool(plain) and not any(
            f"{plain}/".startswith(f"{one}/") for one in (*self.system, "proc", "dev", "run")
        )

    def is_tests(self, path: str) -> bool:
        """Whether an absolute path is the tests' or the reward's."""
        plain = f"{posixpath.normpath(path).strip('/')}/"
        return plain.startswith((f"{self.tests}/", f"{self.logs}/"))


def is_interpreter(program: str) -> bool:
    """Whether a program runs code that it is given."""
    return bool(_INTERPRETERS.fullmatch(posixpath.basename(program)))


def is_builder(program: str) -> bool:
    """Whether a program builds others, which needs what the tests have installed in their home."""
    return bool(_BUILDERS.fullmatch(posixpath.basename(program)))


def is_shell(program: str) -> bool:
    """Whether a program is a shell, whose script may have the tests run."""
    return bool(_SHELLS.fullmatch(posixpath.basename(program)))


def is_work(
    program: str, arguments: Sequence[str], folder: str, caller: str, ground: FileOwnership, given: str = ""
) -> bool:
    """Whether the exec of `program`, an absolute path without links, runs something of the work in `folder`.

    `caller` is the name of the program that it is executed by, `given` the file that is its standard input.
    """
    rest = arguments[1:]
    if is_shell(program) and (caller in _TOLD_BY_WORK or (caller == "git" and ground.is_work(folder))):
        return True
    if any(f"/{ground.logs}" in one for one in rest):
        return False
    name = posixpath.basename(program)
    if ground.is_work(program):
        made = posixpath.basename(posixpath.dirname(program)) in _RUNNERS and ground.is_made(program)
        return not made or _runs_work(name, rest, folder, ground)
    if not (is_interpreter(name) or _READERS.fullmatch(name)):
        return False
    if _runs_work(name, rest, folder, ground):
        return True
    return bool(given) and _runs_input(name, rest) and ground.is_work(given) and not ground.is_tests(given)


def _runs_input(name: str, rest: Sequence[str]) -> bool:
    """Whether it runs what it reads: it is told so, or of no file, code or module; a database's client always does."""
    if _DATABASES.fullmatch(name):
        return True
    if _SHELLS.fullmatch(name) and "-c" in rest:
        return False
    return all(one.startswith("-") for one in rest) or any(one in _INPUT for one in rest)


def _runs_work(name: str, rest: Sequence[str], folder: str, ground: FileOwnership) -> bool:
    """Whether the first thing that these arguments name is the work's."""
    for number, one in enumerate(rest):
        if one == "-m" and number + 1 < len(rest):
            module = f"{folder}/{rest[number + 1].partition('.')[0]}"
            return ground.is_work(folder) and (ground.exists(f"{module}.py") or ground.exists(module))
        if one == "-c" and _SHELLS.fullmatch(name):
            return False  # what it runs is looked at when it does
        code = one if number and rest[number - 1] == "-c" else ""
        for path in (*_named(one, folder, ground), *_imported(code, folder, ground)):
            if ground.is_tests(path):
                return False
            if ground.is_work(path):
                return True
    return bool(_BUILDERS.fullmatch(name)) and ground.is_work(folder)


def _named(argument: str, folder: str, ground: FileOwnership) -> list[str]:
    """The paths that an argument names: itself, or some within it."""
    if argument.startswith("/"):
        return [argument]
    if argument and not argument.startswith("-") and len(argument) < 1000 and "\n" not in argument:
        path = posixpath.join(folder, argument)
        if ground.exists(path):
            return [path]
    return [*_PATHS.findall(argument), *(posixpath.join(folder, one) for one in _BESIDE.findall(argument))]


def _imported(code: str, folder: str, ground: FileOwnership) -> list[str]:
    """The modules in `folder` that Python code imports; what it runs as is there first."""
    names = {first or second for first, second in _IMPORTS.findall(code)}
    paths = [posixpath.join(folder, name) for name in sorted(names)]
    return [path for path in paths if ground.exists(f"{path}.py") or ground.exists(path)]
