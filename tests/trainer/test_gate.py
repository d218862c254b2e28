"""The gate: what promotes, what forbids, and that giving up early never wins. Rows are written as marks."""

from collections.abc import Sequence
from statistics import NormalDist, fmean

import pytest

from support.rows import OUTCOMES
from terminalbench.analytics.model import Row
from terminalbench.analytics.stats import nominal_level
from terminalbench.records.counts import Spend
from terminalbench.records.trial import TaskRef
from terminalbench.trainer.batches import spread
from terminalbench.trainer.gate import (
    GateAction,
    GateRule,
    GateVerdict,
    alpha_of,
    canary,
    claim_of,
    confirm,
    lost_families,
    same_profile_p,
    sealed,
    watch,
)
from terminalbench.trainer.journal import Challenger, TrainingState
from terminalbench.trainer.night import Round, Score, better_half, rounds

TASKS = 20
RULE = GateRule(alpha=0.05, looks=2, planned_trials=2 * TASKS)


def night(number: int, new: str, old: str, costs: tuple[float | None, float | None] = (0.1, 0.1)) -> list[Row]:
    """A night of one attempt at each task: a mark a task. Tasks 0-4 are family f0, 5-9 f1, ..."""
    assert len(new) == len(old)
    return [
        Row(
            task=TaskRef(f"t{place}", "d", f"f{place // 5}"),
            profile=profile,
            attempt=1,
            outcome=OUTCOMES[mark],
            batch=f"s/{number}",
            spent=Spend(cost_usd=cost, cost_unknown=int(cost is None)),
        )
        for profile, marks, cost in (("new", new, costs[0]), ("old", old, costs[1]))
        for place, mark in enumerate(marks)
    ]


def said(rows: Sequence[Row], rule: GateRule = RULE, nights: int = 1) -> GateVerdict:
    return confirm(rows, "new", "old", rule, nights)


GOOD, BAD = "+" * 14 + "x" * 6, "+" * 2 + "x" * 18


def test_a_clear_gain_is_proven_and_goes_to_the_canary() -> None:
    verdict = said(night(1, GOOD, BAD) + night(2, GOOD, BAD), nights=2)
    assert verdict.action is GateAction.CANARY
    assert verdict.difference == pytest.approx(0.6)
    assert verdict.reason.startswith("proven better: +60.0 pt, 95.")
    assert (verdict.look, verdict.looks, verdict.tasks, verdict.trials) == (2, 2, 20, 80)
    assert verdict.level == pytest.approx(nominal_level(2, 2, 0.05))


def test_the_first_challenger_has_most_of_the_error_and_all_together_have_it_once() -> None:
    parts = [alpha_of(number, 5, 0.05) for number in range(1, 6)]
    assert sum(parts) == pytest.approx(0.05)
    assert parts == sorted(parts, reverse=True)
    assert (parts[0], alpha_of(1, 1, 0.05)) == (pytest.approx(0.03), pytest.approx(0.05))


def test_evidence_is_carried_over_nights_and_each_is_a_look() -> None:
    some, less = "+" * 8 + "x" * 12, "+" * 2 + "x" * 18
    first = said(night(1, some, less))
    assert first.action is GateAction.GO_ON
    assert (first.look, first.p) == (1, pytest.approx(0.03125))
    assert first.level is not None
    assert first.level < 0.03125 < 0.05  # alone it would seem to decide; as the first of two looks it does not
    assert said(night(1, some, less) + night(2, some, less), nights=2).action is GateAction.CANARY


def test_families_are_units_when_the_plan_says_so() -> None:
    both = night(1, GOOD, BAD) + night(2, GOOD, BAD)
    assert (
        said(both, GateRule(0.05, 2, 2 * TASKS, by_family=True), 2).action is GateAction.DROP
    )  # four families decide nothing


def test_what_is_not_shown_is_dropped() -> None:
    even = "+x" * 10
    assert said(night(1, even, even)).reason.startswith("no gain is likely any more: +0.0 pt")
    assert said(night(1, "+" * 4 + even[4:], "x" * 4 + even[4:]), nights=1).action is GateAction.GO_ON
    lean = said(night(1, "+" + even[1:], "x" + even[1:]))  # one task more: the look that is left could not show it
    assert lean.reason.startswith("no gain is likely any more: +5.0 pt")
    late = said(night(1, GOOD, GOOD[1:] + "+") + night(2, "+" * 20, GOOD), nights=2)
    assert (late.action, late.reason.split(":")[0]) == (GateAction.CANARY, "proven better")
    weak = night(1, "+" * 5 + "x" * 15, "+" * 4 + "x" * 16)
    assert said(weak + weak, nights=2).reason.startswith("not shown to be better in 2 looks: +5.0 pt")
    assert said(night(1, BAD, GOOD) + night(2, BAD, GOOD), nights=2).reason.startswith("proven worse: -60.0 pt")


