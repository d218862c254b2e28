"""What a sandbox does for the verifier: the hand-over, the tests, the work as it was, an untouched state."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence

from harbor.environments.base import ExecResult

from terminalbench.sandbox import handover
from terminalbench.sandbox.answers import CommandResult, LimitCounts, OverseerCounts, VerifierFolders
from terminalbench.sandbox.engine import views
from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.handover import Handover, VerifierPlace, to_verifier
from terminalbench.sandbox.running import SHELL, RunningSandbox
from terminalbench.sandbox.system import TaskWords, led_to, spoken_of, system_folders


class VerifierStage(RunningSandbox):
    """A sandbox that is handed to the tests, and back."""

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
        return self._kept is not None and await handover.again(self._running(), self._kept)

    async def work_as_tested(self) -> None:
        """Give the work back what the first tests made of it."""
        if self._kept is not None:
            await handover.as_tested(self._running())

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
