"""The common parts of guards: results with short, printable feedback, the answer inside an artifact, several as one."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from terminalbench import registry
from terminalbench.text.foreign import cut, visible
from terminalbench.workflow.apart import run_guard
from terminalbench.workflow.generators import answer_of
from terminalbench.workflow.model import Artifact, GuardContext, GuardResult
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


class AnswerGuard(ABC):
    """A guard of answers of one form: an artifact whose answer cannot be read is rejected, others are judged by it."""

    name: str

    async def check(self, artifact: Artifact, context: GuardContext) -> GuardResult:
        """Return whether the artifact holds."""
        found = answer(self.name, artifact)
        return found if isinstance(found, GuardResult) else await self.judge(found, context)

    @abstractmethod
    async def judge(self, found: Any, context: GuardContext) -> GuardResult:
        """Return whether an answer holds."""


class CompositeGuard:
    """All of its `parts` hold. It asks every one, also after a rejection; a fatal result ends it.

    `options` are those of the parts, by name.
    """

    name = "composite"
    options: ClassVar[Mapping[str, type]] = {"parts": list, "options": dict}

    async def check(self, artifact: Artifact, context: GuardContext) -> GuardResult:
        """Return whether they do."""
        results: list[GuardResult] = []
        for spec in context.options.get("parts", ()):
            guard = registry.resolve("guards", spec)()
            options = context.options.get("options", {}).get(spec, {})
            began = time.monotonic()
            own = msgspec.structs.replace(context, options=options)
            result = await run_guard(spec, guard, artifact, own, None)
            results.append(msgspec.structs.replace(result, duration_sec=time.monotonic() - began))
            if result.fatal:
                break
        bad = [result for result in results if not result.passed]
        feedback = "\n".join(f"{result.guard}: {result.feedback}" for result in bad or results if result.feedback)
        return GuardResult(
            passed=not bad,
            guard=self.name,
            feedback=shown(feedback),
            signature=signature(*(f"{result.guard}: {result.signature}" for result in bad)) if bad else None,
            fatal=any(result.fatal for result in bad),
            back=next((result.back for result in bad if result.back is not None), None),
            parts=tuple(results),
        )
