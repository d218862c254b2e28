"""A comparison as a whole: what it says of published examples and of edge cases."""

from typing import Any

import msgspec
import pytest

from support.rows import Marks, contrast, rows, settings, table
from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Comparison
from terminalbench.errors import UserError
from terminalbench.records.counts import Spend


def test_three_of_seven_against_four_of_seven_is_inconclusive() -> None:
    marks = table(text="+ + + x x x x", codecanvas="+ x + + + x x")
    found = contrast(marks, settings("codecanvas", "text"))
    assert found.verdict == "inconclusive"
    assert found.estimate.difference == pytest.approx(1 / 7)
    assert (found.estimate.wins, found.estimate.losses, found.estimate.ties) == (2, 1, 4)
    assert found.smallest_detectable is None, "six of seven tasks would have to agree: more than there is above 3/7"
    assert found.sentence == (
        "codecanvas vs text: +14.3 pt (-49.5 to +78.1), 2 tasks better, 1 worse, p = 1.00: inconclusive; "
        "14 trials on 7 tasks are too few: they would show no gap that can exist 4 times in 5"
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
        "the difference is the same on all 8 tasks, so the smallest gap that 16 trials can show is unknown"
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
    assert found.sentence == "b vs a: no task was measured for both: inconclusive"
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
    assert "similar tasks" in found.interval.question
    assert "the same tasks" in found.suite_interval.question
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


MANY = table(a="xx " * 8, b="++ " * 8)


def mixed(**per_profile) -> list:
    return [msgspec.structs.replace(row, **per_profile[row.profile]) for row in rows(MANY)]


@pytest.mark.parametrize("field", ["environment", "model", "agent_version"])
def test_what_differs_without_being_declared_is_refused(field: str) -> None:
    found = compare(mixed(a={field: "one"}, b={field: "two"}), settings()).contrasts[0]
    assert found.verdict == "inconclusive"
    assert found.refused
    assert found.estimate.difference is None
    assert "not compared (a different" in found.sentence
    assert "b ran with two, a with one" in found.sentence
    assert not compare(mixed(a={field: "one"}, b={}), settings()).contrasts[0].refused, "unknown is not different"


@pytest.mark.parametrize(
    ("field", "aspect"), [("model", "model"), ("agent_version", "agent"), ("agent_version", "agent_code")]
)
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
        "not run at the same time: b 2026-01-02 10:00 to 2026-01-02 11:00, a 2026-01-01 10:00 to 2026-01-01 11:00",
    ]


@pytest.mark.parametrize(("minutes", "warned"), [(9, 0), (11, 1)])
def test_one_after_the_other_within_ten_minutes_is_the_same_time(minutes: int, warned: int) -> None:
    data = mixed(
        a={"started_at": "2026-01-01T09:59:50.5", "finished_at": "2026-01-01T10:00:00"},
        b={"started_at": "2026-01-01T10:00:20Z", "finished_at": f"2026-01-01T10:{minutes:02}:00Z"},
    )
    assert len(compare(data, settings()).contrasts[0].warnings) == warned


def test_the_same_treatment_twice_is_noise() -> None:
    warnings = compare(mixed(a={"profile_id": "p1"}, b={"profile_id": "p1"}), settings()).contrasts[0].warnings
    assert warnings == ["b and a have the same content, so any difference is noise"]


def test_cheaper_is_better() -> None:
    data = [
        msgspec.structs.replace(row, spent=Spend((2.0 if row.profile == "a" else 1.0) + row.attempt / 10))
        for row in rows(MANY)
    ]
    found = compare(data, settings(metric="cost")).contrasts[0]
    assert found.verdict == "better"
    assert found.estimate.difference == pytest.approx(-1.0)
    assert found.sentence == "b vs a, cost: -$1.00, x0.53 (p = 0.0078), 8 tasks better, 0 worse, p = 0.0078: better"


def test_partial_credit_is_compared_by_mean_reward() -> None:
    data = [
        msgspec.structs.replace(row, reward=(0.3 if row.profile == "a" else 0.5) + row.attempt / 10)
        for row in rows(table(a="xx " * 8, b="xx " * 8))
    ]
    found = compare(data, settings(metric="reward"))
    assert found.contrasts[0].sentence == "b vs a, reward: +0.200, 8 tasks better, 0 worse, p = 0.0078: better"
    assert [profile.mean_reward for profile in found.profiles] == pytest.approx([0.45, 0.65])
    assert compare(data, settings()).contrasts[0].verdict == "inconclusive", "none passed"
    lost = [msgspec.structs.replace(row, reward=None) if row.profile == "b" else row for row in data]
    assert "no task has a known reward for both" in compare(lost, settings(metric="reward")).contrasts[0].sentence


