"""From the agent to the verifier: all processes ended, the system the image's own, the tests' folders new; and back."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from harbor.environments.base import ExecResult

from terminalbench.sandbox.answers import CommandResult, LimitCounts, OverseerCounts, VerifierFolders
from terminalbench.sandbox.engine import views
from terminalbench.sandbox.errors import BrokenContent, SandboxError
from terminalbench.sandbox.helper import BY_USER, confinement
from terminalbench.sandbox.running import SHELL, RunningSandbox
from terminalbench.sandbox.session import Sandbox
from terminalbench.sandbox.system import TaskWords, led_to, spoken_of, system_folders

RUN_PROGRAM = "/.tbench/run-program"
"""What the tests run the agent's programs by, as `$TBENCH_RUN_PROGRAM`: see `run_program.py`."""
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


def _expected(place: VerifierPlace) -> list[str]:
    return [f"{place.logs}/{name}" for name in place.rewards]


def _folders(place: VerifierPlace, confined_by: str | None) -> dict[str, Any]:
    """Return what is prepared for the tests; where their programs run as another user, that one cannot read their
    folder."""
    folders = {"tests": place.tests, "logs": place.logs, "user": place.user, "expected": _expected(place)}
    return {**folders, "programs": {RUN_PROGRAM: _run_program()}, "private": confined_by == BY_USER}


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


class VerifierStage(RunningSandbox):
    """A sandbox that is handed to the tests, and back."""

    _handed: list[str] | None = None
    _tests: VerifierFolders | None = None
    _kept: VerifierPlace | None = None

    async def hand_to_verifier(
        self,
        *,
        pristine: bool,
        keep: bool,
        tests: str,
        logs: str,
        rewards: Sequence[str],
        again: bool = False,
        own: Mapping[str, str] | None = None,
    ) -> Handover:
        """End all that the agent started, unless it is to `keep` running, and get ready for the tests.

        Their folders are new, `logs` the verifier's user's, and no link leads into them. If `pristine`, the system is
        the image's, and only its work is the agent's. With `again` the work is kept for `work_as_handed`. `own` are
        digests of the files that the agent's profile copied in. Raises `BrokenContent` where what it left is in the
        way.
        """
        self._handed = self._system(tests, logs) if pristine and not keep else None
        self._tests = None if keep else VerifierFolders(tests, logs, self._handed if self._workdir.strip("/") else None)
        spoken = await asyncio.to_thread(spoken_of, self.environment_dir.parent)
        account, led = self._account(None), led_to(self._variables, self._workdir)
        place = VerifierPlace(tests, logs, rewards, account, self._workdir, self._loose(spoken), spoken, led, own or {})
        sandbox = await self._ready()
        handed = await to_verifier(sandbox, place, self._handed, keep=keep, again=again and self._services is None)
        self._kept = place if handed.kept else None
        if self._services is not None:
            self._services.note_ended()
            if self._handed is not None:  # what the task puts into the system is the task's, and not in its image
                await self._services.prepare_main(sandbox, self._handed)
        return handed

    async def run_tests(
        self, command: str, env: dict[str, str] | None
    ) -> tuple[ExecResult, CommandResult, OverseerCounts | None]:
        """Run the tests' command, as Harbor's result and as the sandbox's; and what they ran of the agent's work.

        Their end is that of all that they have started, unless what the agent left is to run on.
        """
        given, account = self._merge_env(env) or {}, self._account(None)
        argv = [SHELL, "-c", command]
        done = await self._run(argv, cwd=self._workdir, env=given, account=account, tests=self._tests)
        stderr = done.stderr + (await self._limit_notes() if done.exit_code != 0 else "")
        result = ExecResult(stdout=done.stdout, stderr=stderr, return_code=done.exit_code)
        tests = self._tests
        return result, done, await self._running().overseen(tests, done.ended_ns) if tests is not None else None

    async def work_as_handed(self) -> bool | None:
        """Get ready for the same tests once more: the work is what it was when the first of them began.

        False where that is not known, or there is no room, and None where services run on: then it is as they left it.
        `work_as_tested` undoes it.
        """
        if self._services is not None:
            return None
        if self._kept is None:
            return False
        told = await self._running().renew(views.VERIFIER, work="handed")
        await self._running().prepare(_folders(self._kept, confinement()))
        return told["kept"]

    async def work_as_tested(self) -> None:
        """Give the work back what the first tests made of it."""
        if self._kept is not None:
            await self._running().renew(views.VERIFIER, work="tested")

    @contextlib.asynccontextmanager
    async def untouched(self) -> AsyncGenerator[None]:
        """A sandbox as the image made it in the place of this one, which is back in the end as it was.

        Raises `SandboxError` for a task with services: what the agent did to those is in them.
        """
        if self._services is not None:
            raise SandboxError("for a task with services, there is no untouched state")
        before, self._sandbox = (self._sandbox, self._handed, self._tests, self._kept), None
        try:
            await self.bring_up()
            yield
        finally:
            await self.take_down()
            self._sandbox, self._handed, self._tests, self._kept = before

    async def hand_to_agent(self) -> None:
        """Hand the system back to the agent after a step's tests, with the work as it is now."""
        self._tests = None
        self._mirror.reopen()
        if self._handed is not None:
            system, self._handed = self._handed, None
            loose = self._loose(await asyncio.to_thread(spoken_of, self.environment_dir.parent))
            await (await self._ready()).renew(views.AGENT, system, loose=loose)

    def _loose(self, spoken: TaskWords) -> list[str] | None:
        """The files of the root folder that the task is about; None: all, where it works there."""
        return sorted(spoken.in_root) if self._workdir.strip("/") else None

    def _system(self, *own: str) -> list[str]:
        return system_folders(self._variables, self._workdir, *own)

    @property
    def _variables(self) -> dict[str, str]:
        """Those of the image, and of the task."""
        return {**self._image().env, **self._persistent_env}

    async def runs_programs(self) -> bool:
        """Return whether a program of the agent's runs that the tests have started by `$TBENCH_RUN_PROGRAM`."""
        return await (await self._ready()).runs_programs()

    async def limit_counts(self) -> LimitCounts:
        """Return how often each limit was reached so far."""
        return await (await self._ready()).counts()
