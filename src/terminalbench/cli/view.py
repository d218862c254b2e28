"""`tbench view`."""

import os
from pathlib import Path

import click

from terminalbench.cli.line import working
from terminalbench.cli.options import PATH
from terminalbench.errors import UserError

PORT = 8642


@click.command("view")
@click.argument("results", type=PATH, metavar="[RESULTS]", required=False)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Any but a loopback one lets other machines ask.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open it in a browser.")
@click.option(
    "--export",
    "export_to",
    type=PATH,
    metavar="DIR|FILE.zip",
    help="Write it as a static site instead of serving it; as a .zip it is one small file to send.",
)
def command(results: Path | None, port: int, host: str, open_browser: bool, export_to: Path | None) -> None:
    """Show the results in a browser: batches, profiles, trials step by step. It only reads.

    RESULTS is the results folder. Default: results/ of the project around the current folder.
    """
    from terminalbench.dashboard.site import Site
    from terminalbench.lab.select import results_root

    site = Site(results_root(results))
    if export_to is not None:
        from terminalbench.dashboard.export import export_site, export_zip
        from terminalbench.text.numbers import plural

        packed = export_to.suffix == ".zip"
        done = working(export_zip if packed else export_site)(site, export_to)
        made = f"{plural(done.pages, 'page')} and {plural(done.files, 'file')}"
        click.echo(f"{made} in {export_to}: {'unpack it and ' if packed else ''}open {_opened(export_to)}")
        for line in done.left_out:
            click.echo(f"left out: {line}", err=True)
        return
    from terminalbench.dashboard.security import make_access
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
    from terminalbench.dashboard.security import TOKEN_VARIABLE

    token = os.environ.get(TOKEN_VARIABLE)
    if token is None:
        return None
    if len(token) < 16 or not all(c.isascii() and (c.isalnum() or c in "-_") for c in token):
        raise UserError("must be at least 16 letters, digits, - or _", where=TOKEN_VARIABLE)
    return token
