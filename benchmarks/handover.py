"""What the verifier's own process namespace and system cost: handing a sandbox over, beside starting one.

    .venv/bin/python benchmarks/handover.py [--rounds 20]

Milliseconds, the median of the rounds: `start` of a sandbox, `renew` (every process ended, new namespaces, the
verifier's view of the files), and the whole way to the tests (also: folders made anew, links looked for, a shell
tried), after an agent that wrote 2,000 files and links. The last column is the ratio to the start.
"""

import argparse
import asyncio
import statistics
import time

from terminalbench.sandbox import helper
from terminalbench.sandbox.engine import views
from terminalbench.sandbox.plan import SandboxPlan, limits_for
from terminalbench.sandbox.root_filesystem import HOST, open_base
from terminalbench.sandbox.session import Sandbox
from terminalbench.sandbox.system import system_folders
from terminalbench.sandbox.verifier_stage import VerifierPlace, to_verifier

PLACE = VerifierPlace("/tests", "/logs/verifier", ("reward.txt",), "root", "/app")
WORK = "mkdir /app; cd /app; for i in $(seq 1000); do echo > f$i; ln -s /nowhere l$i; done; (setsid sleep 1000 &)"


async def _round(times: dict[str, list[float]]) -> None:
    async def timed(name: str, work):
        started = time.perf_counter()
        result = await work
        times[name].append((time.perf_counter() - started) * 1000)
        return result

    system = system_folders({}, "/app", PLACE.tests, PLACE.logs)
    plan = SandboxPlan(open_base(HOST, helper.helper().ids), limits_for(512, 512, 1, scratch="memory"))
    box = await timed("start", Sandbox.start(plan))
    try:
        await box.run(["bash", "-c", WORK], env={})
        await timed("renew", box.renew(views.VERIFIER, system))
        await box.renew(views.AGENT, system)
        await timed("whole way", to_verifier(box, PLACE, system))
    finally:
        await box.stop()


async def _measure(rounds: int) -> None:
    times: dict[str, list[float]] = {"start": [], "renew": [], "whole way": []}
    await _round({name: [] for name in times})  # makes the base, starts the helper
    for _ in range(rounds):
        await _round(times)
    start = statistics.median(times["start"])
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:10} {middle:8.1f} ms {middle / start:6.2f} x")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    asyncio.run(_measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
