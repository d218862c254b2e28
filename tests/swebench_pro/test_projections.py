"""Projections: what is in them, and that they come back as they were."""

import json
import shutil
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, override

import msgspec
import pytest

from support.results import make_plan, make_trial
from support.workflows import PATCH, Script, fatal, gives_up, helped, passes
from terminalbench.campaign import LiveReports
from terminalbench.cli.main import main
from terminalbench.experiments.batch import Batch
from terminalbench.swebench_pro.dag import ArtifactStatus, build
from terminalbench.swebench_pro.predictions import PatchVerdict, VerdictState, merge, write_submission
from terminalbench.swebench_pro.predictions import read_verdicts as read_verdicts
from terminalbench.swebench_pro.projections import history_of, project
from terminalbench.swebench_pro.rows import RunVerdict, read_results
from terminalbench.workflow.history import fold
from terminalbench.workflow.trace import trace_file


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Two arms on three instances: resolved, escalated and resolved, given up, fatal, an error, and one that never ran."""
    batch = Batch(tmp_path_factory.mktemp("projected") / "results" / "pro" / "1")
    batch.folder.mkdir(parents=True)
    make_plan(batch, ("s1_tdd", "singleshot"), ("one", "two", "three"))
    passes().write(make_trial(batch, "one__a", profile="s1_tdd", cost=0.05))
    helped().write(make_trial(batch, "two__a", profile="s1_tdd", second=1))
    gives_up().write(make_trial(batch, "three__a", profile="s1_tdd", reward=0.0, second=2), patch=None)
    fatal().write(make_trial(batch, "one__b", profile="singleshot", reward=0.0), patch="")
    make_trial(batch, "two__b", profile="singleshot", reward=None, error="AgentSetupTimeoutError", second=1)
    return batch


@pytest.fixture(scope="module")
def output(batch: Batch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that it is projected into."""
    output = tmp_path_factory.mktemp("output")
    project([batch], output)
    return output


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def index(output: Path, place: str) -> dict[str, Any]:
    """The graph of a run."""
    return json.loads((output / "artifact_dags" / place / "index.json").read_text())


def test_every_planned_run_is_one_row(output: Path) -> None:
    rows = {row.key: row for row in read_results(output / "results.jsonl").rows}
    assert {key[:2]: row.standing for key, row in rows.items()} == {
        ("one", "s1_tdd"): RunVerdict.RESOLVED,
        ("two", "s1_tdd"): RunVerdict.RESOLVED,
        ("three", "s1_tdd"): RunVerdict.GAVE_UP,
        ("one", "singleshot"): RunVerdict.GAVE_UP,
        ("two", "singleshot"): RunVerdict.ERROR,
        ("three", "singleshot"): RunVerdict.NOT_RUN,
    }
    good, bad = rows["one", "s1_tdd", 1], rows["three", "s1_tdd", 1]
    assert (good.patch_content, good.resolved, good.failed_step, good.retry_count) == (PATCH, True, None, 1)
    assert good.per_step_tokens == {"analysis": 110, "test": 220, "patch": 110}
    assert (good.total_tokens, good.cost_usd, good.wall_time_seconds) == (440, 0.05, 60.0)
    assert (bad.failed_step, bad.failed_guard, bad.failure, bad.retry_count) == ("patch", "answer", "rmax", 2)
    assert (bad.escalation_count, bad.per_step_tokens["patch"]) == (1, 440)
    assert rows["one", "singleshot", 1].failed_guard == "patch"
    error = rows["two", "singleshot", 1]
    assert (error.error, error.error_class, error.resolved, error.total_tokens) == ("why", "setup", None, None)


def test_rows_hold_the_fields_of_older_ones(output: Path) -> None:
    first = json.loads((output / "results.jsonl").read_text().splitlines()[0])
    older = {
        "instance_id", "arm", "patch_content", "total_tokens", "per_step_tokens", "wall_time_seconds", "init_time_seconds",
        "workflow_time_seconds", "error", "resolved", "failed_step", "failed_guard", "retry_count",
    }  # fmt: skip
    assert older <= first.keys()


def test_deleted_projections_come_back_as_they_were(batch: Batch, output: Path) -> None:
    before = tree(output)
    for name in ("traces", "artifact_dags", "predictions"):
        shutil.rmtree(output / name)
    (output / "results.jsonl").unlink()
    (batch.results_root / "index.db").unlink()
    project([batch], output)
    assert tree(output) == before


