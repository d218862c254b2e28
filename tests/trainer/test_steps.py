"""How far a night of a training is: parts, trials, what is left, on a terminal and in the live view."""

from pathlib import Path

import pytest

from support.experiments import Project
from support.live import START, at
from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.json_files import write_json
from terminalbench.locks import lock
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import NightConfig, NightModel, NightState, NightTraining
from terminalbench.overnight.summary_model import TrainedNight, TrainingStep, step_line
from terminalbench.records.event import Event, EventKind
from terminalbench.runner.worktree import CodePin
from terminalbench.trainer.batches import TrialCounter
from terminalbench.watch.night import NightFeed, NightPage, render_night

STEP = TrainingStep(nights=8, part="explore-1", share=0.35, trials=60, done=20, ran=10, began=1000.0)
NIGHT = TrainedNight(training="prompts", night=3, lines=[], cost_usd=1.25, cost_unknown=0, stopped="x", step=STEP)


def ended() -> Event:
    return Event(at(1), EventKind.TRIAL_ENDED, "j", pid=1)


def test_parts_and_trials_are_counted_and_what_ran_before_a_kill_took_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("terminalbench.trainer.batches.SEC", 0.0)
    told: list[TrainingStep] = []
    steps = TrialCounter(8, 60, told.append)
    steps.begin("control", 15)
    steps.end(15)  # it was over before
    steps.begin("explore-1", 21)
    steps.event(ended())
    steps.event(ended())
    assert [(one.part, one.done, one.ran) for one in told] == [
        ("control", 0, 0),
        ("explore-1", 15, 0),
        ("explore-1", 16, 1),
        ("explore-1", 17, 2),
    ]
    assert told[-1].share == pytest.approx(0.35)
    assert told[1].left_sec(told[1].began + 60) is None
    assert told[-1].left_sec(told[-1].began + 60) == pytest.approx(30 * 43)


def test_the_line_says_all_of_it() -> None:
    assert step_line(NIGHT, 1060.0) == (
        "training prompts, night 3 of 8, explore-1 (35 %), 20 of 60 trials, $1.25, at most 4.0 min left"
    )
    assert step_line(TrainedNight(training="p", night=1, lines=[]), 0.0) is None


def watched(root: Path) -> NightFeed:
    folder = NightFolder(root / "night")
    folder.folder.mkdir()
    config = NightConfig(
        run_id="tbrun-1", created_at=at(0), suite="s.toml", suite_name="prompts", suite_version="1", suite_digest="d",
        models=[NightModel("m", "champion", "p1")], tasks=["a"], iterations=1, attempts=1, seed=1, workers=1,
        code=CodePin("copy", "/r", "/s"), learn=NightTraining("plan.toml", "prompts", 3),
    )  # fmt: skip
    write_json(folder.config_json, config)
    write_json(folder.state_json, NightState("tbrun-1", SharedClock("b", 0.0, START), status="finished"))
    return NightFeed(folder)


@pytest.mark.parametrize("width", [80, 140])
def test_the_live_view_of_a_night_shows_its_training(project: Project, width: int) -> None:
    feed = watched(project.root)
    with lock(feed.folder.lock, "night"):
        feed.poll()
        assert "training" not in "\n".join(line.plain for line in render_night(NightPage(feed, START), width, 24))
        write_json(feed.folder.training_json, NIGHT)
        assert feed.poll()
        lines = [line.plain for line in render_night(NightPage(feed, START + 1), width, 24)]
    assert "training 1.0 s" in lines[0]
    assert lines[2].startswith("training prompts, night 3 of 8")
    assert "explore-1 (35 %)" in lines[2]
    assert ("$1.25" in lines[2]) is (width == 140)  # the line above has the night's
    assert max(map(len, lines)) <= width
    feed.poll()
    assert NightPage(feed).word == "finished"  # whoever ran it is gone
