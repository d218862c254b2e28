"""What a comparison is asked: what a batch declared before its first trial, what is asked now, where they differ."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from terminalbench.analytics.model import Metric
from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.agent_code import is_released
from terminalbench.experiments.departures import Departure, DepartureKind
from terminalbench.experiments.plan import JobSpec, Plan
from terminalbench.experiments.profile_changes import tells
from terminalbench.experiments.tables import AnalysisTable
from terminalbench.index.queries import BatchView
from terminalbench.registry import import_path
from terminalbench.text.names import ORACLE
from terminalbench.text.numbers import some

_DECLARED = (
    "hypothesis", "contrasts", "alpha", "equivalence_margin", "infra_errors", "coverage", "doubtful", "looks",
    "planned_trials", "strict", "effect", "baseline",
)  # fmt: skip


_SAME_RUN = ("timeout_multiplier", "agent_timeout_sec", "harbor_args", "network")
"""What of `[run]` changes what a trial can do; the environment is told by each trial."""


class RecordedExtent(NamedTuple):
    """What of a batch was there at a time: so many attempts of each task (None: all), `without` some tasks."""

    batch: str
    attempts: int | None = None
    without: frozenset[str] = frozenset()


class ComparisonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `compare` needs besides the rows. `contrasts` are (new, old); `profiles` as declared.

    `places` says how a person names each batch that may be resumed; None: all by what they are called. `growth` are the
    stages in which the trials became more without declared looks.
    """

    baseline: str
    contrasts: tuple[tuple[str, str], ...]
    metric: Metric = "pass"
    alpha: float = 0.05
    margin: float | None = None
    rule: Literal["exclude", "fail"] = "exclude"
    coverage: float = 0.9
    doubtful: float = 0.1
    looks: int | Literal["any"] = 1
    planned_trials: int | None = None
    strict: bool = False
    growth: tuple[tuple[RecordedExtent, ...], ...] = ()
    effect: float | None = None
    hypothesis: str | None = None
    k: int | None = None
    seed: int = 0
    profiles: dict[str, dict[str, Any]] = {}
    warnings: tuple[str, ...] = ()
    departures: tuple[Departure, ...] = ()
    places: dict[str, str] | None = None


class ComparisonRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asks now. `analysis` is the `[analysis]` table of the experiment file as it is today, if known.

    `places` as in `ComparisonSettings`. `by_snapshot`: a profile whose memory held other lessons is another one.
    `departures` and `notes` are those of the choice of batches.
    """

    baseline: str | None = None
    contrasts: tuple[tuple[str, str], ...] = ()
    metric: Metric = "pass"
    k: int | None = None
    analysis: AnalysisTable | None = None
    places: dict[str, str] | None = None
    by_snapshot: bool = False
    departures: tuple[Departure, ...] = ()
    notes: tuple[str, ...] = ()


def profile_names(views: Sequence[BatchView], *, by_snapshot: bool = False) -> dict[tuple[str, str], str]:
    """Return what each (batch, profile) is called: its key, or `key@batch` where the key meant different treatments.

    Only trials of one and the same treatment are ever pooled. Lessons of a memory that learns are one policy, whatever
    it held; with `by_snapshot`, other lessons are another treatment.
    """
    first: dict[str, dict[str, str]] = {}
    treatments = {
        (view.batch, job.profile): treatment_of(view.plan, job, by_snapshot=by_snapshot)
        for view in views
        for job in view.plan.jobs
    }
    for (batch, profile), treatment in treatments.items():
        first.setdefault(profile, {}).setdefault(treatment, batch)
    numbers = {batch: batch.rsplit("/", 1)[-1] for batch in {view.batch for view in views}}
    tells_apart = len({view.plan.slug for view in views}) == 1 and len(set(numbers.values())) == len(numbers)
    names = {}
    for view in views:
        for job in view.plan.jobs:
            batch = first[job.profile][treatments[view.batch, job.profile]]
            short = numbers[batch] if tells_apart else batch
            several = len(first[job.profile]) > 1
            names[view.batch, job.profile] = f"{job.profile}@{short}" if several else job.profile
    return names


def treatment_of(plan: Plan, job: JobSpec, *, by_snapshot: bool = False) -> str:
    """The treatment of a profile, without what its memory held unless it is told apart `by_snapshot`."""
    record = None if by_snapshot else plan.record(job.profile)
    return job.profile_id if record is None or record.policy_id == record.id else record.policy_id


def _pooled_snapshots(views: Sequence[BatchView], names: Mapping[tuple[str, str], str]) -> list[str]:
    """A sentence for each policy with lessons that is pooled over batches in which its memory held others."""
    held: dict[str, dict[str, str]] = {}
    for view in views:
        for job in view.plan.jobs:
            held.setdefault(names[view.batch, job.profile], {}).setdefault(job.profile_id, view.batch)
    return [
        f"{name} had {len(found)} different sets of lessons in memory ({some(list(found.values()))}) and counts as "
        f"one profile; --by-snapshot separates them"
        for name, found in held.items()
        if len(found) > 1
    ]


def settings_of(views: Sequence[BatchView], asked: ComparisonRequest | None = None) -> ComparisonSettings:
    """The settings the batches declared, with what is asked now. The first batch's plan decides where they differ."""
    asked = asked or ComparisonRequest()
    names = profile_names(views, by_snapshot=asked.by_snapshot)
    order = list(dict.fromkeys(names.values()))
    plan = views[0].plan
    declared = plan.analysis
    baseline = _known(asked.baseline, order) or names[views[0].batch, plan.baseline]
    contrasts = tuple((_known(new, order), _known(old, order)) for new, old in asked.contrasts)
    if any(new == old for new, old in contrasts):
        raise UserError("a profile cannot be compared with itself", hint="name two profiles")
    contents = {names[v.batch, p.key]: p.content for v in views for p in v.plan.profiles if (v.batch, p.key) in names}
    if not contrasts and asked.baseline is not None:
        contrasts = tuple((name, baseline) for name in order if name != baseline and not is_oracle(contents, name))
    usual = _declared_contrasts(views, names, baseline)
    looks_declared = _looks_declared(views)
    return ComparisonSettings(
        baseline=baseline,
        contrasts=contrasts or tuple(pair for pair in usual if not any(is_oracle(contents, name) for name in pair)),
        metric=asked.metric,
        alpha=declared.alpha,
        margin=declared.equivalence_margin,
        rule=declared.infra_errors,
        coverage=declared.coverage,
        doubtful=declared.doubtful,
        looks=declared.looks if looks_declared else 1,
        planned_trials=declared.planned_trials if looks_declared else None,
        strict=declared.strict,
        growth=() if looks_declared else stages_of(views),
        effect=declared.effect,
        hypothesis=declared.hypothesis,
        k=asked.k,
        seed=plan.settings.seed or 0,
        profiles=contents,
        warnings=(
            *(f"{name} {ORACLE}" for name in order if is_oracle(contents, name)),
            *(note for view in views for note in view.notes),
            *asked.notes,
            *_pooled_snapshots(views, names),
            *_differing_plans(views),
            *_unrecorded_code(views),
            *_looks_of_each(views),
        ),
        departures=tuple(_departures(views, names, asked)),
        places=asked.places,
    )


def is_oracle(profiles: Mapping[str, Mapping[str, Any]], name: str) -> bool:
    """Return whether the profile called so sees the hidden verdict, by the contents of all of them."""
    return profiles.get(name, {}).get("oracle") is True


def _known(name: str | None, order: Sequence[str]) -> Any:
    if name is not None and name not in order:
        raise UserError(f'no profile is called "{name}"', hint=did_you_mean(name, order))
    return name


def _declared_contrasts(
    views: Sequence[BatchView], names: Mapping[tuple[str, str], str], baseline: str
) -> tuple[tuple[str, str], ...]:
    """Those the plans declare, else each against the baseline; and each later treatment of a name against its first."""
    order = list(dict.fromkeys(names.values()))
    pairs: list[tuple[str, str]] = []
    for view in views:
        for new, old in view.plan.analysis.contrasts or ():
            if (view.batch, new) in names and (view.batch, old) in names:
                pairs.append((names[view.batch, new], names[view.batch, old]))
    if not pairs:
        pairs = [(name, baseline) for name in order if name != baseline]
    for name in order:
        earliest = next(other for other in order if other.split("@")[0] == name.split("@")[0])
        if name != earliest and (name, earliest) not in pairs:
            pairs.append((name, earliest))
    return tuple(dict.fromkeys(pairs))


