"""Reading results in a real browser: a batch that runs, and one trial."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from support.browser import browser, watched
from support.dashboard import Root, add_trajectory, make_root, served, steps, trial
from support.pace import seconds
from support.results import STAMP
from terminalbench.json_files import append_jsonl
from terminalbench.locks import lock

__all__ = ["browser"]

expect.set_options(timeout=seconds(60) * 1000)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    made = make_root(tmp_path_factory.mktemp("reading") / "results")
    document = steps(*(f"echo {n}" for n in range(118)), "touch made", "needle here")
    document["steps"][60]["observation"]["results"][0]["extra"]["exit_code"] = 3
    folder = made.batch.runs / f"{STAMP}__p" / "a__1"
    add_trajectory(folder, document)
    said = "FAIL: test_sum (x)\n-----\nAssertionError: 3 != 4\n" + "".join(f"line {n}\n" for n in range(60))
    (folder / "verifier" / "test-stdout.txt").write_text(said)
    made.scan()
    return made


@pytest.fixture(scope="module")
def address(root: Root) -> Iterator[str]:
    with served(root.path) as found:
        yield found


def test_a_trial_that_runs_is_followed_step_by_step(browser: Browser, address: str, root: Root) -> None:
    """From the batch page to the trial's; its new steps come by themselves, and what was opened stays open."""
    batch = type(root.batch)(root.path / "study" / "1")
    folder = batch.runs / f"{STAMP}__q" / "b__4"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    add_trajectory(folder, steps("ls"))
    about = {"time": "2026-01-23T16:40:00Z", "job": f"{STAMP}__q", "pid": 1, "profile": "q"}
    with lock(batch.lock, "tbench run"), watched(browser, own=address) as seen:
        page = seen.page
        page.goto(address + "batches/study/1/")
        for event in ({"kind": "job_started"}, {"kind": "trial_started", "trial": "b__4", "task": "b", "dataset": "d"}):
            append_jsonl(batch.events_jsonl, about | event)
        expect(page.locator("#state .badge.live")).to_be_visible()
        expect(page.locator("#matrix a.mark.running")).to_have_count(1)
        expect(page.locator("#matrix .legend .mark.running")).to_be_visible()
        expect(page.locator("#head")).to_contain_text("of 8 trials ended")
        assert seen.problems() == []
        page.locator("#so-far summary").click()
        append_jsonl(
            batch.events_jsonl, about | {"kind": "trial_phase", "trial": "b__4", "task": "b", "phase": "agent"}
        )
        expect(page.locator("#live")).to_contain_text("agent,")
        expect(page.locator("#so-far .sentences")).to_be_visible()
        page.locator("#live li a", has_text="b").first.click()
        expect(page.locator(".title .badge.running")).to_be_visible()
        expect(page.locator("#steps .step")).to_have_count(2)
        page.locator("#step-2 .thinking summary").click()
        add_trajectory(folder, steps("ls", "cat notes"))
        expect(page.locator("#steps .step")).to_have_count(3)
        assert page.locator("#step-2 .thinking details").get_attribute("open") is not None
        assert seen.problems() == []
        assert (seen.complaints, seen.requests) == ([], [])


def test_a_trial_is_read_from_its_end_and_its_steps_are_found(browser: Browser, address: str) -> None:
    with watched(browser, own=address) as seen:
        page = seen.page
        page.goto(address + trial("a__1"))
        expect(page.locator(".check")).to_contain_text("AssertionError: 3 != 4")
        scrub = "(one, at) => { one.value = at; one.dispatchEvent(new Event('input')); }"
        page.locator("[data-replay] input").evaluate(scrub, 5)
        expect(page.locator("#step-7")).to_be_visible()
        expect(page.locator("#step-9")).to_be_hidden()
        page.locator("[data-replay] input").evaluate(scrub, 600)
        expect(page.locator("#step-9")).to_be_visible()
        page.locator("#step-9 summary").first.click()
        expect(page.locator("#step-9 .call .copy")).to_be_visible()
        expect(page.locator("#verifier .end")).to_be_visible()
        assert page.locator("#verifier .end").inner_text().count("\n") == 29
        page.locator("#verifier summary").click()
        expect(page.locator("#verifier .whole pre")).to_contain_text("line 0")
        expect(page.locator("#verifier .end")).to_be_hidden()
        page.locator("[name=step]").fill("121")
        page.keyboard.press("Enter")
        expect(page.locator("#step-121")).to_be_focused()
        page.get_by_role("link", name="first", exact=True).click()
        expect(page.locator("#step-2")).to_be_visible()
        page.locator("[name=find]").fill("needle")
        expect(page.locator("#steps .step")).to_have_count(1)
        page.locator("[name=find]").fill("")
        page.locator("[name=only]").select_option("errors")
        expect(page.locator("#steps .step").first).to_have_attribute("id", "step-61")
        expect(page.locator("#steps .step")).to_have_count(1)
        page.locator("[name=only]").select_option("edits")
        expect(page.locator("#steps .step").first).to_have_attribute("id", "step-120")
        expect(page.locator("#steps .step")).to_have_count(1)
        page.get_by_role("link", name="last", exact=True).click()
        expect(page.locator("#step-121")).to_be_focused()
        assert seen.problems() == []
        assert (seen.complaints, seen.requests) == ([], [])
