"""Each format as its tool writes it: what is recognised, what the rows say, and what is not used of broken files."""

import io
import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import DATA
from terminalbench.errors import UserError
from terminalbench.formats.reader import ORDER, read_results
from terminalbench.formats.row import ForeignResults, ReadOptions
from terminalbench.harbor.read.foreign_row import trial_of
from terminalbench.index.results import TRIALS
from terminalbench.records.trial import Outcome

PASSED, FAILED, ERRORED, NOT_RUN = Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED, Outcome.NOT_RUN


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, content: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def outcomes(found: ForeignResults) -> dict[tuple[str, str, int | None], Outcome]:
    return {(row.profile, row.task, row.attempt): trial_of(row, "j", "t", "i").outcome for row in found.rows}


def trial(task: str, resolved: Any, mode: str = "unset", name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"trial_name": name or f"{task}.1-of-1.run", "task_id": task, "is_resolved": resolved, "failure_mode": mode,
            "total_input_tokens": 0, "total_output_tokens": 0, **more}  # fmt: skip


CSV = """Task ID;model;Success;cost;Time;notes
a;small;yes;0.5;10;x
a;small;no;;20;x
b;small;maybe;;;x
;small;yes;;;x
b;large;0.5;1;1;x
b;large;1;-3;nan;x

c;large;error;1;1;x
short;row
"""


def test_a_table_with_names_of_its_own(written: Callable[..., Path]) -> None:
    found = read_results(written("t.csv", CSV.replace(";", ",")))
    assert outcomes(found) == {
        ("small", "a", 1): PASSED,
        ("small", "a", 2): FAILED,
        ("large", "b", 1): PASSED,
        ("large", "c", 1): ERRORED,
    }
    assert found.rejected == {
        "passed is neither true nor false": 2,
        "the task is missing": 1,
        "the row has more or fewer fields than the header": 1,
    }
    assert 'the first value that is neither true nor false: Success is "maybe"' in found.notes
    assert found.rows[0].cost_usd == 0.5
    assert found.rows[0].seconds == 10
    assert found.rows[1].cost_usd is None
    assert "columns guessed: task = Task ID, passed = Success, seconds = Time; columns not used: notes" in found.notes
    assert "1 value of cost cannot be read (counted as unknown)" in found.notes
    assert outcomes(read_results(written("semicolons.csv", CSV))) == outcomes(found)
    assert [row.task for row in read_results(written("i.csv", "instance,score\na,1\n")).rows] == ["a"]
    assert outcomes(read_results(written("wide.csv", CSV.encode("utf-16")))) == outcomes(found)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", PASSED), ("FALSE", FAILED), ("1", PASSED), ("0.0", FAILED), ("Resolved", PASSED), ("timeout", ERRORED),
     ("", ERRORED), ("skipped", NOT_RUN), ("NaN", ERRORED)],
)  # fmt: skip
def test_a_word_for_passed(written: Callable[..., Path], value: str, expected: Outcome) -> None:
    found = read_results(written("t.csv", f"task,passed,profile\na,{value},p\n"))
    assert outcomes(found) == {("p", "a", 1): expected}


def test_rewards_decide_where_no_verdict_is_told(written: Callable[..., Path]) -> None:
    rows = [{"task": t, "score": s, "profile": "p"} for t, s in (("a", 1), ("b", 0.99), ("c", None))]
    text = json.dumps([*rows, {"task": "d", "score": float("nan"), "profile": "p"}, {"task": "e", "score": "1e999"}])
    found = read_results(written("t.json", text))
    assert outcomes(found) == {
        ("p", "a", 1): PASSED, ("p", "b", 1): FAILED, ("p", "c", 1): ERRORED, ("p", "d", 1): ERRORED,
    }  # fmt: skip
    assert found.rejected == {"the reward is not a finite number": 1}


