"""The models of a night: one spec, one profile. What a spec names is never replaced by another.

    claude-code[:MODEL]    the Claude Code CLI, in the sandbox
    ollama:MODEL:TAG       a model of an Ollama server; without a tag `:latest`, and only that
    local:FILE.gguf        a model file, served on this machine while the night needs it
    PROVIDER/MODEL         any LiteLLM name, run by Terminus-2
    oracle, nop            the task's own solution; nothing
    simulated[:OPTIONS]    an agent that only pretends, `simulated:solve_probability=0.8`

Each may be followed by options of its agent: `ollama:qwen3:8b,num_ctx=16384`.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.tables import DEFAULT_ENV_FILE
from terminalbench.llm.local.spec import parse_local

POSSIBLE = (
    "claude-code[:MODEL], ollama:MODEL:TAG, local:FILE.gguf, PROVIDER/MODEL (any LiteLLM name), oracle, nop, simulated"
)
_OPTION = re.compile(r",(?=[A-Za-z_]\w*=)")
_PLAIN = re.compile(r"[^A-Za-z0-9._]+")
_LOCAL = frozenset({"lm_studio", "llamafile", "hosted_vllm", "vllm"})
"""LiteLLM's names of servers of one's own."""
_CLAUDE_VARIABLES = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY",
)  # fmt: skip


class ModelKind(StrEnum):
    """What runs a model."""

    CLAUDE_CODE = "claude-code"
    OLLAMA = "ollama"
    LOCAL = "local"
    LITELLM = "litellm"
    ORACLE = "oracle"
    NOP = "nop"
    SIMULATED = "simulated"

    @property
    def agent(self) -> str:
        """The agent that runs it."""
        return {ModelKind.LITELLM: "terminus-2", ModelKind.LOCAL: "ollama"}.get(self, self.value)


@dataclass(frozen=True)
class ModelSpec:
    """A parsed spec. `key` is what its profile is called."""

    spec: str
    kind: ModelKind
    key: str
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def free(self) -> bool:
        """Return whether nobody bills what it does: it runs on a machine of one's own, or calls no model."""
        return is_local(self.kind, self.model)


def is_local(agent: str, model: str | None) -> bool:
    """Return whether an agent's model is served by a machine of one's own."""
    return agent in (ModelKind.OLLAMA, ModelKind.LOCAL) or (model or "").split("/")[0] in _LOCAL


def parse_models(specs: Sequence[str]) -> tuple[ModelSpec, ...]:
    """Each spec, with a key of its own. Refuses one that is given twice."""
    found: list[ModelSpec] = []
    for spec in specs:
        model = parse_model(spec)
        if any(model.spec == other.spec for other in found):
            raise UserError(
                f'"{spec}" is given twice', where="--model", hint="to run a model more often, use --attempts"
            )
        number, key = 2, model.key
        while any(key == other.key for other in found):
            key, number = f"{model.key}-{number}", number + 1
        found.append(replace(model, key=key))
    return tuple(found)


def parse_model(spec: str) -> ModelSpec:
    """Return what a spec means. Pure; raises `UserError` with what is possible."""
    spec = spec.strip()
    head, *texts = _OPTION.split(spec)
    name, colon, rest = head.partition(":")
    if name == ModelKind.SIMULATED and "=" in rest:
        texts, rest = [rest, *texts], ""
    kind = _kind(spec, head, name)
    model = head if kind is ModelKind.LITELLM else rest or None
    if kind is ModelKind.OLLAMA:
        model = _tagged(spec, rest)
    elif kind is ModelKind.LOCAL:
        model = str(parse_local(head))
    elif kind in (ModelKind.ORACLE, ModelKind.NOP, ModelKind.SIMULATED) and (rest or (colon and not texts)):
        raise _refused(spec, f"{name} calls no model")
    elif colon and not rest and not texts:
        raise _refused(spec, "there is no model after the colon")
    return ModelSpec(spec, kind, _key(spec), model, _options(spec, kind, texts))


