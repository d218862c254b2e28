"""Guards of a test that the workflow writes itself: it can be read, it is red before the patch, and green with it.

Guards of a patch: its edits can be made, it applies with git, what it changes parses, no linter objects anew.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from terminalbench.text.foreign import flat, printable
from terminalbench.text.numbers import plural
from terminalbench.workflow import checks, languages
from terminalbench.workflow.generators import Patch, WrittenTest
from terminalbench.workflow.guards.claims import AnswerGuard, answer, listed, passed, rejected, unmade
from terminalbench.workflow.languages import Language, Repository, Runner
from terminalbench.workflow.model import GuardContext, GuardResult, Kind, Workspace
from terminalbench.workflow.patches import PatchedFiles, changes, path_problem
from terminalbench.workflow.runners import Case, CaseReport, CaseVerdict, run_test, test_names


async def _run(
    workspace: Workspace, repository: Repository, path: str, files: Mapping[str, bytes | None], timeout_sec: float
) -> CaseReport:
    """Run the test at `path`. Vitest names no place of a syntax error: it is looked for."""
    report = await run_test(workspace, repository, path, files, timeout_sec)
    if not report.broken or repository.runner(path) is not Runner.VITEST:
        return report
    flaws = (await checks.syntax(workspace, files)).flaws
    places = [f"{flaw.path}:{flaw.line}: {flaw.message}" for flaw in flaws]
    return replace(report, broken="\n".join([*places, report.broken]))


TIMEOUT_SEC = 300.0
_NEAR = 20
_DECLARES: Mapping[Language, re.Pattern[str]] = {
    Language.PYTHON: re.compile(r"^[ \t]*(?:async\s+)?def\s+test\w*\s*\(", re.MULTILINE),
    Language.JAVASCRIPT: re.compile(r"\b(?:test|it)(?:\.\w+)*\s*[(`]"),
    Language.TYPESCRIPT: re.compile(r"\b(?:test|it)(?:\.\w+)*\s*[(`]"),
}


@dataclass(frozen=True)
class PlacedTest:
    """A written test with the path it goes to, or why it cannot go there."""

    path: str
    code: str
    problem: str = ""


async def placed(test: WrittenTest, repository: Repository, workspace: Workspace) -> PlacedTest:
    """Return where the test goes: the path it names, else where language and repository expect such a test."""
    path = test.path.strip() or repository.place(test.code, _near(test.code, repository)) or ""
    if not path:
        return PlacedTest("", test.code, "it cannot be known where the test belongs: name its `path`")
    problem = path_problem(path, frozenset(repository.files))
    if problem is None and path in repository.files:
        problem = f"`{path}` exists already: write a new file, tests of the repository are left alone"
    problem = (
        problem or repository.placed_badly(path, test.code) or await _other_package(path, test, repository, workspace)
    )
    if problem is not None and test.path.strip():
        usual = repository.place(test.code, _near(test.code, repository))
        problem = f"{problem.rstrip(chr(46))}. The usual place is `{usual}`." if usual else problem
    return PlacedTest(path, test.code, problem or "")


async def _other_package(path: str, test: WrittenTest, repository: Repository, workspace: Workspace) -> str | None:
    """Return why Go would not compile the test in its folder: the package there has another name."""
    beside = repository.go_packages().get(path.rpartition("/")[0])
    if languages.of_file(path) is not Language.GO or not beside:
        return None
    theirs = languages.go_package((await workspace.read(beside[0]) or b"").decode(errors="replace"))
    mine = languages.go_package(test.code)
    if theirs is None or mine in (theirs, f"{theirs}_test"):
        return None
    return f"the package in that folder is `{theirs}`: the test must say `package {theirs}` or `package {theirs}_test`"


def _near(code: str, repository: Repository) -> list[str]:
    """The files that test code is about, by the words in it: most words of the path first."""
    words = set(re.findall(r"[A-Za-z0-9]+", code.lower()))
    scored: list[tuple[int, str]] = []
    for path in repository.files:
        if languages.of_file(path) is not None and not languages.is_test(path) and not languages.is_vendored(path):
            stem = path.rsplit("/", 1)[-1].split(".")[0].lower()
            parts = set(re.findall(r"[a-z0-9]+", path.lower().rpartition(".")[0]))
            if stem in words or parts <= words:
                scored.append((len(parts & words), path))
    scored.sort(key=lambda one: (-one[0], one[1]))
    return [path for _, path in scored[:_NEAR]]


class OwnTestSyntaxGuard(AnswerGuard):
    """A test can be found, parses, and declares at least one test."""

    name = "test_syntax"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.TEST})
    __test__ = False

    async def judge(self, found: WrittenTest, context: GuardContext) -> GuardResult:
        """Return whether it does."""
        if not found.code.strip():
            return rejected(self.name, "`code` is empty.", ("empty",))
        repository = await languages.look(context.workspace, context.language)
        if repository.language is None:
            return _no_language(self.name)
        test = await placed(found, repository, context.workspace)
        if test.problem:
            where = printable(test.path)
            return rejected(self.name, f"The test cannot go to `{where}`: {test.problem}", ("place", test.problem))
        if not _declares(test):
            return rejected(self.name, f"`{test.path}` declares no test that would be run.", ("no test",))
        checked = await checks.syntax(context.workspace, {test.path: test.code.encode(errors="replace")})
        if checked.flaws:
            lines = [f"line {flaw.line}: {flaw.message}" for flaw in checked.flaws]
            said = f"`{test.path}` does not parse:\n{listed(lines)}"
            return rejected(self.name, said, sorted(flaw.message for flaw in checked.flaws))
        return passed(self.name, "\n".join(checked.notes))


def _no_language(guard: str) -> GuardResult:
    """No retry helps where no test can be run."""
    known = ", ".join(Language)
    return rejected(
        guard, f"Tests of this repository cannot be run: its language is none of {known}.", ("language",), fatal=True
    )


def _declares(test: PlacedTest) -> bool:
    language = languages.of_file(test.path)
    if language is Language.GO:
        return bool(test_names(test.code))
    return language is not None and _DECLARES[language].search(test.code) is not None


class OwnTestRedGuard(AnswerGuard):
    """A test fails on the unchanged repository, by an assertion, twice."""

    name = "test_red"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.TEST})
    options: ClassVar[Mapping[str, type]] = {"timeout_sec": float}
    __test__ = False

    async def judge(self, found: WrittenTest, context: GuardContext) -> GuardResult:
        """Return whether it does."""
        repository = await languages.look(context.workspace, context.language)
        if repository.language is None:
            return _no_language(self.name)
        test = await placed(found, repository, context.workspace)
        if test.problem:
            return rejected(self.name, f"The test cannot be run: {test.problem}", ("place", test.problem))
        files = {test.path: test.code.encode(errors="replace")}
        limit = float(context.options.get("timeout_sec", TIMEOUT_SEC))
        report = await _run(context.workspace, repository, test.path, files, limit)
        problem = _not_red(self.name, report, limit)
        if problem is not None:
            return problem
        again = await _run(context.workspace, repository, test.path, files, limit)
        if _failing(again) != _failing(report) or _not_red(self.name, again, limit) is not None:
            said = "The test is not stable: run twice on the unchanged repository, it did not fail in the same way."
            return rejected(self.name, f"{said}\n{_told(report.cases)}", ("flaky", *sorted(_failing(report))))
        return passed(self.name)


def _failing(report: CaseReport) -> set[str]:
    return {case.id for case in report.of(CaseVerdict.FAILED)}


def _not_red(guard: str, report: CaseReport, limit: float) -> GuardResult | None:
    """Return why a run on the unchanged repository is no red test; None when it is one."""
    unusable = _unusable(guard, report, limit)
    if unusable is not None:
        return unusable
    raised = report.of(CaseVerdict.RAISED, CaseVerdict.BROKEN)
    if raised:
        said = (
            "The test must fail by an assertion on the unchanged repository, but it ends by another error. Assert "
            "what should happen, so that the assertion fails now: call only what exists, and turn an unwanted "
            f"exception into a failed assertion.\n{_told(raised)}"
        )
        return rejected(guard, said, _errors(raised))
    if not report.of(CaseVerdict.FAILED):
        counted = plural(len(report.cases), "test")
        said = f"The test does not show the problem: {counted} ran on the unchanged repository, and none failed."
        return rejected(guard, said, ("passes before the patch",))
    return None


class OwnTestGreenGuard(AnswerGuard):
    """The workflow's own test passes with the patch."""

    name = "test_green"
    judges: ClassVar[frozenset[Kind]] = frozenset({Kind.PATCH})
    needs: ClassVar[frozenset[Kind]] = frozenset({Kind.TEST})
    options: ClassVar[Mapping[str, type]] = {"timeout_sec": float}
    __test__ = False

    async def judge(self, found: Patch, context: GuardContext) -> GuardResult:
        """Return whether it does."""
        written = answer(self.name, context.inputs[Kind.TEST])
        if not isinstance(written, WrittenTest):
            return written
        patch = await changes(found, context.workspace)
        if patch.problems:
            return unmade(self.name, patch.problems)
        repository = await languages.look(context.workspace, context.language)
        test = await placed(written, repository, context.workspace)
        if test.problem:
            return rejected(self.name, f"The test cannot be run: {test.problem}", ("place", test.problem), fatal=True)
        files = {**patch.files, test.path: test.code.encode(errors="replace")}
        limit = float(context.options.get("timeout_sec", TIMEOUT_SEC))
        report = await _run(context.workspace, repository, test.path, files, limit)
        if report.green:
            return passed(self.name)
        unusable = _unusable(self.name, report, limit)
        if unusable is not None:
            return unusable
        failing = report.of(CaseVerdict.FAILED, CaseVerdict.RAISED, CaseVerdict.BROKEN)
        if not failing:
            return rejected(self.name, "No test ran with the patch: all were skipped.", ("all skipped",))
        counted = plural(len(failing), "test")
        said = f"With the patch, {counted} of `{test.path}` still failed of {len(report.cases)}:\n{_told(failing)}"
        return rejected(self.name, said, _errors(failing))


