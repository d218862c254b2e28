"""A patch as a model writes it: edits with a search text, turned into the new content of each file.

A search text must be in its file exactly once. One that differs only in trailing blanks, line ends or by the same
indentation on every line is grounded: it means the place that it can only mean. Line ends and the end of a file stay.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from terminalbench.text.foreign import printable, visible
from terminalbench.workflow.generators import Edit, Patch
from terminalbench.workflow.model import Workspace

_SHOWN_LINES = 14
_SHOWN_PLACES = 5
_SIMILAR = 2
_LONGEST_NAME = 255
_COMPARED_LINES = 4000
_MOST_SEARCHED = 1 << 31
"""Characters that the search texts of one patch may be looked for in: each is, in all of its file."""
_MOST_PROBLEMS = 20


class EditFlaw(StrEnum):
    """The reason why an edit cannot be made."""

    PATH = "bad path"
    EXISTS = "file exists"
    ABSENT = "no such file"
    BINARY = "not a text file"
    NO_SEARCH = "empty search"
    NOT_FOUND = "search not found"
    AMBIGUOUS = "search found more than once"
    TEXT = "not valid text"
    NOTHING = "no change"
    TOO_MANY = "too many edits"


@dataclass(frozen=True)
class EditProblem:
    """One edit that cannot be made, and what the model is told; `detail` is the part that makes it another problem."""

    flaw: EditFlaw
    path: str
    what: str
    detail: str = ""


@dataclass(frozen=True)
class PatchedFiles:
    """The files as a patch makes them: their new content, None for a deleted one. Nothing of it holds with problems."""

    files: Mapping[str, bytes | None]
    problems: tuple[EditProblem, ...] = ()


class _RefusedEdit(Exception):
    def __init__(self, flaw: EditFlaw, what: str, detail: str = "") -> None:
        super().__init__(what)
        self.flaw, self.what, self.detail = flaw, what, detail


@dataclass
class _EditState:
    """The files as the edits so far left them: as text, which each edit of a file takes from the one before."""

    tracked: Collection[str]
    base: Mapping[str, bytes]
    now: dict[str, str | None] = field(default_factory=dict)

    def current(self, path: str) -> str | None:
        if path not in self.now and path in self.base:
            self.now[path] = self.base[path].decode(errors="surrogateescape")
        return self.now.get(path)

    @cached_property
    def folders(self) -> set[str]:
        """Every folder that holds a tracked file."""
        return {
            "/".join(parts[:n]) for parts in (name.split("/") for name in self.tracked) for n in range(1, len(parts))
        }


async def changes(patch: Patch, workspace: Workspace) -> PatchedFiles:
    """Return what the patch makes of the base commit, or every problem that it has."""
    tracked = await workspace.files()
    paths = list(dict.fromkeys(edit.path for edit in patch.edits))
    base = await workspace.read_many([path for path in paths if path in set(tracked)])
    return edited(patch.edits, frozenset(tracked), base)


def edited(edits: Sequence[Edit], tracked: Collection[str], base: Mapping[str, bytes]) -> PatchedFiles:
    """The same on files that were read before: `base` holds the plain files among the edited ones. Pure."""
    state = _EditState(tracked, base)
    problems: list[EditProblem] = []
    searched = 0
    for number, edit in enumerate(edits, 1):
        searched += len(state.current(edit.path) or "")
        if searched > _MOST_SEARCHED:
            problems.append(_too_many(edit.path, number, edits))
            break
        if len(problems) == _MOST_PROBLEMS:
            left = len(edits) - number + 1
            what = (
                f"{len(problems)} of the first {number - 1} edits cannot be made; the other {left} were not looked at."
            )
            problems.insert(0, EditProblem(EditFlaw.TOO_MANY, "", what))
            break
        try:
            state.now[edit.path] = _made(edit, state)
        except _RefusedEdit as refused:
            problems.append(EditProblem(refused.flaw, edit.path, refused.what, refused.detail))
    made = {path: None if text is None else text.encode(errors="surrogateescape") for path, text in state.now.items()}
    files = {path: content for path, content in made.items() if content != base.get(path)}
    if not problems and not files:
        what = "The patch changes nothing: after all edits every file is as before."
        problems.append(EditProblem(EditFlaw.NOTHING, "", what))
    return PatchedFiles(files, tuple(problems))


def _too_many(path: str, number: int, edits: Sequence[Edit]) -> EditProblem:
    what = (
        f"The patch has {len(edits)} edits, {sum(edit.path == path for edit in edits)} of them in `{path}`: too many "
        f"small ones for files of this size (stopped at edit {number}). Write fewer: one `search` may hold many lines, "
        "with all that changes in them."
    )
    return EditProblem(EditFlaw.TOO_MANY, path, what)


def path_problem(path: str, tracked: Collection[str]) -> str | None:
    """Return why a file cannot be written at this path of a repository; None when it can."""
    shown = printable(path) or "(empty)"
    parts = path.split("/")
    if not path or path.startswith("/") or "\\" in path or (len(path) > 1 and path[1] == ":"):
        return f"`{shown}` is not a path relative to the repository's root, with `/` between folders."
    if any(part in ("", ".", "..") for part in parts):
        return f"`{shown}` does not stay inside the repository: write it without `.`, `..` and empty parts."
    if any(part.casefold().rstrip(". ") == ".git" for part in parts):
        return f"`{shown}` is in git's own folder."
    if path.startswith("-") or not path.isprintable() or any(len(part.encode()) > _LONGEST_NAME for part in parts):
        return f"`{shown}` is not a usable file name."
    for count in range(1, len(parts)):
        above = "/".join(parts[:count])
        if above in tracked:
            return f"`{shown}` goes through `{above}`, which is a file, a link or a submodule, not a folder."
    return None


def _made(edit: Edit, state: _EditState) -> str | None:
    problem = path_problem(edit.path, state.tracked)
    if problem is not None:
        raise _RefusedEdit(EditFlaw.PATH, problem)
    before = state.current(edit.path)
    if edit.path in state.tracked and edit.path not in state.base:
        raise _RefusedEdit(EditFlaw.PATH, f"`{edit.path}` is a link or a submodule: only plain files can be edited.")
    if edit.action == "create":
        return _created(edit, before, state)
    if before is None:
        raise _RefusedEdit(EditFlaw.ABSENT, f"`{edit.path}` does not exist.{perhaps_meant(edit.path, state.tracked)}")
    if edit.action == "delete":
        return None
    return _modified(edit, before)


def _created(edit: Edit, before: str | None, state: _EditState) -> str:
    if before is not None:
        raise _RefusedEdit(
            EditFlaw.EXISTS, f"`{edit.path}` exists already: use action `modify` with `search` and `replace`."
        )
    if edit.path in state.folders:
        raise _RefusedEdit(EditFlaw.EXISTS, f"`{edit.path}` is a folder.")
    return _sound(edit.content or edit.replace, edit.path)


def _modified(edit: Edit, text: str) -> str:
    if "\0" in text:
        raise _RefusedEdit(
            EditFlaw.BINARY, f"`{edit.path}` is a binary file: it cannot be modified by search and replace."
        )
    plain = text.replace("\r\n", "\n") if "\r" in text else text
    search, replace = edit.search.replace("\r\n", "\n"), edit.replace.replace("\r\n", "\n")
    if not search.strip():
        if plain.strip():
            raise _RefusedEdit(
                EditFlaw.NO_SEARCH,
                f"The edit of `{edit.path}` has no `search` text: copy the lines that change from the file.",
            )
        return _sound(replace, edit.path)
    start, end, new = _place(edit.path, plain, search, replace)
    first, last = (start, end) if plain is text else (_with_returns(text, start), _with_returns(text, end))
    near = (last - first) - (end - start)
    if near if "\n" in plain[start:end] else 2 * (len(text) - len(plain)) > plain.count("\n"):
        new = new.replace("\n", "\r\n")
    return text[:first] + _sound(new, edit.path) + text[last:]


def _with_returns(text: str, at: int) -> int:
    """Return the index in `text` of what is at `at` where each of its line ends is one character."""
    place, counted = at, 0
    while more := text.count("\r\n", counted, place + 1):
        counted, place = place, place + more
    return place


def _place(path: str, text: str, search: str, replace: str) -> tuple[int, int, str]:
    """Return where the search text stands, from and to, and what stands there afterwards."""
    exact = _found(text, search)
    if len(exact) == 1:
        return exact[0], exact[0] + len(search), replace
    if len(exact) > 1:
        raise _ambiguous(path, len(exact), [text.count("\n", 0, at) + 1 for at in exact[:_SHOWN_PLACES]], search)
    lines, wanted = text.split("\n"), search.strip("\n").split("\n")
    grounded = _grounded(lines, [line.rstrip() for line in wanted])
    if len(grounded) > 1:
        raise _ambiguous(path, len(grounded), [at + 1 for at, _, _ in grounded[:_SHOWN_PLACES]], search)
    if not grounded:
        raise _RefusedEdit(
            EditFlaw.NOT_FOUND,
            f"The `search` text of the edit of `{path}` is not in the file.{_nearest(lines, wanted)}",
            _first(search),
        )
    at, theirs, ours = grounded[0]
    new = [_shifted(line, theirs, ours) for line in replace.strip("\n").split("\n")] if replace.strip("\n") else []
    start = sum(len(line) + 1 for line in lines[:at])
    end = start + sum(len(line) + 1 for line in lines[at : at + len(wanted)])
    if new:
        return start, end - 1, "\n".join(new)  # the last line keeps its end, also when it has none
    return start, min(end, len(text)), ""


def _grounded(lines: Sequence[str], wanted: Sequence[str]) -> list[tuple[int, str, str]]:
    """Places where the lines are the wanted ones but for trailing blanks, else but for a common indentation."""
    stripped = [line.rstrip() for line in lines]
    key = max(range(len(wanted)), key=lambda n: len(wanted[n].strip()))
    core = wanted[key].lstrip()
    starts = [at - key for at, line in enumerate(stripped) if line.lstrip() == core and at >= key]
    starts = [at for at in starts if at + len(wanted) <= len(lines)]
    same = [at for at in starts if stripped[at : at + len(wanted)] == list(wanted)]
    if same:
        return [(at, "", "") for at in same]
    theirs = _indent(wanted[key])
    found = []
    for at in starts:
        ours = _indent(stripped[at + key])
        if [_shifted(line, theirs, ours) for line in wanted] == stripped[at : at + len(wanted)]:
            found.append((at, theirs, ours))
    return found


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _shifted(line: str, theirs: str, ours: str) -> str:
    """A line whose indentation was written for `theirs`, for `ours`."""
    if not line.strip() or theirs == ours:
        return line
    if ours.endswith(theirs):
        return ours[: len(ours) - len(theirs)] + line
    more = theirs[len(ours) :] if theirs.startswith(ours) else theirs
    return line[len(more) :] if line.startswith(more) else line


def _found(text: str, part: str) -> list[int]:
    """Every place of `part`, overlapping ones too."""
    places: list[int] = []
    at = text.find(part)
    while at >= 0:
        places.append(at)
        at = text.find(part, at + 1)
    return places


def _ambiguous(path: str, times: int, numbers: Sequence[int], search: str) -> _RefusedEdit:
    first = ", ".join(map(str, numbers))
    return _RefusedEdit(
        EditFlaw.AMBIGUOUS,
        f"The `search` text of the edit of `{path}` is in the file {times} times (lines {first}): copy more "
        "lines around it, so that it is there once.",
        _first(search),
    )


def _first(search: str) -> str:
    """Return what says which place was meant, also when the rest of the text is written in another way next time."""
    return next(line.strip() for line in search.splitlines() if line.strip())


def _nearest(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """The lines of the file that are closest to what was searched for, to be copied from."""
    at = _offset(lines, wanted)
    if at is None:
        return " Nothing in it is similar: copy the text that changes character for character from the file."
    first = max(0, min(at, len(lines) - 1))
    shown = lines[first : first + min(len(wanted) + 2, _SHOWN_LINES)]
    text = visible("\n".join(shown))
    return f" The closest text in it is:\n```\n{text}\n```\nCopy from this, character for character."


def _offset(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Return where in the file most of the wanted lines stand, each a vote for a place; else its most similar line."""
    where: dict[str, list[int]] = {}
    for at, line in enumerate(lines):
        if len(line.strip()) > 2:
            where.setdefault(line.strip(), []).append(at)
    votes: dict[int, int] = {}
    for n, line in enumerate(wanted):
        for at in where.get(line.strip(), ())[:50]:
            votes[at - n] = votes.get(at - n, 0) + 1
    if votes:
        return max(votes, key=lambda at: (votes[at], -at))
    key = max(wanted, key=lambda line: len(line.strip())).strip()
    close = difflib.get_close_matches(key, list(where)[:_COMPARED_LINES], n=1, cutoff=0.5)
    return where[close[0]][0] if close else None


def perhaps_meant(path: str, tracked: Collection[str]) -> str:
    """Say which files a wrong path may have meant: of the same name elsewhere, else the most similar path."""
    name = path.rsplit("/", 1)[-1]
    same = sorted(other for other in tracked if other == name or other.endswith(f"/{name}"))
    known, cutoff = (same, 0.0) if same else (sorted(tracked)[:_COMPARED_LINES], 0.75)
    close = difflib.get_close_matches(path, known, n=_SIMILAR, cutoff=cutoff)
    return f" Did you mean {' or '.join(f'`{name}`' for name in close)}?" if close else ""


def _sound(text: str, path: str) -> str:
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise _RefusedEdit(
            EditFlaw.TEXT, f"The new text of `{path}` holds half a character (a lone surrogate)."
        ) from None
    return text
