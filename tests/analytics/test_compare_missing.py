"""A comparison where trials crashed, are missing or were drawn again: what that does to its verdict."""

import itertools
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from support.rows import Marks, contrast, rows, settings, table
from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Contrast
from terminalbench.analytics.settings import ComparisonSettings
from terminalbench.index.queries import Rerun
from terminalbench.lab.compare import gate
from terminalbench.records.trial import Outcome
from terminalbench.report.comparison import comparison_text
from terminalbench.report.sentences import looks_sentence, missing_sentence
from terminalbench.text.reasons import doubt


def test_crashes_both_ways() -> None:
    marks = table(a="++ xx +x ++", b="++ xE +E +E")
    found = contrast(marks, settings(coverage=0.5))
    assert found.estimate.difference == pytest.approx(0.125)
    assert found.other_way.difference == pytest.approx(-0.125)
    turned = contrast(marks, settings(coverage=0.5, rule="fail"))
    assert (turned.estimate, turned.other_way) == (found.other_way, found.estimate)


def test_too_little_coverage_is_inconclusive_and_says_so() -> None:
    marks = table(a="xxxxx " * 12, b="++++E " * 12)
    assert contrast(marks, settings(coverage=0.8)).verdict == "better"
    found = contrast(marks)
    assert found.verdict == "inconclusive"
    assert found.sentence.endswith("inconclusive, because only 80.0 % of what b was to do was measured (90.0 % wanted)")
    assert found.coverage_new == pytest.approx(0.8)


def test_a_gain_that_rests_on_what_was_left_out_is_no_gain() -> None:
    marks = table(a="+x +x +x +x +x +x +x +x", b="+E +E +E +E +E +E +E +E")
    found = contrast(marks, settings(coverage=0))
    assert found.estimate.difference == 0.5
    assert found.p_adjusted is not None
    assert found.p_adjusted < 0.05
    assert found.verdict == "inconclusive"
    assert found.sentence.endswith('because "better" would not hold if 3 of 8 missing trials went against it')


@pytest.mark.parametrize("rule", ["exclude", "fail"])
def test_passes_that_the_other_one_lost_are_no_gain(rule: str) -> None:
    """The old profile's trials broke where it would have passed: counted as not passed, that was a gain of the new."""
    old = "+++++++++E " * 6 + "+++++++++++ " * 6
    found = contrast(table(a=old, b="++++++++++ " * 6 + "+++++++++++ " * 6), settings(rule=rule))
    assert found.missing is not None
    assert (found.missing.new, found.missing.old, found.verdict) == (0, 6, "inconclusive")
    assert found.missing.lowest.difference == 0.0
    assert found.missing.highest.difference == pytest.approx(0.05)
    if rule == "fail":
        assert found.p_adjusted == 0.03125
        assert found.missing.verdict == "better"
        assert found.reason == '"better" would not hold if 1 of 6 missing trials went against it'
    turned = contrast(table(a="++++++++++ " * 6 + "+++++++++++ " * 6, b=old), settings(rule=rule))
    assert turned.verdict == "inconclusive"


def test_a_verdict_that_survives_the_worst_holds() -> None:
    found = contrast(table(a="xxxxx " * 11 + "xxxxE", b="+++++ " * 11 + "++++E"))
    assert found.verdict == "better"
    assert found.missing is not None
    assert (found.missing.undone_by, found.missing.new, found.missing.old) == (None, 1, 1)
    assert found.missing.lowest.difference == pytest.approx((11 + 0.6) / 12)


def test_equivalence_must_survive_the_worst_both_ways() -> None:
    whole = contrast(table(a="+++++ " * 60, b="+++++ " * 60), settings(margin=0.1))
    assert whole.verdict == "equivalent"
    lost = contrast(table(a="+++++ " * 50 + "++++E " * 10, b="+++++ " * 60), settings(margin=0.055))
    assert lost.missing is not None
    assert (lost.missing.verdict, lost.verdict) == ("equivalent", "inconclusive")
    assert lost.reason is not None
    assert lost.reason.startswith('"equivalent" would not hold if ')
    assert lost.reason.endswith("of 10 missing trials favoured the same profile")


