"""The common parts of guards, and those of what a model says before it changes anything: the files it names are there.

Of the guards of a review, one asks that it can be read, the other does what it says.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from terminalbench import registry
from terminalbench.text.foreign import cut, printable, visible
from terminalbench.workflow.apart import run_guard
from terminalbench.workflow.generators import Analysis, Localisation, Plan, Review, answer_of
from terminalbench.workflow.model import Artifact, GuardContext, GuardResult, Kind
from terminalbench.workflow.patches import EditProblem, path_problem, perhaps_meant
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


MOST_PLACES = 5
MOST_FILES = 20


class AnalysisGuard(AnswerGuard):
    """An analysis names a cause, a way to mend it, and files that exist."""

    name = "analysis"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.ANALYSIS})

    async def judge(self, found: Analysis, context: GuardContext) -> GuardResult:
        """Return whether it is one."""
        problems = _empty(root_cause=found.root_cause, fix_approach=found.fix_approach)
        problems += _counted("files", found.files, MOST_FILES)
        problems += _absent(found.files, await context.workspace.files())
        return _result(self.name, problems)


class LocalisationGuard(AnswerGuard):
    """A localisation names at least one place and not too many, all in files that exist."""

    name = "localisation"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.LOCALISATION})
    options: ClassVar[Mapping[str, type]] = {"most": int}

    async def judge(self, found: Localisation, context: GuardContext) -> GuardResult:
        """Return whether it is one."""
        paths = list(dict.fromkeys(place.path for place in found.places))
        problems = _counted("places", paths, context.options.get("most", MOST_PLACES))
        problems += _absent([*paths, *found.tests], await context.workspace.files())
        return _result(self.name, problems)


class PlanGuard(AnswerGuard):
    """A plan changes something: it modifies and deletes what exists, and creates what does not."""

    name = "plan"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.PLAN})

    async def judge(self, found: Plan, context: GuardContext) -> GuardResult:
        """Return whether it is one."""
        tracked = frozenset(await context.workspace.files())
        problems = _empty(approach=found.approach)
        problems += _counted("changes", found.changes, MOST_FILES)
        problems += _absent([change.path for change in found.changes if change.action != "create"], tracked)
        for change in found.changes:
            if change.action == "create":
                problem = path_problem(change.path, tracked)
                problems += [problem] if problem else []
                problems += [f"`{change.path}` exists already."] if change.path in tracked else []
        return _result(self.name, problems)


def _result(guard: str, problems: Sequence[str]) -> GuardResult:
    return rejected(guard, listed(problems), sorted(problems)) if problems else passed(guard)


def _empty(**fields: str) -> list[str]:
    return [f"`{name}` is empty." for name, text in fields.items() if not text.strip()]


def _counted(name: str, items: Sequence[object], most: int) -> list[str]:
    if not items:
        return [f"`{name}` is empty: name at least one."]
    too_many = f"`{name}` has {len(items)} entries: name at most {most}, the most important ones."
    return [too_many] if len(items) > most else []


def _absent(paths: Sequence[str], tracked: Collection[str]) -> list[str]:
    known = frozenset(tracked)
    missing = [path for path in dict.fromkeys(paths) if path not in known]
    return [f"`{printable(path)}` is no file of the repository.{perhaps_meant(path, known)}" for path in missing]


_BACK = frozenset({Kind.ANALYSIS, Kind.LOCALISATION, Kind.PLAN, Kind.TEST, Kind.PATCH})


class ReviewSchemaGuard(AnswerGuard):
    """A review gives its reasons: an objection says what is wrong, and going back says to what."""

    name = "review_schema"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.REVIEW})

    async def judge(self, found: Review, context: GuardContext) -> GuardResult:  # noqa: ARG002  the contract of guards
        """Return whether it does."""
        return _form(self.name, found)


class ReviewGuard(AnswerGuard):
    """A patch holds when its review approves it; else the review's objections are what the next attempt is told."""

    name = "review"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.REVIEW})
    goes_back: ClassVar[bool] = True

    async def judge(self, found: Review, context: GuardContext) -> GuardResult:  # noqa: ARG002  the contract of guards
        """Return whether it does."""
        form = _form(self.name, found)
        if not form.passed or found.verdict == "approve":
            return form
        back = Kind.PATCH if found.verdict == "revise" else Kind(found.target)
        objections = [f"{issue.path}: {issue.what}" if issue.path else issue.what for issue in found.issues]
        said = f"The review says {found.verdict}: {found.reasoning.strip()}\n{listed(objections)}"
        # Two reviews never use the same words: the verdict and the files they object to are the error.
        error = (found.verdict, back, *sorted({issue.path for issue in found.issues if issue.path}))
        return msgspec.structs.replace(rejected(self.name, said, error), back=back)


def _form(guard: str, review: Review) -> GuardResult:
    problems = []
    if not review.reasoning.strip():
        problems.append("`reasoning` is empty.")
    if review.verdict != "approve" and not any(issue.what.strip() for issue in review.issues):
        problems.append(f"`issues` is empty, but the verdict is {review.verdict}: say what is wrong.")
    if review.verdict == "backtrack" and review.target not in _BACK:
        problems.append("`target` is empty, but the verdict is backtrack: say what has to be made again.")
    if review.verdict == "approve" and any(issue.severity == "major" for issue in review.issues):
        problems.append("The verdict is approve, but `issues` has a major one: revise, or call it minor.")
    return _result(guard, problems)
