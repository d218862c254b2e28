"""From a comparison, the state of its batch and the findings to a report. Pure: no clock, no files."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from urllib.parse import quote

from terminalbench.analytics.causes import FailureCause
from terminalbench.analytics.labels import FAILURE_CLASS, is_label
from terminalbench.analytics.model import Comparison, ProfileSummary
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import PlannedImages
from terminalbench.experiments.tables import AnalysisTable, RunTable
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.index.totals import ProfileTotals, budget_use, profile_totals
from terminalbench.records.setup import ON_HOST
from terminalbench.records.trial import Finding, Outcome, TaskRef
from terminalbench.report import evidence
from terminalbench.report.model import BatchLine, FlakyRow, ProfileLine, Report, ShownCause, TaskLine, TrialRef
from terminalbench.report.sentences import next_steps
from terminalbench.report.text import batch_money, profile_cost
from terminalbench.text.numbers import plural, some
from terminalbench.text.outcomes import RUNNING
from terminalbench.version import __version__


@dataclass(frozen=True)
class ReportInput:
    """One batch and what was compared in it: what a report is made of. `findings` is None when it was not analysed."""

    batch: Batch
    view: BatchView
    comparison: Comparison
    findings: tuple[Finding, ...] | None = None
    causes: tuple[FailureCause, ...] = ()
    resume: str | None = None
    """The batch as `tbench resume` takes it, where it may be resumed."""
    href: str = "../"
    """The batch folder as seen from the report; ends with a slash."""

    def link(self, row: TrialRow) -> str:
        """Return where a trial's folder is, as seen from the report."""
        return self.href + quote(row.folder, errors="surrogatepass")


def build_report(this: ReportInput, others: Iterable[ReportInput] = (), pooled: Comparison | None = None) -> Report:
    """The report of one batch; `others` are earlier or later batches, for the trend.

    With `pooled`, the comparison of all of them together, the verdicts are its own; the rest is about the one batch.
    """
    view, comparison = this.view, this.comparison
    asked = pooled or comparison
    names = [summary.profile for summary in comparison.profiles]
    cells = [cell for cell in view.cells if cell.profile in names]
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    found = evidence.by_trial(this.findings or ())
    refs = _refs(cells, names, tasks, found, this.link)
    totals = {line.profile: line for line in profile_totals(view)}
    others = sorted([this, *others], key=lambda m: (_created(m.view) or "", m.view.batch))
    return Report(
        title=view.plan.name or view.plan.slug,
        batch=view.batch,
        created_at=_created(view),
        version=__version__,
        comparison=asked,
        contrasts=tuple(asked.contrasts),
        profiles=tuple(
            _profile(summary, totals[summary.profile], view, [ref for ref in refs.values() if ref.profile == index])
            for index, summary in enumerate(comparison.profiles)
        ),
        tasks=_tasks(tasks, len(names), refs),
        analysed=this.findings is not None,
        simulated=any(summary.simulated for summary in asked.profiles),
        facts=_facts(view, names, tasks),
        not_measured=evidence.not_measured(cells, refs),
        suspects=evidence.suspects(cells, refs) + evidence.tripwires(refs.values(), found),
        failures=evidence.failure_groups(refs.values()),
        causes=_causes(this, names),
        next_steps=tuple(next_steps(asked, str(this.batch.folder), this.resume, this.causes)),
        judged=evidence.judged(refs.values(), this.findings or ()),
        tools=evidence.tool_use(refs.values(), found, len(names)),
        efforts=evidence.efforts(refs.values(), found),
        workflows=evidence.workflows(refs.values(), this.findings or ()),
        given_up=evidence.given_up(refs.values(), this.findings or ()),
        flaky=_flaky(comparison, tasks, names, refs),
        delivery=evidence.delivery(cells, refs),
        superseded=evidence.superseded(view, this.link),
        notes=_notes(view),
        trend=tuple(_batch(m, this) for m in others) if len(others) > 1 else (),
        picked_of=view.picked_of,
        pooled=tuple(pooled.batches) if pooled is not None else (),
    )


def _causes(this: ReportInput, names: list[str]) -> tuple[ShownCause, ...]:
    """The causes of the profiles that are compared, in their order."""
    rows = {cell.row.key: cell.row for cell in this.view.cells if cell.row is not None}
    free = this.view.plan.without_model()
    found = [
        ShownCause(one, this.link(rows[one.trial]) if one.trial in rows else None, one.profile in free)
        for one in this.causes
        if one.profile in names
    ]
    return tuple(sorted(found, key=lambda one: names.index(one.cause.profile)))


def task_label(task: TaskRef, mixed: bool) -> str:
    """A task's name; with its dataset where there are several."""
    return f"{task.dataset}/{task.id}" if mixed else task.id


def _refs(
    cells: list[CellState],
    names: list[str],
    tasks: list[TaskRef],
    found: Mapping[str, Mapping[str, Finding]],
    link: Callable[[TrialRow], str],
) -> dict[int, TrialRef]:
    task_at = {task: index for index, task in enumerate(tasks)}
    refs = {}
    for place, cell in enumerate(cells):
        row = cell.row
        trial = row.trial if row else None
        name = f"{row.job}/{row.name}" if row else None
        refs[place] = TrialRef(
            task=task_at[cell.task],
            profile=names.index(cell.profile),
            attempt=cell.attempt,
            outcome=cell.outcome,
            state=cell.state,
            href=link(row) if row else None,
            name=name,
            reason=cell.reason,
            error_class=str(trial.error_class) if trial and trial.error_class else None,
            failure=evidence.failure_class(found.get(name or "", {})),
            failure_by=_author(found.get(name or "", {}).get(FAILURE_CLASS)),
            cost_usd=row.usage.cost_usd if row else None,
            tokens=row.usage.total_tokens if row else None,
            sec=trial.wall_sec if trial else None,
        )
    return refs


