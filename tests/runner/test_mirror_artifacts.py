import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner import resuming
from support.experiments import Project
from support.pace import seconds
from terminalbench.experiments.batch import Batch
from terminalbench.locks import start_ticks
from terminalbench.runner.mirror_artifacts import SEAL, MirrorPass, mirror_batch, mirror_trial


def trial(root: Path, name: str = "a__1", target: str = "notes") -> Path:
    folder = root / "runs" / "job" / name / "agent" / "sessions" / target
    folder.mkdir(parents=True)
    (folder / "n.md").write_text("one")
    (folder / "deep").mkdir()
    (folder / "deep" / "x").write_text("two")
    return root / "runs" / "job" / name


def test_all_trials_are_copied_once(tmp_path: Path) -> None:
    for name in ("a__1", "b__1"):
        trial(tmp_path, name)
    destination = tmp_path / "artifacts"
    assert mirror_batch(tmp_path / "runs", ["notes", "none"], destination) == MirrorPass(copied=2)
    assert (destination / "notes" / "b__1" / "deep" / "x").read_text() == "two"
    assert mirror_batch(tmp_path / "runs", ["notes"], destination) == MirrorPass(unchanged=2)


def test_what_a_killed_mirror_left_is_removed_and_what_a_live_one_makes_is_not(tmp_path: Path) -> None:
    trial(tmp_path)
    out = tmp_path / "out"
    host = socket.gethostname()
    dead = subprocess.Popen(["true"])
    dead.wait()
    stale = out / "notes" / f".mirror-{host}-{dead.pid}-123-abc"
    recycled = out / "notes" / f".mirror-{host}-{os.getpid()}-1-abc"
    live = out / "notes" / f".mirror-{host}-{os.getpid()}-{start_ticks(os.getpid())}-abc"
    elsewhere = out / "notes" / "a__1" / ".mirror-another.host-1-1-abc"
    for folder in (stale, recycled, live, elsewhere):
        (folder / "fresh").mkdir(parents=True)
    mirror_batch(tmp_path / "runs", [], out)
    assert [folder.exists() for folder in (stale, recycled, live, elsewhere)] == [False, False, True, True]


def test_two_mirrors_at_once_make_one_whole_copy(tmp_path: Path) -> None:
    folder = trial(tmp_path)
    for round_number in range(10):
        out = tmp_path / f"out{round_number}"
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda _, out=out: mirror_trial(folder, ["notes"], out), range(4)))
        assert not [failure for mirrored in done for failure in mirrored.failed]
        assert (out / "notes" / "a__1" / "deep" / "x").read_text() == "two"
        assert sorted(p.name for p in (out / "notes").iterdir()) == ["a__1"]


def test_a_change_is_copied_again_and_whole(tmp_path: Path) -> None:
    folder = trial(tmp_path)
    mirror_trial(folder, ["notes"], tmp_path / "out")
    (folder / "agent" / "sessions" / "notes" / "n.md").write_text("changed")
    (folder / "agent" / "sessions" / "notes" / "deep" / "x").unlink()
    assert mirror_trial(folder, ["notes"], tmp_path / "out").copied == 1
    copy = tmp_path / "out" / "notes" / "a__1"
    assert (copy / "n.md").read_text() == "changed"
    assert not (copy / "deep" / "x").exists()
    assert sorted(p.name for p in (tmp_path / "out" / "notes").iterdir()) == ["a__1"]


