"""Tests side by side: what each does is told as if it had run alone, and nothing is lost with a process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from support import cpu, ray_nodes, workers

TESTS = Path(__file__).parents[1]
ONES = """
import os, warnings
import pytest

@pytest.fixture(scope="module")
def made(tmp_path_factory):
    where = tmp_path_factory.mktemp("made")
    yield where
    with open(os.environ["ENDED"], "a") as file:
        print(where, file=file)

def test_fails():
    print("said before it failed")
    assert 0, "told"

def test_ends_its_process():
    os._exit(7)

def test_warns(tmp_path):
    (tmp_path / "x").touch()
    warnings.warn("look here")

@pytest.mark.parametrize("number", range(40))
def test_many(made, number):
    assert made.is_dir()

def test_skips():
    pytest.skip("not here")
"""
HEAVY = """
import os, time
import pytest

@pytest.mark.heavy
def test_waits_for_a_calm_one():
    while not os.path.exists("niced"):
        time.sleep(0.01)
"""
CALM = """
import os
import pytest

@pytest.mark.parametrize("number", range(100))
def test_many(number):
    if not os.path.exists("niced"):
        with open("niced", "w") as file:
            print(os.nice(0), end="", file=file)
"""


@pytest.fixture
def ran(tmp_path: Path):
    (tmp_path / "conftest.py").write_text("from support.workers import pytest_addoption, pytest_runtestloop\n")
    (tmp_path / "test_ones.py").write_text(ONES)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  alone\n  heavy\n  long\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(TESTS), "ENDED": str(tmp_path / "ended"), "PYTEST_ADDOPTS": ""}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base")]
        return subprocess.run(
            [*command, *arguments], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=240
        )

    return run


def test_every_test_is_told_once_whatever_it_does_to_its_process(ran, tmp_path: Path) -> None:
    told = ran("--workers", "3")
    assert told.returncode == 1
    assert "2 failed, 41 passed, 1 skipped, 1 warning" in told.stdout, told.stdout + told.stderr
    assert "said before it failed" in told.stdout
    assert "test_ends_its_process - the process of this test ended: 7" in told.stdout
    assert "UserWarning: look here" in told.stdout
    ended = (tmp_path / "ended").read_text().splitlines()
    assert ended, "fixtures end with the last test that uses them"
    assert len(set(ended)) == len(ended)


def test_the_first_failure_ends_all_when_asked(ran) -> None:
    told = ran("--workers", "2", "-x", "-k", "fails or many")
    assert told.returncode == 1
    assert "1 failed" in told.stdout
    assert "stopping after 1 failures" in told.stdout


def test_calm_ones_run_beside_the_heavy_ones_and_all_of_them_once(ran, tmp_path: Path) -> None:
    (tmp_path / "test_heavy.py").write_text(HEAVY)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "test_calm.py").write_text(CALM)
    told = ran("--workers", "4", "test_heavy.py", "text")
    assert "101 passed" in told.stdout, told.stdout + told.stderr
    assert (tmp_path / "niced").read_text() == str(min(19, os.nice(0) + 5))


def test_a_test_that_took_much_is_remembered_until_it_is_quick() -> None:
    kept = {cpu.DEAR: {"mended": 0.9, "not run": 2.0}, cpu.LONG: {"mended": 3.0, "slow": 3.0}}
    cache = SimpleNamespace(get=kept.get, set=kept.__setitem__)
    cpu.Parts(each={"slow": 0.7, "mended": 0.1}, lasted={"slow": 30.04, "mended": 1.0}).remember(
        SimpleNamespace(cache=cache)
    )
    assert kept == {cpu.DEAR: {"not run": 2.0, "slow": 0.7}, cpu.LONG: {"slow": 30.0}}


def test_what_took_longest_starts_first_and_a_new_one_where_its_marks_put_it() -> None:
    def item(folder: str, name: str, *marks: str) -> SimpleNamespace:
        path = Path(folder, f"{name}.py")
        return SimpleNamespace(
            path=path, nodeid=str(path), get_closest_marker=lambda asked: asked if asked in marks else None
        )

    items = [item("text", "short"), item("e2e", "new"), item("e2e", "new_long", "long"), item("runner", "waits")]
    known = {"e2e/known.py": 40.0, "runner/waits.py": 31.0}
    items.append(item("e2e", "known"))
    order = [items[number].path.stem for (number,) in workers.shares(items, known)]  # ty: ignore[invalid-argument-type]
    assert order == ["known", "waits", "new_long", "new", "short"]


def test_what_killed_runs_left_is_taken_away_and_nothing_of_others(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    owners = (dead.pid, os.getpid())
    nodes = []
    for owner in owners:
        (tmp_path / f"tbray{owner}-x" / "session").mkdir(parents=True)
        nodes.append(subprocess.Popen(["sleep", "60"], env={**os.environ, ray_nodes.MARK: f"of{owner}-1-0-0"}))
    (tmp_path / "tbray").mkdir()
    bridge = ["ip", "link", "add", f"tb{dead.pid}", "type", "bridge"]
    has_bridge = bool(shutil.which("ip")) and subprocess.run(bridge, capture_output=True).returncode == 0
    ray_nodes.remove_what_the_dead_left(tmp_path)
    try:
        assert nodes[0].wait(60) == -9
        assert nodes[1].poll() is None
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    assert {folder.name for folder in tmp_path.iterdir()} == {f"tbray{os.getpid()}-x", "tbray"}
    if has_bridge:
        assert not Path(f"/sys/class/net/tb{dead.pid}").exists()
