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
from terminalbench.watch.follow import arm_lines

EXAMPLES = REPO / "examples" / "swe_bench_pro"
PAGE = (REPO / "docs" / "swe-bench-pro.md").read_text()
ENV = (EXAMPLES / ".env.example").read_text()


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
DEFAULTS = ("ARMS=s1_tdd", "OUTPUT_DIR=output/swe_bench_pro", "MAX_INSTANCES=0", "MAX_WORKERS=1", "EVALUATE=false")
COLUMNS = ("ARM", "Progress", "Resolved", "Failed", "Errors", "Retries", "Avg time")

SCRIPT_TESTS, TABLE_TESTS = "tests/swebench_pro/test_script.py", "tests/watch/test_arms.py"
ERROR_TESTS, RUN_TESTS = "tests/swebench_pro/test_error_analysis.py", "tests/e2e/test_swebench_pro_tutorial.py"
USED = f"{SCRIPT_TESTS}::test_settings_become_options_and_no_value_is_executed"
UNSET = f"{SCRIPT_TESTS}::test_without_settings_it_says_how_to_make_them"
AGAIN = f"{SCRIPT_TESTS}::test_it_resumes_by_itself_and_keeps_the_exit_code"
READ = f"{SCRIPT_TESTS}::test_every_setting_of_the_example_is_read_by_the_script"
BOTH = f"{RUN_TESTS}::test_the_script_goes_on_with_it_and_says_why_runs_failed"

PLAN: dict[str, Callable[[Path], bool] | str] = {
    # Context
    "experiment, evaluate, visualize, list-instances, analyze-errors are commands": lambda _: all(
        group.get_command(click.Context(group), name)
        for name in ("experiment", "evaluate", "visualize", "list-instances", "analyze-errors")
    ),
    "experiment has --evaluate to chain eval+viz": f"{RUN_TESTS}::test_what_was_left_is_evaluated_drawn_and_logged",
    "visualize: generate charts from results": "tests/swebench_pro/test_visualize.py::test_every_chart_is_a_file_and_on_the_page",
    "list-instances: show dataset statistics": "tests/swebench_pro/test_dataset.py::test_list_instances_counts_by_language_and_repository",
    "traces are written to traces/<instance_id>/<arm>/": "tests/swebench_pro/test_projections.py::test_a_trace_is_the_trials_own",
    # 1.1 .env.example
    ".env.example documents every setting": lambda _: all(re.search(rf"(?m)^{key}=.*", ENV) for key in KEYS),
    "copy to .env and fill in values": READ,
    "ARMS=s1_tdd, OUTPUT_DIR=output/swe_bench_pro, 0 instances are all, 1 worker, EVALUATE=false": lambda _: all(
        re.search(rf"(?m)^{line}(\s|$)", ENV) for line in DEFAULTS
    ),
    # 1.2 run_experiment.sh
    "chmod +x": lambda _: os.access(EXAMPLES / "run_experiment.sh", os.X_OK),
    "load .env if it exists": USED,
    "no .env file: it says to copy .env.example, and exits with 1": UNSET,
    "PROVIDER must be set in .env": UNSET,
    "LLM_API_KEY must be set: where the provider needs one, and never as an argument": USED,
    "defaults of what is not set": USED,
    "a log file in the output folder": USED,
    "--base-url, --max-instances, --language, --instances and --evaluate where they are set": USED,
    "resume if results already exist": AGAIN,
    "allow extra args": USED,
    "post-experiment analysis": BOTH,
    "it says what is in the output folder": USED,
    # 2 --watch
    "--watch is a flag of experiment": lambda _: option("experiment", "--watch").is_flag,
    "experiment keeps the options of the runner": lambda _: all(option("experiment", name) for name in OPTIONS),
    "ARM, Progress, Resolved, Failed, Errors, Retries, Avg Time": lambda _: all(
        name in table(1).splitlines()[0] for name in COLUMNS
    ),
    "progress of each arm": lambda _: re.search(r"(?m)^a +1/3 ", table(1)) is not None,
    "total retries of each arm": f"{TABLE_TESTS}::test_progress_is_that_of_each_arm_and_retries_are_those_of_steps",
    "a footer row with totals and elapsed time": lambda _: re.search(r"TOTAL \(\d+ s\) +1/6", table(1)) is not None,
    "an ETA when a run has completed": lambda _: "ETA about" in table(1) and "unknown" in table(0),
    "the table, renewed in place": f"{TABLE_TESTS}::test_golden_table",
    "it requires rich, and a broken table ends no run": f"{TABLE_TESTS}::test_a_terminal_is_left_as_it_is_and_a_broken_table_ends_no_run",
    "an experiment shows it while it runs": f"{RUN_TESTS}::test_what_was_left_is_evaluated_drawn_and_logged",
    # 3 --traces
    "--traces/--no-traces, default: enabled": lambda _: option("analyze-errors", "--no-traces").default is True,
    "traces/ beside the results is found": lambda folder: traces_are_read(folder, traces=True),
    "include_traces=False skips it": lambda folder: not traces_are_read(folder, traces=False),
    "an escalation summary in the report": f"{ERROR_TESTS}::test_the_report_has_each_part",
    "without traces only the basic report": f"{ERROR_TESTS}::test_without_traces_nothing_of_them_is_read",
}


@pytest.mark.parametrize("sentence", PLAN)
def test_the_plan_holds(sentence: str, tmp_path: Path) -> None:
    """By a check, or by a test that is there under its name."""
    shown = PLAN[sentence]
    if isinstance(shown, str):
        file, _, name = shown.partition("::")
        assert f"\ndef {name}(" in (REPO / file).read_text(), shown
    else:
        assert shown(tmp_path)


def test_names_of_the_plan_are_listed_with_what_does_their_work() -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| `") and "terminalbench." in line]
    listed = " ".join(row[1] for row in rows)
    assert all(name in listed for name in ("to_rich_table", "run_all(watch=)", "include_traces"))
    for module, name in re.findall(r"`(terminalbench(?:\.\w+)+)\.(\w+)\(", " ".join(row[2] for row in rows)):
        assert callable(getattr(importlib.import_module(module), name)), (module, name)
