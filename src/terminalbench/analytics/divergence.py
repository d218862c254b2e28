"""Where two trials of one task part ways: the first decision that one made and the other never did.

Both trajectories become lists of moves (kind and target). They are aligned; what only one of them did is a difference.
A move that the other made too, earlier or later, is no difference, and looking around matters less than acting.
"""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import partial
from itertools import chain

import msgspec

from terminalbench.analytics.atif import Trajectory, TrajectoryStep
from terminalbench.analytics.findings.actions import Action
from terminalbench.analytics.findings.analyzers import without_secrets
from terminalbench.secrets.values import NONE, Secrets

MOVES = 600
"""Moves of a trial that are compared; a longer trial is compared by its first ones."""
_QUOTE = 280
_IDLE = frozenset({"wait", "plan", "move", "say", "list"})
_ACTS = frozenset(
    {"edit", "write", "delete", "test", "mcp", "delegate", "build", "install", "run", "fetch", "finish", "other"}
)
_SPACE = re.compile(r"\s+")
_FOLDERS = re.compile(r"(?:[\w.~-]*/)+")
_CHANCE = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b|\d+")


class ForkDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one trial did at the fork: the step, the call, what the agent said, what came back."""

    trial: str
    step: int
    kind: str
    call: str
    said: str = ""
    result: str = ""


class Divergence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fork: how many moves both made before it, and what each did there; None: it did nothing more."""

    common: int
    a: ForkDecision | None
    b: ForkDecision | None


class TrialSide(msgspec.Struct, frozen=True):
    """One trial as the comparison needs it."""

    trial: str
    trajectory: Trajectory
    actions: Sequence[Action]
    secrets: Secrets = NONE


def first_divergence(a: TrialSide, b: TrialSide) -> Divergence | None:
    """The first difference that matters: in acting, else in looking; None when both made the same moves."""
    moves_a, moves_b = _moves(a.actions), _moves(b.actions)
    keys_a, keys_b = [_key(m) for m in moves_a], [_key(m) for m in moves_b]
    only_a, only_b = set(keys_a) - set(keys_b), set(keys_b) - set(keys_a)
    matcher = SequenceMatcher(None, keys_a, keys_b, autojunk=False)
    blocks = matcher.get_opcodes()
    for acting in (True, False):
        common = 0
        for tag, a1, a2, b1, b2 in blocks:
            if tag == "equal":
                common += a2 - a1
                continue
            mine = [i for i in range(a1, a2) if keys_a[i] in only_a and (not acting or moves_a[i].kind in _ACTS)]
            other = [i for i in range(b1, b2) if keys_b[i] in only_b and (not acting or moves_b[i].kind in _ACTS)]
            if mine or other:
                left = moves_a[mine[0]] if mine else _next(moves_a, a1, acting)
                right = moves_b[other[0]] if other else _next(moves_b, b1, acting)
                return Divergence(common, _decision(a, left), _decision(b, right))
    return None


def _moves(actions: Sequence[Action]) -> list[Action]:
    """The moves that count, repeats of the one before left out."""
    moves: list[Action] = []
    for action in actions:
        if action.kind in _IDLE or (moves and moves[-1].same == action.same):
            continue
        moves.append(action)
        if len(moves) == MOVES:
            break
    return moves


def _key(action: Action) -> tuple[str, str]:
    """Return what a move is, without what differs by chance: numbers, ids, where a folder lies."""
    files = action.changed or action.effects.reads
    if files:
        return action.kind, files[0].rsplit("/", 1)[-1]
    if action.kind in ("test", "finish"):
        return action.kind, ""
    return action.kind, _CHANCE.sub("N", _FOLDERS.sub("", action.target))[:80]


def _next(moves: Sequence[Action], start: int, acting: bool) -> Action | None:
    """Return what a trial did next instead; None: it had ended."""
    rest = moves[start:]
    return next((move for move in rest if not acting or move.kind in _ACTS), rest[0] if rest else None)


def _decision(told: TrialSide, action: Action | None) -> ForkDecision | None:
    if action is None:
        return None
    steps = chain(told.trajectory.steps, *(part.steps for part in told.trajectory.subagents))
    step = next((s for s in steps if s.id == action.step), None)
    call = action.command or action.target
    quote = partial(_quote, secrets=told.secrets)
    return ForkDecision(
        trial=told.trial,
        step=action.step,
        kind=action.kind,
        call=quote(f"{action.tool}: {call}" if call else action.tool),
        said=quote(step.text or step.reasoning) if step is not None else "",
        result=quote(_result(step, action)) if step is not None else "",
    )


def _result(step: TrajectoryStep, action: Action) -> str:
    """Return what came back for the call, its end: there the outcome stands."""
    for call in step.calls:
        if call.name == action.tool:
            found = step.result_of(call)
            if found is not None:
                return found.text[-4 * _QUOTE :]
    return step.results[0].text[-4 * _QUOTE :] if step.results else ""


def _quote(text: str, secrets: Secrets) -> str:
    """The words in one line, cut in the middle where they are many."""
    plain = "".join(c if c.isprintable() else " " for c in without_secrets(text[: 20 * _QUOTE], secrets))
    line = _SPACE.sub(" ", plain).strip()
    return line if len(line) <= _QUOTE else f"{line[: _QUOTE // 2]} ... {line[-_QUOTE // 2 :]}"
