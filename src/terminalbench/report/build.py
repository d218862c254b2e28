"""From a comparison, the state of its batch and the findings to a report. Pure: no clock, no files."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from urllib.parse import quote

from terminalbench.analytics.error_groups import FailureCause
from terminalbench.analytics.model import Comparison, ProfileSummary
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import PlannedImages
from terminalbench.experiments.tables import AnalysisTable, RunTable
from terminalbench.index.queries import BatchView, TrialRow
from terminalbench.index.totals import ProfileTotals, budget_use, profile_totals
from terminalbench.records.trial import ON_HOST, Finding, Outcome, TaskRef
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
    refs = _refs(this, names)
    tasks = _tasks(refs, len(names))
    totals = {line.profile: line for line in profile_totals(view)}
    others = sorted([this, *others], key=lambda m: (_created(m.view) or "", m.view.batch))
    return Report(
        title=view.plan.name or view.plan.slug,
        batch=view.batch,
        created_at=_created(view),
        version=__version__,
        comparison=asked,
        profiles=tuple(_profile(summary, totals[summary.profile], view, refs) for summary in comparison.profiles),
        tasks=tasks,
        analysed=this.findings is not None,
        simulated=any(summary.simulated for summary in asked.profiles),
        facts=_facts(view, names, [line.ref for line in tasks]),
        not_measured=evidence.not_measured(refs),
        suspects=evidence.suspects(refs) + evidence.tripwires(refs),
        failures=evidence.failure_groups(refs),
        causes=_causes(this, names),
        next_steps=tuple(next_steps(asked, str(this.batch.folder), this.resume, this.causes)),
        judged=evidence.judged(refs, this.findings or ()),
        tools=evidence.tool_use(refs),
        efforts=evidence.efforts(refs),
        workflows=evidence.workflows(refs),
        given_up=evidence.given_up(refs),
        flaky=_flaky(comparison, refs),
        delivery=evidence.delivery(refs),
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


def _refs(this: ReportInput, names: list[str]) -> list[TrialRef]:
    """The planned trials of the profiles that are compared; a task has its dataset's name where there are several."""
    cells = [cell for cell in this.view.cells if cell.profile in names]
    tasks = {task: place for place, task in enumerate(dict.fromkeys(cell.task for cell in cells))}
    mixed = len({task.dataset for task in tasks}) > 1
    found = evidence.by_trial(this.findings or ())
    return [
        TrialRef(
            cell,
            cell.task.name if mixed else cell.task.id,
            (tasks[cell.task], names.index(cell.profile)),
            this.link(cell.row) if cell.row is not None else None,
            found.get(cell.row.key, {}) if cell.row is not None else {},
        )
        for cell in cells
    ]


def _tasks(refs: list[TrialRef], profiles: int) -> tuple[TaskLine, ...]:
    lines: dict[TaskRef, list[list[TrialRef]]] = {}
    labels = {ref.cell.task: ref.task for ref in refs}
    for ref in refs:
        lines.setdefault(ref.cell.task, [[] for _ in range(profiles)])[ref.at[1]].append(ref)
    return tuple(TaskLine(task, labels[task], tuple(map(tuple, cells))) for task, cells in lines.items())


def _profile(summary: ProfileSummary, totals: ProfileTotals, view: BatchView, refs: list[TrialRef]) -> ProfileLine:
    content = next((p.content for p in view.plan.profiles if p.key == summary.profile), {})
    mine = [ref for ref in refs if ref.cell.profile == summary.profile]
    return ProfileLine(
        summary=summary,
        agent=" ".join(str(content[key]) for key in ("agent", "agent_version", "model") if content.get(key)),
        description=totals.description,
        outcomes={state: tuple(ref for ref in mine if ref.cell.state == state) for state in (*Outcome, RUNNING)},
        cost=profile_cost(totals),
    )


def _flaky(comparison: Comparison, refs: list[TrialRef]) -> tuple[FlakyRow, ...]:
    first = {(ref.cell.task, ref.cell.profile): ref for ref in reversed(refs)}
    found = [
        FlakyRow(ref, task)
        for summary in comparison.profiles
        for task in summary.tasks
        if task.flaky and (ref := first.get((task.task, summary.profile))) is not None
    ]
    return tuple(sorted(found, key=lambda flaky: abs((flaky.summary.rate or 0.0) - 0.5)))


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
        what = " on ".join(part for part in (item.profile, item.task.name if item.task else None) if part)
        notes.append(f"left out: {what or 'everything'}: {item.reason}")
    return tuple(notes)


def _created(view: BatchView) -> str | None:
    return view.plan.provenance.created_at


def _batch(measured: ReportInput, this: ReportInput) -> BatchLine:
    points = tuple(measured.comparison.profiles)
    href = None if measured is this else f"{measured.href}analytics/report.html"
    return BatchLine(measured.view.batch, _created(measured.view), points, batch_money(measured.view), href)
