"""Classes of failure in words, with what to try next: the one table for report, dashboard and terminal.

The names are those of docs/analysis.md; a class that only an error has takes its advice from whose fault the error is.
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