def test_what_a_run_no_longer_has_goes(batch: Batch, output: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(output, copy)
    (copy / "traces" / "mine.txt").write_text("kept")
    again = tmp_path / "results" / "pro" / "1"
    shutil.copytree(batch.folder, again)
    trial = next(again.glob("runs/*/one__b"))
    shutil.rmtree(trial / "workflow")
    project([Batch(again)], copy)
    assert not (copy / "traces/one/singleshot/trace.jsonl").exists()
    assert not (copy / "artifact_dags/one/singleshot/index.json").exists()
    assert (copy / "traces" / "mine.txt").exists()


def test_a_trace_is_the_trials_own(batch: Batch, output: Path) -> None:
    trial = next(batch.runs.glob("*/three__a"))
    assert (output / "traces/three/s1_tdd/trace.jsonl").read_bytes() == trace_file(trial).read_bytes()


def test_a_graph_has_retry_dependency_and_escalation_edges(output: Path) -> None:
    found = index(output, "three/s1_tdd")
    named = {}
    for node, entry in found["artifacts"].items():
        made = json.loads((output / "artifact_dags/three/s1_tdd" / entry["path"]).read_text())
        named[node] = f"{made['action_pair_id']} {made['metadata']['cycle']}.{made['attempt_number']}"
    edges = {(edge["kind"], named[edge["source"]], named[edge["target"]]) for edge in found["edges"]}
    assert edges == {
        ("dependency", "analysis 1.1", "patch 1.1"),
        ("dependency", "analysis 1.1", "patch 1.2"),
        ("retry", "patch 1.1", "patch 1.2"),
        ("escalation", "patch 1.2", "analysis 2.1"),
        ("escalation", "patch 1.2", "patch 2.1"),
        ("dependency", "analysis 2.1", "patch 2.1"),
        ("retry", "patch 2.1", "patch 2.2"),
    }
    assert [found["artifacts"][node]["status"] for node in found["action_pairs"]["analysis"]] == [
        "superseded",
        "accepted",
    ]


def test_an_object_has_the_fields_of_atomicguards(output: Path) -> None:
    folder = output / "artifact_dags/three/s1_tdd"
    found = index(output, "three/s1_tdd")
    second = json.loads((folder / found["artifacts"][found["action_pairs"]["patch"][1]]["path"]).read_text())
    assert second["previous_attempt_id"] == found["action_pairs"]["patch"][0]
    assert second["guard_result"]["guard_name"] == "test_green"
    assert second["context"]["feedback_history"][0]["feedback"].startswith("FAILED test_calc.py")
    assert second["context"]["dependency_artifacts"] == {"analysis": found["action_pairs"]["analysis"][0]}
    assert second["metadata"]["total_tokens"] == 110
    last = json.loads((folder / found["artifacts"][found["action_pairs"]["patch"][3]]["path"]).read_text())
    assert last["metadata"]["generator_error"] == "no JSON"


def test_a_large_patch_stands_in_the_predictions_alone(tmp_path: Path) -> None:
    """Rows point to it, a submission has it, and reading the rows back keeps what they came to."""
    batch = Batch(tmp_path / "batches" / "pro" / "0")
    batch.folder.mkdir(parents=True)
    make_plan(batch, ("s1_tdd",), ("one", "two"))
    large = PATCH + "+0123456789abcde\n" * 650_000
    run = Script().start("patch").attempt("patch", content=large).passed("patch")
    run.write(make_trial(batch, "one__a", profile="s1_tdd"), patch=large)
    passes().write(make_trial(batch, "two__a", profile="s1_tdd", second=1))
    project([batch], tmp_path / "out")
    rows = {row.instance_id: row for row in read_results(tmp_path / "out" / "results.jsonl").rows}
    assert (rows["one"].patch_content, rows["one"].patch_file) == ("", "predictions/s1_tdd.json")
    assert (rows["two"].patch_content, rows["two"].patch_file) == (PATCH, None)
    held = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.stat().st_size > len(large) // 2]
    assert [path.name for path in held] == ["s1_tdd.json"]
    (node,) = (json.loads(path.read_text()) for path in (tmp_path / "out").glob("artifact_dags/one/*/objects/*/*.json"))
    assert (len(node["content"]), node["metadata"]["content_letters"]) == (1_000_000, len(large))
    untested = msgspec.structs.replace(rows["one"], resolved=None, outcome=None)
    assert untested.standing is RunVerdict.PENDING
    assert [arm.runs for arm in write_submission(tmp_path / "out", tmp_path / "official")] == [2]
    assert json.loads((tmp_path / "official/s1_tdd/one/one.pred").read_text())["model_patch"] == large


class Seen(HTMLParser):
    """The tags and addresses of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]


def test_a_graph_is_shown_by_a_page_that_needs_nothing_else(output: Path) -> None:
    page = Seen()
    text = (output / "artifact_dags/three/s1_tdd/dag.html").read_text()
    page.feed(text)
    assert page.tags.count("details") == 6
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert all(address.startswith("#n") for address in page.addresses)
    assert text.count('class="edge escalation"') == 2


def test_predictions_are_in_the_official_form(output: Path) -> None:
    found = json.loads((output / "predictions/s1_tdd.json").read_text())
    assert found[0] == {"instance_id": "one", "patch": PATCH, "prefix": "terminalbench-s1_tdd"}
    assert [entry["instance_id"] for entry in found] == ["one", "two", "three"]
    other = json.loads((output / "predictions/singleshot.json").read_text())
    assert [(entry["instance_id"], entry["patch"]) for entry in other] == [("one", "")]


def test_helped_is_known_of_every_escalation(output: Path) -> None:
    rows = {row.key: row for row in read_results(output / "results.jsonl").rows}
    one = history_of(output / "traces", rows["two", "s1_tdd", 1])
    other = history_of(output / "traces", rows["three", "s1_tdd", 1])
    assert one is not None
    assert other is not None
    assert [escalation.helped for escalation in one.escalations] == [True]
    assert [(e.helped, e.guard, e.invalidated) for e in other.escalations] == [
        (False, "test_green", ("analysis", "patch"))
    ]


def test_the_command_projects_an_output_folder_or_a_batch(
    batch: Batch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(batch.folder, folder / "batches" / "pro" / "1")
    assert main(["swebench-pro", "project", str(folder)]) == 0
    assert "6 runs, 4 traces" in capsys.readouterr().out
    assert main(["swebench-pro", "project", str(batch.folder), "--output-dir", str(tmp_path / "other")]) == 0
    assert tree(tmp_path / "other") == {
        name: data for name, data in tree(folder).items() if not name.startswith("batches/")
    }
    assert main(["swebench-pro", "project", str(batch.folder)]) == 2


def test_an_artifact_that_the_run_was_cut_off_at_has_no_verdict() -> None:
    cut_off = Script().start("analysis").attempt("analysis").passed("analysis").start("patch").attempt("patch")
    graph = build("run", fold(cut_off.events), cut_off.artifacts)
    assert [node.status for node in graph.nodes] == [ArtifactStatus.ACCEPTED, ArtifactStatus.PENDING]


def test_projections_grow_as_trials_end_and_are_those_of_the_end(batch: Batch, output: Path, tmp_path: Path) -> None:
    """A run that is killed has them; what was written is not read again."""
    copy, out = Batch(tmp_path / "results" / "pro" / "1"), tmp_path / "out"
    shutil.copytree(batch.folder, copy.folder)
    later = next(copy.runs.glob("*/three__a"))
    held = later.rename(tmp_path / "held")
    live = LiveReports(partial(project, [copy], out, {}), 2.0)
    live.tick()
    assert not out.exists(), "no trial has ended"
    live.due = True
    live.tick()
    first = {row.key: row for row in read_results(out / "results.jsonl").rows}
    assert (first["one", "s1_tdd", 1].resolved, first["three", "s1_tdd", 1].standing) == (True, RunVerdict.NOT_RUN)
    trace = out / "traces/one/s1_tdd/trace.jsonl"
    assert trace.read_bytes() == (output / "traces/one/s1_tdd/trace.jsonl").read_bytes()
    trace.write_text("as it was")
    held.rename(later)
    live.due, live._next = True, 0.0
    live.tick()
    assert trace.read_text() == "as it was", "a trial that was written is not read again"
    project([copy], out)
    assert tree(out) == tree(output)


def test_shards_and_their_verdicts_are_merged_into_what_one_run_would_have(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {}
    for name, tasks in (("b", ("two",)), ("a", ("one", "three"))):
        shard = Batch(tmp_path / name / "batches" / "swe-bench-pro" / "0")
        shard.folder.mkdir(parents=True)
        make_plan(shard, ("s1_tdd", "singleshot"), tasks)
        for task in tasks:
            passes().write(make_trial(shard, f"{task}__a", profile="s1_tdd"))
            make_trial(shard, f"{task}__b", profile="singleshot", reward=0.0, second=1)
        place = tmp_path / name / "predictions" / "evaluation" / "resolved.json"
        merge(place, [PatchVerdict(instance_id=tasks[0], arm="s1_tdd", state=VerdictState.RESOLVED, patch="1")])
        parts[name] = tmp_path / name
    whole = tmp_path / "whole"
    command = ["swebench-pro", "project", str(parts["b"]), str(parts["a"]), "--output-dir", str(whole)]
    assert main([*command, "--submission", str(tmp_path / "official")]) == 0
    rows = read_results(whole / "results.jsonl").rows
    assert [(row.arm, row.instance_id) for row in rows] == [
        (arm, task) for arm in ("s1_tdd", "singleshot") for task in ("one", "three", "two")
    ]
    verdicts = read_verdicts(whole / "predictions" / "evaluation" / "resolved.json")
    assert sorted(verdicts) == [("one", "s1_tdd"), ("two", "s1_tdd")]
    arm = tmp_path / "official" / "s1_tdd"
    assert json.loads((arm / "eval_results.json").read_text()) == dict.fromkeys(("one", "three", "two"), True)
    assert json.loads((arm / "one" / "one.pred").read_text())["model_patch"] == PATCH
    assert "3 of 3 runs with a verdict" in capsys.readouterr().out
