"""Files that hold anything never end an analysis."""

import copy
import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from results_kit import result

from support.results import STAMP, make_plan, make_trial
from support.trajectories import bash, call, edit, put, trajectory
from terminalbench.analytics.findings.analyzers import load_analyzers, run_analyzer
from terminalbench.analytics.findings.trial_files import TrialFiles
from terminalbench.analytics.run import AnalysisRequest, run_analysis
from terminalbench.experiments.batch import allocate
from terminalbench.harbor.read.results import read_trial
from terminalbench.json_files import encode_line, read_jsonl
from terminalbench.records.trial import Finding

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn, document: dict[str, Any]) -> bytes:
    """The document with a few values replaced by anything, or cut off somewhere."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        place: Any = changed
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.integers(0, 4)):
                place = place[key]
                continue
            place[key] = draw(JSON)
            break
    data = json.dumps(changed).encode()
    return data if draw(st.integers(0, 9)) else data[: draw(st.integers(0, len(data)))]


RESULT = result(trial_name="a__1", task_id={"path": "/x/a"}, source="d", verifier_result={"rewards": {"reward": 0.0}})
STORY = trajectory(
    call("Read", {"file_path": "a.py"}, failed=False),
    [edit("a.py"), bash("pytest | tail", "== 1 failed in 1s ==", failed=True)],
    call("mcp__x__y", {"q": [1, {"a": None}]}),
    final_metrics={"total_prompt_tokens": 3, "total_cost_usd": 0.1},
    subagent_trajectories=[trajectory(bash("ls"))],
)
CTRF = {"results": {"summary": {"tests": 1}, "tests": [{"name": "t", "status": "failed"}]}}


@given(mutated(RESULT), mutated(STORY), mutated(CTRF))
def test_the_analyzers_bear_anything(tmp_path: Path, document: bytes, story: bytes, ctrf: bytes) -> None:
    trial = fuzzed_trial(tmp_path / "job" / "a__1", document, story, ctrf)
    reading = read_trial(trial)
    files = TrialFiles("job/a__1", trial, tmp_path, reading.trial, reading.usage, reading.reason)
    for loaded in load_analyzers():
        found = run_analyzer(loaded, files, files.story.trajectory)
        assert [f.reason for f in found if f.name == "analyzer_error"] == []
        assert all(encode_line(finding) for finding in found)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(mutated(RESULT), mutated(STORY), mutated(CTRF))
def test_fuzzed_files_never_end_an_analysis(
    tmp_path_factory: pytest.TempPathFactory, document: bytes, story: bytes, ctrf: bytes
) -> None:
    found = allocate(tmp_path_factory.mktemp("fuzz"), "s")
    make_plan(found, ("p",), "ab")
    put(
        make_trial(found, "b__1"),
        trajectory(bash("grep foo a.py", "x"), edit("a.py"), bash("pytest", "== 3 passed in 1s ==")),
    )
    fuzzed_trial(found.runs / f"{STAMP}__p" / "a__1", document, story, ctrf)
    done = run_analysis(AnalysisRequest((found,)))
    assert not read_jsonl(done.output / "findings.jsonl", Finding).bad
    rows = list(csv.DictReader((done.output / "metrics_detail.csv").read_text().splitlines()))
    assert [row["task"] for row in rows] == ["a", "b"]
    assert rows[1]["tool_calls"] == "3"
    assert rows[0]["trial"] or any("superseded" in line for line in done.notes), "a trial of no cell is mentioned"


def fuzzed_trial(folder: Path, document: bytes, story: bytes, ctrf: bytes) -> Path:
    (folder / "verifier").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"task": {"path": "/x/a", "source": "d"}}')
    (folder / "result.json").write_bytes(document)
    (folder / "verifier" / "ctrf.json").write_bytes(ctrf)
    put(folder, story)
    return folder
