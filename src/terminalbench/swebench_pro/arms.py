"""The arms of an experiment: what `--arms` names, as profiles.

An arm is a shipped workflow, a workflow file (`mine.toml`), an agent (`claude-code`, `pkg.mod:Class`), a program
(`command:my-cli --fast`), or a profile of an experiment file (`experiment.toml:profile`).
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terminalbench import registry
from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.agents import AgentInfo, agent_info, agent_names
from terminalbench.experiments.command import command_profile, is_interpreter, words_of
from terminalbench.experiments.network import base_urls_of
from terminalbench.experiments.tables import SLUG
from terminalbench.secrets.patterns import WEAK, WEAK_HINT, is_weak
from terminalbench.text.numbers import some
from terminalbench.workflow.load import shipped

AGENT = "guarded"
KEY = "LLM_API_KEY"
"""The variable that holds the key of whatever provider is named."""
_BY_COLON = ("ollama", "local", "claude-code", "replay")
"""Providers whose models are named `provider:model`; all others are LiteLLM's, `provider/model`."""
_WITHOUT_TEMPERATURE = "claude-code"
"""Asked at 0 only, retries too: its CLI takes no temperature."""
_KEYS = {"together_ai": "TOGETHERAI_API_KEY"}
_NO_KEY = "no-key-is-needed-here"
"""No word of any text: Harbor cuts the values of keys out of every file of a trial."""
_USUAL = frozenset({"openai", "openrouter", "huggingface", "anthropic", "gemini", "deepseek", "groq", "together_ai"})
"""Providers that LiteLLM need not be loaded for to be known."""
_COMMAND = "command:"
_NOWHERE = Path("/dev/null")
"""No path is below it: those of a profile are written as absolute ones."""
_OF_FILE = re.compile(r"(.+\.toml):([^/:]+)")


@dataclass(frozen=True)
class ArmModel:
    """The model that arms ask, unless an arm says itself what it asks. `price` is the value of the key of a profile."""

    model: str
    provider: str | None = None
    base_url: str | None = None
    price: float | dict[str, float] | None = None


def model_name(provider: str, model: str) -> str:
    """Return a model as the bench names it. A name that says its provider already stays as it is."""
    if provider in _BY_COLON:
        return model if model.startswith(f"{provider}:") else f"{provider}:{model}"
    return model if model.startswith(f"{provider}/") else f"{provider}/{model}"


def key_variable(provider: str) -> str | None:
    """Return the variable in which LiteLLM looks for a provider's key; None where there is none."""
    if provider in _BY_COLON:
        return None
    return _KEYS.get(provider, f"{re.sub(r'[^A-Za-z0-9]', '_', provider).upper()}_API_KEY")


def hand_over_key(provider: str, base_url: str | None, environment: dict[str, str] | None = None) -> None:
    """Put the key of `LLM_API_KEY` where the provider's is looked for, in this process only.

    A server of one's own needs none: it is sent a word that is no key. One that is a word of other texts is refused.
    """
    found = os.environ if environment is None else environment
    variable = key_variable(provider)
    if variable is None:
        return
    source = next((name for name in (variable, KEY) if found.get(name)), None)
    if source is None and not base_url:
        raise UserError(f"{provider} needs a key: neither {KEY} nor {variable} is set", hint=f"export {KEY}=...")
    found[variable] = found[source] if source is not None else _NO_KEY
    if is_weak(found[variable]):
        raise UserError(f"the key in {source} {WEAK}", hint=WEAK_HINT)


def refuse_unknown_provider(provider: str, model: str) -> None:
    """Refuse a provider that nothing knows, before a key of its is missed."""
    if provider in _BY_COLON or provider in _USUAL:
        return
    from terminalbench.llm.litellm_model import unknown_provider

    known = unknown_provider(model_name(provider, model))
    if known is not None:
        raise UserError(f'no provider is called "{provider}"', where="--provider", hint=did_you_mean(provider, known))


def price_of(text: str) -> float | dict[str, float]:
    """Return the price that `--price` gives: `IN,OUT[,CACHED]` in USD per million tokens, or 0."""
    parts = text.split(",")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if values == [0.0]:
        return 0
    if len(values) not in (2, 3) or not all(0 <= value < float("inf") for value in values):
        raise UserError(
            f'"{text}" is not a price', where="--price", hint="INPUT,OUTPUT[,CACHED] in USD per 1M tokens, or 0"
        )
    return dict(zip(("input", "output", "cache_read"), values, strict=False))


def arm_profiles(arms: Sequence[str], asked: ArmModel) -> dict[str, dict[str, Any]]:
    """Return the profiles of arms, by their keys."""
    found: dict[str, dict[str, Any]] = {}
    for arm in arms:
        key = arm_key(arm)
        if key in found:
            raise UserError(f"{key}: an arm is named twice", where="--arms")
        found[key] = _profile(arm, asked)
    return found


