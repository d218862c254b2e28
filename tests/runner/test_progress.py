import pytest

from terminalbench.records import Event, Usage
from terminalbench.runner.process import log_tail
from terminalbench.runner.progress import Progress, clock


def event(kind: str, trial: str, outcome: str | None = None, **fields: object) -> Event:
    return Event("t", kind, "job", 1, profile="p", trial=trial, outcome=outcome, **fields)  # ty: ignore[invalid-argument-type]


def test_it_counts_what_ended_what_runs_and_what_it_cost() -> None:
    progress = Progress({"p": 4}, 0.0)
    for trial in ("a", "b", "c"):
        progress.add(event("trial_started", trial))
    progress.add(event("trial_ended", "a", "passed", usage=Usage(cost_usd=0.5)))
    progress.add(event("trial_ended", "b", "errored", usage=Usage(cost_usd=0.25), detail={"retried": True}))
    progress.add(event("heartbeat", "x"))
    assert (progress.done, progress.total, len(progress.running)) == (1, 4, 1)
    assert progress.cost_usd == 0.75
    assert progress.eta_sec(10.0) == 30.0
    assert progress.line(10.0) == "0:10  1/4 trials, 1 passed, 1 running, $0.75, 0:30 left"


def test_nothing_done_means_no_guess() -> None:
    progress = Progress({"p": 4}, 0.0)
    assert progress.eta_sec(5.0) is None
    assert progress.line(5.0) == "0:05  0/4 trials"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3661, "1:01:01"), (-1, "0:00")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_the_last_words_of_a_job_name_what_it_raised(tmp_path) -> None:
    log = tmp_path / "log"
    log.write_text("start\n╭─ Traceback ─╮\n│ line 14 │\n│ RuntimeError: no room; api_key=abcdef123456 │\n╰──╯\n")
    assert log_tail(log) == "RuntimeError: no room; api_key=[redacted]"
    log.write_text("one\n\ntwo\n")
    assert log_tail(log) == "one two"
    assert log_tail(tmp_path / "none") == ""