def _unusable(guard: str, report: CaseReport, limit: float) -> GuardResult | None:
    """The rejection of a run in which no test could be judged."""
    if report.missing:
        said = f"Tests cannot be run here: {report.missing} is not there.\n{report.output}"
        return rejected(guard, said, ("missing", report.missing), fatal=True)
    if report.late:
        said = f"The test did not end within {limit:g} seconds and was stopped.\n{report.output[-1000:]}"
        return rejected(guard, said, ("time limit",))
    if report.broken:
        said = f"The test could not be run (an import, a name or the syntax is wrong):\n{report.broken[-2000:]}"
        return rejected(guard, said, ("could not run", _last_error(report.broken)))
    return None


def _last_error(text: str) -> str:
    """The lines of a long message that name the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [
        line for line in lines if re.search(r"\w*(?:Error|Exception)\b\s*:|undefined|[Cc]annot find|\.go:\d+", line)
    ]
    return " / ".join(found[-3:] or lines[-1:])


def _told(cases: Sequence[Case]) -> str:
    """Return what failed, the first three in full."""
    parts = []
    for case in cases[:3]:
        message = "\n".join(case.message.strip().splitlines()[:15])[:700]
        place = f" in {case.where}" if case.where else ""
        parts.append(f"- {case.id}: {case.error}{place}\n{message}".rstrip())
    more = len(cases) - 3
    return "\n".join([*parts, f"- and {more} more"] if more > 0 else parts)


def _errors(cases: Sequence[Case]) -> list[str]:
    """Exception, message, test and place of each, in an order of their own."""
    return sorted(f"{case.error}: {case.message} @ {case.id} @ {case.where}" for case in cases)


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
