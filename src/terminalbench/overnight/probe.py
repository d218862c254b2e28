"""One tiny question to a chat model, in a process of its own: the clients of providers are large, and a night is long.

Keys come through its environment and are never written.
"""

import msgspec

from terminalbench.errors import UserError
from terminalbench.llm.model import Message, ModelError, Options, chat_model

_TOKENS = 16
"""The longest answer: some providers refuse to be asked for less."""


class ProbeRequest(msgspec.Struct, frozen=True):
    """The model as `llm` names it. `short`: it can be asked for a short answer."""

    model: str
    short: bool = True


class ProbeReport(msgspec.Struct, frozen=True):
    """The model that answered; else what is wrong, and the next step."""

    model: str | None = None
    what: str | None = None
    hint: str | None = None


def probe(request: ProbeRequest) -> ProbeReport:
    """Ask, once."""
    try:
        model = chat_model(request.model, Options(output_tokens=_TOKENS) if request.short else Options())
        model.ready()
        reply = model.ask([Message("user", "Answer with the word ok.")])
    except (ModelError, UserError) as error:
        return ProbeReport(what=error.what, hint=error.hint)
    return ProbeReport(model=reply.model)
