"""The first lines of the morning: what is urgent comes first, and stands in the message that is sent."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.nights import make_night
from terminalbench.overnight import loop
from terminalbench.overnight.summary import project_night
from terminalbench.overnight.summary_model import model_name
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