def test_what_cannot_be_measured_is_not_a_gain_and_ends() -> None:
    broken = night(1, "E" * 20, BAD)
    assert said(broken).action is GateAction.GO_ON
    assert said(broken, nights=4).reason == "could not be measured in 4 nights: no task was measured with both"
    # Passed wherever it was measured: the trials that were not may have been the worst.
    picked = night(1, "+" * 8 + "E" * 12, "+" * 2 + "x" * 6 + "+" * 12)
    assert said(picked + picked, nights=2).action is not GateAction.CANARY


def test_a_profile_that_gives_up_early_never_wins() -> None:
    quits = night(1, "x" * 20, BAD, (0.001, 1.0)) + night(2, "x" * 20, BAD, (0.001, 1.0))
    assert said(quits, nights=2).action is GateAction.DROP
    same = night(1, GOOD, GOOD, (0.001, 1.0)) + night(2, GOOD, GOOD, (0.001, 1.0))
    assert said(same, nights=2).action is GateAction.DROP  # as good and cheaper: success alone promotes
    quitter, worker = Score(0, 20, 20, None), Score(1, 20, 20, 5.0)
    assert better_half({"quitter": quitter, "worker": worker}) == ["worker"]
    assert better_half({"a": quitter, "b": quitter}) == []


def test_cost_can_forbid_and_is_not_guessed() -> None:
    rule = GateRule(0.05, 2, 2 * TASKS, cost_margin=0.25)
    for costs, action, word in (
        ((0.12, 0.1), GateAction.CANARY, "proven better"),
        ((0.3, 0.1), GateAction.DROP, "but at 3.00 times the cost (1.25 was declared as the limit)"),
        ((None, 0.1), GateAction.DROP, "but its cost is unknown"),
        ((0.0, 0.0), GateAction.CANARY, "proven better"),
    ):
        verdict = said(night(1, GOOD, BAD, costs) + night(2, GOOD, BAD, costs), rule, 2)
        assert (verdict.action, word in verdict.reason) == (action, True), verdict
    assert said(night(1, GOOD, BAD, (9.0, 0.1)) + night(2, GOOD, BAD), nights=2).action is GateAction.CANARY


def test_a_loss_in_a_family_forbids() -> None:
    new, old = "x" * 5 + "+" * 15, "+" * 5 + "x" * 15
    rows = [row for n in range(1, 5) for row in night(n, new, old)]
    verdict = said(rows, GateRule(0.05, 4, 4 * TASKS), 4)
    assert (verdict.action, verdict.lost_families) == (GateAction.DROP, ("f0",))
    assert "overall, but worse in f0" in verdict.reason
    assert lost_families(rows[:80], "new", "old") == ("f0",)
    assert lost_families(rows[:40], "new", "old") == ()  # one in 32 by luck, of four families
    assert lost_families(night(1, "x" + "+" * 19, "+" * 20), "new", "old") == ()


def test_the_canary_alone_is_what_is_claimed() -> None:
    rule = GateRule(0.05, 2, 40, canary_nights=2)
    gain = night(3, "+" * 12 + "x" * 8, "+" * 9 + "x" * 11)
    assert canary(gain, "new", "old", rule, 1).reason.startswith("canary night 1 of 2")
    kept = canary(gain + gain, "new", "old", rule, 2)
    assert (kept.action, kept.difference) == (GateAction.PROMOTE, pytest.approx(0.15))
    assert kept.interval is not None
    assert kept.interval.level == 0.95
    nothing = night(3, BAD, BAD)
    assert canary(nothing, "new", "old", RULE, 1).action is GateAction.GO_ON  # one more night, where it did not show
    assert canary(nothing * 2, "new", "old", RULE, 2).reason.startswith("the gain was not confirmed: +0.0 pt")
    assert canary([], "new", "old", RULE, 1).action is GateAction.GO_ON
    assert canary([], "new", "old", RULE, 3).action is GateAction.DROP
    dear = night(3, GOOD, BAD, (1.0, 0.1))
    assert canary(dear, "new", "old", GateRule(0.05, 2, 40, cost_margin=0.5), 1).action is GateAction.DROP


def test_a_champion_that_worsens_is_rolled_back_and_one_that_does_not_stays() -> None:
    back = watch(night(1, BAD, GOOD), "new", "old", 0.05 / 28)
    assert back.action is GateAction.ROLL_BACK
    assert back.reason.startswith("the champion is proven worse than the one before it: -60.0 pt")
    for rows in (night(1, GOOD, GOOD), night(1, GOOD, BAD), night(1, BAD[1:] + "x", BAD), []):
        assert watch(rows, "new", "old", 0.05 / 28).action is GateAction.KEEP


