"""A real browser for tests: pages that record what they complain about and what they ask the network for."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from support.dashboard import VIEW_TOKEN
from support.pace import seconds
from support.tools import AXE, CHROMIUM

PATIENCE_MS = seconds(120) * 1000
FLAGS = ("--no-sandbox", "--disable-gpu", "--in-process-gpu", "--renderer-process-limit=1")
"""A page takes a quarter less of the processor without processes of its own."""
SERIOUS = ("serious", "critical")
EVERY_RULE = ("minor", "moderate", *SERIOUS)
OF_THE_LOOK = ("color-contrast", "link-in-text-block", "scrollable-region-focusable")
"""The serious rules of axe that can find something else in other colours, or at another width."""
_LOOK = """([impacts, only]) => axe.run(document, {
  resultTypes: ['violations'], preload: false,
  rules: Object.fromEntries(axe._audit.rules
    .filter(r => r.enabled && !(impacts.includes(r.impact) && (!only || only.includes(r.id))))
    .map(r => [r.id, {enabled: false}])),
})"""


@dataclass
class Watched:
    """A page with all it said on the console, and every address it asked for that is not its own."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def problems(self, rules: tuple[str, ...] = SERIOUS, only: tuple[str, ...] | None = None) -> list[str]:
        """Accessibility violations of that impact, by axe; with `only`, those of some rules. Each rule takes its time."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.path().read_text(encoding="utf-8"))
        found: dict[str, Any] = self.page.evaluate(_LOOK, [rules, only])
        return [
            f"{v['id']}: {v['help']}: {json.dumps([node['html'][:160] for node in v['nodes'][:4]])}"
            for v in found["violations"]
            if v["impact"] in rules
        ]

    def width(self) -> int:
        """How wide the page is: more than the window means that it scrolls sideways."""
        return self.page.evaluate("document.documentElement.scrollWidth")


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """Chromium, one for each test module. `make test` installs it."""
    program = CHROMIUM.path()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=FLAGS, timeout=PATIENCE_MS)
        yield started
        started.close()


@contextmanager
def watched(
    browser: Browser, *, width: int = 1200, scheme: Any = "light", own: str = "file://", known: bool = True
) -> Generator[Watched]:
    """A fresh page that records; addresses that start with `own` or carry their data are its own.

    It has the token of a dashboard that `served` started, unless it is not `known` there.
    """
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    if known and own.startswith("http"):
        port = urlsplit(own).port
        context.add_cookies([{"name": f"tbench_token_{port}", "value": VIEW_TOKEN, "url": own}])
    page = context.new_page()
    found = Watched(page)
    page.on(
        "console",
        lambda message: found.complaints.append(message.text) if message.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith((own, "data:")) else found.requests.append(request.url),
    )
    try:
        yield found
    finally:
        context.close()
