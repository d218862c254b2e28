"""`tbench swebench-pro analyze-errors`."""

from pathlib import Path

import click

from terminalbench.cli.options import PATH
from terminalbench.cli.swebench_pro.options import results_file_option
from terminalbench.errors import EXIT_OK


@click.command("analyze-errors")
@results_file_option
@click.option("--output-dir", type=PATH, metavar="DIR", help="Where to write. Default: the folder of the results.")
@click.option(
    "--traces/--no-traces", default=True, show_default=True, help="Read the traces too: retries and escalations."
)
def command(results: Path, output_dir: Path | None, traces: bool) -> int:
    """Say why runs did not resolve their instance: by arm and final guard, with every retry and escalation.

    Writes final_error_analysis_<time>.md and final_errors_<time>.json; the last of each is also called latest. Results
    of AtomicGuard are read too.
    """
    from datetime import UTC, datetime

    from terminalbench.swebench_pro.error_analysis import analyze
    from terminalbench.swebench_pro.error_report import summary, write
    from terminalbench.text.paths import typed

    found = analyze(results, traces=traces)
    written = write(found, output_dir or results.parent, datetime.now(UTC))
    for line in summary(found):
        click.echo(line)
    click.echo(f"\nreport: {typed(written.report)}\nfor programs: {typed(written.errors)}")
    return EXIT_OK