def test_one_profile_against_itself() -> None:
    rows = night(1, GOOD, GOOD) + night(1, GOOD, BAD)
    new = [row for row in rows if row.profile == "new"]
    old = [row for row in rows if row.profile == "old"]
    assert same_profile_p(new[:20], new[20:]) is None  # nothing differed at all
    assert (same_profile_p(new[20:], old[20:]) or 1) < 0.001
    assert same_profile_p(night(1, "+x" * 10, "+x" * 10)[:20], night(1, "x+" * 10, "x+" * 10)[:20]) == 1.0


def test_the_campaign_moves_as_the_verdicts_say() -> None:
    def verdict(action: GateAction) -> GateVerdict:
        return GateVerdict(action=action, reason="r")

    state = TrainingState(champion="a", allowed=2).next_night()
    assert state.challenger is None
    state = state.explored("b").explored("b").explored("a").explored(None).explored("c").next_night()
    assert (state.night, state.challenger, state.waiting, state.exploring) == (2, Challenger("b"), ("c",), False)
    state = state.judged(verdict(GateAction.GO_ON))
    assert state.challenger == Challenger("b", "confirm", 1)
    state = state.judged(verdict(GateAction.CANARY))
    assert state.challenger == Challenger("b", "canary", 0)
    state = state.judged(verdict(GateAction.PROMOTE))
    assert (state.champion, state.control, state.since, state.challenger) == ("b", "a", 2, None)
    state = state.next_night()
    assert (state.challenger, state.begun) == (Challenger("c"), 2)
    assert state.watched(verdict(GateAction.KEEP)) == state
    back = state.watched(verdict(GateAction.ROLL_BACK))
    assert (back.champion, back.control, back.challenger, back.waiting) == ("a", None, None, ("c",))
    assert back.next_night().challenger is None  # the plan has no challenger left, and the error is used up
    assert back.explored("b") == back  # what was rolled back does not come again
    assert state.judged(verdict(GateAction.DROP)).challenger is None


def test_halving_spends_what_there_is_and_pairs() -> None:
    assert rounds(8, 240) == [Round(8, 10), Round(4, 20), Round(2, 40)]
    assert rounds(1, 30) == [Round(1, 30)]
    assert rounds(5, 100) == [Round(5, 10), Round(2, 25)]  # one that is left alone is measured no more
    for count in range(1, 20):
        assert sum(one.candidates * one.trials for one in rounds(count, 200)) <= 200
    assert spread("abc", 7).tasks == ("a", "b", "c")
    assert spread("abc", 7).attempts == 2
    assert spread("abcd", 3, start=3).tasks == ("d", "a", "b")
    assert spread("", 3).trials == 0


def test_success_ranks_first_and_cost_of_successes_second() -> None:
    scores = {
        "dear": Score(6, 10, 10, 2.0),
        "cheap": Score(6, 10, 10, 1.0),
        "best": Score(7, 10, 10, 9.0),
        "lucky": Score(3, 3, 10, 0.1),
        "unknown cost": Score(6, 10, 10, None),
        "broken": Score(0, 0, 10, None),
    }
    assert better_half(scores) == ["best", "cheap", "dear"]


def test_a_verdict_says_the_p_that_decides() -> None:
    some, less = "+" * 8 + "x" * 12, "+" * 2 + "x" * 18
    assert "p = 0.031, look 1 of 2 decides at 0.0052 on 20 tasks, 40 trials" in said(night(1, some, less)).reason
    assert "decides at 0.01 on" in watch(night(1, some, less), "new", "old", 0.01).reason
    once = canary(night(1, some, less), "new", "old", RULE, 1)
    assert "decides" not in once.reason  # it is the sign of the difference that does


@pytest.mark.parametrize(("error", "gain"), [(0.04, 0.03), (0.04, 0.06), (0.076, 0.06), (0.076, 0.1)])
def test_what_is_claimed_is_right_on_average_although_it_had_to_show_again(error: float, gain: float) -> None:
    seen = [NormalDist(gain, error).inv_cdf((place + 0.5) / 4000) for place in range(4000)]
    shown = [difference for difference in seen if difference > 0]
    claimed = [claim_of(difference, error) for difference in shown]
    assert abs(fmean(claimed) - gain) < 0.01
    assert all(0 <= one <= difference for one, difference in zip(claimed, shown, strict=True))
    assert claim_of(0.4, 0.04) == pytest.approx(0.4, abs=1e-6)


def test_a_further_look_at_the_holdout_multiplies_its_p() -> None:
    rows = night(3, "+" * 14 + "x" * 6, "+" * 6 + "x" * 14)
    first, third = (sealed(rows, "new", "old", by_family=False, looks=looks) for looks in (1, 3))
    assert first.p is not None
    assert third.p == pytest.approx(min(1.0, 3 * first.p))
    assert "p for 3 looks at it" in third.reason
    assert first.interval is not None
    assert third.interval is not None
    assert third.interval.low < first.interval.low
