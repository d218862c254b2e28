"""One trial: how it ended, what it was told, what it did step by step, what the verifier said, what it left."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from terminalbench.analytics.atif import Trajectory, UnreadableTrajectory
from terminalbench.analytics.findings.failed_checks import REPORT_BYTES, FailedCheck, first_failed
from terminalbench.analytics.labels import FAILURE_CLASS
from terminalbench.analytics.long_trajectory import LIVE_FILES
from terminalbench.dashboard.findings import trial_findings
from terminalbench.dashboard.frame import (
    Crumb,
    CsvTable,
    Download,
    NotFound,
    Page,
    PageRequest,
    batch_path,
    experiment_path,
    file_path,
    pair_path,
    steps_path,
    trial_path,
)
from terminalbench.dashboard.pages.files import NOT_TELLING, exported, not_exported
from terminalbench.dashboard.pages.steps import (
    MANY_STEPS,
    ONLY,
    PER_PAGE,
    MarkedSteps,
    StepFilter,
    StepPage,
    StepView,
    anchor_of,
    found_steps,
    marked,
    pieces,
    places,
    step_page,
    step_views,
    together,
)
from terminalbench.dashboard.safe_files import Excerpt, list_files, read_tail
from terminalbench.dashboard.site import Site
from terminalbench.index.pages import task_trials
from terminalbench.index.queries import TrialRow
from terminalbench.records.trial import Finding, Outcome, Usage
from terminalbench.report.trial import had, lessons, task_instruction
from terminalbench.text.foreign import flat, visible
from terminalbench.text.outcomes import egress_lines
from terminalbench.text.reasons import failure_advice, failure_words
from terminalbench.workflow.history import read_history

_VERIFIER_BYTES = 64 * 1024
_LOG_BYTES = 16 * 1024
_SIBLINGS = 60
_STEP_COLUMNS: Mapping[str, str | Callable[[StepView], Any]] = {
    "position": "position", "step": "step.id", "source": "step.source",
    "time": lambda view: view.step.time and view.step.time.isoformat(), "model": "step.model",
    "tools": lambda view: " ".join(call.name for call in view.step.calls), "prompt_tokens": "step.tokens.prompt",
    "completion_tokens": "step.tokens.completion", "cost_usd": "step.tokens.cost_usd",
    "prompt_tokens_so_far": "so_far.prompt", "completion_tokens_so_far": "so_far.completion",
    "cost_usd_so_far": "so_far.cost_usd", "text_chars": lambda view: len(view.step.text),
    "result_chars": lambda view: sum(len(result.text) for result in view.step.results), "copied": "step.copied",
}  # fmt: skip


@dataclass(frozen=True)
class TrajectoryDocument:
    """One trajectory of a trial, or why it cannot be read."""

    label: str
    trajectory: Trajectory | None
    problem: str | None = None


def documents(site: Site, batch: str, row: TrialRow) -> list[TrajectoryDocument]:
    """Every trajectory of a trial: its own files, then the subagents embedded in them."""
    job = site.trial_names(batch, row)[:-1]
    paths = row.trial.trajectory_paths if row.trial is not None else []
    live = LIVE_FILES if row.trial is None else LIVE_FILES[:1]
    found: list[TrajectoryDocument] = []
    for path in paths or [f"{row.name}/{file}" for file in live]:
        if found and not paths:
            break
        try:
            trajectory = site.trajectory((*job, *path.split("/")), live=row.trial is None)
        except UnreadableTrajectory as error:
            if paths:
                found.append(TrajectoryDocument(path, None, str(error)))
            continue
        found.append(TrajectoryDocument(path.removeprefix(f"{row.name}/"), trajectory))
        found += [
            TrajectoryDocument(f"subagent {sub.id or number}", sub)
            for number, sub in enumerate(trajectory.subagents, start=1)
        ]
    return found


def trial_page(site: Site, ask: PageRequest) -> Page:
    """The page of a trial: the first steps, or the page of steps the path names."""
    row = site.trial(ask.batch, ask.parts["job"], ask.parts["trial"])
    found = documents(site, ask.batch, row)
    number = page_number(ask.parts.get("document", "1"))
    if number > max(1, len(found)):
        raise NotFound("there is no such trajectory")
    document = found[number - 1] if found else None
    trajectory = document.trajectory if document else None
    agent = row.trial.agent if row.trial else None
    wanted = StepFilter(ask.text("find"), ask.text("only") if ask.text("only") in ONLY else "")
    marks, all_marked = MarkedSteps(), bool(wanted.only) or trajectory is None or len(trajectory.steps) <= MANY_STEPS
    if trajectory is None:
        steps = StepPage(1, 1, 0, [])
    else:
        if all_marked:
            marks = marked(trajectory, agent, trajectory.steps)
        if wanted:
            steps = found_steps(trajectory, wanted, marks)
        else:
            steps = step_page(trajectory, page_number(ask.parts.get("page", "1")))
        if not all_marked:
            marks = marked(trajectory, agent, [view.step for view in steps.steps])
    path = trial_path(ask.batch, row.job, row.name)
    last = len(trajectory.steps) if trajectory else 0
    own = found[0].trajectory if found else None
    users = (at for at, head in enumerate(own.heads) if head.source == "user") if own else ()
    instruction = next((own.steps[at] for at in users if own and own.steps[at].text.strip()), None)
    told = instruction.text if instruction else task_instruction(site.trial_folder(ask.batch, row), site.secrets)
    left = _left(site, ask.batch, row)
    names = site.trial_names(ask.batch, row)
    missing = {file.path: not_exported(site, names, file) for file in left["files"]} if ask.static else {}
    many = own is not None and len(own.steps) > MANY_STEPS
    analysed = trial_findings(site, ask, row, left["files"], many=many)
    findings = analysed.found
    deciding = _deciding(findings)
    named_steps = {step for finding in findings for step in finding.steps}
    pointed, measured = _findings(findings, path, places(own, named_steps) if own else {})
    values: dict[str, Any] = {
        "batch": ask.batch,
        "row": row,
        "trial": row.trial,
        "had": [*lessons(row.trial.delivery), *had(row.trial.delivery)] if row.trial is not None else [],
        "path": path,
        "documents": found,
        "document": document,
        "document_number": number,
        "steps": steps,
        "groups": [[view] for view in steps.steps] if site.runs(ask.batch, row) else list(together(steps.steps)),
        "opened": _opened(steps.steps, marks, deciding, searched=bool(wanted)),
        "deciding": deciding,
        "spent": site.spent_so_far(ask.batch, row.job, row.name, row.profile) if site.runs(ask.batch, row) else None,
        "elapsed": row.trial.wall_sec if row.trial else None,
        "egress": egress_lines(row.trial.egress) if row.trial else [],
        "instruction": instruction,
        "told": told,
        "marks": marks,
        "wanted": wanted,
        "only": {name: len(getattr(marks, name)) if all_marked else None for name in ONLY},
        "failed_check": _failed_check(site, ask.batch, row, left["verifier"]),
        "findings": pointed,
        "analysed": analysed,
        "why": _why(pointed),
        "claimed": _last_words(own) if own else "",
        "sent": _sent(row.usage),
        "measures": measured,
        "step_link": lambda page: steps_path(path, number, page),
        "page_size": PER_PAGE,
        "all_pages": max(1, -(-last // PER_PAGE)),
        "last_anchor": anchor_of(trajectory.steps[-1], last) if trajectory and last else "",
        "workflow": read_history(site.trial_folder(ask.batch, row), before=site.secrets.conceal_bytes),
        "siblings": _siblings(site, ask, row, path),
        "is_oracle": site.is_oracle,
        "exported": lambda size: exported(size, static=ask.static),
        "missing": missing,
        **_neighbours(site, ask.batch, row),
        **left,
    }
    crumbs = [Crumb(ask.batch, batch_path(ask.batch))]
    if ask.batch != ".":
        slug, batch_number = ask.batch.split("/", 1)
        crumbs = [Crumb(slug, experiment_path(slug)), Crumb(f"batch {batch_number}", batch_path(ask.batch))]
    return Page(
        title=row.name,
        template="trial.html",
        values=values,
        crumbs=crumbs,
        tables={"steps": lambda: _step_table(trajectory)} if not ask.static else {},
        document=(lambda: {"batch": ask.batch, "trial": row, "findings": findings}) if not ask.static else None,
        feed=ask.feed if ask.batch in site.live or analysed.waiting else None,
        left_out=[
            f"{file_path(path, name, raw=True)}: {why}"
            for name, why in missing.items()
            if why not in (None, NOT_TELLING)
        ],
    )


_OPENED, _FEW = 3, 3


def _deciding(findings: list[Finding]) -> set[int]:
    """The ids of the steps that decided why it failed."""
    found = (one.steps[:_OPENED] for one in findings if one.name == FAILURE_CLASS and one.value)
    return {step for steps in found for step in steps}


def _opened(views: list[StepView], marks: MarkedSteps, deciding: set[int], *, searched: bool) -> set[int]:
    """The ids of the steps that are open: the deciding ones, the last that failed; all where a reader has few."""
    if len(views) <= _FEW or (searched and len(views) <= PER_PAGE):
        return {view.step.id for view in views}
    return {*deciding, *[view.step.id for view in views if view.step.id in marks.errors][-_OPENED:]}


def _failed_check(site: Site, batch: str, row: TrialRow, verifier: Excerpt | None) -> FailedCheck | None:
    """Return what a reader of a failed trial asks first."""
    if row.trial is None or row.trial.outcome is not Outcome.FAILED:
        return None
    names = (*site.trial_names(batch, row), "verifier", "ctrf.json")
    report = read_tail(site.root, names, REPORT_BYTES, site.secrets)
    whole = report.text if report is not None and not report.missing else None
    return first_failed(visible(verifier.text) if verifier is not None else "", whole)


def page_number(text: str) -> int:
    """A number in a path, at least 1. Raises NotFound."""
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 8):
        raise NotFound("no such page")
    return max(1, int(text))


_MEASURES = ("trial", "behaviour", "workflow")
"""Analyzers that mostly count: what they say is listed below what the others point at, but for a few."""
_TELLING = (
    "given_up_at", "stagnant_guards", "escalations", "oracle", "loops", "backtracks", "lost_passing_state",
    "truncated_outputs", "context_resets",
)  # fmt: skip


def _findings(
    findings: list[Finding], path: str, where: dict[int, tuple[int, str]]
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return what analyzers point at, each with links to the steps it saw it at; and what they only measured."""
    pointed, measured = [], []
    for finding in findings:
        steps = [(s, steps_path(path, 1, where[s][0]), where[s][1]) for s in finding.steps if s in where]
        counts = finding.analyzer in _MEASURES
        telling = finding.value not in (None, False, 0, "") and (not counts or finding.name in _TELLING)
        if telling or (finding.value is None and not counts and finding.analyzer not in ("failure", "tripwires")):
            pointed.append({"finding": finding, "steps": steps})
        elif finding.value is not None:
            measured.append(finding)
    return pointed, measured


