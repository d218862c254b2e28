"""The picture of a night's time: what it draws of workers, incidents and spend."""

import re

import pytest

from terminalbench.report.charts.timeline import SpentBy, TimelineBar, TimelineMark, timeline

TEN = 1_768_557_600.0  # 2026-01-16 10:00 UTC


def bar(lane: int, begin: float, end: float | None, *, lost: bool = False) -> TimelineBar:
    return TimelineBar(
        lane, TEN + begin, None if end is None else TEN + end, f"{lane}", f"worker {lane} <b>", lost=lost
    )


def widths(drawn: str) -> list[float]:
    """Of the bars of work, without those of the key."""
    return [float(one) for one in re.findall(r'<rect class="part s[04]"[^>]* width="([\d.]+)" height="18"', drawn)]


def test_bars_are_as_long_as_the_work_and_one_that_works_reaches_to_the_end() -> None:
    drawn = timeline([bar(1, 0, 1800), bar(1, 1800, 3600, lost=True), bar(2, 0, None)], [], [])
    assert drawn is not None
    first, second, whole = widths(drawn)
    assert (first, second) == (pytest.approx(whole / 2, abs=0.2), pytest.approx(whole / 2, abs=0.2))
    assert drawn.count("worker 1 &lt;b&gt;") == 2, "text is escaped"
    assert "2 workers, 3 stretches of work, 1 of them lost" in drawn
    assert re.findall(r">(\d\d:\d\d)<", drawn) == ["10:00", "10:15", "10:30", "10:45", "11:00"]
    assert "no cost is known" in drawn


def test_marks_that_would_hide_one_another_are_one_and_say_so() -> None:
    marks = [TimelineMark(TEN + at, f"at {at}") for at in (60, 61, 1800)]
    drawn = timeline([bar(1, 0, 3600)], [*marks, TimelineMark(TEN + 3000, "goes on", wrong=False)], [])
    assert drawn is not None
    shown = drawn.split('class="dim">incidents<')[1].split(">spend<")[0]
    assert shown.count("<g>") == 3
    assert "2 at once, the first: at 60" in shown
    assert (shown.count('"bad s2"'), shown.count('"solid s3"')) == (2, 1)
    assert "Went wrong: 10:01 at 60; 10:01 at 61; 10:30 at 1800." in drawn


def test_the_spend_climbs_in_steps_to_its_sum() -> None:
    spend = [SpentBy(TEN + 900, 1.0), SpentBy(TEN + 2700, 4.0)]
    drawn = timeline([bar(1, 0, 3600)], [], spend)
    assert drawn is not None
    path = re.search(r'class="curve s3" d="M([^"]+)"', drawn)
    assert path is not None
    x0, base, x1, y1, x2, y2, x3 = (float(one) for one in re.findall(r"[\d.]+", path.group(1)))
    assert ((x1 - x0) / (x3 - x0), (x2 - x0) / (x3 - x0)) == (
        pytest.approx(0.25, abs=0.01),
        pytest.approx(0.75, abs=0.01),
    )
    assert (base - y2) / (base - y1) == pytest.approx(4, rel=0.02)
    assert "$4.00 by the end" in drawn


@pytest.mark.parametrize("bars", [[], [bar(1, 0, 0)], [bar(1, 0, None)]])
def test_nothing_that_took_time_is_no_picture(bars: list[TimelineBar]) -> None:
    assert timeline(bars, [TimelineMark(TEN, "early")], []) is None


def test_of_many_bars_the_last_are_drawn_and_every_lane_stays_low() -> None:
    drawn = timeline([bar(n % 20, n, n + 1) for n in range(1000)], [], [])
    assert drawn is not None
    assert drawn.count("worker ") < 320
    assert len(drawn) < 90_000
