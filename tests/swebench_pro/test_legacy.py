"""Results of AtomicGuard: rows that call failures a success, tokens of accepted artifacts only, graphs of several runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from terminalbench.cli.main import main
from terminalbench.errors import UserError
from terminalbench.swebench_pro.legacy import read_legacy
from terminalbench.swebench_pro.rows import RunVerdict, read_results


def artifact(folder: Path, name: str, step: str, second: int, *, ok: bool = True, **more: Any) -> None:
    """One artifact as AtomicGuard writes it."""
    guard = {
        "passed": ok,
        "feedback": "" if ok else "Search string not found in a.py",
        "fatal": False,
        "guard_name": None if ok else "PatchGuard",
    }
    document = {
        "artifact_id": name, "workflow_id": more.pop("run", "w2"), "content": f'{{"patch": "{name}"}}', "previous_attempt_id": None,
        "action_pair_id": step, "created_at": f"2026-02-03T06:54:{second:02}+00:00", "attempt_number": 1,
        "status": "accepted" if ok else "rejected", "guard_result": {**guard, "sub_results": []},
        "context": {"dependency_artifacts": more.pop("uses", {}), "feedback_history": []},
        "metadata": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}, **more,
    }  # fmt: skip
    path = folder / "objects" / name[:2] / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    (folder / "index.json").write_text("{}")


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Two runs: one that says success and gave up after an escalation, one that passed; a torn line, a broken object."""
    folder = tmp_path / "older"
    bad, good = folder / "artifact_dags/i1/04_s1_tdd", folder / "artifact_dags/i1/03_s1_direct"
    artifact(bad, "aa-0", "ap_analysis", 0, run="w1")
    artifact(bad, "aa-1", "ap_analysis", 1)
    artifact(bad, "bb-1", "ap_gen_fix", 2, ok=False, uses={"ap_analysis": "aa-1"})
    artifact(bad, "bb-2", "ap_gen_fix", 3, ok=False, previous_attempt_id="bb-1")
    artifact(bad, "aa-2", "ap_analysis", 5)
    artifact(
        bad,
        "bb-3",
        "ap_gen_fix",
        6,
        ok=False,
        metadata={"generator_error": "no JSON", "generator_error_kind": "validation"},
    )
    artifact(good, "cc-1", "ap_analysis", 1)
    artifact(good, "dd-1", "ap_patch", 2, uses={"ap_analysis": "cc-1"})
    (good / "objects" / "dd" / "broken.json").write_text("{")
    told: dict[str, Any] = {
        "event_type": "ESCALATE",
        "action_pair_id": "ap_gen_fix",
        "created_at": "2026-02-03T06:54:04+00:00",
        "guard_name": None,
    }
    told |= {"escalation": {"targets": ["ap_analysis"], "invalidated": ["ap_analysis"], "stagnant_guard": "PatchGuard"}}
    events = folder / "traces/i1/04_s1_tdd/events/w2.jsonl"
    events.parent.mkdir(parents=True)
    events.write_text(json.dumps(told) + "\n")
    rows = [
        {
            "instance_id": "i1",
            "arm": "04_s1_tdd",
            "workflow_status": "success",
            "patch_content": "",
            "total_tokens": 220,
            "per_step_tokens": {},
        },
        {
            "instance_id": "i1",
            "arm": "03_s1_direct",
            "workflow_status": "success",
            "patch_content": "--- a\n",
            "total_tokens": 220,
        },
    ]
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"instance')
    return folder


def test_failures_are_failures_and_all_tokens_count(older: Path) -> None:
    found = read_legacy(older)
    bad, good = (source.row for source in found.sources)
    assert (bad.standing, bad.failed_step, bad.failed_guard) == (RunVerdict.GAVE_UP, "ap_gen_fix", "answer")
    assert (good.standing, good.failed_step, good.total_tokens) == (RunVerdict.PENDING, None, 220)
    assert (bad.total_tokens, bad.retry_count, bad.escalation_count) == (440, 1, 1)
    assert (bad.failed_attempts, good.failed_attempts, good.retry_count) == (3, 0, 0)
    assert bad.per_step_tokens["ap_analysis"] == 220, "the artifacts of an earlier run are not counted"
    assert (found.failed_as_success, found.bad_lines, found.bad_objects) == (1, 1, 1)
    assert (found.tokens_in_rows, found.tokens_in_artifacts) == (440, 660)


def test_retries_are_those_that_the_study_counted(tmp_path: Path) -> None:
    """Six runs: those that used up four attempts at a step have four, those that passed none, whatever they had tried."""
    rows = []
    for number, failed in enumerate((4, 0, 0, 4, 4, 0)):
        instance, arm = f"i{number // 3}", ("02_singleshot", "03_s1_direct", "04_s1_tdd")[number % 3]
        folder = tmp_path / "artifact_dags" / instance / arm
        artifact(folder, "aa-0", "ap_analysis", 0)
        if number == 5:  # one attempt was rejected before the one that passed
            artifact(folder, "bb-0", "ap_patch", 1, ok=False, uses={"ap_analysis": "aa-0"})
            artifact(folder, "bb-1", "ap_patch", 2, previous_attempt_id="bb-0")
        elif failed:
            for one in range(failed):
                artifact(folder, f"bb-{one}", "ap_patch", one + 1, ok=False,
                         previous_attempt_id=f"bb-{one - 1}" if one else None)  # fmt: skip
        else:
            artifact(folder, "bb-0", "ap_patch", 1, uses={"ap_analysis": "aa-0"})
        rows.append({"instance_id": instance, "arm": arm, "workflow_status": "failed" if failed else "success",
                     "patch_content": "" if failed else "--- a\n", "total_tokens": 110})  # fmt: skip
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = [source.row for source in read_legacy(tmp_path).sources]
    assert [row.retry_count for row in found] == [4, 0, 0, 4, 4, 0]
    assert [row.failed_attempts for row in found] == [4, 0, 0, 4, 4, 1]
    told = [{**row, "retry_count": 2} for row in rows]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    assert {source.row.retry_count for source in read_legacy(tmp_path).sources} == {2}, "what a row tells stays"


def test_what_is_written_is_read_by_the_other_commands(
    older: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["swebench-pro", "import", str(older), "--output-dir", str(out)]) == 0
    assert "tokens: 440 in the rows, 660 in all" in capsys.readouterr().out
    assert len(read_results(out / "results.jsonl").rows) == 2
    edges = {edge["kind"] for edge in json.loads((out / "artifact_dags/i1/04_s1_tdd/index.json").read_text())["edges"]}
    assert edges == {"retry", "dependency", "escalation"}
    results = str(out / "results.jsonl")
    assert main(["swebench-pro", "analyze-errors", "--results", results]) == 0
    assert "← FINAL" in (out / "final_error_analysis_latest.md").read_text()
    assert "Import them first" not in capsys.readouterr().out
    assert main(["swebench-pro", "visualize", "--results", results]) == 0
    told = capsys.readouterr()
    assert "1 of 1 planned trials were not evaluated" in told.out + told.err + (out / "charts/index.html").read_text()
    assert "not run or were cut off" not in (out / "charts/index.html").read_text()
    assert main(["swebench-pro", "analyze-errors", "--results", str(older / "results.jsonl")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Import them first: tbench swebench-pro import {older}" in said
    assert main(["swebench-pro", "import", str(older), "--output-dir", str(older)]) == 2


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"contains neither results\.jsonl nor artifact_dags"):
        read_legacy(tmp_path)
