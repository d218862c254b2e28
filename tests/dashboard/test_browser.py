"""The dashboard in a real browser."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from dashboard.lessons_shown import make_lessons, show
from support.browser import EVERY_RULE, OF_THE_LOOK, SERIOUS, Watched, browser, watched
from support.dashboard import VIEW_TOKEN, Root, add_trajectory, make_root, served, steps, trial
from support.nights import make_night
from support.pace import seconds
from support.results import STAMP, make_plan, make_trial
from support.trainings import make_training
from terminalbench.archivist.memory import add
from terminalbench.archivist.store import memory_of, open_store
from terminalbench.dashboard.answers import export_site
from terminalbench.experiments.batch import allocate
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import NightEvent, NightEventKind
from terminalbench.overnight.summary import project_night
from terminalbench.records.event import Event
from terminalbench.records.lesson import Lesson
from terminalbench.records.trial import Exposure

__all__ = ["browser"]

expect.set_options(timeout=seconds(60) * 1000)

PAIR = f"side-by-side/study/0/{STAMP}__p/a__1/study/0/{STAMP}__q/a__3/"
PAGES = (
    "",
    "experiments/",
    "experiments/study/",
    "trials/",
    "batches/study/0/",
    trial("a__1"),
    PAIR,
    "compare/",
    "compare/study/0/q/study/0/p/",
    "why/study/0/q/p/",
    "nights/20260123/results/batches/night/1/",
    "nights/20260123/results/batches/swe-bench-pro/0/charts/",
    "trainings/",
    "trainings/prompts/",
    "nights/",
    "nights/20260123/",
)
HOSTILE = "<img src=//evil.example/x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\x1b[2J"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    made = make_root(tmp_path_factory.mktemp("dashboard") / "results")
    folder = made.batch.runs / f"{STAMP}__p" / "b__1"
    add_trajectory(folder, steps(*(f"echo {n}" for n in range(120)), output=HOSTILE, first=HOSTILE))
    os.utime(folder / "result.json", (1, 1))  # read again
    night = make_night(made.path / "20260123", [{"p": {"a": "+", "b": "x"}}, {"p": {"a": "x", "b": "E"}}])
    night.say(NightEvent("2026-01-23T17:00:00Z", NightEventKind.INCIDENT, HOSTILE, cause=HOSTILE))
    project_night(night.folder)
    pro = allocate(night.folder.results_root, "swe-bench-pro")
    make_plan(pro, ("singleshot", "s1_tdd"), ("a" + "-long" * 12, "b"), 1)
    make_trial(pro, "b__1", profile="singleshot", reward=0.0, cost=0.1)
    make_trial(pro, "b__2", profile="s1_tdd", reward=1.0, cost=0.2)
    make_training(made.site.project)
    made.scan()
    return made


@pytest.fixture(scope="module")
def address(root: Root) -> Iterator[str]:
    with served(root.path) as found:
        yield found


@pytest.fixture(scope="module")
def lessons(root: Root) -> dict[str, str]:
    made = make_lessons(root.path)
    show(root, "a__2", Exposure(made["measured"], 0.7, shown=True, characters=40))
    return made


def press(page: Page, keys: str) -> None:
    """Press a key on a page that listens: a page can be seen before its script has run."""
    page.wait_for_load_state()
    page.keyboard.press(keys)


WIDTHS = (1440, 820, 390)
SIZES = {"light": 1440, "dark": 390}
SMALL = PAGES[4:7] + PAGES[11:12] + PAGES[-4:]
"""Pages whose dark side is looked at as on a phone; that of the others as on a tablet."""


def show_as(seen: Watched, width: int, scheme: Any) -> None:
    seen.page.set_viewport_size({"width": width, "height": 800})
    seen.page.emulate_media(color_scheme=scheme)


def test_every_page_is_calm_accessible_and_alone(browser: Browser, address: str) -> None:
    """No complaint on the console, no request elsewhere, no serious finding of axe, nothing wider than the window."""
    with watched(browser, own=address) as seen:
        seen.page.goto(address + "batches/study/0/")
        expect(
            seen.page.locator("#failures .list")
        ).to_be_visible()  # classified in the background, and shown by itself
        for path in PAGES:
            seen.page.goto(address + path)
            for width in WIDTHS:
                show_as(seen, width, "light")
                assert seen.width() <= width, (path, width)
                assert width < WIDTHS[0] or seen.problems() == [], path
            show_as(seen, 390 if path in SMALL else 820, "dark")
            only = None if path == SMALL[0] else OF_THE_LOOK  # a phone's menu is on each page
            assert seen.problems(only=only) == [], (path, "dark")
        seen.page.goto(address + trial("a__1"))
        for scheme, width in SIZES.items():
            show_as(seen, width, scheme)
            ends = seen.page.locator(".findings td.text").evaluate_all(
                "all => all.map(a => a.getBoundingClientRect().right)"
            )
            assert ends
            assert max(ends) <= width, "why a finding holds is read without scrolling"
        assert seen.complaints == []
        assert seen.requests == []


def test_a_night_is_told_live_and_its_report_is_calm(browser: Browser, address: str, root: Root) -> None:
    folder = NightFolder(root.path / "20260123")
    with watched(browser, own=address) as seen:
        seen.page.goto(f"{address}nights/20260123/")
        expect(seen.page.get_by_text("It is morning.")).to_have_count(0)
        seen.page.wait_for_load_state()
        append_jsonl(folder.events_jsonl, NightEvent("2026-01-24T06:00:00Z", NightEventKind.NOTE, "It is morning."))
        expect(seen.page.get_by_text("It is morning.")).to_be_visible()
        assert seen.page.title() == "Night tbrun-1 · tbench"
        assert seen.complaints == []
    with watched(browser) as seen:
        seen.page.goto(folder.report_html.as_uri())
        for width, scheme, rules in ((1440, "light", EVERY_RULE), (820, "dark", SERIOUS), (390, "dark", SERIOUS)):
            show_as(seen, width, scheme)
            assert (seen.problems(rules), seen.complaints, seen.requests) == ([], [], [])
            assert seen.width() <= width


def test_lessons_are_calm_at_every_width_and_told_live(
    browser: Browser, address: str, root: Root, lessons: dict[str, str]
) -> None:
    sizes = ((1440, "light"), (820, "dark"), (390, "dark"))
    with watched(browser, own=address) as seen:
        for path in ("lessons/", *(f"lessons/{lessons[name]}/" for name in ("measured", "hostile"))):
            seen.page.goto(address + path)
            for width, scheme in sizes:
                show_as(seen, width, scheme)
                assert seen.problems(only=None if scheme == "light" else OF_THE_LOOK) == [], (path, width)
                assert seen.width() <= width, (path, width)
        expect(seen.page.locator("#lesson .lead").first).to_contain_text("<script>document.title='owned'</script>")
        for width, scheme in sizes:
            show_as(seen, width, scheme)
            seen.page.goto(f"{address}lessons/{lessons['measured']}/")
            seen.page.get_by_role("link", name="3", exact=True).click()
            expect(seen.page.locator("#step-3")).to_be_in_viewport()
            seen.page.goto(f"{address}lessons/")
            seen.page.wait_for_load_state()
            text = f"Look at the page that is {width} wide."
            with open_store(memory_of(root.path), write=True) as store:
                add(store, Lesson(id="", do=text), by="ann")
            expect(seen.page.get_by_text(text)).to_be_visible()
            assert "owned" not in seen.page.title()
        assert (seen.complaints, seen.requests) == ([], [])


def test_a_hostile_trajectory_does_nothing(browser: Browser, address: str) -> None:
    with watched(browser, own=address) as seen:
        seen.page.goto(address + trial("b__1"))
        expect(seen.page.locator("#step-2 .result pre").first).to_contain_text(
            "<script>document.title='owned'</script>␛[2J"
        )
        assert "owned" not in seen.page.title()
        assert seen.page.locator("main img").count() == 0
        assert seen.requests == []
        assert seen.complaints == []


def test_filters_and_search(browser: Browser, address: str) -> None:
    with watched(browser, own=address) as seen:
        page = seen.page
        page.goto(address)
        expect(page.locator("tr[data-row]")).to_have_count(2)
        press(page, "/")
        page.keyboard.type("nothing like it")
        expect(page.locator("#results")).to_contain_text("No batch fits")
        page.goto(address + "trials/")
        page.get_by_label("Outcome").select_option("failed")
        expect(page.locator("tr[data-row]")).to_have_count(2)
        assert "outcome=failed" in page.url
        page.get_by_label("Search").fill("a__2")
        expect(page.locator("tr[data-row]")).to_have_count(1)
        with page.expect_download() as download:
            page.get_by_role("link", name="trials.csv").click()
        assert Path(download.value.path()).read_text().count("\n") == 2
        page.goto(page.url)  # the address alone shows the same
        expect(page.locator("tr[data-row]")).to_have_count(1)
        assert seen.complaints == []


def test_what_the_form_compares_has_its_downloads(browser: Browser, address: str) -> None:
    with watched(browser, own=address) as seen:
        page = seen.page
        page.goto(address + "compare")
        for side in page.locator("select").all():
            cut = side.evaluate("""select => {
                select.options[0].text = "an-experiment-about-prompts/12: claude-code-sonnet";
                select.selectedIndex = 0;
                const pen = document.createElement("canvas").getContext("2d");
                pen.font = getComputedStyle(select).font;
                return pen.measureText(select.options[0].text).width + 24 - select.clientWidth;
            }""")
            assert cut <= 0, "a name of a usual length is whole"
        page.goto(address + "compare")
        page.get_by_role("button", name="Compare").click()
        expect(page).to_have_url(address + "compare/study/1/q/study/1/p/")
        for name in ("contrasts.csv", "tasks.csv", "data.json"):
            with page.expect_download() as download:
                page.get_by_role("link", name=name).click()
            assert Path(download.value.path()).read_text().count("q"), name
        assert seen.complaints == []


def test_long_names_do_not_push_the_numbers_out_of_sight(browser: Browser, tmp_path: Path) -> None:
    slug, profiles = "a-slug-without-end__" + "and-on-" * 12, ("a-profile-without-end-" + "and-on-" * 20, "q")
    made = make_root(tmp_path / "results")
    batch = allocate(made.path, slug)
    write_json(batch.plan_json, make_plan(batch, profiles, "ab", 1))
    make_trial(batch, "b__1", profile=profiles[0], reward=1.0)
    made.scan()
    export_site(made.site, tmp_path / "site")
    with watched(browser, width=1440) as seen:
        for path, table in (("index.html", 0), (f"batches/{slug}/0/index.html", 1)):
            seen.page.goto((tmp_path / "site" / path).as_uri())
            inside = seen.page.locator(".scroll").nth(table)
            assert inside.evaluate("box => box.scrollWidth - box.clientWidth") <= 1, path


def test_a_filter_typed_during_another_look_wins(browser: Browser, address: str) -> None:
    with watched(browser, own=address) as seen:
        page = seen.page
        page.goto(address + "trials/")
        held = []
        page.route("**/trials/?outcome=failed", lambda route: held.append(route))
        with page.expect_request(lambda request: request.url.endswith("?outcome=failed")):
            page.get_by_label("Outcome").select_option("failed")
        page.get_by_label("Search").fill("a__2")
        page.wait_for_timeout(500)
        assert len(held) == 1
        held[0].continue_()
        expect(page.locator("tr[data-row]")).to_have_count(1)


def test_keys(browser: Browser, address: str) -> None:
    with watched(browser, own=address) as seen:
        page = seen.page
        page.goto(address)
        press(page, "j")
        press(page, "j")
        press(page, "Enter")
        expect(page).to_have_url(address + "batches/study/0/")
        page.goto(address + trial("a__1"))
        for key in "jjjk":
            press(page, key)
        expect(page.locator("#step-2")).to_be_focused()
        assert page.url.endswith("#step-2")
        press(page, "ArrowRight")
        expect(page).to_have_url(address + trial("a__2"))
        press(page, "ArrowLeft")
        expect(page).to_have_url(address + trial("a__1"))
        press(page, "?")
        expect(page.get_by_role("dialog")).to_be_visible()
        press(page, "Escape")
        press(page, "h")
        expect(page).to_have_url(address)


def test_a_deep_link_finds_a_step_on_a_later_page(browser: Browser, address: str) -> None:
    with watched(browser, own=address) as seen:
        seen.page.goto(address + trial("b__1") + "#step-77")
        expect(seen.page).to_have_url(address + trial("b__1") + "steps/1/2/#step-77")
        expect(seen.page.locator("#step-77")).to_be_focused()


def test_side_by_side(browser: Browser, address: str) -> None:
    with watched(browser, own=address) as seen:
        page = seen.page
        page.goto(address + "batches/study/0/")
        page.get_by_role("link", name="side by side a").click()
        expect(page.locator("#fork")).to_have_text("Here they part")
        expect(page.locator(".left.apart .step").first).to_contain_text("echo wrong")
        expect(page.locator(".right.apart .step").first).to_contain_text("python solve.py")
        page.locator("details.together > summary").nth(1).click()
        expect(page.locator("#left-step-2")).to_be_visible()


def test_a_page_follows_what_happens(browser: Browser, tmp_path: Path) -> None:
    """At once, or when a reader who is in the middle of it has left it."""
    root = make_root(tmp_path / "results")
    with served(root.path) as address, watched(browser, own=address) as seen:
        page = seen.page
        page.goto(address + "batches/study/1/")
        expect(page.locator("[data-pulse]")).to_have_text("up to date")
        expect(page.locator(".mark.failed:visible")).to_have_count(1)  # the legend
        _fail(root, "b__9")
        expect(page.locator(".mark.failed:visible")).to_have_count(2)
        page.locator("a.mark.failed:visible").focus()
        with page.expect_response(lambda answer: answer.request.headers.get("x-part") == "1"):
            _fail(root, "a__9")
        expect(page.locator(".mark.failed:visible")).to_have_count(2)
        page.evaluate("document.activeElement.blur()")
        expect(page.locator(".mark.failed:visible")).to_have_count(3)
        assert seen.complaints == []


def _fail(root: Root, name: str) -> None:
    """A trial of the second batch that just failed."""
    batch = root.path / "study" / "1"
    make_trial(type(root.batch)(batch), name, profile="q", reward=0.0)
    append_jsonl(batch / "events.jsonl", Event("2026-01-24T17:00:00Z", "trial_ended", f"{STAMP}__q", 1, trial=name))


def test_an_export_works_from_the_disk(browser: Browser, root: Root, tmp_path: Path) -> None:
    export_site(root.site, tmp_path / "site")
    home = (tmp_path / "site" / "index.html").as_uri()
    with watched(browser, own="file://") as seen:
        page = seen.page
        page.goto(home)
        page.locator("tr[data-row] a").last.click()
        expect(page.locator("h1")).to_have_text("study 0")
        page.locator("a.mark.failed").first.click()
        expect(page.locator("#trajectory .step").first).to_be_visible()
        page.locator("[data-local-steps] input").fill("cat notes")
        expect(page.locator("#trajectory .step:visible")).to_have_count(1)
        page.locator("[data-local-steps] input").fill("")
        page.locator("[data-local-steps] select").select_option("edits")
        expect(page.locator("#trajectory .step:visible")).to_have_attribute("id", "step-4")
        page.locator("h1").click()
        press(page, "ArrowRight")
        expect(page.locator("h1")).to_have_text("a__2")
        press(page, "h")
        expect(page.locator("h1")).to_have_text("Batches")
        page.get_by_role("link", name="Trials").click()
        page.locator("[data-local] input").fill("a__1 failed")
        expect(page.locator("tr[data-row]:visible")).to_have_count(1)
        page.get_by_role("link", name="Compare").click()
        page.get_by_role("link", name="q against p").first.click()
        expect(page.locator("h1")).to_contain_text("q")
        assert seen.complaints == []
        assert seen.requests == []


def test_a_token_is_asked_for_once(browser: Browser, address: str) -> None:
    with watched(browser, own=address, known=False) as seen:
        refused = seen.page.goto(address + "trials/")
        assert refused is not None
        assert refused.status == 401
        expect(seen.page.locator("body")).to_contain_text("Open the address that tbench view printed")
        seen.page.goto(f"{address}?token={VIEW_TOKEN}")
        expect(seen.page).to_have_url(address)
        seen.page.get_by_role("link", name="Trials", exact=True).click()
        expect(seen.page.locator("h1")).to_have_text("Trials")
