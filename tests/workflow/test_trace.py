"""The trace on disk: append-only, numbered, whole lines; artifacts by their content."""

from pathlib import Path

import pytest

from terminalbench.json_files import read_jsonl
from terminalbench.workflow.attempt import Ports
from terminalbench.workflow.engine import Engine
from terminalbench.workflow.generators import Edit, Patch, answer_of, content_of
from terminalbench.workflow.load import load
from terminalbench.workflow.model import Artifact, Kind
from terminalbench.workflow.trace import (
    LARGE,
    TraceEvent,
    TraceEventKind,
    TraceFolder,
    WorkflowEnding,
    object_file,
    patch_file,
    read_artifact,
    read_trace,
    trace_file,
)
from workflow.scripted_workflow import Bench


def run_in(trial: Path) -> Bench:
    import asyncio

    bench = Bench(load("s1_tdd"))
    ports = Ports(bench.model, bench.files, TraceFolder(trial), bench.verdicts.guard)
    asyncio.run(Engine(bench.workflow, bench.given, ports).run())
    return bench


def test_a_run_leaves_its_events_and_every_artifact(tmp_path: Path) -> None:
    run_in(tmp_path)
    trace = read_trace(tmp_path)
    assert not trace.bad
    assert [event.number for event in trace.records] == list(range(1, len(trace.records) + 1))
    assert trace.records[0].kind is TraceEventKind.RUN_START
    assert trace.records[0].config == load("s1_tdd").digest
    assert trace.records[-1].ending is WorkflowEnding.DONE
    made = [event.artifact for event in trace.records if event.kind is TraceEventKind.ATTEMPT]
    artifacts = [read_artifact(tmp_path, artifact or "") for artifact in made]
    assert [artifact.kind for artifact in artifacts if artifact] == [Kind.ANALYSIS, Kind.TEST, Kind.PATCH]
    assert [artifact.id == Artifact.name_of(artifact.kind, artifact.content) for artifact in artifacts if artifact] == [
        True
    ] * 3


def test_each_line_is_on_disk_when_it_is_written(tmp_path: Path) -> None:
    sink = TraceFolder(tmp_path)
    for number in (1, 2, 3):
        sink.write(TraceEventKind.STEP_START, step="a", cycle=number)
        assert len(read_jsonl(trace_file(tmp_path), TraceEvent).records) == number


def test_a_torn_last_line_is_left_out_and_a_further_run_counts_on(tmp_path: Path) -> None:
    run_in(tmp_path)
    before = len(read_trace(tmp_path).records)
    with trace_file(tmp_path).open("ab") as stream:
        stream.write(b'{"number": 99, "at": "2026')
    assert len(read_trace(tmp_path).records) == before
    run_in(tmp_path)
    trace = read_trace(tmp_path)
    assert len(trace.bad) == 1
    assert [event.number for event in trace.records] == list(range(1, 2 * before + 1))


def test_an_artifact_that_is_there_stays_as_it_was(tmp_path: Path) -> None:
    sink = TraceFolder(tmp_path)
    first = Artifact(
        id=Artifact.name_of(Kind.PATCH, "{}"), kind=Kind.PATCH, step="patch", cycle=1, attempt=1, content="{}"
    )
    sink.keep(first)
    sink.keep(Artifact(id=first.id, kind=Kind.PATCH, step="patch", cycle=2, attempt=3, content="{}"))
    assert read_artifact(tmp_path, first.id) == first
    assert read_artifact(tmp_path, "0" * 64) is None
    assert len(list(object_file(tmp_path, first.id).parent.iterdir())) == 1


@pytest.mark.parametrize("letters", [LARGE, LARGE // 2])
def test_a_large_patch_that_was_applied_is_kept_once(tmp_path: Path, letters: int) -> None:
    """Of a large one the artifact has the beginnings, the reason of the model and the length; a smaller one is whole."""
    edits = (
        Edit(action="create", path="big.txt", content="0123456789" * (letters // 10)),
        *(Edit(action="modify", path="a.py", search=f"line {n}", replace="new") for n in range(200)),
    )
    answer = Patch(edits=edits, reasoning="because")
    content = content_of(answer)
    made = Artifact(id=Artifact.name_of(Kind.PATCH, content), kind=Kind.PATCH, step="patch", cycle=1, attempt=1,
                    content=content)  # fmt: skip
    sink = TraceFolder(tmp_path)
    sink.keep(made)
    sink.keep_applied(made, content_of(answer.begun()), b"+" * letters)
    assert patch_file(tmp_path).stat().st_size == letters
    kept = read_artifact(tmp_path, made.id)
    assert kept is not None
    if letters < LARGE:
        assert kept == made
        return
    assert object_file(tmp_path, made.id).stat().st_size < 20_000
    assert (kept.letters, kept.id, kept.step) == (len(content), made.id, "patch")
    begun = answer_of(kept)
    assert (begun.reasoning, len(begun.edits)) == ("because", 100)
    assert (begun.edits[0].path, begun.edits[0].content) == ("big.txt", "0123456789" * 100)


def test_a_trial_without_a_workflow_has_no_trace(tmp_path: Path) -> None:
    assert read_trace(tmp_path).records == []
