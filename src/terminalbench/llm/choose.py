"""From the name of a chat model to the model."""

from terminalbench import registry
from terminalbench.errors import UserError
from terminalbench.llm.model import ChatModel

KIND = "chat models"
WITH_ARGUMENT = ("litellm", "ollama", "replay")


def chat_model(spec: str) -> ChatModel:
    """The model that `spec` names: `ollama:NAME`, `claude-code[:NAME]`, `replay:FILE`, an installed part,
    `pkg.mod:Class`, else a LiteLLM name. Nothing is called yet.
    """
    name, colon, argument = spec.partition(":")
    if not spec.strip():
        raise UserError("the model's name is empty")
    if name in WITH_ARGUMENT and not argument:
        raise UserError(f'"{spec}" names no model', hint=f'write "{name}:{"FILE" if name == "replay" else "NAME"}"')
    if name in registry.names(KIND):
        kind = registry.resolve(KIND, name)
        model = kind(argument) if colon else kind()
    elif registry.is_import_path(spec):
        model = registry.resolve(KIND, spec)()
    else:
        model = registry.resolve(KIND, "litellm")(spec)
    if not isinstance(model, ChatModel):
        raise UserError(f'"{spec}" is not a chat model', hint="derive it from terminalbench.llm.model.ChatModel")
    return model
