"""The names of all findings the built-in analyzers make: one line each, in the order of metrics_detail.csv.

docs/analysis.md lists the same table (a test compares them).
"""

from dataclasses import dataclass
from typing import Literal

type Kind = Literal["yes_no", "count", "number", "label", "table"]


@dataclass(frozen=True)
class FindingMeasure:
    """One thing found about a trial. `table` values are JSON text."""

    name: str
    kind: Kind
    meaning: str


MEASURES: tuple[FindingMeasure, ...] = (
    FindingMeasure("success", "yes_no", "passed; unknown if not measured"),
    FindingMeasure("reward", "number", "the verifier's primary reward"),
    FindingMeasure("tests_passed", "count", "verifier tests that passed (CTRF)"),
    FindingMeasure("tests_failed", "count", "verifier tests that failed (CTRF)"),
    FindingMeasure("tests_total", "count", "verifier tests in all (CTRF)"),
    FindingMeasure("tests_passed_ratio", "number", "tests_passed / tests_total"),
    FindingMeasure("tokens", "count", "all tokens, cached ones included"),
    FindingMeasure("input_tokens", "count", "tokens sent that touched no cache"),
    FindingMeasure("cache_read_tokens", "count", "tokens read from the cache"),
    FindingMeasure("cache_write_tokens", "count", "tokens written to the cache"),
    FindingMeasure("output_tokens", "count", "tokens received"),
    FindingMeasure("usage_source", "label", "where the tokens come from"),
    FindingMeasure("cost_usd", "number", "what the trial cost"),
    FindingMeasure("cost_source", "label", "where the cost comes from"),
    FindingMeasure("wall_sec", "number", "the whole trial, start to end"),
    FindingMeasure("environment_sec", "number", "building and starting the environment"),
    FindingMeasure("agent_setup_sec", "number", "installing and preparing the agent"),
    FindingMeasure("agent_sec", "number", "the agent at work"),
    FindingMeasure("verifier_sec", "number", "the verifier at work"),
    FindingMeasure("steps", "count", "steps of the trajectory"),
    FindingMeasure("agent_steps", "count", "steps in which the agent spoke"),
    FindingMeasure("tool_calls", "count", "tool calls, subagents included"),
    FindingMeasure("distinct_tools", "count", "different tools called"),
    FindingMeasure("calls_per_step", "number", "tool calls per agent step"),
    FindingMeasure("steps_per_minute", "number", "agent steps per minute"),
    FindingMeasure("tools", "table", "calls by tool name"),
    FindingMeasure(
        "tool_mix",
        "table",
        "calls by kind: read, search, edit, test, run, ...; as findings `tool_mix.read`, `tool_mix.search`, ...",
    ),
    FindingMeasure("tool_errors", "count", "calls that failed, by the protocol's flag or an exit code"),
    FindingMeasure("tool_success_rate", "number", "calls that did not fail, of those whose ending is known"),
    FindingMeasure("mcp_tools", "label", "the MCP tools called"),
    FindingMeasure("mcp_calls", "count", "calls of `mcp__*` tools"),
    FindingMeasure("native_calls", "count", "all other calls"),
    FindingMeasure("subagents", "count", "embedded subagents"),
    FindingMeasure("files_read", "count", "different files read"),
    FindingMeasure("files_edited", "count", "different files changed in place"),
    FindingMeasure("files_written", "count", "different files written whole"),
    FindingMeasure("places_explored", "count", "different places read, listed or searched"),
    FindingMeasure("searched_before_edit", "yes_no", "searched before the first edit"),
    FindingMeasure("looks_before_edit", "count", "calls that read or searched before the first edit"),
    FindingMeasure("first_edit_step", "count", "step of the first edit"),
    FindingMeasure("first_edit_sec", "number", "seconds until the first edit"),
    FindingMeasure("loops", "count", "calls identical to one of the 5 before, with no edit in between"),
    FindingMeasure("backtracks", "count", "edits of a file that one of the 3 edits before changed too"),
    FindingMeasure("test_runs", "count", "calls that ran tests"),
    FindingMeasure("tested_before_finish", "yes_no", "ran tests after the last edit"),
    FindingMeasure("own_tests_passed", "yes_no", "its last test run whose ending is known passed"),
    FindingMeasure(
        "lost_passing_state", "yes_no", "own tests passed, then edits, no passing run since, and the trial did not pass"
    ),
    FindingMeasure("truncated_outputs", "count", "results of which the agent saw only a part"),
    FindingMeasure("context_first_tokens", "count", "prompt tokens of the first step"),
    FindingMeasure("context_peak_tokens", "count", "prompt tokens of the largest step"),
    FindingMeasure("context_growth", "number", "context_peak_tokens / context_first_tokens"),
    FindingMeasure("context_resets", "count", "times the prompt shrank to less than half"),
    FindingMeasure("trajectory_problems", "count", "oddities in the trajectory file"),
    FindingMeasure("edited_tests", "count", "calls that changed test files (tripwire)"),
    FindingMeasure("touched_reward", "count", "calls that name reward or verifier files (tripwire)"),
    FindingMeasure("touched_solution", "count", "calls that name the task's solution folder (tripwire)"),
    FindingMeasure("tampering", "label", "what the safe verifier found and removed (tripwire)"),
    FindingMeasure("failure_class", "label", "why it did not pass (below)"),
    FindingMeasure("failure_signature", "label", "the signature (below)"),
)

MIX = "tool_mix"
"""Column of the calls by kind; the findings are `tool_mix.<kind>`."""
NAMES: tuple[str, ...] = tuple(measure.name for measure in MEASURES)
RECORDED: tuple[str, ...] = NAMES[: NAMES.index("steps")]
"""What the trial's result says: outcome, reward, tests, tokens, cost, times. Other pages read them there."""
BEHAVIOUR: tuple[str, ...] = NAMES[NAMES.index("steps") : NAMES.index("edited_tests")]
TRIPWIRES: tuple[str, ...] = NAMES[NAMES.index("edited_tests") : NAMES.index("failure_class")]
