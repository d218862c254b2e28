"""The morning report as Markdown: what ran, what changed and how sure, what to do next. Pure."""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from terminalbench.overnight.groups import Grouping, GroupRate
from terminalbench.overnight.lessons_report import lessons_markdown
from terminalbench.overnight.summary_model import IterationLine, ModelSummary, NightSummary, model_name
from terminalbench.overnight.training_report import training_markdown
from terminalbench.records.counts import Counts
from terminalbench.report.markdown import escaped, table
from terminalbench.text.foreign import flat, short
from terminalbench.text.numbers import cost, dollars, moment, percent, percents, plural
from terminalbench.text.outcomes import word
from terminalbench.text.table import Columns, TableRows

SHOWN = 60
"""Rows of a list in the reports; `summary.json` has all."""
FLIPS = 20
"""Flips of a kind in the text."""
RATES = (
    "Pass rates are means over tasks: where trials are missing, passed/measured is another. Costs are rounded by line."
)
"""What stands below the iterations."""
NOISY = "Within noise, each task by itself"
"""The title of flips that one task alone may show by luck; an alert counts all tasks together."""


def first_lines(summary: NightSummary) -> str:
    """Return what a message about the night says: the whole answer, in one line each."""
    return "\n".join(flat(line, 300) for line in summary.headlines)


def render_markdown(summary: NightSummary) -> str:
    """The whole text. Its first lines stand by themselves."""
    then = summary.next_steps[1:]
    parts = [
        f"# Night {escaped(summary.run_id)}: {escaped(summary.suite_name)} {escaped(summary.suite_version)}",
        "\n".join(f"- **{escaped(label)}{mark}** {escaped(rest)}" for label, mark, rest in labelled(summary.headlines)),
        *(["## After that\n\n" + _list(then)] if then else []),
        *map(_folded, _sections(summary)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def labelled(lines: Iterable[str]) -> list[tuple[str, str, str]]:
    """The lines of the answer, each as its label, the mark after it, and the rest."""
    return [(found[1], found[2], found[3]) if (found := _LABEL.fullmatch(line)) else (line, "", "") for line in lines]


_LABEL = re.compile(r"(\w[^:?]*)([:?])(.*)", re.DOTALL)


def _folded(section: str) -> str:
    """A section of Markdown under its title, folded where the reader can fold."""
    title, _, rest = section.partition("\n\n")
    name = title.removeprefix("## ").replace("\\", "")  # not read as Markdown there
    return f"<details><summary>{name}</summary>\n\n{rest}\n\n</details>"


def _sections(summary: NightSummary) -> list[str]:
    """All that is behind the answer."""
    parts = [
        "## Models\n\n" + table(*MODELS.of(summary.models)),
        "## Iterations\n\n" + _iterations(summary.iterations),
        "## What changed\n\n" + _changed(summary),
        *_noise(summary),
        *(f"## By {by}\n\n" + table(*found) for by, found in group_tables(summary)),
        *_tasks(summary),
        *lessons_markdown(summary.lessons),
        *training_markdown(summary.training),
        *_validation(summary),
        *_incidents(summary),
        *_lost(summary),
        "## The night\n\n" + table(("what", "is"), facts(summary)),
    ]
    return [part for part in parts if part]


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
        "coverage": lambda one: percent(one.coverage),
        "cost": lambda one: cost(one.cost_usd, one.cost_unknown, no_model=one.no_model),
    }
)


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


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def _iterations(lines: Sequence[IterationLine]) -> str:
    if not lines:
        return "None has started."
    rows = []
    for line in lines[-SHOWN:]:
        status = word(line.status) if line.status is not None else "unknown"
        again = f", {line.starts} workers" if line.starts > 1 else ""
        for one in line.profiles:
            spent = cost(one.cost_usd, one.cost_unknown, no_model=one.no_model)
            counted = f"{one.passed}/{one.measured}"
            rows.append(
                (
                    str(line.number),
                    status + again,
                    one.profile,
                    percent(one.pass_rate),
                    counted,
                    percent(one.coverage),
                    spent,
                )
            )
        if not line.profiles:
            rows.append((str(line.number), status + again, line.reason or "-", "-", "-", "-", "-"))
    left = f" The last {SHOWN} of {len(lines)}; all are in summary.json." if len(lines) > SHOWN else ""
    head = ("iteration", "status", "profile", "pass rate", "passed", "coverage", "cost")
    return f"{table(head, rows)}\n\n{RATES}{left}"


