"""A trial of Harbor as far as the watch of its agent looks at one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any


async def _nothing(*_: Any) -> None:
    pass


def stub_trial(agent: Any, **network: Any) -> SimpleNamespace:
    """Return a trial of an agent in an environment that does nothing."""
    agent.extra_env = getattr(agent, "extra_env", {})
    environment = SimpleNamespace(import_path=None, kwargs={"network": network} if network else {})
    return SimpleNamespace(
        agent=agent,
        agent_environment=SimpleNamespace(exec=_nothing, upload_file=_nothing, upload_dir=_nothing),
        config=SimpleNamespace(agent=SimpleNamespace(kwargs={}), environment=environment),
        paths=SimpleNamespace(trial_dir=Path("/nowhere")),
    )
