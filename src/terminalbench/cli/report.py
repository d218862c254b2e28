"""`tbench report`."""

from pathlib import Path

import click

from terminalbench.cli.line import working
from terminalbench.cli.options import PATH, results_option, root_option
from terminalbench.errors import UserError


@click.command("report")
@click.argument("targets", nargs=-1, type=PATH, metavar="[EXPERIMENT.toml|BATCH|JOBS|NIGHT]...")
@click.option("--batch", "numbers", metavar="N|N,M|all", help="Which batches of the experiment. Default: the latest.")
@click.option("--output", "-o", type=PATH, metavar="DIR", help="Default: the batch's analytics/.")
@results_option
@root_option
@working
def command(
    targets: tuple[Path, ...], numbers: str | None, output: Path | None, results: Path | None, root: Path | None
) -> None:
    """Write report.html and comparison_report.md of a batch: one file each, made to be read and passed on.

    Without a target: the newest batch. The report is about the newest of the batches that are named; several give a
    trend. What tbench analyze found is part of it. Of the folder of a night the morning report is written anew, there.
    """
    if (night := _night(targets)) is not None:
        if numbers is not None or output is not None:
            raise UserError("the report of a night is written into its folder", hint="leave --batch and --output out")
        _report_night(night)
        return
    from terminalbench.cli.select import noted
    from terminalbench.lab.report import report
    from terminalbench.lab.select import select, select_numbered
    from terminalbench.text.paths import from_here

    if numbers is None:
        selected = select(*targets, results=results, root=root)
    elif len(targets) == 1 and not targets[0].is_dir():
        selected = select_numbered(targets[0], numbers, results, root)
    else:
        raise UserError("--batch goes with one experiment file", hint="name the batch folders instead")
    page, text = report(noted(selected), output.resolve() if output else None)
    click.echo(f"{from_here(page)}\n{from_here(text)}")


def _night(targets: tuple[Path, ...]) -> Path | None:
    """The folder of a night, if that is what is named; also of one whose files are broken, which the report says."""
    from terminalbench.overnight.nights import is_night

    return targets[0] if len(targets) == 1 and is_night(targets[0]) else None


def _report_night(place: Path) -> None:
    from terminalbench.overnight.folder import NightFolder
    from terminalbench.overnight.nights import config_of
    from terminalbench.overnight.summary import project_night
    from terminalbench.text.foreign import printable
    from terminalbench.text.paths import from_here

    folder = NightFolder(place)
    config_of(folder)
    for line in project_night(folder).headlines:
        click.echo(printable(line))
    click.echo(f"{from_here(folder.report_html)}\n{from_here(folder.report_md)}")
