"""Logs of Inspect and results of promptfoo as these write them."""

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
from formats.outcomes import outcomes
from terminalbench.errors import UserError
from terminalbench.formats.row import ReadOptions
from terminalbench.formats.source import read_results
from terminalbench.harbor.read.foreign_row import trial_of
from terminalbench.records.trial import Outcome

PASSED, FAILED, ERRORED, NOT_RUN = Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED, Outcome.NOT_RUN


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