def arm_key(arm: str) -> str:
    """Return the key of an arm's profile: the name of what it is, of a file its stem, of a command its program."""
    of_file = _OF_FILE.fullmatch(arm)
    if of_file is not None:
        name = of_file[2]
    elif arm.startswith(_COMMAND):
        words = words_of(arm.removeprefix(_COMMAND))
        name = Path(next((one for one in words if one[0] not in "-{" and not is_interpreter(one)), words[0])).stem
    elif registry.is_import_path(arm):
        name = arm.rpartition(":")[2]
    else:
        name = Path(arm).stem if arm.endswith(".toml") else arm
    if not re.fullmatch(SLUG, name):
        raise UserError(f'"{arm}" cannot be the name of an arm', hint="a workflow, a .toml file of one, or an agent")
    return name


def own_model(arm: str) -> bool:
    """Return whether an arm says itself which model it asks, or asks none: then no provider need be named for it."""
    if _OF_FILE.fullmatch(arm):
        return True
    if arm.startswith(_COMMAND):
        return "{model}" not in arm
    info = None if arm in shipped() or arm.endswith(".toml") else agent_info(arm)
    return info is not None and (not info.model or info.simulated)


def _profile(arm: str, asked: ArmModel) -> dict[str, Any]:
    of_file = _OF_FILE.fullmatch(arm)
    if of_file is not None:
        return _of_file(Path(of_file[1]), of_file[2])
    price = {"price": asked.price} if asked.price is not None else {}
    if arm.startswith(_COMMAND):
        table = _command(arm)
        return table if own_model(arm) else table | {"model": _agent_model(asked)} | _reach(None, asked) | price
    if arm in shipped() or arm.endswith(".toml"):
        return _guarded(arm, asked) | price
    info = agent_info(arm)
    if info is None and not registry.is_import_path(arm):
        hint = did_you_mean(arm, [*shipped(), *agent_names()])
        raise UserError(f'no workflow or agent is called "{arm}"', where="--arms", hint=hint)
    table = {"agent": arm, **({"no_mcp": True} if info is not None and info.mcp else {})}
    return table if own_model(arm) else table | {"model": _agent_model(asked)} | _reach(info, asked) | price


def _command(arm: str) -> dict[str, Any]:
    here = Path.cwd()
    table = command_profile(words_of(arm.removeprefix(_COMMAND)), here)
    files = table["command"].get("files")
    return table | {"command": table["command"] | {"files": [str(here / file) for file in files]}} if files else table


def _guarded(arm: str, asked: ArmModel) -> dict[str, Any]:
    variable = key_variable(asked.provider or "")
    options: dict[str, Any] = {"base_url": asked.base_url} if asked.base_url else {}
    options |= {"temperature": 0} if asked.provider == _WITHOUT_TEMPERATURE else {}
    return {
        "agent": AGENT,
        "model": model_name(asked.provider or "", asked.model),
        "workflow": str(Path(arm).resolve()) if arm.endswith(".toml") else arm,
        **({"env": [variable]} if variable is not None else {}),
        **({"options": options} if options else {}),
    }


def _agent_model(asked: ArmModel) -> str:
    """Return the model as agents name it: `provider/model`."""
    bare = asked.model.removeprefix(f"{asked.provider}:")
    if asked.provider is None or bare.startswith(f"{asked.provider}/") or asked.provider == _WITHOUT_TEMPERATURE:
        return bare
    return f"{asked.provider}/{bare}"


def _reach(info: AgentInfo | None, asked: ArmModel) -> dict[str, Any]:
    """Return the variables by which an agent reaches its model: the key, and where the server is."""
    variable = key_variable(asked.provider or "")
    env = {variable: f"${{{variable}}}"} if variable is not None else {}
    if asked.base_url:
        own = info.base_url_env if info is not None else None
        env |= dict.fromkeys([own] if own else base_urls_of(asked.provider or ""), asked.base_url)
    return {"env": env} if env else {}


def _of_file(file: Path, name: str) -> dict[str, Any]:
    """Return a profile of an experiment file, with nothing left to the file's defaults; its paths made absolute."""
    from terminalbench.experiments.config import load
    from terminalbench.experiments.write import profile_table

    experiment = load(file)
    profile = next((one for one in experiment.profiles if one.key == name), None)
    if profile is None:
        known = [one.key for one in experiment.profiles]
        raise UserError(f'has no profile "{name}"', where=str(file), hint=did_you_mean(name, known) or some(known))
    if profile.mcp.folders:
        hint = "run its experiment with tbench run, then compare the batches"
        raise UserError(f'profile "{name}" has MCP servers, so it cannot be an arm', where=str(file), hint=hint)
    return profile_table(profile, _NOWHERE)
