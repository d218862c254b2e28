"""The live view: processor time of a refresh as a batch grows, and of attaching to it.

    .venv/bin/python benchmarks/watch.py [--trials 1000 10000] [--running 64] [--refreshes 40]

A refresh is what the view does once or twice a second: read what was appended (eight events here), look at plan, gate
and processes, draw a screen of 200 x 60. Beside it, what it would cost to read the whole file each time, as a view
without memory does. All ratios come from one run.
"""

import argparse
import io
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.screen import Screen

from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import JobSpec, Plan, PlannedTask, ProfileRecord
from terminalbench.experiments.tables import RunTable
from terminalbench.json_files import append_jsonl, read_jsonl, write_json
from terminalbench.live.feed import Feed
from terminalbench.live.state import replay
from terminalbench.locks import lock
from terminalbench.records.event import Event
from terminalbench.records.trial import TaskRef, Usage
from terminalbench.watch.tables import Frame
from terminalbench.watch.view import render

PROFILES = ("baseline", "with-notes", "with-hooks", "another-model")
START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
WIDTH, HEIGHT = 200, 60


def event(second: float, kind: str, number: int, tasks: int, **fields: Any) -> Event:
    """One event of the numbered trial."""
    profile, task = PROFILES[number % len(PROFILES)], f"task-{number // len(PROFILES) % tasks}"
    stamp = datetime.fromtimestamp(START + second, UTC).isoformat(timespec="milliseconds")
    about: dict = {"profile": profile, "trial": f"{task}__{number}", "task": task, "dataset": "d"}
    attempt = number // (tasks * len(PROFILES)) + 1
    return Event(time=stamp, kind=kind, job=f"job__{profile}", pid=1, attempt=attempt, **about, **fields)


def finished(number: int, tasks: int) -> list[Event]:
    """A trial from start to end."""
    start = float(number)
    usage = Usage(input_tokens=50_000, output_tokens=900, cost_usd=0.12) if number % 7 else None
    how: dict = {"outcome": "passed" if number % 3 else "failed"}
    if number % 11 == 0:
        how = {"outcome": "errored", "error": "cannot install", "detail": {"error_class": "setup"}}
    phases = [
        event(start + n, "trial_phase", number, tasks, phase=p)
        for n, p in enumerate(("environment", "agent", "verifier"))
    ]
    return [
        event(start, "trial_started", number, tasks),
        *phases,
        event(start + 30 + number % 50, "trial_ended", number, tasks, usage=usage, **how),
    ]  # fmt: skip


def make_batch(root: Path, trials: int, running: int) -> tuple[Batch, int]:
    """A batch with so many finished and running trials, and room for more; and the number of its tasks."""
    batch = allocate(root, f"bench-{trials}")
    tasks = max(1, trials // len(PROFILES) // 4)
    planned = tuple(PlannedTask(TaskRef(f"task-{n}", "d"), "d", {}) for n in range(tasks))
    jobs = tuple(JobSpec(f"job__{p}", p, p, 6, planned) for p in PROFILES)
    records = tuple(ProfileRecord(p, p, {"agent": "claude-code"}) for p in PROFILES)
    write_json(batch.plan_json, Plan("bench", "bench", 0, "f", PROFILES[0], jobs, records, RunTable(parallel=16)))
    events = [e for number in range(trials) for e in finished(number, tasks)]
    events += [event(trials + 5, "trial_started", trials + n, tasks) for n in range(running)]
    encode = msgspec.json.Encoder().encode
    batch.events_jsonl.write_bytes(b"".join(encode(e) + b"\n" for e in events))
    return batch, tasks


def cpu(work: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    before = time.process_time()
    work()
    return time.process_time() - before


def refresh_sec(batch: Batch, tasks: int, trials: int, running: int, refreshes: int) -> tuple[float, float]:
    """Processor seconds of attaching, and the median of a refresh while trials start and end."""
    feed = Feed(batch)
    attach = cpu(lambda: feed.poll(START + trials))
    console = Console(file=io.StringIO(), force_terminal=True, width=WIDTH, height=HEIGHT, color_system="256")

    def once() -> None:
        feed.poll(time.time())
        frame = Frame(feed, START + trials + 60)
        console.print(Screen(Group(*render(frame, WIDTH, HEIGHT))))

    times = []
    for n in range(refreshes):
        first = trials + n
        for e in [*finished(first, tasks)[1:], *(finished(first + running, tasks)[:4])]:
            append_jsonl(batch.events_jsonl, e)
        times.append(cpu(once))
    return attach, sorted(times)[len(times) // 2]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--running", type=int, default=64)
    parser.add_argument("--refreshes", type=int, default=40)
    options = parser.parse_args()
    found: dict[int, tuple[float, float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for trials in options.trials:
            batch, tasks = make_batch(Path(folder), trials, options.running)
            with lock(batch.lock, "benchmark"):
                attach, refresh = refresh_sec(batch, tasks, trials, options.running, options.refreshes)
                whole = cpu(lambda batch=batch: replay(None, read_jsonl(batch.events_jsonl, Event).records))
            found[trials] = (attach, refresh, whole)
            print(
                f"{trials:>7} finished, {options.running} running: attach {attach:.2f} s, "
                f"refresh {refresh * 1000:.1f} ms ({200 * refresh:.1f} % of a core at two a second), "
                f"reading everything each time {whole * 1000:.0f} ms"
            )
    small, large = min(found), max(found)
    print(f"refresh, {large} / {small} trials: {found[large][1] / found[small][1]:.2f} x")
    print(f"reading everything / refresh at {large}: {found[large][2] / found[large][1]:.0f} x")


if __name__ == "__main__":
    main()
