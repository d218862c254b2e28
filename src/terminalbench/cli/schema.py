"""`tbench schema`."""

import click


@click.command("schema")
@click.option("--markdown", is_flag=True, help="Print the documentation of every key instead.")
def command(markdown: bool) -> None:
    """Print the JSON Schema of the experiment file, for editors.

    In VS Code with Even Better TOML: save it as experiment.schema.json and start the TOML with
    "#:schema ./experiment.schema.json".
    """
    import json

    from terminalbench.experiments.schema import json_schema, key_tables

    text = key_tables() if markdown else json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    click.echo(text, nl=False)
