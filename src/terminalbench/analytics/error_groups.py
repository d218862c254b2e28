"""Failures in groups, by class and by signature; why each profile failed; what only one of two profiles solves."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from terminalbench.analytics.atif import Trajectory
from terminalbench.analytics.divergence import Divergence, TrialSide, first_divergence
from terminalbench.analytics.findings.analyzers import load_analyzers
from terminalbench.analytics.findings.failed_checks import failed_check
from terminalbench.analytics.findings.trial_files import TrialFiles
from terminalbench.analytics.labels import FAILURE_CLASS, People, corrected, read_labels, said_of
from terminalbench.analytics.run import Progress, analyse
from terminalbench.analytics.selection import Filter, SelectedBatch, pick, ran
from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.batch import Batch
from terminalbench.faults import ErrorClass, Fault
from terminalbench.index.queries import CellState
from terminalbench.records.trial import TAMPERING, Finding, Outcome, ReadState, TaskRef
from terminalbench.text.foreign import flat
from terminalbench.text.reasons import failure_advice, failure_words

UNFINISHED = "unfinished"
NAMED = 12
"""Trials that a group names; its count says how many there are."""


class FailedTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    """One trial that did not pass: why, with the steps that show it. `labelled` when a person says so."""

    trial: str
    batch: str
    task: str
    profile: str
    outcome: str
    failure_class: str
    reason: str | None = None
    steps: list[int] = []
    labelled: bool = False


class FailureGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Trials that failed alike; the class of `labelled` ones is a person's word. `fault` is whose an error is."""

    what: str
    count: int
    profiles: dict[str, int]
    trials: list[FailedTrial]
    labelled: int = 0
    fault: Fault | None = None


class OneSidedTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task that profile `a` solved and `b` did not, the two trials compared, and where they part ways."""

    task: TaskRef
    batch: str
    a: str
    b: str
    a_passed: int
    a_measured: int
    b_measured: int
    a_trial: str | None = None
    b_trial: str | None = None
    b_class: str | None = None
    divergence: Divergence | None = None
    why_none: str | None = None


class LossGroup(msgspec.Struct, frozen=True):
    """The tasks that `loser` never solves and the other profile does, by the class of the failure."""

    loser: str
    what: str
    tasks: list[OneSidedTask]


def loss_groups(contrasts: Iterable[OneSidedTask]) -> list[LossGroup]:
    """Return why two profiles differ, the largest group first."""
    groups: dict[tuple[str, str], list[OneSidedTask]] = defaultdict(list)
    for found in contrasts:
        groups[found.b, found.b_class or "unexplained"].append(found)
    made = [LossGroup(loser, what, tasks) for (loser, what), tasks in groups.items()]
    return sorted(made, key=lambda group: -len(group.tasks))


class DoubtfulGroup(msgspec.Struct, frozen=True):
    """Results that count and are doubtful for one `reason`, whatever their outcome; `trials` names some."""

    reason: str
    count: int
    profiles: dict[str, int]
    trials: list[str]


class ErrorReport(msgspec.Struct, frozen=True):
    """What `tbench errors` shows."""

    batches: list[str]
    trials: int
    failed: int
    unfinished: int
    not_run: int
    classes: list[FailureGroup]
    signatures: list[FailureGroup]
    contrasts: list[OneSidedTask]
    doubtful: list[DoubtfulGroup] = []
    notes: list[str] = []


def error_report(
    batches: Sequence[Batch],
    wanted: Filter,
    compare: tuple[str, str] | None = None,
    limit: int = 20,
    progress: Progress | None = None,
) -> ErrorReport:
    """The failures of the batches in groups, and at most `limit` contrasts with the fork of each."""
    if compare is not None and compare[0] == compare[1]:
        raise UserError("a profile cannot be compared with itself", hint="name two profiles")
    chosen = pick(batches, wanted)
    analyzers = [loaded for loaded in load_analyzers() if loaded.name == "failure"]
    analyse(chosen, analyzers, progress)
    failed: list[FailedTrial] = []
    signed: list[tuple[str, FailedTrial]] = []
    for part in chosen:
        people = read_labels(part.batch.analytics).current()
        for cell, found in part.findings(analyzers):
            one = failed_trial(part.view.batch, cell, found, people)
            if one is not None and one.failure_class != UNFINISHED:
                failed.append(one)
                sign = next((f.value for f in corrected(found, people) if f.name == "failure_signature"), None)
                signed.append((str(sign or "no error, no output"), one))
    cells = [cell for part in chosen for cell in part.cells]
    classes = {f"{one.batch}/{one.trial}": one.failure_class for one in failed}
    return ErrorReport(
        batches=[part.view.batch for part in chosen],
        trials=len(cells),
        failed=len(failed),
        unfinished=sum(cell.row is not None and cell.row.state == ReadState.UNFINISHED for cell in cells),
        not_run=sum(not ran(cell) and not cell.running for cell in cells),
        classes=failure_classes(failed),
        signatures=_grouped(signed),
        contrasts=list(islice((one for part in chosen for one in _contrasts(part, compare, classes)), limit)),
        doubtful=_doubtful(cells),
        notes=[note for part in chosen for note in part.view.notes],
    )


def _doubtful(cells: Sequence[CellState]) -> list[DoubtfulGroup]:
    """The reasons for doubt; what an agent tampered with comes first, then what is most frequent."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for cell in cells:
        trial = cell.row.trial if cell.row is not None else None
        if trial is not None:
            for reason in trial.suspect:
                found[reason].append((cell.profile, trial.name))
    ranked = sorted(found.items(), key=lambda item: (not item[0].startswith(TAMPERING), -len(item[1]), item[0]))
    return [
        DoubtfulGroup(reason, len(of), dict(Counter(profile for profile, _ in of)), [name for _, name in of[:NAMED]])
        for reason, of in ranked
    ]


