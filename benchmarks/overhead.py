"""What `tbench run` adds to a bare `harbor run -c`: the same trials, the same sandbox, in one run.

    .venv/bin/python benchmarks/overhead.py [--trials 200] [--parallel 4]

Both do the same work with Harbor's `nop` agent, which does nothing, so that only overhead is left. Also prints the
sandbox's own share: start and stop of an environment beside one Harbor trial.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

TASK = "csv-clean"
EXPERIMENT = """
schema_version = 2
slug = "s"
[run]
container_env = "local"
attempts = {attempts}
parallel = {parallel}
[tasks]
default_dataset = "starter"
items = [{{ id = "csv-clean" }}, {{ id = "json-sessions" }}]
[profiles.nop]
agent = "nop"
"""


@contextlib.contextmanager
def account() -> Iterator[Path | None]:
    """A control group (version 1, as root): the kernel adds up what its processes take, whoever waits for them."""
    group = Path(f"/sys/fs/cgroup/cpuacct/tbench-bench-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        for _ in range(100):  # what serves a sandbox may end a moment after its run
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)


def measured(argv: list[str], cwd: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a command and all it starts; without a control group, of those that it waits for."""
    env = {**os.environ, "HARBOR_TELEMETRY": "off", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with account() as group:
        joined = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *argv] if group else argv
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(joined, cwd=cwd, env=env, check=True, capture_output=True, timeout=3600)
        wall = time.monotonic() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if group is not None:
            return wall, int((group / "cpuacct.usage").read_text()) / 1e9
        return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=4)
    options = parser.parse_args()
    scripts = Path(sys.executable).parent
    root = Path(tempfile.mkdtemp(prefix="tbench-bench-"))
    try:
        attempts = max(1, options.trials // 2)
        (root / "exp.toml").write_text(EXPERIMENT.format(attempts=attempts, parallel=options.parallel))
        tbench = [str(scripts / "tbench"), "run", "exp.toml"]
        (root / "warm.toml").write_text(EXPERIMENT.format(attempts=1, parallel=1).replace('"s"', '"warm"'))
        subprocess.run([tbench[0], "run", "warm.toml"], cwd=root, check=True, capture_output=True, timeout=600)
        ours = measured(tbench, root)
        config = json.loads(next((root / "results" / "s" / "0" / "runs").glob("*.job.json")).read_text())
        bare = root / "bare.json"
        bare.write_text(json.dumps({**config, "job_name": "bare", "jobs_dir": str(root / "jobs")}))
        theirs = measured([str(scripts / "harbor"), "run", "-c", str(bare), "-y"], root)
    finally:
        shutil.rmtree(root)
    print(f"{attempts * 2} trials, {options.parallel} at once")
    print(f"{'':<18} {'wall s':>8} {'CPU s':>8}")
    for name, (wall, cpu) in (("harbor run -c", theirs), ("tbench run", ours)):
        print(f"{name:<18} {wall:>8.1f} {cpu:>8.1f}")
    print(f"{'ratio':<18} {ours[0] / theirs[0]:>8.2f} {ours[1] / theirs[1]:>8.2f}")


if __name__ == "__main__":
    main()
