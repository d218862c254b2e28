"""`tbench episodes`, and that the page about the store says what is so."""

import csv
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from support.nights import make_night
from terminalbench.overnight.episodes import BASELINE_RULE, EpisodeStore
from terminalbench.overnight.iteration_files import project_iteration
from terminalbench.records.episode import Episode, EpisodeStatus, EpisodeSummary

PAGE = Path(__file__).parents[2] / "docs/tbench/episode-store.md"
SMALL = {"p": {"a": "+", "b": "x"}}


@pytest.fixture
def store(project) -> EpisodeStore:
    """Two nights of one suite, and one of a larger suite between them."""
    (project.root / "pyproject.toml").touch()
    made = EpisodeStore.of_project(project.root)
    nights = [
        ("tbrun-1", [SMALL, {"p": {"a": "+", "b": "+"}}], "2026-01-23"),
        ("large", [{"p": {"a": "+", "b": "+", "c": "E"}}], "2026-01-23"),
        ("tbrun-2", [SMALL], "2026-01-24"),
    ]
    for run_id, rounds, day in nights:
        night = make_night(
            project.root / run_id, rounds, run_id=run_id, project=project.root, created_at=f"{day}T16:00:00Z"
        )
        for file in night.folder.results_root.glob("*/*/runs/*/*/result.json"):
            file.write_text(file.read_text().replace("2026-01-23T", f"{day}T"))
        for number in range(1, len(rounds) + 1):
            for episode in project_iteration(night.folder, night.config, number).episodes:
                made.record(episode)
    return made


def test_the_list_is_newest_first_and_fits(store: EpisodeStore, tbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = tbench("episodes", "list")
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 80
    found = [line.split()[0] for line in ran.out.splitlines() if line[0] != " "]
    assert found == ["episode", "tbrun-2-001", "tbrun-1-002", "tbrun-1-001", "large-001"]
    told = json.loads(tbench("episodes", "list", "--status", "partial", "--json").out)
    assert [one["id"] for one in told] == ["large-001"]
    assert (told[0]["summary"]["passRate"], told[0]["summary"]["coverage"]) == (1.0, pytest.approx(2 / 3))
    assert tbench("episodes", "list", "--since", "2026-01-24").out.count("tbrun") == 1
    assert "no episodes" in tbench("episodes", "list", "--run", "none").out
    assert tbench("episodes", "list", "--since", "soon").code == 2


def test_one_episode_with_its_tasks(store: EpisodeStore, tbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = tbench("episodes", "show", "tbrun-1-001").out
    assert "success: 2 of 2 trials measured" in out
    assert re.search(r"^a +\(batches/night/1/runs/\S+\)\n +1/1$|^a +1/1 +batches/night/1/runs/", out, re.MULTILINE)
    assert json.loads(tbench("episodes", "show", "tbrun-1-001", "--json").out)["results"]["passed"] == 1
    missing = tbench("episodes", "show", "tbrun-9-001")
    assert (missing.code, "there is no episode" in missing.err) == (2, True)


def test_a_baseline_is_of_the_same_tasks_or_not_at_all(store: EpisodeStore, tbench) -> None:
    ran = tbench("episodes", "baseline", "tbrun-2-001")
    assert ran.code == 0, ran.out + ran.err
    assert "not different from run tbrun-1 (2 iterations, 75.0 %) on the same tasks" in ran.out
    assert "baseline: tbrun-1-002" in ran.out
    alone = tbench("episodes", "baseline", "large-001")
    assert (alone.code, BASELINE_RULE in alone.out) == (3, True)
    assert json.loads(tbench("episodes", "baseline", "tbrun-1-001", "--json").out)["baseline"] is None


def test_an_export_has_every_field(store: EpisodeStore, tbench, tmp_path: Path) -> None:
    lines = tbench("episodes", "export").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["tbrun-2-001", "tbrun-1-002", "tbrun-1-001", "large-001"]
    assert tbench("episodes", "export", "--format", "csv", "-o", tmp_path / "e.csv", "--run", "large").code == 0
    (row,) = csv.DictReader(io.StringIO((tmp_path / "e.csv").read_text()))
    assert (row["summary.errored"], row["summary.passRate"], row["cost.usd"], row["status"]) == (
        "1",
        "1.0",
        "",
        "partial",
    )
    assert {"runId", "taskDigest", "codeDigest", "simulated", "cost.unknownTrials"} <= row.keys()


def test_lines_that_cannot_be_read_are_named(store: EpisodeStore, tbench) -> None:
    with store.file.open("ab") as file:
        file.write(b"{half\n")
    ran = tbench("episodes", "list", "--json")
    assert (ran.code, len(json.loads(ran.out))) == (0, 4)
    assert "episodes.jsonl, line 5 cannot be read" in ran.err


def test_the_page_names_every_field_and_the_rules() -> None:
    text = PAGE.read_text()
    names = set(re.findall(r"`(\w+)`", text))
    for kind in (Episode, EpisodeSummary):
        assert set(kind.__struct_encode_fields__) <= names
    assert {status.value for status in EpisodeStatus} <= names
    assert BASELINE_RULE in " ".join(text.split())


def test_its_examples_run(store: EpisodeStore, tbench, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text()
    commands = re.findall(r"^\$ tbench (.+)$", text, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        ran = tbench(*shlex.split(command))
        assert ran.code == 0, command + ran.out + ran.err
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(program, {})
    assert capsys.readouterr().out.startswith("tbrun-2-001 0.5 1.0\nEpisode(id='tbrun-1-002'")
