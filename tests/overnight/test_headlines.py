"""The first lines of the morning: what is urgent comes first, and stands in the message that is sent."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from support.nights import make_night
from terminalbench.archivist.gains import Gain, GainKind
from terminalbench.overnight import loop
from terminalbench.overnight.headlines import headlines, next_steps
from terminalbench.overnight.lessons_report import LessonEffect, LessonsSummary
from terminalbench.overnight.summary import project_night
from terminalbench.overnight.summary_model import model_name
from terminalbench.overnight.training_report import TrainedNight
from terminalbench.runner.notify import Notifier


def test_an_alert_is_among_the_first_lines_and_a_message_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [f"t{n}" for n in range(8)]
    marks = [{"p": dict.fromkeys(tasks, "+")}] * 3 + [{"p": dict.fromkeys(tasks, "x")}]
    night = make_night(tmp_path / "night", marks)
    summary = project_night(night.folder)
    assert len(summary.alerts) == 1
    assert summary.headlines[1] == summary.alerts[0]
    assert not any("flaky" in step for step in summary.next_steps), "they vary because something broke"
    sent: list[str] = []

    def send(_urls: list[str], text: str) -> None:
        sent.append(text)

    made = Notifier("night", ["x://y"], frozenset({"finished", "regression"}), send)
    monkeypatch.setattr(loop.Notifier, "by", lambda *_: made)
    monkeypatch.setattr(loop, "load_base", lambda *_: SimpleNamespace(notify=None))
    given: Any = SimpleNamespace(folder=night.folder, config=night.config)
    assert loop._notify(given, summary) == []
    assert sent[0].startswith("night: small 1, run tbrun-1: finished; 4 of 4 iterations over, 32 of 32 trials measured")
    assert sent[0] == "night: " + "\n".join(summary.headlines[:4]), "the first lines, each whole"
    assert sent[1].startswith("night: p: iteration 4 passed 0 of 8")


@pytest.mark.parametrize(
    ("model", "profile", "simulated", "shown"),
    [
        ("ollama:qwen3:8b", "ollama-qwen3-8b", False, "ollama:qwen3:8b"),
        ("simulated/weak", "careful", True, "careful (simulated/weak)"),
        ("x/y", "x-y", True, "x/y (simulated)"),
        ("x/y", "plain", True, "plain (x/y, simulated)"),
    ],
)
def test_profiles_of_one_model_are_told_apart(model: str, profile: str, simulated: bool, shown: str) -> None:
    assert model_name(model, profile, simulated=simulated) == shown


def test_what_was_learned_and_what_waits_stand_in_the_first_lines(tmp_path: Path) -> None:
    summary = project_night(make_night(tmp_path / "night", [{"p": {"a": "+"}}] * 2).folder)
    waits = "challenger p12 waits for its canary: tbench overnight --learn plan.toml (this one cost $2.00)"
    gain = Gain(
        kind=GainKind.TRANSFER, profile="p-lessons", control="p", policy_id="q", batches=2, tasks=9, trials=240,
        control_trials=240, difference=0.271, low=0.18, high=0.35, verdict="better",
    )  # fmt: skip
    effects = [
        LessonEffect(id="l-1", text="Do: Skip it.", state="retired", mean=-0.2, sd=0.03, trials=240, shown=90),
        LessonEffect(id="l-2", text="Do: Run it.", state="active", mean=0.279, sd=0.048, trials=240, shown=170),
    ]
    lessons = LessonsSummary(
        mode="masked", reflector="our own rules", gains=[gain], reflections=[], cost_usd=None, cost_unknown=0,
        effects=effects, trials=240, control_trials=120, control_cost_usd=1.5,
    )  # fmt: skip
    training = TrainedNight(training="t", night=1, lines=["x"], waits=waits)
    told = replace(summary, lessons=lessons, training=training)
    first = headlines(told)[:4]
    assert first[1] == (
        "Transfer gain of p-lessons against p: +27.1 pt, 95 % from +18.0 pt to +35.0 pt, over 9 tasks, 240 and 240 trials: "
        "better, with 1 look counted"
    )
    assert first[2] == "lesson l-2, active, +27.9 pt (sd 4.8 pt, 240 trials): Do: Run it."
    assert first[3].startswith(
        "learning took 120 control trials for $1.50 beside 240 with lessons, which passed 65 more"
    )
    assert next_steps(told, tmp_path)[0] == waits
    stopped = replace(told, status="stopped", training=None, lessons=None)
    assert not any("--resume" in step for step in next_steps(stopped, tmp_path)), "nothing of it is left"
    assert "--resume" in next_steps(replace(stopped, iterations_planned=5), tmp_path)[0]
