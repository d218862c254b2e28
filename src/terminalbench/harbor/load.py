"""Everything that a Harbor process of ours loads before its first trial, at once."""

import importlib
from typing import Any

_MODULES = (
    "harbor.job", "harbor.trial.trial", "harbor.trial.single_step", "harbor.agents.installed.base",
    "harbor.cli.job_sharing", "terminalbench.harbor.plugin", "terminalbench.harbor.verifier",
    "terminalbench.harbor.preflight", "terminalbench.harbor.lookup", "terminalbench.harbor.download",
    "terminalbench.harbor.agents.simulated",
    "terminalbench.sandbox.environment", "dirhash", "rich._emoji_codes", "encodings.ascii",
)  # fmt: skip


def load() -> Any:
    """Load Harbor and what is ours in it; the command `harbor`, which reads `sys.argv` when it is called."""
    import typer
    from harbor.cli.main import app

    for name in _MODULES:
        importlib.import_module(name)
    return typer.main.get_command(app)
