"""`tbench completion`."""

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell; load it with: eval "$(tbench completion bash)"."""
    from terminalbench.cli.app import app

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(app, {}, "tbench", "_TBENCH_COMPLETE").source())