def test_links_and_special_files_of_an_agent_do_no_harm(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host")
    folder = trial(tmp_path)
    notes = folder / "agent" / "sessions" / "notes"
    (notes / "link").symlink_to(secret)
    (notes / "up").symlink_to(tmp_path)
    os.mkfifo(notes / "pipe")
    assert mirror_trial(folder, ["notes"], tmp_path / "out").copied == 1
    copy = tmp_path / "out" / "notes" / "a__1"
    assert (copy / "link").is_symlink()
    assert not (copy / "pipe").exists()
    planted = tmp_path / "runs" / "job" / "c__1" / "agent" / "sessions"
    planted.mkdir(parents=True)
    (planted / "notes").symlink_to(tmp_path)
    assert mirror_trial(planted.parent.parent, ["notes"], tmp_path / "out") == MirrorPass()


def test_each_step_of_a_multi_step_trial_is_kept(tmp_path: Path) -> None:
    base = tmp_path / "runs" / "job" / "m__1" / "steps"
    for step in ("one", "two"):
        folder = base / step / "agent" / "sessions" / "notes"
        folder.mkdir(parents=True)
        (folder / "n.md").write_text(step)
    assert mirror_batch(tmp_path / "runs", ["notes"], tmp_path / "out").copied == 2
    assert (tmp_path / "out" / "notes" / "m__1" / "two" / "n.md").read_text() == "two"


def test_one_that_cannot_be_copied_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    trial(tmp_path, "a__1")
    trial(tmp_path, "b__1")
    blocked = tmp_path / "out" / "notes"
    blocked.mkdir(parents=True)
    (blocked / "a__1").write_text("in the way")
    (blocked / "a__1").chmod(0o400)
    done = mirror_batch(tmp_path / "runs", ["notes"], tmp_path / "out")
    assert done.copied + len(done.failed) == 2
    assert (tmp_path / "out" / "notes" / "b__1" / SEAL).exists()


def test_names_no_text_can_hold_are_copied(tmp_path: Path) -> None:
    trial = tmp_path / "job" / "a__1"
    sessions = trial / "agent" / "sessions" / "t"
    sessions.mkdir(parents=True)
    for name in (b"\xff\xfe", b"a\nb", b"\x1b[31m"):
        with open(os.fsencode(sessions) + b"/" + name, "w") as stream:  # noqa: PTH123 - no Path of bytes
            stream.write("x")
    assert mirror_trial(trial, ["t"], tmp_path / "out") == MirrorPass(copied=1)
    assert mirror_trial(trial, ["t"], tmp_path / "out") == MirrorPass(unchanged=1)
    assert len(list((tmp_path / "out" / "t" / "a__1").iterdir())) == 4


def test_no_link_on_the_way_leads_to_the_hosts_folders(tmp_path: Path) -> None:
    (tmp_path / "host" / "t").mkdir(parents=True)
    (tmp_path / "host" / "t" / "secret").write_text("x")
    (tmp_path / "host" / "sessions" / "t").mkdir(parents=True)
    one, two = tmp_path / "job" / "a__1", tmp_path / "job" / "a__2"
    (one / "agent").mkdir(parents=True)
    two.mkdir()
    (one / "agent" / "sessions").symlink_to(tmp_path / "host")
    (two / "agent").symlink_to(tmp_path / "host")
    for trial in (one, two):
        assert mirror_trial(trial, ["t"], tmp_path / "out") == MirrorPass()
    assert not (tmp_path / "out").exists()


def test_holes_and_folders_without_end_are_named_and_harm_nobody(tmp_path: Path) -> None:
    holes = tmp_path / "job" / "a__1" / "agent" / "sessions" / "t"
    holes.mkdir(parents=True)
    with (holes / "hole").open("wb") as stream:
        stream.truncate(10 << 40)
    done = mirror_trial(tmp_path / "job" / "a__1", ["t"], tmp_path / "out")
    assert done.failed[0].startswith("a__1: a copy needs 10485760 MB, and only ")
    deep = tmp_path / "job" / "a__2" / "agent" / "sessions" / "t"
    deep.mkdir(parents=True)
    handle = os.open(deep, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    done = mirror_trial(tmp_path / "job" / "a__2", ["t"], tmp_path / "out")
    assert len(done.failed) == 1
    assert not list((tmp_path / "out" / "t").iterdir())


@pytest.mark.parametrize(
    "targets",
    [["--targets", "a", "b", "c"], ["--targets", "a,b,c"], ["--targets", "a", "--targets=b", "--targets", "c"]],
)
def test_targets_are_given_as_any_list(project, tbench, targets: list[str]) -> None:
    from support.experiments import BASE, ORACLE
    from support.results import make_plan

    file = project.experiment(BASE + ORACLE)
    batch = Batch(project.root / "results" / "s" / "0")
    make_plan(batch)
    for name in ("a", "b", "c"):
        folder = batch.runs / "job" / "t__1" / "agent" / "sessions" / name
        folder.mkdir(parents=True)
        (folder / "n.md").write_text(name)
        (folder.parents[2] / "result.json").write_text("{}")
    ran = tbench("mirror", *targets, file)
    assert ran.code == 0, ran.err
    assert sorted(place.name for place in batch.artifacts.iterdir()) == ["a", "b", "c"]


def test_a_batch_has_its_folders_at_the_start_and_empty_ones_are_no_data(project: Project, tbench) -> None:
    made = resuming.experiment(project)
    batch = resuming.planned(made)
    assert [folder.is_dir() for folder in (batch.runs, batch.analytics, batch.artifacts)] == [True] * 3
    assert "has no batch with data yet" in tbench("mirror", made.file, "--targets", "x").err


def test_the_older_module_says_what_to_type() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "terminalbench.runner.mirror_artifacts", "--runs-dir", "x"],
        capture_output=True, text=True, timeout=seconds(60), check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "tbench mirror EXPERIMENT.toml [--batch N] [--targets NAME...]" in ran.stderr