def _author(finding: Finding | None) -> str | None:
    """Return who said it, when a person did."""
    return finding.analyzer.partition(":")[2] if finding is not None and is_label(finding) else None


def _tasks(tasks: list[TaskRef], profiles: int, refs: Mapping[int, TrialRef]) -> tuple[TaskLine, ...]:
    mixed = len({task.dataset for task in tasks}) > 1
    cells: list[list[list[TrialRef]]] = [[[] for _ in range(profiles)] for _ in tasks]
    for ref in refs.values():
        cells[ref.task][ref.profile].append(ref)
    return tuple(
        TaskLine(task, task_label(task, mixed), tuple(tuple(cell) for cell in row))
        for task, row in zip(tasks, cells, strict=True)
    )


def _profile(summary: ProfileSummary, totals: ProfileTotals, view: BatchView, mine: list[TrialRef]) -> ProfileLine:
    content = next((p.content for p in view.plan.profiles if p.key == summary.profile), {})
    return ProfileLine(
        summary=summary,
        agent=" ".join(str(content[key]) for key in ("agent", "agent_version", "model") if content.get(key)),
        description=totals.description,
        outcomes={state: tuple(ref for ref in mine if ref.state == state) for state in (*Outcome, RUNNING)},
        cost=profile_cost(totals),
    )


def _flaky(
    comparison: Comparison, tasks: list[TaskRef], names: list[str], refs: Mapping[int, TrialRef]
) -> tuple[FlakyRow, ...]:
    mixed = len({task.dataset for task in tasks}) > 1
    first = {(ref.task, ref.profile): ref for ref in reversed(list(refs.values()))}
    task_at = {task: index for index, task in enumerate(tasks)}
    found = []
    for profile, summary in enumerate(comparison.profiles):
        for task in summary.tasks:
            place = (task_at.get(task.task, -1), profile)
            if task.flaky and place in first:
                ends = (task.interval.low, task.interval.high) if task.interval else None
                name = task_label(task.task, mixed)
                found.append(FlakyRow(name, first[place], names[profile], task.passed, task.measured, ends))
    return tuple(sorted(found, key=lambda flaky: abs(flaky.passed / flaky.measured - 0.5)))


def _facts(view: BatchView, names: list[str], tasks: list[TaskRef]) -> tuple[tuple[str, str], ...]:
    plan = view.plan
    attempts = sorted({job.attempts for job in plan.jobs})
    source = plan.provenance
    commit = f"{source.git.commit[:12]}{' with changes' if source.git.dirty else ''}" if source.git else None
    versions = ", ".join(f"{name} {value}" for name, value in source.versions.items())
    size = (
        f"{plural(len(tasks), 'task')} x {plural(len(names), 'profile')} x "
        f"{' or '.join(map(str, attempts))} {'attempt' if attempts == [1] else 'attempts'}"
    )
    part = f", {len(view.cells):,} of {plural(view.picked_of, 'planned trial')}" if view.picked_of is not None else ""
    facts = {
        "planned" if view.picked_of is None else "picked": f"{size}{part}",
        "baseline": plan.baseline,
        "datasets": ", ".join(dict.fromkeys(task.dataset for task in tasks)),
        "experiment file": source.experiment_file,
        "project commit": commit,
        "versions": versions,
        "platform": source.platform,
        "systems": _systems(plan.images),
        "run settings": _table(plan.settings),
        "analysis settings": _table(plan.analysis),
        "only these tasks": ", ".join(plan.selected_tasks),
        "only these profiles": ", ".join(plan.selected_profiles),
    }
    return tuple((name, str(value)) for name, value in facts.items() if value)


def _systems(images: PlannedImages | None) -> str:
    """Return what the tasks of a batch ran on, where that is known: images, or this machine's own system in their
    place."""
    bases = Counter(base.partition("; built")[0] for base in images.bases.values()) if images is not None else Counter()
    named = {base: "this machine's own, in place of an image" if base == ON_HOST else base for base in bases}
    return some([f"{named[base]} ({plural(count, 'task')})" for base, count in bases.most_common()])


def _table(table: RunTable | AnalysisTable) -> str:
    """The keys of a table of the experiment file that have a value."""
    return ", ".join(f"{name} = {value}" for name, value in asdict(table).items() if value not in (None, "", [], {}))


def _notes(view: BatchView) -> tuple[str, ...]:
    use = budget_use(view)
    over = use.over_said if use is not None else None
    notes = [*([over] if over else []), *map(str, view.plan.departed()), *view.plan.notes]
    for item in view.plan.excluded:
        what = " on ".join(
            part for part in (item.profile, f"{item.task.dataset}/{item.task.id}" if item.task else None) if part
        )
        notes.append(f"left out: {what or 'everything'}: {item.reason}")
    return tuple(notes)


def _created(view: BatchView) -> str | None:
    return view.plan.provenance.created_at


def _batch(measured: ReportInput, this: ReportInput) -> BatchLine:
    points = tuple(measured.comparison.profiles)
    href = None if measured is this else f"{measured.href}analytics/report.html"
    return BatchLine(measured.view.batch, _created(measured.view), points, batch_money(measured.view), href)
