"""Chaos for arms of SWE-Bench Pro: kill -9 in the middle of guarded workflows, resume, count runs, traces and tokens.

    .venv/bin/python tests/chaos/guarded.py [--kills 20] [--seed 1] [--fresh]

One experiment of `tbench swebench-pro` with a scripted model server is killed without a warning again and again: its
runner, Harbor's process, or the whole group. Every answer of the server is billed with tokens of its own, so that each
can be found again: in exactly one trace, or lost with the process that waited for it.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import override

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from chaos.chaos import Process, Round, Tally, _send
from servers.workflow import Answer, Asked, WorkflowServer
from support.aftermath import finished, measured, orphanage
from support.tasks import write_repository_task
from support.warm import load, session
from terminalbench.harbor.limits.hangs import HELD
from terminalbench.records.trial import Usage
from terminalbench.records.values import total
from terminalbench.swebench_pro.rows import ResultRow, RunVerdict, place, read_results
from terminalbench.workflow.trace import TraceEvent, TraceEventKind, WorkflowEnding, read_trace

ARMS = ("singleshot", "s1_tdd_verified")
WORKERS = 2
PACE_SEC = 0.3
AT_WORK_SEC, FINISH_SEC = 120.0, 1200.0
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"


def answers(asked: Asked) -> Answer:
    """A right answer; the first patches of an instance are wrong, so that there are retries."""
    if asked.form == "analysis":
        return {"root_cause": "the sign", "fix_approach": "add", "files": ["calc.py"]}
    if asked.form == "test":
        return {"code": TEST, "target": "adds"}
    search = f"not in the file {asked.number}" if asked.number % 3 == 1 else "a - b"
    return {
        "edits": [{"action": "modify", "path": "calc.py", "search": search, "replace": "a + b"}],
        "reasoning": "so",
    }


class GuardedRound(Round):
    """An experiment over arms, killed."""

    def __init__(self, *given, server: WorkflowServer, instances: int) -> None:
        self.names = [f"instance_{number}" for number in range(instances)]
        self.server = server
        super().__init__(*given)
        self.output = self.root / "out"
        self.batches = self.output / "batches" / "swe-bench-pro"
        self.env |= {"NO_PROXY": "127.0.0.1"}

    @override
    def write_project(self) -> None:
        for name in self.names:
            folder = write_repository_task(self.root / "tasks" / name)
            text = (folder / "task.toml").read_text()
            mark = '[metadata]\nswebench_pro = true\nrepo = "tiny/calc"\nbase_commit = "0"\n'
            (folder / "task.toml").write_text(text.replace("[metadata]\n", mark))
            told = f"SCENARIO {name}: `add(2, 3)` of calc.py returns -1, it should be 5.\n"
            (folder / "instruction.md").write_text(told)

    @override
    def _going(self) -> list[str]:
        """The same command, from the first to the last."""
        return [
            "swebench-pro", "experiment", "--arms", ",".join(ARMS), "--tasks", "tasks", "--container-env", "local",
            "--provider", "openai", "--model", "scripted", "--base-url", f"{self.server.url}/v1",
            "--max-workers", str(WORKERS), "--output-dir", "out", "--resume", "--retry-errors",
        ]  # fmt: skip

    @override
    def shot(self) -> None:
        """Start it, and kill -9 a part of it at some moment of its work."""
        name = "run" if self.batch is None else "resume"
        runner = self.start(*self._going())
        if self.luck.random() < 0.2:
            self._pause(runner, self.luck.uniform(0.1, 3.0))  # perhaps before any trial
        else:
            self._until_at_work(runner)
        harbors = self._harbors()
        there = {"runner": [runner.pid], "all": [runner.pid, *self._below(runner.pid)]}
        there |= {"harbor": [self.luck.choice(harbors)]} if harbors else {}
        what = self.luck.choice(list(there))
        if runner.poll() is None:
            for pid in there[what]:
                _send(pid, signal.SIGKILL)
            self.tally.kills[what, name] += 1
            if what == "harbor":  # the run may mend it by itself; most of the time it does not get to it
                self._pause(runner, self.luck.uniform(0.0, 3.0))
                _send(runner.pid, signal.SIGKILL)
        self._wait(runner)
        self._nothing_left()
        self.check_safe()
        told = f"{self.tally.kills.total()} hits, {len(self.safe)} trials finished, {len(self.server.bills)} answers"
        print(told, file=sys.stderr, flush=True)

    @override
    def _until_at_work(self, runner: Process) -> None:
        """Some moments after the model was asked something new; after the first kill, a trial has finished by then."""
        before, deadline = len(self.server.asked), time.monotonic() + AT_WORK_SEC
        while runner.poll() is None and time.monotonic() < deadline:
            done = self.batch is not None and finished(self.batch)
            if len(self.server.asked) != before and (done or not self.tally.kills):
                break
            time.sleep(0.05)
        self._pause(runner, self.luck.uniform(0.0, 2.0))

    @override
    def finish(self) -> None:
        """Let it finish, and count."""
        code, out, err = self.ended(*self._going(), seconds=FINISH_SEC)
        self._nothing_left()
        self.check_safe()
        batch = self.batch
        if code != 0 or batch is None:
            self.tally.unfinished += 1
            self.problem(f"the last resume ended with {code}: {err[-900:]}{out[-900:]}")
            return
        found = read_results(self.output / "results.jsonl")
        self.tally.trials += len(found.rows)
        self._check_rows(found.rows, found.bad_lines + found.repeated)
        self._check_once(batch)
        self._check_traces(batch, found.rows)
        self._check_tokens(batch, found.rows)

    def _check_rows(self, rows: list[ResultRow], odd: int) -> None:
        wanted = Counter((name, arm) for name in self.names for arm in ARMS)
        counted = Counter((row.instance_id, row.arm) for row in rows if row.standing is RunVerdict.RESOLVED)
        if counted != wanted or odd:
            self.tally.unfinished += 1
            self.problem(f"rows are {dict(counted)}, {odd} of them odd; missing {dict(wanted - counted)}")

    def _check_once(self, batch: Path) -> None:
        """What was measured before a kill is not run again."""
        twice = measured(batch) - Counter((arm, name) for name in self.names for arm in ARMS)
        if twice:
            self.tally.doubled += twice.total()
            self.problem(f"measured more often than once: {dict(twice)}")

    def _check_traces(self, batch: Path, rows: list[ResultRow]) -> None:
        """The trace of every run that counts is whole; those of all other tries are where they were put."""
        for row in rows:
            trial = batch / "runs" / (row.trial or "").removeprefix(f"{row.batch}/")
            events = read_trace(trial).records
            ends = [event.ending for event in events if event.kind is TraceEventKind.RUN_END]
            shown = self.output / "traces" / place(row.instance_id, row.arm) / "trace.jsonl"
            same = shown.is_file() and shown.read_bytes() == (trial / "workflow" / "trace.jsonl").read_bytes()
            whole = [event.number for event in events] == list(range(1, len(events) + 1))
            if ends != [WorkflowEnding.DONE] or not same or not whole:
                self.tally.lost += 1
                self.problem(f"the trace of {row.trial} ends with {ends}, shown as it is: {same}, whole: {whole}")

    def _check_tokens(self, batch: Path, rows: list[ResultRow]) -> None:
        """Each answer that a trace has was billed once; no other is missing than those that a kill has cut off."""
        attempts = [event for folder in _tries(batch) for event in _attempts(folder)]
        traced = Counter((event.usage or Usage()).input_tokens for event in attempts)
        billed = {bill.input: bill.input + bill.cache_read + bill.output for bill in self.server.bills}
        unknown = [number for number, count in traced.items() if number not in billed or count != 1]
        kills = self.tally.kills.total()
        if unknown or len(billed) - len(traced) > kills * WORKERS:
            self.tally.wrong_costs += 1
            self.problem(f"{len(billed)} answers were billed, {len(traced)} traced, wrongly so: {unknown}")
        spent = total(row.spent_tokens for row in rows)
        on_disk = sum(billed.get(number or 0, 0) for number in traced)
        if spent != on_disk:
            self.tally.wrong_costs += 1
            self.problem(f"{spent} tokens are said to be spent, traces have {on_disk}")
        started = [folder for folder in _tries(batch) if not (folder / HELD).exists()]
        if len(started) != (told := len(rows) + sum(row.superseded for row in rows)):
            self.tally.doubled += 1
            self.problem(f"{told} tries are told, there are {len(started)}")


def _tries(batch: Path) -> list[Path]:
    """The folder of every try: those that count, those that were cut off, and those that were set aside."""
    return [file.parent for place in ("runs", "superseded") for file in batch.glob(f"{place}/*/*/config.json")]


def _attempts(trial: Path) -> list[TraceEvent]:
    return [event for event in read_trace(trial).records if event.kind is TraceEventKind.ATTEMPT]


def play(root: Path, seed: int, tally: Tally, *, fresh: bool = False, kills: int, instances: int) -> WorkflowServer:
    """One round in an empty folder: killed until it has been hit so many times; its server."""
    if not fresh:
        load()
    with orphanage() as home, WorkflowServer(answers) as server:
        server.pace_sec = PACE_SEC
        this = GuardedRound(root, seed, tally, home, fresh, server=server, instances=instances)
        for _ in range(3 * kills):
            if tally.kills.total() < kills:
                this.shot()
        this.finish()
    tally.rounds += 1
    return server


def main() -> int:
    """Play one round and print the tally; exit code 1 when anything went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="start every Harbor process anew")
    options = parser.parse_args()
    tally = Tally()
    with session(), tempfile.TemporaryDirectory(prefix="tbench-chaos-", ignore_cleanup_errors=True) as folder:
        instances = max(2, options.kills // 3)
        server = play(Path(folder), options.seed, tally, fresh=options.fresh, kills=options.kills, instances=instances)
    print(tally)
    print(f"answers billed: {len(server.bills)}")
    return 1 if tally.problems or tally.kills.total() < options.kills else 0


if __name__ == "__main__":
    sys.exit(main())
