"""A process that holds sandboxes and does with them what a test says: one JSON request per line, one answer each.

So the same test drives sandboxes of root and of an ordinary user, and can kill the process that holds them.
"""

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from harbor.environments.base import ExecResult
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from terminalbench.runner.environment import process_environment
from terminalbench.runner.executors import local
from terminalbench.sandbox import cache, helper, running, verifier_stage
from terminalbench.sandbox.activity import MOST_BYTES, count_hits, live_hits, parse
from terminalbench.sandbox.environment import LocalSandbox
from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.images.store import ImageStore
from terminalbench.sandbox.network import client
from terminalbench.sandbox.network import trial as trial_network
from terminalbench.sandbox.network.client import EgressWay
from terminalbench.sandbox.plan import SandboxPlan
from terminalbench.sandbox.probe import probe

HOST_IMAGES = {"debian:*": "host", "ubuntu:*": "host", "python:*": "host"}
"""What the host stands for in these tests, unless one says else."""
boxes: dict[int, LocalSandbox] = {}
jobs: dict[int, local.ForkedProcess] = {}
loaded = local.LoadedHarbor()


def policy(mode: str | list[str]) -> NetworkPolicy:
    """A mode of Harbor's, or the hosts of an allow-list."""
    if isinstance(mode, list):
        return NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=mode)
    return NetworkPolicy(network_mode=NetworkMode(mode))


async def new(
    folder: str,
    files: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    network: str | list[str] = "no-network",
    phases: tuple[str | list[str], ...] = (),
    mounts: list[dict[str, Any]] | None = None,
    no_groups: bool = False,
    processes: int | None = None,
    start: bool = True,
    force: bool = False,
    kwargs: dict[str, Any] | None = None,
    way: dict[str, Any] | None = None,
) -> int:
    """Make an environment folder and a sandbox of it; `no_groups` forbids control groups, as many machines do.

    `processes` is how many it may have, instead of what every task gets.

    `way` is what no file of a user can say of its network: names with fixed addresses, a kernel that cannot redirect.
    """
    root = Path(tempfile.mkdtemp(dir=folder))
    for name, text in (files or {"Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n"}).items():
        path = root / "environment" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    trial = TrialPaths(root / "trial")
    trial.mkdir()
    logs = [("verifier", trial.verifier_dir), ("agent", trial.agent_dir), ("artifacts", trial.artifacts_dir)]
    binds = [{"type": "bind", "source": str(path), "target": f"/logs/{name}"} for name, path in logs]
    options: dict[str, Any] = {"images": HOST_IMAGES, **(kwargs or {})}
    box = LocalSandbox(
        environment_dir=root / "environment",
        environment_name="test",
        session_id="test__env",
        trial_paths=trial,
        task_env_config=EnvironmentConfig(**(config or {})),
        mounts=[*binds, *(mounts or [])],
        network_policy=policy(network),
        phase_network_policies=[policy(mode) for mode in phases],
        **options,
    )
    number = len(boxes) + 1
    boxes[number] = box
    if start:

        def plan(*given: Any, **named: Any) -> SandboxPlan:
            made = SandboxPlan(*given, use_groups=not no_groups, **named)
            limits = made.limits if processes is None else replace(made.limits, processes=processes)
            return replace(made, limits=limits)

        ways = functools.partial(EgressWay, **(way or {}))
        with mock.patch.object(running, "SandboxPlan", plan), mock.patch.object(trial_network, "EgressWay", ways):
            await box.start(force)
    return number


async def execute(box: int, command: str, **options: Any) -> dict[str, Any]:
    return (await boxes[box].exec(command, **options)).model_dump()


async def cancel(box: int, command: str, once: str) -> str:
    """Cancel a command once another one succeeds in the same sandbox."""
    task = asyncio.create_task(boxes[box].exec(command))
    while (await boxes[box].exec(once)).return_code != 0:
        assert not task.done(), "it ended by itself"
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return "cancelled"
    return "finished"


async def together(box: int, commands: list[str]) -> list[dict[str, Any]]:
    return [done.model_dump() for done in await asyncio.gather(*(boxes[box].exec(command) for command in commands))]


