"""`tbench memory check`."""

from pathlib import Path

import click

from terminalbench.cli.options import json_option, root_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK


@click.command("check")
@root_option
@click.option("--repair", "mend", is_flag=True, help="Write the log anew with what can be read; the old one is kept.")
@json_option
def command(root: Path | None, mend: bool, as_json: bool) -> int:
    """Check the log line by line: entries that are missing, were edited, or cannot be read.

    Exit code 3 when there are any. With --repair they are left out, what was edited counts as it reads now, and the log
    as it was is kept beside the new one.
    """
    from terminalbench.archivist.store import ProblemKind, open_store, repair
    from terminalbench.experiments.project import project_root
    from terminalbench.text.numbers import plural
    from terminalbench.text.paths import typed

    folder = project_root(Path.cwd() / "any.toml", root) / ".terminalbench"
    done = repair(folder) if mend else None
    with open_store(folder) as store:
        found = store.problems()
        entries = store.connection.execute("SELECT count(*) FROM entries").fetchone()[0]
        log = store.place.log
    bad = [one for one in found if one.kind is not ProblemKind.CUT_OFF]
    if as_json:
        print_json({"log": log, "entries": entries, "problems": found, "repair": done})
        return EXIT_INCOMPLETE if bad else EXIT_OK
    if done is not None:
        click.echo(f"repaired: {plural(done.kept, 'entry', 'entries')} kept; the log as it was: {typed(done.copy)}")
        click.echo("".join(f"left out: {what}\n" for what in done.left_out), nl=False)
    elif mend:
        click.echo("nothing to repair")
    for one in found:
        click.echo(f"{one.kind}: {one.what}")
    click.echo(f"{log}: {plural(entries, 'entry', 'entries')}, {plural(len(bad), 'problem')}")
    if bad:
        click.echo("tbench memory check --repair leaves out what cannot be used", err=True)
    return EXIT_INCOMPLETE if bad else EXIT_OK
