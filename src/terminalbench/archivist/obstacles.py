"""What stood in the way of an agent, by what its calls returned: at other tasks it stands there again. Pure.

What our own rules say against it, against ways of failing and against what guards refuse, is in `rules.toml`.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from terminalbench.analytics.atif import Trajectory, TrajectoryCall
from terminalbench.analytics.findings.actions import Action
from terminalbench.analytics.findings.shell import command_effects
from terminalbench.decode import convert
from terminalbench.records.lesson import Lesson


def _rules(kind: str) -> dict[str, Lesson]:
    """Return the lessons of a kind that come with the bench, each by what it answers."""
    rows = _RULES[kind]
    return {name: convert({**row, "id": ""}, Lesson) for row in rows for name in row["names"]}


_RULES = tomllib.loads((Path(__file__).parent / "rules.toml").read_text("utf-8"))
RULES = _rules("failure")
"""By the failure class (docs/analysis.md) that a lesson answers."""
OBSTACLE_RULES = _rules("obstacle")
"""By what stood in the way."""
GUARD_RULES = _rules("guard")
"""By the guard (docs/guards.md) that refused again and again."""

_END = 4_000
"""Characters of a result, at its begin and at its end, in which a shell or a tool speaks of itself."""
_CUT, _ASKED, _HUNG, _ENDED, _LIMIT = "cut_off", "asked", "hung", "ended_on_failure", "limit"
_ONCE_IS_ENOUGH = frozenset({"no_room", "no_memory", "served_in_front"})
"""What an agent does not get past by knowing of it."""
_SOON_KNOWN = frozenset({"absent_programs", "one_action", "no_network", "no_init", "shell_state"})
"""What costs an agent a turn or two, after which it knows: it counts when it still comes at the end of the work."""
_CUT_OFF = re.compile(
    r"\bcommand\b[^\n]{0,300}?\b(?:timed[ -]out|has been killed)|\btimed out and (?:has been|was) killed"
    r"|\bno new output after \d+|\bexceed(?:ed|ing) (?:the |its )?time|\bcancelled because it took more than"
    r"|(?-i:\AEXECUTION TIMED OUT)",
    re.IGNORECASE,
)
_PRINTED = re.compile(r"<output>(.*?)(?:</output>|\Z)", re.DOTALL)
_ASKS = re.compile(r"(?:^|\n)(?![^\n]*%)[^\n]{0,40}(?:[>?$#]|[a-z)]:) ?\Z")
_SERVES = re.compile(
    r"\b(?:server|serve|runserver|uvicorn|gunicorn|flask|jupyter|http\.server|mongod|npm (?:run )?(?:start|dev))\b"
)
_SERVING = re.compile(r"Serving Flask|\brunning on http|\blistening (?:on|at)\b|CTRL\+C to quit", re.IGNORECASE)
_UNPIPED = re.compile(r"[^&>]*[^&>]&\s*\Z")
"""In the background, but with the output of the command, which waits for its end."""
_ABSENT = re.compile(
    r"(?:(?:^|\n)[^\n:]{0,40}sh: (?:line )?(?:\d+: )?([\w.+-]+): (?:command )?not found)|command not found: ([\w.+-]+)"
)
_WORD = re.compile(r"[A-Z][a-z]+|[A-Z]{5,}")
"""What no program is called: the first word of a sentence, or a heading."""
_TOOLCHAIN = re.compile(
    r"javac?|mvn|gradle|kotlinc|scala|sbt|node|np[mx]|yarn|pnpm|tsc|go|cargo|rustc|gcc|g\+\+|cc|clang|c?make"
    r"|python3?|pip3?|pytest|ruby|bundle|php|composer|dotnet|ghc|Rscript|julia|swift"
)
_OF_AN_INIT = frozenset({"systemctl", "service", "journalctl", "sudo"})
_OF_BASH = frozenset({"source", "[[", "shopt", "declare", "pushd"})
_FULL_SCREEN = re.compile(
    r"^(?:\S+=\S+ )*(?:vim?|nano|emacs|less|top|htop|man|tmux a\w*|screen|gdb|mysql|psql|telnet|ftp)(?: |\Z)"
)
_SHELL_STATE = re.compile(
    r"\bconda init' before 'conda activate|\bsh: (?:\d+: )?(?:source|\[\[|Syntax error|Bad substitution)"
)
_NO_NETWORK = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|NameResolutionError"
)
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")
_NO_MEMORY = re.compile(
    r"(?:^|\n)(?:[^\n]*: line \d+: +\d+ )?(?-i:Killed)\b|\bMemoryError\b|Cannot allocate memory|out of memory",
    re.IGNORECASE,
)
_ONE_ACTION = re.compile(
    r"\bexactly one (?:action|command|tool call)|could not parse your (?:response|answer)", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?:[A-Z][a-z]+|[A-Z]{5,})\s+[A-Za-z]")
_NO_COMMAND = re.compile(r"sh: (?:line )?\d+: (?:unexpected EOF|syntax error)")
"""What a shell answers to a sentence, most often for an apostrophe in it."""
_LIMITS = frozenset({"exit_cost", "exit_context"})
_LONG = frozenset({"install", "fetch", "build"})
_HEREDOC = re.compile(r"<<-?\s*['\"]?\w")
_PROGRAM = re.compile(r"\.(?:py|sh|js|ts|c|cc|cpp|rs|go|java|rb|pl|lua|php|R|jl|hs|ml)\Z")
_DOES = frozenset({"run", "test", "build", "install", "fetch"})


@dataclass(frozen=True)
class Obstacle:
    """What stood in the way, and the steps that show it."""

    name: str
    steps: tuple[int, ...]


@dataclass(frozen=True)
class _ReturnedCall:
    """A call, the command of it where it is one, and what it returned."""

    step: int
    command: str
    text: str


def obstacles(trajectory: Trajectory, actions: Sequence[Action]) -> list[Obstacle]:
    """Return what stood in the way of an agent, what came most often first.

    What came once, early, was an incident that the agent got past, not why it failed.
    """
    found: dict[str, list[int]] = {}
    for one in _returned(trajectory):
        for name in _names(one):
            found.setdefault(name, []).append(one.step)
    if _ASKED in found and _HUNG in found:  # what talks to a program that asks hangs, too
        found[_ASKED] = sorted(found[_ASKED] + found.pop(_HUNG))
    elif _HUNG in found:
        found[_CUT] = sorted(found.get(_CUT, []) + found.pop(_HUNG))
    order = sorted(found.items(), key=lambda pair: -len(pair[1]))
    late = _last_third(trajectory)
    met = [
        Obstacle(name, tuple(steps))
        for name, steps in order
        if name in _ONCE_IS_ENOUGH or (len(steps) > 1) + (steps[-1] >= late) > (name in _SOON_KNOWN)
    ]
    return [*met, *_last_word(actions)]


def _last_third(trajectory: Trajectory) -> float:
    """Return the step with which the last third of an agent's work begins."""
    steps = [step.id for step in trajectory.own_steps()]
    return steps[-1] - (steps[-1] - steps[0]) / 3 if steps else 0


