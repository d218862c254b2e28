"""The stream that tells a page when to look again."""

import asyncio
import re
from typing import Any, cast

import pytest

from support.dashboard import Root
from support.results import make_trial
from terminalbench.dashboard import app
from terminalbench.experiments.batch import Batch


class Listener:
    """A browser that stays for so many looks; before each something may happen."""

    def __init__(self, *happens: Any) -> None:
        self._happens = list(happens)

    async def is_disconnected(self) -> bool:
        if not self._happens:
            return True
        what = self._happens.pop(0)
        if what is not None:
            what()
        return False


def said(root: Root, page: str, *happens: Any) -> list[str]:
    """What the stream of a page says; the page was read before."""
    match = re.search(r'data-feed="[^"?]*events\?([^"]*)"', page)
    assert match is not None
    query = dict(word.split("=") for word in match[1].replace("&amp;", "&").split("&"))
    batch = query.get("batch", "").replace("%2F", "/")

    async def listen() -> list[bytes]:
        request = cast(Any, Listener(*happens))
        return [part async for part in app._events(root.site, request, batch, query["seen"])]

    return re.findall(r"event: (\w+)", b"".join(asyncio.run(listen())).decode())


def trial_ends(root: Root) -> None:
    """One of the batch in which all others passed: nothing is classified in the background."""
    make_trial(Batch(root.path / "study" / "1"), "b__4", profile="q", reward=1.0)
    root.scan()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "POLL_SEC", 0.0)


@pytest.mark.parametrize("path", ["", "experiments/", "experiments/study/", "batches/study/1/"])
def test_what_happens_between_a_page_and_its_stream_is_told(root: Root, path: str) -> None:
    page = root.text(path)
    assert said(root, page, None, None) == ["hello"]
    trial_ends(root)
    assert said(root, page, None, None) == ["hello", "change"]
    assert said(root, root.text(path), None, None) == ["hello"]


def test_failures_that_are_classified_before_the_page_listens_are_shown(root: Root) -> None:
    page = root.text("batches/study/1/")
    root.site.analyses["study/1"] = 1
    assert said(root, page, None) == ["hello", "change"]


def test_every_change_is_told_once(root: Root) -> None:
    page = root.text("batches/study/1/")
    assert said(root, page, None, lambda: trial_ends(root), None, None) == ["hello", "change"]
