import math
import re
from importlib.resources import files
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.records.trial import Outcome
from terminalbench.report.charts import chart_css
from terminalbench.report.charts.bars import Bar, BarPart, ForestRow, bars, forest, stacked_bars
from terminalbench.report.charts.heatmap import MOST_MARKS, HeatCell, HeatRow, heat_map, marks
from terminalbench.report.charts.scatter import Dot, FrontPoint, TrendPoint, TrendSeries, binned, pareto, scatter, trend
from terminalbench.report.charts.svg import SERIES, compact, marker, nice_ticks
from terminalbench.text.foreign import short

BAD = "<b>&\"'\x1b\ud800\u202e"


def some_charts(name: str = "p", href: str | None = "#t0p0") -> dict[str, str]:
    return {
        "heat": heat_map([name, "q"], [HeatRow(name, (HeatCell((Outcome.PASSED, Outcome.ERRORED), href), HeatCell(())))]),
        "forest": forest([ForestRow(name, "better", 0.031, -0.06, 0.122, href), ForestRow("q", "inconclusive", None)], "pass", 0.05),
        "pareto": pareto([FrontPoint(name, 0.1, 0.5, 0.2, 0.8, True, href), FrontPoint("q", 0.3, 0.9, on_front=True)], "cost"),
        "scatter": scatter([name, "q"], [Dot(0, 10, 2, href=href), Dot(1, 10_000, 0)], "tokens", "backtracks", "t"),
        "stacked": stacked_bars([Bar(name, (BarPart("read", 3, href), BarPart(name, 1)), "4 calls")], "t", "calls"),
        "bars": bars([Bar(name, (BarPart(name, 3, href), BarPart("q", 0)))], [name, "q"], "t", "trials"),
        "trend": trend(["0", "1"], [TrendSeries(name, (TrendPoint(0, 0.5, 0.4, 0.6, href), TrendPoint(1, None)))]),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["p", BAD])
@pytest.mark.parametrize("kind", list(some_charts()))
@pytest.mark.parametrize("href", ["#t0p0", None])
def test_every_chart_is_sound_and_says_what_it_shows(kind: str, name: str, href: str | None) -> None:
    svg = some_charts(name, href)[kind]
    root = ElementTree.fromstring(svg)
    assert root.get("role") == ("img" if href is None else "group")
    assert [child.tag for child in root][:2] == ["title", "desc"]
    assert all(child.text for child in list(root)[:2])
    assert not any(element.tag == "b" for element in root.iter())
    assert all(link[0].tag == "title" and link[0].text for link in root.iter("a"))
    assert ("<a " in svg) is (href is not None)
    assert "style=" not in svg, "a page may forbid inline style"
    assert not any(letter in svg for letter in "\x1b\ud800\u202e")


@pytest.mark.parametrize("kind", ["heat", "scatter", "stacked", "bars", "trend", "forest", "pareto"])
def test_nothing_to_show_is_no_crash(kind: str) -> None:
    empty = {
        "heat": lambda: heat_map([], []),
        "scatter": lambda: scatter([], [], "x", "y", "t"),
        "stacked": lambda: stacked_bars([], "t", "calls"),
        "bars": lambda: bars([], [], "t", "trials"),
        "trend": lambda: trend([], []),
        "forest": lambda: forest([], "pass"),
        "pareto": lambda: pareto([], "cost"),
    }
    ElementTree.fromstring(empty[kind]())


def test_outcomes_and_series_differ_in_shape() -> None:
    assert len({marks((outcome,), 0, 0, 0) for outcome in Outcome}) == len(Outcome)
    shapes = {marker(index, 0, 0, 4, "").replace(f"s{index}", "") for index in range(SERIES)}
    assert len(shapes) == SERIES
    assert len({marker(index, 0, 0, 4, "") for index in range(3 * SERIES)}) == 3 * SERIES, "never two alike"