def _returned(trajectory: Trajectory) -> Iterator[_ReturnedCall]:
    for step in trajectory.own_steps():
        for call in step.calls:
            result = step.result_of(call)
            if result is not None:
                text = result.text
                short = text if len(text) <= 2 * _END else f"{text[:_END]}\n{text[-_END:]}"
                yield _ReturnedCall(step.id, _command(call), short)
        if step.source != "agent" and step.text:
            yield _ReturnedCall(step.id, "", step.text[:_END])


def _command(call: TrajectoryCall) -> str:
    return " ".join(value for value in call.arguments.values() if isinstance(value, str))[:_END]


def _names(one: _ReturnedCall) -> Iterator[str]:
    """Yield what stood in the way of one call."""
    if _CUT_OFF.search(one.text):
        yield _cut_off(one)
    absent = {name for pair in _ABSENT.findall(one.text) for name in pair if name}
    if absent & _OF_AN_INIT:
        yield "no_init"
    slips = {name for name in absent if name.endswith(".")}  # `cd..`: a blank is missing, no program
    yield from sorted({_kind_of(name) for name in absent - slips - _OF_AN_INIT - _OF_BASH})
    yield from (name for name, says in _SAID if says(one.text))
    if _SENTENCE.match(one.command) and _NO_COMMAND.search(one.text):
        yield "one_action"


