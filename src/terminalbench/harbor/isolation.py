"""Tests that no code of the work can reach: nothing is to be run once more to see that they were not taken over.

Their script starts isolated Python (`python3 -I`) on files of their own and nothing else, and these import what cannot
lead to the work. Programs that they start are other processes, which the overseer keeps from them. Plain forms alone
are known here; all else may be reached. Pure.
"""

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from terminalbench.files import read_plain

RUN_BY = "TBENCH_RUN_PROGRAM"
"""The variable by which tests are told what runs a program of the work out of their reach."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LARGEST = 1 << 20
_TESTS = "/tests/"
COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
_BETWEEN = re.compile(r"\n|;|&&|\|\|")
_KEYWORDS = re.compile(r"^\s*(?:(?:if|then|else|elif|fi|!)(?=\s|$)\s*)*")
_HARMLESS = re.compile(r"(?:(?:set|export|echo|printf|rm|mkdir|exit|cd|test|\[|true|false)(?= |$)|\w+=)[^`(){}|&<]*")
_STARTS = re.compile(
    r"(?:timeout(?: -\S+| \d+\w?)* )?(?:/usr/(?:local/)?bin/)?python3? "
    r"(?:-[BEsSuI]+ )*-[BEsSuI]*I[BEsSuI]* (?:-[BEsSuI]+ )*"
    r"(/tests/[\w/-]+\.py)(?: *(?:2?>>? *[\w./-]+|2>&1))*\s*"
)
_OF_THE_SYSTEM = r"(?:/usr(?:/local)?)?/s?bin"
_LEADS_ASTRAY = re.compile(rf"\b(?:LD_\w+|BASH_ENV|PATH(?!={_OF_THE_SYSTEM}(?::{_OF_THE_SYSTEM})*(?:\s|$)))\s*=")
_PLAIN_MODULES = _names(
    "__future__ argparse array base64 binascii bisect bz2 calendar cmath collections configparser contextlib copy csv "
    "dataclasses datetime decimal difflib email enum errno fcntl filecmp fnmatch fractions functools glob grp gzip "
    "hashlib heapq hmac html http io ipaddress itertools json locale lzma math numbers operator os pathlib platform "
    "pprint pwd queue random re resource secrets select selectors shlex shutil signal socket sqlite3 stat statistics "
    "string struct subprocess sys tarfile tempfile textwrap threading time tomllib traceback types typing unicodedata "
    "unittest urllib uuid xml zipfile zlib zoneinfo concurrent.futures importlib.util runpy"
)
"""Modules of Python's library that run no code but their own; the last two are looked at where they are used."""
_LOADERS = ("run_path", "spec_from_file_location")
_NEVER = _names(
    "__import__ __builtins__ __loader__ __spec__ exec eval compile import_module find_spec LazyLoader run_module "
    "discover TestLoader defaultTestLoader ProcessPoolExecutor enable_load_extension load_extension "
    "settrace setprofile meta_path path_hooks modules"
)


def isolated(sources: Sequence[Path], script: Path) -> bool:
    """Return whether the tests that a script runs are out of reach of the work's code, as far as their text tells."""
    started = set[str]()
    for part in _BETWEEN.split(COMMENT.sub("", text_of(script))):
        command = _KEYWORDS.sub("", part)
        if (found := _STARTS.fullmatch(command)) is not None:
            started.add(found[1])
        elif command.strip() and (not _HARMLESS.fullmatch(command) or _LEADS_ASTRAY.search(command)):
            return False
    return bool(started) and all(_is_plain(sources, name, set()) for name in started)


def _is_plain(sources: Sequence[Path], name: str, seen: set[str]) -> bool:
    """Return whether a file of the tests, and those that it loads, run no code from elsewhere."""
    if name in seen:
        return True
    seen.add(name)
    texts = [text_of(path) for source in sources if (path := source / name.removeprefix(_TESTS)).is_file()]
    try:
        nodes = list(ast.walk(ast.parse(texts[-1]))) if texts and ".." not in name else [ast.Name("eval")]
    except (SyntaxError, ValueError, RecursionError):
        return False
    if any(map(_may_lead_away, nodes)):
        return False
    return all(_is_plain(sources, one, seen) for one in map(_loaded, nodes) if one is not None)


def _may_lead_away(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return not all(_is_known(one.name) for one in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            taken = {one.name for one in names}
            from_sys = module == "sys" and "path" in taken
            return level > 0 or not _is_known(module or "") or from_sys or bool(taken & {*_NEVER, *_LOADERS})
        case ast.Attribute(value=ast.Name(id="sys"), attr="path"):
            return True
        case ast.Attribute(value=ast.Name(id="re"), attr="compile"):
            return False
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in _NEVER
        case ast.Call(func=ast.Attribute(attr="run_path"), args=[argument, *_]):
            return ast.unparse(argument) != f"os.environ[{RUN_BY!r}]"
        case ast.Call(func=ast.Attribute(attr=name)) if name in _LOADERS:
            return _loaded(node) is None
    return False


def _loaded(node: ast.AST) -> str | None:
    """The file of the tests that a call loads."""
    match node:
        case ast.Call(func=ast.Attribute(attr="spec_from_file_location"), args=[_, ast.Constant(value=str(path)), *_]):
            return path if path.startswith(_TESTS) else None
    return None


def _is_known(module: str) -> bool:
    return module in _PLAIN_MODULES or module.partition(".")[0] in _PLAIN_MODULES


def text_of(path: Path) -> str:
    """Return the text of a plain file of tests; empty where it is none, or too large."""
    return (read_plain(path, _LARGEST) or b"").decode("utf-8", "replace")
