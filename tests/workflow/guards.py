"""Asking guards and running test files, in a workspace of a test."""

import asyncio
from collections.abc import Mapping, Sequence

from terminalbench import registry
from terminalbench.workflow import languages
from terminalbench.workflow.generators import (
    Analysis,
    Edit,
    Localisation,
    Patch,
    Plan,
    Review,
    WrittenTest,
    content_of,
)
from terminalbench.workflow.guards.claims import FEEDBACK_CHARS
from terminalbench.workflow.model import Artifact, GuardContext, GuardResult, Kind
from terminalbench.workflow.runners import CaseReport, CaseVerdict, run_test
from workflow.workspace import FolderWorkspace

KINDS = {Analysis: Kind.ANALYSIS, Localisation: Kind.LOCALISATION, Plan: Kind.PLAN, WrittenTest: Kind.TEST, Patch: Kind.PATCH, Review: Kind.REVIEW}  # fmt: skip


def artifact(answer) -> Artifact:
    kind, content = KINDS[type(answer)], content_of(answer)
    return Artifact(id=Artifact.name_of(kind, content), kind=kind, step="s", cycle=1, attempt=1, content=content)


def asked(
    space: FolderWorkspace, guard: str, answer, inputs: Sequence = (), options: Mapping | None = None, language: str = ""
) -> GuardResult:  # fmt: skip
    given = {KINDS[type(one)]: artifact(one) for one in inputs}
    context = GuardContext(workspace=space, inputs=given, language=language, options=options or {})
    made = answer if isinstance(answer, Artifact) else artifact(answer)
    result = asyncio.run(registry.resolve("guards", guard)().check(made, context))
    assert result.guard == guard
    assert len(result.feedback) <= FEEDBACK_CHARS
    assert all(line.isprintable() for line in result.feedback.replace("\t", " ").split("\n"))
    assert (result.signature is None) == result.passed
    return result


def patch(*edits: Edit) -> Patch:
    return Patch(edits=edits)


def create(path: str, content: str) -> Edit:
    return Edit(action="create", path=path, content=content)


def verdicts(report: CaseReport) -> dict[str, CaseVerdict]:
    return {case.id.rsplit("::", 1)[-1]: case.verdict for case in report.cases}


def run(space: FolderWorkspace, path: str, code: str) -> CaseReport:
    found = asyncio.run(languages.look(space, "js"))
    return asyncio.run(run_test(space, found, path, {path: code.encode()}, 60))