def _kind_of(absent: str) -> str:
    """Return what it shows that a shell did not find a program of this name."""
    if _TOOLCHAIN.fullmatch(absent):
        return "absent_toolchain"
    return "one_action" if _WORD.fullmatch(absent) else "absent_programs"


def _cut_off(one: _ReturnedCall) -> str:
    """Return why a command did not end: it asks, it serves, it takes long, or nothing says why."""
    printed = _PRINTED.search(one.text)
    said = _HEREDOC.split(one.command)[0]
    if _ASKS.search((printed[1] if printed is not None else one.text).rstrip("\n")) or _FULL_SCREEN.match(said):
        return _ASKED
    if not _LONG.isdisjoint(command_effects(said).kinds):
        return _CUT
    served = _SERVES.search(said) or _UNPIPED.match(said) or _SERVING.search(one.text)
    return "served_in_front" if served else _HUNG


_SAID: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("shell_state", _SHELL_STATE.search),
    ("no_network", _NO_NETWORK.search),
    ("no_room", _NO_ROOM.search),
    ("no_memory", _NO_MEMORY.search),
    ("one_action", _ONE_ACTION.search),
)


def _at_limit(actions: Sequence[Action]) -> bool:
    """Return whether the work ended at a limit of steps, cost or context."""
    return bool(actions) and (actions[-1].command or "").strip() in _LIMITS


def _last_word(actions: Sequence[Action]) -> list[Obstacle]:
    """Return how the work ended: at a limit, or with something that failed."""
    if _at_limit(actions):
        return [Obstacle(_LIMIT, (actions[-1].step,))] if _changed_late(actions) else []
    ran = [action for action in actions if action.kind in _DOES and action.failed is not None]
    return [Obstacle(_ENDED, (ran[-1].step,))] if ran and ran[-1].failed else []


def _changed_late(actions: Sequence[Action]) -> bool:
    """Return whether the first third of the work changed nothing that was there; what fills a new file does not."""
    edits = (
        at for at, one in enumerate(actions) if one.kind == "edit" and not (at and actions[at - 1].kind == "write")
    )
    return next(edits, len(actions)) > len(actions) / 3


_TOLD_BY = {
    "loop": (_ENDED, _LIMIT),
    "timeout_stuck": (_ENDED,),
    "timeout_working": (_ENDED,),
    "finished_with_failing_tests": (_ENDED,),
}
"""How the work ended, where the class of the failure says why."""


def not_told(name: str, met: Sequence[Obstacle]) -> list[Obstacle]:
    """Return what the class of a failure does not tell already."""
    told = _TOLD_BY.get(name, ())
    return [one for one in met if one.name not in told]


def is_borne_out(name: str, actions: Sequence[Action], met: Sequence[Obstacle]) -> bool:
    """Return whether more than the class of a failure says that a lesson on it would have helped this attempt."""
    stood = {one.name for one in met}
    if (name == "untested" and "absent_toolchain" in stood) or (name == "gave_up_early" and _at_limit(actions)):
        return False  # it could not be run; it had no more time
    if name == "untested":  # a program that was written, and nothing was run after it
        written = max(
            (at for at, one in enumerate(actions) if any(map(_PROGRAM.search, one.effects.writes))), default=None
        )
        return written is not None and not any(one.kind in _DOES for one in actions[written + 1 :])
    if name == "lost_passing_state":
        good = max((at for at, one in enumerate(actions) if one.passed), default=-1)
        return any(one.passed is False for one in actions[good + 1 :])
    return not (met and name in ("timeout_working", "wrong_answer", "own_tests_passed"))