def test_unknown_costs_are_not_zero() -> None:
    data = [
        msgspec.structs.replace(row, spent=Spend(None if row.profile == "b" and row.attempt == 2 else 1.0))
        for row in rows(MANY)
    ]
    found = compare(data, settings(metric="cost")).contrasts[0]
    assert (found.estimate.difference, found.verdict, found.coverage_new) == (0.0, "inconclusive", 0.5)
    assert "has a known cost" in found.sentence


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
    assert found.warnings == ["a: pass@3 is unknown, because not every task has 3 attempts that count"]
    assert found.profiles[1].pass_at[3] == 1.0
    assert found.profiles[1].pass_hat[3] == 0.5


def test_a_cost_that_is_unknown_makes_the_cost_of_a_success_unknown() -> None:
    data = [msgspec.structs.replace(r, spent=Spend(0.5, r.attempt - 1)) for r in rows(table(a="++ ++"))]
    found = compare(data, settings(contrasts=())).profiles[0]
    assert (found.cost_usd, found.cost_unknown_trials, found.cost_per_success) == (2.0, 2, None)
    assert not found.on_pareto_front, "a front is of two at least"


def test_the_front_is_of_known_prices_on_common_tasks() -> None:
    def front(marks: Marks | None = None, free: str = "", **costs: tuple[float | None, int]) -> Comparison:
        data = [
            msgspec.structs.replace(row, spent=Spend(*costs[row.profile]), no_model=row.profile == free)
            for row in rows(marks or table(a="x+ x+", b="++ ++", c="+x +x"))
        ]
        return compare(data, settings(contrasts=()))

    assert front(a=(0.1, 0), b=(0.5, 0), c=(0.2, 0)).pareto == ["a", "b"]
    assert front(a=(0.5, 0), b=(0.1, 0), c=(0.2, 0)).pareto == ["b"]
    unknown = front(a=(0.5, 0), b=(0.1, 3), c=(0.2, 0))
    assert (unknown.pareto, unknown.pareto_note) == (["c"], "Pareto front without b: a cost is unknown")
    for marks, cost in (("EE EE", 0.1), (".. ..", None)):
        broke = front(table(a="x+ x+", b="++ ++", c=marks), a=(0.5, 0), b=(0.6, 0), c=(cost, 0))
        assert (broke.pareto, broke.pareto_note) == (["a", "b"], "Pareto front without c: nothing was measured")
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
    assert ", x0.48 (0.44 to 0.52, p < 0.001), " in found.sentence
    free = [msgspec.structs.replace(row, spent=Spend(0.0)) if row.task.id == "t1" else row for row in data]
    partly = compare(free, settings(metric="cost")).contrasts[0]
    assert partly.estimate.ratio_tasks == 11
    assert partly.notes == ["the ratio is over 11: 1 task used nothing with one of the two"]
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
    assert found.notes[-1] == "b uses more on most tasks: a few large values cause the mean difference"


def test_intervals_have_the_adjustment_of_their_p() -> None:
    marks = table(a="xx+x " * 6 + "+xx+ " * 4, b="+x+x " * 6 + "++x+ " * 4, c="x+xx " * 10)
    alone = compare(rows(marks), settings("b", "a")).contrasts[0]
    both = compare(rows(marks), settings(contrasts=(("b", "a"), ("c", "a")))).contrasts[0]
    assert alone.estimate.interval is not None
    assert both.estimate.interval is not None
    assert (alone.estimate.interval.level, both.estimate.interval.level) == (0.95, 0.975)
    assert both.estimate.interval.low < alone.estimate.interval.low


def test_the_pareto_front() -> None:
    marks = table(a="+x", b="++", c="xx", d="+x")
    price = {"a": 1.0, "b": 2.0, "c": 1.5, "d": 2.0}
    data = [msgspec.structs.replace(row, spent=Spend(price[row.profile])) for row in rows(marks)]
    assert compare(data, settings()).pareto == ["a", "b"]


def test_an_unknown_profile_names_the_closest() -> None:
    with pytest.raises(UserError, match='did you mean "alpha"'):
        compare(rows(table(alpha="+", b="+")), settings("b", "alphe"))


@pytest.mark.parametrize("rule", ["exclude", "fail"])
def test_crashing_early_is_not_cheaper(rule: str) -> None:
    marks = rows(table(a="++++++++++ " * 8, b="+++++++++E " * 8))
    data = [msgspec.structs.replace(row, spent=Spend(1.0 if row.measured else 0.0)) for row in marks]
    found = compare(data, settings(metric="cost", rule=rule, coverage=0.5)).contrasts[0]
    assert found.verdict == "inconclusive"
    if rule == "fail":
        assert found.sentence.endswith(
            "because it does not hold if trials that were not measured are counted the other way"
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
