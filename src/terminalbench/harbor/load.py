"""Everything that a Harbor process of ours loads before its first trial, at once."""

import importlib
import os
from typing import Any

_MODULES = (
    "harbor.job", "harbor.trial.trial", "harbor.trial.single_step", "harbor.agents.installed.base",
    "harbor.cli.job_sharing", "terminalbench.harbor.plugin", "terminalbench.harbor.verifier",
    "terminalbench.harbor.preflight", "terminalbench.harbor.remote_tasks",
    "terminalbench.harbor.agents.simulated",
    "terminalbench.sandbox.environment", "rich._emoji_codes", "encodings.ascii",
)  # fmt: skip


def load() -> Any:
    """Load Harbor and what is ours in it; `harbor run`, which reads `sys.argv` when it is called.

    No other part of Harbor's command is loaded: its tables of all commands took a third of the time.
    """
    import typer
    from harbor.cli.jobs import start

    # `scantree`, which `dirhash` loads, asks git for its version: for all commits and changes of the project around it.
    path, os.environ["PATH"] = os.environ.get("PATH", os.defpath), os.devnull
    importlib.import_module("dirhash")
    os.environ["PATH"] = path
    for name in _MODULES:
        importlib.import_module(name)
    app = typer.Typer()
    app.callback()(lambda: None)  # with it `run` is a word of the command line, as in Harbor's own
    app.command("run")(start)
    command: Any = typer.main.get_command(app)
    for option in command.commands["run"].params:
        option.get_runtime_param()  # made at the first use otherwise, by each process
    return command
