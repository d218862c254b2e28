"""Results of Terminal-Bench, SWE-bench and SWE-Bench Pro as their tools write them."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.outcomes import outcomes
from terminalbench.errors import UserError
from terminalbench.formats.row import ReadOptions
from terminalbench.formats.source import read_results
from terminalbench.records.trial import Outcome

PASSED, FAILED, ERRORED, NOT_RUN = Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED, Outcome.NOT_RUN


def trial(task: str, resolved: Any, mode: str = "unset", name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"trial_name": name or f"{task}.1-of-1.run", "task_id": task, "is_resolved": resolved, "failure_mode": mode,
            "total_input_tokens": 0, "total_output_tokens": 0, **more}  # fmt: skip


def test_a_run_of_terminal_bench(written: Callable[..., Path], tmp_path: Path) -> None:
    trials = [
        trial("a", True, name="a.1-of-2.run", agent_started_at="2025-08-28T02:13:15+00:00", agent_ended_at="2025-08-28T02:14:15+00:00"),
        trial("a", False, "agent_timeout", name="a.2-of-2.run", total_input_tokens=5, total_output_tokens=2),
        trial("b", None, "test_timeout"),
        trial("c", "yes"),
    ]  # fmt: skip
    written("run/results.json", {"id": "x", "results": trials, "n_resolved": 1, "pass_at_k": {"2": float("nan")}})
    written(
        "run/run_metadata.json",
        {"agent_name": "oh", "model_name": "x/m", "dataset_name": "core", "dataset_version": "1"},
    )
    written("run/a/a.1-of-2.run/results.json", trials[0])
    found = read_results(tmp_path / "run")
    assert outcomes(found) == {("oh/m", "a", 1): PASSED, ("oh/m", "a", 2): FAILED, ("oh/m", "b", 1): ERRORED}
    assert found.rejected == {"is_resolved is neither true, false nor null": 1}
    first, second = found.rows[:2]
    assert (first.dataset, first.seconds, first.input_tokens, second.input_tokens) == ("core@1", 60, None, 5)


def test_a_leaderboard_of_terminal_bench(written: Callable[..., Path], tmp_path: Path) -> None:
    for entry, passes in (("20250711_oh_sonnet", (True, False)), ("20250829_goose_opus", (True, True))):
        for run, passed in enumerate(passes):
            at = f"results/core@0.1.1/{entry}/2025-07-1{run}__10-00-00"
            written(f"{at}/results.json", {"results": [trial("a", passed)]})
    written(
        "results/core@0.1.1/20250829_goose_opus/2025-08-20__09-00-00_results.json", {"results": [trial("a", False)]}
    )
    found = read_results(tmp_path / "results")
    assert Counter((row.profile, row.dataset) for row in found.rows) == {
        ("20250711_oh_sonnet", "core@0.1.1"): 2,
        ("20250829_goose_opus", "core@0.1.1"): 3,
    }
    assert len(outcomes(found)) == 5, "runs of one trial each are attempts"


def test_a_run_that_was_copied_into_another_counts_once(written: Callable[..., Path], tmp_path: Path) -> None:
    first = [trial("a", True, id="11-aa"), trial("b", False, id="11-bb")]
    written("agent/run1/results.json", {"results": first})
    written("agent/run2/results.json", {"results": [trial("a", False, id="22-aa")]})
    written("agent/run2/run1/results.json", {"results": first})
    found = read_results(tmp_path / "agent")
    assert Counter((row.task, row.passed) for row in found.rows) == {("a", True): 1, ("b", False): 1, ("a", False): 1}
    assert found.rejected == {"the trial is in a copy of its run": 2}


def test_reports_of_swe_bench(written: Callable[..., Path], tmp_path: Path) -> None:
    report = {
        "total_instances": 6, "resolved_ids": ["d__d-1"], "unresolved_ids": ["d__d-2"], "empty_patch_ids": ["d__d-3"],
        "error_ids": ["d__d-4"], "incomplete_ids": ["d__d-5"], "completed_ids": ["d__d-1", "d__d-2"], "schema_version": 2,
    }  # fmt: skip
    found = read_results(written("gpt.run1.json", report))
    assert list(outcomes(found).items()) == [
        (("gpt.run1", f"d__d-{n}", 1), o) for n, o in enumerate((PASSED, FAILED, FAILED, ERRORED, NOT_RUN), 1)
    ]
    multi = written("multi.run1.json", {"resolved" if k == "resolved_ids" else k: v for k, v in report.items()})
    assert list(outcomes(read_results(multi)).values()) == list(outcomes(found).values()), "as Multi-SWE-bench has it"
    for name, resolved in (("d__d-1", True), ("d__d-2", False)):
        one = {name: {"patch_exists": True, "patch_successfully_applied": True, "resolved": resolved}}
        written(f"logs/run_evaluation/r1/gpt/{name}/report.json", one)
    assert outcomes(read_results(tmp_path / "logs")) == {("gpt", "d__d-1", 1): PASSED, ("gpt", "d__d-2", 1): FAILED}
    for alone in ({"resolved_ids": ["d__d-1"]}, {"resolved": ["d__d-1"], "no_generation": []}):
        with pytest.raises(UserError, match="only the resolved instances"):
            read_results(written("alone.json", alone))


def test_a_submission_to_the_leaderboard_of_swe_bench(written: Callable[..., Path], tmp_path: Path) -> None:
    """Its results list what was resolved alone; the reports of its instances tell the rest."""
    at = "verified/20240620_agent"
    written(f"{at}/results/results.json", {"no_generation": [], "no_logs": [], "resolved": ["d__d-1"]})
    for name, resolved in (("d__d-1", True), ("d__d-2", False)):
        one = {name: {"patch_is_None": False, "patch_exists": True, "resolved": resolved}}
        written(f"{at}/logs/{name}/report.json", one)
    found = read_results(tmp_path / "verified")
    assert outcomes(found) == {("20240620_agent", "d__d-1", 1): PASSED, ("20240620_agent", "d__d-2", 1): FAILED}
    assert found.rejected == {"the report lists only the resolved instances": 1}
    written("verified/run.json", {"resolved_ids": ["d__d-1"], "unresolved_ids": ["d__d-2"], "empty_patch_ids": []})
    whole = read_results(tmp_path / "verified")
    assert {row.profile for row in whole.rows} == {"run"}, "what a whole report tells is not counted twice"
    assert whole.rejected["the report of the instance is next to the report of its run"] == 2


def test_a_submission_of_predictions_and_what_was_resolved_of_them(
    written: Callable[..., Path], tmp_path: Path
) -> None:
    """As the leaderboard has them: all that was predicted was tried."""
    at = "verified/20250519_agent"
    results = written(f"{at}/results/results.json", {"no_generation": [], "no_logs": [], "resolved": ["d__d-1"]})
    lines = "".join(json.dumps({"instance_id": f"d__d-{n}", "model_patch": "--- a"}) + "\n" for n in (1, 2))
    predictions = written(f"{at}/all_preds.jsonl", lines)
    written(f"{at}/runs.json", [{"instance_id": "d__d-1", "resolved": True}])
    with pytest.raises(UserError, match="give --format"):
        read_results(tmp_path / "verified")
    swe = ReadOptions(format="swe-bench")
    found = read_results(tmp_path / "verified", swe)
    assert outcomes(found) == {("20250519_agent", "d__d-1", 1): PASSED, ("20250519_agent", "d__d-2", 1): FAILED}
    assert set(found.files) == {results, predictions}, "what changes one of them changes the results"
    assert outcomes(read_results(results)) == outcomes(found)
    predictions.unlink()
    with pytest.raises(UserError, match="only the resolved instances") as refused:
        read_results(tmp_path / "verified", swe)
    assert "all_preds.jsonl" in (refused.value.hint or "")


def test_tables_of_one_name_in_several_folders_are_several_profiles(
    written: Callable[..., Path], tmp_path: Path
) -> None:
    written("out/a/metrics.jsonl", '{"task": "x", "passed": true}\n')
    written("out/b/metrics.jsonl", '{"task": "x", "passed": false}\n')
    written("out/b/notes.jsonl", '{"text": "no result"}\n')
    assert outcomes(read_results(tmp_path / "out")) == {("a/metrics", "x", 1): PASSED, ("b/metrics", "x", 1): FAILED}


@pytest.mark.parametrize(
    "held",
    [
        {
            "results": {"arc_easy": {"alias": "arc_easy", "acc,none": 0.6, "acc_stderr,none": 0.01}},
            "n-shot": {"arc_easy": 0},
        },
        {"astropy/astropy": {"resolved": 16, "total": 22}},
    ],
)
def test_sums_are_no_results_of_attempts(written: Callable[..., Path], held: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="it has results of whole tasks or benchmarks, not of single attempts"):
        read_results(written("results.json", held))
    with pytest.raises(UserError, match=r"no result format is recognised in it \("):
        read_results(written("other.json", {"model": "a", "results": [1, 2]}))


def test_the_file_of_swe_bench_pro(written: Callable[..., Path], tmp_path: Path) -> None:
    held = {"instance_a__b-1": True, "instance_a__b-2": False, "instance_a__b-3": None}
    written("traj/gpt-5/eval_results.json", held)
    written("traj/sonnet/eval_results.json", {**held, "instance_a__b-2": True})
    found = read_results(tmp_path / "traj")
    assert found.format == "swe-bench-pro"
    assert Counter((r.profile, r.passed) for r in found.rows) == {
        ("gpt-5", True): 1, ("gpt-5", False): 1, ("sonnet", True): 2,
    }  # fmt: skip
    assert found.rejected == {"the verdict is neither true nor false": 2}


def test_names_of_instances_that_are_none_are_counted(written: Callable[..., Path]) -> None:
    report = {"resolved_ids": ["d__d-1", None, ["x"]], "unresolved_ids": ["d__d-2"], "submitted_ids": []}
    found = read_results(written("run.json", report))
    assert outcomes(found) == {("run", "d__d-1", 1): PASSED, ("run", "d__d-2", 1): FAILED}
    assert found.rejected == {"no task is told": 2}