def _why(pointed: list[dict[str, Any]]) -> tuple[str, str, list[tuple[int, str, str]]] | None:
    """Return why it did not pass, in words, what to try, and the deciding steps; None where no class was found."""
    for one in pointed:
        if one["finding"].name == FAILURE_CLASS and isinstance(one["finding"].value, str):
            name = one["finding"].value
            return failure_words(name), failure_advice(name), one["steps"]
    return None


def _last_words(trajectory: Trajectory) -> str:
    """Return what the agent said in its last step: often that the task is done."""
    last = trajectory.steps[-1] if trajectory.steps else None
    return flat(last.text, 120) if last is not None and last.source == "agent" else ""


def _sent(usage: Usage) -> int | None:
    """All tokens that were sent, as steps count them: fresh, read from the cache and written to it."""
    if usage.input_tokens is None:
        return None
    return usage.input_tokens + (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)


def _siblings(site: Site, ask: PageRequest, row: TrialRow, path: str) -> list[tuple[TrialRow, str | None]]:
    """The other trials at the task, each with the page that shows both; an export has that page for one of them."""
    others = [
        r for r in task_trials(site.index, ask.batch, row.dataset, row.task) if (r.job, r.name) != (row.job, row.name)
    ]
    chosen = next((r for r in others if _outcome(r) != _outcome(row) and r.profile != row.profile), None)
    chosen = chosen or next((r for r in others if _outcome(r) != _outcome(row)), others[0] if others else None)
    return [
        (
            other,
            pair_path(path, trial_path(ask.batch, other.job, other.name))
            if not ask.static or other is chosen
            else None,
        )
        for other in others[:_SIBLINGS]
    ]


