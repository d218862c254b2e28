"""From the name of a chat model to the model."""

import inspect

from terminalbench import registry
from terminalbench.errors import UserError
from terminalbench.llm.model import ChatModel, Options

KIND = "chat models"
WITH_ARGUMENT = ("litellm", "ollama", "replay")


def chat_model(spec: str, options: Options | None = None) -> ChatModel:
    """The model that `spec` names: `ollama:NAME`, `claude-code[:NAME]`, `replay:FILE`, an installed part,
    `pkg.mod:Class`, else a LiteLLM name. Nothing is called yet. A class that takes no `options` is given none.
    """
    name, colon, argument = spec.partition(":")
    if not spec.strip():
        raise UserError("the model's name is empty")
    if name in WITH_ARGUMENT and not argument:
        raise UserError(f'"{spec}" names no model', hint=f'write "{name}:{"FILE" if name == "replay" else "NAME"}"')
    if name in registry.names(KIND):
        kind, arguments = registry.resolve(KIND, name), [argument] if colon else []
    elif registry.is_import_path(spec):
        kind, arguments = registry.resolve(KIND, spec), []
    else:
        kind, arguments = registry.resolve(KIND, "litellm"), [spec]
    if options is not None and "options" not in inspect.signature(kind).parameters:
        raise UserError(f'"{spec}" takes no options', hint="let its constructor take `options`, or ask without any")
    model = kind(*arguments) if options is None else kind(*arguments, options=options)
    if not isinstance(model, ChatModel):
        raise UserError(f'"{spec}" is not a chat model', hint="derive it from terminalbench.llm.model.ChatModel")
    return model