SMALL = st.lists(
    st.tuples(st.text("+x", min_size=2, max_size=2), st.text("+x", min_size=2, max_size=2)), min_size=6, max_size=9
)


@limits(max_examples=15, deadline=None)
@given(SMALL, st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 8)), min_size=1, max_size=4, unique=True))
def test_fewer_than_the_tipping_point_cannot_undo_it(tasks: list[tuple[str, str]], lost: list[tuple[str, int]]) -> None:
    """Every way in which the missing trials can have ended, tried out."""
    words = {"a": [f"{old}x" for old, _ in tasks], "b": [f"{new}+" for _, new in tasks]}
    lost = [(side, place % len(tasks)) for side, place in lost]
    lost = list(dict.fromkeys(lost))

    def found(marks: str) -> Contrast:
        filled = {name: list(cells) for name, cells in words.items()}
        for (side, place), mark in zip(lost, marks, strict=True):
            filled[side][place] = filled[side][place][:2] + mark
        return contrast(table(**{n: " ".join(cells) for n, cells in filled.items()}), settings(coverage=0))

    missing = found("E" * len(lost)).missing
    assert missing is not None
    held = found("E" * len(lost)).verdict
    against = {"b": "x", "a": "+"}
    for marks in itertools.product("+x", repeat=len(lost)):
        turned = sum(mark == against[side] for (side, _), mark in zip(lost, marks, strict=True))
        if held == "better" or (missing.verdict == "better" and missing.undone_by and turned < missing.undone_by):
            assert found("".join(marks)).verdict == "better"


@pytest.mark.parametrize("lost", ["changed", "only one"])
def test_tasks_that_cannot_be_compared_lower_coverage(lost: str) -> None:
    marks = {name: dict(tasks) for name, tasks in table(a="xx " * 10, b="++ " * 10).items()}
    if lost == "only one":
        del marks["a"]["t1"], marks["b"]["t2"]
    data = [
        msgspec.structs.replace(
            row, task_digest=row.profile if lost == "changed" and row.task.id in ("t1", "t2") else "d"
        )
        for row in rows(marks)
    ]
    found = compare(data, settings()).contrasts[0]
    assert (found.coverage_new, found.coverage_old, found.verdict) == (0.8, 0.8, "inconclusive")
    assert found.reason == "only 8 of 10 tasks are the same for both (90.0 % wanted)"
    assert compare(data, settings(coverage=0.8)).contrasts[0].verdict == "better"


def test_doubtful_results_are_said_and_too_many_are_no_ground_for_a_verdict() -> None:
    data = rows(table(a="xxxxx " * 8, b="+++++ " * 8))
    few = [
        msgspec.structs.replace(row, suspect=("no_tool_calls",) if row.task.id == "t1" and row.profile == "b" else ())
        for row in data
    ]
    found = compare(few, settings(doubtful=0.125)).contrasts[0]
    assert (found.doubtful_new, found.doubtful_old, found.verdict) == (0.125, 0.0, "better")
    assert found.warnings == [f"5 results of 40 of b look doubtful: 5 x {doubt('no_tool_calls')}"]
    held = compare(few, settings()).contrasts[0]
    why = "12.5 % of b's results look doubtful: no_tool_calls (analysis.doubtful allows 10.0 %)"
    assert (held.verdict, held.reason) == ("inconclusive", why)
    assert gate(compare(few, settings()), "worse") == {"b vs a": "undecided"}


def test_the_command_that_gets_missing_trials_back() -> None:
    data = [
        msgspec.structs.replace(row, batch=f"s/{row.attempt - 1}", rerun=rerun)
        for row in rows(table(a="++ E. ++", b="++ ++ .+"))
        for rerun in [{"errored": Rerun.RETRY, "not_run": Rerun.RESUME}.get(row.outcome.value)]
    ]
    found = compare(data, settings())
    assert [one.command for one in found.repeat] == ["tbench resume s/0 --retry-errors", "tbench resume s/1"]
    assert [one.trials for one in found.repeat] == [2, 1]
    assert [one.command for one in compare(data, settings(places={"s/1": "my results/s/1"})).repeat] == [
        "tbench resume 'my results/s/1'"
    ]
    third = [*data, *(msgspec.structs.replace(row, profile="c") for row in data if row.profile == "a")]
    assert [one.trials for one in compare(third, settings()).repeat] == [2, 1], "c is not compared"
    sound = [row for row in data if row.profile != "a"]
    others = [*sound, *(msgspec.structs.replace(row, profile="a", rerun=None) for row in sound)]
    assert [one.trials for one in compare(others, settings()).repeat] == [1]


