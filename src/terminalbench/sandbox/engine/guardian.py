"""The guardian: brings one sandbox up, keeps it within its limits, and cleans up after it.

It lives exactly as long as the caller holds the other end of its socket. When that closes (stop, crash or
SIGKILL of the caller) it ends every process of the sandbox and removes what it made on the host. Should the
guardian itself be killed, the sandbox ends too: its first process waits for nothing else.

The guardian's own mount namespace holds the files that were written, from one generation of processes to the next.
"""

# ruff: noqa: PTH108, PTH123, PTH208

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
from typing import Any

from terminalbench.sandbox.engine import (
    cgroups,
    changes,
    exec_server,
    generation,
    inside,
    kernel,
    net,
    netlink,
    pasta,
    proc,
    root,
    traps,
    views,
    wire,
)
from terminalbench.sandbox.engine.generation import Generation
from terminalbench.sandbox.engine.overseer import Overseer
from terminalbench.sandbox.engine.watch import Meters, SandboxWatch

_NOTE = "groups"
_METER_PATIENCE_SEC = 2.0


def guard(request: dict[str, Any], reply: socket.socket, handles: list[int], program: bytes) -> None:
    """Start a sandbox, answer with its pidfd, watch it until the caller lets go.

    Of the caller's handles the first is its network with others, if it has one; the lock files are only held.
    """
    os.setsid()
    kernel.set_name("tbench-guardian")
    kernel.hide_memory()
    limits = cgroups.GroupLimits(**request["limits"])
    # Files in a memory scratch are memory of the group too.
    grouped = limits if request["scratch"] == "memory" else limits._replace(scratch_bytes=0)
    group = (
        cgroups.create(f"{cgroups.PREFIX}{request['name']}", grouped)
        if request["use_groups"]
        else cgroups.ControlGroup()
    )
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    guarded = None
    try:
        _note_groups(request["run_dir"], group)
        os.unshare(os.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
        scratch = root.make_scratch(request)
        sandbox = _describe(request, group, limits, scratch)
        guarded = _GuardedSandbox(request, group, limits, sandbox, program, handles)
        if program:  # as `inside.confine` installs them
            guarded.filters = proc.filters("self") + 1 + ("memory" not in group.folders) + (request["ids"] == "one")
        opened, way = guarded.bring_up(views.AGENT)
        limits_by = _limits_by(group, counts_sockets=guarded.counts_sockets)
        wire.send(reply, {"sandbox": sandbox, "limits_by": limits_by, "way": way}, opened)
        for handle in opened[1:]:  # the caller's, and the relay's
            os.close(handle)
        guarded.keep(reply)
    finally:
        if guarded is not None:
            guarded.end_porters()
            guarded.close_pasta()
        _take_down(guarded.generation if guarded is not None else None, group, request["run_dir"])


class _GuardedSandbox:
    """A sandbox and its running generation; none while the next one is brought up, or if that failed."""

    def __init__(
        self,
        request: dict[str, Any],
        group: cgroups.ControlGroup,
        limits: cgroups.GroupLimits,
        sandbox: dict[str, Any],
        program: bytes,
        handles: list[int],
    ) -> None:
        self._request, self._group, self._limits, self._handles = request, group, limits, handles
        self._sandbox, self._program = sandbox, program
        disk = [*request["measure"], *([f"{request['run_dir']}/s"] if sandbox["scratch"] == "disk" else [])]
        self._watch = SandboxWatch(-1, None, group, limits, disk, self._end_carrier)  # follows the first generation
        self.generation: Generation | None = None
        self.counts_sockets = True
        self.filters = sys.maxsize
        self._view = views.AGENT
        self._porters: list[exec_server.Porter] = []
        self._pasta: pasta.Pasta | None = None
        self._overseer: Overseer | None = None
        self._stamps: dict[str, traps.FileStamp] = {}
        self._open = request["network"] is not None and request["network"]["open"]

    def bring_up(self, view: str) -> tuple[tuple[int, ...], str]:
        """Start a generation over `view` with its porter and its carrier, and watch it.

        Handles of its first process, of their doors and of its network's sockets; and which way that has.
        """
        about = (self._group, self._sandbox, self._program)  # they join the group meanwhile
        self._porters.append(exec_server.start(*about))
        self._porters.append(exec_server.start(*about, carries=True, network=self._request["network"]))
        self.generation = started = generation.start(self._request, view)
        self._view = view
        grouped = self._group.folders.keys()
        meters = None if {"memory", "pids"} <= grouped else _open_meters(started.pidfd)
        held = "pids" in grouped
        if "memory" not in grouped:
            held = inside.set_kernel_limits(started.pidfd, self._limits.processes, self._limits.memory_bytes) or held
            if not held:
                inside.go_first()
        self._watch.follow(started.pidfd, meters, count_threads=not held)
        self.counts_sockets = meters is None or netlink.buffer_bytes(meters.sockets) is not None
        if self._request["lan"] is not None:
            net.plug(self._handles[0], started.pidfd, self._request["lan"])
        for one in self._porters:
            one.admit(started.pidfd)
        way, opened = self._open_way(started.pidfd)
        return (started.pidfd, *(one.door.detach() for one in self._porters), *opened), way

    def end_porters(self) -> None:
        """End the porter and the carrier, if they are there: then nothing of the generation writes any more."""
        while self._porters:
            ended = self._porters.pop()
            ended.door.close()
            generation.end(ended.pid)

    def _end_carrier(self) -> None:
        """End what transfers with all else, at a limit: it is outside the process namespace. The porter serves on."""
        for carrier in self._porters[1:]:
            carrier.kill()

    def _open_way(self, pidfd: int) -> tuple[str, list[int]]:
        """The way out of a new generation, and the relay's sockets; pasta is started where the phase allows it."""
        way, sockets = net.open_way(self._porters[-1].door, self._request["network"])
        if self._open and way == "pasta":
            self._pasta = pasta.start(pidfd, self._request["network"]["pasta"])
        return way, sockets

    def close_pasta(self) -> None:
        """End pasta, if it runs."""
        running, self._pasta = self._pasta, None
        if running is not None:
            running.end()

    def keep(self, reply: socket.socket) -> None:
        """Keep the sandbox until the caller lets go or it ends; answers the caller meanwhile."""
        while self.generation is not None:
            handles = (reply.fileno(), self.generation.pidfd, *((self._pasta.pidfd,) if self._pasta else ()))
            poll = select.poll()
            for handle in handles:
                poll.register(handle, select.POLLIN)
            ready = dict(poll.poll(self._watch.interval_sec * 1000))
            if handles[0] in ready:
                message, given = wire.receive(reply)
                if message is None:
                    return
                self._answer(reply, message, given)
                for handle in given:
                    os.close(handle)
            elif ready:  # the sandbox has ended, or pasta: what a trial without its network does says nothing
                return
            else:
                self._watch.check()

    def _answer(self, reply: socket.socket, message: dict[str, Any], given: list[int]) -> None:
        answer: dict[str, Any] = {"number": message["number"]}
        handles: tuple[int, ...] = ()
        if message["do"] == "kill" and self.generation is not None:
            answer["left"] = (
                0 if self._is_idle() else exec_server.kill(self.generation.pidfd, message["which"], message["root"])
            )
        elif message["do"] == "marked" and self.generation is not None:
            usual = self.filters + (self._overseer is not None)
            answer["marked"] = inside.visit(self.generation.pidfd, lambda: proc.marked(usual))
        elif message["do"] == "oversee" and self.generation is not None:
            self._overseer, self._stamps = Overseer(), traps.stamps(self._inside(message["tests"]))
            try:
                self._overseer.start(given[0], self.generation.pidfd, message, self.filters + 1)
            except OSError as error:  # no room for another process: the tests cannot go on, and the caller raises
                answer["error"] = f"the tests cannot be monitored: {error}"
        elif message["do"] == "overseen" and self._overseer is not None:
            answer |= zip(("confined", "free", "readers"), self._overseer.counts(), strict=True)
            answer["rewritten"] = traps.rewritten(self._inside(message["tests"]), self._stamps)
            with contextlib.suppress(OSError):  # some still run, and change what is looked at
                answer["rewritten"] += changes.replaced_programs(self._request["run_dir"], self._request["mounts"])
            answer["late"] = traps.written_after(self._inside(message["logs"]), message["ended_ns"])
        elif message["do"] == "network":
            try:
                self._switch(open=message["open"])
            except OSError as error:
                answer["error"] = str(error)
        elif message["do"] == "renew":
            try:
                handles, answer["way"] = self._renew(message)
            except OSError as error:  # told to the caller, who raises
                answer["error"] = f"the sandbox did not restart: {error}"
        with contextlib.suppress(OSError):
            wire.send(reply, {**answer, **self._watch.counts()}, handles)
        for handle in handles[1:]:
            os.close(handle)

    def _inside(self, path: str) -> str:
        """Return where a folder is that was made in the view of now."""
        return f"{views.upper(self._request['run_dir'], self._view, 0)}/{path.strip('/')}"

    def _is_idle(self) -> bool:
        """Return whether it is known that nothing runs inside: then the porters are alone in the group that all are
        born in."""
        porters = {one.pid for one in self._porters}
        return all(one.alive() for one in self._porters) and bool(porters) and self._group.members() == porters

    def _switch(self, *, open: bool) -> None:
        """Have pasta run or not run, as the phase that begins allows."""
        self._open = open
        if not open:
            self.close_pasta()
        elif self._pasta is None and self.generation is not None:
            self._pasta = pasta.start(self.generation.pidfd, self._request["network"]["pasta"])

    def _renew(self, message: dict[str, Any]) -> tuple[tuple[int, ...], str]:
        """End every process and start anew over the asked view.

        Handles of the first process, of what is told, and the others of `bring_up`; and which way the network has.
        """
        old, self.generation, self._overseer = self.generation, None, None
        self.close_pasta()
        if old is not None and not old.end():
            raise OSError("some of its processes would not end")
        self.end_porters()  # they have told how they ended
        told: dict[str, Any] = {}
        request, view = self._request, message["view"]
        if message["room_bytes"]:
            more = message["room_bytes"] + (3 * views.MOST_BYTES if message["keep"] else 0)
            root.enlarge_scratch(request, more)
            self._watch.allow(more)
        run_dir, overlays = request["run_dir"], len(request["mounts"])
        if message["work"] == views.HANDED:
            told["kept"] = views.as_handed(run_dir, overlays)
        elif message["work"] == views.TESTED:
            views.as_tested(run_dir, overlays)
        elif view != self._view:
            views.switch(run_dir, self._view, view, message["system"], overlays, message["loose"])
        if view == views.VERIFIER and message["work"] is None:
            told = changes.listed(run_dir, request["mounts"], request["etc"])
            told["left"] = views.left_in(run_dir, message["expected"])
            told["traps"] = traps.remove_and_list(run_dir, request["mounts"], **message["traps"])
            told["kept"] = message["keep"] and views.keep(run_dir)
        views.clear_way(run_dir, view, [bind["target"] for bind in request["binds"]])
        (pidfd, *handles), way = self.bring_up(view)
        return (pidfd, wire.memory_file(json.dumps(told).encode()), *handles), way


def _note_groups(run_dir: str, group: cgroups.ControlGroup) -> None:
    """Note the control groups, so that the collector, which finds the folder after a crash, can remove them too."""
    with open(f"{run_dir}/{_NOTE}", "w", encoding="utf-8") as stream:
        stream.write("".join(f"{folder}\n" for folder in sorted(set(group.folders.values()))))


def _describe(
    request: dict[str, Any], group: cgroups.ControlGroup, limits: cgroups.GroupLimits, scratch: str
) -> dict[str, Any]:
    """Return what each later command needs to know of the sandbox."""
    rlimits = {}
    if "pids" not in group.folders:
        rlimits["RLIMIT_NPROC"] = limits.processes
    if scratch == "disk":
        rlimits["RLIMIT_FSIZE"] = limits.scratch_bytes
    processors: list[int] = []
    if limits.cpus and "cpu" not in group.folders:
        available = sorted(os.sched_getaffinity(0))
        count = min(len(available), max(1, round(limits.cpus)))
        first = os.getpid() % len(available)
        processors = [available[(first + i) % len(available)] for i in range(count)]
    return {
        "procs": group.procs(),
        "rlimits": rlimits,
        "processors": processors,
        "ids": request["ids"],
        "scratch": scratch,
        "memory_by_process": "memory" not in group.folders,
        "memory_bytes": limits.memory_bytes,
    }


def _limits_by(group: cgroups.ControlGroup, *, counts_sockets: bool) -> dict[str, str]:
    kind = f"cgroup{group.version}"
    watched = {"memory": "watch" if counts_sockets else "watch, without sockets", "pids": "watch", "cpu": "affinity"}
    return {name: kind if name in group.folders else other for name, other in watched.items()}


def _open_meters(pidfd: int) -> Meters:
    """Return what tells of the sandbox, opened before anything of the agent runs in it."""

    def look(reply: socket.socket) -> None:
        inside.enter(pidfd, network=False)
        proc, channel = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY), netlink.open_channel()
        socket.send_fds(reply, [b"p"], [proc, channel.fileno()])

    _, handles = inside.handed_out(look)
    if len(handles) != 2:
        raise OSError("cannot watch the sandbox's processes")
    channel = socket.socket(fileno=handles[1])
    channel.settimeout(_METER_PATIENCE_SEC)
    return Meters(handles[0], channel)


def _take_down(running: Generation | None, group: cgroups.ControlGroup, run_dir: str) -> None:
    if running is not None:
        running.end()
    root.drop_scratch(run_dir)
    if group.remove():
        shutil.rmtree(run_dir, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(f"{run_dir}.lock")
        return
    for name in os.listdir(run_dir):  # the note of its groups stays for the collector
        if name != _NOTE:
            shutil.rmtree(f"{run_dir}/{name}", ignore_errors=True)
