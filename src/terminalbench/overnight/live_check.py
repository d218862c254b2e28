"""Whether models can be used now, asked of those who serve them: before a night, and again before each iteration.

A model is refused by what is wrong with it; none is replaced by another. What is found out are the facts of a night.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.agents import agent_info
from terminalbench.llm.check import CALL, PING
from terminalbench.llm.local.spec import parse_local
from terminalbench.llm.model import Message, ModelError, ModelFault, Options, chat_model
from terminalbench.llm.ollama import WINDOW, ChatReply, OllamaServer, ServedModel, server_url
from terminalbench.registry import import_path
from terminalbench.runner.executors.local import ask

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


_LOAD_SEC = 600.0
"""How long a server may take to load a model and begin its answer."""
_PROBE_SEC = 180.0
_TOOL_TOKENS = 256


def ollama_facts(
    spec: str, name: str, endpoint: str | None, options: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, str]:
    """Health, the exact tag and its digest, the window, a token, and whether it calls tools. Raises `UserError`."""
    server = OllamaServer(ollama_url(endpoint, environment), _LOAD_SEC)
    try:
        version, served = server.version(), server.find(name)
        window = _window(spec, served, options.get("num_ctx"))
        _say(server, served.name, window, options, num_predict=1)
        loaded = server.loaded_context(served.name)
        tools = _tools(server, served, window, options)
    except ModelError as error:
        there = "start it with `ollama serve`, or give its address with --ollama-endpoint URL or OLLAMA_HOST"
        raise _refused(spec, error.what, there if error.fault is ModelFault.UNREACHABLE else error.hint) from None
    if loaded is not None and loaded < window:
        raise _refused(spec, f"the server gives it a window of {loaded} tokens, not {window}", f"set num_ctx={loaded}")
    found = {
        "server": server.url,
        "server_version": version,
        "model": served.name,
        "digest": served.digest,
        "context": str(served.context_tokens) if served.context_tokens else None,
        "num_ctx": str(window),
        "size": served.size,
        "quantization": served.quantization,
        "tools": tools,
    }
    return {key: value for key, value in found.items() if value is not None}


def ollama_still(spec: str, name: str, facts: Mapping[str, str]) -> None:
    """Check that the server still has the model that was checked. Raises `UserError`: it is gone, or another one.

    Raises `ModelError` when the server does not answer, which may pass.
    """
    served = OllamaServer(facts["server"], _LOAD_SEC).find(name)
    if served.digest != facts["digest"]:
        raise _refused(
            spec,
            f"the model was pulled again: its digest is {served.digest[:12]}, but the night began with "
            f"{facts['digest'][:12]}",
            "restore the old one, or start another night",
        )


def local_facts(spec: str, model: str, options: Mapping[str, Any]) -> dict[str, str]:
    """A file that can be served, its digest and window, a token, and whether it calls tools. Raises `UserError`."""
    from terminalbench.llm.local.lease import lease

    wanted = parse_local(model)
    try:
        held = lease(replace(wanted, num_ctx=options.get("num_ctx") or wanted.num_ctx))
        try:
            order, server = held.served.order, OllamaServer(held.url, _LOAD_SEC, held.token)
            _say(server, order.name, order.window, options, num_predict=1)
            tools = _tools(server, server.find(order.name), order.window, options)
        finally:
            held.close()
    except ModelError as error:
        raise _refused(spec, error.what, error.hint) from None
    told = {"model": order.name, "digest": order.digest, "num_ctx": str(order.window), "tools": tools}
    return told | {"context": str(order.context_tokens), "slots": str(order.slots)}


def local_still(spec: str, model: str, facts: Mapping[str, str]) -> None:
    """Check that the file is still the one that was checked. Raises `UserError`."""
    from terminalbench.llm.local.gguf import file_digest

    path = parse_local(model).path
    try:
        found = file_digest(path)
    except OSError as error:
        raise _refused(spec, f"{path} cannot be read: {error.strerror}") from None
    if found != facts["digest"]:
        what = f"the file has changed: its digest is {found[:12]}, but the night began with {facts['digest'][:12]}"
        raise _refused(spec, what, "restore the old one, or start another night")


def ollama_url(endpoint: str | None, environment: Mapping[str, str] | None = None) -> str:
    """Return where the server is: as given, else as $OLLAMA_HOST says, else on this machine."""
    return server_url(endpoint or (os.environ if environment is None else environment).get("OLLAMA_HOST"))


def litellm_facts(spec: str, model: str, environment: Mapping[str, str]) -> dict[str, str]:
    """A short answer by LiteLLM, with the key that the environment has. Raises `UserError`."""
    return {"model": _answers(spec, ProbeRequest(model), environment)}


def claude_facts(
    spec: str, model: str | None, container_env: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """A key or login, a CLI that is there or can be installed, and an answer where that can be asked for here.

    Raises `UserError`.
    """
    from terminalbench.harbor.agents.needs import not_installable

    info = agent_info("claude-code")
    if info is None:
        raise LookupError("claude-code")
    ways = [info.key_env or "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", *info.logins]
    login = next((name for name in ways if environment.get(name)), None)
    if login is None:
        hint = "export ANTHROPIC_API_KEY=..., or CLAUDE_CODE_OAUTH_TOKEN=... as `claude setup-token` prints it"
        raise _refused(spec, "Claude Code has no key and no login in the environment", hint)
    environment_config = {"import_path": import_path("environments", container_env)}
    problem = not_installable(info, environment_config, arguments)
    if problem is not None:
        raise _refused(spec, problem)
    asked = _asked_of_claude(model, environment)
    if asked is None:
        return {"login": login, "answered": "not checked: no `claude` on PATH, and no ANTHROPIC_API_KEY"}
    return {"login": login, "answered": _answers(spec, asked, environment)}


def _asked_of_claude(model: str | None, environment: Mapping[str, str]) -> ProbeRequest | None:
    if shutil.which("claude", path=environment.get("PATH")) is not None:
        return ProbeRequest(f"claude-code:{model}" if model else "claude-code", short=False)
    if model and environment.get("ANTHROPIC_API_KEY"):
        return ProbeRequest(model if "/" in model else f"anthropic/{model}")
    return None


def _answers(spec: str, request: ProbeRequest, environment: Mapping[str, str]) -> str:
    try:
        report = ask(
            "terminalbench.overnight.live_check:probe",
            request,
            ProbeReport,
            environment,
            _PROBE_SEC,
            "asking the model",
        )
    except TbenchError as error:
        raise _refused(spec, error.what, error.hint) from None
    if report.model is None:
        raise _refused(spec, report.what or "it did not answer", report.hint)
    return report.model


def _window(spec: str, served: ServedModel, wanted: Any) -> int:
    longest = served.context_tokens
    if not isinstance(wanted, int):
        return min(longest or WINDOW, WINDOW)
    if longest is not None and wanted > longest:
        raise _refused(spec, f"num_ctx is {wanted}, but the context window is {longest}", f"set num_ctx={longest}")
    return wanted


def _say(
    server: OllamaServer, name: str, window: int, options: Mapping[str, Any], *, num_predict: int, **more: Any
) -> ChatReply:
    text = CALL if "tools" in more else "Answer with the word ok."
    body: dict[str, Any] = {
        "model": name,
        "messages": [{"role": "user", "content": text}],
        "options": {"num_ctx": window, "num_predict": num_predict, "seed": 0, "temperature": 0},
        "truncate": False,
        **more,
    }
    if "keep_alive" in options:
        body["keep_alive"] = options["keep_alive"]
    return server.chat(body)


def _tools(server: OllamaServer, served: ServedModel, window: int, options: Mapping[str, Any]) -> str:
    """Return how it calls tools: as it has just shown, as the server says, or in words."""
    if not served.tools:
        return "in words"
    reply = _say(server, served.name, window, options, num_predict=_TOOL_TOKENS, tools=[PING])
    return "shown" if any(call.name == "ping" for call in reply.tool_calls) else "declared, not shown"


def _refused(spec: str, what: str, hint: str | None = None) -> UserError:
    return UserError(f'"{spec}": {what}', where="--model", hint=hint)


def probe(request: ProbeRequest) -> ProbeReport:
    """Ask, once."""
    try:
        model = chat_model(request.model, Options(output_tokens=_TOKENS) if request.short else Options())
        model.ready()
        reply = model.ask([Message("user", "Answer with the word ok.")])
    except (ModelError, UserError) as error:
        return ProbeReport(what=error.what, hint=error.hint)
    return ProbeReport(model=reply.model)