def test_the_shade_is_the_rate_of_the_measured_and_absent_without_one() -> None:
    half = heat_map(["p"], [HeatRow("a", (HeatCell((Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED)),))])
    none = heat_map(["p"], [HeatRow("a", (HeatCell((Outcome.ERRORED,)),))])
    assert 'class="heat"' in half
    assert 'opacity="0.30"' in half
    assert 'class="heat"' not in none
    assert 'class="void"' in none


def test_very_many_attempts_become_a_count() -> None:
    outcomes = (Outcome.PASSED,) * MOST_MARKS + (Outcome.FAILED, Outcome.ERRORED)
    assert f"{MOST_MARKS}/{MOST_MARKS + 1} ▲1" in heat_map(["p"], [HeatRow("a", (HeatCell(outcomes),))])


def test_a_forest_row_lies_where_its_numbers_are() -> None:
    root = ElementTree.fromstring(forest([ForestRow("a vs b", "worse", -0.1, -0.2, 0.0)], "pass"))
    sign = next(e for e in root.iter("rect") if e.get("class") == "bad")
    whisker = next(e.get("d", "") for e in root.iter("path") if e.get("class") == "thin")
    ends = [float(point.split()[0]) for point in whisker.removeprefix("M").split("L")]
    assert float(sign.get("x", "nan")) + 5 == pytest.approx(sum(ends) / 2, abs=0.2)
    assert "a vs b: -10.0 pt (-20.0 to +0.0), worse" in root.findtext("desc", "")


def test_a_contrast_of_long_names_keeps_both_of_them() -> None:
    names = [f"claude-code-sonnet-with-mcp-and-a-long-name-{i}" for i in range(12)]
    drawn = forest([ForestRow(f"{name} vs {names[0]}", "better", 0.01) for name in names[1:]], "pass")
    shown = [e.text or "" for e in ElementTree.fromstring(drawn).iter("text") if e.get("class") == "b halo"]
    assert len(set(shown)) == 11
    assert all(text.endswith("-name-0") and " vs " in text and len(text) <= 34 for text in shown)
    wide = ElementTree.fromstring(forest([ForestRow("night 12: " + "m" * 40, "better", 0.625, 0.125, 0.875)], "pass"))
    label, said = (
        next(e.text or "" for e in wide.iter("text") if e.get("class") == kind) for kind in ("b halo", "e halo")
    )
    assert len(label) + len(said) <= 54, "a space between them"
    assert "canvas vs " in forest([ForestRow(f"canvas vs {names[0]}", "better", 0.01)], "pass")


def test_names_in_the_picture_never_cover_each_other() -> None:
    crowd = [FrontPoint(f"profile-{i}", 1 + i / 100, 0.5 + i / 100) for i in range(8)]
    texts = [e for e in ElementTree.fromstring(pareto(crowd, "cost")).iter("text") if "halo" in (e.get("class") or "")]
    assert 1 <= len(texts) < 8, "those without room are in the legend only"
    lines = [(float(e.get("x", 0)), float(e.get("y", 0)), e.get("class")) for e in texts]
    assert all(abs(a[1] - b[1]) >= 14 or a[2] != b[2] for a in lines for b in lines if a is not b)
    many = pareto([FrontPoint(f"p{i}", float(i), 0.5) for i in range(12)], "cost")
    assert ">12 p11<" in many, "signs repeat after eight, so these are numbered"


def test_a_name_is_nearest_to_its_own_marker() -> None:
    close = [FrontPoint("first-profile", 1.0, 0.5), FrontPoint("second", 1.06, 0.5), FrontPoint("third", 0.94, 0.52)]
    drawn = ElementTree.fromstring(pareto(close, "cost"))
    for group in drawn.iter("g"):
        says = next((e.text or "" for e in group.iter("title")), "")
        for text in group.iter("text"):
            assert says.startswith(f"{text.text}:")
    assert [e.text for e in drawn.iter("text") if "halo" in (e.get("class") or "")] != []


