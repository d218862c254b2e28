"""The languages that a workflow knows, which one a repository is written in, and where its tests live.

A label ("js") is a hint; the files decide: a repository of TypeScript is TypeScript whatever its label says.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.workflow.model import Workspace


class Language(StrEnum):
    """A language whose syntax, lint and tests can be checked."""

    PYTHON = "python"
    GO = "go"
    JAVASCRIPT = "javascript"
    TYPESCRIPT = "typescript"


class Runner(StrEnum):
    """The runner of a repository's tests."""

    PYTEST = "pytest"
    UNITTEST = "unittest"
    GO = "go test"
    NODE = "node:test"
    JEST = "jest"
    VITEST = "vitest"
    MOCHA = "mocha"


_ALIASES = {
    "py": Language.PYTHON,
    "python3": Language.PYTHON,
    "golang": Language.GO,
    "js": Language.JAVASCRIPT,
    "jsx": Language.JAVASCRIPT,
    "node": Language.JAVASCRIPT,
    "nodejs": Language.JAVASCRIPT,
    "ts": Language.TYPESCRIPT,
    "tsx": Language.TYPESCRIPT,
}
EXTENSIONS: Mapping[Language, tuple[str, ...]] = {
    Language.PYTHON: (".py",),
    Language.GO: (".go",),
    Language.JAVASCRIPT: (".js", ".jsx", ".mjs", ".cjs"),
    Language.TYPESCRIPT: (".ts", ".tsx", ".mts", ".cts"),
}
_BY_EXTENSION = {extension: language for language, all_ in EXTENSIONS.items() for extension in all_}
WEB = (Language.JAVASCRIPT, Language.TYPESCRIPT)
_VENDORED = frozenset(
    {"node_modules", "vendor", "third_party", "dist", "build", "bower_components", ".yarn", "site-packages"}
)
_TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "testing", "spec", "specs"})
_TEST_NAME = re.compile(
    r"(?:test_[^/]*\.py|[^/]*_tests?\.py|tests\.py|[^/]*_test\.go|[^/]+[.\-_](?:test|spec)\.(?:[cm]?[jt]s|[jt]sx))$"
)
_WEB_NAME = re.compile(r"(?P<mark>[.\-_](?:test|spec))\.(?:[cm]?[jt]s|[jt]sx)$")
_PYTEST_FILES = ("pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini", ".pytest.ini", "setup.py")
_PYTEST_SAYS = re.compile(rb"\bpytest\b")
_MANIFESTS = 60
_STEM = "guarded"
_PACKAGE = re.compile(r"^[ \t]*package\s+(\w+)", re.MULTILINE)
_JSX = re.compile(r"<[A-Z]\w*[\s/>]|<(?:div|span|button|input)\b")


def named(label: str | None) -> Language | None:
    """The language of a label, aliases too; None when it is none of ours."""
    word = (label or "").strip().lower()
    return _ALIASES.get(word) or (Language(word) if word in set(Language) else None)


def of_file(path: str) -> Language | None:
    """The language of a file, by its name."""
    dot = path.rfind(".")
    return _BY_EXTENSION.get(path[dot:].lower()) if dot >= 0 else None


def of_repository(files: Iterable[str], label: str | None = None) -> Language | None:
    """The language of a repository: what most of its own files are, among those that the label leaves open."""
    counts: Counter[Language] = Counter()
    for path in files:
        language = of_file(path)
        if language is not None and not path.endswith(".d.ts") and not is_vendored(path) and not _is_config(path):
            counts[language] += 1
    hint = named(label)
    if hint in WEB and any(counts[language] for language in WEB):
        return max(WEB, key=lambda language: (counts[language], language is hint))
    if hint is not None and (counts[hint] or not counts):
        return hint
    return max(Language, key=lambda language: counts[language]) if counts else None


def is_vendored(path: str) -> bool:
    """Return whether a path is in a folder of other people's code or of build output."""
    return not _VENDORED.isdisjoint(path.split("/")[:-1])


def is_test(path: str) -> bool:
    """Return whether a path is, by its name or folder, part of a repository's tests."""
    *folders, name = path.split("/")
    return _TEST_NAME.match(name) is not None or not _TEST_FOLDERS.isdisjoint(folders) or name == "conftest.py"


