"""Fixtures every test may use: a throw-away project folder and the command line, run in this process."""

import contextlib
import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from support import cpu, pace, ray_nodes, tools, warm, workers
from support.experiments import Project
from support.workers import pytest_runtestloop  # noqa: F401  a hook
from terminalbench.cli.main import main
from terminalbench.llm import litellm_model

REPO = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data"

# The same few examples in every run, however long one takes: a busy machine is no fault. `--hypothesis-profile=search`
# (`-m hypothesis`) looks for new ones.
_ANY: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("tests", max_examples=25, derandomize=True, **_ANY)
settings.register_profile("search", max_examples=1000, **_ANY)
settings.load_profile("tests")
# Else each process parses all our modules that it has loaded, for constants to try: seconds, and other examples in each.
providers._get_local_constants = lambda: providers._local_constants  # ty: ignore[invalid-assignment]


LOADED = ("harbor.cli.main", "terminalbench.dashboard.app")
"""What takes long to load, starts no thread and several tests need: loaded once, before the processes are forked."""
MANY = 1000
END_TO_END = ("browser", "chaos", "e2e", "sandbox", "starter")
"""Folders of tests that `--fast` leaves out, with tests elsewhere that are marked as long or heavy, or took long before."""
# Compiled modules are kept, as `make` does: with this variable set each process that loads Harbor would compile all it loads,
# which takes five times as long as loading it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
gc.disable()  # until all tests are collected: a third of the time of that would go to looking for garbage


def pytest_addoption(parser: pytest.Parser) -> None:
    workers.pytest_addoption(parser)
    parser.addoption(
        "--fast", action="store_true", help="leave out what runs end to end: real Harbor, sandboxes, browsers"
    )
    parser.addoption("--run-docker", action="store_true", help="run tests that need a Docker engine")
    parser.addoption("--run-paid", action="store_true", help="run tests that spend money on a model provider")
    parser.addoption("--run-model", action="store_true", help="run tests that ask the model $TBENCH_TEST_MODEL")
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """A shell that starts the tests in the background lets all they start ignore Ctrl-C; a person's shell does not.

    The limit of a test follows the machine. What runs that were killed left is taken away.
    """
    if config.option.timeout is None:
        config.option.timeout = pace.seconds(float(config.getini("timeout")))
    is_whole = config.getoption("--workers") > 1
    if is_whole:
        ray_nodes.remove_what_the_dead_left()
    ours = contextlib.ExitStack()
    ours.enter_context(warm.session(is_whole))
    config.add_cleanup(ours.close)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str | None:
    return f"limits: times {pace.slowness:g}, as slow as this machine is" if pace.slowness > 1 else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Say which folders are not looked at."""
    is_left_out = config.getoption("--fast") and collection_path.parent == Path(__file__).parent
    return True if is_left_out and collection_path.name in END_TO_END else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for marker, flag in (("docker", "--run-docker"), ("paid", "--run-paid"), ("model", "--run-model")):
            if item.get_closest_marker(marker) and not config.getoption(flag):
                item.add_marker(pytest.mark.skip(reason=f"needs {flag}"))
    if config.getoption("--fast"):
        dear = cpu.remembered(config, cpu.DEAR)
        slow = {item for item in items if item.nodeid in dear or any(map(item.get_closest_marker, ("long", "heavy")))}
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=list(slow))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected and loaded stays: no search for garbage looks at it again."""
    if session.config.getoption("--workers") > 1 and len(session.items) > MANY:
        litellm_model.load()
        for name in LOADED:
            importlib.import_module(name)
        warm.compile_templates()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was not tested, how to have it tested, and what the tests of each folder took of the processors."""
    skipped = terminalreporter.stats.get("skipped", ())
    if lines := tools.lacking(report.longrepr[2] for report in skipped):
        terminalreporter.section("not tested here")
        for line in lines:
            terminalreporter.write_line(line)
    config = terminalreporter.config
    if parts := config.stash.get(workers.PARTS, None):
        parts.remember(config)
        terminalreporter.section("processor time")
        for line in parts.lines():
            terminalreporter.write_line(line)


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
