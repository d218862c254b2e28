"""A night from its beginning, or from where it was left, to its report: the function behind the commands."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from terminalbench.campaign import LiveReports, held
from terminalbench.errors import (
    EXIT_FAILURE,
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    TbenchError,
)
from terminalbench.json_files import read_jsonl
from terminalbench.locks import LockHeld, Owner, lock_owner
from terminalbench.modes import make_folder
from terminalbench.overnight.begin import NightRequest, PreparedNight, begin, go_on, night_at
from terminalbench.overnight.crew import WorkerForkServer
from terminalbench.overnight.decisions import NightTimeouts
from terminalbench.overnight.folder import Journal, NightFolder
from terminalbench.overnight.iteration_files import load_base
from terminalbench.overnight.models import model_environment
from terminalbench.overnight.morning import first_lines
from terminalbench.overnight.night import IterationStatus, NightConfig, NightEvent, NightEventKind, NightState
from terminalbench.overnight.scaling import Scaler, limits_of
from terminalbench.overnight.summary import ProjectedNight, project
from terminalbench.overnight.summary_model import NightSummary, TrainedNight, training_stopped
from terminalbench.overnight.supervisor import NightSupervisor
from terminalbench.runner.images import profile_models, served
from terminalbench.runner.notify import Notifier
from terminalbench.runner.worktree import unregister
from terminalbench.text.names import typed

REPORT_SEC = 60.0
"""So often the report is written anew while a night runs."""


@dataclass(frozen=True)
class NightListener:
    """Who is told how a night goes: of its beginning, of each event, and several times a second.

    `step` is told how far the training is that comes after the iterations.
    """

    begun: Callable[[PreparedNight], None] = lambda _night: None
    event: Callable[[NightEvent], None] = lambda _event: None
    tick: Callable[[NightSupervisor], None] = lambda _night: None
    step: Callable[[TrainedNight], None] = lambda _trained: None


type Tell = Callable[[str], None]
"""Writes down, as an event of the night, what is done after its iterations."""


@dataclass(frozen=True)
class NightEnd:
    """A night that is over, for now. `problems` are lines about what went wrong beside it.

    `complete`: it was over before the same command was given again, which had nothing to do. `summary` is that of its
    report, where one could be written.
    """

    folder: NightFolder
    config: NightConfig
    state: NightState
    problems: tuple[str, ...] = ()
    complete: bool = False
    summary: NightSummary | None = None

    @property
    def exit_code(self) -> int:
        """0: all that was asked for was measured; 3: not all of it; 1: nothing; 130: interrupted.

        A night without a number of iterations ends by its deadline or its budget: what these cut off was not asked for.
        """
        if self.complete and self.training_stopped is None:
            return EXIT_OK
        if self.state.status == "interrupted":
            return EXIT_INTERRUPTED
        work = self.state.work
        if not any(one.end is not None and one.end.measured for one in work):
            return EXIT_FAILURE
        if self.config.iterations is None:
            work = [one for one in work if one.end is None or not one.end.closed or one.end.changed]
            done = all(
                one.status is not IterationStatus.GIVEN_UP and one.status is not IterationStatus.INCOMPLETE
                for one in work
            )
        else:
            done = self.state.status == "finished" and all(one.status is IterationStatus.DONE for one in work)
        return EXIT_OK if done and self.training_stopped is None else EXIT_INCOMPLETE

    @property
    def training_stopped(self) -> str | None:
        """Return why its training is not over; None where it is, or there is none."""
        return training_stopped(self.folder, self.config)


def begun_at(request: NightRequest) -> Path | None:
    """Return the folder that `--output` names, if a night was begun there: the same command goes on with it."""
    place = request.output
    return place if place is not None and NightFolder(place.resolve()).config_json.is_file() else None


def default_output(now: datetime) -> Path:
    """Return where a night goes that is given no place: a folder of its day."""
    return Path("results") / f"{now:%Y%m%d}"


def run_night(
    request: NightRequest,
    resume: Path | None = None,
    *,
    listener: NightListener | None = None,
    patience: NightTimeouts | None = None,
    then: Callable[[PreparedNight, Tell], None] | None = None,
) -> NightEnd:
    """Run a night, or go on with one, and write its report. Returns when it is over, or was interrupted.

    `then` comes after its iterations, before the report; it is called again by a resume, and finds out what is left.
    """
    told, now = listener or NightListener(), datetime.now().astimezone()
    folder = night_at(resume) if resume is not None else NightFolder((request.output or default_output(now)).resolve())
    gone = lock_owner(folder.lock)  # who has ended it takes its name out
    with _only_here(folder, request.command):
        night = go_on(request, folder, now) if resume is not None else begin(request, folder, now)
        told.begun(night)
        if night.over:
            try:
                _and_then(then, night, told)
            finally:
                written = project(night.folder, night.config, night.state)
            problems = (*written.problems, *_let_go(night))
            return NightEnd(folder, night.config, night.state, problems, request.again, written.summary)
        base = load_base(night.folder, night.config)
        supervisor = NightSupervisor(
            night.folder, night.config, night.state, patience or NightTimeouts(), told.event, told.tick
        )
        if night.config.workers == "auto":
            known = model_environment(Path(night.config.project_root))
            supervisor.scaler = Scaler(limits_of(base, night.config, known))

        def note(said: str) -> None:
            supervisor.journal.tell(NightEventKind.NOTE, said, cause="model file")

        _tell_beginning(supervisor, night, resumed=resume is not None, gone=gone)
        try:
            with WorkerForkServer(folder) as loaded, served(profile_models(base.profiles), note):
                known = ProjectedNight()
                write = partial(project, night.folder, night.config, night.state, known)
                supervisor.look = _PeriodicWork(loaded, LiveReports(write, REPORT_SEC)).look
                state = supervisor.run()
            if state.status != "interrupted":
                _and_then(then, night, told)
        finally:
            written = project(night.folder, night.config, night.state)
        sent = _notify(night, written.summary)
        left = _let_go(night) if state.status != "interrupted" else []
        return NightEnd(folder, night.config, state, (*written.problems, *sent, *left), summary=written.summary)


def _and_then(then: Callable[[PreparedNight, Tell], None] | None, night: PreparedNight, told: NightListener) -> None:
    if then is not None:
        journal = Journal(night.folder, night.state, told.event)
        then(night, lambda said: journal.tell(NightEventKind.NOTE, said, cause="training"))


@dataclass
class _PeriodicWork:
    """What is done beside the supervision: the loaded process is kept alive, the report is written now and then.

    Workers that are dearer than they should be are said, once.
    """

    loaded: WorkerForkServer
    reports: LiveReports
    _over: int = 0
    _dear: bool = False

    def look(self, night: NightSupervisor) -> None:
        if (died := self.loaded.keep()) is not None:
            night.journal.tell(NightEventKind.INCIDENT, died, cause="loaded process")
        if not self._dear and any(self.loaded.passed_over(hand.process) for hand in night.hands):
            self._dear = True
            said = f"every worker loads Harbor itself; {night.folder.loaded_log.name} says why"
            night.journal.tell(NightEventKind.NOTE, said, cause="loaded process")
        over = sum(work.status.over for work in night.state.work)
        self.reports.due |= over > self._over
        self._over = over
        self.reports.tick()


def _tell_beginning(supervisor: NightSupervisor, night: PreparedNight, *, resumed: bool, gone: Owner | None) -> None:
    config, tell = night.config, supervisor.journal.tell
    if resumed:
        changed = f"; {'; '.join(night.extended)}" if night.extended else ""
        was = read_jsonl(night.folder.events_jsonl, NightEvent).records
        last = f", last heard at {was[-1].time[:19]}" if was else ""
        cause = f"its supervisor (pid {gone.pid}) was gone{last}" if gone is not None else None
        tell(NightEventKind.RESUMED, f"the night continues{changed}", workers=night.state.workers, cause=cause)
    else:
        specs = ", ".join(config.specs)
        tell(NightEventKind.STARTED, f"{config.suite_name} with {specs}", workers=night.state.workers)
        if config.validation_off is not None:
            tell(NightEventKind.NOTE, f"no validation by Claude: {config.validation_off}", cause="validation")


@contextmanager
def _only_here(folder: NightFolder, command: str) -> Generator[None]:
    """Hold the folder of a night; a folder that was only made for it, and holds nothing, is taken away again."""
    place = folder.folder.absolute()
    made = [one for one in (place, *place.parents) if not one.exists()]
    make_folder(folder.folder)
    follows = f"to follow the night: tbench watch {typed(folder.folder)}"
    try:
        with held(folder.lock, f"tbench {command} {folder.folder.name}", folder.folder, follows):
            yield
    except LockHeld:
        raise
    except BaseException:
        if made and [entry.name for entry in folder.folder.iterdir()] == [folder.lock.name]:
            folder.lock.unlink()
            for one in made:
                one.rmdir()
        raise


def _let_go(night: PreparedNight) -> list[str]:
    """A night that has come to its end needs its worktree no more: git forgets it, the files stay to be read."""
    try:
        unregister(night.folder.code)
    except (OSError, TbenchError) as error:
        return [f"git still lists the worktree of the night: {error}"]
    return []


def _notify(night: PreparedNight, summary: NightSummary | None) -> list[str]:
    """Send the first lines of the report to whom `[notify]` of the suite names."""
    try:
        table = load_base(night.folder, night.config).notify
    except TbenchError as error:
        return [str(error)]
    notifier = Notifier.by(table, night.config.run_id)
    if summary is not None:
        notifier.tell("finished", *first_lines(summary).splitlines())
        for alert in summary.alerts:
            notifier.tell("regression", alert)
    return notifier.finish()