def test_error_rates_that_differ_are_flagged() -> None:
    found = contrast(table(a="++++++ " * 5, b="+++EEE " * 5), settings(coverage=0))
    assert found.error_rate_p is not None
    assert found.error_rate_p < 0.001
    assert any("broke at different rates (b 15 of 30, a 0 of 30)" in warning for warning in found.warnings)
    assert contrast(table(a="+x.. " * 5, b="+x++ " * 5)).error_rate_p is None, "what never ran is no error"


def redrawn(marks: Marks, tries: dict[str, int], **fields: Any) -> Contrast:
    """The contrast where each pass of a profile came after so many tries that broke while its agent worked."""
    made = [
        msgspec.structs.replace(row, broken=tries.get(row.profile, 0), redrawn=tries.get(row.profile, 0))
        if row.outcome is Outcome.PASSED
        else row
        for row in rows(marks)
    ]
    return compare(made, settings(**fields)).contrasts[0]


LUCKY = table(a="+ x x x + x x x + x x x", b="+ " * 12)


def test_passes_that_were_drawn_again_until_they_came_decide_nothing() -> None:
    assert contrast(LUCKY).verdict == "better"
    found = redrawn(LUCKY, {"b": 2})
    assert found.verdict == "inconclusive"
    assert found.reason is not None
    assert found.reason.startswith('"better" would not hold if ')
    assert found.reason.endswith(
        " of 12 missing trials (those that broke and were run again are among them) went against it"
    )
    assert found.missing is not None
    assert (found.missing.new, found.missing.redrawn_new, found.missing.redrawn_old) == (0, 12, 0)
    assert found.missing.lowest.difference == pytest.approx(-0.25)
    told = "trials broke at different rates, including tries that were run again (b 24 of 36, a 0 of 12)"
    assert any(told in warning for warning in found.warnings)
    assert "after they broke, so their first result is unknown: 12 trials of b; if measured" in missing_sentence(found)
    assert redrawn(LUCKY, {"b": 2}, looks="any").verdict == "inconclusive"


def test_an_outage_that_hit_both_alike_costs_no_verdict() -> None:
    marks = table(a="x+ " * 12, b="++ " * 12)
    assert contrast(marks).verdict == "better"
    found = redrawn(marks, {"a": 2, "b": 1})
    assert (found.verdict, found.missing) == ("better", None)
    few = [
        msgspec.structs.replace(row, broken=1, redrawn=1) if row.profile == "b" and row.task.id == "t1" else row
        for row in rows(marks)
    ]
    assert compare(few, settings()).contrasts[0].verdict == "better", "one task more is no sign of another rate"


def test_a_verdict_that_stands_only_by_trials_drawn_again_after_a_crash_is_withheld() -> None:
    """An agent that acts without a sign and crashes where it fails is taken for one that did not start."""

    def found(wins: int, crashed: int) -> Contrast:
        marks = table(a="x " * wins + "+ " * (12 - wins), b="+ " * 12)
        first = ("b", "t1")
        made = [
            msgspec.structs.replace(row, broken=1, redrawn=1, crashed=crashed)
            if (row.profile, row.task.id) == first
            else row
            for row in rows(marks)
        ]
        return compare(made, settings()).contrasts[0]

    assert found(6, 0).verdict == "better", "one outage is no sign of anything"
    held = found(6, 1)
    assert held.verdict == "inconclusive"
    assert (
        held.reason
        == '"better" would not hold if 1 of 1 missing trial (those that broke and were run again are among them) went against it'
    )
    assert held.missing is not None
    assert (held.missing.redrawn_new, held.missing.redrawn_old) == (1, 0)
    assert found(8, 1).verdict == "better", "it stands without that trial"
    failed = [
        msgspec.structs.replace(row, broken=1, redrawn=1, crashed=1)
        if (row.profile, row.task.id) == ("a", "t1")
        else row
        for row in rows(table(a="x " * 6 + "+ " * 6, b="+ " * 12))
    ]
    assert compare(failed, settings()).contrasts[0].verdict == "better", "a fail after a crash hides no pass"


