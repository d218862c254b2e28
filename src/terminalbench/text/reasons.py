"""Why a trial failed and why a result is doubtful, in words, with what to do next: the one table for every surface.

The classes of failure are those of docs/analysis.md; a class that only an error has takes its advice from whose fault
the error is. The reasons of doubt are those of docs/results.md: a name, perhaps with what it is about behind a colon,
as in `mcp_not_connected:files`.
"""

from dataclasses import dataclass

from terminalbench.faults import ErrorClass, Fault


@dataclass(frozen=True)
class FailureWords:
    """A class as a clause about the trial, and the next step of whoever owns the profile."""

    words: str
    advice: str


FAILURES = {
    "unreadable": FailureWords("its result cannot be read", "read trial.log, then run it again"),
    "timeout_stuck": FailureWords(
        "it repeated itself or made no progress until time ran out",
        "read the repeated step: a tool that does not answer, or a prompt that does not say when to change course",
    ),
    "timeout_working": FailureWords(
        "time ran out while it still made progress", "give it more time (timeout_sec), or a plan before it edits"
    ),
    "given_up": FailureWords("its workflow gave up a step", "read what the guard rejected, in the trial's workflow"),
    "unexplained": FailureWords("the reason is unknown", "have the agent keep its output (docs/your-agent.md)"),
    "no_output": FailureWords("it printed nothing", "run its command by hand, and look at its exit code and its log"),
    "never_acted": FailureWords(
        "it ran nothing in the environment", "check that the agent gets its tools and the instruction"
    ),
    "loop": FailureWords(
        "it repeated the same call without a change", "tell it to change its approach after a call that failed twice"
    ),
    "lost_passing_state": FailureWords(
        "its own tests passed, but its later edits broke them",
        "tell it to stop, or to test again, after its last edit",
    ),
    "wrong_target": FailureWords(
        "it changed other files than the task names",
        "tell it to check each file that the task names before it says that it is done",
    ),
    "gave_up_early": FailureWords(
        "it ended after a few calls", "tell it what counts as done; look for a limit of turns or tokens"
    ),
    "finished_with_failing_tests": FailureWords(
        "it finished although its own tests failed", "tell it to continue until its own tests pass"
    ),
    "own_tests_passed": FailureWords(
        "its own tests passed, but those of the task did not", "have it test each requirement of the instruction"
    ),
    "untested": FailureWords("it changed files and ran no test", "tell it to run what it wrote before it finishes"),
    "wrong_answer": FailureWords(
        "it worked and finished, but the answer is wrong", "compare it with a trial that passed"
    ),
}


def failure_words(name: str) -> str:
    """Return a class in words; one that a person or another analyzer made up as it is."""
    if name in FAILURES:
        return FAILURES[name].words
    return ErrorClass(name).meaning if name in ErrorClass else name.replace("_", " ")


def failure_advice(name: str) -> str:
    """Return what to try next against a class of failure."""
    if name in FAILURES:
        return FAILURES[name].advice
    if name not in ErrorClass:
        return "read one of these trials"
    if ErrorClass(name).fault is Fault.BENCH:
        return "this says nothing about the profile: fix the cause, and run it again"
    return "read the error and the step before it: it counts as the profile's own failure"


@dataclass(frozen=True)
class Doubt:
    """A reason in words, in which `{}` is what it is about, and the next step."""

    words: str
    advice: str


DOUBTS = {
    "no_tool_calls": Doubt("it called no tool", "read its answers with tbench show"),
    "no_tokens": Doubt(
        "its agent reports tokens, but reported none",
        "check with tbench show whether its model was called; to report tokens, see docs/your-agent.md",
    ),
    "implausibly_short": Doubt(
        "it ended within a second, and nothing shows that it did anything",
        "check with tbench show whether it started; docs/your-agent.md",
    ),
    "waited_for_provider": Doubt(
        "it waited for its provider for a quarter of its time or more", "run it again, with fewer trials at once"
    ),
    "unseen_refusal": Doubt(
        "it says that its provider refused, and nothing answered it",
        "read what it printed with tbench show; if it has not failed, run it again",
    ),
    "permission_denied": Doubt("a tool was denied to it", "allow the tool in the profile's settings"),
    "hook_timed_out": Doubt("its hook {} ran out of time", "give the hook more time, or fix it"),
    "mcp_not_connected": Doubt("the MCP server {} was not connected", "fix the server, then run the trial again"),
    "clock_jumped": Doubt("the clock jumped while it ran", "leave out its times, or run it again"),
    "solution_host": Doubt(
        "it connected to {}, which may serve the solution", "read egress.jsonl, and close that host"
    ),
    "tampering": Doubt("it left something that could change its reward: {}", "read safety.json of the trial"),
    "test_config": Doubt("its patch changes how tests run: {}", "read the patch"),
    "verifier_system": Doubt(
        "the tests ran in the system of the {}", 'set run.verifier_system = "pristine" if the tests can run there'
    ),
    "program_unconfined": Doubt(
        "the tests ran its program in a place where it could write the reward",
        "run it on a machine that can confine it",
    ),
    "unrepeatable": Doubt(
        "its tests passed, and some failed when they ran again on the same work", "run the task again, more than once"
    ),
    "unrestored": Doubt(
        "its tests passed, and some failed on its work as they left it, too large to be put back",
        "run the task again, more than once",
    ),
}
DOUBTFUL_COUNT = "they count; analysis.doubtful limits how many a comparison may have"
"""What becomes of doubtful results, said once below a list of them."""


def doubt(reason: str) -> str:
    """Return a reason with its words and the next step, as `name: words; advice`; a name alone that is not known."""
    name, _, about = reason.partition(":")
    known = DOUBTS.get(name)
    return reason if known is None else f"{name}: {known.words.format(about)}; {known.advice}"
