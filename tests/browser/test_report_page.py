"""report.html in a real browser: quiet, alone, readable everywhere, and nothing an agent wrote comes alive."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from support.browser import EVERY_RULE, SERIOUS, watched
from support.reports import SMALL, large, measured
from terminalbench.analytics.error_groups import FailureCause
from terminalbench.report.build import build_report
from terminalbench.report.documents import render_html
from terminalbench.swebench_pro.rows import ResultRow
from terminalbench.swebench_pro.visualize import make_charts, write

HOSTILE = "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\"'><svg onload=window.hacked=1>"


CAUSES = tuple(
    FailureCause(
        profile=profile, what=what, count=9, of=32, trial="", task="sanitize-git-repo", check="AssertionError: " + "x " * 60,
        step=7, did="bash: python -m pytest -q tests/test_sanitize.py",
    )
    for profile in ("text", "graph")
    for what in ("untested", "loop", "wrong_answer")
)  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    hostile = {
        f"p{HOSTILE}": {f"task {HOSTILE} \x1b[31m \ud800 \u202e": "+xTEC.", "javascript:alert(1)": "xxxxxx"},
        "javascript:alert(1)": {f"task {HOSTILE} \x1b[31m \ud800 \u202e": "x+x+x+", "javascript:alert(1)": "EEEEEE"},
    }
    reports = {
        "small": build_report(measured(SMALL), [measured(SMALL, number=1)]),
        "hostile": build_report(measured(hostile, name=HOSTILE)),
        "large": build_report(measured(large(3, 120, 2))),
        "two": build_report(
            replace(
                measured({"text": {f"t{n}": "+xx" for n in range(16)}, "graph": {f"t{n}": "++x" for n in range(16)}}),
                causes=CAUSES,
            )
        ),
        "one": build_report(measured({"only": {"a": "+", "b": "."}})),
    }
    rows = [
        ResultRow(instance_id=name + "-long" * 12, arm=arm, resolved=arm == "b", wall_time_seconds=9.0, cost_usd=0.1)
        for name in ("x", "y")
        for arm in ("a", "b")
    ]
    charts = write(make_charts(rows), folder / "charts", "/a/path/without/end" * 9)
    for name, report in reports.items():
        (folder / f"{name}.html").write_text(render_html(report), encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in reports} | {"charts": charts.as_uri()}


@pytest.mark.parametrize("name", ["small", "hostile", "large", "one", "charts"])
def test_the_page_is_quiet_alone_and_narrow(browser: Browser, pages: dict[str, str], name: str) -> None:
    with watched(browser) as found:
        for width, scheme in ((360, "light"), (1200, "dark")):
            found.page.set_viewport_size({"width": width, "height": 800})
            found.page.emulate_media(color_scheme=scheme)
            found.page.goto(pages[name])
            assert found.complaints == []
            assert found.requests == []
            assert found.width() <= width
            assert found.page.evaluate("window.hacked") is None
            alive = "document.querySelectorAll('script, iframe, object, embed, form, img').length"
            assert found.page.evaluate(alive) == 0


@pytest.mark.parametrize("name", ["small", "large"])
def test_no_width_scrolls_sideways(browser: Browser, pages: dict[str, str], name: str) -> None:
    with watched(browser) as found:
        found.page.goto(pages[name])
        for width, media in ((700, "screen"), (820, "screen"), (900, "screen"), (1100, "screen"), (718, "print")):
            found.page.set_viewport_size({"width": width, "height": 800})
            found.page.emulate_media(media=media)
            assert found.width() <= width, (width, media)


def test_axe_finds_nothing_serious(browser: Browser, pages: dict[str, str]) -> None:
    """Colours are those of the scheme, so one scheme is enough for foreign names."""
    with watched(browser) as found:
        for name, schemes in (("small", ("light", "dark")), ("hostile", ("light",)), ("charts", ("dark",))):
            found.page.goto(pages[name])
            for scheme in schemes:
                found.page.emulate_media(color_scheme=scheme)
                rules = EVERY_RULE if (name, scheme) == ("small", "light") else SERIOUS
                assert found.problems(rules) == [], (name, scheme)


def test_dark_is_dark_and_print_is_light(browser: Browser, pages: dict[str, str]) -> None:
    with watched(browser) as found:
        found.page.goto(pages["small"])
        for scheme, media, paper in (
            ("light", "screen", "rgb(255, 255, 255)"),
            ("dark", "screen", "rgb(13, 17, 23)"),
            ("dark", "print", "rgb(255, 255, 255)"),
        ):
            found.page.emulate_media(color_scheme=scheme, media=media)
            assert found.page.evaluate("getComputedStyle(document.body).backgroundColor") == paper


def test_it_prints(browser: Browser, pages: dict[str, str], tmp_path: Path) -> None:
    with watched(browser) as found:
        found.page.goto(pages["small"])
        found.page.emulate_media(media="print")
        assert found.page.locator("nav").is_hidden()
        assert found.page.locator(".chart").first.is_visible()
        found.page.goto(pages["two"])
        made = found.page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
        assert re.findall(rb"/Count (\d+)", made) == [b"1"], "two profiles fit on one page"


def test_the_first_screen_has_the_answer_and_the_rest_is_folded(browser: Browser, pages: dict[str, str]) -> None:
    with watched(browser, width=1440) as found:
        found.page.goto(pages["two"])
        assert found.page.evaluate("document.documentElement.scrollHeight") < 3000
        assert found.page.locator("#answer").is_visible()
        assert found.page.get_by_role("heading", name="Why they failed").is_visible()
        assert found.page.locator("#list").is_hidden()
        found.page.get_by_role("link", name="Trials", exact=True).click()
        assert found.page.locator("#list").is_visible()


_COVERED = """() => [...document.querySelectorAll('svg.chart')].flatMap(chart => {
  const texts = [...chart.querySelectorAll('text')].filter(one => one.checkVisibility()).map(one => [one.textContent, one.getBoundingClientRect()]);
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  const frame = chart.getBoundingClientRect();
  const cut = texts.filter(([, box]) => box.left < frame.left - 1 || box.right > frame.right + 1).map(([text]) => text + ' is cut');
  return cut.concat(texts.flatMap(([text, box], n) => texts.slice(n + 1).filter(([, other]) => over(box, other)).map(([other]) => text + ' | ' + other)));
})"""


def test_no_text_of_a_chart_is_cut_or_covers_another(browser: Browser, pages: dict[str, str]) -> None:
    """Measured as drawn: every box of a text against every other of its chart."""
    with watched(browser, width=1200) as found:
        for name in ("small", "large"):
            found.page.goto(pages[name])
            found.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert found.page.evaluate(_COVERED) == [], name


def test_the_matrix_of_hundreds_of_tasks_folds_and_prints(browser: Browser, pages: dict[str, str]) -> None:
    with watched(browser) as found:
        found.page.goto(pages["large"])
        rest = found.page.get_by_label("The other tasks by profile")
        assert rest.is_hidden()
        found.page.get_by_text("The other tasks").click()
        assert rest.is_visible()
        found.page.goto(pages["small"])
        assert found.page.locator(".fold").count() == 0
        rules = "[...document.styleSheets].flatMap(s => [...s.cssRules]).filter(r => r instanceof CSSPageRule).length"
        assert found.page.evaluate(rules) == 1


def test_numbers_lead_to_their_trials(browser: Browser, pages: dict[str, str]) -> None:
    with watched(browser) as found:
        found.page.goto(pages["small"])
        found.page.get_by_role("row", name="text baseline").get_by_role("link").first.click()
        place = found.page.locator(":target")
        assert place.inner_text() == "passed (3)"
        found.page.get_by_label("Tasks by profile").locator("a[href='#t0p2']").first.click()
        assert found.page.locator(":target").inner_text() == "canvas"
        assert found.page.locator(":target").is_visible()


def test_hostile_names_are_read_as_text(browser: Browser, pages: dict[str, str]) -> None:
    with watched(browser) as found:
        found.page.goto(pages["hostile"])
        assert found.page.locator("h1").inner_text() == HOSTILE
        assert "\x1b" not in found.page.content()
        hrefs = found.page.eval_on_selector_all("a[href]", "found => found.map(a => a.getAttribute('href'))")
        assert all(href.startswith(("#", "../")) for href in hrefs)