def profile_of(
    model: ModelSpec,
    *,
    ollama_endpoint: str | None = None,
    facts: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The table of its profile. `facts` are those of `check_model`: what they pin is part of the profile.

    The profile names the variables that it needs, as far as `environment` has them.
    """
    given = os.environ if environment is None else environment
    table: dict[str, Any] = {"agent": model.kind.agent, "description": model.spec}
    options = dict(model.options)
    if model.kind is ModelKind.SIMULATED:
        table["model"] = f"simulated/{model.key}"
    elif model.kind is ModelKind.CLAUDE_CODE:
        table |= {"no_mcp": True, "env": _present(_CLAUDE_VARIABLES, given) or ["ANTHROPIC_API_KEY"]}
        table |= {"model": _claude_model(model.model, given)} if model.model else {}
    elif model.kind is ModelKind.LITELLM:
        table |= {"model": model.model, "env": _provider_variables(model.model or "", given)}
        options = {"record_terminal_session": False, **options}
    elif model.kind is ModelKind.OLLAMA:
        table["model"] = model.model
        known: dict[str, Any] = {"base_url": _server(ollama_endpoint, facts, given)}
        known |= {"digest": facts["digest"], "num_ctx": int(facts["num_ctx"])} if facts else {}
        options = {**known, **options}
    elif model.kind is ModelKind.LOCAL:
        table["model"] = model.model
        options = {**({"digest": facts["digest"], "num_ctx": int(facts["num_ctx"])} if facts else {}), **options}
    if model.free:
        table["price"] = 0
    if options:
        table["options"] = options
    return table


def check_model(
    model: ModelSpec,
    *,
    ollama_endpoint: str | None = None,
    container_env: str = "local",
    harbor_args: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Ask a model, now; what was found out about it. Raises `UserError`: it cannot be used.

    `environment` are the variables that it will have (`model_environment`); `profile_of` pins what is in the facts.
    """
    from terminalbench.overnight import live_check

    known = os.environ if environment is None else environment
    name = model.model or ""
    if model.kind is ModelKind.OLLAMA:
        return live_check.ollama_facts(model.spec, name, ollama_endpoint, model.options, known)
    if model.kind is ModelKind.LOCAL:
        return live_check.local_facts(model.spec, name, model.options)
    if model.kind is ModelKind.LITELLM:
        return live_check.litellm_facts(model.spec, name, known)
    if model.kind is ModelKind.CLAUDE_CODE:
        return live_check.claude_facts(model.spec, model.model, container_env, harbor_args, known)
    return {}


def check_again(model: ModelSpec, facts: Mapping[str, str]) -> None:
    """Check before an iteration that a model is still the one that `check_model` found. Raises `UserError` when not.

    Raises `ModelError` for a server that does not answer now.
    """
    if model.kind is ModelKind.OLLAMA and facts:
        from terminalbench.overnight.live_check import ollama_still

        ollama_still(model.spec, model.model or "", facts)
    elif model.kind is ModelKind.LOCAL and facts:
        from terminalbench.overnight.live_check import local_still

        local_still(model.spec, model.model or "", facts)


def model_environment(root: Path, shell: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that models have in a project: those of the shell, and of its env file, which wins."""
    from terminalbench.experiments.envfile import read_env_file

    file = root / DEFAULT_ENV_FILE
    return {**(os.environ if shell is None else shell), **(read_env_file(file) if file.is_file() else {})}


def _kind(spec: str, head: str, name: str) -> ModelKind:
    if name in (kind.value for kind in ModelKind if kind is not ModelKind.LITELLM):
        return ModelKind(name)
    provider, slash, rest = head.partition("/")
    if provider in ("ollama", "ollama_chat") and slash:
        raise _refused(spec, "models of an Ollama server have another form", f"write ollama:{rest}")
    if slash and provider and rest and not any(map(str.isspace, head)):
        return ModelKind.LITELLM
    known = [kind.value for kind in ModelKind if kind is not ModelKind.LITELLM]
    like = did_you_mean(name, known, limit=0)
    raise _refused(spec, "no model has this name", f"{like} possible: {POSSIBLE}" if like else f"possible: {POSSIBLE}")


def _refused(spec: str, what: str, hint: str | None = None) -> UserError:
    return UserError(f'"{spec}": {what}', where="--model", hint=hint or f"possible: {POSSIBLE}")


def _tagged(spec: str, name: str) -> str:
    """The model with its tag: without one it is `:latest`, as Ollama reads it."""
    if not name or name.endswith(":") or any(map(str.isspace, name)):
        raise _refused(spec, "there is no model name", "write ollama:MODEL:TAG, as shown by `ollama list`")
    return name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"


def _options(spec: str, kind: ModelKind, texts: Sequence[str]) -> dict[str, Any]:
    info = agent_info(kind.agent)
    known = info.options if info is not None else {}
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            raise _refused(spec, f"{kind.agent} has no option {name!r}", did_you_mean(name, sorted(known), limit=30))
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _key(spec: str) -> str:
    return _PLAIN.sub("-", spec).strip("-.")[:80] or "model"


def _server(endpoint: str | None, facts: Mapping[str, str] | None, environment: Mapping[str, str]) -> str:
    from terminalbench.llm.ollama import server_url

    return (facts or {}).get("server") or server_url(endpoint or environment.get("OLLAMA_HOST"))


def _claude_model(name: str, environment: Mapping[str, str]) -> str:
    elsewhere = bool(environment.get("ANTHROPIC_BASE_URL"))  # Harbor sends a name as it is to a server of one's own
    return name if "/" in name or elsewhere else f"anthropic/{name}"


def _present(names: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    return [name for name in names if environment.get(name)]


def _provider_variables(model: str, environment: Mapping[str, str]) -> list[str]:
    """The key of its provider, and the address of a server of one's own where the environment has one."""
    from terminalbench.experiments.network import base_url_variables
    from terminalbench.swebench_pro.arms import key_variable

    provider = model.partition("/")[0]
    key = None if provider in _LOCAL else key_variable(provider)
    addresses = [name for name in base_url_variables() if name.startswith(f"{provider.upper()}_")]
    return [*([key] if key else []), *_present(addresses, environment)]
