"""Guards of a review: one asks that it can be read, the other does what it says."""

from typing import ClassVar

import msgspec

from terminalbench.workflow.generators import Review
from terminalbench.workflow.guards.result import answer, listed, passed, rejected
from terminalbench.workflow.model import Artifact, GuardContext, GuardResult, Kind

_BACK = frozenset({Kind.ANALYSIS, Kind.LOCALISATION, Kind.PLAN, Kind.TEST, Kind.PATCH})


class ReviewSchemaGuard:
    """A review gives its reasons: an objection says what is wrong, and going back says to what."""

    name = "review_schema"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.REVIEW})

    async def check(self, artifact: Artifact, context: GuardContext) -> GuardResult:  # noqa: ARG002  the contract of guards
        """Return whether it does."""
        found = answer(self.name, artifact)
        return _form(self.name, found) if isinstance(found, Review) else found


class ReviewGuard:
    """A patch holds when its review approves it; else the review's objections are what the next attempt is told."""

    name = "review"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.REVIEW})
    goes_back: ClassVar[bool] = True

    async def check(self, artifact: Artifact, context: GuardContext) -> GuardResult:  # noqa: ARG002  the contract of guards
        """Return whether it does."""
        found = answer(self.name, artifact)
        if not isinstance(found, Review):
            return found
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
    return rejected(guard, listed(problems), sorted(problems)) if problems else passed(guard)
