"""A program that listens to a run: what it raises neither loses the run nor stays unsaid."""

import logging

import pytest
from test_run import scripted

import terminalbench
from terminalbench.live.processes import live_processes


def test_a_listener_that_raises_is_told_once_and_the_run_goes_on(lab, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def listener(event) -> None:
        heard.append(event.kind)
        raise ValueError("mine")

    with lab.inside(), caplog.at_level(logging.WARNING):
        done = terminalbench.run(lab.experiment(scripted("p")), listener=listener)
    assert (done.complete, done.interrupted, done.measured) == (True, False, 2)
    assert len(heard) == 1
    said = f"the listener failed at {heard[0]} and is not called any more: ValueError: mine"
    assert done.problems == (said,)
    assert [record.message for record in caplog.records] == [said]


def test_a_listener_can_stop_a_run_cleanly(lab) -> None:
    def listener(event) -> None:
        if event.kind == "trial_phase" and event.phase == "agent":
            raise KeyboardInterrupt

    with lab.inside():
        with pytest.raises(KeyboardInterrupt):
            terminalbench.run(lab.experiment(scripted("p", free=0), tasks=("a",)), listener=listener)
        assert not live_processes(lab.batch())
        lab.go()
        done = terminalbench.resume(lab.batch())
    assert (done.complete, done.measured) == (True, 1)
    assert [row.trial.outcome for row in done.view.superseded if row.trial] == ["cancelled"]
