"""The most frequent causes of failure, each with the trial that shows it."""

from pathlib import Path

from support.dashboard import add_trajectory, steps
from support.results import make_plan, make_trial
from terminalbench.analytics.error_groups import deciding_step
from terminalbench.analytics.findings.failure import FAILURE_CLASSES
from terminalbench.experiments.batch import allocate
from terminalbench.lab.analyze import explained, open_source
from terminalbench.text.reasons import FAILURES, failure_advice, failure_words


def test_each_cause_has_its_share_the_verifiers_line_and_the_deciding_step(tmp_path: Path) -> None:
    batch = allocate(tmp_path / "results", "s")
    make_plan(batch, ("p", "q"), "ab", 2)
    for name in ("a__1", "a__2", "b__1"):
        folder = make_trial(batch, name, reward=0.0)
        add_trajectory(folder, steps("cat a.py", "echo 1 > b.py", "ls", "cat b.py"))
        (folder / "verifier").mkdir(exist_ok=True)
        (folder / "verifier" / "test-stdout.txt").write_text("FAILED tests/test_a.py::test_sum - assert 3 == 4\n")
    make_trial(batch, "b__2", reward=1.0)
    make_trial(batch, "a__3", profile="q", reward=1.0)
    [cause] = explained(open_source(batch)).causes
    assert (cause.profile, cause.what, cause.count, cause.of) == ("p", "untested", 3, 3)
    assert cause.check == "tests/test_a.py::test_sum: assert 3 == 4"
    assert (cause.step, cause.did) == (3, "bash: echo 1 > b.py")
    assert "tell it to run what it wrote" in cause.advice
    assert not batch.tables.joinpath("findings.jsonl").exists(), "a report writes no tables"


def test_where_a_failure_was_decided() -> None:
    assert deciding_step("loop", [4, 5, 6]) == 4
    assert deciding_step("lost_passing_state", [3, 7, 9]) == 7
    assert deciding_step("untested", [3, 7, 9]) == 9
    assert deciding_step("wrong_answer", []) is None


def test_every_class_has_words_and_advice() -> None:
    for name in FAILURE_CLASSES:
        assert name in ("unfinished", "not_run") or failure_words(name) != name.replace("_", " "), name
        assert failure_advice(name)
    assert set(FAILURES) < set(FAILURE_CLASSES)
