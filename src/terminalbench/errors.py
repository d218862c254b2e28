"""Every way a command can end badly, each with its exit code.

TbenchError                  exit 1    something failed; base of all of them
├── UserError                exit 2    wrong usage or input; the message says where, what and the next step
│   └── InvalidFile          exit 2    one file with one or more problems, all reported at once
├── Incomplete               exit 3    valid but partial or undecided result
├── GateFailed               exit 100  a gate the user asked for did not hold
└── Interrupted              exit 130  a signal ended the work; what was finished is kept

A user error is printed without a traceback, in one place: `terminalbench.cli.app`.
"""

from collections.abc import Sequence

from terminalbench.frozen import frozen

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INCOMPLETE = 3
EXIT_GATE = 100
EXIT_INTERRUPTED = 130

MOST_PROBLEMS = 50
"""How many problems of a file are printed; the others are counted."""
_LONGEST = {"key": 160, "text": 4000}
"""Characters of a key, and of a message or a hint, that are printed."""


class TbenchError(Exception):
    """Something failed. `where` locates it, `what` says it, `hint` is the next step."""

    exit_code = EXIT_FAILURE

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def lines(self) -> list[str]:
        """The message as a person reads it, a line each."""
        return [_line(self.where, None, self.what, self.hint)]

    def __str__(self) -> str:
        return "\n".join(self.lines())


class UserError(TbenchError):
    """Wrong usage or input: nothing was started, nothing was written."""

    exit_code = EXIT_USAGE


@frozen
class Problem:
    """One mistake in a file: the key it is at, what is wrong, what to do."""

    key: str
    what: str
    hint: str | None = None


class InvalidFile(UserError):
    """A file with problems; prints one `file:line: key: message` line for each; the line where it is known."""

    def __init__(self, where: str, problems: Sequence[Problem], numbers: Sequence[int | None] = ()) -> None:
        super().__init__(f"{len(problems)} problem{'s' if len(problems) != 1 else ''}", where=where)
        self.problems = tuple(problems)
        self.numbers = tuple(numbers) or (None,) * len(self.problems)

    def lines(self) -> list[str]:
        shown = list(zip(self.problems, self.numbers, strict=True))[:MOST_PROBLEMS]
        lines = [
            _line(self.where if number is None else f"{self.where}:{number}", problem.key, problem.what, problem.hint)
            for problem, number in shown
        ]
        if more := len(self.problems) - len(shown):
            lines.append(f"{self.where}: and {more:,} more problems (fix the first ones, then check again)")
        return lines


class Incomplete(TbenchError):
    """The result on disk is valid but partial, or the question stays undecided."""

    exit_code = EXIT_INCOMPLETE


class GateFailed(TbenchError):
    """A gate the user asked for did not hold."""

    exit_code = EXIT_GATE


class Interrupted(TbenchError):
    """A signal ended the work; what was finished is on disk."""

    exit_code = EXIT_INTERRUPTED


def closest(name: str, known: Sequence[str]) -> str | None:
    """The known name most like `name`, if any is like it at all."""
    from difflib import get_close_matches

    matches = get_close_matches(name, known, n=1, cutoff=0.6)
    if not matches:
        matches = get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
        matches = [k for k in known if matches and k.lower() == matches[0]]
    return matches[0] if matches else None


def did_you_mean(name: str, known: Sequence[str], *, limit: int = 12) -> str | None:
    """A hint that names the closest known name, or lists what there is: up to `limit` names, none with 0."""
    match = closest(name, known)
    if match is not None:
        return f'did you mean "{match}"?'
    if not known or not limit:
        return None
    shown = ", ".join(known[:limit])
    more = f", ... ({len(known)} in all)" if len(known) > limit else ""
    return f"known: {shown}{more}"


def _line(where: str | None, key: str | None, what: str, hint: str | None) -> str:
    parts = (where, _cut(key or "", _LONGEST["key"]), _cut(what, _LONGEST["text"]))
    text = ": ".join(part for part in parts if part)
    return f"{text} ({_cut(hint, _LONGEST['text'])})" if hint else text


def _cut(text: str, longest: int) -> str:
    """Return a text with its middle left out, and how long it is, where it is longer than `longest`."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}[... {len(text):,} characters ...]{text[-half:]}"
