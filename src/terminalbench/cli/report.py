"""`tbench report` and `tbench view`."""

import os
from pathlib import Path

import click

from terminalbench.cli.options import PATH, results_option, root_option
from terminalbench.cli.output import working
from terminalbench.errors import UserError
from terminalbench.text.foreign import printable
from terminalbench.text.names import from_here


@click.command("report")
@click.argument("targets", nargs=-1, type=PATH, metavar="[EXPERIMENT.toml|BATCH|JOBS|NIGHT]...")
@click.option(
    "--batch", "numbers", metavar="N|N,M|all", help="Numbers of the batches of the experiment. Default: the latest."
)
@click.option("--output", "-o", type=PATH, metavar="DIR", help="Default: the batch's analytics/.")
@click.option(
    "--pictures",
    is_flag=True,
    help="Also write the charts as files: SVG, and PNG if rsvg-convert, Inkscape or Chromium is installed.",
)
@results_option
@root_option
@working
def report_command(
    targets: tuple[Path, ...],
    numbers: str | None,
    output: Path | None,
    pictures: bool,
    results: Path | None,
    root: Path | None,
) -> None:
    """Write report.html and comparison_report.md of a batch: one self-contained file each, made for sharing.

    Without a target: the newest batch. The report covers the newest of the batches that you name; several add a
    trend. It includes what tbench analyze found. For the folder of a night, it writes the morning report again,
    in that folder.
    """
    if (night := _night(targets)) is not None:
        if numbers is not None or output is not None or pictures:
            hint = "leave out --batch, --output and --pictures"
            raise UserError("the report of a night is written into its folder", hint=hint)
        _report_night(night)
        return
    from terminalbench.cli.options import noted
    from terminalbench.lab.analyze import report
    from terminalbench.lab.select import select, select_numbered

    if numbers is None:
        selected = select(*targets, results=results, root=root)
    elif len(targets) == 1 and not targets[0].is_dir():
        selected = select_numbered(targets[0], numbers, results, root)
    else:
        raise UserError("--batch works only with one experiment file", hint="name the batch folders instead")
    page, text = report(noted(selected), output.resolve() if output else None, pictures=pictures)
    click.echo(f"{from_here(page)}\n{from_here(text)}")
    if pictures:
        from terminalbench.report.pictures import FOLDER, PAINTERS, painter

        folder = page.parent / FOLDER
        made = sorted(file.name for file in folder.glob("*.*g"))
        click.echo(f"{from_here(folder)}: {', '.join(made) or 'there is no data for a chart'}")
        if made and painter() is None:
            click.echo(f"PNG charts were not written: none of {', '.join(PAINTERS)} is installed", err=True)


def _night(targets: tuple[Path, ...]) -> Path | None:
    """The folder of a night, if that is what is named; also of one whose files are broken, which the report says."""
    from terminalbench.overnight.nights import is_night

    return targets[0] if len(targets) == 1 and is_night(targets[0]) else None


def _report_night(place: Path) -> None:
    from terminalbench.overnight.folder import NightFolder
    from terminalbench.overnight.nights import config_of
    from terminalbench.overnight.summary import project_night

    folder = NightFolder(place)
    config_of(folder)
    for line in project_night(folder).headlines:
        click.echo(printable(line))
    click.echo(f"{from_here(folder.report_html)}\n{from_here(folder.report_md)}")


PORT = 8642


@click.command("view")
@click.argument("results", type=PATH, metavar="[RESULTS]", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, help="Port; 0 takes any free port.")
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on. With any address but loopback, other machines can connect.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the dashboard in a browser.")
@click.option(
    "--export",
    "export_to",
    type=PATH,
    metavar="DIR|FILE.zip",
    help="Write a static site instead of serving the dashboard; a name that ends in .zip makes one small file to send.",
)
def view_command(results: Path | None, port: int, host: str, open_browser: bool, export_to: Path | None) -> None:
    """Show the results in a browser: batches, profiles, trials step by step. It only reads.

    RESULTS is the results folder. Default: results/ of the project that the current folder belongs to.
    """
    from terminalbench.dashboard.site import Site
    from terminalbench.lab.select import results_root

    site = Site(results_root(results))
    if export_to is not None:
        from terminalbench.dashboard.answers import export_site, export_zip
        from terminalbench.text.numbers import plural

        packed = export_to.suffix == ".zip"
        done = working(export_zip if packed else export_site)(site, export_to)
        made = f"{plural(done.pages, 'page')} and {plural(done.files, 'file')}"
        click.echo(f"{made} in {export_to}: {'unpack it and ' if packed else ''}open {_opened(export_to)}")
        for line in done.left_out:
            click.echo(f"left out: {line}", err=True)
        return
    from terminalbench.dashboard.app import make_access
    from terminalbench.dashboard.serve import serve

    access = make_access(host, _token())

    def ready(address: str, once: str) -> None:
        click.echo(f"{address}   (Ctrl-C ends it)")
        if open_browser:
            click.launch(once)  # its command line can be read by every user of this machine

    click.echo(str(site.root))
    serve(site, access, port, ready)


def _opened(target: Path) -> Path:
    return Path(target.stem) / "index.html" if target.suffix == ".zip" else target / "index.html"


def _token() -> str | None:
    from terminalbench.dashboard.app import TOKEN_VARIABLE

    token = os.environ.get(TOKEN_VARIABLE)
    if token is None:
        return None
    if len(token) < 16 or not all(c.isascii() and (c.isalnum() or c in "-_") for c in token):
        raise UserError("must be at least 16 letters, digits, - or _", where=TOKEN_VARIABLE)
    return token
