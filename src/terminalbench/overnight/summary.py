"""A night as one summary and two reports, made at any moment from what lies in its folder.

Valid in the middle of a night, and of one without any finished iteration. Made again it is the same.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.faults import ErrorClass
from terminalbench.json_files import JsonLines, read_json, read_jsonl
from terminalbench.overnight.delta import RULE, ProfileDelta, TaskChange
from terminalbench.overnight.episodes import EpisodeStore, episodes_of
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.headlines import headlines, next_steps
from terminalbench.overnight.iteration_files import (
    ProjectedIteration,
    keep,
    labelled,
    project_iterations,
    project_results,
    view_of,
)
from terminalbench.overnight.iteration_results import IterationResults, ProfileResult, TrialResult
from terminalbench.overnight.lessons_report import summarise_lessons
from terminalbench.overnight.model_summary import not_alike, whole_night
from terminalbench.overnight.morning import render_markdown
from terminalbench.overnight.morning_page import render_html
from terminalbench.overnight.night import (
    IterationStatus,
    IterationWork,
    NightConfig,
    NightEvent,
    NightEventKind,
    NightState,
    Role,
)
from terminalbench.overnight.nights import config_of, status_of
from terminalbench.overnight.summary_model import (
    Flip,
    Incident,
    IterationLine,
    IterationRate,
    LostTrials,
    NightSummary,
    Scaling,
    read_trained,
    timeline_of,
)
from terminalbench.overnight.validation import Validation, validate
from terminalbench.records.counts import Spend
from terminalbench.records.episode import Episode
from terminalbench.records.trial import Outcome
from terminalbench.records.values import copied
from terminalbench.text.names import typed
from terminalbench.text.numbers import plural

_INCIDENTS = (NightEventKind.WORKER_LOST, NightEventKind.INCIDENT, NightEventKind.QUARANTINED, NightEventKind.RESUMED)


def project_night(folder: NightFolder, projected: Sequence[ProjectedIteration] | None = None) -> NightSummary:
    """Write `summary.json`, `report.md`, `report.html`, and each `results.json` and `delta.json`, from the batches.

    `projected` are all its iterations where they were written just now.
    """
    summary = summarise(folder, projected)
    keep(folder.summary_json, summary)
    keep(folder.report_md, render_markdown(summary).encode())
    keep(folder.report_html, render_html(summary).encode())
    return summary


def summarise(folder: NightFolder, projected: Sequence[ProjectedIteration] | None = None) -> NightSummary:
    """The summary of a night."""
    config = config_of(folder)
    state, problems = _state(folder)
    events = read_jsonl(folder.events_jsonl, NightEvent)
    projected = project_iterations(folder, config) if projected is None else projected
    validation = _validation(folder, config)
    models = [whole_night(model, projected, config) for model in config.models]
    lessons = summarise_lessons(folder, config, projected)
    training = read_trained(folder)
    spent = Spend.total(
        Spend(one.cost_usd, one.cost_unknown) for one in (*models, validation, lessons, training) if one is not None
    )
    deltas = [one for each in projected for one in each.delta.profiles]
    said = copied(
        NightSummary,
        config,
        status=status_of(folder, state),
        stopped=state.stopped if state is not None else None,
        iterations_planned=config.iterations,
        workers=str(config.workers),
        code=_code(config),
        cost_usd=spent.cost_usd,
        cost_unknown=spent.cost_unknown,
        headlines=[],
        models=models,
        iterations=_lines(state, projected),
        alerts=[one.alert.message for one in deltas if one.alert is not None],
        alert_rule=RULE,
        flips=_flips(projected),
        incidents=[_incident(event) for event in events.records if event.kind in _INCIDENTS],
        scaling=[_scaling(event) for event in events.records if event.kind is NightEventKind.SCALED],
        workers_started=sum(event.kind is NightEventKind.WORKER_STARTED for event in events.records),
        quarantined=state.quarantine if state is not None else [],
        lost=_lost(projected, _under_way(folder, state)),
        crashed=_crashed(projected),
        next_steps=[],
        validation=validation,
        lessons=lessons,
        training=training,
        problems=[*problems, *_unread(events), *not_alike(projected)],
        timeline=timeline_of(events.records, [one.results for one in projected]),
    )
    said = msgspec.structs.replace(said, next_steps=next_steps(said, folder.folder.resolve()))
    return msgspec.structs.replace(said, headlines=headlines(said))


def _state(folder: NightFolder) -> tuple[NightState | None, list[str]]:
    try:
        return read_json(folder.state_json, NightState), []
    except FileNotFoundError:
        return None, ["there is no state.json, so the progress of its iterations is unknown"]
    except TbenchError as error:
        return None, [str(error)]


def _code(config: NightConfig) -> str:
    pin = config.code
    commit = f" at {pin.commit[:12]}" if pin.commit is not None else ""
    return f"{pin.kind}{commit}{', with uncommitted changes' if pin.dirty else ''}"


def _validation(folder: NightFolder, config: NightConfig) -> Validation | None:
    batches = labelled(folder, config.run_id) if config.validation is not None else {}
    found = sorted((number, batch) for (role, number), batch in batches.items() if role is Role.VALIDATION)
    return validate(config, [view_of(folder, batch) for _, batch in found])


def _lines(state: NightState | None, projected: Sequence[ProjectedIteration]) -> list[IterationLine]:
    works = {one.number: one for one in (state.work if state is not None else []) if one.role is Role.ITERATION}
    found = {each.results.iteration: each for each in projected}
    begun = [n for n, work in works.items() if work.status is not IterationStatus.WAITING or work.starts]
    return [_line(number, works.get(number), found.get(number)) for number in sorted({*begun, *found})]


def _line(number: int, work: IterationWork | None, projected: ProjectedIteration | None) -> IterationLine:
    profiles = projected.results.profiles if projected is not None else []
    started = [one.started_at for one in profiles if one.started_at is not None]
    finished = [one.finished_at for one in profiles if one.finished_at is not None]
    told = {one.profile: one for one in projected.delta.profiles} if projected is not None else {}
    return IterationLine(
        number=number,
        status=work.status if work is not None else None,
        reason=work.reason if work is not None else None,
        batch=projected.results.batch if projected is not None else None,
        starts=work.starts if work is not None else 0,
        started_at=min(started, default=None),
        finished_at=max(finished, default=None),
        profiles=[_rate(one, told[one.profile]) for one in profiles],
    )


def _rate(one: ProfileResult, delta: ProfileDelta) -> IterationRate:
    alert = delta.alert.message if delta.alert is not None else None
    return copied(IterationRate, one, since=delta.since, alert=alert)


def _flips(projected: Sequence[ProjectedIteration]) -> list[Flip]:
    return [
        copied(Flip, task, iteration=each.results.iteration, previous=profile.previous, profile=profile.profile)
        for each in projected
        for profile in each.delta.profiles
        for task in profile.tasks
        if profile.previous is not None and task.noise is not None and task.before is not None
        if task.change in (TaskChange.IMPROVED, TaskChange.REGRESSED, TaskChange.FLAKY)
    ]


def _incident(event: NightEvent) -> Incident:
    told = event.cause is None or event.cause in event.said
    return copied(Incident, event, cause=None if told else event.cause)


def _scaling(event: NightEvent) -> Scaling:
    return Scaling(time=event.time, workers=event.workers, said=event.said or event.cause or "")


def _under_way(folder: NightFolder, state: NightState | None) -> set[int]:
    """The iterations that a running night is not done with: what did not run of them may run yet."""
    if state is None or status_of(folder, state) != "running":
        return set()
    return {one.number for one in state.work if one.role is Role.ITERATION and not one.status.over}


def _lost(projected: Sequence[ProjectedIteration], under_way: Collection[int]) -> list[LostTrials]:
    """Return why trials were not measured, the most frequent reasons first; the last of each is named."""
    found: dict[tuple[str, str, str | None, str], list[tuple[int, str, TrialResult]]] = {}
    for each in projected:
        number = each.results.iteration
        for profile in each.results.profiles:
            for name, trial in ((task.task_id, trial) for task in profile.tasks for trial in task.trials):
                may_run = number in under_way and not trial.outcome.ended
                if not trial.outcome.measured and not may_run:
                    reason = trial.reason or "no reason was recorded"
                    key = (profile.profile, trial.outcome.value, trial.error_class, reason)
                    found.setdefault(key, []).append((number, name, trial))
    return [
        LostTrials(
            profile=key[0],
            count=len(held),
            outcome=held[-1][2].outcome,
            error_class=key[2],
            reason=key[3],
            iteration=held[-1][0],
            trial=held[-1][2].path,
            tasks=list(dict.fromkeys(name for _, name, _ in held)),
        )
        for key, held in sorted(found.items(), key=lambda one: (-len(one[1]), one[0][0], one[0][3]))
    ]


def _crashed(projected: Sequence[ProjectedIteration]) -> int:
    """Count the trials that failed because their agent crashed: a verdict, and one on what somebody has to mend."""
    tasks = (task for each in projected for profile in each.results.profiles for task in profile.tasks)
    trials = (trial for task in tasks for trial in task.trials if trial.outcome is Outcome.FAILED)
    return sum(trial.error_class == ErrorClass.AGENT_CRASH for trial in trials)


def _unread(events: JsonLines) -> list[str]:
    if not events.bad:
        return []
    return [
        f"{plural(len(events.bad), 'line')} of events.jsonl cannot be read, starting with line {events.bad[0].number}"
    ]


def project_one(folder: NightFolder, config: NightConfig, number: int) -> IterationResults:
    """Write `results.json` of one iteration that is over, and record its episodes; the supervisor makes the delta."""
    results = project_results(folder, config, number)
    _record(config, episodes_of(folder, config, results))
    return results


@dataclass(frozen=True)
class ReportFiles:
    """What was written: the night in numbers, or what went wrong."""

    summary: NightSummary | None = None
    problems: tuple[str, ...] = ()


@dataclass
class ProjectedNight:
    """The iterations of a night that are over, as one process has projected and recorded them.

    What came of them does not change while no worker takes them up again: their batches are not read again.
    """

    _held: dict[int, ProjectedIteration] = field(default_factory=dict)
    _ended: dict[int, tuple[int, str | None]] = field(default_factory=dict)

    def known(self, over: Mapping[int, IterationWork]) -> dict[int, ProjectedIteration]:
        """Return those that are still what they were."""
        return {number: one for number, one in self._held.items() if self._ended[number] == _end_of(over.get(number))}

    def keep(self, projected: ProjectedIteration, work: IterationWork) -> None:
        """Remember one that is over."""
        number = projected.results.iteration
        self._held[number], self._ended[number] = projected, _end_of(work)


def _end_of(work: IterationWork | None) -> tuple[int, str | None]:
    """Return which end of an iteration it is: it may be taken up again, and end another time."""
    return (work.starts, work.finished_at) if work is not None else (-1, None)


def project(
    folder: NightFolder, config: NightConfig, state: NightState, known: ProjectedNight | None = None
) -> ReportFiles:
    """Write everything anew, and record what is over; what `known` holds already is neither read nor recorded again."""
    over = {work.number: work for work in state.work if work.role is Role.ITERATION and work.status.over}
    held = known.known(over) if known is not None else {}
    try:
        ended = {number: work for number, work in over.items() if known is not None and number not in held}
        found = project_iterations(folder, config, held, ended)
        for projected in found:
            number = projected.results.iteration
            if number in over and held.get(number) is not projected:
                _record(config, projected.episodes)
                if known is not None:
                    known.keep(projected, over[number])
        return ReportFiles(project_night(folder, found))
    except Exception as error:  # noqa: BLE001  what a night measured outlives a report that fails, as after an update
        again = f"tbench report {typed(folder.folder)} writes it again"
        said = str(error) if isinstance(error, TbenchError | OSError) else f"{type(error).__name__}: {error}"
        return ReportFiles(problems=(f"the report could not be written: {said}; {again}",))


def _record(config: NightConfig, episodes: Iterable[Episode]) -> None:
    store = EpisodeStore.of_project(Path(config.project_root))
    for episode in episodes:
        store.record(episode)
