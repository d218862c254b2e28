"""`tbench models`."""

import os
from pathlib import Path

import click

from terminalbench.cli.commands import group
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json


@group("models", __name__)
def command() -> None:
    """The models, as profiles, judges and nights name them."""


@click.command("check")
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
@json_option
def check_command(specs: tuple[str, ...], as_json: bool) -> int:
    """Send models a short question: does each answer, how fast, and can it call tools?

    \b
    SPEC is a model as a judge or a profile names it:
      local:FILE.gguf[,num_ctx=N]   a file of this machine (extra local-model)
      ollama:NAME:TAG               a model of an Ollama server
      claude-code[:NAME]            the Claude Code CLI
      PROVIDER/NAME                 any LiteLLM name

    Keys come from the environment and from experiments/.env of the project, which wins. Each model is asked two
    or three questions, which a paid model bills. Exit code 1: one does not answer; 2: one does not exist, or its
    key or extra is missing.
    """
    from terminalbench.llm.check import check_model
    from terminalbench.overnight.models import model_environment

    os.environ.update(model_environment(Path.cwd()))
    reports = []
    for spec in specs:
        report = check_model(spec)
        reports.append(report)
        if not as_json:
            click.echo("\n".join(report.lines()), err=report.problem is not None)
    if as_json:
        print_json(reports)
    return max(report.exit_code for report in reports)
