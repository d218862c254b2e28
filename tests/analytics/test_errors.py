"""Failures in groups, and where two trials part ways."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from support.results import STAMP, make_plan, make_trial
from support.trajectories import bash, call, edit, put, trajectory
from terminalbench.analytics.atif import parse_trajectory
from terminalbench.analytics.divergence import Divergence, TrialSide, first_divergence
from terminalbench.analytics.findings.actions import actions_of
from terminalbench.experiments.batch import Batch, allocate

PASSED = "===== 3 passed in 0.10s ====="
LOOK = (bash("ls -la", "a.py b.py"), call("Read", {"file_path": "/app/a.py"}, output="def f(): ...", failed=False))


def told(name: str, *calls: Any, **fields: Any) -> TrialSide:
    document = trajectory(*calls, **fields)
    story = parse_trajectory(json.dumps(document).encode())
    return TrialSide(name, story, actions_of(story))


def fork(a: TrialSide, b: TrialSide) -> Divergence:
    found = first_divergence(a, b)
    assert found is not None
    return found


def test_the_first_edit_of_another_file_is_the_fork() -> None:
    good = told("good", *LOOK, bash("grep -rn bug /app", "b.py:3"), edit("/app/b.py"), bash("pytest -q", PASSED))
    bad = told("bad", *LOOK, edit("/app/a.py"), bash("pytest -q", "1 failed"))
    found = fork(good, bad)
    assert found.a is not None
    assert found.b is not None
    assert (found.a.step, found.a.kind, found.b.step, found.b.kind) == (5, "edit", 4, "edit")
    assert "/app/b.py" in found.a.call
    assert "/app/a.py" in found.b.call
    assert found.common == 1, "listing is no move; reading a.py is"


def test_another_order_is_no_fork() -> None:
    one = told("one", edit("a.py"), edit("b.py"), bash("pytest", PASSED))
    two = told("two", edit("b.py"), edit("a.py"), bash("pytest -x", PASSED))
    assert first_divergence(one, two) is None


def test_ending_early_is_a_fork_with_nothing_on_one_side() -> None:
    long = told("long", *LOOK, edit("/app/a.py"), bash("make install", "done"))
    short = told("short", *LOOK, edit("/app/a.py"))
    found = fork(long, short)
    assert found.b is None
    assert found.a is not None
    assert (found.a.call, found.a.result) == ("Bash: make install", "done")


def test_only_looking_differs() -> None:
    found = fork(told("a", bash("cat x.py")), told("b", bash("cat y.py")))
    assert found.a is not None
    assert found.a.kind == "read"


def test_quotes_are_one_safe_line() -> None:
    story = trajectory(bash("./go\x1b[31m", "x\ny\x07" * 400))
    story["steps"][1]["message"] = "I\nthink " * 200
    parsed = parse_trajectory(json.dumps(story).encode())
    found = fork(TrialSide("a", parsed, actions_of(parsed)), told("b", bash("./stay")))
    assert found.a is not None
    for text in (found.a.call, found.a.said, found.a.result):
        assert text.isprintable()
        assert len(text) < 300
    assert " ... " in found.a.said


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    found = allocate(tmp_path / "results", "s")
    make_plan(found, ("p", "q"), "abc")
    for task in "ab":
        put(make_trial(found, f"{task}__1"), trajectory(*LOOK, edit("/app/b.py"), bash("pytest", PASSED)))
        trial = make_trial(found, f"{task}__1", profile="q", reward=0.0)
        put(trial, trajectory(*LOOK, edit("/app/a.py"), bash("./a.out")))
        (trial / "verifier").mkdir()
        (trial / "verifier" / "test-stdout.txt").write_text(
            f"x\nAssertionError: expected {ord(task)} in /tmp/{task}/out\nFAILED (failures=1)\n"
        )
    make_trial(found, "c__1", reward=None, error="AgentAuthenticationError")
    return found


def test_a_trial_that_still_runs_has_not_failed(batch: Batch, tbench: Any) -> None:
    running = make_trial(batch, "c__1", profile="q")
    (running / "result.json").unlink()
    (running / "config.json").write_text('{"task": {"path": "/x/c", "source": "d"}}')
    report = json.loads(tbench("errors", batch.folder, "--json").out)
    assert (report["failed"], report["unfinished"], report["not_run"]) == (3, 1, 0)


def test_secrets_are_not_quoted(batch: Batch, tbench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_TOKEN", "no-shape-at-all")
    story = trajectory(
        *LOOK, bash("curl -H 'x: no-shape-at-all' > /app/b.py sk-ant-aaaabbbbccccdddd", "no-shape-at-all")
    )
    put(batch.runs / f"{STAMP}__q" / "a__1", story)
    for command in (("errors", batch.folder, "--json"), ("analyze", batch.folder, "--no-llm")):
        tbench(*command)
    shown = tbench("errors", batch.folder).out
    assert "[redacted]" in shown
    written = "".join(path.read_text() for path in batch.analytics.iterdir())
    for secret in ("no-shape-at-all", "sk-ant-aaaa"):
        assert secret not in shown
        assert secret not in written


def test_errors_in_groups_with_contrasts(batch: Batch, tbench: Any) -> None:
    report = json.loads(tbench("errors", batch.folder, "--json").out)
    assert (report["trials"], report["failed"], report["not_run"]) == (6, 3, 1)
    assert {g["what"]: g["profiles"] for g in report["classes"]} == {"untested": {"q": 2}, "auth": {"p": 1}}
    assert {g["what"]: g["count"] for g in report["signatures"]} == {
        "verifier: AssertionError: expected N in <path>": 2,
        "AgentAuthenticationError: why": 1,
    }
    assert [(c["task"]["id"], c["a"], c["b"], c["b_class"]) for c in report["contrasts"]] == [
        ("a", "p", "q", "untested"),
        ("b", "p", "q", "untested"),
    ]
    assert report["contrasts"][0]["divergence"]["a"]["step"] == 4
    assert report["classes"][0]["trials"][0]["steps"] == [4]


def test_errors_contrasts_what_the_experiment_declares(batch: Batch, tbench: Any) -> None:
    plan = json.loads(batch.plan_json.read_text())
    for declared, shown in (([["q", "p"]], 2), ([], 0)):
        plan["analysis"] = {"contrasts": declared}
        batch.plan_json.write_text(json.dumps(plan))
        assert len(json.loads(tbench("errors", batch.folder, "--json").out)["contrasts"]) == shown


def test_errors_as_text(batch: Batch, tbench: Any) -> None:
    ran = tbench("errors", batch.folder, "--compare", "p", "q", "--limit", "1")
    assert ran.code == 0
    assert "3 of 6 trials did not pass; 1 more did not run" in ran.out
    assert "    2  untested  [q 2]" in ran.out
    assert "  a: p passed 1 of 1, q 0 of 1 (untested)" in ran.out
    assert "    p, step 4 (edit): Edit: /app/b.py" in ran.out
    assert "    q, step 4 (edit): Edit: /app/a.py" in ran.out
    assert "  b: p passed" not in ran.out
    assert tbench("errors", batch.folder, "--compare", "p", "x").code == 2
    same = tbench("errors", batch.folder, "--compare", "p", "p")
    assert (same.code, "cannot be compared with itself" in same.err) == (2, True)


def test_a_persons_word_counts_everywhere_alike(batch: Batch, tbench: Any) -> None:
    rule = "untested"
    put(make_trial(batch, "c__q", profile="q", reward=0.0), trajectory(*LOOK, edit("/app/a.py"), bash("./a.out")))
    tbench("analyze", batch.folder, "--no-llm")
    by = ("--author", "ada", "--reason", "it went round", "--results", batch.folder.parent.parent)
    trial = f"{STAMP}__q/c__q"
    for name, value in (("failure_class", "loop"), ("backtracks", "7")):
        assert tbench("label", "c__q", name, value, *by).code == 0
    ran = tbench("analyze", batch.folder, "--no-llm")
    assert "note: failure_class was labelled by a person in 1 trial" in ran.out

    classes = {g["what"]: g for g in json.loads(tbench("errors", batch.folder, "--json").out)["classes"]}
    assert {what: (g["count"], g.get("labelled", 0)) for what, g in classes.items()} == {
        rule: (2, 0),
        "auth": (1, 0),
        "loop": (1, 1),
    }
    assert classes["loop"]["trials"][0]["reason"] == "ada says: it went round"
    shown = tbench("errors", batch.folder).out
    assert "    1  loop  [q 1], 1 by a person" in shown
    assert shown.count("by a person") == 1, "the signature is nobody's word"

    rows = list(csv.DictReader((batch.analytics / "metrics_detail.csv").open()))
    [row] = [row for row in rows if row["trial"] == trial]
    assert (row["failure_class"], row["backtracks"], row["label.failure_class"]) == ("loop", "7", "ada")
    profile = json.loads((batch.analytics / "aggregate_metrics.json").read_text())["profiles"]["q"]
    assert profile["failure_classes"] == {rule: 2, "loop": 1}
    assert profile["labelled"] == {"failure_class": 1, "backtracks": 1}
    assert profile["measures"]["backtracks"]["max"] == 7

    html = (batch.analytics / "report.html").read_text()
    assert "loop (1 by a person)" in html
    assert "loop (ada says)" in html
    assert "loop (1 by a person)" in (batch.analytics / "comparison_report.md").read_text()
    kept = [json.loads(line) for line in (batch.analytics / "findings.jsonl").read_text().splitlines()]
    said = [(f["analyzer"], f["value"]) for f in kept if f["trial"] == trial and f["name"] == "failure_class"]
    assert said == [("failure", rule), ("label:ada", "loop")], "both are kept"


def test_a_contrast_without_trajectories_says_so(batch: Batch, tbench: Any) -> None:
    for path in batch.runs.rglob("trajectory.json"):
        path.unlink()
    ran = tbench("errors", batch.folder)
    assert "the calls of p and q are unknown" in ran.out
    assert "wrong_answer" in ran.out
