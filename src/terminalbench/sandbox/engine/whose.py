"""Whose program an exec runs: the tests' own, or one of the agent's work. Pure.

Work is a program outside the system, and an interpreter or a build tool that runs something there. What is handed the
folder of the reward writes it for the tests; so does a runner from an environment that the tests have made in the work.
A shell that git starts in the work runs what the work's settings of git say: its hooks, filters and monitors.
"""

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple


def _names(text: str) -> frozenset[str]:
    """Names are looked up, not matched: every helper would compile a pattern of hundreds of them when it starts."""
    return frozenset(text.split())


_SHELLS = _names("bash sh dash ash ksh mksh zsh fish")
_BUILDERS = _names(
    "make gmake ninja cmake npm npx yarn pnpm cargo go mvn gradle ant rake bundle sbt mix meson scons just tox nox "
    "bazel rebar3 lein composer dotnet swift dart crystal deno bun stack"
)
_INTERPRETERS = _names(
    "python pypy perl ruby php node lua luajit tclsh guile gforth octave julia scala kotlin groovy erl escript elixir "
    "iex ghc ghci runghc runhaskell ocaml racket sbcl clisp java javaw mono ts tsx ts-node R Rscript nim busybox pwsh "
    "awk gawk mawk sed gdb wine expect jupyter gunicorn uvicorn flask hypercorn ld.so vi vim nvim ex ed emacs sqlite3 "
    "gnuplot"
)
_INTERPRETERS |= _SHELLS | _BUILDERS
_KINDS_OF_INTERPRETERS = re.compile(r"qemu-\w+|ld-(?:linux|musl)[\w.-]*|vim\.\w+|emacs-\w+|(?:pdf|xe|lua)?(?:la)?tex")
_CLIENTS = _names("psql mysql mariadb mongo mongosh duckdb m4 dc")
_DATABASES = _CLIENTS | {"sqlite3"}
_READERS = _CLIENTS | _names(
    "valgrind wasmtime wasmer bats nginx apache2 apachectl httpd haproxy caddy lighttpd squid redis-server logrotate "
    "rsyslogd fluent-bit telegraf vector supervisord monit ansible ansible-playbook terraform tofu packer doxygen "
    "sphinx-build mkdocs snakemake celery streamlit daphne alembic scrapy dbt airflow behave robot pylint flake8 "
    "latexmk"
)
"""Programs that run, or write where they are told by, a file that they are handed: no interpreters by themselves."""
_SERVERS = _names("gunicorn uvicorn hypercorn daphne granian waitress-serve waitress celery streamlit flask")
"""Servers of Python that import the module which an argument names (`app:app`)."""
_MODULE = re.compile(r"(?:(?:-A|--app)=?)?([A-Za-z_]\w*)(?:\.\w+)*(?::[\w.]+(?:\(.*\))?)?")
_APPS_OF_FLASK = ("app", "wsgi")
_TOOLS_OF_VALGRIND = re.compile(r"(?:mem|cache|call)(?:check|grind)-\w+-linux")
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
        """Return whether an absolute path is neither the system's nor the tests'."""
        plain = posixpath.normpath(path).strip("/")
        return bool(plain) and not any(
            f"{plain}/".startswith(f"{one}/") for one in (*self.system, "proc", "dev", "run")
        )

    def is_tests(self, path: str) -> bool:
        """Return whether an absolute path is the tests' or the reward's."""
        plain = f"{posixpath.normpath(path).strip('/')}/"
        return plain.startswith((f"{self.tests}/", f"{self.logs}/"))


def _unversioned(name: str) -> set[str]:
    """Return the names that a program may have without its version: `python3.12` is `python3.1`, `python` and more."""
    end = len(name)
    while end and (name[end - 1] == "." or name[end - 1].isdecimal()):
        end -= 1
    return {name[:length] for length in range(end, len(name) + 1)}


def is_interpreter(program: str) -> bool:
    """Return whether a program runs code that it is given."""
    name = posixpath.basename(program)
    names = _unversioned(name) | _unversioned(name.removesuffix(".exe"))
    known = not names.isdisjoint(_INTERPRETERS)
    return known or any(_KINDS_OF_INTERPRETERS.fullmatch(one) for one in names)


def is_builder(program: str) -> bool:
    """Return whether a program builds others, which needs what the tests have installed in their home."""
    return not _unversioned(posixpath.basename(program)).isdisjoint(_BUILDERS)


def is_shell(program: str) -> bool:
    """Return whether a program is a shell, whose script may have the tests run."""
    return not _unversioned(posixpath.basename(program)).isdisjoint(_SHELLS)


def _is_reader(name: str) -> bool:
    return name in _READERS or name in _SERVERS or bool(_TOOLS_OF_VALGRIND.fullmatch(name))


def is_work(
    program: str, arguments: Sequence[str], folder: str, caller: str, ground: FileOwnership, given: str = ""
) -> bool:
    """Return whether the exec of `program`, an absolute path without links, runs something of the work in `folder`.

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
    if not (is_interpreter(name) or _is_reader(name)):
        return False
    if _runs_work(name, rest, folder, ground):
        return True
    return bool(given) and _runs_input(name, rest) and ground.is_work(given) and not ground.is_tests(given)


def _runs_input(name: str, rest: Sequence[str]) -> bool:
    """Return whether it runs what it reads: it is told so, or of no file, code or module; a database's client always
    does."""
    if name in _DATABASES:
        return True
    if is_shell(name) and "-c" in rest:
        return False
    return all(one.startswith("-") for one in rest) or any(one in _INPUT for one in rest)


def _runs_work(name: str, rest: Sequence[str], folder: str, ground: FileOwnership) -> bool:
    """Return whether the first thing that these arguments name is the work's."""
    for number, one in enumerate(rest):
        if one == "-m" and number + 1 < len(rest):
            module = rest[number + 1].partition(".")[0]
            if module in _SERVERS and _runs_work(module, rest[number + 2 :], folder, ground):
                return True
            return ground.is_work(folder) and _is_module(module, folder, ground)
        if one == "-c" and is_shell(name):
            return False  # what it runs is looked at when it does
        code = one if number and rest[number - 1] == "-c" else ""
        for path in (*_named(one, folder, ground), *_imported(code, folder, ground)):
            if ground.is_tests(path):
                return False
            if ground.is_work(path):
                return True
    return ground.is_work(folder) and (is_builder(name) or _serves_module(name, rest, folder, ground))


def _serves_module(name: str, rest: Sequence[str], folder: str, ground: FileOwnership) -> bool:
    """Return whether it is a server of what a module in `folder` says."""
    named = [found[1] for one in rest if (found := _MODULE.fullmatch(one)) is not None]
    named += _APPS_OF_FLASK if name == "flask" else ()
    return name in _SERVERS and any(_is_module(one, folder, ground) for one in named)


def _is_module(name: str, folder: str, ground: FileOwnership) -> bool:
    path = posixpath.join(folder, name)
    return ground.exists(f"{path}.py") or ground.exists(path)


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
    return [posixpath.join(folder, name) for name in sorted(names) if _is_module(name, folder, ground)]
