"""A profile's model that is a file: found from the project's root on, and refused for an agent that cannot ask it."""

from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.experiments.agents import AgentInfo
from terminalbench.llm.local.spec import is_local, parse_local
from terminalbench.strict import Problems

TERMINUS = "terminus-2"
"""Harbor's agent that asks its model from the host."""
_TERMINUS_CLASS = "terminalbench.harbor.agents.local_terminus:LocalTerminus"
_IN_SANDBOX = "claude-code"


def whole_model(model: str | None, agent: AgentInfo, root: Path, where: str, problems: Problems) -> str | None:
    """The model, one that is a file by its whole path. What is wrong with it is noted at the key that names it."""
    if not is_local(model):
        return model
    try:
        found = parse_local(model, root)
    except UserError as error:
        problems.add(where, error.what, error.hint)
        return None
    if found.path.is_dir():
        problems.add(where, f"{found.path} is a folder", "name the .gguf file in it")
        return None
    if not found.path.is_file():
        problems.add(where, f"there is no model file {found.path}", "name a .gguf file: local:FILE.gguf")
        return None
    if agent.name != TERMINUS and (agent.import_path is None or agent.name == _IN_SANDBOX):
        problems.add(where, f"agent {agent.name} cannot use a local: model", "guarded, ollama and terminus-2 do")
        return None
    return str(found)


def agent_class(agent: AgentInfo, model: str | None) -> str | None:
    """The import path of an agent; None for one that Harbor knows by name."""
    return _TERMINUS_CLASS if agent.name == TERMINUS and is_local(model) else agent.import_path