def is_test_file(path: str) -> bool:
    """Return whether a path is a file with tests, not only one that belongs to them."""
    *folders, name = path.split("/")
    language = of_file(path)
    if language is None:
        return False
    if language in WEB:
        return _WEB_NAME.search(name) is not None or "__tests__" in folders or (bool(folders) and folders[0] == "test")
    return _TEST_NAME.match(name) is not None


def _is_config(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return ".config." in name or name.startswith(".") or name in ("setup.py", "Gruntfile.js", "gulpfile.js")


@dataclass(frozen=True)
class Repository:
    """The facts on a repository before a model is asked: its language, its files, how it tests."""

    language: Language | None
    files: tuple[str, ...]
    manifests: Mapping[str, bytes]

    def runner(self, path: str = "") -> Runner | None:
        """Return what runs the tests at `path`; None when the language is none of ours."""
        match of_file(path) or self.language:
            case Language.PYTHON:
                return Runner.PYTEST if self._has_pytest() else Runner.UNITTEST
            case Language.GO:
                return Runner.GO
            case None:
                return None
            case _:
                return _web_runner(self.package_of(path), self.manifests)

    def package_of(self, path: str) -> str:
        """The folder ("" or "a/b") of the nearest package.json above `path` that knows a test runner, else the root."""
        folders = path.split("/")[:-1]
        for count in range(len(folders), -1, -1):
            folder = "/".join(folders[:count])
            if _declared(self.manifests.get(_join(folder, "package.json"), b"")) is not None:
                return folder
        return ""

    def tests(self) -> list[str]:
        """The files with tests in the repository's language."""
        web = self.language in WEB
        return [
            path
            for path in self.files
            if is_test_file(path)
            and not is_vendored(path)
            and (of_file(path) in WEB if web else of_file(path) == self.language)
        ]

    def sample(self, near: Sequence[str] = ()) -> str | None:
        """One existing test file for a writer of tests to follow: the closest to `near`."""
        tests = self.tests()
        return max(tests, key=lambda path: (_shared(path, near), -path.count("/"), -len(path)), default=None)

    def place(self, code: str, near: Sequence[str] = ()) -> str | None:
        """Return where a new test file belongs when its writer does not say; None when that cannot be known.

        In Go in the folder of the package that the code names, else beside the tests that are closest to `near`.
        """
        if self.language is Language.GO:
            folder = self._go_folder(code, near)
            return None if folder is None else self._free(folder, f"{_STEM}{{}}_test.go")
        sample = self.sample(near)
        folder = sample.rpartition("/")[0] if sample is not None else self._test_folder()
        if self.language is Language.PYTHON:
            return self._free(folder, f"test_{_STEM}{{}}.py")
        if self.language is None:
            return None
        mark = _WEB_NAME.search(sample or "")
        extension = "ts" if self.language is Language.TYPESCRIPT else "js"
        if sample is not None and sample.rsplit(".", 1)[-1] in ("mjs", "cjs") and of_file(sample) == self.language:
            extension = sample.rsplit(".", 1)[-1]
        if _JSX.search(code) and self.runner(sample or "") in (Runner.JEST, Runner.VITEST):
            extension = extension.replace("ts", "tsx").replace("js", "jsx")
        dot = (
            mark.group("mark") if mark is not None else ".test" if self.runner(sample or "") is not Runner.MOCHA else ""
        )
        return self._free(folder, f"{_STEM}{{}}{dot}.{extension}")

    def placed_badly(self, path: str, code: str) -> str | None:
        """Return why a test at `path` would not be found or not compile; None when it is where it belongs."""
        language = of_file(path)
        if self.language is None or (language != self.language and not (language in WEB and self.language in WEB)):
            return f"a test of this repository is a {self.language or 'source'} file"
        name = path.rsplit("/", 1)[-1]
        if language is Language.PYTHON and not re.match(r"test.*\.py$|.*_test\.py$", name):
            return "a test file is called test_*.py here"
        if language is Language.GO:
            return self._go_placed_badly(path, code)
        if language in WEB and self.runner(path) in (Runner.JEST, Runner.VITEST) and not is_test_file(path):
            return f"{self.runner(path)} looks for tests in files called *.test.* or *.spec.*"
        return None

    def go_packages(self) -> dict[str, list[str]]:
        """The folders with Go code, each with its files that are no tests."""
        found: dict[str, list[str]] = {}
        for path in self.files:
            if path.endswith(".go") and not path.endswith("_test.go") and not is_vendored(path):
                found.setdefault(path.rpartition("/")[0], []).append(path)
        return found

    def _go_placed_badly(self, path: str, code: str) -> str | None:
        if not path.endswith("_test.go"):
            return "a test file is called *_test.go in Go"
        package, folders = go_package(code), self.go_packages()
        if package is None:
            return "the code has no package clause"
        folder = path.rpartition("/")[0]
        if folder not in folders:
            near = f", for example `{next(iter(folders))}`" if folders else ""
            return f"`{folder or '.'}` holds no Go package: a Go test lies in the folder of the package it tests{near}"
        return None

    def _go_folder(self, code: str, near: Sequence[str]) -> str | None:
        package = go_package(code)
        if package is None:
            return None
        wanted, folders = package.removesuffix("_test"), self.go_packages()
        close = [path.rpartition("/")[0] for path in near if path.endswith(".go")]
        named_so = [folder for folder in folders if folder.rsplit("/", 1)[-1] == wanted]
        for folder in [*(one for one in close if one in named_so), *named_so, *close]:
            if folder in folders:
                return folder
        return "" if "" in folders else None

    def _test_folder(self) -> str:
        folders = {path.split("/")[0] for path in self.files if "/" in path}
        return next((name for name in ("tests", "test") if name in folders), "")

    def _free(self, folder: str, pattern: str) -> str:
        taken = set(self.files)
        numbers = ("", *(f"_{n}" for n in range(2, 1000)))
        return next(path for n in numbers if (path := _join(folder, pattern.format(n))) not in taken)

    def _has_pytest(self) -> bool:
        if any(path.rsplit("/", 1)[-1] in ("conftest.py", "pytest.ini") for path in self.files):
            return True
        return any(_PYTEST_SAYS.search(data) for path, data in self.manifests.items() if not path.endswith(".json"))


async def look(workspace: Workspace, label: str | None = None) -> Repository:
    """Look at a repository: one listing, one bulk read of the files that say how it is tested."""
    files = tuple(await workspace.files())
    return Repository(of_repository(files, label), files, await workspace.read_many(_manifests(files)))


def go_package(code: str) -> str | None:
    """The package that Go code says it is of; comments may come before it."""
    found = _PACKAGE.search(re.sub(r"/\*.*?\*/|//[^\n]*", "", code, flags=re.DOTALL))
    return found.group(1) if found else None


def _manifests(files: Sequence[str]) -> list[str]:
    told = [path for path in files if path in _PYTEST_FILES or re.fullmatch(r"[\w./-]*requirements[\w.-]*\.txt", path)]
    packages = [path for path in files if path.rsplit("/", 1)[-1] == "package.json" and not is_vendored(path)]
    packages.sort(key=lambda path: (path.count("/"), path))
    return [*told[:_MANIFESTS], *packages[:_MANIFESTS]]


def _declared(data: bytes) -> Runner | None:
    """The runner that a package.json names: the one its test script starts, else one that it depends on."""
    try:
        package = decode(data)
    except NOT_DECODED:
        return None
    if not isinstance(package, dict):
        return None
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    words = script if isinstance(script, str) else ""
    for runner in (Runner.VITEST, Runner.JEST, Runner.MOCHA):
        if re.search(rf"\b{runner}\b|\breact-scripts test\b" if runner is Runner.JEST else rf"\b{runner}\b", words):
            return runner
    if re.search(r"\bnode\b.*\s--test\b", words):
        return Runner.NODE
    depends: set[str] = set()
    for key in ("devDependencies", "dependencies"):
        depends |= set(package.get(key) or ()) if isinstance(package.get(key), dict) else set()
    return next((runner for runner in (Runner.VITEST, Runner.JEST, Runner.MOCHA) if runner in depends), None)


def _web_runner(folder: str, manifests: Mapping[str, bytes]) -> Runner:
    return _declared(manifests.get(_join(folder, "package.json"), b"")) or Runner.NODE


def _shared(path: str, near: Sequence[str]) -> int:
    """Return how many words of their paths two files have in common, at most over `near`."""
    mine = _words(path)
    return max((len(mine & _words(other)) for other in near), default=0)


def _words(path: str) -> set[str]:
    return {word for word in re.split(r"[^a-z0-9]+", path.lower()) if word not in ("test", "tests", "src", "spec", "")}


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
