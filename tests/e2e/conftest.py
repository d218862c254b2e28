"""A project in which experiments really run: small tasks, scripted agents, the local sandbox."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest

from support.experiments import Project
from support.pace import seconds
from support.ray_nodes import Cluster, Network
from support.tasks import AGENTS, BOTH, write_task
from support.warm import Command, Warm, start_tbench
from terminalbench.cli.main import main
from terminalbench.experiments.batch import Batch
from terminalbench.json_files import read_jsonl
from terminalbench.records.event import Event

HEAD = """
schema_version = 2
slug = "s"
[run]
container_env = "local"
{run}
[tasks]
default_dataset = "tasks"
items = [{items}]
"""
WARM = Warm()
TBENCH = [sys.executable, "-m", "terminalbench.cli.main"]


@dataclass
class Lab:
    """A project with tasks `a` and `b`, and the command line as a real process.

    With `prefix` commands run behind another one, as in a mount namespace; `seen_root` is the root seen from here. With
    `fresh` every Harbor process is started, none forked: what depends on how Python starts there.
    """

    project: Project
    env: dict[str, str]
    prefix: list[str] = field(default_factory=list)
    seen_root: Path | None = None
    fresh: bool = False
    started: list[subprocess.Popen[str] | Command] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.project.root

    def experiment(
        self, profiles: str, *, tasks: tuple[str, ...] = ("a", "b"), run: str = "", name: str = "exp.toml"
    ) -> Path:
        items = ", ".join(f'{{ id = "{task}" }}' for task in tasks)
        return self.project.experiment(HEAD.format(run=run, items=items) + profiles, name)

    def command(self, fresh: bool = False) -> list[str]:
        """`tbench`; its Harbor processes are forked ones unless they have to be fresh (see `support.warm`)."""
        return [*self.prefix, *(TBENCH if fresh or self.fresh else WARM.tbench())]

    def start(self, *arguments: str | Path, fresh: bool = False, own: bool = False) -> subprocess.Popen[str] | Command:
        """Start a command; with `own` in a Python that is started for it, as with `fresh`, but its Harbor is forked."""
        said = [str(argument) for argument in arguments]
        if self.prefix or fresh or self.fresh or own:
            process = subprocess.Popen(
                [*self.command(fresh), *said], cwd=self.root, env=self.env,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
        else:
            process = start_tbench(said, self.env, self.root)
        self.started.append(process)
        return process

    def end(self) -> None:
        """End what a test that failed left running; Harbor goes with its runner."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def process(self, *arguments: str | Path, fresh: bool = True) -> subprocess.CompletedProcess[str]:
        """A command from its start to its end, in a process of its own: what depends on how Python is started."""
        return _ended(self.start(*arguments, fresh=fresh, own=True))

    def tbench(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """A command from its start to its end, in this process: loading Python anew a thousand times is no test.

        Harbor runs in processes of its own, forked from one that has loaded it (see `support.warm`). What a test does to a command while it runs needs `start`.
        """
        if self.fresh:
            return _ended(self.start(*arguments))
        if self.prefix:
            argv = [*self.prefix, *WARM.asking(), *map(str, arguments)]
            return subprocess.run(
                argv, cwd=self.root, env=self.env, capture_output=True, text=True, timeout=seconds(240), check=False
            )
        out, err = io.StringIO(), io.StringIO()
        with self.inside(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    @contextlib.contextmanager
    def inside(self) -> Generator[None]:
        """This process as a command of the project would be: its folder, its variables, Harbor from the warm process."""
        with (
            mock.patch("terminalbench.runner.executors.local.spawn", WARM),
            mock.patch.dict(os.environ, self.env, clear=True), contextlib.chdir(self.root),
        ):  # fmt: skip
            yield

    def go(self) -> None:
        """Let the agents go on that wait for the test (see `free` of the scripted agent)."""
        self.project.write("go", "")

    def batch(self, number: int = 0) -> Batch:
        return Batch((self.seen_root or self.root) / "results" / "s" / str(number))

    def index(self, number: int = 0) -> list[dict]:
        return json.loads(self.batch(number).index_json.read_text())["runs"]

    def outcomes(self, number: int = 0) -> dict[tuple[str, str], list[str]]:
        found: dict[tuple[str, str], list[str]] = {}
        for entry in self.index(number):
            if not entry.get("superseded"):
                found.setdefault((entry["agent_key"], entry["task_id"]), []).append(entry["outcome"])
        return found

    def events(self, number: int = 0) -> list[Event]:
        return read_jsonl(self.batch(number).events_jsonl, Event).records


def _ended(process: subprocess.Popen[str] | Command) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate(timeout=seconds(240))
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)


def make_lab(project: Project) -> Lab:
    for task in ("a", "b"):
        write_task(project.root / "tasks" / task)
    project.write("lab_agents.py", AGENTS)
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    return Lab(project, {**env, "XDG_STATE_HOME": str(project.root.parent / "state")})


@pytest.fixture(scope="session")
def new_lab() -> Callable[[Project], Lab]:
    """Makes a lab for tests that share one batch."""
    return make_lab


@pytest.fixture
def lab(project: Project) -> Generator[Lab]:
    made = make_lab(project)
    yield made
    made.end()


@dataclass(frozen=True)
class Finished:
    """A batch that has run, once for all tests of this process, and what `tbench run --json` printed."""

    lab: Lab
    file: Path
    ran: subprocess.CompletedProcess[str]
    kept: Path


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    root = tmp_path_factory.mktemp("finished") / "project"
    root.mkdir()
    made = make_lab(Project(root))
    file = made.experiment(BOTH)
    ran = made.tbench("run", file, "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kept = root.with_name("kept")
    shutil.copytree(root, kept, symlinks=True)
    return Finished(made, file, ran, kept)


@pytest.fixture
def done(_finished: Finished, monkeypatch: pytest.MonkeyPatch) -> Finished:
    """The finished batch 0 of oracle and nop on the tasks a and b, as it was when it ended; a test may change it."""
    root = _finished.lab.root
    shutil.rmtree(root)
    shutil.copytree(_finished.kept, root, symlinks=True)
    monkeypatch.chdir(root)
    return _finished


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the Ray cluster follow each other, last the one that ends it."""
    ray = [item for item in items if any(mark.args == ("ray",) for mark in item.iter_markers("alone"))]
    ray.sort(key=lambda item: "head" in item.name)
    items[:] = [item for item in items if item not in ray] + ray


@pytest.fixture(scope="session")
def ray_cluster() -> Generator[Cluster]:
    """A head of 3 CPUs. Harbor processes of its nodes are forked from one, unless told otherwise. Its last test kills it."""
    with Cluster(loaded=True, network=Network.made()) as found:
        found.head(3)
        yield found


@pytest.fixture(scope="session")
def ray_node(ray_cluster: Cluster) -> str:
    """A node of it, of 4 CPUs: a job that takes 3 has room on both, each has room for one; one that takes 4 on this alone."""
    return ray_cluster.node(4)