def failed_trial(batch: str, cell: CellState, found: Sequence[Finding], people: People) -> FailedTrial | None:
    """Return why a trial did not pass, from its findings and what people say of it; None when no finding says so."""
    by_rule = next((f for f in found if f.name == FAILURE_CLASS), None)
    if cell.row is None or by_rule is None or by_rule.value is None:
        return None
    [finding] = corrected([by_rule], people)
    return FailedTrial(
        trial=cell.row.key,
        batch=batch,
        task=cell.task.id,
        profile=cell.profile,
        outcome=str(cell.outcome),
        failure_class=str(finding.value),
        reason=cell.row.why if cell.row.unreadable else finding.reason,
        steps=finding.steps,
        labelled=said_of(by_rule, people) is not None,
    )


def failure_classes(failed: Sequence[FailedTrial]) -> list[FailureGroup]:
    """Failed trials by class, the largest first; of how many the class is a person's word."""
    said = Counter(one.failure_class for one in failed if one.labelled)
    groups = _grouped((one.failure_class, one) for one in failed)
    faults = {kind.value: kind.fault for kind in ErrorClass}
    return [msgspec.structs.replace(group, labelled=said[group.what], fault=faults.get(group.what)) for group in groups]


def _grouped(found: Iterable[tuple[str, FailedTrial]]) -> list[FailureGroup]:
    groups: dict[str, list[FailedTrial]] = defaultdict(list)
    for what, trial in found:
        groups[what].append(trial)
    made = [
        FailureGroup(what, len(trials), dict(Counter(trial.profile for trial in trials)), trials[:NAMED])
        for what, trials in groups.items()
    ]
    return sorted(made, key=lambda group: (-group.count, group.what))


def _contrasts(part: SelectedBatch, compare: tuple[str, str] | None, classes: dict[str, str]) -> Iterable[OneSidedTask]:
    """Tasks that one profile of a pair passed at least once and the other never, both measured."""
    profiles = list(dict.fromkeys(cell.profile for cell in part.cells))
    by_cell: dict[tuple[TaskRef, str], list[CellState]] = defaultdict(list)
    for cell in part.cells:
        if cell.measured:
            by_cell[cell.task, cell.profile].append(cell)
    tasks = list(dict.fromkeys(cell.task for cell in part.cells))
    for a, b in _pairs(part, profiles, compare):
        for task in tasks:
            mine, other = by_cell[task, a], by_cell[task, b]
            good = [cell for cell in mine if cell.outcome is Outcome.PASSED]
            if good and other and not any(cell.outcome is Outcome.PASSED for cell in other):
                found = OneSidedTask(task, part.view.batch, a, b, len(good), len(mine), len(other))
                yield _compared(part, found, good, other, classes)


def _pairs(part: SelectedBatch, profiles: list[str], compare: tuple[str, str] | None) -> list[tuple[str, str]]:
    """The pair that is asked for, both ways; else those that were declared; else every profile and the baseline."""
    if compare is not None:
        for name in compare:
            if name not in profiles:
                where = str(part.batch.folder)
                raise UserError(f'no profile is called "{name}"', where=where, hint=did_you_mean(name, profiles))
        return [compare, (compare[1], compare[0])]
    baseline, oracles = part.view.plan.baseline, part.view.plan.oracles()
    declared = part.view.plan.analysis.contrasts
    if declared is not None:
        known = [(new, old) for new, old in declared if {new, old} <= set(profiles)]
        return [pair for new, old in known for pair in ((new, old), (old, new))]
    others = [name for name in profiles if name != baseline and not {name, baseline} & oracles]
    return [pair for name in others for pair in ((name, baseline), (baseline, name))]


