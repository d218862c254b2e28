"""A worker: one process that runs, or goes on with, the batch of one iteration, and says that it lives.

    python -m terminalbench.overnight.worker FOLDER ITERATION ROLE [--again] [--alone] [--retry]

It beats from the loop of the run itself: one that hangs, or is stopped, is silent. It writes no state of the night,
only its own heartbeat, whose last one says what came of it. `--again` when an earlier worker may have begun the batch,
`--alone` for one trial at a time, `--retry` to try errors of the bench again.
"""

import dataclasses
import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from terminalbench.campaign import refusals
from terminalbench.errors import (
    EXIT_FAILURE,
    EXIT_GATE,
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    TbenchError,
    UserError,
)
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import load
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import ExclusionKind, Plan
from terminalbench.experiments.quarantine import quarantine_file
from terminalbench.harbor.limits.control import ALL, ControlFile
from terminalbench.harbor.limits.gate import GateError
from terminalbench.index.queries import BatchView, Rerun
from terminalbench.json_files import read_json, write_json
from terminalbench.lab.resume import resume
from terminalbench.lab.run import FinishedRun, run
from terminalbench.lab.select import Target
from terminalbench.locks import start_ticks
from terminalbench.overnight.crew import WorkerAssignment
from terminalbench.overnight.iteration_files import find_batch, project_delta
from terminalbench.overnight.models import check_again, parse_model
from terminalbench.overnight.night import Death, Heartbeat, NightConfig, NightState, Role, WorkEnd, WorkerPhase
from terminalbench.overnight.summary import project_one
from terminalbench.records.event import Event, EventKind
from terminalbench.records.trial import Outcome
from terminalbench.records.values import known_total
from terminalbench.runner.growth import is_quarantined
from terminalbench.runner.resume import ALL_ERRORS
from terminalbench.runner.run import Listener
from terminalbench.runner.signals import not_ignored, take
from terminalbench.runner.worktree import make_read_only, refuse_changed
from terminalbench.text.foreign import printable

BEAT_SEC = 1.0
_MOVES = (EventKind.TRIAL_STARTED, EventKind.TRIAL_PHASE, EventKind.TRIAL_ENDED, EventKind.TRIAL_HELD)
_MAY_PASS = (
    None,
    ExclusionKind.DISK_FULL,
    ExclusionKind.INTERRUPTED,
    ExclusionKind.CLUSTER_LOST,
    ExclusionKind.NOT_STARTED,
)
"""Why a trial did not run that another try may find changed; what a gate or an order holds back is not among them."""


@dataclass
class HeartbeatWriter:
    """Writes the heartbeat of this process: by a thread until its batch runs, then by the loop that runs it."""

    file: Path
    state: NightState
    beat: Heartbeat = field(init=False)
    _written: float = 0.0
    _limits: dict[str, float] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        pid = os.getpid()
        self.beat = Heartbeat(pid, start_ticks(pid), self.state.clock.now())
        self.write()
        threading.Thread(target=self._start, name="heart", daemon=True).start()

    def _start(self) -> None:
        while self.beat.phase is WorkerPhase.STARTING:
            time.sleep(BEAT_SEC)
            self.write(only=WorkerPhase.STARTING)

    def write(self, only: WorkerPhase | None = None, **changes: object) -> None:
        """Beat now, with these changes; with `only`, in that phase alone."""
        with self._turn:
            if only is not None and self.beat.phase is not only:
                return
            self.beat = msgspec.structs.replace(self.beat, at=self.state.clock.now(), **changes)
            self._written = time.monotonic()
            try:
                write_json(self.file, self.beat)
            except OSError:  # a full disk: the run sees it too, and ends by itself
                return

    def tick(self) -> None:
        """Beat, if the last time was a while ago."""
        if time.monotonic() - self._written >= BEAT_SEC:
            self.write()

    def event(self, event: Event) -> None:
        """Count what trials do, and which Harbor processes died."""
        if event.kind == EventKind.JOB_DIED:
            death = Death(event.profile or event.job, printable(event.error or "it has died"))
            self.beat = msgspec.structs.replace(self.beat, deaths=(*self.beat.deaths, death))
        if event.kind not in _MOVES:
            return
        if event.kind == EventKind.TRIAL_STARTED:
            self._limits[event.trial or ""] = float(event.detail.get("limit_sec") or 0.0)
        elif event.kind != EventKind.TRIAL_PHASE:
            self._limits.pop(event.trial or "", None)
        limit = max(self._limits.values(), default=0.0)
        self.beat = msgspec.structs.replace(self.beat, progress=self.beat.progress + 1, limit_sec=limit)


def work(assigned: WorkerAssignment) -> WorkEnd:
    """Do it; what came of it."""
    folder = assigned.folder
    config: NightConfig = read_json(folder.config_json, NightConfig)
    heart = HeartbeatWriter(folder.heartbeat(assigned.number, assigned.role), read_json(folder.state_json, NightState))
    try:
        end = _changed_code(config) or _changed_model(config) or _ended(_run(assigned, config, heart))
        if not end.closed and (changed := _changed_code(config)) is not None:
            end = msgspec.structs.replace(end, closed=True, said=changed.said, changed=True)
    except KeyboardInterrupt:
        end = WorkEnd(EXIT_INTERRUPTED)
    except TbenchError as error:
        print(error, file=sys.stderr)
        closed = isinstance(error, GateError)
        said = error.what if closed else error.lines()[0]  # how a gate is raised by hand does not concern a night
        end = WorkEnd(error.exit_code, closed=closed, said=printable(said))
    except Exception as error:  # noqa: BLE001  it is told to the supervisor, which tries again
        traceback.print_exc()
        end = WorkEnd(EXIT_FAILURE, said=printable(f"{type(error).__name__}: {error}"))
    heart.write(phase=WorkerPhase.ENDED, end=end)
    return end