def _differing_plans(views: Sequence[BatchView]) -> list[str]:
    first = views[0]
    return [
        f"{view.batch} declares analysis.{key} = {getattr(view.plan.analysis, key)!r}, but {first.batch} declares "
        f"{getattr(first.plan.analysis, key)!r}; the latter is used"
        for view in views[1:]
        for key in _DECLARED
        if getattr(view.plan.analysis, key) != getattr(first.plan.analysis, key)
    ]


def _unrecorded_code(views: Sequence[BatchView]) -> list[str]:
    """Agents of one's own in plans of an earlier version: whether other batches have the same code is unknown."""
    if len(views) == 1:
        return []
    old = [(view.batch, p) for view in views for p in view.plan.profiles if not tells(p.recipe, "agent_code")]
    own = [(batch, p.key) for batch, p in old if _is_own(str(p.content.get("agent")))]
    told = (
        "was planned without recording the code of its agent, so whether the code is the same as in the other "
        "batches is unknown"
    )
    return [f"{key} of {batch} {told}" for batch, key in own]


def _is_own(agent: str) -> bool:
    path = import_path("agents", agent)
    return path is not None and not is_released(path)


def _looks_of_each(views: Sequence[BatchView]) -> list[str]:
    """Looks that each batch declared for itself: adding a batch after looking at one is a further look."""
    declared = views[0].plan.analysis
    if len(views) == 1 or declared.looks in (1, "any") or declared.planned_trials is not None:
        return []
    return [
        f"analysis.looks = {declared.looks} is counted over these {len(views)} batches, although none declares "
        "analysis.planned_trials: a look at fewer of them was one more"
    ]


def _departures(
    views: Sequence[BatchView], names: Mapping[tuple[str, str], str], asked: ComparisonRequest
) -> list[Departure]:
    """Return what is asked or was run in another way than was declared before the first trial.

    Harbor jobs that are not ours declare nothing: which profile is the baseline is a question, not a departure. Asking
    for some contrasts only is one all the same, because the others were there to be looked at.
    """
    plan = views[0].plan
    found = [*asked.departures]
    own = not all(view.is_foreign for view in views)
    baseline = names[views[0].batch, plan.baseline]
    if own and asked.baseline is not None and asked.baseline != baseline:
        found.append(Departure(DepartureKind.BASELINE, f"{baseline} was declared, but {asked.baseline} is used"))
    declared = _declared_contrasts(views, names, baseline if own else asked.baseline or baseline)
    other = [f"{new} vs {old} was not declared" for new, old in asked.contrasts if own and (new, old) not in declared]
    shown_now = {frozenset(pair) for pair in asked.contrasts}
    hidden = [pair for pair in declared if frozenset(pair) not in shown_now] if shown_now else []
    if hidden:
        shown = some([f"{new} vs {old}" for new, old in hidden])
        was = "declared, but not requested now" if own else "not requested"
        other.append(f"{was}, so Holm's adjustment leaves it out: {shown}")
    found += [Departure(DepartureKind.CONTRASTS, text) for text in other]
    found += _more_than_planned(views, names)
    found += other_conditions(views, names)
    for view in views:
        grown = (*view.plan.departed(), *_growth(view.plan))
        found += [msgspec.structs.replace(d, text=f"{view.batch}: {d.text}") if len(views) > 1 else d for d in grown]
    if asked.analysis is not None:
        pairs = [(key, getattr(plan.analysis, key), getattr(asked.analysis, key)) for key in _DECLARED]
        found += [
            Departure(
                DepartureKind.ANALYSIS,
                f"{key} = {before!r} was declared and is used, although the file now has {now!r}",
            )
            for key, before, now in pairs
            if before != now
        ]
    return found


