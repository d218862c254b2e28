"""A small version of the simulation of lessons in every test run, and the figures of the page. Seeded."""

import json
from statistics import mean

import pytest

from conftest import REPO
from simulate.lessons import EFFECTS, KEPT, POLICIES, World, follow, measure, table


@pytest.fixture(scope="module")
def told() -> dict[str, dict[str, float]]:
    return measure(1, nights=10, trials=240)


def test_randomised_utility_beats_keeping_all_and_keeping_what_seems_important(told: dict[str, dict]) -> None:
    gains = {policy: told[policy]["night 10"] for policy in POLICIES}
    assert gains["randomised"] > gains["keep all"] + 0.005
    assert gains["randomised"] > gains["keep by importance"] + 0.005


def test_a_helpful_lesson_is_kept_a_harmful_one_retired_and_an_idle_one_shows_no_gain(told: dict[str, dict]) -> None:
    row = told["randomised"]
    assert row["helps kept"] >= 0.8
    assert row["harms kept"] <= 0.4
    assert row["helps believed"] > 0.04
    assert row["harms believed"] < -0.02
    assert abs(row["idle believed"]) < 0.02
    assert row["held"] >= 0.85


def test_no_trial_is_shown_what_comes_from_its_family(told: dict[str, dict]) -> None:
    assert {told[policy]["own shown"] for policy in POLICIES} == {0}


def test_without_effects_there_is_nothing_to_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in EFFECTS:
        monkeypatch.setitem(EFFECTS, kind, 0.0)
    found = follow(World(5), "randomised", nights=6)
    assert found.gains[6] == 0.0
    assert abs(mean(value for values in found.seen.values() for value in values)) < 0.03


def test_the_page_has_the_figures_that_were_measured() -> None:
    page = (REPO / "docs" / "tbench" / "learning-loop.md").read_text(encoding="utf-8")
    assert table(json.loads(KEPT.read_text())) in page
