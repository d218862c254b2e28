"""Which running batch is meant where none is named."""

import json
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from support.results import make_plan
from terminalbench.cli.options import BatchChoice, batch_to_steer, batch_to_watch
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import Provenance
from terminalbench.json_files import write_json
from terminalbench.lab.select import live_batches, of_this_project
from terminalbench.live.processes import announced
from terminalbench.locks import lock


@contextmanager
def running(*batches: Batch) -> Generator[None]:
    """Batches that are held and announced by this very process, the last one the newest."""
    with ExitStack() as stack:
        for number, batch in enumerate(batches):
            stack.enter_context(lock(batch.lock, "a test"))
            owner = json.loads(batch.lock.read_text())
            batch.lock.write_text(json.dumps({**owner, "since": f"2026-01-0{number + 1}T00:00:00+00:00"}))
            stack.enter_context(announced(batch))
        yield


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Batch, Batch]:
    """A batch of the project we are in, and one of another project."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").touch()
        batch = allocate(tmp_path / name / "results", "s")
        make_plan(batch)
        found.append(batch)
    (tmp_path / "here" / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "here" / "deep")
    return found[0], found[1]


def test_a_batch_of_this_project_comes_first(two: tuple[Batch, Batch], capsys: pytest.CaptureFixture[str]) -> None:
    here, there = two
    with running(here, there):
        assert live_batches(None) == [here, there], "although the other was started later"
        assert live_batches(there.folder.parent.parent) == [there]
        assert batch_to_watch(BatchChoice()) == here
        assert capsys.readouterr().err == f"watching {here.folder}\nalso running: {there.folder}\n"
        assert batch_to_steer(BatchChoice()) == here
    with running(there):
        assert batch_to_watch(BatchChoice()) == there
        assert capsys.readouterr().err == f"watching {there.folder}, which belongs to another project\n"
        assert batch_to_steer(BatchChoice()) == there


def test_where_several_run_here_an_order_wants_a_name(two: tuple[Batch, Batch]) -> None:
    here, there = two
    other = allocate(here.folder.parent.parent, "s")
    make_plan(other)
    with running(here, there, other):
        assert live_batches(None) == [other, here, there]
        with pytest.raises(UserError, match="name one with --in"):
            batch_to_steer(BatchChoice())


def test_results_that_lie_elsewhere_are_this_projects_if_it_was_started_here(two: tuple[Batch, Batch]) -> None:
    _, there = two
    assert not of_this_project(there)
    root = str(Path.cwd().parent)
    write_json(there.plan_json, msgspec.structs.replace(make_plan(there), provenance=Provenance(root=root)))
    assert of_this_project(there)


def test_status_lists_this_projects_batches_first(two: tuple[Batch, Batch], tbench) -> None:
    here, there = two
    with running(there, here):
        listed = json.loads(tbench("status", "--json").out)
    assert [found["batch"] for found in listed] == [str(here.folder), str(there.folder)]


def test_where_the_batches_of_a_night_are_is_said(tbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    assert tbench("list").out == "no batches yet\n"
    assert "tbench run starts one" in tbench("compare").err
    make_plan(allocate(tmp_path / "results" / "night" / "batches", "s"))
    for said in (tbench("list").out, tbench("compare").err):
        assert "--results results/night/batches" in said
