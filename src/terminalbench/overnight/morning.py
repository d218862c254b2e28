"""The morning report: the answer, and behind it the same sections for Markdown and HTML. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from terminalbench.archivist.gains import GAINS
from terminalbench.overnight.lessons_report import REFLECTIONS, lessons_lines
from terminalbench.overnight.model_summary import Grouping, GroupRate, ModelSummary
from terminalbench.overnight.summary_model import COMPARISONS, Flip, Incident, LostTrials, NightSummary, model_name
from terminalbench.records.counts import Counts
from terminalbench.report.documents import escaped
from terminalbench.text.foreign import flat, short
from terminalbench.text.numbers import cost, dollars, moment, percent, percents, plural
from terminalbench.text.outcomes import word
from terminalbench.text.table import Columns, TableRows

SHOWN = 60
"""Rows of a list in the reports; `summary.json` has all."""
RATES = (
    "Pass rates are means over tasks: where trials are missing, passed/measured is another. Costs are rounded by line."
)
"""What stands with the iterations."""
NOISY = "Within noise, each task by itself"
"""The title of flips that one task alone may show by luck; an alert counts all tasks together."""


def first_lines(summary: NightSummary) -> str:
    """Return what a message about the night says: the whole answer, in one line each."""
    return "\n".join(flat(line, 300) for line in summary.headlines)


def labelled(lines: Iterable[str]) -> list[tuple[str, str, str]]:
    """The lines of the answer, each as its label, the mark after it, and the rest."""
    return [(found[1], found[2], found[3]) if (found := _LABEL.fullmatch(line)) else (line, "", "") for line in lines]


_LABEL = re.compile(r"(\w[^:?]*)([:?])(.*)", re.DOTALL)


class ReportCell(NamedTuple):
    """What stands in a table: a text, and the folder of the night that it leads to. `code`: its letters align."""

    text: str
    path: str | None = None
    code: bool = False

    @property
    def href(self) -> str | None:
        """The link from the report to that folder."""
        return href(self.path) if self.path is not None else None


@dataclass(frozen=True)
class ReportTable:
    """A table of a section: the first or the last rows of a list, as many as are shown, with its title."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[ReportCell]]
    more: str = ""


@dataclass(frozen=True)
class ReportSection:
    """A part of the report behind the answer: lines, a note, tables. `bad`: the lines tell of something wrong."""

    name: str
    lines: Sequence[str] = ()
    note: str = ""
    tables: Sequence[ReportTable] = ()
    bad: bool = False


def href(path: str) -> str:
    """A link from the report to a folder of the night."""
    return f"{quote(path)}/"


def render_markdown(summary: NightSummary) -> str:
    """The whole text. Its first lines stand by themselves."""
    then = summary.next_steps[1:]
    parts = [
        f"# Night {escaped(summary.run_id)}: {escaped(summary.suite_name)} {escaped(summary.suite_version)}",
        "\n".join(f"- **{escaped(label)}{mark}** {escaped(rest)}" for label, mark, rest in labelled(summary.headlines)),
        *(["## After that\n\n" + _list(then)] if then else []),
        *map(_section_markdown, sections(summary)),
    ]
    return "\n\n".join(parts) + "\n"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def _section_markdown(section: ReportSection) -> str:
    """A section under its title, folded where the reader can fold."""
    parts = [_list(section.lines), escaped(section.note), *map(_table_markdown, section.tables)]
    name = escaped(section.name).replace("\\", "")  # not read as Markdown there
    return f"<details><summary>{name}</summary>\n\n{'\n\n'.join(filter(None, parts))}\n\n</details>"


def _table_markdown(table: ReportTable) -> str:
    rows = [table.head, ["---"] * len(table.head), *(map(_cell_markdown, row) for row in table.rows)]
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return "\n\n".join(filter(None, (f"### {escaped(table.title)}" if table.title else "", text, escaped(table.more))))


def _cell_markdown(cell: ReportCell) -> str:
    text = f"`{cell.text}`" if cell.code else escaped(cell.text)
    return f"[{text}]({cell.href})" if cell.href is not None else text


