"""Every command that reads, on folders in any state: one clear message or a counted fault, never a traceback."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.results import STAMP, make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.index.scan import scan_all
from terminalbench.index.store import FILE_NAME


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    found = allocate(tmp_path / "results", "s")
    make_plan(found, ("p", "q"), "ab", 1)
    for number, profile in enumerate("pq"):
        for task in "ab":
            make_trial(found, f"{task}__{profile}", profile=profile, reward=1.0 - number)
    return found


def first(batch: Batch) -> Path:
    return batch.runs / f"{STAMP}__p" / "a__p"


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def loops(batch: Batch) -> None:
    folder = first(batch)
    (folder / "agent").mkdir()
    for path, target in (("agent/loop", folder), ("self", folder / "self"), ("agent/trajectory.json", folder / "self")):
        (folder / path).symlink_to(target)
    batch.analytics.symlink_to(batch.analytics)


def names(batch: Batch) -> None:
    for name in ("a'b\"__1", "a\nb__2", "a\x1b[31m__3", "a%2f<b>__4", "a\udcff__5"):
        shutil.copytree(first(batch), first(batch).with_name(name))
    (batch.folder.parent.with_name("s\udcff") / "0" / "runs").mkdir(parents=True)
    (batch.folder.parent / ("9" * 25) / "runs").mkdir(parents=True)


def broken_index(batch: Batch) -> None:
    scan_all(batch.folder.parent.parent)
    cut(batch.folder.parent.parent / FILE_NAME, 20_000)


def folders(batch: Batch) -> None:
    """Where a file is expected."""
    (first(batch) / "result.json").unlink()
    for path in (first(batch) / "result.json", batch.gate_json, batch.folder.parent.parent / FILE_NAME):
        path.mkdir()


BAD: dict[str, Callable[[Batch], object]] = {
    "a torn plan": lambda batch: cut(batch.plan_json, 200),
    "a plan of another shape": lambda batch: batch.plan_json.write_text("[" * 100_000),
    "a torn index.json": lambda batch: batch.index_json.write_text('{"runs": ['),
    "a torn result": lambda batch: cut(first(batch) / "result.json", 99),
    "torn events": lambda batch: batch.events_jsonl.write_bytes(b'{"time": "2026\n\0\xff\n{"time": 5}\n{"kind"'),
    "torn findings": lambda batch: batch.analytics.mkdir() or (batch.analytics / "findings.jsonl").write_text('{"x\n'),
    "links in a circle": loops,
    "hostile names": names,
    "an empty index": lambda batch: (batch.folder.parent.parent / FILE_NAME).write_bytes(b""),
    "no index at all": lambda batch: (batch.folder.parent.parent / FILE_NAME).write_bytes(b"no database " * 99),
    "half an index": broken_index,
    "folders for files": folders,
}
PLAN_IS_BAD = ("a torn plan", "a plan of another shape")
INDEX_SAYS = {
    "a torn plan": 3,
    "a plan of another shape": 3,
    "a torn result": 3,
    "hostile names": 3,
    "folders for files": 1,
}


@pytest.mark.parametrize("how", BAD)
def test_a_batch_in_any_state(tbench, batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    BAD[how](batch)
    root, folder = str(batch.folder.parent.parent), str(batch.folder)
    fine = [
        ["list", "--results", root],
        ["show", "b__q", "--results", root],
        ["status", "--results", root],
        ["query", "SELECT count(*) FROM trials", "--results", root],
        ["view", root, "--export", str(tmp_path / "site")],
    ]
    about_the_plan = [["compare", folder], ["errors", folder], ["export", folder]]
    for arguments in [*fine, ["watch", folder], *about_the_plan]:
        ran = tbench(*arguments)
        allowed = (
            (0, 3) if arguments[0] == "watch" else (1,) if arguments in about_the_plan and how in PLAN_IS_BAD else (0,)
        )
        assert ran.code in allowed, (arguments, ran.err)
        assert "unexpected" not in ran.err, ran.err
        assert "Traceback" not in ran.err
        assert "\x1b" not in ran.err
        errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == (ran.code == 1)
    indexed = tbench("index", "--results", root)
    assert indexed.code == INDEX_SAYS.get(how, 0), indexed.err
    if how == "hostile names":
        assert indexed.err.count("its name is not UTF-8 text") == 2
        assert "\x1b" not in tbench("show", "a", "--results", root).err


@pytest.mark.parametrize("command", ["list", "show", "query", "status", "view", "index"])
def test_a_root_that_is_empty_or_a_file(tbench, tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    more = {"show": ["a"], "query": ["SELECT 1"], "view": ["--export", str(tmp_path / "site")]}.get(command, [])
    for name, code in (("empty", 2 if command == "show" else 0), ("file", 2)):
        root = [str(tmp_path / name)] if command == "view" else ["--results", str(tmp_path / name)]
        ran = tbench(command, *more, *root)
        assert ran.code == code, ran.err
        assert len(ran.err.splitlines()) == (code == 2)


@pytest.mark.parametrize("command", ["list", "show", "query", "index"])
def test_a_job_of_harbor_as_results_means_the_folder_it_lies_in(tbench, batch: Batch, command: str) -> None:
    job = next(batch.runs.iterdir())
    for name in ("config.json", "result.json"):
        (job / name).write_text("{}")
    more = {"show": ["a"], "query": ["SELECT trial FROM trials"]}.get(command, [])
    tbench("index", "--results", str(batch.runs))
    ran, same = (tbench(command, *more, "--results", str(place)) for place in (job, batch.runs))
    assert (ran.code, ran.out, ran.err) == (same.code, same.out, same.err)
    assert "unexpected" not in ran.err


@pytest.mark.parametrize("command", ["watch", "compare", "errors", "report", "analyze", "export", "resume"])
def test_a_batch_that_is_not_there_is_named(tbench, tmp_path: Path, command: str) -> None:
    ran = tbench(command, str(tmp_path / "s" / "0"))
    assert (ran.code, ran.out) == (2, "")
    assert str(tmp_path / "s" / "0") in ran.err
    assert len(ran.err.splitlines()) == 1


SCAN = """
import dataclasses, json, sys
from pathlib import Path
from terminalbench.index.scan import scan_all
from terminalbench.index.results import list_batches
from terminalbench.index.results import open_results
root = Path(sys.argv[1])
report = dataclasses.asdict(scan_all(root))
print(json.dumps([report, [batch["trials"] for batch in list_batches(root)], len(open_results(root).trials())]))
"""


@pytest.mark.parametrize("what", ["a trial", "a result", "a job", "a batch"])
def test_what_may_not_be_read_is_counted_and_what_was_known_of_it_is_kept(batch: Batch, what: str) -> None:
    job = first(batch).parent
    hidden = {"a trial": first(batch), "a result": first(batch) / "result.json", "a job": job, "a batch": batch.folder}[
        what
    ]
    other = allocate(batch.folder.parent.parent, "t")
    make_plan(other, ("p",), "a", 1)
    make_trial(other, "a__1")
    hidden.chmod(0)
    # Root is asked like anybody else when it has not the right to override.
    bound = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    if bound and subprocess.run([*bound, "true"], capture_output=True, check=False, timeout=600).returncode != 0:
        pytest.skip("the right to override permissions cannot be given up here")
    ran = subprocess.run(
        [*bound, sys.executable, "-c", SCAN, str(batch.folder.parent.parent)],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    hidden.chmod(0o755)
    assert ran.returncode == 0, ran.stderr
    report, trials, rows = json.loads(ran.stdout)
    assert 1 in trials, "the other batch is there"
    assert len(report["unreadable"]) == (2 if what == "a batch" else 1)
    assert any(word in report["unreadable"][0] for word in ("ermission denied", "may not be read"))
    assert rows == {"a trial": 6, "a result": 6, "a job": 5, "a batch": 1}[what]
    assert scan_all(batch.folder.parent.parent).unreadable == ()


@pytest.mark.parametrize("budget", ["nan", "inf", "-1"])
def test_a_budget_that_is_no_sum_is_refused(tbench, batch: Batch, budget: str) -> None:
    ran = tbench("analyze", batch.folder, "--model", "openai/gpt-4o", "--judge-budget", budget)
    assert (ran.code, budget in ran.err) == (2, True)
    assert not batch.analytics.exists()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b'{"id": "0", "task_na', "result.json is cut off: it ends in the middle"),
        (b"nope", "result.json is not JSON"),
        (b"", "result.json is empty"),
        (b"[]", "result.json is not a Harbor result: "),
    ],
)
def test_a_result_that_cannot_be_read_is_named_wherever_it_is_missed(
    tbench, batch: Batch, content: bytes, what: str
) -> None:
    folder = first(batch)
    config = json.loads((folder / "result.json").read_text())["config"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "result.json").write_bytes(content)
    place = f"runs/{folder.parent.name}/{folder.name}: {what}"
    for command in (["compare", batch.folder], ["errors", batch.folder]):
        ran = tbench(*command)
        assert ran.code == 0, ran.err
        assert place in " ".join(ran.out.split()), command
    assert f"tbench resume {batch.folder} runs it again" in " ".join(
        tbench("compare", batch.folder, "--details").out.split()
    )
    shown = tbench("show", folder.name, "--results", batch.folder.parent.parent).out
    assert f"unreadable: {what}" in shown
    assert "\n            result.json\n" in shown
    assert "tbench resume s/0 runs it again" in shown


def test_a_junit_file_without_a_place_is_refused_before_anything_runs(tbench, project) -> None:
    for command in ("run", "resume"):
        ran = tbench(command, "any.toml", "--junit", "nowhere/trials.xml")
        assert (ran.code, "name a file in an existing folder" in " ".join(ran.err.split())) == (2, True)
