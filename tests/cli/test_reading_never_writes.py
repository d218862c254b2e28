"""A command that reads leaves a folder without results as it is: it may be any folder, also somebody's home."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from support.experiments import BASE, ORACLE
from terminalbench.cli.app import app
from terminalbench.cli.commands import GROUPS, SECTIONS

COMMANDS = [name for commands in SECTIONS.values() for name in commands if name not in GROUPS]
COMMANDS += [f"{group} {name}" for group, table in GROUPS.items() for commands in table.values() for name in commands]

WRITING = {
    *("init", "migrate", "check", "run", "resume", "iterate", "overnight", "mirror"),
    *("images pull", "images import", "images prune", "models check"),
    *("gym split", "memory reflect", "memory learn", "memory add", "memory edit", "memory approve"),
    *("memory retire", "memory merge", "memory import"),
    *("trainer init", "trainer run", "trainer holdout", "trainer promote", "trainer rollback"),
    *("swebench-pro tasks", "swebench-pro experiment", "swebench-pro evaluate", "swebench-pro analyze-errors"),
    *("swebench-pro visualize", "swebench-pro import", "swebench-pro project"),
}
"""What makes files, runs trials, asks models or fetches something. Every other command reads, a new one as well."""
READING = [name for name in COMMANDS if name not in WRITING]

type Snapshot = dict[str, tuple[int, int, int]]


def snapshot(folder: Path) -> Snapshot:
    """Kind and rights, size and time of everything in a folder, and of itself."""
    found = [folder, *folder.rglob("*")]
    status = {str(path): path.lstat() for path in found}
    return {name: (one.st_mode, one.st_size, one.st_mtime_ns) for name, one in status.items()}


def foreign_folder(folder: Path) -> Path:
    """Make a folder of other things, with a database of another program that is called as ours."""
    for name, data in {
        "index.db": b"of another program",
        "experiment.toml": (BASE + ORACLE).encode(),
        "photos/2024/runs.jpg": b"jpg",
        "photos/12/a.jpg": b"jpg",
        "mail/inbox/config.txt": b"text",
        ".config/app/settings": b"a = 1",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "results").mkdir()
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return folder


def parameters(name: str) -> list[click.Parameter]:
    found: click.Command | None = app
    for word in name.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word)
    assert found is not None
    return found.params


def word(parameter: click.Parameter, place: Path) -> str:
    """A value for an argument: the place for a path, else any that the command takes."""
    if isinstance(parameter.type, click.Choice):
        return str(parameter.type.choices[0])
    if isinstance(parameter.type, click.Path):
        return str(place)
    return {"sql": "SELECT count(*) FROM trials"}.get(parameter.name or "", "1")


def lines(name: str, place: Path, out: Path) -> Iterator[list[str]]:
    """Command lines of a command about a place: with as few arguments as it takes, and with all of them."""
    found = parameters(name)
    options = {option: str(place) for one in found for option in one.opts if option in ("--results", "--root")}
    more = ["--export", str(out / "site")] if name == "view" else []  # else it serves for ever
    for every in (False, True):
        words = [word(one, place) for one in found if isinstance(one, click.Argument) and (one.required or every)]
        yield [*name.split(), *words, *more]
        for option, value in options.items():
            yield [*name.split(), *words, option, value, *more]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_each_command_that_writes_is_one() -> None:
    assert set(COMMANDS) >= WRITING


@pytest.mark.parametrize("name", READING)
def test_it_leaves_a_folder_without_results_as_it_is(
    tmp_path: Path, out: Path, name: str, tbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named in every way, from a home that is no project; a folder that is not there is not made."""
    home = foreign_folder(tmp_path / "home")
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    other = foreign_folder(tmp_path / "other")
    before = snapshot(home), snapshot(other)
    for place in (other, home, home / "results", home / "experiment.toml", home / "index.db", tmp_path / "missing"):
        for line in lines(name, place, out):
            ran = tbench(*line)
            assert (snapshot(home), snapshot(other)) == before, line
            assert ran.code in (0, 1, 2, 3), (line, ran)
            assert "unexpected" not in ran.err, (line, ran)
            assert not (tmp_path / "missing").exists(), line
            assert ran.code == 2 or line[-2:] != ["--results", str(tmp_path / "missing")], (line, ran)
            assert name.startswith("images ") or not (tmp_path / "cache").exists(), "only images are looked for there"


def test_a_dashboard_leaves_a_folder_without_results_as_it_is(tmp_path: Path) -> None:
    from terminalbench.dashboard.answers import answer
    from terminalbench.dashboard.serve import Refresher
    from terminalbench.dashboard.site import Site

    other = foreign_folder(tmp_path / "other")
    before = snapshot(other)
    site = Site(other)
    refresher = Refresher(site)
    refresher.start()
    pages = [answer(site, path, {}) for path in ("", "trials/")]
    refresher.stop()
    site.close()
    assert all(page.body for page in pages)
    assert snapshot(other) == before