def other_conditions(views: Sequence[BatchView], names: Mapping[tuple[str, str], str]) -> list[Departure]:
    """Return in what batches differ that a profile's id does not say: run settings, images, values of variables."""
    first, found = views[0], []
    for view in views[1:]:
        for key in _SAME_RUN:
            ours, theirs = getattr(view.plan.settings, key), getattr(first.plan.settings, key)
            if ours != theirs:
                text = f"run.{key} is {theirs!r} in {first.batch}, {ours!r} in {view.batch}"
                found.append(Departure(DepartureKind.RUN_SETTINGS, text))
        others = [name for name, sec in _task_limits(view).items() if _task_limits(first).get(name, sec) != sec]
        if others:
            text = f"agents had different time limits on {some(others)} in {view.batch} and {first.batch}"
            found.append(Departure(DepartureKind.RUN_SETTINGS, text))
        were, are = _bases(first), _bases(view)
        others = [f"{name} ({base}, was {were[name]})" for name, base in are.items() if were.get(name, base) != base]
        if others:
            text = f"{view.batch} ran on different images than {first.batch}: {some(others)}"
            found.append(Departure(DepartureKind.CHANGED_BASES, text))
    held: dict[str, tuple[str, dict[str, str]]] = {}
    for view in views:
        for record in view.plan.profiles:
            name = names.get((view.batch, record.key))
            had = {f"value of {key}": value for key, value in record.values.items()} | record.uploads
            if name is None or not had:
                continue
            batch, before = held.setdefault(name, (view.batch, had))
            others = [key for key, value in had.items() if before.get(key, value) != value]
            if others:
                text = f"{name} had a different {some(others)} in {view.batch} than in {batch}"
                found.append(Departure(DepartureKind.CHANGED_PROFILES, text))
    return found


def _bases(view: BatchView) -> dict[str, str]:
    """Return what the tasks of a batch ran on, as far as its plan says."""
    return view.plan.images.bases if view.plan.images is not None else {}


def _task_limits(view: BatchView) -> dict[str, float | None]:
    """Return what the plan of a batch says of the time that agents have on each task."""
    return {t.ref.name: t.timeout_sec for job in view.plan.jobs for t in job.tasks}


def stages_of(views: Sequence[BatchView]) -> tuple[tuple[RecordedExtent, ...], ...]:
    """Return what could be looked at, time after time: each batch, and each time it grew; in the order they were
    planned."""
    there: dict[str, RecordedExtent] = {}
    stages = []
    planned = [view.plan.provenance.created_at for view in views]
    order = range(len(views)) if None in planned else sorted(range(len(views)), key=lambda n: planned[n] or "")
    for view in (views[place] for place in order):
        for then in (*view.plan.grown(), None):
            there[view.batch] = RecordedExtent(view.batch, *then) if then is not None else RecordedExtent(view.batch)
            stages.append(tuple(there.values()))
    return tuple(stages)


def _looks_declared(views: Sequence[BatchView]) -> bool:
    """Return whether every batch declared its looks, or how many trials were to come: one that did not was a look."""
    return all(one.looks != 1 or one.planned_trials is not None for one in (view.plan.analysis for view in views))


def _more_than_planned(views: Sequence[BatchView], names: Mapping[tuple[str, str], str]) -> list[Departure]:
    """Profiles with more trials over all batches than were declared."""
    declared = views[0].plan.analysis.planned_trials
    if declared is None:
        return []
    planned = Counter(names[view.batch, cell.profile] for view in views for cell in view.cells)
    more = {name: count for name, count in planned.items() if count > declared}
    return [
        Departure(DepartureKind.PLANNED_TRIALS, f"{declared} were declared, but {name} has {count}")
        for name, count in more.items()
    ]


def _growth(plan: Plan) -> list[Departure]:
    """Return what was added to a batch after its first trial."""
    declared = plan.declared
    if declared is None:
        return []
    found = []
    attempts = max((job.attempts for job in plan.jobs), default=0)
    if declared.attempts != attempts:
        text = f"{declared.attempts} were declared, but {attempts} are planned now"
        found.append(Departure(DepartureKind.ATTEMPTS, text))
    tasks = [task.ref.name for job in plan.jobs for task in job.tasks]
    profiles = [job.profile for job in plan.jobs]
    for kind, now, before in (
        (DepartureKind.TASKS, tasks, declared.tasks),
        (DepartureKind.PROFILES, profiles, declared.profiles),
    ):
        added = [name for name in dict.fromkeys(now) if name not in before]
        if added:
            found.append(Departure(kind, f"{some(added)} were added to the declared {len(before)}"))
    return found