@pytest.mark.parametrize("scores", [(85.5, 12.5), (100, 0), (2, 1)])
def test_rewards_beyond_one_need_a_word_on_what_passes(written: Callable[..., Path], scores: tuple[float, ...]) -> None:
    path = written("t.csv", "task,profile,score\n" + "".join(f"t{n},p,{score}\n" for n, score in enumerate(scores)))
    with pytest.raises(UserError, match=f"go up to {scores[0]:g}, and the reward needed to pass is unknown") as told:
        read_results(path)
    assert "--pass-at N" in (told.value.hint or "")
    found = read_results(path, ReadOptions(pass_at=scores[0]))
    assert list(outcomes(found).values()) == [PASSED, FAILED]


def test_numbers_as_people_write_them(written: Callable[..., Path]) -> None:
    head = "task;profile;reward;cost;tokens;seconds\n"
    found = read_results(written("t.csv", f"# by hand\n{head}a;p;100%;0,25;12345;1e308\nb;p;67 %;$1.5;-3;9\n"))
    first, second = found.rows
    assert list(outcomes(found).values()) == [PASSED, FAILED]
    assert (first.cost_usd, first.tokens, first.seconds) == (0.25, 12345, None)
    assert (second.reward, second.cost_usd, second.tokens) == (0.67, 1.5, None)
    assert "1 value of seconds cannot be read (counted as unknown)" in found.notes
    commas = read_results(written("c.csv", 'task,profile,passed,tokens\na,p,1,"1,234,567"\n'))
    assert commas.rows[0].tokens == 1234567
    low = read_results(written("low.csv", f"{head}a;p;0,4;;;\nb;p;0,6;;;\n"), ReadOptions(pass_at=0.5))
    assert list(outcomes(low).values()) == [FAILED, PASSED]


def test_rows_inside_a_document(written: Callable[..., Path]) -> None:
    rows = [{"task_id": "a", "agent": "p", "score": 1.0}]
    assert outcomes(read_results(written("d.json", {"meta": {"n": 1}, "data": rows}))) == {("p", "a", 1): PASSED}
    with pytest.raises(UserError, match="no result format"):
        read_results(written("two.json", {"old": rows, "new": rows}))


def test_an_error_beside_a_failure_broke_and_a_pass_with_one_passed(written: Callable[..., Path]) -> None:
    text = "task,profile,passed,error\na,p,false,rate limit\nb,p,true,late warning\nc,p,failed,assertion 3\nd,p,0,\n"
    found = read_results(written("t.csv", text))
    assert list(outcomes(found).values()) == [ERRORED, PASSED, FAILED, FAILED]
    left_out = read_results(written("t.csv", text), ReadOptions(columns={"error": ""}))
    assert list(outcomes(left_out).values()) == [FAILED, PASSED, FAILED, FAILED]


def test_attempts_are_told_or_counted(written: Callable[..., Path]) -> None:
    rows = [("a", 2, 1), ("a", 1, 0), ("a", 2, 0), ("b", "x", 1)]
    lines = [json.dumps({"task": t, "attempt": n, "passed": p, "profile": "p"}) for t, n, p in rows]
    found = read_results(written("t.jsonl", "\n".join([*lines, "{torn", "[]"])))
    assert outcomes(found) == {("p", "b", 1): PASSED, ("p", "a", 1): FAILED, ("p", "a", 2): PASSED}
    assert found.rejected == {
        "the line is not a JSON object": 2,
        "an earlier row has the same attempt at the same task": 1,
    }
    assert "1 value of attempt cannot be read (counted as unknown)" in found.notes