def test_set_ups_that_were_tried_again_drew_no_result_again() -> None:
    made = [msgspec.structs.replace(row, broken=2) if row.profile == "b" else row for row in rows(LUCKY)]
    found = compare(made, settings()).contrasts[0]
    assert found.verdict == "better"
    assert any("broke at different rates" in warning for warning in found.warnings)


def test_what_is_missing_is_said() -> None:
    found = compare(rows(table(a="++ ..", b="++ C+")), settings())
    assert found.warnings == [
        "a: 2 of 4 planned trials have not run or were cut off",
        "b: 1 of 4 planned trials have not run or were cut off",
        "a: pass@k is not shown, because it needs all planned tasks, and 1 of 2 were never measured",
    ]


@pytest.mark.parametrize(
    ("tasks", "setup"),
    [
        (5, {"looks": "any"}),
        (3, {"looks": 3}),
        (3, {"growth": ((("s/0", 1),), (("s/0", 2),), (("s/0", None),))}),
    ],
)
def test_too_few_tasks_decide_at_no_look(tasks: int, setup: dict) -> None:
    told = comparison_text(compare(rows(table(a="xxx " * tasks, b="+++ " * tasks)), settings(**setup)), 200)
    assert "decides" not in told
    assert "the remaining alpha is" not in told
    assert told.count(f"{tasks} tasks can never show a difference") == 2, "in the sentence and at the looks"
    found = contrast(table(a="x.. " * tasks, b="+.. " * tasks), settings(**setup, coverage=0))
    assert "can never show" in found.sentence
    assert "can never show" in looks_sentence(found)


def test_strict_is_said_with_every_verdict() -> None:
    for marks in (table(a="xxx " * 20, b="++x " * 20), table(a="+xx " * 20, b="++x " * 20)):
        told = comparison_text(compare(rows(marks), settings(strict=True)))
        assert "analysis.strict = true" in told
    assert "strict (" not in comparison_text(compare(rows(table(a="+xx " * 20, b="++x " * 20)), settings()))


def test_what_was_lost_of_what_has_begun_is_called_so() -> None:
    marks = table(a="++ +C ..", b="++ ++ ..")
    early = comparison_text(compare(rows(marks), settings(looks="any")), 200)
    assert "only 75.0 % of what a has begun was measured (90.0 % wanted)" in early
    assert "missing of those that have started: 1 trial of a; if measured, the difference would be" in early
    assert "of what b was to do was measured" in comparison_text(compare(rows(marks), settings()), 200)


@pytest.mark.parametrize("seed", range(30))
def test_the_tipping_point_is_the_smallest_number(seed: int) -> None:
    """Against every way to turn missing trials, for random results of which a few are lost."""
    random = Random(seed)
    ups = [random.choice(["+", "++", "+++"]) for _ in range(random.randint(7, 10))]
    old = ["".join(random.choice("xxxx+") for _ in word) for word in ups]
    new = list(ups)
    for side in (old, new):
        for place in random.sample(range(len(side)), random.randint(0, 2)):
            side[place] = side[place][:-1] + "E"
    setup = settings(coverage=0)
    found = contrast(table(a=" ".join(old), b=" ".join(new)), setup)
    if found.missing is None or found.missing.verdict == "inconclusive" or found.verdict != "inconclusive":
        return
    assert found.missing.exact
    assert found.missing.undone_by == _brute_force(old, new, found.missing.verdict, setup)


def _brute_force(old: list[str], new: list[str], verdict: str, setup: ComparisonSettings) -> int | None:
    lost = [(side, place) for side, words in enumerate((old, new)) for place, word in enumerate(words) if "E" in word]
    up = verdict == "better"
    for count in range(len(lost) + 1):
        for turned in itertools.combinations(lost, count):
            sides = [list(old), list(new)]
            for side, place in lost:
                passed = (side == 1) is (up is ((side, place) not in turned))
                sides[side][place] = sides[side][place].replace("E", "+" if passed else "x")
            whole = contrast(table(a=" ".join(sides[0]), b=" ".join(sides[1])), setup)
            if whole.verdict != verdict:
                return count
    return None
