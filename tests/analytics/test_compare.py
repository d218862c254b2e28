"""A comparison as a whole: what it says of published examples, of edge cases, and what it can never say."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from support.rows import Marks, rows, settings, table
from terminalbench.analytics.compare import compare
from terminalbench.analytics.gate import gate
from terminalbench.analytics.model import Comparison, Contrast
from terminalbench.analytics.sentence import excludes_zero
from terminalbench.analytics.settings import Settings, There
from terminalbench.errors import UserError
from terminalbench.files import encode_json
from terminalbench.index.queries import Rerun
from terminalbench.index.totals import Spend
from terminalbench.records import Outcome
from terminalbench.report.comparison import comparison_text
from terminalbench.report.sentences import looks_sentence, missing_sentence

PROFILE = st.text("+xE.TC", min_size=1, max_size=4)
GRID = st.integers(1, 12).flatmap(lambda n: st.tuples(*[st.lists(PROFILE, min_size=n, max_size=n).map(" ".join)] * 2))


def contrast(marks: Marks, setup: Settings | None = None, **fields) -> Contrast:
    return compare(rows(marks, **fields), setup or settings()).contrasts[0]


def test_three_of_seven_against_four_of_seven_is_inconclusive() -> None:
    marks = table(text="+ + + x x x x", codecanvas="+ x + + + x x")
    found = contrast(marks, settings("codecanvas", "text"))
    assert found.verdict == "inconclusive"
    assert found.estimate.difference == pytest.approx(1 / 7)
    assert (found.estimate.wins, found.estimate.losses, found.estimate.ties) == (2, 1, 4)
    assert found.smallest_detectable is not None
    assert found.smallest_detectable == pytest.approx(0.9, abs=0.02), "six of seven tasks would have to agree"
    assert found.sentence == (
        "codecanvas vs text: +14.3 pt (-49.5 to +78.1), 2 tasks better, 1 worse, p = 1.00: inconclusive; "
        f"14 trials can only show gaps above {100 * found.smallest_detectable:.1f} pt"
    )
    assert found.trials_needed is None, "nothing is promised of the gap that happened to be seen"
    wanted = contrast(marks, settings("codecanvas", "text", effect=0.1))
    assert wanted.trials_needed is not None
    assert wanted.trials_needed > 300


def test_five_of_five_against_none_of_five_on_twelve_tasks_is_a_win() -> None:
    found = contrast(table(a=" ".join(["xxxxx"] * 12), b=" ".join(["+++++"] * 12)))
    assert found.verdict == "better"
    assert found.p_adjusted == pytest.approx(2 / 2**12)
    assert found.estimate.interval is not None
    assert 0.5 < found.estimate.interval.low < found.estimate.interval.high == 1.0
    assert found.sentence.endswith("12 tasks better, 0 worse, p < 0.001: better")


def test_five_tasks_can_never_show_anything() -> None:
    found = contrast(table(a="xxx xxx xxx xxx xxx", b="+++ +++ +++ +++ +++"))
    assert (found.verdict, found.smallest_detectable) == ("inconclusive", None)
    assert found.sentence.endswith("5 tasks can never show a difference at this alpha")


@pytest.mark.parametrize(
    ("metric", "fields"),
    [("cost", {"spent": Spend(2.0)}), ("tokens", {"spent": Spend(tokens=2)}), ("time", {"agent_sec": 2.0})],
)
def test_equal_values_are_not_too_few_tasks(metric: str, fields: dict[str, Any]) -> None:
    found = contrast(table(a="+ " * 8, b="+ " * 8), settings(metric=metric), **fields)
    assert (found.verdict, found.smallest_detectable) == ("inconclusive", None)
    assert found.sentence.endswith(
        "the difference is the same on all 8 tasks, so nothing says which gaps 16 trials can show"
    )
    few = contrast(table(a="+ " * 5, b="+ " * 5), settings(metric=metric), **fields)
    assert few.sentence.endswith("5 tasks can never show a difference at this alpha")


@pytest.mark.parametrize("margin", [None, 0.05, 0.2])
def test_identical_results_are_not_proof_of_equality(margin: float | None) -> None:
    words = " ".join(["+", "x"] * 10)
    found = contrast(table(a=words, b=words), settings(margin=margin))
    assert found.estimate.p == 1.0
    assert found.verdict == ("equivalent" if margin == 0.2 else "inconclusive")
    assert found.smallest_detectable is not None


def test_one_task() -> None:
    found = contrast(table(a="xxx", b="+++"))
    assert (found.verdict, found.estimate.units, found.estimate.interval) == ("inconclusive", 1, None)
    assert found.sentence.startswith("b vs a: +100.0 pt, 1 task better, 0 worse, p = 1.00: inconclusive; 1 task can")


def test_no_common_task() -> None:
    found = contrast({"a": {"one": "+"}, "b": {"two": "+"}})
    assert found.sentence == "b vs a: no task was measured under both: inconclusive"
    assert ([t.id for t in found.only_new], [t.id for t in found.only_old]) == (["two"], ["one"])


def test_only_common_tasks_count_and_the_rest_is_listed() -> None:
    marks = {"a": {"one": "+x", "two": "++", "four": "EE"}, "b": {"one": "xx", "three": "++", "four": "EE"}}
    found = contrast(marks, settings(coverage=0))
    assert [d.task.id for d in found.tasks] == ["one"]
    assert found.estimate.difference == -0.5
    assert ([t.id for t in found.only_new], [t.id for t in found.only_old]) == (["three"], ["two"])
    assert [t.id for t in found.unmeasured] == ["four"]


def test_tasks_weigh_equally_whatever_their_attempts() -> None:
    marks = {"a": {"one": "+", "two": "x"}, "b": {"one": "x" * 9 + "+", "two": "+"}}
    assert contrast(marks).estimate.difference == pytest.approx((-0.9 + 1.0) / 2)


def test_each_interval_says_which_question_it_answers() -> None:
    found = contrast(table(a="+x +x xx ++ x+ ++", b="++ +x x+ ++ ++ x+")).estimate
    assert found.interval is not None
    assert found.suite_interval is not None
    assert "like these" in found.interval.question
    assert "these same tasks" in found.suite_interval.question
    assert contrast(table(a="+ x +", b="x + +")).estimate.suite_interval is None


def test_families_are_the_unit_when_declared() -> None:
    marks = table(a="xx xx xx xx xx xx xx xx", b="++ ++ ++ ++ ++ ++ ++ ++")
    assert contrast(marks).verdict == "better"
    families = {f"t{n}": "even" if n % 2 == 0 else "odd" for n in range(1, 9)}
    found = contrast(marks, families=families)
    assert (found.unit, found.estimate.units, found.verdict) == ("family", 2, "inconclusive")
    assert "2 families better" in found.sentence


def test_holm_over_the_contrasts_of_a_report() -> None:
    marks = table(a="xx " * 6, b="++ " * 6, c="+x " * 6)
    setup = settings(contrasts=(("b", "a"), ("c", "a")))
    found = compare(rows(marks), setup).contrasts
    assert [c.estimate.p for c in found] == [0.03125, 0.03125]
    assert [c.p_adjusted for c in found] == [0.0625, 0.0625]
    assert {c.verdict for c in found} == {"inconclusive"}
    assert contrast(marks).verdict == "better"


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
    assert found.sentence.endswith('because "better" would not hold if 3 of the 8 missing trials went against it')


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
        assert found.reason == '"better" would not hold if 1 of the 6 missing trials went against it'
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
    assert lost.reason.endswith("of the 10 missing trials favoured the same profile")


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
    assert found.reason == "only 8 of 10 tasks are the same under both (90.0 % wanted)"
    assert compare(data, settings(coverage=0.8)).contrasts[0].verdict == "better"


def test_doubtful_results_are_said_and_too_many_are_no_ground_for_a_verdict() -> None:
    data = rows(table(a="xxxxx " * 8, b="+++++ " * 8))
    few = [
        msgspec.structs.replace(row, suspect=("no_tool_calls",) if row.task.id == "t1" and row.profile == "b" else ())
        for row in data
    ]
    found = compare(few, settings(doubtful=0.125)).contrasts[0]
    assert (found.doubtful_new, found.doubtful_old, found.verdict) == (0.125, 0.0, "better")
    assert found.warnings == ["5 results of 40 of b look doubtful: no tool calls (5)"]
    held = compare(few, settings()).contrasts[0]
    assert (held.verdict, held.reason) == ("inconclusive", "12.5 % of b's results look doubtful (at most 10.0 %)")
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
    assert found.reason.endswith(" of the 12 trials that broke and were run again went against it")
    assert found.missing is not None
    assert (found.missing.new, found.missing.redrawn_new, found.missing.redrawn_old) == (0, 12, 0)
    assert found.missing.lowest.difference == pytest.approx(-0.25)
    told = "trials broke at different rates, tries that were run again included (b 24 of 36, a 0 of 12)"
    assert any(told in warning for warning in found.warnings)
    assert "after they broke, so their first result is unknown: 12 trials of b; with them" in missing_sentence(found)
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
    assert held.reason == '"better" would not hold if the trial that broke and was run again went against it'
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
    assert "what was left of alpha is" not in told
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
    assert "missing of what has begun: 1 trial of a; with it the difference would be" in early
    assert "of what b was to do was measured" in comparison_text(compare(rows(marks), settings()), 200)


MANY = table(a="xx " * 8, b="++ " * 8)


def mixed(**per_profile) -> list:
    return [msgspec.structs.replace(row, **per_profile[row.profile]) for row in rows(MANY)]


@pytest.mark.parametrize("field", ["environment", "model", "agent_version"])
def test_what_differs_without_being_declared_is_refused(field: str) -> None:
    found = compare(mixed(a={field: "one"}, b={field: "two"}), settings()).contrasts[0]
    assert found.verdict == "inconclusive"
    assert found.refused
    assert found.estimate.difference is None
    assert "not compared (another" in found.sentence
    assert "b ran with two, a with one" in found.sentence
    assert not compare(mixed(a={field: "one"}, b={}), settings()).contrasts[0].refused, "unknown is not different"


@pytest.mark.parametrize(("field", "aspect"), [("model", "model"), ("agent_version", "agent")])
def test_a_declared_factor_may_differ(field: str, aspect: str) -> None:
    setup = settings(profiles={"a": {aspect: "one"}, "b": {aspect: "two"}})
    found = compare(mixed(a={field: "1"}, b={field: "2"}), setup).contrasts[0]
    assert (found.refused, found.warnings, found.verdict) == ([], [], "better")


def test_a_mixture_in_both_is_a_warning() -> None:
    data = [msgspec.structs.replace(row, agent_version=str(row.attempt)) for row in rows(MANY)]
    found = compare(data, settings()).contrasts[0]
    assert found.verdict == "better"
    assert found.warnings == ["more than one agent version: b ran with 1 and 2, a with 1 and 2"]


def test_a_task_that_changed_is_not_a_common_task() -> None:
    data = [
        msgspec.structs.replace(row, task_digest=f"{row.profile if row.task.id == 't1' else 'same'}")
        for row in rows(MANY)
    ]
    found = compare(data, settings()).contrasts[0]
    assert [task.id for task in found.changed] == ["t1"]
    assert found.estimate.tasks == 7
    assert any("not the same task" in warning for warning in found.warnings)
    data = [msgspec.structs.replace(row, task_digest=f"{row.task.id == 't1' and row.attempt}") for row in rows(MANY)]
    within = compare(data, settings()).contrasts[0]
    assert [task.id for task in within.changed] == ["t1"]
    assert "changed within the batch (its digest differs), left out: t1" in within.warnings, "both mix two versions"


def test_other_batches_and_other_hours_are_warned_of() -> None:
    data = mixed(
        a={"batch": "s/0", "started_at": "2026-01-01T10:00:00Z", "finished_at": "2026-01-01T11:00:00Z"},
        b={"batch": "s/1", "started_at": "2026-01-02T10:00:00Z", "finished_at": "2026-01-02T11:00:00Z"},
    )
    warnings = compare(data, settings()).contrasts[0].warnings
    assert warnings == [
        "from different batches: b from s/1, a from s/0",
        "not at the same time: b 2026-01-02 10:00 to 2026-01-02 11:00, a 2026-01-01 10:00 to 2026-01-01 11:00",
    ]


def test_the_same_treatment_twice_is_noise() -> None:
    warnings = compare(mixed(a={"profile_id": "p1"}, b={"profile_id": "p1"}), settings()).contrasts[0].warnings
    assert warnings == ["b and a are the same treatment: what differs is noise"]


def test_cheaper_is_better() -> None:
    data = [
        msgspec.structs.replace(row, spent=Spend((2.0 if row.profile == "a" else 1.0) + row.attempt / 10))
        for row in rows(MANY)
    ]
    found = compare(data, settings(metric="cost")).contrasts[0]
    assert found.verdict == "better"
    assert found.estimate.difference == pytest.approx(-1.0)
    assert found.sentence == "b vs a, cost: -$1.00, x0.53, 8 tasks better, 0 worse, p = 0.0078: better"


def test_unknown_costs_are_not_zero() -> None:
    data = [
        msgspec.structs.replace(row, spent=Spend(None if row.profile == "b" and row.attempt == 2 else 1.0))
        for row in rows(MANY)
    ]
    found = compare(data, settings(metric="cost")).contrasts[0]
    assert (found.estimate.difference, found.verdict, found.coverage_new) == (0.0, "inconclusive", 0.5)
    assert "has a known cost" in found.sentence


def test_looks_that_were_declared() -> None:
    half = table(a="xx.. " * 7, b="++.. " * 7)
    assert "only 50.0 % of what b was to do was measured" in contrast(half).sentence
    early = contrast(half, settings(looks=2))
    assert early.sequential is not None
    assert (early.sequential.look, early.sequential.looks, early.verdict) == (1, 2, "inconclusive")
    assert early.sequential.level == pytest.approx(0.0052, abs=1e-4)
    assert early.sentence.endswith("because look 1 of 2 needs p up to 0.0052")
    more = contrast(table(a="xx.. " * 9, b="++.. " * 9), settings(looks=2))
    assert more.verdict == "better"
    assert (
        contrast(table(a="x... " * 9, b="+... " * 9), settings(looks=2)).reason == "it is before the first of 2 looks"
    )
    last = contrast(table(a="xx " * 7, b="++ " * 7), settings(looks=2))
    assert last.verdict == "better"


def test_looks_are_spread_over_all_batches_that_were_declared() -> None:
    whole = contrast(table(a="xx.. " * 7, b="++.. " * 7), settings(looks=2))
    first = table(a="xx " * 7, b="++ " * 7)
    found = contrast(first, settings(looks=2, planned_trials=28))
    assert (found.sequential, found.verdict, found.reason) == (whole.sequential, "inconclusive", whole.reason)
    assert contrast(first, settings(looks=2)).verdict == "better", "by itself it is at its end"
    both = rows(first) + [msgspec.structs.replace(row, batch="s/1", attempt=row.attempt + 2) for row in rows(first)]
    assert compare(both, settings(looks=2, planned_trials=28)).contrasts[0].verdict == "better"
    more = compare(both, settings(looks=2, planned_trials=20)).contrasts[0]
    assert more.sequential is not None
    assert more.sequential.look == 2, "more than planned is not beyond the last look"


def test_batches_to_come_are_missing_where_no_early_look_was_declared() -> None:
    first = table(a="xx " * 7, b="++ " * 7)
    assert contrast(first).verdict == "better"
    found = contrast(first, settings(planned_trials=28))
    assert (found.verdict, found.coverage_new) == ("inconclusive", 0.5)
    assert "only 50.0 % of what b was to do was measured" in found.sentence


def test_equivalence_at_any_time_waits_for_the_last_batch() -> None:
    alike = table(a="++ " * 40, b="++ " * 40)
    assert contrast(alike, settings(looks="any", margin=0.2)).verdict == "equivalent"
    found = contrast(alike, settings(looks="any", margin=0.2, planned_trials=160))
    assert (found.verdict, found.reason) == ("inconclusive", "equivalence is judged once, when every trial has ended")


def test_looking_at_any_time_counts_a_task_once() -> None:
    found = contrast(table(a="xx.. " * 12, b="++.. " * 12), settings(looks="any"))
    assert found.sequential is not None
    assert (found.sequential.look, found.sequential.looks, found.verdict) == (10, 20, "better")
    assert found.sequential.decided_at is not None
    few = contrast(table(a="xxxxxxxxxx " * 3, b="++++++++++ " * 3), settings(looks="any"))
    assert (few.verdict, few.estimate.p) == ("inconclusive", 0.25), "thirty attempts at three tasks are three tasks"
    swap = contrast(
        table(a="xxxxxxxxxx " * 4 + "++++++++++ " * 3, b="++++++++++ " * 4 + "xxxxxxxxxx " * 3), settings(looks="any")
    )
    assert (swap.verdict, swap.estimate.p) == ("inconclusive", 1.0)
    early = contrast(table(a="x......... " * 10, b="+......... " * 10), settings(looks="any"))
    assert early.sequential is not None
    assert (early.sequential.look, early.verdict) == (2, "inconclusive"), "little of alpha is spent at first"


def test_a_lopsided_result_is_no_verdict_under_strict() -> None:
    """Many small wins and one task not seen yet: the test by signs decides, the bound that needs no symmetry does not."""
    marks = table(a="xxxxxxxxxx " * 20, b="+xxxxxxxxx " * 20)
    assert contrast(marks).verdict == "better"
    found = contrast(marks, settings(strict=True))
    assert (found.verdict, found.strict) == ("inconclusive", True)
    assert found.estimate.p is not None
    assert found.estimate.p > 0.05
    clear = contrast(table(a="x " * 100, b="+ " * 30 + "x " * 70), settings(strict=True))
    assert clear.verdict == "better"
    wide = [
        contrast(table(a="+xx xx+ " * 15, b="++x xx+ " * 15), settings(strict=strict)).smallest_detectable
        for strict in (True, False)
    ]
    assert (wide[0] or 0.0) > 1.2 * (wide[1] or 1.0)
    grown = settings(strict=True, growth=((("s/0", 1),), (("s/0", None),)))
    assert contrast(table(a="xxxxxxxxxx " * 20, b="+xxxxxxxxx " * 20), grown).verdict == "inconclusive"
    assert (
        contrast(table(a="xxxxxxxxxx " * 20, b="+xxxxxxxxx " * 20), settings(strict=True, looks="any")).verdict
        == "inconclusive"
    )


@limits(max_examples=25, deadline=None)
@given(GRID, st.sampled_from([1, 2, "any"]), st.booleans(), st.integers(1, 2))
def test_an_interval_without_zero_stands_beside_inconclusive_only_with_a_reason(
    grid: tuple[str, str], looks: int | str, strict: bool, contrasts: int
) -> None:
    marks = table(a=grid[0], b=grid[1], c=grid[0][::-1])
    pairs = (("b", "a"), ("c", "a"))[:contrasts]
    for found in compare(rows(marks), settings(contrasts=pairs, looks=looks, strict=strict, coverage=0.0)).contrasts:
        interval = found.estimate.interval
        if found.verdict == "inconclusive" and found.reason is None and interval is not None:
            assert interval.low <= 0 <= interval.high


def test_the_interval_has_the_level_of_its_p() -> None:
    marks = table(
        a="+x+ xx+ x+x ++x x++ +xx ++x x+x " * 2,
        b="++x x++ +x+ +x+ x++ +++ +x+ xxx " * 2,
        c="+x+ xx+ x+x " + "++x x++ +xx ++x x+x " * 3,
    )
    alone = contrast(marks).estimate.interval
    both = compare(
        rows(table(a=marks_of(marks, "a"), b=marks_of(marks, "b"), c=marks_of(marks, "b"))),
        settings(contrasts=(("b", "a"), ("c", "a"))),
    )
    widths = [c.estimate.interval for c in both.contrasts]
    assert alone is not None
    assert {round(w.level, 4) for w in widths if w is not None} == {0.975, 0.95}, "Holm's two steps"


def marks_of(marks: Marks, profile: str) -> str:
    return " ".join(marks[profile].values())


NIGHTS = ((("s/0", 1),), (("s/0", 2),), (("s/0", None),))


def test_a_batch_that_grew_without_looks_is_judged_by_what_is_left() -> None:
    marks = table(a="+xx " * 3 + "xxx " * 9, b="x++ " * 3 + "+++ " * 9)
    once = contrast(marks)
    assert (once.verdict, once.sequential) == ("better", None)
    found = contrast(marks, settings(growth=NIGHTS))
    assert found.sequential is not None
    assert (found.sequential.method, found.sequential.looks) == ("growth", 3)
    assert found.sequential.level is not None
    assert found.sequential.level < 0.05
    never = contrast(marks, settings(growth=((("s/0", None),),)))
    assert (never.verdict, never.sequential) == ("better", None), "one that never grew is judged as always"
    waiting = contrast(table(a="x.. " * 12, b="+.. " * 12), settings(growth=NIGHTS, coverage=0))
    assert waiting.sequential is not None


def test_added_tasks_are_a_further_look() -> None:
    made = rows(table(a="x " * 6 + "+ " * 6, b="+ " * 12))
    without = frozenset(f"{row.task.dataset}/{row.task.id}" for row in made if int(row.task.id[1:]) > 5)
    assert compare(made, settings()).contrasts[0].verdict == "better"
    stages = ((There("s/0", None, without),), (There("s/0"),))
    found = compare(made, settings(growth=stages)).contrasts[0]
    assert found.sequential is not None
    assert (found.sequential.method, found.sequential.looks) == ("growth", 2)
    assert found.sequential.level is not None
    assert found.sequential.level < 0.05, "five of five at first could have been called: something of alpha is gone"


@pytest.mark.parametrize("how", [{"looks": "any"}, {"growth": NIGHTS}, {}], ids=["any", "growth", "once"])
def test_how_few_missing_trials_undo_a_verdict_however_it_is_judged(how: dict[str, Any]) -> None:
    def found(*lost: str) -> Contrast:
        marks = table(a="xxx " * 6 + "+++ " * 6, b="+++ " * 6 + " ".join([*lost, *["+++"] * (6 - len(lost))]))
        return contrast(marks, settings(coverage=0, **how))

    held = found("EE+", "EE+")
    assert held.missing is not None
    assert (held.verdict, held.missing.verdict, held.missing.undone_by) == ("inconclusive", "better", 3)
    assert held.reason == '"better" would not hold if 3 of the 4 missing trials went against it'
    assert found("xx+", "+++").verdict == "better"
    assert found("xx+", "x++").verdict == "inconclusive"
    assert found("EE+").verdict == "better"


def test_a_task_that_neither_has_begun_is_in_no_bound_of_a_batch_that_grew() -> None:
    marks = table(a="xxx " * 8 + "... " * 2, b="+++ " * 7 + "++E " + "... " * 2)
    assert contrast(marks, settings(coverage=0, growth=NIGHTS)).verdict == "better"


def test_a_further_batch_is_a_further_look() -> None:
    first = rows(table(a="x " * 9, b="+ " * 9))
    both = first + [msgspec.structs.replace(row, batch="s/1", attempt=row.attempt) for row in first]
    found = compare(both, settings(growth=((("s/0", None),), (("s/0", None), ("s/1", None))))).contrasts[0]
    assert found.sequential is not None
    assert (found.sequential.method, found.sequential.looks, found.sequential.decided_at) == ("growth", 2, 1)
    apart = [msgspec.structs.replace(row, batch="s/1") for row in first]
    assert (
        compare(apart, settings(growth=((("s/0", None),), (("s/0", None), ("s/1", None))))).contrasts[0].sequential
        is None
    )


def test_equivalence_is_not_found_by_looking_often() -> None:
    setup = settings(looks="any", margin=0.2)
    words = ["++", "xx"] * 20
    early = contrast(table(a=" ".join(f"{word}." for word in words), b=" ".join(f"{word}." for word in words)), setup)
    assert early.verdict == "inconclusive"
    assert early.reason == "equivalence is judged once, when every trial has ended"
    assert contrast(table(a=" ".join(words), b=" ".join(words)), setup).verdict == "equivalent"


def test_the_summary_of_a_profile() -> None:
    marks = {"a": {"t1": "+x+", "t2": "xxx", "t3": "+EE"}}
    data = [msgspec.structs.replace(r, spent=Spend(0.5, tokens=100), agent_sec=10.0) for r in rows(marks)]
    found = compare(data, settings(contrasts=())).profiles[0]
    assert (found.planned, found.measured, found.passed) == (9, 7, 3)
    assert found.rate == pytest.approx((2 / 3 + 0 + 1) / 3)
    assert found.rate_all == pytest.approx((2 / 3 + 0 + 1 / 3) / 3)
    assert found.outcomes == {"passed": 3, "failed": 4, "errored": 2}
    assert (found.pass_at, set(found.pass_hat)) == ({1: pytest.approx(found.rate)}, {1})
    assert (found.cost_usd, found.cost_per_success, found.tokens) == (4.5, 1.5, 900)
    assert [task.flaky for task in found.tasks] == [True, False, False]
    assert found.tasks[1].interval is not None
    assert found.tasks[1].interval.low == 0.0


def test_pass_at_k_is_never_made_up() -> None:
    found = compare(rows(table(a="++x +x", b="+++ x+x")), settings(k=3))
    assert [3 in p.pass_at for p in found.profiles] == [False, True]
    assert found.warnings == ["pass@3 is unknown for a: not every task has 3 attempts that count"]
    assert found.profiles[1].pass_at[3] == 1.0
    assert found.profiles[1].pass_hat[3] == 0.5


def test_a_cost_that_is_unknown_makes_the_cost_of_a_success_unknown() -> None:
    data = [msgspec.structs.replace(r, spent=Spend(0.5, r.attempt - 1)) for r in rows(table(a="++ ++"))]
    found = compare(data, settings(contrasts=())).profiles[0]
    assert (found.cost_usd, found.cost_unknown_trials, found.cost_per_success) == (2.0, 2, None)
    assert not found.on_pareto_front, "a front is of two at least"


SETUP = st.fixed_dictionaries(
    {
        "rule": st.sampled_from(["exclude", "fail"]),
        "coverage": st.sampled_from([0.0, 0.9]),
        "margin": st.sampled_from([None, 0.3]),
        "looks": st.sampled_from([1, 3, "any"]),
        "metric": st.sampled_from(["pass", "time"]),
    }
)
OPPOSITE = {"better": "worse", "worse": "better"}


def timed(marks: Marks) -> list:
    return [msgspec.structs.replace(r, agent_sec=float(len(r.task.id) + n % 5)) for n, r in enumerate(rows(marks))]


def test_the_front_is_of_known_prices_on_common_tasks() -> None:
    def front(marks: Marks | None = None, free: str = "", **costs: tuple[float, int]) -> Comparison:
        data = [
            msgspec.structs.replace(row, spent=Spend(*costs[row.profile]), no_model=row.profile == free)
            for row in rows(marks or table(a="x+ x+", b="++ ++", c="+x +x"))
        ]
        return compare(data, settings(contrasts=()))

    assert front(a=(0.1, 0), b=(0.5, 0), c=(0.2, 0)).pareto == ["a", "b"]
    assert front(a=(0.5, 0), b=(0.1, 0), c=(0.2, 0)).pareto == ["b"]
    unknown = front(a=(0.5, 0), b=(0.1, 3), c=(0.2, 0))
    assert (unknown.pareto, unknown.pareto_note) == (["c"], "Pareto front without b: a cost is unknown")
    free = front(a=(0.5, 0), b=(0.0, 0), c=(0.2, 0), free="b")
    assert (free.pareto, free.pareto_note) == (["c"], "Pareto front without b: no model is called")
    assert [p.no_model for p in free.profiles] == [False, True, False]
    easy = {"a": {"t1": "++", "t2": "xx"}, "b": {"t1": "+x"}, "c": {"t1": "xx", "t2": "xx"}}
    some = front(easy, a=(0.1, 0), b=(0.2, 0), c=(0.3, 0))
    assert (some.pareto, some.pareto_note) == (["a"], "Pareto front over the 1 task of 2 that all of them have")
    assert front(table(a="x+ x+", b="++ ++"), a=(0.1, 3), b=(0.1, 0)).pareto == [], "one alone is no front"


def test_a_ratio_is_of_the_typical_task() -> None:
    prices = {"a": (1.0, 2.0, 10.0), "b": (0.5, 1.1, 4.0)}
    data = [
        msgspec.structs.replace(row, spent=Spend(prices[row.profile][int(row.task.id[1:]) % 3]))
        for row in rows(table(a="++ " * 12, b="++ " * 12))
    ]
    found = compare(data, settings(metric="cost")).contrasts[0]
    assert found.estimate.ratio == pytest.approx((0.5 * 0.55 * 0.4) ** (1 / 3))
    assert found.estimate.ratio_interval is not None
    assert 0.4 < found.estimate.ratio_interval.low < 0.48 < found.estimate.ratio_interval.high < 1
    assert ", x0.48 (0.44 to 0.52), " in found.sentence
    free = [msgspec.structs.replace(row, spent=Spend(0.0)) if row.task.id == "t1" else row for row in data]
    partly = compare(free, settings(metric="cost")).contrasts[0]
    assert partly.estimate.ratio_tasks == 11
    assert partly.notes == ["the ratio is over 11: 1 task took nothing under one of the two"]
    nothing = [msgspec.structs.replace(row, spent=Spend(0.0)) for row in data]
    assert compare(nothing, settings(metric="cost")).contrasts[0].estimate.ratio is None
    assert compare(data, settings()).contrasts[0].estimate.ratio is None


def test_a_ratio_that_points_the_other_way_says_so() -> None:
    data = [
        msgspec.structs.replace(row, agent_sec=(99.0 if row.task.id == "t1" else 1.0) if row.profile == "a" else 2.0)
        for row in rows(table(a="++ " * 9, b="++ " * 9))
    ]
    found = compare(data, settings(metric="time")).contrasts[0]
    assert found.estimate.difference is not None
    assert found.estimate.difference < 0
    assert found.notes[-1] == "b takes more on most tasks: a few large ones make the mean difference"


def test_intervals_have_the_adjustment_of_their_p() -> None:
    marks = table(a="xx+x " * 6 + "+xx+ " * 4, b="+x+x " * 6 + "++x+ " * 4, c="x+xx " * 10)
    alone = compare(rows(marks), settings("b", "a")).contrasts[0]
    both = compare(rows(marks), settings(contrasts=(("b", "a"), ("c", "a")))).contrasts[0]
    assert alone.estimate.interval is not None
    assert both.estimate.interval is not None
    assert (alone.estimate.interval.level, both.estimate.interval.level) == (0.95, 0.975)
    assert both.estimate.interval.low < alone.estimate.interval.low


@limits(max_examples=30, deadline=None)
@given(GRID, SETUP)
def test_no_two_numbers_contradict_each_other_without_a_word(grid: tuple[str, str], setup: dict) -> None:
    found = compare(timed(table(a=grid[0], b=grid[1])), settings(**setup)).contrasts[0]
    if excludes_zero(found.estimate.interval) and found.verdict == "inconclusive":
        assert found.reason
        assert found.reason in found.sentence
    suite, wide = found.estimate.suite_interval, found.estimate.interval
    if suite is not None and wide is not None and excludes_zero(suite) != excludes_zero(wide):
        assert any("exactly these tasks" in note for note in found.notes)


def test_the_pareto_front() -> None:
    marks = table(a="+x", b="++", c="xx", d="+x")
    price = {"a": 1.0, "b": 2.0, "c": 1.5, "d": 2.0}
    data = [msgspec.structs.replace(row, spent=Spend(price[row.profile])) for row in rows(marks)]
    assert compare(data, settings()).pareto == ["a", "b"]


def test_an_unknown_profile_names_the_closest() -> None:
    with pytest.raises(UserError, match='did you mean "alpha"'):
        compare(rows(table(alpha="+", b="+")), settings("b", "alphe"))


@limits(max_examples=25, deadline=None)
@given(GRID, SETUP)
def test_swapping_the_profiles_turns_every_sign(grid: tuple[str, str], setup: dict) -> None:
    data = timed(table(a=grid[0], b=grid[1]))
    there = compare(data, settings("b", "a", **setup)).contrasts[0]
    back = compare(data, settings("a", "b", **setup)).contrasts[0]
    assert back.verdict == OPPOSITE.get(there.verdict, there.verdict)
    for one, other in ((there.estimate, back.estimate), (there.other_way, back.other_way)):
        assert (one.p, one.wins, one.losses, one.ties) == (other.p, other.losses, other.wins, other.ties)
        if one.difference is not None:
            assert other.difference == pytest.approx(-one.difference)
        if one.interval is not None and other.interval is not None:
            assert (other.interval.low, other.interval.high) == pytest.approx((-one.interval.high, -one.interval.low))
    assert back.smallest_detectable == pytest.approx(there.smallest_detectable)


@limits(max_examples=25, deadline=None)
@given(GRID, SETUP, st.randoms())
def test_names_and_order_of_tasks_mean_nothing(grid: tuple[str, str], setup: dict, random) -> None:
    marks = table(a=grid[0], b=grid[1])
    order = random.sample(list(marks["a"]), len(marks["a"]))
    names = {task: f"x{number}" for number, task in enumerate(order)}
    renamed = {profile: {names[task]: tasks[task] for task in order} for profile, tasks in marks.items()}
    setup = {**setup, "metric": "pass"}
    one, other = (compare(rows(m), settings(**setup)).contrasts[0] for m in (marks, renamed))
    assert one.sentence == other.sentence
    assert (one.verdict, one.p_adjusted) == (other.verdict, other.p_adjusted)


@limits(max_examples=25, deadline=None)
@given(GRID, st.integers(0, 11), st.sampled_from("ETC."))
def test_another_crash_never_helps_when_crashes_count(grid: tuple[str, str], task: int, crash: str) -> None:
    words = grid[1].split()
    words[task % len(words)] += crash
    setup = settings(rule="fail", coverage=0)
    before = contrast(table(a=grid[0], b=grid[1]), setup).estimate.difference
    after = contrast(table(a=grid[0], b=" ".join(words)), setup).estimate.difference
    assert before is not None
    assert after is not None
    assert after <= before + 1e-12


@limits(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.text("+x", min_size=3, max_size=3), st.text("+xF", min_size=3, max_size=3)),
        min_size=6,
        max_size=12,
    ),
    st.sampled_from([0.0, 0.5, 0.9]),
)
def test_dropping_crashes_never_looks_better_than_counting_them(tasks: list[tuple[str, str]], coverage: float) -> None:
    """F is a failure that a profile may have called a crash."""
    old = " ".join(word for word, _ in tasks)
    counted = contrast(table(a=old, b=" ".join(w.replace("F", "x") for _, w in tasks)), settings(coverage=coverage))
    dropped = contrast(table(a=old, b=" ".join(w.replace("F", "E") for _, w in tasks)), settings(coverage=coverage))
    if dropped.verdict == "better":
        assert counted.verdict == "better"
    if dropped.verdict == "equivalent":
        assert counted.verdict == "equivalent"


@limits(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.text("+x", min_size=3, max_size=3), st.text("+xF", min_size=3, max_size=3)),
        min_size=6,
        max_size=12,
    ),
    st.sampled_from("ETC!"),
    st.sampled_from([2, 5, "any"]),
)
def test_nothing_that_happened_is_dropped_at_a_declared_look(tasks: list, called: str, looks: int | str) -> None:
    """F is a failure that a profile may have called a crash, cut off, or ! (left out of the plan for a reason)."""
    old = " ".join(word for word, _ in tasks)

    def found(mark: str):
        marks = table(a=old, b=" ".join(w.replace("F", "." if mark == "!" else mark) for _, w in tasks))
        data = [
            msgspec.structs.replace(row, reason="too many errors") if row.outcome is Outcome.NOT_RUN else row
            for row in rows(marks)
        ]
        return compare(data, settings(looks=looks, coverage=0.0)).contrasts[0]

    if found(called).verdict == "better":
        assert found("x").verdict == "better"


def test_cut_off_trials_are_missing_at_a_declared_look() -> None:
    found = contrast(table(a="xx.. " * 9, b="+C.. " * 9), settings(looks=4))
    assert found.verdict == "inconclusive"
    assert found.coverage_new == 0.5
    assert "only 50.0 % of what b has begun was measured" in found.sentence
    assert contrast(table(a="xx.. " * 9, b="++.. " * 9), settings(looks=2)).coverage_new == 1.0, "those are to come"


def test_looking_at_any_time_is_only_for_the_pass_rate() -> None:
    half = rows(table(a="++.. " * 8, b="++.. " * 8))
    data = [msgspec.structs.replace(row, spent=Spend(float(row.profile == "a"))) for row in half]
    found = compare(data, settings(metric="cost", looks="any")).contrasts[0]
    assert found.verdict == "inconclusive"
    assert "only 50.0 % of what b was to do has a known cost" in found.sentence


@pytest.mark.parametrize("rule", ["exclude", "fail"])
def test_crashing_early_is_not_cheaper(rule: str) -> None:
    marks = rows(table(a="++++++++++ " * 8, b="+++++++++E " * 8))
    data = [msgspec.structs.replace(row, spent=Spend(1.0 if row.measured else 0.0)) for row in marks]
    found = compare(data, settings(metric="cost", rule=rule, coverage=0.5)).contrasts[0]
    assert found.verdict == "inconclusive"
    if rule == "fail":
        assert found.sentence.endswith(
            "because it does not hold when trials that were not measured are counted the other way"
        )


@pytest.mark.parametrize("rule", ["exclude", "fail"])
def test_crashes_that_were_left_out_do_not_help_to_the_front(rule: str) -> None:
    marks = rows(table(a="+x " * 6, b="+E " * 6, c="Ex " * 6))
    data = [msgspec.structs.replace(row, spent=Spend(1.0)) for row in marks]
    assert compare(data, settings(rule=rule)).pareto == ["a", "b"], "half of what was planned passed under both"
    cheap = [msgspec.structs.replace(row, spent=Spend(float(row.measured))) for row in marks]
    assert compare(cheap, settings(rule=rule)).pareto == ["b"], "as much of what was planned for half the money"


def test_a_little_variation_makes_no_proof_of_equality() -> None:
    """All ties are no proof of equality; neither are all ties but one small difference."""
    ties = table(a="+++++ " * 20, b="+++++ " * 20)
    nearly = table(a="+++++ " * 20, b="++++x " + "+++++ " * 19)
    for marks in (ties, nearly):
        found = contrast(marks, settings(margin=0.05))
        assert found.verdict == "inconclusive"
        assert found.equivalence_interval is not None
        assert found.equivalence_interval.low < -0.13
    many = contrast(table(a="+++++ " * 80, b="++++x " + "+++++ " * 79), settings(margin=0.05))
    assert many.verdict == "equivalent"


@limits(max_examples=25, deadline=None)
@given(GRID, SETUP)
def test_the_json_is_json(grid: tuple[str, str], setup: dict) -> None:
    comparison = compare(timed(table(a=grid[0], b=grid[1])), settings(**setup))

    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = encode_json(comparison).decode()
    assert json.loads(text, parse_constant=refuse)["contrasts"][0]["verdict"]
    assert msgspec.json.decode(text, type=type(comparison)) == comparison


def test_the_same_rows_give_the_same_answer() -> None:
    data = timed(table(a="+x+ xx+ +++ " * 8, b="++x x++ +x+ " * 8))
    setup = settings(metric="time", seed=3)
    assert compare(data, setup) == compare(data, setup)
