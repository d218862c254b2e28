"""A patch as a model writes it: edits with a search text, turned into the new content of each file.

A search text must be in its file exactly once. One that differs only in trailing blanks, line ends or by the same
indentation on every line is grounded: it means the place that it can only mean. Line ends and the end of a file stay.
"""

import bisect
import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from terminalbench.text.foreign import printable, visible
from terminalbench.workflow.generators import Edit, Patch
from terminalbench.workflow.model import Workspace

_SHOWN_LINES = 14
_LONGEST_NAME = 255
_COMPARED_LINES = 4000


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
    """The files as the edits so far left them."""

    tracked: Collection[str]
    base: Mapping[str, bytes]
    now: dict[str, bytes | None] = field(default_factory=dict)

    def current(self, path: str) -> bytes | None:
        return self.now[path] if path in self.now else self.base.get(path)


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
    for edit in edits:
        try:
            state.now[edit.path] = _made(edit, state)
        except _RefusedEdit as refused:
            problems.append(EditProblem(refused.flaw, edit.path, refused.what, refused.detail))
    files = {path: content for path, content in state.now.items() if content != base.get(path)}
    if not problems and not files:
        what = "The patch changes nothing: after all edits every file is as before."
        problems.append(EditProblem(EditFlaw.NOTHING, "", what))
    return PatchedFiles(files, tuple(problems))


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


def _made(edit: Edit, state: _EditState) -> bytes | None:
    problem = path_problem(edit.path, state.tracked)
    if problem is not None:
        raise _RefusedEdit(EditFlaw.PATH, problem)
    before = state.current(edit.path)
    if edit.path in state.tracked and edit.path not in state.base:
        raise _RefusedEdit(EditFlaw.PATH, f"`{edit.path}` is a link or a submodule: only plain files can be edited.")
    if edit.action == "create":
        return _created(edit, before, state)
    if before is None:
        raise _RefusedEdit(EditFlaw.ABSENT, f"`{edit.path}` does not exist.{_closest(edit.path, state.tracked)}")
    if edit.action == "delete":
        return None
    return _modified(edit, before)


def _created(edit: Edit, before: bytes | None, state: _EditState) -> bytes:
    if before is not None:
        raise _RefusedEdit(
            EditFlaw.EXISTS, f"`{edit.path}` exists already: use action `modify` with `search` and `replace`."
        )
    if any(name.startswith(f"{edit.path}/") for name in state.tracked):
        raise _RefusedEdit(EditFlaw.EXISTS, f"`{edit.path}` is a folder.")
    return _encoded(edit.content or edit.replace, edit.path)


def _modified(edit: Edit, before: bytes) -> bytes:
    if b"\0" in before:
        raise _RefusedEdit(
            EditFlaw.BINARY, f"`{edit.path}` is a binary file: it cannot be modified by search and replace."
        )
    text = before.decode(errors="surrogateescape")
    plain = text.replace("\r\n", "\n")
    search, replace = edit.search.replace("\r\n", "\n"), edit.replace.replace("\r\n", "\n")
    if not search.strip():
        if plain.strip():
            raise _RefusedEdit(
                EditFlaw.NO_SEARCH,
                f"The edit of `{edit.path}` has no `search` text: copy the lines that change from the file.",
            )
        return _encoded(replace, edit.path)
    start, end, new = _place(edit.path, plain, search, replace)
    returns = [at - n for n, at in enumerate(_found(text, "\r\n"))]
    first, last = start + bisect.bisect_left(returns, start), end + bisect.bisect_left(returns, end)
    near = bisect.bisect_left(returns, end) - bisect.bisect_left(returns, start)
    if near if "\n" in plain[start:end] else 2 * len(returns) > plain.count("\n"):
        new = new.replace("\n", "\r\n")
    return _encoded(text[:first] + new + text[last:], edit.path)


def _place(path: str, text: str, search: str, replace: str) -> tuple[int, int, str]:
    """Return where the search text stands, from and to, and what stands there afterwards."""
    exact = _found(text, search)
    if len(exact) == 1:
        return exact[0], exact[0] + len(search), replace
    if len(exact) > 1:
        raise _ambiguous(path, [text.count("\n", 0, at) + 1 for at in exact], search)
    lines, wanted = text.split("\n"), search.strip("\n").split("\n")
    grounded = _grounded(lines, [line.rstrip() for line in wanted])
    if len(grounded) > 1:
        raise _ambiguous(path, [at + 1 for at, _, _ in grounded], search)
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


def _ambiguous(path: str, numbers: Sequence[int], search: str) -> _RefusedEdit:
    first = ", ".join(map(str, numbers[:5]))
    return _RefusedEdit(
        EditFlaw.AMBIGUOUS,
        f"The `search` text of the edit of `{path}` is in the file {len(numbers)} times (lines {first}): copy more "
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


def _closest(path: str, tracked: Collection[str]) -> str:
    close = similar_paths(path, tracked)
    return f" Did you mean {' or '.join(f'`{name}`' for name in close)}?" if close else ""


def similar_paths(path: str, tracked: Collection[str], most: int = 2) -> list[str]:
    """Files of the repository that a wrong path may have meant: the same name elsewhere, else the most similar path."""
    name = path.rsplit("/", 1)[-1]
    same = sorted(other for other in tracked if other == name or other.endswith(f"/{name}"))
    if same:
        return difflib.get_close_matches(path, same, n=most, cutoff=0.0)
    return difflib.get_close_matches(path, sorted(tracked)[:_COMPARED_LINES], n=most, cutoff=0.75)


def _encoded(text: str, path: str) -> bytes:
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise _RefusedEdit(
            EditFlaw.TEXT, f"The new text of `{path}` holds half a character (a lone surrogate)."
        ) from None