def test_columns_that_are_named(written: Callable[..., Path]) -> None:
    path = written("t.csv", "what,who,ok\na,p,1\n")
    with pytest.raises(UserError, match="no column for the task"):
        read_results(path)
    found = read_results(path, ReadOptions(columns={"task": "what", "profile": "who", "passed": "ok"}, dataset="mine"))
    assert [(r.task, r.profile, r.dataset, r.passed) for r in found.rows] == [("a", "p", "mine", True)]
    with pytest.raises(UserError, match="so no row has a verdict"):
        read_results(written("scores.csv", "task,model,error,f1\na,m,,0.3\nb,m,,0.4\n"))
    for columns in ({"task": "wat"}, {"tsk": "what"}):
        with pytest.raises(UserError):
            read_results(path, ReadOptions(columns=columns))


def test_predictions_without_results_are_refused_and_those_with_results_are_read(written: Callable[..., Path]) -> None:
    rows = [{"instance_id": "a__a-1", "model_name_or_path": "m", "model_patch": "diff"}]
    with pytest.raises(UserError, match="so no row has a verdict"):
        read_results(written("preds.jsonl", json.dumps(rows[0])))
    found = read_results(written("preds.json", [{**rows[0], "resolved": True}]))
    assert [(r.task, r.profile, r.dataset, r.passed) for r in found.rows] == [("a__a-1", "m", "swe-bench", True)]


def test_parquet_and_our_own_export(written: Callable[..., Path], tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"task": ["a", "b"], "profile": ["p", "p"], "passed": [True, None], "cost": [1.0, None]})
    pq.write_table(table, tmp_path / "t.parquet")
    found = read_results(tmp_path / "t.parquet")
    assert outcomes(found) == {("p", "a", 1): PASSED, ("p", "b", 1): ERRORED}
    with pytest.raises(UserError, match="cannot be read as Parquet"):
        read_results(written("broken.parquet", b"PAR1" + b"\0" * 40))
    row: dict[str, Any] = dict.fromkeys(TRIALS, "")
    row |= {"task": "a", "profile": "p", "outcome": "failed", "passed": "false", "reason": "", "superseded": "false"}
    lines = [",".join(TRIALS), ",".join(row.values()), ",".join({**row, "superseded": "true"}.values())]
    own = read_results(written("export.csv", "\n".join(lines)))
    assert (outcomes(own), own.rejected) == ({("p", "a", 1): FAILED}, {"a superseded try": 1})


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


@pytest.mark.parametrize(("name", "passes"), [("one.eval", {"capital": 2, "sum": 1}), ("two.json", {"capital": 1})])
def test_logs_of_inspect(name: str, passes: dict[str, int]) -> None:
    """Written by inspect_ai itself: tests/data/inspect/make.py.txt."""
    found = read_results(DATA / "inspect" / name)
    assert found.format == "inspect"
    assert Counter(row.task for row in found.rows if row.passed) == passes
    assert Counter(row.attempt for row in found.rows) == {1: 3, 2: 3}
    broken = [row for row in found.rows if row.task == "broken"]
    assert {trial_of(row, "j", "t", "i").outcome for row in broken} == {ERRORED}
    assert {row.error for row in broken} == {"RuntimeError('the tool server went away')"}
    assert {(row.profile, row.dataset) for row in found.rows} == {(f"mockllm/{name.split('.')[0]}", "tiny")}


def test_what_the_installed_inspect_writes_is_read_as_what_was_kept(tmp_path: Path) -> None:
    """INSPECT_PYTHON is a Python that has inspect_ai; it is too much for the set-up (84 packages)."""
    python = os.environ.get("INSPECT_PYTHON") or (pytest.importorskip("inspect_ai") and sys.executable)
    subprocess.run([python, DATA / "inspect" / "make.py.txt", tmp_path], check=True, timeout=600)

    def rows(path: Path) -> Any:
        found = read_results(path).rows
        return sorted((r.profile, r.dataset, r.task, r.attempt, r.passed, r.reward, r.error) for r in found)

    for name in ("one.eval", "two.json"):
        assert rows(tmp_path / name) == rows(DATA / "inspect" / name)
    for name in ("cut.eval", "cut.json"):
        cut = read_results(tmp_path / name)
        assert {task: outcome for (_, task, _), outcome in outcomes(cut).items()} == {
            "capital": PASSED, "sum": FAILED, "broken": ERRORED, "endless": FAILED, "late": ERRORED,
        }  # fmt: skip
        assert cut.notes == [f"{name}: the status of the log is cancelled, so samples may be missing"]


