"""`tbench swebench-pro import`."""

from pathlib import Path

import click

from terminalbench.cli.options import PATH
from terminalbench.errors import EXIT_OK, UserError


@click.command("import")
@click.argument("folder", type=PATH, metavar="DIR")
@click.option("--output-dir", type=PATH, required=True, metavar="DIR", help="Where to write; not the folder itself.")
def command(folder: Path, output_dir: Path) -> int:
    """Read results of AtomicGuard (results.jsonl, artifact_dags/) and write them as ours.

    analyze-errors and visualize read what is written. Tokens are summed over all artifacts, rejected ones too; a run
    that left no patch is a failure, whatever its row says.
    """
    from terminalbench.swebench_pro.legacy import read_legacy
    from terminalbench.swebench_pro.projections import write
    from terminalbench.text.numbers import plural, tokens
    from terminalbench.text.paths import typed

    if output_dir.resolve() == folder.resolve():
        raise UserError("the folder itself is left as it is", where=str(folder), hint="name another --output-dir")
    found = read_legacy(folder)
    made = write(found.sources, output_dir)
    click.echo(f"{plural(made.rows, 'run')}, {plural(made.traces, 'graph')}: {typed(made.results)}")
    if found.tokens_in_rows != found.tokens_in_artifacts:
        click.echo(f"tokens: {tokens(found.tokens_in_rows)} in the rows, {tokens(found.tokens_in_artifacts)} in all")
    if found.failed_as_success:
        click.echo(f"failures that their rows do not call so: {found.failed_as_success}")
    for what, many in (("line", found.bad_lines), ("artifact", found.bad_objects)):
        if many:
            click.echo(f"{plural(many, what)} could not be read", err=True)
    return EXIT_OK
