"""Scanning a results folder: the first scan beside the cost of only decoding the same files, and an unchanged rescan.

    .venv/bin/python benchmarks/index_scan.py [--trials 10000] [--trajectory-kb 200]

All ratios come from one run. Trajectories are hard links to a few files, so that the disk stays small; every one of
them is read and decoded all the same.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from batches import JOB, make_batch

from terminalbench.experiments.batch import Batch
from terminalbench.index.queries import view_batch
from terminalbench.index.results import export_index
from terminalbench.index.scan import scan_batch


def decode_floor(batch: Batch, decode: Any) -> float:
    """Seconds of CPU to read and decode every result and trajectory, and nothing else."""
    started = time.process_time()
    for folder in (batch.runs / JOB).iterdir():
        decode((folder / "result.json").read_bytes())
        decode((folder / "agent" / "trajectory.json").read_bytes())
    return time.process_time() - started


def timed(work: Any) -> float:
    """Seconds of CPU of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--trajectory-kb", type=int, default=200)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="tbench-bench-"))
    try:
        batch = make_batch(root, options.trials, options.trajectory_kb)
        rows = {
            "msgspec decode of the same files": decode_floor(batch, msgspec.json.decode),
            "json decode of the same files": decode_floor(batch, json.loads),
            "first scan": timed(lambda: scan_batch(batch)),
            "unchanged rescan": timed(lambda: scan_batch(batch)),
            "view and export": timed(lambda: export_index(batch, view_batch(batch))),
        }
    finally:
        shutil.rmtree(root)
    floor = rows["msgspec decode of the same files"]
    print(f"{options.trials} trials, trajectories of about {options.trajectory_kb} KB")
    print(f"{'':<36} {'CPU s':>8} {'ratio':>7}")
    for name, seconds in rows.items():
        print(f"{name:<36} {seconds:>8.2f} {seconds / floor:>7.3f}")


if __name__ == "__main__":
    main()