def log(samples: list[Any], **header: Any) -> dict[str, Any]:
    about = {"task": "t", "model": "m", "scorers": [{"name": "main"}]}
    return {"version": 2, "status": "success", "eval": about, "samples": samples, **header}


def test_scores_of_inspect(written: Callable[..., Path]) -> None:
    def sample(number: int, value: Any, **more: Any) -> dict[str, Any]:
        return {"id": number, "epoch": 1, "scores": {"side": {"value": 1}, "main": {"value": value}}, **more}

    used = {"m": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 20, "input_tokens_cache_read": 8}}
    samples = [sample(1, "C", model_usage=used), sample(2, "P"), sample(3, 1.0), sample(4, "N"), sample(5, {"a": 1}),
               sample(6, True), {"id": 7, "epoch": 1}, "torn", sample(8, float("nan"))]  # fmt: skip
    path = written("l.json", json.dumps(log(samples, status="cancelled")))
    found = read_results(path)
    assert {row.task: trial_of(row, "j", "t", "i").outcome for row in found.rows} == {
        "1": PASSED, "2": FAILED, "3": PASSED, "4": FAILED, "6": PASSED, "7": ERRORED, "8": ERRORED,
    }  # fmt: skip
    assert found.rejected == {"the score is a table of several values": 1, "the sample is not a table": 1}
    assert trial_of(found.rows[0], "j", "t", "i").usage.total_tokens == 20
    assert any("cancelled" in note for note in found.notes)
    assert any("score main is used as the verdict; not used: side" in note for note in found.notes)
    assert all(
        row.reward == 1 for row in read_results(path, ReadOptions(columns={"passed": "side"})).rows if row.task in "12"
    )


def test_a_log_of_inspect_that_lies_about_its_size(
    written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("terminalbench.formats.inspect_log._MEMBER", 1 << 16)
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps(log([])))
        archive.writestr("summaries.json", b"[" + b" " * (1 << 22) + b"]")
    with pytest.raises(UserError, match=r"summaries\.json in it is larger than"):
        read_results(written("bomb.eval", whole.getvalue()))
    with pytest.raises(UserError, match="is a zip that cannot be read"):
        read_results(written("torn.eval", whole.getvalue()[:-300]))


def result(test: int, success: Any, provider: str = "openai:a", **more: Any) -> dict[str, Any]:
    case = {"description": f"case {test}", "vars": {"q": f"v{test}"}}
    return {"testIdx": test, "promptIdx": 0, "success": success, "score": float(success is True), "failureReason": 0 if success else 1,
            "provider": {"id": provider, "label": ""}, "prompt": {"raw": "Say {{q}}", "label": "Say {{q}}"}, "vars": case["vars"],
            "testCase": case, "latencyMs": 1500, "cost": 0.01, "tokenUsage": {"total": 30, "prompt": 10, "completion": 20}, **more}  # fmt: skip


