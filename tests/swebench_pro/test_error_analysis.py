"""The error analysis: what it says, and that no file of results makes it fail."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import REPO
from support.workflows import Script, fatal, gives_up, helped
from terminalbench.cli.main import main
from terminalbench.errors import UserError
from terminalbench.swebench_pro.error_analysis import analyze, document, error_summary
from terminalbench.swebench_pro.error_report import report, summary, write
from terminalbench.swebench_pro.rows import ResultRow, RunVerdict, parse_row, read_results

NOW = datetime(2026, 1, 23, 16, 40, tzinfo=UTC)


def results(folder: Path, rows: list[dict[str, Any]], traces: dict[str, Script] | None = None, tail: str = "") -> Path:
    """A results file with traces beside it."""
    path = folder / "results.jsonl"
    path.write_text("".join(json.dumps({"patch_content": "", **row}) + "\n" for row in rows) + tail)
    for place, script in (traces or {}).items():
        trace = folder / "traces" / place / "trace.jsonl"
        trace.parent.mkdir(parents=True)
        trace.write_bytes(script.data())
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """One run of each standing, in two arms."""
    rows = [
        {"instance_id": "i1", "arm": "tdd", "resolved": True, "retry_count": 2, "cost_usd": 0.5, "total_tokens": 900, "model": "m"},
        {"instance_id": "i2", "arm": "tdd", "resolved": False, "failed_step": "patch", "failed_guard": "answer", "failure": "rmax", "retry_count": 2, "cost_usd": 0.25},
        {"instance_id": "i3", "arm": "tdd", "resolved": False, "failed_step": "patch", "failed_guard": None, "failure": "fatal", "retry_count": 0},
        {"instance_id": "i1", "arm": "one", "error": "provider is down", "error_class": "provider", "outcome": "errored"},
        {"instance_id": "i2", "arm": "one", "resolved": False, "patch_content": "a\nb\n", "retry_count": 0},
        {"instance_id": "i3", "arm": "one", "outcome": "not_run"},
        {"instance_id": "i4", "arm": "one", "patch_content": "a\n"},
    ]  # fmt: skip
    return results(tmp_path, rows, {"i1/tdd": helped(), "i2/tdd": gives_up(), "i3/tdd": fatal()})


def test_the_report_has_each_part(mixed: Path, golden: Any) -> None:
    text = report(analyze(mixed), NOW).replace(str(mixed), "results.jsonl")
    golden(REPO / "tests" / "golden" / "swebench_pro" / "error_analysis.md", text)


def test_the_document_says_the_same(mixed: Path) -> None:
    found = document(analyze(mixed), NOW)
    assert found["arms"]["tdd"]["resolved"] == 1
    assert found["arms"]["tdd"]["gave_up"] == 2
    assert found["failed_guards"] == {"tdd": {"answer": 1, "patch": 1}}
    assert found["escalations"]["stagnant_guards"] == {
        "lint": {"times": 1, "helped": 1, "unknown": 0},
        "test_green": {"times": 1, "helped": 0, "unknown": 0},
    }
    assert found["escalations"]["targets"] == {"analysis": {"times": 2, "helped": 1, "unknown": 0}}
    assert found["escalations"]["runs_resolved"] == 1
    failure = found["failures"][0]
    assert [one["final"] for one in failure["retries"]] == [False, False, False, True]
    assert failure["retries"][0]["error_summary"] == "AssertionError: 3 != 4"
    assert (found["errors"][0]["error_class"], found["unresolved"][0]["instance_id"]) == ("provider", "i2")


def test_without_traces_nothing_of_them_is_read(mixed: Path) -> None:
    for path in (mixed.parent / "traces").rglob("*.jsonl"):
        path.chmod(0)
    found = document(analyze(mixed, traces=False), NOW)
    assert found["escalations"] is None
    assert found["failures"][0]["retries"] == []
    assert found["failures"][0]["retry_count"] == 2


def test_both_files_are_written_and_the_latest_named(mixed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = write(analyze(mixed), out, NOW)
    assert first.report.name == "final_error_analysis_20260123_164000.md"
    second = write(analyze(mixed), out, NOW.replace(minute=41))
    assert (out / "final_error_analysis_latest.md").resolve() == second.report.resolve()
    assert (out / "final_errors_latest.json").resolve() == second.errors.resolve()
    assert json.loads(first.errors.read_text())["rows"] == 7


def test_older_rows_and_traces_are_read(tmp_path: Path) -> None:
    rows = [
        {"instance_id": "i1", "arm": "04_s1_tdd", "workflow_status": "failed", "total_tokens": 0, "error": None},
        {
            "instance_id": "i2",
            "arm": "04_s1_tdd",
            "workflow_status": "success",
            "total_tokens": 5,
            "patch_content": "x",
        },
    ]
    path = results(tmp_path, rows)
    event: dict[str, Any] = {
        "event_type": "ESCALATE",
        "action_pair_id": "ap_patch",
        "workflow_id": "w",
        "guard_name": "TestGreenGuard",
        "attempt": 1,
    }
    event |= {
        "escalation": {"targets": ["ap_analysis"], "invalidated": ["ap_analysis"], "stagnant_guard": "TestGreenGuard"}
    }
    events = tmp_path / "traces/i1/04_s1_tdd/events"
    events.mkdir(parents=True)
    (events / "w.jsonl").write_text(json.dumps(event) + "\nnot json\n")
    found = analyze(path)
    assert [run.row.instance_id for run in found.runs[RunVerdict.GAVE_UP]] == ["i1"]
    assert found.total.standings[RunVerdict.PENDING] == 1
    assert found.escalations is not None
    assert found.escalations.by_guard["TestGreenGuard"].times == 1
    assert found.bad_trace_lines == 1


def test_torn_and_repeated_lines_are_counted(tmp_path: Path) -> None:
    row = {"instance_id": "i", "arm": "a", "resolved": False}
    found = read_results(
        results(tmp_path, [row, {**row, "resolved": True}], tail='{"instance_id": "j", "arm": "a", "pat')
    )
    assert [(one.instance_id, one.resolved) for one in found.rows] == [("i", True)]
    assert (found.bad_lines, found.repeated) == (1, 1)


def test_a_missing_file_is_named_with_the_way_to_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such results file.*swebench-pro project"):
        read_results(tmp_path / "results.jsonl")


@pytest.mark.parametrize(
    ("feedback", "said"),
    [
        ("Patch validation failed:\n- Search string not found in a.py", "- Search string not found in a.py"),
        ("lots\nof\nE   AssertionError: 1 != 2\nmore", "AssertionError: 1 != 2"),
        ("FAILED tests/test_a.py::test_b\nshort", "FAILED tests/test_a.py::test_b"),
        ("", ""),
        ("x" * 100_000, "x" * 119 + "…"),
    ],
)
def test_one_line_says_most(feedback: str, said: str) -> None:
    assert error_summary(feedback) == said


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(ResultRow.__struct_fields__)
rows = st.fixed_dictionaries(
    {"instance_id": st.sampled_from(["i", "../x", "", "a|b\n"]), "arm": st.sampled_from(["a", "b", "."])}
)
lines = st.one_of(
    st.tuples(rows, st.dictionaries(fields, json_values, max_size=6)).map(
        lambda pair: json.dumps({**pair[1], **pair[0]}).encode()
    ),
    st.binary(max_size=30),
    json_values.map(lambda value: json.dumps(value).encode()),
)


@given(st.lists(lines, max_size=8), st.lists(st.binary(max_size=60) | st.just(gives_up().data()), max_size=2))
def test_no_file_of_results_makes_it_fail(tmp_path: Path, content: list[bytes], traces: list[bytes]) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"\n".join(content))
    for place, data in zip(("i/a", "i/b"), traces, strict=False):
        trace = tmp_path / "traces" / place / "trace.jsonl"
        trace.parent.mkdir(parents=True, exist_ok=True)
        trace.write_bytes(data)
    found = analyze(path)
    written = write(found, tmp_path / "out", NOW)
    assert len(found.results.rows) == sum(found.total.standings.values())
    assert len(found.results.rows) + found.results.repeated + found.results.bad_lines == sum(
        bool(line.strip()) for line in b"\n".join(content).split(b"\n")
    )
    json.loads(written.errors.read_bytes())


@given(st.dictionaries(fields, json_values, max_size=10))
def test_a_field_of_another_kind_is_unknown(values: dict[str, Any]) -> None:
    line = (
        json.dumps({**values, "instance_id": "i", "arm": "a"}, allow_nan=False, default=str).encode()
        if _finite(values)
        else b"{}"
    )
    row = parse_row(line)
    if row is not None:
        assert row.instance_id == "i"
        assert row.standing in RunVerdict


def _finite(values: dict[str, Any]) -> bool:
    try:
        json.dumps(values, allow_nan=False)
    except ValueError:
        return False
    return True


def test_the_command_writes_both_and_says_what_it_found(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["swebench-pro", "analyze-errors", "--results", str(mixed), "--no-traces"]) == 0
    said = capsys.readouterr().out
    assert "given up at: answer 1" in said
    assert max(map(len, said.split("\n\n")[0].splitlines())) <= 80
    assert "Traces were not read." in (mixed.parent / "final_error_analysis_latest.md").read_text()
    assert main(["swebench-pro", "analyze-errors", "--results", str(mixed.parent / "none.jsonl")]) == 2


def test_the_summary_fits_a_terminal_and_an_oracle_is_badged_wherever_it_is_named(tmp_path: Path) -> None:
    arms = ("s1_tdd_review_backtrack", "s1_tdd_rule_backtrack_with_a_long_name", "seer")
    common = {"resolved": False, "failed_step": "patch", "failed_guard": "patch", "patch_content": ""}
    rows = [{"instance_id": "i", "arm": arm, "oracle": arm == "seer", **common} for arm in arms]
    rows += [{"instance_id": "j", "arm": arms[0], "outcome": "not_run"}]
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = analyze(file)
    text = "\n".join(summary(found))
    assert max(map(len, text.splitlines())) <= 80
    assert "not run" in text
    assert "pending" not in text, "there is none"
    told = [line for line in report(found, NOW).splitlines() if "seer" in line]
    assert len(told) >= 4
    assert all("seer (oracle)" in line for line in told), told
