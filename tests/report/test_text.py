from pathlib import Path

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import allocate
from terminalbench.experiments.plan import Exclusion
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.report.foreign import printable
from terminalbench.report.text import Money, columns, money, percent, summary


def test_the_summary_of_a_batch(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    make_plan(batch, ("p", "q"), "ab", 2, excluded=(Exclusion("no key", profile="q"),))
    make_trial(batch, "a__1", cost=0.5)
    make_trial(batch, "a__2", reward=0.0, second=1)
    make_trial(batch, "b__1", reward=None, error="RuntimeError")
    make_trial(batch, "b__2", reward=None, error="CancelledError")
    scan_batch(batch)
    text = summary(view_batch(batch))
    assert (
        text
        == """\
profile  passed  failed  not measured  coverage  pass rate  of planned  cost               mean time
p             1       1             2       2/4     50.0 %      25.0 %  $0.50 + 3 unknown     60.0 s
q             0       0             4       0/4          -       0.0 %  unknown                    -

task  p   q
a     +x  ..
b     EC  ..
+ passed   x failed   T timed out   E errored   C cancelled   . not run

Not measured
     4  not_run: no key  [q]
     1  errored (setup): why  [p]
     1  cancelled: why  [p]
"""
    )


def test_unknown_cost_is_not_zero() -> None:
    assert str(Money(None, 3)) == "unknown"
    assert str(Money(0.0, 0)) == "$0.00"
    assert money([]) == Money(None, 0)


def test_a_rate_of_nothing_is_a_dash() -> None:
    assert percent(0, 0) == "-"
    assert percent(1, 3) == "33.3 %"


def test_columns_are_aligned() -> None:
    assert columns([["a", "1"], ["bbb", "10"]]) == "a     1\nbbb  10"


def test_foreign_output_cannot_drive_the_terminal() -> None:
    assert printable("ok\x1b[31mred\x07\ttab") == "ok�[31mred�\ttab"
