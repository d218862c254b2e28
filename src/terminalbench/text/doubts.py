"""Why a result is doubtful, in words, and what to do: the one table of reasons, as docs/results.md has it.

A reason is a name, perhaps with what it is about behind a colon: `mcp_not_connected:files`.
"""

from dataclasses import dataclass


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
