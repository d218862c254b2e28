"""The names of all findings the built-in analyzers make: one line each, in the order of metrics_detail.csv.

docs/analysis.md lists the same table (a test compares them).
"""

from dataclasses import dataclass
from typing import Literal

type Kind = Literal["yes_no", "count", "number", "label", "table"]


@dataclass(frozen=True)
class Measure:
    """One thing found about a trial. `table` values are JSON text."""

    name: str
    kind: Kind
    meaning: str


MEASURES: tuple[Measure, ...] = (
    Measure("success", "yes_no", "passed; unknown if not measured"),
    Measure("reward", "number", "the verifier's primary reward"),
    Measure("tests_passed", "count", "verifier tests that passed (CTRF)"),
    Measure("tests_failed", "count", "verifier tests that failed (CTRF)"),
    Measure("tests_total", "count", "verifier tests in all (CTRF)"),
    Measure("tests_passed_ratio", "number", "tests_passed / tests_total"),
    Measure("tokens", "count", "all tokens, cached ones included"),
    Measure("input_tokens", "count", "tokens sent that touched no cache"),
    Measure("cache_read_tokens", "count", "tokens read from the cache"),
    Measure("cache_write_tokens", "count", "tokens written to the cache"),
    Measure("output_tokens", "count", "tokens received"),
    Measure("usage_source", "label", "where the tokens come from"),
    Measure("cost_usd", "number", "what the trial cost"),
    Measure("cost_source", "label", "where the cost comes from"),
    Measure("wall_sec", "number", "the whole trial, start to end"),
    Measure("environment_sec", "number", "building and starting the environment"),
    Measure("agent_setup_sec", "number", "installing and preparing the agent"),
    Measure("agent_sec", "number", "the agent at work"),
    Measure("verifier_sec", "number", "the verifier at work"),
    Measure("steps", "count", "steps of the trajectory"),
    Measure("agent_steps", "count", "steps in which the agent spoke"),
    Measure("tool_calls", "count", "tool calls, subagents included"),
    Measure("distinct_tools", "count", "different tools called"),
    Measure("calls_per_step", "number", "tool calls per agent step"),
    Measure("steps_per_minute", "number", "agent steps per minute"),
    Measure("tools", "table", "calls by tool name"),
    Measure(
        "tool_mix",
        "table",
        "calls by kind: read, search, edit, test, run, ...; as findings `tool_mix.read`, `tool_mix.search`, ...",
    ),
    Measure("tool_errors", "count", "calls that failed, by the protocol's flag or an exit code"),
    Measure("tool_success_rate", "number", "calls that did not fail, of those whose ending is known"),
    Measure("mcp_tools", "label", "the MCP tools called"),
    Measure("mcp_calls", "count", "calls of `mcp__*` tools"),
    Measure("native_calls", "count", "all other calls"),
    Measure("subagents", "count", "embedded subagents"),
    Measure("files_read", "count", "different files read"),
    Measure("files_edited", "count", "different files changed in place"),
    Measure("files_written", "count", "different files written whole"),
    Measure("places_explored", "count", "different places read, listed or searched"),
    Measure("searched_before_edit", "yes_no", "searched before the first edit"),
    Measure("looks_before_edit", "count", "calls that read or searched before the first edit"),
    Measure("first_edit_step", "count", "step of the first edit"),
    Measure("first_edit_sec", "number", "seconds until the first edit"),
    Measure("loops", "count", "calls identical to one of the 5 before, with no edit in between"),
    Measure("backtracks", "count", "edits of a file that one of the 3 edits before changed too"),
    Measure("test_runs", "count", "calls that ran tests"),
    Measure("tested_before_finish", "yes_no", "ran tests after the last edit"),
    Measure("own_tests_passed", "yes_no", "its last test run whose ending is known passed"),
    Measure(
        "lost_passing_state", "yes_no", "own tests passed, then edits, no passing run since, and the trial did not pass"
    ),
    Measure("truncated_outputs", "count", "results of which the agent saw only a part"),
    Measure("context_first_tokens", "count", "prompt tokens of the first step"),
    Measure("context_peak_tokens", "count", "prompt tokens of the largest step"),
    Measure("context_growth", "number", "context_peak_tokens / context_first_tokens"),
    Measure("context_resets", "count", "times the prompt shrank to less than half"),
    Measure("trajectory_problems", "count", "oddities in the trajectory file"),
    Measure("edited_tests", "count", "calls that changed test files (tripwire)"),
    Measure("touched_reward", "count", "calls that name reward or verifier files (tripwire)"),
    Measure("touched_solution", "count", "calls that name the task's solution folder (tripwire)"),
    Measure("tampering", "label", "what the safe verifier found and removed (tripwire)"),
    Measure("failure_class", "label", "why it did not pass (below)"),
    Measure("failure_signature", "label", "the signature (below)"),
)

MIX = "tool_mix"
"""Column of the calls by kind; the findings are `tool_mix.<kind>`."""
NAMES: tuple[str, ...] = tuple(measure.name for measure in MEASURES)
RECORDED: tuple[str, ...] = NAMES[: NAMES.index("steps")]
"""What the trial's result says: outcome, reward, tests, tokens, cost, times. Other pages read them there."""
BEHAVIOUR: tuple[str, ...] = NAMES[NAMES.index("steps") : NAMES.index("edited_tests")]
TRIPWIRES: tuple[str, ...] = NAMES[NAMES.index("edited_tests") : NAMES.index("failure_class")]
