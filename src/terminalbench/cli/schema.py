"""`tbench schema`."""

import click

from terminalbench.errors import EXIT_OK


@click.command("schema")
@click.option("--markdown", is_flag=True, help="Print the documentation of every key instead.")
def command(markdown: bool) -> int:
    """Print the JSON Schema of the experiment file, for editors.

    In VS Code with Even Better TOML: save it as experiment.schema.json and start the TOML with
    "#:schema ./experiment.schema.json".
    """
    from terminalbench.experiments.schema import json_schema, key_tables

    if markdown:
        click.echo(key_tables(), nl=False)
        return EXIT_OK
    import json

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return EXIT_OK