def _outcome(row: TrialRow) -> str | None:
    return row.trial.outcome.value if row.trial else None


def _neighbours(site: Site, batch: str, row: TrialRow) -> dict[str, str | None]:
    """The trials before and after, task by task and profile by profile."""
    version = site.summary(batch).version
    query = "SELECT job, trial FROM trials WHERE batch = ? ORDER BY dataset, task, profile, started_at, trial"

    def ordered() -> dict[tuple[str, str], tuple[str | None, str | None]]:
        names = [tuple(found) for found in site.index.execute(query, (batch,))]
        paths = [trial_path(batch, job, name) for job, name in names]
        around = zip([None, *paths[:-1]], [*paths[1:], None], strict=True)
        return dict(zip(names, around, strict=True))

    before, after = site.kept(("order", batch, version), ordered).get((row.job, row.name), (None, None))
    return {"before": before, "after": after}


def _left(site: Site, batch: str, row: TrialRow) -> dict[str, Any]:
    """Return what the trial left: the verifier's words, the ends of its logs, and every file."""
    names = site.trial_names(batch, row)
    files, more = list_files(site.trial_folder(batch, row))
    logs = []
    for file in files:
        inside = file.path.startswith("agent/") or file.path in ("trial.log", "exception.txt")
        if file.odd is None and inside and file.path.endswith((".log", ".txt")) and file.size and len(logs) < 6:
            logs.append((file, read_tail(site.root, (*names, *file.path.split("/")), _LOG_BYTES, site.secrets)))
    return {
        "verifier": read_tail(site.root, (*names, "verifier", "test-stdout.txt"), _VERIFIER_BYTES, site.secrets),
        "logs": logs,
        "files": files,
        "more_files": more,
    }


def _step_table(trajectory: Trajectory | None) -> CsvTable:
    views = step_views(trajectory, range(len(trajectory.steps))) if trajectory is not None else ()
    return CsvTable.of(views, _STEP_COLUMNS)


def raw_step(site: Site, ask: PageRequest) -> Download:
    """The whole text of one block of a step: `<document>/<position>/<block>.txt`."""
    row = site.trial(ask.batch, ask.parts["job"], ask.parts["trial"])
    try:
        document, position, block = (page_number(part) for part in ask.parts["path"].removesuffix(".txt").split("/"))
    except ValueError:
        raise NotFound("no such text") from None
    found = documents(site, ask.batch, row)
    trajectory = found[document - 1].trajectory if document <= len(found) else None
    if trajectory is None or position > len(trajectory.steps):
        raise NotFound("no such text")
    texts = [text for _, _, text, _ in pieces(trajectory.steps[position - 1])]
    if block > len(texts):
        raise NotFound("no such text")
    return Download(f"step-{position}-{block}.txt", "text/plain", texts[block - 1].encode("utf-8", "replace"))
