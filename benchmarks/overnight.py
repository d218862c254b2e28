"""A night with several workers against one worker, and the fixed cost of an iteration against a plain `tbench run`.

    .venv/bin/python benchmarks/overnight.py [--iterations 8] [--delay 30] [--only workers|cost|reports|looks]

`workers`: the same iterations of trials that wait (an agent that sleeps `--delay` seconds, as one that waits for its
model), by one worker and by four. The wall time is that from the first worker to the end of the night. At least 3.6 is
asked of the ratio. `cost`: the CPU time of all processes of a night of many iterations of one trial less that of a
night of one, for each further iteration; beside it that of `tbench run` with the same trial, and of one with
TERMINALBENCH_OWN_PROCESSES=1, where every process loads Harbor itself. At most half of the latter is asked for.
`reports`: the CPU time of all episodes, deltas and reports of a night of 100 iterations with one worker, whose trials
are on disk already: in a new project, and in one with 6,000 older episodes of the profile; beside it that of one more
rewrite of the report. `looks`: the CPU time of each refresh of a night of 2,000 iterations in a project with 100,000
older episodes: report, watch, and its page. On a machine that does other things too, wall times say little, and CPU
times rise alike.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

SUITE = """
schema_version = 2
slug = "s"
[run]
container_env = "local"
[tasks]
default_dataset = "starter"
items = [{{ id = "csv-clean" }}]
[profiles.sim]
agent = "simulated"
options = {{ delay_sec = [{delay}, {delay}] }}
"""
TBENCH = str(Path(sys.executable).parent / "tbench")


def cpu_sec(root: Path, *arguments: str, **env: str) -> float:
    """CPU seconds of a command and of all that it has started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [TBENCH, *arguments], cwd=root, env={**os.environ, **env}, check=True, capture_output=True, timeout=3600
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def night(root: Path, name: str, iterations: int, workers: int) -> tuple[float, float]:
    """Wall seconds between the first worker and the end of a night, and its CPU seconds."""
    options = ("--suite", "suite.toml", "--output", name, "--iterations", str(iterations), "--workers", str(workers))
    cpu = cpu_sec(root, "overnight", *options, "--seed", "1")
    events = [json.loads(line) for line in (root / name / "events.jsonl").read_text().splitlines()]
    times = [datetime.fromisoformat(event["time"]) for event in events if event["kind"] != "night_started"]
    return (max(times) - min(times)).total_seconds(), cpu


def of_workers(root: Path, iterations: int, delay: float) -> None:
    """Print the wall times of one worker and of four."""
    (root / "suite.toml").write_text(SUITE.format(delay=delay))
    print(f"{iterations} iterations of one trial that waits {delay:g} s")
    walls = {workers: night(root, f"w{workers}", iterations, workers)[0] for workers in (1, 4)}
    for workers, wall in walls.items():
        print(f"  {workers} {'worker' if workers == 1 else 'workers':<8} {wall:>8.1f} s")
    print(f"  ratio     {walls[1] / walls[4]:>9.2f}  (at least 3.6)")


def of_cost(root: Path, iterations: int) -> None:
    """Print what an iteration costs, beside a batch of its own."""
    (root / "suite.toml").write_text(SUITE.format(delay=0.0))
    cpu_sec(root, "run", "suite.toml")  # modules are compiled, the image is there
    own = [cpu_sec(root, "run", "suite.toml", TERMINALBENCH_OWN_PROCESSES="1") for _ in range(3)]
    run = [cpu_sec(root, "run", "suite.toml") for _ in range(3)]
    one, many = (night(root, f"c{number}", number, 1)[1] for number in (1, iterations + 1))
    each, before = (many - one) / iterations, sum(own) / len(own)
    print("CPU seconds of one trial of the agent simulated")
    print(f"  tbench run, each process loads Harbor {before:>6.2f}")
    print(f"  tbench run                            {sum(run) / len(run):>6.2f}")
    print(f"  an iteration of a night               {each:>6.2f}")
    print(f"  ratio to the first                    {each / before:>6.2f}  (at most 0.5)")


