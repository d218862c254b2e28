"""One running sandbox: start it, run commands, move files, end its processes, stop it."""

import asyncio
import contextlib
import os
import socket
import tarfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from terminalbench.sandbox import cache, helper
from terminalbench.sandbox.answers import (
    CommandResult,
    LimitCounts,
    OmittedEntries,
    OnOutput,
    OutputStream,
    OverseerCounts,
    PreparedFolders,
    VerifierFolders,
)
from terminalbench.sandbox.engine import views, wire
from terminalbench.sandbox.errors import BrokenContent, SandboxError
from terminalbench.sandbox.network import client
from terminalbench.sandbox.network.policy import EgressPolicy
from terminalbench.sandbox.plan import SandboxPlan

_HOMES = "/.tbench/home"
_KILL_PATIENCE_SEC = 8
_STOP_PATIENCE_SEC = 30


class Sandbox:
    """A running sandbox. Everything in it ends when it is stopped, or when this process goes away."""

    def __init__(
        self,
        plan: SandboxPlan,
        claimed: cache.ClaimedFolder,
        reply: socket.socket,
        opened: list[int],
        answer: dict[str, Any],
        link: client.Link | None,
    ) -> None:
        self.plan = plan
        self.limits_by: dict[str, str] = answer["limits_by"]
        self._about: dict[str, Any] = answer["sandbox"]
        self._claimed, self._reply, self._pidfd = claimed, reply, opened[0]
        self._door: socket.socket | None = wire.adopt(opened[1])
        self._carriers = [wire.adopt(opened[2])]
        self.link = link
        self._question = 0
        self._homes: str | None = None
        self._open_pipes: set[int] = set()
        self._asking = asyncio.Lock()
        self._stopped = False

    @property
    def scratch(self) -> str:
        """Return where files written in it go: "memory" or "disk"."""
        return self._about["scratch"]

    @classmethod
    async def start(cls, plan: SandboxPlan) -> "Sandbox":
        """Bring a sandbox up; when this returns, commands can be run in it."""
        server = helper.running() or await asyncio.to_thread(helper.helper)
        if plan.way is not None:
            await client.running()  # it starts beside the sandbox
        claimed = cache.claim("run")
        reply = None
        try:
            reply = server.request(plan.request(claimed.folder, server.bwrap), plan.handles(claimed.lock))
            answer, descriptors = await helper.receive(reply)
            if answer is None or "error" in answer:
                raise SandboxError(f"the sandbox did not start: {(answer or {}).get('error', 'no answer')}")
            return cls(plan, claimed, reply, descriptors, answer, await _link(plan, answer, descriptors))
        except BaseException:
            if reply is not None:
                reply.close()
            await asyncio.to_thread(cache.release, claimed)
            raise

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str = "/",
        user: str = "root",
        network: bool = False,
        timeout_sec: float | None = None,
        on_output: OnOutput | None = None,
        tests: VerifierFolders | None = None,
    ) -> CommandResult:
        """Run a command and wait for it. A timeout (TimeoutError) or cancellation ends its whole process tree.

        With `network`, in the host's own network, as far as the plan allows it; else in that of the sandbox. `tests`
        are told if the command is the tests: what they leave running is ended with them.
        """
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        if self.link is not None:
            env = {**client.environment(self.link.kind), **env}
        network = network and self.plan.host_network
        command = {"argv": list(argv), "env": {**env}, "cwd": cwd, "user": user, "homes": self._homes}
        overseen = tests is not None and tests.system is not None
        request = {"op": "test" if tests else "run", **command, "network": network, "oversee": overseen}
        try:
            reply = self._request(request, *(pipe[1] for pipe in pipes), by_helper=network)
        except BaseException:
            for handle, _ in pipes:
                os.close(handle)
            raise
        finally:
            for _, handle in pipes:
                os.close(handle)
        streams = [
            OutputStream(pipe[0], name, on_output) for pipe, name in zip(pipes, ("stdout", "stderr"), strict=True)
        ]
        pumps = [asyncio.create_task(stream.pump()) for stream in streams]
        try:
            with self.link.needed() if self.link is not None else contextlib.nullcontext():
                ended = await self._exit_of(reply, timeout_sec, tests)
            for stream in streams:
                stream.finish()
            await asyncio.gather(*pumps)
            texts = [stream.text() for stream in streams]
            return CommandResult(int(ended["exit"]), *texts, left=ended.get("left"), ended_ns=ended.get("ended_ns", 0))
        finally:
            reply.close()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for stream in streams:
                self._leave(stream)

    async def _exit_of(
        self, reply: socket.socket, timeout_sec: float | None, tests: VerifierFolders | None
    ) -> dict[str, Any]:
        """Return how a command ended and, of tests, when, and how many processes they left."""
        root: int | None = None
        try:
            async with asyncio.timeout(timeout_sec):
                while (answer := await self._next(reply, tests)) is not None and "root" in answer:
                    root = answer["root"]
        except BaseException as error:
            try:
                if not await self._end_tree(reply, root):
                    error.add_note("a command could not be ended, so every process of the sandbox was ended")
            except SandboxError as problem:  # the caller still has to see its own timeout or cancellation
                error.add_note(str(problem))
            raise
        if answer is None:
            raise SandboxError("the sandbox ended while the command ran")
        return answer

    async def _next(self, reply: socket.socket, tests: VerifierFolders | None = None) -> dict[str, Any] | None:
        """The next message on a command, None when it is gone; a listener of its calls goes to an overseer."""
        answer, given = await helper.receive(reply)
        try:
            if given and tests is not None and answer is not None:
                places = answer["homes"] | {"system": tests.system, "tests": tests.tests, "logs": tests.logs}
                await self._ask({"do": "oversee", **places}, *given)
        finally:
            for handle in given:
                os.close(handle)
        return None if answer is None else helper.checked(answer)

    async def _end_tree(self, reply: socket.socket, root: int | None) -> bool:
        """End a command and all it started, from outside: inside there may be no room left to do it.

        False: that did not do, and everything in the sandbox was ended.
        """
        try:
            async with asyncio.timeout(_KILL_PATIENCE_SEC):
                while root is None and (answer := await self._next(reply)) is not None and "exit" not in answer:
                    root = answer["root"]
                if root is None or not await self._left("tree", root):
                    return True
        except TimeoutError:
            pass
        await self.kill_processes()
        return False

    def _leave(self, stream: OutputStream) -> None:
        """A background process may still write: keep the pipe and read it empty, or it would get SIGPIPE."""
        if stream.ended or self._stopped:
            os.close(stream.handle)
            return
        self._open_pipes.add(stream.handle)
        loop = asyncio.get_running_loop()

        def discard(handle: int = stream.handle) -> None:
            with contextlib.suppress(BlockingIOError):
                if not os.read(handle, 1 << 16):
                    loop.remove_reader(handle)
                    self._open_pipes.discard(handle)
                    os.close(handle)

        loop.add_reader(stream.handle, discard)

    def _request(self, message: dict[str, Any], *descriptors: int, by_helper: bool = False) -> socket.socket:
        if self._stopped:
            raise SandboxError("the sandbox is not running")
        if self._door is not None and not by_helper:  # the porter is in the sandbox's own network
            try:
                return helper.send_request(self._door, message, (self._pidfd, *descriptors))
            except OSError:
                self._door = None  # the porter is gone; the helper can do it, a little slower
        message = {**message, "sandbox": self._about, "join": self._about["procs"]}
        return helper.helper().request(message, (self._pidfd, *descriptors))

    async def put(self, target: str, write: Callable[[BinaryIO], None], *, rename: str | None = None) -> None:
        """Unpack the tar stream that `write` makes into the folder `target`, as root.

        With `rename`, the stream holds one file; it goes to `target` itself unless that is a folder, in
        which it then takes the name `rename`.
        """
        await self._transfer({"kind": "put", "target": target, "rename": rename}, write, into=True)

    async def get(
        self,
        source: str,
        read: Callable[[BinaryIO], None],
        *,
        single: bool = False,
        names: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        limit_bytes: int = 0,
    ) -> OmittedEntries:
        """Hand a tar stream of the folder `source` (at most `limit_bytes` of it), or the `single` file, to `read`."""
        wanted = list(names) if names is not None else None
        message = {"kind": "get", "source": source, "single": single, "names": wanted, "exclude": list(exclude)}
        answer = await self._transfer({**message, "limit": limit_bytes}, read)
        return OmittedEntries(answer.get("left_out", 0), answer.get("for_example"))

    async def list_files(self, source: str) -> list[str]:
        """The regular files below the folder `source`, relative to it."""
        found: list[bytes] = []
        await self._transfer({"kind": "list", "source": source}, lambda stream: found.append(stream.read()))
        return [os.fsdecode(name) for name in b"".join(found).split(b"\0") if name]

    async def find(self, pattern: str) -> list[tuple[str, bool]]:
        """Return what a path or a pattern names inside, and whether each is a folder; links are followed."""
        found: list[bytes] = []
        await self._transfer({"kind": "find", "pattern": pattern}, lambda stream: found.append(stream.read()))
        return [(os.fsdecode(one[1:]), one[:1] == b"d") for one in b"".join(found).split(b"\0") if one]

    async def news(self, source: str, known: Mapping[str, int], most_bytes: int) -> bytes:
        """Return what is new in the files below the folder `source`, of which `known` bytes are known; `activity` reads
        it.

        Made inside the sandbox: at most twice `most_bytes` are taken from it.
        """
        found: list[bytes] = []
        message = {"kind": "news", "source": source, "known": dict(known), "most": most_bytes}
        await self._transfer(message, lambda stream: found.append(stream.read(2 * most_bytes)))
        return b"".join(found)

    async def _transfer(
        self, message: dict[str, Any], work: Callable[[BinaryIO], None], *, into: bool = False
    ) -> dict[str, Any]:
        """Let `work` write a stream `into` the sandbox, or read the one that comes out; the sandbox's last word."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        theirs, ours = (reader, writer) if into else (writer, reader)
        carriers, carrier, answer = self._carriers, None, None
        request = {"op": "transfer", **message}
        try:
            if carriers and message["kind"] != "prepare":  # its links are judged by a process with a number inside
                carrier = carriers.pop()  # nobody else's meanwhile
                try:
                    reply = helper.send_request(carrier, request, (self._pidfd, theirs))
                except OSError:
                    carrier.close()
                    carrier = None  # it is gone; the porter does it
            if carrier is None:
                reply = self._request(request, theirs)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        try:
            worker = asyncio.ensure_future(asyncio.to_thread(_pass, ours, work, into=into))
            answer, _ = await helper.receive(reply)
            problem = None
            try:
                await worker
            except (OSError, EOFError, tarfile.TarError, SandboxError) as error:
                problem = error
            if isinstance(problem, SandboxError):  # ours to refuse, and the sandbox's side only saw us leave
                raise problem
            if carrier is not None and answer is None:
                raise SandboxError("the transfer was killed inside the sandbox")
            told = helper.checked(answer)
            if problem is not None:
                raise problem
            return told
        finally:
            reply.close()  # ends the transfer if it still runs, and with it the worker's stream
            if carrier is not None and answer is not None and carriers is self._carriers:
                carriers.append(carrier)
            elif carrier is not None:  # it is ended, or is not this generation's
                carrier.close()

    async def kill_processes(self, *, only_networked: bool = False) -> None:
        """End every process but the sandbox's first; or only those started with the network on."""
        if left := await self._left("networked" if only_networked else "all"):
            raise SandboxError(f"{left if left > 0 else 'some'} processes of the sandbox would not end")

    async def _left(self, which: str, root: int = 0) -> int:
        """End processes; how many would not go, -1 if that could not be seen."""
        return (await self._ask({"do": "kill", "which": which, "root": root}))["left"]

    async def counts(self) -> LimitCounts:
        """Return how often each limit was reached so far."""
        answer = await self._ask({"do": "count"})
        return LimitCounts(answer["memory"], answer["processes"], answer["disk"], answer["files"])

    async def runs_programs(self) -> bool:
        """Return whether something runs that was started by `run_program`, or by what was."""
        return (await self._ask({"do": "marked"})).get("marked", 0) > 0

    async def overseen(self, tests: VerifierFolders, ended_ns: int) -> OverseerCounts | None:
        """Return what became of the programs of the work that the tests have run; None if nobody oversaw them."""
        answer = await self._ask({"do": "overseen", "tests": tests.tests, "logs": tests.logs, "ended_ns": ended_ns})
        if "confined" not in answer:
            return None
        counts = (answer[name] for name in ("confined", "free", "readers"))
        return OverseerCounts(*counts, tuple(answer["rewritten"]), tuple(answer["late"]))

    async def enter(self, policy: EgressPolicy, phase: str) -> None:
        """Another phase of its trial: when this returns, what it does not allow is cut."""
        if self.link is not None:
            await self.link.enter(policy, phase)
        if self.plan.way is not None and self.plan.way.pasta is not None:
            await self._ask({"do": "network", "open": not policy.closed})

    async def renew(
        self,
        view: str,
        system: Sequence[str] = (),
        expected: Sequence[str] = (),
        *,
        loose: Sequence[str] | None = None,
        room_bytes: int = 0,
        traps: Mapping[str, Any] | None = None,
        keep: bool = False,
        work: str | None = None,
    ) -> dict[str, Any]:
        """End every process, whatever it is, and start anew over `view` of the files, in new namespaces.

        `system` are the folders that each view has for itself, `loose` names of files in the root folder that are not.
        For the verifier's view comes back what the agent changed in them, which of the `expected` files it wrote there,
        and what in its work would run as code of the tests, where `traps` says how to look (see `engine.traps`). Its
        homes are new. Files may take so many more bytes as `room_bytes` says, whatever there is already. With `keep`
        its work is kept as it is then (`kept` tells whether it was), and `work` gives it back: "handed" as it was kept,
        "tested" as it was before that.
        """
        message: dict[str, Any] = {"do": "renew", "view": view, "system": list(system), "expected": list(expected)}
        message |= {"loose": None if loose is None else list(loose), "room_bytes": room_bytes}
        message |= {"traps": dict(traps or {"starts": [], "spoken": []}), "keep": keep, "work": work}
        async with self._asking:
            answer, opened = await self._answer(message)
            helper.checked(answer)
            os.close(self._pidfd)
            self._close_doors()
            self._pidfd, told, door, carrier, *sockets = opened
            self._door, self._carriers = wire.adopt(door), [wire.adopt(carrier)]
            if self.link is not None:
                await self.link.renew(answer["way"], sockets)
        self._homes = _HOMES if view == views.VERIFIER else None
        return wire.unpack_request(told)

    async def prepare(self, place: Mapping[str, Any]) -> PreparedFolders:
        """Make the verifier's folders anew and remove links into them, by our own code inside (`engine.tidy`)."""
        answer = await self._transfer({"kind": "prepare", **place}, lambda _: None)
        if "problem" in answer:
            raise BrokenContent(f"the folders of the tests cannot be recreated: {answer['problem']}")
        return PreparedFolders(tuple(answer["found"]), tuple(answer["named"]), answer["links"])

    async def _ask(self, message: dict[str, Any], *given: int) -> dict[str, Any]:
        """Ask the guardian, one question at a time."""
        async with self._asking:
            answer, _ = await self._answer(message, *given)
            return helper.checked(answer)

    async def _answer(self, message: dict[str, Any], *given: int) -> tuple[dict[str, Any], list[int]]:
        """The guardian's answer, with its descriptors; one to an earlier question is skipped."""
        self._question += 1
        with contextlib.suppress(OSError):
            wire.send(self._reply, {**message, "number": self._question}, given)
            while True:
                answer, opened = await helper.receive(self._reply)
                if answer is None:
                    break
                if answer["number"] == self._question:
                    return answer, opened
                for handle in opened:
                    os.close(handle)
        raise SandboxError("the sandbox has ended")

    def _close_doors(self) -> None:
        for door in (*self._carriers, *([self._door] if self._door is not None else [])):
            door.close()
        self._carriers = []

    async def stop(self) -> None:
        """End everything in it and remove what it left on the host. Stopping twice is harmless."""
        if self._stopped:
            return
        self._stopped = True
        loop = asyncio.get_running_loop()
        for handle in self._open_pipes:
            loop.remove_reader(handle)
            os.close(handle)
        self._open_pipes.clear()
        self._close_doors()
        with contextlib.suppress(OSError):
            self._reply.shutdown(socket.SHUT_WR)
        async with self._asking:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_PATIENCE_SEC):
                    while (await helper.receive(self._reply))[0] is not None:
                        pass
        self._reply.close()
        os.close(self._pidfd)
        if self.link is not None:
            await self.link.close()
        if self._claimed.folder.exists():
            await asyncio.to_thread(cache.release, self._claimed)
        else:
            cache.release(self._claimed)


async def _link(plan: SandboxPlan, answer: dict[str, Any], descriptors: list[int]) -> client.Link | None:
    """Let the relay serve the sockets that were made inside."""
    sockets = descriptors[3:]
    try:
        way = plan.way_out
        return await client.connect(way, answer["way"], sockets) if way is not None else None
    finally:
        for handle in sockets:
            os.close(handle)


def _pass(handle: int, work: Callable[[BinaryIO], None], *, into: bool) -> None:
    with os.fdopen(handle, "wb" if into else "rb") as stream:
        work(stream)
        while not into and stream.read(1 << 18):
            pass
