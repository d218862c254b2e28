"""Guards of a patch: its edits can be made, it applies with git, what it changes parses, no linter objects anew."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from terminalbench.text.foreign import flat
from terminalbench.workflow import checks, languages
from terminalbench.workflow.generators import Patch, WrittenTest
from terminalbench.workflow.guards.own_test import placed
from terminalbench.workflow.guards.result import AnswerGuard, answer, listed, passed, rejected, unmade
from terminalbench.workflow.model import GuardContext, GuardResult, Kind
from terminalbench.workflow.patches import PatchedFiles, changes

_IGNORED_SEC = 60.0


class PatchGuard(AnswerGuard):
    """A patch changes something, applies with git, and every file that it changes parses.

    With `keep_tests` it leaves the tests of the repository alone; never may it touch the workflow's own test.
    """

    name = "patch"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.PATCH})
    options: ClassVar[Mapping[str, type]] = {"keep_tests": bool}

    async def judge(self, found: Patch, context: GuardContext) -> GuardResult:
        """Return whether it does."""
        if not found.edits:
            return rejected(self.name, "`edits` is empty: the patch changes nothing.", ("no edits",))
        made = await changes(found, context.workspace)
        if made.problems:
            return unmade(self.name, made.problems)
        forbidden = await self._forbidden(made, context)
        if forbidden:
            return rejected(self.name, listed(forbidden), sorted(forbidden))
        refused = await context.workspace.apply(await context.workspace.diff(made.files))
        if refused is not None:
            return rejected(self.name, f"git does not apply the patch: {refused}", ("git apply", refused))
        checked = await checks.syntax(context.workspace, made.files)
        if checked.flaws:
            return _flawed(self.name, "After the patch these files do not parse:", checked.flaws, made, found)
        return passed(self.name, "\n".join(checked.notes))

    async def _forbidden(self, made: PatchedFiles, context: GuardContext) -> list[str]:
        """Return what a patch may not touch: tests where they are kept, the workflow's own test, what git ignores."""
        problems = []
        if context.options.get("keep_tests", False):
            tests = [path for path in made.files if languages.is_test(path)]
            problems += [f"`{path}` belongs to the tests, which the patch must leave as they are." for path in tests]
        if Kind.TEST in context.inputs:
            written = answer(self.name, context.inputs[Kind.TEST])
            repository = await languages.look(context.workspace, context.language)
            if isinstance(written, WrittenTest):
                own = (await placed(written, repository, context.workspace)).path
                problems += (
                    [f"`{own}` is the test that the patch has to pass; leave it out."] if own in made.files else []
                )
        tracked = frozenset(await context.workspace.files())
        created = [path for path in made.files if path not in tracked]
        if created:
            git = ["git", "-c", "safe.directory=*", "-c", "core.quotePath=false"]
            words = [*git, "check-ignore", "--no-index", "--", *created]
            ran = await context.workspace.run(words, timeout_sec=_IGNORED_SEC)
            ignored = set(ran.stdout.splitlines()) & set(created) if ran.code == 0 else set()
            problems += [
                f"`{path}` is ignored by git (.gitignore): it would not be part of the change."
                for path in sorted(ignored)
            ]
        return problems


class LintGuard(AnswerGuard):
    """A patch adds nothing that a linter objects to; what it objected to before is no fault of the patch."""

    name = "lint"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.PATCH})

    async def judge(self, found: Patch, context: GuardContext) -> GuardResult:
        """Return whether it does."""
        made = await changes(found, context.workspace)
        if made.problems:
            return unmade(self.name, made.problems)
        checked = await checks.new_flaws(context.workspace, made.files)
        if checked.flaws:
            return _flawed(self.name, "The patch adds these problems:", checked.flaws, made, found)
        return passed(self.name, "\n".join(checked.notes))


def _flawed(guard: str, title: str, flaws: Sequence[checks.FileFlaw], made: PatchedFiles, patch: Patch) -> GuardResult:
    """A rejection that shows each objection with its line, which the model wrote and cannot number."""
    lines = []
    for flaw in flaws:
        content = (made.files.get(flaw.path) or b"").decode(errors="replace").splitlines()
        text = content[flaw.line - 1].strip() if 0 < flaw.line <= len(content) else ""
        lines.append(f"{flaw.path}: {flat(flaw.message, 300)}" + (f", at `{flat(text, 160)}`" if text else ""))
    edited = sorted({edit.path for edit in patch.edits} & {flaw.path for flaw in flaws})
    error = sorted(f"{flaw.path}: {flaw.message}" for flaw in flaws)
    return rejected(guard, f"{title}\n{listed(lines)}", error or edited)
