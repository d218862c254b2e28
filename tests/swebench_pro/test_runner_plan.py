"""The plan that the SWE-Bench Pro runner follows, sentence by sentence: what it names is here, or named in the docs."""

import importlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from conftest import REPO
from support.live import Teller, job_event
from support.live import plan as live_plan
from terminalbench.cli.swebench_pro import command as group
from terminalbench.live.state import replay
from terminalbench.swebench_pro.error_analysis import analyze
from terminalbench.watch.arms import arm_lines

EXAMPLES = REPO / "examples" / "swe_bench_pro"
PAGE = (REPO / "docs" / "swe-bench-pro.md").read_text()
ENV = (EXAMPLES / ".env.example").read_text()
SCRIPT = (EXAMPLES / "run_experiment.sh").read_text()


def option(command: str, name: str) -> click.Option:
    found = group.get_command(click.Context(group), command)
    assert found is not None
    return next(
        one for one in found.params if isinstance(one, click.Option) and name in (*one.opts, *one.secondary_opts)
    )


def table(ended: int) -> str:
    """The table of two arms on three tasks, after so many runs of the first have ended."""
    planned = live_plan(("a", "b"), ("t1", "t2", "t3"), profiles_parallel=2)
    events = [job_event(0, "job_started", "a"), job_event(0, "job_started", "b")]
    events += [event for n in range(1, ended + 1) for event in Teller(f"t{n}__1", f"t{n}", "a").whole(n, n + 10)]
    state = replay(planned, events)
    return "\n".join(line.plain for line in arm_lines(state, (state.last or 0.0) + 1, 100))


def traces_are_read(tmp_path: Path, *, traces: bool) -> bool:
    (tmp_path / "traces").mkdir(exist_ok=True)
    row = {"instance_id": "i", "arm": "a", "outcome": "failed", "resolved": False}
    (tmp_path / "results.jsonl").write_text(json.dumps(row) + "\n")
    return analyze(tmp_path / "results.jsonl", traces=traces).escalations is not None


KEYS = (
    "PROVIDER", "BASE_URL", "LLM_API_KEY", "MODEL", "ARMS", "OUTPUT_DIR", "MAX_INSTANCES", "MAX_WORKERS", "LANGUAGE",
    "INSTANCES", "EVALUATE", "EVAL_MAX_WORKERS",
)  # fmt: skip
OPTIONS = (
    "--model", "--provider", "--base-url", "--arms", "--output-dir", "--max-workers", "--max-instances", "--language",
    "--instances", "--evaluate", "--eval-max-workers", "--resume", "--log-file", "--split",
)  # fmt: skip
COLUMNS = ("ARM", "Progress", "Resolved", "Failed", "Errors", "Retries", "Avg time")

PLAN: dict[str, Callable[[Path], bool]] = {
    ".env.example documents every setting": lambda _: all(re.search(rf"(?m)^{key}=.*", ENV) for key in KEYS),
    "run_experiment.sh can be executed": lambda _: os.access(EXAMPLES / "run_experiment.sh", os.X_OK),
    "without .env it says how to make one": lambda _: "cp " in SCRIPT and ".env.example" in SCRIPT,
    "PROVIDER must be set": lambda _: ': "${PROVIDER:?PROVIDER must be set' in SCRIPT,
    "the key is never an argument": lambda _: "--api-key" not in SCRIPT,
    "an experiment that was begun is resumed": lambda _: "run+=(--resume)" in SCRIPT,
    "further arguments are handed on": lambda _: '"${run[@]}" "$@"' in SCRIPT,
    "the errors are analysed afterwards": lambda _: "analyze-errors --results" in SCRIPT,
    "it says what is in the output folder": lambda _: all(
        name in SCRIPT for name in ("results.jsonl", "traces/", "artifact_dags/", "predictions/", "_latest.md")
    ),
    "experiment takes the options of the runner": lambda _: all(option("experiment", name) for name in OPTIONS),
    "experiment --watch is a flag": lambda _: option("experiment", "--watch").is_flag,
    "the table has the columns": lambda _: all(name in table(1).splitlines()[0] for name in COLUMNS),
    "progress is of each arm": lambda _: re.search(r"(?m)^a +1/3 ", table(1)) is not None,
    "the last row has the totals and the time": lambda _: re.search(r"TOTAL \(\d+ s\) +1/6", table(1)) is not None,
    "an ETA is there from the first run that ends": lambda _: "ETA about" in table(1) and "unknown" in table(0),
    "evaluate, visualize, list-instances are commands": lambda _: all(
        group.get_command(click.Context(group), name) for name in ("evaluate", "visualize", "list-instances")
    ),
    "analyze-errors --traces is on": lambda _: option("analyze-errors", "--no-traces").default is True,
    "traces are read": lambda folder: traces_are_read(folder, traces=True),
    "with --no-traces none is": lambda folder: not traces_are_read(folder, traces=False),
}


@pytest.mark.parametrize("sentence", PLAN)
def test_the_plan_holds(sentence: str, tmp_path: Path) -> None:
    assert PLAN[sentence](tmp_path)


def test_names_of_the_plan_are_listed_with_what_does_their_work() -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| `") and "terminalbench." in line]
    listed = " ".join(row[1] for row in rows)
    assert all(name in listed for name in ("to_rich_table", "run_all(watch=)", "include_traces"))
    for module, name in re.findall(r"`(terminalbench(?:\.\w+)+)\.(\w+)\(", " ".join(row[2] for row in rows)):
        assert callable(getattr(importlib.import_module(module), name)), (module, name)
