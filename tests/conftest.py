"""Fixtures every test may use: a throw-away project folder and the command line, run in this process."""

import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support import warm
from support.experiments import Project
from terminalbench.cli.main import main

REPO = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data"

# The same examples in every run, however long one takes: a busy machine is no fault. `--hypothesis-profile=default` searches.
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


gc.disable()  # until all tests are collected: a third of the time of that would go to looking for garbage


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-docker", action="store_true", help="run tests that need a Docker engine")
    parser.addoption("--run-paid", action="store_true", help="run tests that spend money on a model provider")
    parser.addoption("--run-model", action="store_true", help="run tests that ask the model $TBENCH_TEST_MODEL")
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    """A shell that starts the tests in the background lets all they start ignore Ctrl-C; a person's shell does not."""
    if not hasattr(config, "workerinput"):
        ours = contextlib.ExitStack()
        ours.enter_context(warm.session())
        config.add_cleanup(ours.close)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("heavy") and "tests/sandbox/" not in item.path.as_posix():
            raise pytest.UsageError(f"{item.nodeid} is heavy: scripts/tests.sh looks for those in tests/sandbox only")
        for marker, flag in (("docker", "--run-docker"), ("paid", "--run-paid"), ("model", "--run-model")):
            if item.get_closest_marker(marker) and not config.getoption(flag):
                item.add_marker(pytest.mark.skip(reason=f"needs {flag}"))
    items[:] = _slow_first(items, getattr(config, "workerinput", {}).get("workercount", 1))


def pytest_collection_finish() -> None:
    """What was collected stays: no search for garbage looks at it again. LiteLLM is not part of it."""
    if "litellm" in sys.modules:
        raise pytest.UsageError(
            "a test module loads LiteLLM, in every worker: import what needs it in tests marked litellm"
        )
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def _slow_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Each worker begins with its share of the tests that run whole batches, the long ones of them first: at the end only
    short ones are left.

    The starter tasks share a few large batches, which every worker that has one of their tests would run: they are the
    first of one worker. So are tests of a module that share what a fixture of it makes, and all that load LiteLLM or
    statsmodels, which takes seconds in each worker. (A worker that is done takes tests from the end of another's.)
    """
    blocks: list[list[pytest.Item]] = [[] for _ in range(workers)]
    rest: list[pytest.Item] = []
    loading: dict[str, list[pytest.Item]] = {"litellm": [], "statsmodels": []}
    sharing: dict[Path, list[pytest.Item]] = {}
    for item in sorted(items, key=lambda item: item.get_closest_marker("long") is None):
        if item.path.parent.name == "starter":
            blocks[0].append(item)
        elif item.path.parent.name in ("e2e", "chaos"):
            block = sharing.get(item.path) if _shares(item) else None
            if block is None:
                block = min(blocks, key=len)
            if _shares(item):
                sharing[item.path] = block
            block.append(item)
        else:
            next((found for name, found in loading.items() if item.get_closest_marker(name)), rest).append(item)
    for place, found in enumerate(loading.values(), 1):
        blocks[-place % workers] += found
    size = -(-len(items) // workers)
    for block in blocks:
        room = max(0, size - len(block))
        block += rest[:room]
        rest = rest[room:]
    return [item for block in blocks for item in block]


def _shares(item: pytest.Item) -> bool:
    """Whether a test uses what other tests of its module use too."""
    fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    return any(definitions[-1].scope == "module" for definitions in fixtures)


@dataclass(frozen=True)
class Ran:
    """One command: its exit code and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def tbench(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run `tbench <arguments>` in this process."""
    monkeypatch.delenv("TERMINALBENCH_FORCE_REBUILD", raising=False)

    def run(*arguments: str | Path) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
        return Ran(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An empty project that is also the current folder."""
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    return Project(root)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a golden file, or rewrite it under --update-golden."""

    def check(file: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"no golden file {file.relative_to(REPO)}; make it with --update-golden"
        assert text == file.read_text(encoding="utf-8"), f"differs from {file.relative_to(REPO)}"

    return check


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("NO_COLOR", "1")
    os.environ.pop("FORCE_COLOR", None)


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the disk in this process: no test cuts the power, and thousands of small files are written."""
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
