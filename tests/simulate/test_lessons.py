"""A small version of the simulation of lessons in every test run, and the figures of the page. Seeded."""

import json
from pathlib import Path

import pytest

from conftest import REPO
from simulate.learning import learn_for_nights
from simulate.lessons import EFFECTS, KEPT, World, follow, retired, table


def test_the_lesson_that_helps_is_shown_more_and_the_one_that_harms_less_than_by_keeping_all() -> None:
    kept, learned = (
        [follow(World(seed), policy, nights=10) for seed in range(2)] for policy in ("keep all", "by effect")
    )
    assert sum(one.gains[10] for one in learned) > sum(one.gains[10] for one in kept) + 0.01
    assert all(one.shown["harms"] < 0.2 for one in learned)
    assert all(one.kept["helps"] == 1 for one in learned)
    assert not any(one.own for one in (*kept, *learned)), "no trial is shown what comes from its family"


def test_lessons_are_retired_at_known_levels() -> None:
    assert retired(-0.15, reps=4, iterations=15) == 1
    assert retired(0.1, reps=4, iterations=15) == 0


def test_without_effects_there_is_nothing_to_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in EFFECTS:
        monkeypatch.setitem(EFFECTS, kind, 0.0)
    assert follow(World(5), "by effect", nights=3).gains[3] == 0.0


def test_after_three_iterations_prompts_hold_what_helps_and_not_what_harms(tmp_path: Path) -> None:
    """As a scripted model server received them; `tests/simulate/learning.py` looks at five seeds."""
    found = learn_for_nights(tmp_path, seed=1)
    assert found.helps >= 0.7
    assert found.harms <= 0.15


def test_the_page_has_the_figures_that_were_measured() -> None:
    page = (REPO / "docs" / "design" / "learning-measured.md").read_text(encoding="utf-8")
    found = json.loads(KEPT.read_text())
    assert table(found) in page
    for name, share in found["retired"].items():
        assert f"| {name} | {share:.0%} |".replace("%", " %") in page