@pytest.mark.parametrize("wrapped", [True, False])
def test_results_of_promptfoo(written: Callable[..., Path], wrapped: bool) -> None:
    rows = [
        result(0, True), result(1, False, error="expected x"), result(2, False, failureReason=2, error="429"),
        result(0, True, "openai:b"), result(1, True, "openai:b"), result(0, False), result(1, "yes"), {"success": True},
    ]  # fmt: skip
    inner = {"version": 3, "results": rows, "stats": {}}
    found = read_results(written("out.json", {"evalId": "e", "results": inner} if wrapped else inner))
    assert outcomes(found) == {
        ("openai:a", "case 0", 1): PASSED, ("openai:a", "case 0", 2): FAILED, ("openai:a", "case 1", 1): FAILED,
        ("openai:a", "case 2", 1): ERRORED, ("openai:b", "case 0", 1): PASSED, ("openai:b", "case 1", 1): PASSED,
    }  # fmt: skip
    assert found.rejected == {"success is neither true nor false": 1, "the row has neither success nor a provider": 1}
    assert (found.rows[0].seconds, found.rows[0].tokens, found.rows[0].cost_usd) == (1.5, 30, 0.01)
    lines = "\n".join(map(json.dumps, rows[:5]))
    assert read_results(written("out.jsonl", lines)).format == "promptfoo"


def test_two_prompts_of_a_provider_are_two_profiles(written: Callable[..., Path]) -> None:
    rows = [result(0, True), result(0, False, promptIdx=1, prompt={"raw": "x" * 90, "label": "x" * 90})]
    found = read_results(written("out.json", {"results": {"version": 3, "results": rows}}))
    assert {row.profile for row in found.rows} == {"openai:a, Say {{q}}", "openai:a, prompt 2"}


def test_older_results_of_promptfoo_name_no_provider(written: Callable[..., Path]) -> None:
    """Versions 1 and 2: rows of a prompt and variables alone; version 3 as it is shared stands in `data`."""
    rows = [
        {"prompt": {"raw": f"In {to}: hi", "display": shown}, "vars": {"to": to}, "response": {"output": "x"}, "success": ok}
        for to in ("fr", "de") for shown, ok in (("In {{to}}: hi", True), ("Say hi in {{to}}", to == "fr"))
    ]  # fmt: skip
    old = {"version": 1, "results": rows, "stats": {"successes": 3, "failures": 1}, "table": {"head": {}, "body": []}}
    first = read_results(written("march.json", old))
    assert outcomes(first) == {
        ("march, In {{to}}: hi", "fr", 1): PASSED, ("march, In {{to}}: hi", "de", 1): PASSED,
        ("march, Say hi in {{to}}", "fr", 1): PASSED, ("march, Say hi in {{to}}", "de", 1): FAILED,
    }  # fmt: skip
    second = read_results(written("two.json", {"results": {**old, "version": 2}, "config": {"providers": ["small:a"]}}))
    assert {row.profile for row in second.rows} == {"small:a, In {{to}}: hi", "small:a, Say hi in {{to}}"}
    both = [
        {key: value for key, value in result(0, ok, prompt={"label": f"{'x' * 40} {ok} {'y' * 40}"}).items() if key != "promptIdx"}
        for ok in (True, False)
    ]  # fmt: skip
    shared = {"data": {"version": 3, "results": {"version": 2, "results": both}, "config": {}}}
    assert outcomes(read_results(written("shared.json", shared))) == {
        ("openai:a, prompt 1", "case 0", 1): FAILED, ("openai:a, prompt 2", "case 0", 1): PASSED,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("out.csv", 'q,[openai:a] Say {{q}}\nhi,"[PASS] (1.00)\n\nHello"\n'),
        ("out.csv", '"{""raw"":""Say""}",q\n"[FAIL] (0.00) Hello",hi\n'),
        ("out.yaml", "evalId: eval-1\nresults:\n  version: 3\n"),
    ],
)
def test_what_promptfoo_writes_for_people_is_refused(written: Callable[..., Path], name: str, text: str) -> None:
    with pytest.raises(UserError, match="is a promptfoo table or YAML file") as refused:
        read_results(written(name, text))
    assert refused.value.hint == "write the results as JSON: promptfoo eval -o results.json"


JUNIT = """<?xml version="1.0"?><testsuites><testsuite name="{one}">
<testcase classname="m.T" name="a" time="1.5"/><testcase classname="m.T" name="b"><failure message="no">x</failure></testcase>
<testcase classname="m.T" name="c"><error>boom</error></testcase><testcase classname="m.T" name="d"><skipped/></testcase>
</testsuite>{more}</testsuites>"""