async def beside(box: int, watcher: str, commands: list[str]) -> dict[str, Any]:
    """What a watcher says that makes /tmp/ready when it looks, and ends when /tmp/over is there; commands come between."""
    watching = asyncio.create_task(boxes[box].exec(watcher))
    while not watching.done() and (await boxes[box].exec("test -e /tmp/ready")).return_code != 0:
        pass
    done = await asyncio.gather(*(boxes[box].exec(command) for command in commands))
    await boxes[box].exec("touch /tmp/over")
    return {"codes": [one.return_code for one in done], "watcher": (await watching).model_dump()}


async def streamed(box: int, command: str) -> list[list[str]]:
    """What a command writes, piece by piece. It may wait for /tmp/1, /tmp/2: they are made when that piece has come."""
    chunks: list[list[str]] = []

    async def keep(text: str, stream: str) -> None:
        chunks.append([stream, text])
        await boxes[box].exec(f"touch /tmp/{len(chunks)}")

    with boxes[box].scoped_output_callback(keep):
        await boxes[box].exec(command)
    return chunks


async def stop_all() -> None:
    """Stop what a test has left running."""
    for result in await asyncio.gather(*(box.stop(delete=True) for box in boxes.values()), return_exceptions=True):
        if result is not None:
            raise result


async def network(box: int, mode: str | list[str]) -> None:
    await boxes[box].set_network_policy(policy(mode))


async def tells_phases() -> None:
    trial_network.phases_are_told("the test")


async def phase(box: int, name: str) -> None:
    await trial_network.enter_phase(boxes[box].trial_paths.trial_dir, name)


