"""A comparison of batches that grow: declared looks, looks at any time, and what is left for them."""

from typing import Any

import msgspec
import pytest

from support.rows import Marks, contrast, rows, settings, table
from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Contrast
from terminalbench.analytics.settings import RecordedExtent
from terminalbench.records.counts import Spend
from terminalbench.report.comparison import comparison_text


def test_looks_that_were_declared() -> None:
    half = table(a="xx.. " * 7, b="++.. " * 7)
    assert "only 50.0 % of what b was to do was measured" in contrast(half).sentence
    early = contrast(half, settings(looks=2))
    assert early.sequential is not None
    assert (early.sequential.look, early.sequential.looks, early.verdict) == (1, 2, "inconclusive")
    assert early.sequential.level == pytest.approx(0.0052, abs=1e-4)
    assert early.sentence.endswith("because look 1 of 2 needs p of at most 0.0052")
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
    alone = contrast(marks)
    assert alone.verdict == "better"
    found = contrast(marks, settings(strict=True))
    assert (alone.strict_p, found.strict_p) == (found.estimate.p, None), "said beside the verdict that rests on it"
    assert (found.verdict, found.strict) == ("inconclusive", True)
    assert found.estimate.p is not None
    assert found.estimate.p > 0.05
    clear = contrast(table(a="x " * 100, b="+ " * 30 + "x " * 70), settings(strict=True))
    assert clear.verdict == "better"
    told = comparison_text(compare(rows(table(a="xxxxxxxxxx " * 20, b="+++++++xxx " * 20)), settings()), 1000)
    assert (
        "the verdict assumes that a task favours equal profiles equally often; without this assumption it holds as well (p < 0.001)"
        in told
    )
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
    stages = ((RecordedExtent("s/0", None, without),), (RecordedExtent("s/0"),))
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
    assert held.reason == '"better" would not hold if 3 of 4 missing trials went against it'
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
