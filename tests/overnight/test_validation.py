"""The sample of attempts that Claude runs too, and how far the two agree."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.nights import make_night
from terminalbench.errors import UserError
from terminalbench.overnight.iteration_files import labelled, view_of
from terminalbench.overnight.night import NightModel, Role
from terminalbench.overnight.validation import Candidate, TaskKind, Validation, sample, validate
from terminalbench.records.trial import TaskRef

CANDIDATES = st.lists(st.sampled_from("abc"), min_size=1, max_size=40).map(
    lambda kinds: [Candidate(TaskRef(f"t{n}", "d"), TaskKind(category=kind)) for n, kind in enumerate(kinds)]
)
CLAUDE = NightModel("claude-code", "claude-code", "id-claude-code")


@given(CANDIDATES, st.integers(1, 4), st.floats(0, 1), st.integers(0, 5))
def test_the_draw_is_exact_in_all_and_by_kind(tasks: list[Candidate], attempts: int, rate: float, seed: int) -> None:
    found = sample(tasks, attempts, rate, seed)
    assert found == sample(tasks, attempts, rate, seed)
    total = len(tasks) * attempts
    assert len(found) == len(set(found)) == (max(1, round(rate * total)) if rate else 0)
    kinds = {one.task: one.kind for one in tasks}
    drawn = Counter(kinds[pair.task] for pair in found)
    for kind, size in Counter(kinds.values()).items():
        assert abs(drawn[kind] - len(found) * size * attempts / total) < 1
    taken = Counter(pair.task for pair in found)
    for kind in set(kinds.values()):
        counts = [taken[task] for task, own in kinds.items() if own == kind]
        assert max(counts) - min(counts) <= 1, "no task twice before every other of its kind once"
    assert all(1 <= pair.attempt <= attempts for pair in found)


def test_every_task_has_the_same_chance() -> None:
    tasks = [Candidate(TaskRef(f"t{n}", "d"), TaskKind(category="ab"[n % 2])) for n in range(10)]
    drawn = Counter(pair.task.id for seed in range(600) for pair in sample(tasks, 1, 0.2, seed))
    assert sum(drawn.values()) == 1200
    assert all(80 < drawn[f"t{n}"] < 160 for n in range(10))


@pytest.mark.parametrize(("rate", "attempts"), [(-0.1, 1), (1.1, 1), (float("nan"), 1), (0.5, 0)])
def test_nonsense_is_refused(rate: float, attempts: int) -> None:
    with pytest.raises(UserError):
        sample([Candidate(TaskRef("a", "d"), TaskKind())], attempts, rate, 1)


def validated(place: Path, marks: list[dict[str, dict[str, str]]], **config: Any) -> Validation | None:
    night = make_night(place, validation_rate=0.2, **config)
    for number, one in enumerate(marks, start=1):
        night.batch(number, one, role=Role.VALIDATION, cost=0.25)
    batches = labelled(night.folder, night.config.run_id)
    return validate(night.config, [view_of(night.folder, batch) for batch in batches.values()])


def test_agreement_by_hand(tmp_path: Path) -> None:
    marks = [
        {"p": {"a": "+", "b": "x", "c": "+", "d": "+"}, "claude-code": {"a": "+", "b": "+", "c": "x", "d": "E"}},
        {"p": {"a": "+", "b": "x", "c": "x", "d": "x"}, "claude-code": {"a": "+", "b": "+", "c": "x", "d": "x"}},
    ]
    found = validated(tmp_path / "night", marks, validation=CLAUDE, validation_budget_usd=5.0)
    assert found is not None
    one = found.against[0]
    assert (one.agreement.pairs, one.agreement.agreed, one.unmeasured) == (7, 4, 1)
    by_chance = 3 / 7 * 4 / 7 + 4 / 7 * 3 / 7
    assert one.agreement.kappa == pytest.approx((4 / 7 - by_chance) / (1 - by_chance))
    assert [(s.task_id, s.pairs) for s in one.only_validator] == [("b", 2)]
    assert [(s.task_id, s.pairs) for s in one.only_profile] == [("c", 1)]
    assert (found.pairs, found.cost_usd, found.cost_unknown) == (8, pytest.approx(4.0), 0)
    assert "of a cap of $5.00" in found.sentence


def test_kappa_has_an_interval_where_there_are_enough_pairs(tmp_path: Path) -> None:
    marks = [{"p": {"a": "+", "b": "x"}, "claude-code": {"a": "+", "b": "x" if n else "+"}} for n in range(6)]
    found = validated(tmp_path / "night", marks, validation=CLAUDE)
    assert found is not None
    agreed = found.against[0].agreement
    assert agreed.kappa_low is not None
    assert agreed.kappa is not None
    assert agreed.kappa_low < agreed.kappa < 1
    assert f"kappa {agreed.kappa:.2f} ({agreed.kappa_low:.2f} to " in found.against[0].sentence
    assert "without a separate cap" in found.sentence


def test_off_is_said(tmp_path: Path) -> None:
    found = validated(tmp_path / "night", [], validation_off="Claude Code is not signed in")
    assert found is not None
    assert (found.off, found.pairs, found.sentence) == (
        "Claude Code is not signed in", 0, "off: Claude Code is not signed in",
    )  # fmt: skip
    plain = make_night(tmp_path / "other")
    assert validate(plain.config, []) is None
