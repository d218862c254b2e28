"""What code of the work does to Python's tests that import it, told by the interpreter itself while they run once more.

Such code is in the tests' own process: no source needs to show what it does there, and no result tells it from honest
work if it reads what a test expects where the test has it. Python's audit events do tell, and cannot be switched off.
This file is planted as it is: it needs nothing but Python's library, 3.8 on (before, there are no events).
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

_FRAMES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
_GIVE_FRAMES = ("currentframe", "stack", "<lambda>")
_OF_INTERPRETER = ("PyFrame", "PyThreadState", "PyEval", "PyInterpreterState", "PyGen")
_SOURCES = (".py", ".sh", ".pyc")
_IMPORTS = "<frozen importlib"
_TELL_ERRORS = ("traceback.py", "linecache.py", "warnings.py")


class _Onlooker:
    """What is written to a log: a line for each kind of thing that code of the work does, with its file."""

    def __init__(self, log: str, folders: list[str], since: float) -> None:
        self._log, self._folders, self._since = log, tuple(f"{one}/" for one in folders), since
        self._library = f"{os.path.dirname(os.__file__)}/"
        self._told: set[str] = set()
        self._busy: set[int] = set()

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Look at an event of the interpreter; what is done for that causes events too."""
        look, thread = _LOOKS.get(event), threading.get_ident()
        if look is None or thread in self._busy:
            return
        self._busy.add(thread)
        try:
            passed, frame = [], sys._getframe(1)
            while frame is not None and self._is_library(frame.f_code.co_filename):
                passed.append(frame.f_code)
                frame = frame.f_back
            if frame is not None and self.is_of_work(frame.f_code.co_filename):
                said = look(self, args, passed, frame)
                if said:
                    self.tell(said, frame.f_code.co_filename)
        except Exception:  # noqa: BLE001, S110  the tests' own process: nothing of this may be seen there
            pass
        finally:
            self._busy.discard(thread)

    def tell(self, what: str, path: str) -> None:
        """Say it once."""
        if what not in self._told:
            self._told.add(what)
            with open(self._log, "a", encoding="utf-8") as file:
                file.write(f"{what}\t{path!r}\n")

    def is_of_work(self, path: str) -> bool:
        """Return whether code is neither the library's, a package's nor the tests', nor as it was before the agent
        came."""
        if self._is_library(path) or self.is_of_tests(path) or "/site-packages/" in path or "/dist-packages/" in path:
            return False
        try:
            return os.stat(path).st_ctime >= self._since
        except OSError:  # called by another name
            return True

    def is_of_tests(self, path: object) -> bool:
        """Return whether a path is a folder of the tests, or below one."""
        return isinstance(path, (str, bytes)) and f"{os.path.abspath(os.fsdecode(path))}/".startswith(self._folders)

    def _is_library(self, path: str) -> bool:
        inside = path.startswith(self._library) and "-packages/" not in path
        return inside or path.startswith("<")

    def frames(self, _args: tuple[Any, ...], passed: list[Any], _frame: Any) -> str | None:
        """A frame, from which those of the tests are reached."""
        return "frames" if not passed or passed[-1].co_name in _GIVE_FRAMES else None

    def attribute(self, args: tuple[Any, ...], passed: list[Any], _frame: Any) -> str | None:
        """A frame by what refers to it, or the code of a test."""
        of_test = args[1] == "__code__" and self.is_of_tests(args[0].__code__.co_filename)
        return "frames" if (args[1] in _FRAMES and not passed) or of_test else None

    def change(self, args: tuple[Any, ...], _passed: list[Any], _frame: Any) -> str | None:
        """Another code for a function that is not the work's own."""
        return "code" if args[1] == "__code__" and not self.is_of_work(args[0].__code__.co_filename) else None

    def objects(self, _args: tuple[Any, ...], passed: list[Any], _frame: Any) -> str | None:
        """All objects of the process."""
        return None if passed else "objects"

    def tracing(self, _args: tuple[Any, ...], passed: list[Any], _frame: Any) -> str | None:
        """A function that is called at each line of the tests."""
        return None if passed else "tracing"

    def interpreter(self, args: tuple[Any, ...], _passed: list[Any], _frame: Any) -> str | None:
        """The interpreter's own functions that lead to frames."""
        return "frames" if str(args[1]).startswith(_OF_INTERPRETER) else None

    def files(self, args: tuple[Any, ...], passed: list[Any], frame: Any) -> str | None:
        """A source of the tests; of their other files what no test has handed over."""
        if not args or not self.is_of_tests(args[0]):
            return None
        if any(one.co_filename.endswith(_TELL_ERRORS) or one.co_filename.startswith(_IMPORTS) for one in passed):
            return None
        if os.fsdecode(args[0]).endswith(_SOURCES):
            return "sources"
        while frame is not None:
            if self.is_of_tests(frame.f_code.co_filename) and frame.f_code.co_name != "<module>":
                return None
            frame = frame.f_back
        return "files"


_LOOKS: dict[str, Callable[[_Onlooker, tuple[Any, ...], list[Any], Any], str | None]] = {
    "sys._getframe": _Onlooker.frames,
    "sys._current_frames": _Onlooker.frames,
    "object.__getattr__": _Onlooker.attribute,
    "object.__setattr__": _Onlooker.change,
    "gc.get_objects": _Onlooker.objects,
    "gc.get_referrers": _Onlooker.objects,
    "sys.settrace": _Onlooker.tracing,
    "sys.setprofile": _Onlooker.tracing,
    "ctypes.dlsym": _Onlooker.interpreter,
    "open": _Onlooker.files,
    "os.listdir": _Onlooker.files,
    "os.scandir": _Onlooker.files,
}


def watch(namespace: dict[str, Any], log: str, folder: str, since: float, modules: dict[str, str]) -> None:
    """Watch the tests of a module from its first line on; `modules` are those of the library that it imports, by name.

    `since` is when the trial began: code of the image is not the agent's.
    """
    if not hasattr(sys, "addaudithook"):
        return
    onlooker = _Onlooker(log, [folder, os.path.dirname(os.path.abspath(namespace["__file__"]))], since)
    loaded = {name: importlib.import_module(module) for name, module in modules.items()}
    before = {name: dict(_functions(module)) for name, module in loaded.items()}
    sys.addaudithook(onlooker.hook)

    def compare() -> None:
        for name, module in loaded.items():
            now = {**dict(_functions(module)), "": namespace.get(name, module)}
            for place, value in now.items():
                path = _file_of(value) if value is not {**before[name], "": module}.get(place) else None
                if path is not None and onlooker.is_of_work(path):
                    onlooker.tell("library", path)

    atexit.register(compare)


def _functions(module: Any) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(module).items()):
        if callable(value):
            yield name, value
        if isinstance(value, type) and f"{value.__module__}.".startswith(f"{module.__name__}."):
            yield from ((f"{name}.{one}", inner) for one, inner in list(vars(value).items()) if callable(inner))


def _file_of(value: Any) -> str | None:
    """Return where a function, or the class of anything else, comes from."""
    code = getattr(value, "__code__", None)
    home = sys.modules.get(getattr(value, "__module__", None) or type(value).__module__)
    return getattr(code, "co_filename", None) or getattr(home, "__file__", None)