def _changed_code(config: NightConfig) -> WorkEnd | None:
    """Return whether the pinned code is not as it was: what is measured with it would be something else."""
    if config.code.kind == "in-place":
        return None
    try:
        refuse_changed(Path(config.code.folder))
    except UserError as error:
        return WorkEnd(error.exit_code, closed=True, said=printable(error.what), changed=True)
    return None


def _changed_model(config: NightConfig) -> WorkEnd | None:
    """Return whether a model is not the one any more that the night was begun with: then nothing more is measured with
    it."""
    for model in config.models:
        if not model.facts:
            continue
        try:
            check_again(parse_model(model.spec), model.facts)
        except UserError as error:
            print(error, file=sys.stderr)
            return WorkEnd(error.exit_code, closed=True, said=printable(error.what), changed=True)
    return None


def _run(assigned: WorkerAssignment, config: NightConfig, heart: HeartbeatWriter) -> FinishedRun:
    folder = assigned.folder

    def prepared(plan: Plan, batch: Batch, trials: int) -> None:
        print(f"{plan.name}: {trials} trials in batch {batch.number}", flush=True)
        heart.write(phase=WorkerPhase.RUNNING, batch=_place(batch), events_from=_told(batch))
        if assigned.alone:
            ControlFile(batch.control_json).change(lambda control: control.parallel.update({ALL: 1}))

    def note(text: str) -> None:
        print(printable(text), flush=True)

    listener = Listener(prepared, heart.tick, heart.event, note, note)
    file = folder.experiment_toml(assigned.number, assigned.role)
    batch = find_batch(folder, config.run_id, assigned.number, assigned.role) if assigned.again else None
    if batch is None:
        gate = folder.gate_json.absolute()
        ended = run(_load(file, config), listener=listener, gate=gate, number=assigned.number, to_the_end=True)
    else:
        heart.write(events_from=_told(batch))  # what ended before is no progress of this one, also if nothing is left
        experiment = _load(file, config) if quarantine_file(file).exists() else None
        errors = ALL_ERRORS if assigned.retry else None
        ended = resume(Target(batch, experiment), retry_errors=errors, to_the_end=True, listener=listener)
    heart.write(phase=WorkerPhase.ENDING, batch=_place(ended.batch))
    for problem in ended.problems:
        note(problem)
    if assigned.role is Role.ITERATION and not ended.interrupted:
        try:
            results = project_one(folder, config, assigned.number)
            if config.lessons is not None:
                from terminalbench.overnight.lessons import learn_from  # reads trajectories: only where it is asked for

                learn_from(folder, config, project_delta(folder, config, results), ended.batch)
        except (TbenchError, OSError) as error:  # the supervisor writes them at the end once more
            note(f"results could not be written: {error}")
    return ended


def _told(batch: Batch) -> int:
    """Return how long the events of a batch are now."""
    return batch.events_jsonl.stat().st_size if batch.events_jsonl.exists() else 0


def _load(file: Path, config: NightConfig) -> Experiment:
    """Return what is run: from the pinned code, with the memory of the project as it is now."""
    return dataclasses.replace(load(file, config.code.root), memory=Path(config.project_root))


def _place(batch: Batch) -> str:
    return f"{batch.folder.parent.name}/{batch.number}"


def _ended(ended: FinishedRun) -> WorkEnd:
    view, excluded = ended.view, ended.view.plan.exclusions()
    why = [(cell, excluded(cell.profile, cell.task)) for cell in view.cells]
    counted = [(cell, held.kind if held is not None else None) for cell, held in why if not is_quarantined(held)]
    left = [(cell, kind) for cell, kind in counted if not cell.measured]
    not_run = [kind for cell, kind in left if cell.rerun is Rerun.RESUME]
    errors = sum(cell.rerun is Rerun.RETRY for cell, _ in left) + not_run.count(ExclusionKind.ABORTED)
    return WorkEnd(
        _code(ended, measured=len(counted) - len(left), trials=len(counted)),
        trials=len(view.cells),
        measured=ended.measured,
        passed=sum(cell.outcome is Outcome.PASSED for cell in view.cells),
        errors=errors,
        cut_off=sum(kind in _MAY_PASS for kind in not_run),
        cost_usd=known_total(row.usage.cost_usd for row in view.rows()),
        closed=bool(not_run) and _gate_is_closed(ended.batch, view),
        said=next((cell.reason for cell, _ in left if cell.reason), None),
    )


def _code(ended: FinishedRun, *, measured: int, trials: int) -> int:
    """The exit code, as that of `tbench run`; what is in quarantine is not waited for."""
    if ended.interrupted:
        return EXIT_INTERRUPTED
    if measured == trials:
        return EXIT_GATE if ended.over_budget else EXIT_OK
    return EXIT_INCOMPLETE if measured else EXIT_FAILURE


def _gate_is_closed(batch: Batch, view: BatchView) -> bool:
    """Return whether the gate of the night lets no trial of any profile start any more."""
    found = refusals(batch, view)
    return bool(found) and None not in found


def _interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Work as the arguments of the process say, and return the exit code."""
    take(not_ignored(), _interrupted)
    assigned = WorkerAssignment.of(sys.argv[1:])
    if folder := read_json(assigned.folder.config_json, NightConfig).code.folder:
        make_read_only(Path(folder))
    code = work(assigned).code
    take(not_ignored(), lambda _number, _frame: os._exit(code))
    return code


if __name__ == "__main__":
    sys.exit(main())