MODELS = Columns[ModelSummary](
    {
        "model": lambda one: model_name(one.model, one.profile, simulated=one.simulated),
        "pass rate": lambda one: percent(one.pass_rate),
        "on tasks like these": lambda one: (
            percents(one.low, one.high) if one.low is not None and one.high is not None else "-"
        ),
        "passed": lambda one: str(one.passed),
        "failed": lambda one: str(one.failed),
        "errored": lambda one: str(one.errored),
        "not run": lambda one: str(one.not_run),
        "measured": lambda one: percent(one.coverage),
        "cost": lambda one: cost(one.cost_usd, one.cost_unknown, no_model=one.no_model),
    }
)
GROUPS = Columns[tuple[ModelSummary, GroupRate]](
    {
        "profile": lambda pair: pair[0].profile,
        "tasks of": lambda pair: pair[1].name or f"no {pair[1].by}",
        "tasks": lambda pair: str(pair[1].tasks),
        "pass rate": lambda pair: percent(pair[1].pass_rate),
        "passed": lambda pair: f"{pair[1].passed}/{pair[1].measured}",
        "measured": lambda pair: percent(pair[1].coverage),
    }
)
INCIDENTS = Columns[Incident](
    {
        "UTC": lambda one: moment(one.time),
        "what": lambda one: word(one.kind),
        "iteration": lambda one: str(one.iteration or "-"),
        "said": lambda one: one.said,
        "cause": lambda one: one.cause or "-",
    }
)


def sections(summary: NightSummary) -> list[ReportSection]:
    """Return all that is behind the answer."""
    found = [
        ReportSection(
            "Models",
            note="Pass rate: mean over tasks of the share passed of the measured trials. What the bench broke or did "
            "not run is in no pass rate; the column measured says how much there was.",
            tables=_tables(MODELS.of(summary.models)),
        ),
        _iterations(summary),
        ReportSection(
            "What changed",
            summary.alerts or ["No regression alert was raised."],
            summary.alert_rule,
            [*_flips(summary, "More than noise", noise=False), *_flips(summary, NOISY, noise=True)],
            bad=bool(summary.alerts),
        ),
        ReportSection("Noise floor", [f"{one.profile}: {one.noise.sentence}" for one in summary.models]),
        *(ReportSection(f"By {by}", tables=_tables(table)) for by, table in group_tables(summary)),
        *_tasks(summary),
        *_learned(summary),
        *_validation(summary),
        *_broken(summary),
        ReportSection("The night", tables=_tables(TableRows(["what", "is"], [list(one) for one in facts(summary)]))),
    ]
    return [one for one in found if one.lines or one.note or one.tables]


def _tables(found: TableRows, title: str = "", *, last: bool = False) -> list[ReportTable]:
    """Return the first or the last rows of a table; nothing where it has none."""
    return _table(title, found.head, [[ReportCell(text) for text in row] for row in found.rows], last=last)


def _table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[ReportCell]], *, last: bool = False
) -> list[ReportTable]:
    which = "last" if last else "first"
    more = f"The {which} {SHOWN} of {len(rows)}; all are in summary.json." if len(rows) > SHOWN else ""
    return [ReportTable(title, head, rows[-SHOWN:] if last else rows[:SHOWN], more)] if rows else []


def _iterations(summary: NightSummary) -> ReportSection:
    head = ["iteration", "status", "profile", "pass rate", "passed", "measured", "cost", "since the one before"]
    rows = []
    for line in summary.iterations:
        number = ReportCell(str(line.number), f"batches/{line.batch}" if line.batch else None)
        status = word(line.status) if line.status is not None else "unknown"
        status += f", {line.starts} workers" if line.starts > 1 else ""
        for one in line.profiles:
            spent = cost(one.cost_usd, one.cost_unknown, no_model=one.no_model)
            rates = (percent(one.pass_rate), f"{one.passed}/{one.measured}", percent(one.coverage))
            rows.append([number, *map(ReportCell, (status, one.profile, *rates, spent, one.since))])
        if not line.profiles:
            rows.append([number, *map(ReportCell, (status, "-", "-", "-", "-", "-", line.reason or "nothing ran yet"))])
    found = _table("", head, rows, last=True)
    return (
        ReportSection("Iterations", note=RATES, tables=found)
        if found
        else ReportSection("Iterations", ["None has started."])
    )


def _flips(summary: NightSummary, title: str, *, noise: bool) -> list[ReportTable]:
    found = [flip for flip in summary.flips if flip.noise is noise]
    head = ["task", "profile", "iteration", "change", "before", "now"]
    return _table(f"{title} ({plural(len(found), 'flip')})", head, [_flip(one) for one in found], last=True)


def _flip(one: Flip) -> list[ReportCell]:
    told = (one.task_id, one.profile, f"{one.previous} to {one.iteration}", one.change.value)
    return [*map(ReportCell, told), _counted(one.before, one.trials_before), _counted(one.now, one.trials)]


def _counted(count: Counts, trials: Sequence[str]) -> ReportCell:
    return ReportCell(str(count), trials[0] if trials else None)


