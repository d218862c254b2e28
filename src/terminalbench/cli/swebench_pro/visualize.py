"""`tbench swebench-pro visualize`."""

from pathlib import Path

import click

from terminalbench.cli.options import PATH
from terminalbench.cli.swebench_pro.options import results_file_option
from terminalbench.errors import EXIT_OK


@click.command("visualize")
@results_file_option
@click.option("--resolved", type=PATH, metavar="FILE", help="Verdicts of an evaluation (resolved.json), taken instead.")
@click.option("--output-dir", type=PATH, metavar="DIR", help="Where charts/ is written. Default: beside the results.")
def command(results: Path, resolved: Path | None, output_dir: Path | None) -> int:
    """Draw results: pass rates with intervals, cost, tokens per step, wall time, outcomes, paired effects.

    Writes charts/*.svg and charts/index.html, which needs nothing else. Statistics and denominators are those of tbench
    compare; an arm that sees the hidden verdict is left out.
    """
    draw(results, output_dir or results.parent, resolved)
    return EXIT_OK


def draw(results: Path, output: Path, resolved: Path | None = None) -> None:
    """Write the charts of a results file below a folder, and say where."""
    from terminalbench.swebench_pro.rows import read_results
    from terminalbench.swebench_pro.visualize import FOLDER, make_charts, with_verdicts, write
    from terminalbench.text.paths import typed

    found = read_results(results)
    charts = make_charts(with_verdicts(found.rows, resolved), found.bad_lines)
    for note in charts.notes:
        click.echo(note, err=True)
    page = write(charts, output / FOLDER, str(results))
    for contrast in charts.comparison.contrasts:
        click.echo(contrast.sentence)
    click.echo(f"charts: {typed(page)}")