def test_junit(written: Callable[..., Path]) -> None:
    found = read_results(written("base.xml", JUNIT.format(one="pytest", more="")))
    assert outcomes(found) == {
        ("base", "m.T::a", 1): PASSED, ("base", "m.T::b", 1): FAILED, ("base", "m.T::c", 1): ERRORED, ("base", "m.T::d", 1): NOT_RUN,
    }  # fmt: skip
    assert found.rows[2].error == "boom"
    suites = '<testsuite name="new"><testcase classname="m.T" name="a"/></testsuite>'
    by_suite = read_results(written("ours.xml", JUNIT.format(one="old", more=suites)))
    assert {row.profile for row in by_suite.rows} == {"old", "new"}


XFAILS = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest" tests="6">
<testcase classname="test_x" name="test_known" time="0.016"><skipped type="pytest.xfail" message="known" /></testcase>
<testcase classname="test_x" name="test_held" time="0.000"><skipped type="pytest.xfail" message="[NOTRUN] slow" /></testcase>
<testcase classname="test_x" name="test_mended"><failure message="[XPASS(strict)] ">[XPASS(strict)] </failure></testcase>
<testcase classname="test_x" name="test_lucky" time="0.000" />
<testcase classname="test_x" name="test_inside" time="0.000"><skipped type="pytest.xfail" message="mid" /></testcase>
<testcase classname="test_x" name="test_skipped"><skipped type="pytest.skip" message="unconditional skip">x</skipped></testcase>
</testsuite></testsuites>"""


def test_an_expected_failure_ran_and_is_passed(written: Callable[..., Path]) -> None:
    """As pytest 9 writes it: its run is green, and only what it did not run at all did not run."""
    found = read_results(written("run.xml", XFAILS))
    assert {task.rpartition("::test_")[2]: outcome for (_, task, _), outcome in outcomes(found).items()} == {
        "known": PASSED, "held": NOT_RUN, "mended": FAILED, "lucky": PASSED, "inside": PASSED, "skipped": NOT_RUN,
    }  # fmt: skip
    assert found.notes == ["run.xml: 2 expected failures count as passed (pytest's xfail)"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '<?xml version="1.0"?><!DOCTYPE t [<!ENTITY a "aaaa">]><testsuite><testcase name="&a;"/></testsuite>',
            "document type",
        ),
        ('<!DOCTYPE t SYSTEM "file:///etc/passwd"><testsuite/>', "document type"),
        ("<testsuite><testcase name='a'>", "is not XML"),
        (f"<testsuite>{'<a>' * 60}", "elements deep"),
        ("<testsuite/>", "contains no usable result"),
    ],
)
def test_xml_that_is_not_taken(written: Callable[..., Path], text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_results(written("t.xml", text))


ODD = {
    "empty.csv": "", "header.csv": "task,passed\n", "prose.txt": "hello", "list.json": "[1, 2]", "other.json": '{"a": 1}',
    "deep.json": "[" * 100_000, "torn.json": '{"results": [', "latin.csv": b"task,passed\n\xe9,1\n", "zero.csv": b"\0" * 500,
    "zip.eval": b"PK\x03\x04rubbish", "all-bad.csv": "task,passed\na,maybe\n", "twice.csv": "task,task,passed\na,b,1\n",
    "zip.csv.gz": b"\x1f\x8b\x08\0" + b"\xff" * 40, "wide.csv": "task,passed\na,1\n".encode("utf-16-le"),
    "coded.xml": '<?xml version="1.0" encoding="utf-7"?><testsuite/>', "latin.jsonl": b'{"task": "\xe9", "passed": true}\n',
    "quote.csv": 'task,passed\n"a,1\n', "config.json": '{"eval": {"model": "m"}, "status": "x"}', "nan.json": '{"results": NaN}',
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_is_one_clear_message(written: Callable[..., Path], name: str) -> None:
    with pytest.raises(UserError) as told:
        read_results(written(name, ODD[name]))
    assert told.value.where
    assert name in told.value.where


_ROW = '{"task": "a", "profile": "p", "passed": true}'


@pytest.mark.parametrize(
    ("name", "held", "unread"),
    [
        ("mark.jsonl", _ROW.encode("utf-16"), {}),
        ("mark.json", f"[{_ROW}]".encode("utf-16"), {}),
        ("mark.csv", "\ufefftask,profile,passed\na,p,1\n", {}),
        ("excel.csv", "sep=;\ntask;profile;passed\na;p;1\n", {}),
        ("huge.jsonl", _ROW.replace("}", f', "tokens": {"9" * 5000}}}'), {}),
        ("huge.json", f'[{_ROW}, {{"task": {"9" * 5000}, "passed": true}}]', {"the task is missing": 1}),
        ("lists.json", f'[{_ROW}, {{"task": ["a"], "passed": true}}, 5]', {"the task is missing": 1, "the line is not a JSON object": 1}),
    ],
)  # fmt: skip
def test_what_else_a_table_may_be(written: Callable[..., Path], name: str, held: Any, unread: dict[str, int]) -> None:
    found = read_results(written(name, held))
    assert (outcomes(found), found.rejected) == ({("p", "a", 1): PASSED}, unread)


def test_names_of_instances_that_are_none_are_counted(written: Callable[..., Path]) -> None:
    report = {"resolved_ids": ["d__d-1", None, ["x"]], "unresolved_ids": ["d__d-2"], "submitted_ids": []}
    found = read_results(written("run.json", report))
    assert outcomes(found) == {("run", "d__d-1", 1): PASSED, ("run", "d__d-2", 1): FAILED}
    assert found.rejected == {"no task is told": 2}


def test_names_are_made_fit_to_be_shown(written: Callable[..., Path]) -> None:
    task, other = "x" * 300 + "1", "x" * 300 + "2"
    rows = [{"task": t, "profile": "p\u001b[31m\n\ud800", "passed": True} for t in (task, other, "a\nb")]
    found = read_results(written("t.json", json.dumps(rows)))
    assert len({row.task for row in found.rows}) == 3
    assert all(len(row.task) <= 200 and (row.task + row.profile).isprintable() for row in found.rows)


def test_a_folder_of_several_formats_is_named_and_can_be_told(written: Callable[..., Path], tmp_path: Path) -> None:
    written("d/a.csv", "task,passed\na,1\n")
    written("d/b.xml", JUNIT.format(one="s", more=""))
    written("d/notes.json", {"mine": 1})
    with pytest.raises(UserError, match="1 file of table, 1 file of junit"):
        read_results(tmp_path / "d")
    assert read_results(tmp_path / "d", ReadOptions(format="junit")).format == "junit"
    with pytest.raises(UserError, match="no result format is called"):
        read_results(tmp_path / "d", ReadOptions(format="junitt"))
    (tmp_path / "link.csv").symlink_to(tmp_path / "d" / "a.csv")
    assert read_results(tmp_path / "link.csv").rows[0].task == "a"


def test_a_format_of_a_package_is_asked_first(written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from terminalbench import registry

    class Mine:
        def recognises(self, file: Any) -> bool:
            return file.head.startswith(b"MINE")

        def read(self, files: Any, reader: Any) -> None:
            reader.add("a", "p", "d", passed=True)

    monkeypatch.setitem(registry.BUILTIN["result formats"], "mine", f"{__name__}:MINE")
    monkeypatch.setitem(globals(), "MINE", Mine)
    assert read_results(written("x.csv", "MINE,task")).format == "mine"
    assert {*ORDER, "mine"} == set(registry.names("result formats"))