def group_tables(summary: NightSummary) -> list[tuple[Grouping, TableRows]]:
    """The kinds of tasks of every profile, by each grouping that the suite has."""
    pairs = [(model, one) for model in summary.models for one in model.groups]
    found = [(by, GROUPS.of(pair for pair in pairs if pair[1].by is by)) for by in Grouping]
    return [(by, table) for by, table in found if table.rows]


def _tasks(summary: NightSummary) -> Iterable[ReportSection]:
    for model in summary.models:
        flaky = [
            [one.task_id, str(one.count), percent(one.count.rate), f"{one.flips} in {one.iterations}"]
            for one in model.flaky
        ]
        tables = _tables(TableRows(["task", "passed", "rate", "flips"], flaky))
        yield ReportSection(f"Flaky tasks of {model.profile}", tables=tables)
        rows = [
            [
                ReportCell(one.task_id),
                ReportCell(str(one.count)),
                ReportCell(percent(one.count.rate)),
                ReportCell(one.marks[-SHOWN:], code=True),
            ]
            for one in model.tasks
        ]
        said = "One character per iteration: + passed, x failed, ~ both, . not measured."
        tables = _table("", ["task", "passed", "rate", "iterations"], rows)
        yield ReportSection(f"Tasks of {model.profile}", note=said if tables else "", tables=tables)


def _learned(summary: NightSummary) -> Iterable[ReportSection]:
    """Yield what lessons taught and gained, and what a night of training tried, kept and rejected."""
    if (found := summary.lessons) is not None:
        tables = [*_tables(GAINS.of(found.gains)), *_tables(REFLECTIONS.of(found.reflections), last=True)]
        yield ReportSection("Lessons", lessons_lines(found), tables=tables)
    if (trained := summary.training) is not None:
        name = f"Training {trained.training}, night {trained.night}"
        yield ReportSection(name, trained.lines, tables=_tables(COMPARISONS.of(trained.comparisons)))


def _validation(summary: NightSummary) -> Iterable[ReportSection]:
    if (found := summary.validation) is not None:
        lines = [found.sentence]
        for one in found.against:
            lines.append(one.sentence)
            for who, side in ((one.profile, one.only_profile), (one.validator, one.only_validator)):
                if side:
                    lines.append(f"only {who} solved: {', '.join(f'{s.task_id} ({s.pairs})' for s in side)}")
        yield ReportSection("Validation", lines)


def _broken(summary: NightSummary) -> Iterable[ReportSection]:
    """Yield what went wrong, what was left out, how many workers there were, and what was not measured."""
    yield ReportSection("Incidents", tables=_tables(INCIDENTS.of(summary.incidents), last=True))
    left = [[f"{one.dataset}/{one.task}", one.reason] for one in summary.quarantined]
    yield ReportSection("Quarantined tasks", tables=_tables(TableRows(["task", "why"], left)))
    scaled = [[moment(one.time), "-" if one.workers is None else str(one.workers), one.said] for one in summary.scaling]
    yield ReportSection("Workers", tables=_tables(TableRows(["UTC", "workers", "why"], scaled), last=True))
    yield ReportSection("What could not be read", summary.problems, bad=True)
    head = ["trials", "profile", "outcome", "class", "why"]
    yield ReportSection("Not measured", tables=_table("", head, [_lost(one) for one in summary.lost]))


def _lost(one: LostTrials) -> list[ReportCell]:
    told = (str(one.count), one.profile, word(one.outcome), one.error_class or "-")
    return [*map(ReportCell, told), ReportCell(short(one.reason, 200), one.trial)]


def facts(summary: NightSummary) -> list[tuple[str, str]]:
    """Return what was asked for, and with what."""
    ends = [line.finished_at for line in summary.iterations if line.finished_at is not None]
    planned = "as many as there is time for" if summary.iterations_planned is None else str(summary.iterations_planned)
    found = [
        ("suite", f"{summary.suite_name} {summary.suite_version} ({summary.suite}), {summary.suite_digest[:12]}"),
        ("started", f"{moment(summary.created_at)} UTC"),
        ("last trial ended", f"{moment(max(ends))} UTC" if ends else "none has"),
        ("status", summary.status + (f": {summary.stopped}" if summary.stopped else "")),
        ("iterations", f"{planned}, {plural(summary.attempts, 'attempt')} at each task"),
        ("until", summary.until or "no deadline"),
        ("budget", dollars(summary.budget_usd) if summary.budget_usd is not None else "none"),
        ("workers", f"{summary.workers} at once; {plural(summary.workers_started, 'start')}"),
        ("seed", str(summary.seed)),
        ("code under test", summary.code),
    ]
    for one in summary.models:
        told = "".join(f", {name} {value}" for name, value in one.facts.items())
        found.append((f"model {one.model}", f"profile {one.profile}, {one.profile_id}{told}"))
    return found
