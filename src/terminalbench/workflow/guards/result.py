"""The common parts of guards: results with short, printable feedback, and the answer inside an artifact."""

from collections.abc import Sequence
from typing import Any

import msgspec

from terminalbench.text.foreign import cut, visible
from terminalbench.workflow.generators import answer_of
from terminalbench.workflow.model import Artifact, GuardResult
from terminalbench.workflow.patches import EditProblem
from terminalbench.workflow.state import signature

FEEDBACK_CHARS = 3000
"""The most that a model is told of one rejection."""


def passed(guard: str, feedback: str = "") -> GuardResult:
    """The artifact holds; `feedback` says what could not be checked."""
    return GuardResult(passed=True, guard=guard, feedback=shown(feedback))


def rejected(guard: str, feedback: str, error: Sequence[str], *, fatal: bool = False) -> GuardResult:
    """The artifact does not hold. `error` is what makes it the same error again: what, then test and place."""
    return GuardResult(
        passed=False, guard=guard, feedback=shown(feedback), signature=signature(*(error or (feedback,))), fatal=fatal
    )


def answer(guard: str, artifact: Artifact) -> Any:
    """The answer in an artifact, or the rejection of one that cannot be read."""
    try:
        return answer_of(artifact)
    except (msgspec.MsgspecError, KeyError) as error:
        return rejected(guard, f"The answer is not of the form that was asked for: {error}", ("form", str(error)))


def unmade(guard: str, problems: Sequence[EditProblem]) -> GuardResult:
    """The rejection of a patch whose edits cannot be made."""
    said = listed([problem.what for problem in problems], most=5)
    return rejected(guard, said, [f"{one.flaw} {one.path} {one.detail}" for one in problems])


def shown(text: str) -> str:
    """Foreign text for a prompt and a screen: nothing in it acts or hides, and it is no longer than it may be."""
    return cut(visible(text).strip(), FEEDBACK_CHARS)


def listed(lines: Sequence[str], most: int = 8) -> str:
    """A list, one line each, that says how many it leaves out."""
    kept = [f"- {line}" for line in lines[:most]]
    return "\n".join([*kept, f"- and {len(lines) - most} more"] if len(lines) > most else kept)