def grow_older(root: Path, older: int) -> None:
    """Put that many episodes of a night that is over into a project."""
    from support.nights import make_night
    from terminalbench.overnight.episodes import EpisodeStore
    from terminalbench.overnight.iteration_files import project_iteration

    first = make_night(root / "first", [{"p": {"t0": "+", "t1": "x"}}], run_id="first", project=root)
    (episode,) = project_iteration(first.folder, first.config, 1).episodes
    store = EpisodeStore.of_project(root)
    store.record(episode)
    (line,) = store.file.read_bytes().splitlines(keepends=True)
    old = [line.replace(b"first-001", b"old-%06d" % n) for n in range(older - 1)]
    store.file.write_bytes(b"".join([*old, line]))


def of_looks(iterations: int = 2000, older: int = 100_000) -> dict[str, float]:
    """Print what each refresh of a long night takes, after the first: report, watch and page."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from support.nights import make_night
    from terminalbench.dashboard.answers import answer
    from terminalbench.dashboard.site import Site
    from terminalbench.overnight.night import IterationStatus, IterationWork, Role, WorkEnd
    from terminalbench.overnight.summary import ProjectedNight, project, project_one
    from terminalbench.watch.night import NightFeed, NightPage, render_night

    marks = {"p": {"t0": "+", "t1": "x"}}
    with tempfile.TemporaryDirectory(prefix="tbench-bench-") as place:
        root = Path(place)
        grow_older(root, older)
        night = make_night(root / "night", [], project=root, iterations=iterations)
        end = WorkEnd(code=0, trials=2, measured=2, passed=1)
        work = [IterationWork(n, Role.ITERATION, n, IterationStatus.DONE, end=end) for n in range(1, iterations + 1)]
        for number in range(1, iterations + 1):
            night.batch(number, marks)
            project_one(night.folder, night.config, number)
        state, known = night.state(work), ProjectedNight()
        feed, site = NightFeed(night.folder), Site(night.folder.results_root)
        refreshes = {
            "report": lambda: project(night.folder, night.config, state, known=known),
            "watch": lambda: (feed.poll(), render_night(NightPage(feed, time.time()), 100, 40)),
            "page": lambda: len(answer(site, "nights/this/", {}).body or b""),
        }
        spent = {}
        for name, refresh in refreshes.items():
            refresh()
            began = time.process_time()
            refresh()
            spent[name] = time.process_time() - began
            print(f"{iterations} iterations, {older} older episodes: {name:<6} {spent[name]:>6.2f} CPU s  (at most 1)")
    return spent


def of_reports(iterations: int = 100, older: int = 6000) -> None:
    """Print what episodes, deltas and reports of a night take, in a new project and in an old one."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from support.nights import make_night
    from terminalbench.overnight.night import IterationStatus, IterationWork, Role, WorkEnd
    from terminalbench.overnight.summary import ProjectedNight, project, project_one

    for before in (0, older):
        with tempfile.TemporaryDirectory(prefix="tbench-bench-") as place:
            root = Path(place)
            marks = {"p": {f"t{n}": "+" if n % 3 else "x" for n in range(8)}}
            if before:
                grow_older(root, before)
            night = make_night(root / "night", [], project=root, iterations=iterations)
            work = [IterationWork(n, Role.ITERATION, n) for n in range(1, iterations + 1)]
            known = ProjectedNight()
            spent = 0.0
            for number in range(1, iterations + 1):
                night.batch(number, marks)
                work[number - 1].status = IterationStatus.DONE
                work[number - 1].end = WorkEnd(code=0, trials=8, measured=8, passed=5)
                state = night.state(work)
                began = time.process_time()
                project_one(night.folder, night.config, number)  # by the worker
                project(night.folder, night.config, state, known)  # by the supervisor
                spent += time.process_time() - began
            began = time.process_time()
            project(night.folder, night.config, state, known)
            again = time.process_time() - began
        print(f"{iterations} iterations in a project with {before:>5} older episodes: {spent:>7.2f} CPU s; "
              f"one more rewrite {1000 * again:>6.1f} ms", flush=True)  # fmt: skip


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--delay", type=float, default=30.0)
    parser.add_argument("--only", choices=["workers", "cost", "reports", "looks"])
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="tbench-bench-"))
    started = time.monotonic()
    try:
        if options.only in (None, "reports"):
            of_reports()
        if options.only in (None, "looks"):
            of_looks()
        if options.only in (None, "cost"):
            of_cost(root, options.iterations)
        if options.only in (None, "workers"):
            of_workers(root, options.iterations, options.delay)
    finally:
        shutil.rmtree(root)
    print(f"measured in {time.monotonic() - started:.0f} s, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