def _compared(
    part: SelectedBatch, solved: OneSidedTask, good: list[CellState], bad: list[CellState], classes: dict[str, str]
) -> OneSidedTask:
    """Return the task with the two trials that are compared, the first of each that left a trajectory, and where they
    part ways."""
    sides = [next(filter(None, (_told(part, cell) for cell in cells)), None) for cells in (good, bad)]
    names = [told.trial if told else _name(cells[0]) for told, cells in zip(sides, (good, bad), strict=True)]
    fork = first_divergence(sides[0], sides[1]) if sides[0] is not None and sides[1] is not None else None
    absent = [name for name, told in zip((solved.a, solved.b), sides, strict=True) if told is None]
    why = f"the calls of {' and '.join(absent)} are unknown" if absent else None if fork else "both made the same calls"
    return msgspec.structs.replace(
        solved,
        a_trial=names[0],
        b_trial=names[1],
        b_class=classes.get(f"{solved.batch}/{names[1]}"),
        divergence=fork,
        why_none=why,
    )


def _told(part: SelectedBatch, cell: CellState) -> TrialSide | None:
    if cell.row is None:
        return None
    files = part.files(cell.row)
    story = files.story
    if story.trajectory is None or story.trajectory.untold:
        return None
    return TrialSide(_name(cell), story.trajectory, story.actions, files.secrets)


def _name(cell: CellState) -> str:
    return cell.row.key if cell.row is not None else "-"


MOST = 3
"""Causes of a profile that are told; the list of failures has all."""
LETTERS = 200
_FIRST_COUNTS = ("loop", "timeout_stuck")
"""Classes whose first step is where it went wrong; of others it is the last that shows it."""


class FailureCause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause: `count` of the `of` trials of `profile` that did not pass, and the trial that is shown for it.

    `check` is what the verifier said of it, `did` what its agent did at the deciding `step`; "" where that is unknown.
    """

    profile: str
    what: str
    count: int
    of: int
    trial: str
    task: str
    reason: str = ""
    check: str = ""
    step: int | None = None
    did: str = ""

    @property
    def words(self) -> str:
        """The cause as a clause."""
        return failure_words(self.what)

    @property
    def advice(self) -> str:
        """Return what to try next."""
        return failure_advice(self.what)


def failure_causes(
    failed: Sequence[FailedTrial], files: Callable[[FailedTrial], TrialFiles | None]
) -> list[FailureCause]:
    """Return the `MOST` frequent causes of each profile, in the order in which the profiles stand in `failed`."""
    by_profile: dict[str, dict[str, list[FailedTrial]]] = defaultdict(lambda: defaultdict(list))
    for one in failed:
        by_profile[one.profile][one.failure_class].append(one)
    found = []
    for profile, classes in by_profile.items():
        of = sum(map(len, classes.values()))
        ranked = sorted(classes.items(), key=lambda item: (-len(item[1]), item[0]))
        for what, trials in ranked[:MOST]:
            shown = trials[0]
            cause = FailureCause(
                profile=profile, what=what, count=len(trials), of=of, trial=shown.trial, task=shown.task,
                reason=flat(shown.reason or "", LETTERS), step=deciding_step(what, shown.steps),
            )  # fmt: skip
            told = files(shown)
            found.append(cause if told is None else _with_evidence(cause, told))
    return found


def deciding_step(what: str, steps: Sequence[int]) -> int | None:
    """Return the step at which a failure was decided, of those that show it; None where none does."""
    if not steps:
        return None
    if what == "lost_passing_state" and len(steps) > 1:
        return steps[1]
    return steps[0] if what in _FIRST_COUNTS else steps[-1]


def _with_evidence(cause: FailureCause, files: TrialFiles) -> FailureCause:
    check = failed_check(files.folder, files.secrets)
    said = "" if check is None else ": ".join(filter(None, (check.name, check.message)))
    story = files.story
    did = "" if cause.step is None or story.trajectory is None else _did(story.trajectory, cause.step, files)
    return msgspec.structs.replace(cause, check=flat(said, LETTERS), did=flat(files.secrets.conceal(did), LETTERS))


def _did(trajectory: Trajectory, number: int, files: TrialFiles) -> str:
    """Return what the agent did at a step: its calls, else its words."""
    calls = [
        f"{action.tool}: {action.command or action.target}".rstrip(": ")
        for action in files.story.actions
        if action.step == number
    ]
    step = next((step for step in trajectory.own_steps() if step.id == number), None)
    return "; ".join(calls[:2]) or (step.text or step.reasoning if step is not None else "")
