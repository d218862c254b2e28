"""Work in threads of its own: clients that block, and guards, which may be anybody's code.

A guard of a project runs in a thread with a loop of its own, so that one that blocks, exits or never returns stops
neither the trials beside it nor the process. What the repository could not do is raised as it is; whatever else goes
wrong in a guard is a `GuardFaultError` that names it.
"""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, cast

import msgspec

from terminalbench import registry
from terminalbench.workflow.model import Artifact, Guard, GuardContext, GuardResult, Workspace

_LONGEST = 500


class GuardFaultError(RuntimeError):
    """A guard failed, exited, did not return in time, or returned no result: its fault, never the model's."""

    def __init__(self, guard: str, what: str) -> None:
        super().__init__(f"guard {guard} {what[:_LONGEST]}")
        self.guard = guard


class _WorkspaceOfGuard:
    """The workspace as one run of a guard sees it: asked in the loop of the trial, and what it raised is remembered."""

    def __init__(self, inner: Workspace, home: asyncio.AbstractEventLoop | None) -> None:
        self._inner, self._home = inner, home
        self.raised: list[BaseException] = []
        self.running: set[asyncio.Task[Any]] = set()
        self.over = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def asked(*args: Any, **more: Any) -> Any:
            try:
                return await found(*args, **more)
            except Exception as error:
                self.raised.append(error)
                raise

        async def at_home(*args: Any, **more: Any) -> Any:
            if self.over:
                raise RuntimeError("the time of this guard is over")
            task = asyncio.current_task()
            self.running.update(filter(None, (task,)))
            try:
                return await asked(*args, **more)
            finally:
                self.running.discard(cast("asyncio.Task[Any]", task))

        async def from_afar(*args: Any, **more: Any) -> Any:
            home = cast("asyncio.AbstractEventLoop", self._home)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(at_home(*args, **more), home))

        return asked if self._home is None else from_afar

    async def end(self) -> None:
        """Refuse what is asked from now on, and end what still runs."""
        self.over = True
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)


async def run_guard(
    spec: str, guard: Guard, artifact: Artifact, context: GuardContext, limit_sec: float | None
) -> GuardResult:
    """Return what a guard says of an artifact. Raises GuardFaultError when that is no result, or none in time."""
    home = None if spec in registry.BUILTIN["guards"] else asyncio.get_running_loop()
    workspace = _WorkspaceOfGuard(context.workspace, home)
    given = msgspec.structs.replace(context, workspace=cast("Workspace", workspace))
    try:
        async with asyncio.timeout(limit_sec) as limit:
            said = await (guard.check(artifact, given) if home is None else _apart(guard, artifact, given))
    except SystemExit as error:
        raise GuardFaultError(spec, f"called sys.exit({'' if error.code is None else error.code!r})") from None
    except Exception as error:
        if limit.expired():
            raise GuardFaultError(spec, f"did not return within {limit_sec or 0:g} s (guard_timeout_sec)") from None
        if home is None or error in workspace.raised:
            raise
        raise GuardFaultError(spec, f"failed: {type(error).__name__}: {error}") from error
    finally:
        await workspace.end()
    if not isinstance(said, GuardResult):
        raise GuardFaultError(spec, f"returned {type(said).__name__}, not a GuardResult")
    return said


async def _apart(guard: Guard, artifact: Artifact, context: GuardContext) -> GuardResult:
    """Run a guard in a thread with a loop of its own. Cancelled, it is told so; one that does not listen is left."""
    loops: list[asyncio.AbstractEventLoop] = []

    def work() -> GuardResult:
        with asyncio.Runner() as runner:
            loops.append(runner.get_loop())
            return runner.run(_checked(guard, artifact, context))

    try:
        return await in_thread(work)
    except asyncio.CancelledError:
        for loop in loops:
            with suppress(RuntimeError):  # it is closed: the guard has returned meanwhile
                loop.call_soon_threadsafe(_cancel, loop)
        raise


async def _checked(guard: Guard, artifact: Artifact, context: GuardContext) -> GuardResult:
    try:
        return await guard.check(artifact, context)
    except asyncio.CancelledError as error:
        raise RuntimeError("it was cancelled") from error


def _cancel(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


async def in_thread[T](work: Callable[[], T]) -> T:
    """Wait for work in a thread of its own, which neither a pool nor the end of the process waits for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # ty: ignore[invalid-argument-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001  it is raised where it is waited for
            error = raised
        with suppress(RuntimeError):  # the loop has been closed: no one waits any more
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=run, name="apart", daemon=True).start()
    return await done
