"""`tbench analyze`."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.options import ListCommand, profiles_option, root_option, tasks_option
from terminalbench.cli.places import results_option
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK, UserError

if TYPE_CHECKING:
    from terminalbench.analytics.run import AnalysisResult, Picked
    from terminalbench.analytics.views import Filter, Only
    from terminalbench.experiments.batch import Batch
    from terminalbench.experiments.config import Experiment

_REFRESH_SEC = 0.2
_MISSING_SHOWN = 12


@click.command("analyze", cls=ListCommand)
@click.argument("experiment", type=click.Path(path_type=Path), metavar="[EXPERIMENT.toml|BATCH|JOBS]", required=False)
@click.option("--batch", metavar="N|N,M|all", help="Which batches of the experiment. Default: the latest with data.")
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="DIR", help="Where to write.")
@tasks_option
@profiles_option
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only N trials, drawn at random.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of --limit.")
@click.option("--succeeded", is_flag=True, help="Only trials that passed.")
@click.option("--failed", is_flag=True, help="Only trials that ran and did not pass.")
@click.option("--list", "only_list", is_flag=True, help="List the trials that would be analysed, and stop.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
@results_option
@root_option
def command(
    experiment: Path | None,
    batch: str | None,
    output: Path | None,
    results: Path | None,
    root: Path | None,
    only_list: bool,
    quiet: bool,
    **chosen: Any,
) -> int:
    """Find out what each trial did, and write tables of it to the batch's analytics folder.

    Takes an experiment file, a batch folder, or any folder of Harbor jobs; without one, the newest batch. Trials that
    were analysed before are not read again. Exit code 3: something could not be analysed, and it is said what.
    """
    from terminalbench.analytics.run import AnalysisRequest, pick, run_analysis

    target = find_batches_of(experiment, batch, results, root)
    wanted = _filter(chosen)
    if only_list:
        click.echo(_listing(pick(target.batches, wanted)))
        return EXIT_OK
    loaded = target.experiment
    request = AnalysisRequest(
        batches=target.batches,
        wanted=wanted,
        output=output.resolve() if output is not None else None,
        analyzers=tuple(loaded.analysis.analyzers) if loaded is not None else (),
        import_root=target.import_root,
        progress=Teller(quiet).progress,
    )
    result = run_analysis(request)
    if not quiet:
        click.echo(_summary(result))
    return EXIT_INCOMPLETE if result.incomplete else EXIT_OK


class Batches:
    """The batches a command means, the experiment they were named by, and where its own modules are."""

    def __init__(self, batches: "Sequence[Batch]", experiment: "Experiment | None", import_root: Path) -> None:
        self.batches = tuple(batches)
        self.experiment = experiment
        self.import_root = import_root


def find_batches_of(name: Path | None, numbers: str | None, results: Path | None, root: Path | None) -> Batches:
    """The batches that are meant: of an experiment file, a batch folder, a folder of Harbor jobs, or the newest one."""
    from terminalbench.analytics.views import find_jobs
    from terminalbench.cli.targets import find_target
    from terminalbench.experiments.config import load, project_root

    if name is not None and not name.is_dir() and name.suffix == ".toml":
        loaded = load(name, root)
        return Batches(_numbered(loaded, numbers), loaded, loaded.root)
    if numbers is not None:
        raise UserError("--batch goes with an experiment file", hint="name the batch folder instead")
    found = find_target(None, None, results, root).batch if name is None else find_jobs(name)
    return Batches([found], None, project_root(found.folder / "any.toml", root))


def _numbered(experiment: "Experiment", numbers: str | None) -> "list[Batch]":
    from terminalbench.experiments.batch import Batch, batch_numbers, latest, latest_started

    folder, slug = experiment.results_root, experiment.slug
    if numbers is None:
        found = latest(folder, slug) or latest_started(folder, slug)
        if found is None:
            raise UserError(
                f"{slug} has no batch yet", where=str(experiment.file), hint=f"tbench run {experiment.file}"
            )
        return [found]
    there = [n for n in batch_numbers(folder, slug) if (folder / slug / str(n) / "plan.json").is_file()]
    if numbers == "all":
        wanted = there
    else:
        parts = [part.strip() for part in numbers.split(",")]
        if not all(part.isdecimal() for part in parts):
            raise UserError(f'--batch is a number, several with commas, or "all"; not "{numbers}"')
        wanted = list(dict.fromkeys(map(int, parts)))
    missing = [str(number) for number in wanted if number not in there]
    if missing or not wanted:
        known = ", ".join(map(str, there)) or "none"
        raise UserError(
            f"there is no batch {', '.join(missing)} of {slug}", where=str(folder), hint=f"batches: {known}"
        )
    return [Batch(folder / slug / str(number)) for number in wanted]


def _filter(chosen: dict[str, Any]) -> "Filter":
    from terminalbench.analytics.views import Filter

    if chosen["succeeded"] and chosen["failed"]:
        raise click.UsageError("--succeeded and --failed exclude each other")
    only: Only | None = "succeeded" if chosen["succeeded"] else "failed" if chosen["failed"] else None
    return Filter(chosen["tasks"], chosen["profiles"], only, chosen["limit"], chosen["seed"])


def _listing(chosen: "Sequence[Picked]") -> str:
    from terminalbench.report.text import columns

    rows = [["batch", "task", "profile", "attempt", "outcome", "trial"]]
    for part in chosen:
        for cell in part.cells:
            name = cell.row.name if cell.row is not None else "-"
            rows.append([part.view.batch, cell.task.id, cell.profile, str(cell.attempt), str(cell.outcome), name])
    return columns(rows, left=(0, 1, 2, 4, 5))


def _summary(result: "AnalysisResult") -> str:
    from terminalbench.report.text import columns, percent

    head = ["profile", "passed", "coverage", "pass rate", "calls", "errors", "loops", "backtracks", "tested", "flagged"]
    rows = [head]
    for profile, metrics in result.profiles.items():
        spread = metrics.measures
        rows.append(
            [
                profile,
                str(metrics.passed),
                f"{metrics.measured}/{metrics.planned}",
                percent(metrics.passed, metrics.measured),
                *(_mean(spread[name].mean) for name in ("tool_calls", "tool_errors", "loops", "backtracks")),
                _share(spread["tested_before_finish"].mean),
                str(len(metrics.flagged)),
            ]
        )
    lines = [f"{result.planned} trials: {result.read} read, {result.reused} unchanged", "", columns(rows)]
    classes = [
        [profile, what, str(n)] for profile, m in result.profiles.items() for what, n in m.failure_classes.items()
    ]
    if classes:
        lines += ["", columns([["profile", "failure class", "trials"], *classes], left=(0, 1))]
    if result.missing:
        lines += ["", *(f"missing: {line}" for line in result.missing[:_MISSING_SHOWN])]
        rest = len(result.missing) - _MISSING_SHOWN
        lines += [f"missing: and {rest} further lines in aggregate_metrics.json"] if rest > 0 else []
    lines += ["", *(f"note: {line}" for line in result.notes[:_MISSING_SHOWN])] if result.notes else []
    return "\n".join([*lines, "", f"written to {_place(result.output)}"])


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _place(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


class Teller:
    """One line while it works, only for a person at a terminal."""

    def __init__(self, quiet: bool) -> None:
        self.live = sys.stderr.isatty() and not quiet
        self.last = time.monotonic()

    def progress(self, done: int, total: int) -> None:
        """Show how far it is."""
        if not self.live:
            return
        now = time.monotonic()
        if done == total:
            click.echo("\r\033[K", nl=False, err=True)
        elif now - self.last > _REFRESH_SEC:
            self.last = now
            click.echo(f"\r\033[Kanalysing {done}/{total}", nl=False, err=True)
