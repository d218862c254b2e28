"""One tiny call to a model, to see that its endpoint answers: in a process of its own, with a profile's variables.

Keys come through its environment and are never written.
"""

import time

import msgspec

_TIMEOUT_SEC = 30


class EndpointRequest(msgspec.Struct, frozen=True):
    """The model as LiteLLM names it, and where it is, when it is not at its provider's."""

    model: str
    api_base: str | None = None


class EndpointReport(msgspec.Struct, frozen=True):
    """The answer of an endpoint: its time, or its error."""

    answered: bool
    seconds: float
    problem: str | None = None


def ask(request: EndpointRequest) -> EndpointReport:
    """Call the model for one token."""
    import litellm

    from terminalbench.secrets.values import safe_message

    litellm.suppress_debug_info = True
    started = time.monotonic()
    try:
        litellm.completion(
            model=request.model,
            api_base=request.api_base,
            messages=[{"role": "user", "content": "Answer with the word ok."}],
            max_tokens=1,
            timeout=_TIMEOUT_SEC,
            num_retries=0,
        )
    except Exception as error:  # noqa: BLE001  providers raise anything; its message is the finding
        return EndpointReport(False, time.monotonic() - started, safe_message(f"{type(error).__name__}: {error}"))
    return EndpointReport(True, time.monotonic() - started)