def test_task_names_are_whole() -> None:
    name = "a-task-with-a-name-that-is-not-short-at-all"
    drawn = heat_map(["p"], [HeatRow(name, (HeatCell((Outcome.PASSED,)),))])
    assert f">{name}<" in drawn


def test_passed_failed_and_errors_have_one_colour_each_and_no_series_has_it() -> None:
    """Every page takes them from the stylesheet of the charts."""
    pages = [
        files("terminalbench.dashboard") / "static" / "tbench.css",
        files("terminalbench.report") / "templates" / "report.css",
    ]
    for scheme in chart_css().split("@media")[:2]:
        found = dict(re.findall(r"--([a-z]+\d?): (#[0-9a-f]{6})", scheme))
        outcomes = {found[name] for name in ("pass", "fail", "time", "error")}
        series = {found[f"s{number}"] for number in range(8)}
        assert (len(outcomes), len(series), outcomes & series) == (4, 8, set())
    for page in pages:
        text = page.read_text()
        assert not re.search(r"--(pass|fail|time|error|good|bad|s\d):", text)
        assert "var(--pass)" in text


def test_counts_have_whole_ticks() -> None:
    drawn = scatter(["p"], [Dot(0, 10.0, 0.0), Dot(0, 20.0, 1.0)], "tokens", "backtracks", "t")
    assert ">1<" in drawn
    assert ">0.5<" not in drawn
    assert ">0.2<" in scatter(["p"], [Dot(0, 10.0, 0.5)], "x", "y", "t")


def test_a_trend_breaks_where_nothing_was_measured() -> None:
    rates = [0.5, 0.6, None, 0.4, 0.3]
    drawn = trend(list("abcde"), [TrendSeries("p", tuple(TrendPoint(i, r) for i, r in enumerate(rates)))], "iteration")
    assert drawn.count('class="curve') == 2
    assert ">Pass rate by iteration</title>" in drawn
    assert ">iteration</text>" in drawn
    assert ">pass rate, with its interval</text>" in drawn


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_ticks_cover_the_range(low: float, width: float) -> None:
    ticks = nice_ticks(low, low + width)
    slack = 1e-6 * max(1.0, abs(low), width)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + width - slack
    assert 2 <= len(ticks) <= 12
    assert ticks == sorted(ticks)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**6), st.integers(0, 50)), max_size=200), st.integers(9, 60)
)
def test_merging_dots_loses_no_trial(points: list[tuple[int, int, int]], limit: int) -> None:
    dots = [Dot(series, float(x), float(y)) for series, x, y in points]
    merged = binned(dots, limit)
    assert sum(dot.count for dot in merged) == len(dots)
    assert math.isclose(sum(d.y * d.count for d in merged), sum(d.y for d in dots), abs_tol=1e-6)
    assert len(merged) <= max(len(dots) if len(dots) <= limit else 3 * (max(4, int(math.sqrt(limit))) + 1) ** 2, limit)


def test_labels_keep_both_ends() -> None:
    assert short("some-quite-long-task-name-017", 12) == "some-…me-017"
    assert short("short", 12) == "short"
    assert [compact(value) for value in (0.05, 12, 1500, 2_000_000)] == ["0.05", "12", "1.5k", "2M"]


def test_every_class_a_chart_uses_has_a_style() -> None:
    css = chart_css()
    used = {
        name
        for svg in some_charts().values()
        for element in ElementTree.fromstring(svg).iter()
        for name in (element.get("class") or "").split()
    }
    assert {name for name in used if f".{name}" not in css} == set()


def test_a_point_that_none_beats_is_named_in_words_people_use() -> None:
    """The chart and its legend say what the dashed line means, not that a profile is "on the front"."""
    drawn = pareto([FrontPoint("p", 0.1, 0.5, on_front=True), FrontPoint("q", 0.3, 0.4)], "cost")
    assert "p: 50.0 % at $0.10, which means that no profile is better for less." in drawn
    assert ">p (best for its cost)<" in drawn
    assert "front)" not in drawn
    assert "on the front" not in drawn
