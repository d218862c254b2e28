"""The tables that people look at most, at three widths: nothing sticks out, and they look as they did."""

import os
from pathlib import Path

import pytest

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import allocate
from terminalbench.experiments.plan import Exclusion
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.report.text import summary
from terminalbench.runner.preflight import exclusion_lines

REPO = Path(__file__).parents[2]
TASKS = (
    "fix-git",
    "csv-clean",
    "a-task-whose-name-is-so-long-that-no-terminal-of-eighty-columns-holds",
)
PROFILES = ("plain", "with-a-server-that-has-a-rather-long-name-of-its-own", "no-key")
REASON = (
    "claude-code needs ANTHROPIC_API_KEY for anthropic (put it into experiments/.env, or name it in env and export it)"
)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_tables_fit(tbench, golden, project, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    batch = allocate(project.root / "results", "demo")
    make_plan(batch, PROFILES, TASKS, 2, excluded=(Exclusion(REASON, profile="no-key"),))
    for place, profile in enumerate(PROFILES[:2]):
        for number, task in enumerate(TASKS):
            for attempt in (1, 2):
                broken = (place, number, attempt) == (1, 2, 2)
                make_trial(
                    batch, f"{task}__{place}{attempt}", profile=profile, attempt=attempt, second=number * 2 + attempt,
                    reward=None if broken else float(place or number == attempt), error="RuntimeError" if broken else None,
                    cost=0.25 * (1 + number),
                )  # fmt: skip
    scan_batch(batch)
    monkeypatch.setenv("COLUMNS", str(width))
    shown = [f"# run\n{summary(view_batch(batch))}"]
    for command in (["list"], ["list", "demo/0"], ["compare", "demo/0"], ["analyze", "demo/0", "--no-llm"]):
        ran = tbench(*command)
        assert ran.code in (0, 3), ran.err
        shown.append(f"# tbench {' '.join(command)}\n{ran.out}")
    text = "\n".join(shown)
    assert [line for line in text.splitlines() if len(line) > width] == []
    golden(REPO / "tests" / "golden" / "tables" / f"{width}.txt", text.replace(os.fspath(project.root), "ROOT"))


def test_a_reason_that_leaves_out_many_is_said_once() -> None:
    excluded = [Exclusion("no key", profile=name) for name in "abcdefg"]
    assert exclusion_lines(excluded) == ["a, b, c, d, e and 2 more: no key"]