def _changed(summary: NightSummary) -> str:
    said = _list(summary.alerts) if summary.alerts else "No regression alert was raised."
    sure = [flip for flip in summary.flips if not flip.noise]
    noisy = [flip for flip in summary.flips if flip.noise]
    parts = [said, escaped(summary.alert_rule)]
    for title, found in (("More than noise", sure), (NOISY, noisy)):
        if found:
            lines = [
                f"- iteration {flip.iteration}, {escaped(flip.profile)}, {escaped(flip.task_id)}: {flip.change.value}, "
                f"{_linked(flip.before, flip.trials_before)} to {_linked(flip.now, flip.trials)}"
                for flip in found[-FLIPS:]
            ]
            more = f", the last {FLIPS}; report.html has more" if len(found) > FLIPS else ""
            parts.append(f"### {title} ({plural(len(found), 'flip')}{more})\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _linked(count: Counts, trials: Sequence[str]) -> str:
    return f"[{count}]({href(trials[0])})" if trials else str(count)


def href(path: str) -> str:
    """A link from the report to a folder of the night."""
    return f"{quote(path)}/"


def _noise(summary: NightSummary) -> list[str]:
    lines = [f"{one.profile}: {one.noise.sentence}" for one in summary.models]
    return ["## Noise floor\n\n" + _list(lines)] if lines else []


GROUPS = Columns[tuple[ModelSummary, GroupRate]](
    {
        "profile": lambda pair: pair[0].profile,
        "tasks of": lambda pair: pair[1].name or f"no {pair[1].by}",
        "tasks": lambda pair: str(pair[1].tasks),
        "pass rate": lambda pair: percent(pair[1].pass_rate),
        "passed": lambda pair: f"{pair[1].passed}/{pair[1].measured}",
        "coverage": lambda pair: percent(pair[1].coverage),
    }
)


def group_tables(summary: NightSummary) -> list[tuple[Grouping, TableRows]]:
    """The kinds of tasks of every profile, by each grouping that the suite has."""
    pairs = [(model, one) for model in summary.models for one in model.groups]
    found = [(by, GROUPS.of(pair for pair in pairs if pair[1].by is by)) for by in Grouping]
    return [(by, table) for by, table in found if table.rows]


def _tasks(summary: NightSummary) -> list[str]:
    parts = []
    for model in summary.models:
        if model.flaky:
            rows = [
                (one.task_id, str(one.count), percent(one.count.rate), f"{one.flips} in {one.iterations}")
                for one in model.flaky
            ]
            parts.append(
                f"## Flaky tasks of {escaped(model.profile)}\n\n" + table(("task", "passed", "rate", "flips"), rows)
            )
        if model.tasks:
            rows = [(one.task_id, str(one.count), one.marks[-SHOWN:]) for one in model.tasks]
            said = "One character per iteration: + passed, x failed, ~ both, . not measured."
            title = f"## Tasks of {escaped(model.profile)}\n\n{said}\n\n"
            parts.append(title + table(("task", "passed", "iterations"), rows))
    return parts


def _validation(summary: NightSummary) -> list[str]:
    found = summary.validation
    if found is None:
        return []
    lines = [found.sentence]
    for one in found.against:
        lines.append(one.sentence)
        for who, side in ((one.profile, one.only_profile), (one.validator, one.only_validator)):
            if side:
                lines.append(f"only {who} solved: {', '.join(f'{s.task_id} ({s.pairs})' for s in side)}")
    return ["## Validation\n\n" + _list(lines)]


def _incidents(summary: NightSummary) -> list[str]:
    parts = []
    if summary.incidents:
        rows = [
            (moment(one.time), word(one.kind), str(one.iteration or "-"), one.said, one.cause or "-")
            for one in summary.incidents[-SHOWN:]
        ]
        parts.append("## Incidents\n\n" + table(("UTC", "what", "iteration", "said", "cause"), rows))
    if summary.quarantined:
        rows = [(f"{one.dataset}/{one.task}", one.reason) for one in summary.quarantined]
        parts.append("## Quarantined tasks\n\n" + table(("task", "why"), rows))
    if summary.scaling:
        rows = [
            (moment(one.time), str(one.workers) if one.workers is not None else "-", one.said)
            for one in summary.scaling[-SHOWN:]
        ]
        parts.append("## Workers\n\n" + table(("UTC", "workers", "why"), rows))
    if summary.problems:
        parts.append("## What could not be read\n\n" + _list(summary.problems))
    return parts


def _lost(summary: NightSummary) -> list[str]:
    if not summary.lost:
        return []
    rows = [
        (str(one.count), one.profile, word(one.outcome), one.error_class or "-", short(one.reason, 160))
        for one in summary.lost[:SHOWN]
    ]
    return ["## Not measured\n\n" + table(("trials", "profile", "outcome", "class", "why"), rows)]
