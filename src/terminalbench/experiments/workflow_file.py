"""The guarded workflow that a profile names: found, checked strictly, and its texts taken."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from terminalbench.errors import InvalidFile, UserError
from terminalbench.experiments.agents import AgentInfo
from terminalbench.experiments.profiles import WorkflowTexts
from terminalbench.strict import Problems, find_path


@contextmanager
def _importing_from(root: Path) -> Generator[None]:
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.path.remove(str(root))


_WITHOUT_TEMPERATURE = "claude-code"
"""The chat model that cannot be given a temperature."""


def read_workflow(
    spec: str | None, agent: AgentInfo, root: Path, where: str, problems: Problems, model: str | None = None
) -> WorkflowTexts | None:
    """The workflow called `spec`; None for an agent that runs none. Problems in it are noted at the key that names it.

    Guards of the project are looked for from its root, as they are when a trial runs. `model` has to take the
    temperatures of the workflow; None where the profile fixes one.
    """
    if not agent.workflow:
        return None
    from terminalbench.workflow import load  # only experiments with workflows pay for it

    if spec is None:
        hint = f"name a shipped one or a file; shipped: {', '.join(load.shipped())}"
        problems.add(where, f"agent {agent.name} needs a workflow", hint)
        return None
    if find_path(spec, root, where, problems) is None:
        return None
    try:
        path = load.place(spec, root)
        texts = load.read_texts(path)
        with _importing_from(root):
            found = load.from_texts(texts, str(path))
    except InvalidFile as error:
        for problem in error.problems:
            problems.add(where, f"{error.where}: {problem.key}: {problem.what}", problem.hint)
        return None
    except UserError as error:
        problems.add(where, f"{error.where}: {error.what}" if error.where else error.what, error.hint)
        return None
    steps = found.steps.values()
    warm = any(value for step in steps for value in (step.temperature, step.retry_temperature))
    if warm and (model or "").partition(":")[0] == _WITHOUT_TEMPERATURE:
        told = f"the workflow asks at temperatures above 0, which {model} cannot be given"
        problems.add(where, told, "set options.temperature = 0, or choose another model")
    return WorkflowTexts(
        spec, path, dict(texts), path.parent == load.SHIPPED, found.oracle, tuple(load.foreign_guards(found))
    )