async def egress(box: int) -> list[dict[str, Any]]:
    """What went out of a sandbox, which is stopped for it."""
    await boxes[box].stop(delete=True)
    text = (boxes[box].trial_paths.trial_dir / "egress.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


async def renew(box: int, view: str) -> None:
    await boxes[box]._running().renew(view)


async def renew_while(box: int, command: str, once: str) -> dict[str, Any]:
    """How a command ends over which its sandbox starts anew, once another one succeeds."""
    task = asyncio.create_task(boxes[box].exec(command))
    while (await boxes[box].exec(once)).return_code != 0:
        assert not task.done(), "it ended by itself"
    await renew(box, "agent")
    return (await task).model_dump()


async def upload_within(box: int, seconds: float, source: str, target: str) -> bool:
    """Whether a file was uploaded in this time."""
    try:
        async with asyncio.timeout(seconds):
            await boxes[box].upload_file(source, target)
    except TimeoutError:
        return False
    return True


async def upload_beside(box: int, command: str, source: str, target: str) -> None:
    """Upload a file while a command runs, which is cancelled then."""
    task = asyncio.create_task(boxes[box].exec(command))
    await asyncio.sleep(0)
    await boxes[box].upload_file(source, target)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def relay_pid() -> int:
    return client.relay().process.pid


async def relay_ends(when_told: bool) -> None:
    """Let the relay end, now or with the next sandbox that it is told of, and look alive until then."""
    server = client.relay()
    send, server.alive = server.send, lambda: True

    def send_and_end(message: dict[str, Any], handles: tuple[int, ...]) -> None:
        os.kill(server.process.pid, signal.SIGSTOP)
        send(message, handles)
        server.process.kill()

    if when_told:
        server.send = send_and_end
    else:
        server.process.kill()
        server.process.wait()


async def load_image(place: str, name: str) -> str:
    """Take an image in; its digest."""
    return (await asyncio.to_thread(ImageStore().load, Path(place), name)).digest


async def serve(port: int) -> None:
    """Answer on every address of the machine that this process runs on, by TCP and UDP."""

    class Packets(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.door = transport

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.door.sendto(b"HOST", addr)

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HOST")
        writer.close()

    await asyncio.start_server(greet, "0.0.0.0", port)
    await asyncio.get_running_loop().create_datagram_endpoint(Packets, ("0.0.0.0", port))


async def hear(host: str, port: int) -> str:
    """What a server says that this process connects to."""
    reader, writer = await asyncio.open_connection(host, port)
    said = (await reader.read()).decode()
    writer.close()
    return said


async def call(box: int, method: str, *args: Any, **options: Any) -> Any:
    answer = await getattr(boxes[box], method)(*args, **options)
    return answer.model_dump() if isinstance(answer, ExecResult) else answer


async def set_up(box: int, text: str, command: str) -> None:
    """Set an agent up: a file from a folder that is gone at once, then a command."""
    with boxes[box].scoped_exec_env({}):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "file").write_text(text)
            await boxes[box].upload_dir(folder, "/up")
        await boxes[box].exec(command)


async def counts(box: int) -> dict[str, int]:
    return vars(await boxes[box]._running().counts())


async def news(box: int, known: dict[str, int], most: int = MOST_BYTES) -> list[list[Any]]:
    """What is new in the agent's logs: name, size now, how much of it came out, answers 429 in that."""
    pieces = parse(await boxes[box]._running().news("/logs/agent", known, most))
    return [
        [piece.name, piece.size, len(piece.data), count_hits(piece.data.decode(errors="replace"))] for piece in pieces
    ]


async def seen_while(box: int, command: str, wanted: int) -> dict[str, Any]:
    """Run a command that waits for the file /go, which is made when the trial's folder tells of `wanted` answers 429."""
    trial = boxes[box].trial_paths.trial_dir
    boxes[box]._live_logs._look_sec = 0.05
    running = asyncio.create_task(boxes[box].exec(command))
    found = [live_hits(trial)]
    while not running.done() and found[-1] < wanted:
        await asyncio.sleep(0.02)
        found.append(live_hits(trial))
    live = not running.done()
    await boxes[box].exec("touch /go")
    await running
    return {"live": live, "told": [*found, live_hits(trial)]}


async def mirrored_while(box: int, command: str, wanted: str) -> dict[str, Any]:
    """Run a command that waits for the file /go, which is made when the copy of the log `wanted` is in the trial's folder.

    The logs are brought out as Harbor does, then. What was copied, but for giants, and what is there in the end.
    """
    agent = boxes[box].trial_paths.agent_dir
    boxes[box]._live_logs._look_sec = 0.05

    def there() -> dict[str, str]:
        small = [file for file in agent.iterdir() if file.stat().st_size < 4096]
        return {file.name: file.read_text() for file in small}

    running = asyncio.create_task(boxes[box].exec(command))
    while not running.done() and not (agent / wanted).exists():
        await asyncio.sleep(0.02)
    live, size = there(), max(file.stat().st_size for file in agent.iterdir())
    await boxes[box].exec("touch /go")
    await running
    await boxes[box].download_dir("/logs/agent", agent)
    return {"live": live, "size": size, "end": there()}


async def about(box: int) -> dict[str, Any]:
    running = boxes[box]._running()
    return {"limits_by": running.limits_by, "scratch": running.scratch, "ids": helper.helper().ids}


PLACE: dict[str, Any] = {"tests": "/tests", "logs": "/logs/verifier", "rewards": ("reward.json", "reward.txt")}


async def hand(box: int, pristine: bool = True, keep: bool = False, landlock: bool = True, again: bool = False) -> str:
    """Hand a sandbox to the verifier; what that told. Without `landlock`, as where the kernel has none."""
    with contextlib.ExitStack() as stack:
        if not landlock:
            without = verifier_stage._run_program().replace("_libc.syscall(_CREATE, None, 0, 1)", "-1")
            stack.enter_context(mock.patch.object(helper, "landlock_version", return_value=-1))
            stack.enter_context(mock.patch.object(verifier_stage, "_run_program", return_value=without))
        handed = await boxes[box].hand_to_verifier(pristine=pristine, keep=keep, again=again, **PLACE)
    return json.dumps({name: value for name, value in vars(handed).items() if name != "try_shell"})


async def tests(box: int, command: str) -> dict[str, Any]:
    """Run a command as the tests of a sandbox that was handed over: how it ended, what it left, what was confined."""
    ran, told, overseen = await boxes[box].run_tests(command, None)
    seen = {"out": ran.stdout, "err": ran.stderr, "code": ran.return_code, "left": told.left}
    names = ("confined", "free", "rewritten", "late")
    return {**seen, **{name: getattr(overseen, name) if overseen else None for name in names}}


async def breakage(box: int, pristine: bool = True) -> str | None:
    """What handing it to the verifier raised, by name."""
    try:
        handed = await boxes[box].hand_to_verifier(pristine=pristine, keep=False, **PLACE)
        if handed.try_shell is not None:
            await handed.try_shell()
    except SandboxError as error:
        return type(error).__name__
    return None


async def kill_first(box: int) -> None:
    """End the first process of a sandbox, from outside."""
    signal.pidfd_send_signal(boxes[box]._running()._pidfd, signal.SIGKILL)


async def until_ended(box: int) -> None:
    """Until the sandbox says that it has ended."""
    with contextlib.suppress(SandboxError):
        while True:
            await boxes[box]._running().counts()


async def collect() -> dict[str, int]:
    return vars(await asyncio.to_thread(cache.collect_leftovers))


async def start_harbor(config: str) -> int:
    """Start `harbor run` as the runner does, forked from a process of this user that has loaded Harbor."""
    loaded.start()
    env = os.environ | process_environment((), None, None, os.environ)
    with Path(config).with_suffix(".log").open("wb") as log:
        files = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        argv = ["harbor", "run", "-c", config, "-y"]
        job = await asyncio.to_thread(local.fork, argv, env, signal.SIGKILL, **files)
    assert job is not None, "the loaded process has refused"
    jobs[job.pid] = job
    return job.pid


async def end_of_harbor(pid: int) -> int:
    return await asyncio.to_thread(jobs[pid].wait)


async def probe_lines() -> list[str]:
    return (await asyncio.to_thread(probe)).lines


COMMANDS = {
    f.__name__: f
    for f in (
        new,
        execute,
        cancel,
        together,
        beside,
        streamed,
        stop_all,
        network,
        phase,
        tells_phases,
        egress,
        relay_pid,
        relay_ends,
        load_image,
        renew,
        renew_while,
        upload_beside,
        upload_within,
        serve,
        hear,
        call,
        counts,
        set_up,
        mirrored_while,
        news,
        seen_while,
        about,
        hand,
        tests,
        breakage,
        kill_first,
        until_ended,
        collect,
        start_harbor,
        end_of_harbor,
        probe_lines,
    )
}


async def main() -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        try:
            answer = {"value": await COMMANDS[request["do"]](*request["args"], **request["options"])}
        except Exception as error:  # noqa: BLE001 - the test decides what it means
            answer = {"raised": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)
    await stop_all()
    loaded.end()


def end_with_parent() -> None:
    """A killed test run leaves no driver."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def fork_drivers(asked: socket.socket) -> None:
    """Fork a driver for each request; returns in each. To load Harbor's models takes longer than most tests.

    A request is an environment, with the driver's stdin and stdout, and a pipe that gets its pid and its exit status.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    while True:
        said, handles, _, _ = socket.recv_fds(asked, 2**16, 3)
        if not said:
            sys.exit(0)
        if os.fork() == 0:
            end_with_parent()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked.close()
            driver = os.fork()
            if driver == 0:
                for number, handle in enumerate(handles[:2]):
                    os.dup2(handle, number)
                os.closerange(3, 256)
                os.setsid()
                os.environ.clear()
                os.environ.update(json.loads(said))
                return
            os.close(handles[0])
            os.close(handles[1])
            os.write(handles[2], f"{driver}\n".encode())
            os.write(handles[2], f"{os.waitpid(driver, 0)[1]}\n".encode())
            os._exit(0)
        for handle in handles:
            os.close(handle)


if __name__ == "__main__":
    end_with_parent()
    if sys.argv[1:] == ["fork"]:
        fork_drivers(socket.socket(fileno=0))
        end_with_parent()
    os.umask(0o077)  # as a Harbor process has it whose results are private
    asyncio.run(main())
