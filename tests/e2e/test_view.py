"""The dashboard beside a real run: it appears by itself and moves on by itself."""

import os
import subprocess

from playwright.sync_api import Browser, expect

from support.browser import browser, watched
from support.dashboard import served
from support.pace import seconds

__all__ = ["browser"]

expect.set_options(timeout=seconds(120) * 1000)

PROFILES = """
[profiles.sim]
agent = "gated_agents:Gated"
model = "sim/one"
options = { solve_probability = 1.0 }
[profiles.nop]
agent = "nop"
"""
AGENT = '''
"""A simulated agent that waits for a file of the project: the test says when it goes on."""

import asyncio
from pathlib import Path

from terminalbench.harbor.agents.simulated import SimulatedAgent


class Gated(SimulatedAgent):
    async def run(self, instruction, environment, context) -> None:
        while not (Path(__file__).parent / "go").exists():
            await asyncio.sleep(0.05)
        await super().run(instruction, environment, context)
'''


def test_a_page_follows_a_real_run(lab, browser: Browser) -> None:
    (lab.root / "results").mkdir()
    lab.project.write("gated_agents.py", AGENT)
    experiment = lab.experiment(PROFILES)
    with served(lab.root / "results", env=lab.env) as address, watched(browser, own=address) as seen:
        page = seen.page
        page.goto(address)
        expect(page.locator("#results")).to_contain_text("No batches yet")
        run = lab.start("run", experiment)
        try:
            expect(page.locator(".badge.live")).to_be_visible()
            page.goto(address + "batches/s/0/")
            expect(page.locator("#live")).to_contain_text("Running now")
            expect(page.locator("#matrix a.mark.failed")).to_have_count(2)  # what nop did comes by itself
            expect(page.locator("#matrix a.mark.passed")).to_have_count(0)
            lab.project.write("go", "")
            expect(page.locator("#matrix a.mark.passed")).to_have_count(2)
            assert run.wait(timeout=seconds(240)) == 0
        finally:
            _end(run)
        expect(page.locator("#state")).to_contain_text("complete")
        expect(page.locator("#live section")).to_have_count(0)
        page.locator("#matrix a.mark.passed").first.click()
        expect(page.locator("#trajectory .step").first).to_be_visible()
        assert seen.complaints == []
        assert seen.requests == []


def _end(run: subprocess.Popen[str]) -> None:
    if run.poll() is None:
        os.killpg(run.pid, 15)
        run.wait(timeout=seconds(60))
