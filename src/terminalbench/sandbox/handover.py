"""From the agent to the verifier: all processes ended, the system the image's own, the tests' folders new."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from terminalbench.sandbox import helper
from terminalbench.sandbox.engine import views
from terminalbench.sandbox.errors import BrokenContent, SandboxError
from terminalbench.sandbox.run_program import landlock_version
from terminalbench.sandbox.session import Sandbox
from terminalbench.sandbox.system import TaskWords

RUN_PROGRAM = "/.tbench/run-program"
"""What the tests run the agent's programs by, as `$TBENCH_RUN_PROGRAM`: see `run_program.py`."""
BY_KERNEL, BY_USER = "landlock", "user"
_SHELL_SEC = 60
_SIGNALLED = 128
_ROOM_BYTES = 256 << 20


@dataclass(frozen=True)
class VerifierPlace:
    """Where the tests work: their folder, the reward's and its names, who writes it, and in which folder they run.

    `loose` are the files of the root folder that are work; None: all. `spoken` is what the task's own files speak of,
    `led` the folders of the work that variables of the image lead to, `own` digests of the files that the agent's
    profile copied in, by their paths.
    """

    tests: str
    logs: str
    rewards: Sequence[str]
    user: str
    workdir: str
    loose: Sequence[str] | None = None
    spoken: TaskWords = field(default_factory=TaskWords)
    led: Sequence[str] = ()
    own: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Handover:
    """What the agent left where the verifier works, and what it changed in the system (None: it was not looked at).

    `traps` would run as code of its tests, or change how they run, by their kinds (`engine.traps`).
    `run_program` is what the tests are to run its programs by; None where nothing can keep these from the reward.
    `try_shell` says why a command could not be run, where that is not known yet: the image's own shell runs as a rule.
    `kept`: the work is kept as it is now, for tests that run again (`again`).
    """

    rewards: list[str]
    links: list[str]
    changes: dict[str, Any] | None = None
    run_program: str | None = None
    try_shell: Callable[[], Awaitable[None]] | None = None
    traps: Mapping[str, list[str]] = field(default_factory=dict)
    kept: bool = False


async def to_verifier(
    sandbox: Sandbox, place: VerifierPlace, system: Sequence[str] | None, *, keep: bool = False, again: bool = False
) -> Handover:
    """Get a sandbox ready for the tests; without `system` folders that are the image's, over the agent's own.

    With `keep` nothing that runs is ended. With `again` the work is kept, for tests that may run on it once more.
    """
    expected = _expected(place)
    told: dict[str, Any] | None = None
    if system is not None:
        starts = sorted({place.workdir, *place.spoken.folders, *place.led})
        looked: dict[str, Any] = {"starts": starts, "spoken": sorted(place.spoken.traps), "led": list(place.led)}
        looked |= {"modules": sorted(place.spoken.modules), "own": dict(place.own)}
        told = await sandbox.renew(
            views.VERIFIER, system, expected, loose=place.loose, room_bytes=_ROOM_BYTES, traps=looked, keep=again
        )
    elif not keep:
        await sandbox.renew(views.AGENT, room_bytes=_ROOM_BYTES)
    confined_by = confinement()
    done = await sandbox.prepare(_folders(place, confined_by))
    left, later, traps, kept = [], None, dict[str, list[str]](), False
    if told is None:
        await _try_shell(sandbox, place, pristine=False)
    else:
        left, later = told.pop("left"), partial(_try_shell, sandbox, place, pristine=True)
        kept = told.pop("kept")
        for one in told["traps"]:
            traps.setdefault(one["kind"], []).append(one["path"])
    found = [*left, *done.found]
    return Handover(found, list(done.links), told, RUN_PROGRAM if confined_by else None, later, traps, kept)


async def again(sandbox: Sandbox, place: VerifierPlace) -> bool:
    """Get a sandbox ready for the same tests once more: the work is what it was when the first of them began.

    False where there is no room for that; then it is as they left it. `as_tested` undoes it.
    """
    told = await sandbox.renew(views.VERIFIER, work="handed")
    await sandbox.prepare(_folders(place, confinement()))
    return told["kept"]


async def as_tested(sandbox: Sandbox) -> None:
    """Give the work back what the first tests made of it."""
    await sandbox.renew(views.VERIFIER, work="tested")


def _expected(place: VerifierPlace) -> list[str]:
    return [f"{place.logs}/{name}" for name in place.rewards]


def _folders(place: VerifierPlace, confined_by: str | None) -> dict[str, Any]:
    """Return what is prepared for the tests; where their programs run as another user, that one cannot read their
    folder."""
    folders = {"tests": place.tests, "logs": place.logs, "user": place.user, "expected": _expected(place)}
    return {**folders, "programs": {RUN_PROGRAM: _run_program()}, "private": confined_by == BY_USER}


def confinement() -> str | None:
    """Return what keeps a program that the tests run from the reward: the kernel, another user, or nothing here."""
    if landlock_version() > 0:
        return BY_KERNEL
    return BY_USER if helper.helper().ids != "one" else None


@cache
def _run_program() -> str:
    """Python, and to a shell a line that has Python run it, wherever that is."""
    start = '#!/bin/sh\n"exec" "python3" "-I" "-S" "-B" "$0" "$@"\n'
    return start + Path(__file__).with_name("run_program.py").read_text(encoding="utf-8")


async def _try_shell(sandbox: Sandbox, place: VerifierPlace, *, pristine: bool) -> None:
    """Raise if no command runs where the tests are to run: no shell, or no working folder.

    A shell that hangs, or is killed, is the agent's doing only if it is the agent's shell.
    """
    try:
        done = await sandbox.run(
            ["bash", "-c", "echo $((6 * 7))"], env={}, cwd=place.workdir, user=place.user, timeout_sec=_SHELL_SEC
        )
    except TimeoutError:
        raise (SandboxError if pristine else BrokenContent)("the sandbox's shell hangs") from None
    if done.stdout.strip() != "42":
        said = (done.stderr.strip() or f"its shell ended with {done.exit_code}")[:300]
        kind = SandboxError if pristine and done.exit_code > _SIGNALLED else BrokenContent
        raise kind(f"commands cannot run in {place.workdir}: {said}")
