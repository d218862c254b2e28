"""What a private network adds to the start of a sandbox: beside none, and beside the host's own, in one run.

    .venv/bin/python benchmarks/sandbox_network.py [--starts 30] [--at-once 8]

Prints the median start, the CPU time of a start and stop (of all processes; as root with control groups), how long
several starts at once take, and ratios. Also one download through the relay beside one without it.
"""

import argparse
import asyncio
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from terminalbench.sandbox import helper
from terminalbench.sandbox.network.client import EgressWay
from terminalbench.sandbox.plan import SandboxPlan, limits_for
from terminalbench.sandbox.root_filesystem import HOST, open_base
from terminalbench.sandbox.session import Sandbox

_SIZE = 256 << 20
_TAKE = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as server:
    began, total, room = time.monotonic(), 0, bytearray(1 << 20)
    while size := server.recv_into(room):
        total += size
print(total / (time.monotonic() - began) / 1e6)
"""


def cpu_clock() -> Callable[[], float] | None:
    """CPU milliseconds of this process and all it starts, from a control group of its own; None where there is none."""
    for root, file in (("/sys/fs/cgroup/cpuacct", "cpuacct.usage"), ("/sys/fs/cgroup", "cpu.stat")):
        group = Path(root) / f"tbench-bench-{os.getpid()}"
        try:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            text = (group / file).read_text()
        except OSError:
            continue
        if text.strip().isdigit():
            return lambda: int((group / file).read_text()) / 1e6
        return lambda: int((group / file).read_text().split()[1]) / 1e3
    return None


def serve() -> int:
    """A server that sends much to who connects; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        while True:
            with listener.accept()[0] as client:
                block, sent = bytes(1 << 20), 0
                while sent < _SIZE:
                    client.sendall(block)
                    sent += len(block)

    threading.Thread(target=work, daemon=True).start()
    return listener.getsockname()[1]


async def measured(
    plan: SandboxPlan, starts: int, at_once: int, clock: Callable[[], float] | None
) -> tuple[float, float, float]:
    """Milliseconds of a start, CPU of a start and stop, and of so many starts at once."""
    await (await Sandbox.start(plan)).stop()
    walls, before = [], clock() if clock else 0.0
    for _ in range(starts):
        began = time.monotonic()
        sandbox = await Sandbox.start(plan)
        walls.append((time.monotonic() - began) * 1000)
        await sandbox.stop()
    cpu = (clock() - before) / starts if clock else float("nan")
    began = time.monotonic()
    group = await asyncio.gather(*(Sandbox.start(plan) for _ in range(at_once)))
    together = (time.monotonic() - began) * 1000
    await asyncio.gather(*(sandbox.stop() for sandbox in group))
    return statistics.median(walls), cpu, together


async def rate(plan: SandboxPlan, host: str, port: int) -> float:
    """Megabytes a second of one download."""
    sandbox = await Sandbox.start(plan)
    try:
        done = await sandbox.run(["python3", "-c", _TAKE, host, str(port)], env={}, network=True)
        return float(done.stdout)
    finally:
        await sandbox.stop()


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=30)
    parser.add_argument("--at-once", type=int, default=8)
    options = parser.parse_args()
    clock = cpu_clock()
    base, limits = open_base(HOST, helper.helper().ids), limits_for(256, 64, None, scratch="memory")
    plans = {
        "none": SandboxPlan(base, limits, use_groups=False),
        "host (shared)": SandboxPlan(base, limits, use_groups=False, host_network=True),
        "private (relay)": SandboxPlan(
            base, limits, use_groups=False, way=EgressWay(static={"bench.test": "127.0.0.1"})
        ),
    }
    found = {name: await measured(plan, options.starts, options.at_once, clock) for name, plan in plans.items()}
    many = f"{options.at_once} at once, ms"
    print(f"{'network':16} {'start ms':>9} {'CPU ms':>8} {many:>15}  each beside that of the host's network")
    first = found["host (shared)"]
    for name, row in found.items():
        ratios = "  ".join(f"{value / other:5.2f}x" for value, other in zip(row, first, strict=True))
        print(f"{name:16} {row[0]:9.1f} {row[1]:8.1f} {row[2]:15.1f}  {ratios}")
    port = serve()
    shared = await rate(plans["host (shared)"], "127.0.0.1", port)
    relayed = await rate(plans["private (relay)"], "bench.test", port)
    print(f"download: {shared:,.0f} MB/s in the host's network, {relayed:,.0f} MB/s through the relay")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
