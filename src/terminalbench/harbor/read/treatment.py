"""The treatment of a Harbor trial by its configuration: the content of a profile for jobs that no plan describes.

Two trials with the same content got the same treatment: agent, model, options, prompt, MCP servers, variables, limits,
environment. What names a trial or a place, and how many run at once, is no part of it. Values that look like secrets
are taken out: another key is no other treatment, and nothing here may be shown that must not be.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.experiments.lessons import OPTION, is_wrapped, unwrapped
from terminalbench.experiments.profiles import SNAPSHOT
from terminalbench.json_files import decode_plain
from terminalbench.secrets.patterns import VARIABLE_NAME, is_secret, looks_secret

HIDDEN = "[hidden]"
_MASKED = "****"
_RESULT_LIMIT = 1 << 30
_SMALL_LIMIT = 16 << 20
_LONGEST = 20_000
_DEFAULT_AGENT, _DEFAULT_ENVIRONMENT, _DEFAULT_TRANSPORT = "oracle", "docker", "sse"
_LIMITS = ("override_timeout_sec", "override_setup_timeout_sec", "max_timeout_sec")
_TIMEOUTS = (
    "timeout_multiplier", "agent_timeout_multiplier", "verifier_timeout_multiplier", "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
)  # fmt: skip
_NO_TREATMENT = {
    "force_build", "delete", "stream", "suppress_override_warnings", "include_logs", "exclude_logs",
    "environment_mode",
}  # fmt: skip
"""Fields of environment and verifier that change nothing an agent sees or a verdict depends on."""


class _ConfiguredTrial(msgspec.Struct):
    config: dict[str, Any]


def read_treatment(trial_dir: Path) -> dict[str, Any] | None:
    """The content of a trial's profile, from its result, else from its configuration; None when neither can be read."""
    result = decode_plain(trial_dir / "result.json", _ConfiguredTrial, _RESULT_LIMIT)
    config = result.config if result is not None else decode_plain(trial_dir / "config.json", dict, _SMALL_LIMIT)
    if config is None:
        return None
    return treatment(config, decode_plain(trial_dir / "lock.json", dict, _SMALL_LIMIT) or {})


def treatment(config: Mapping[str, Any], lock: Mapping[str, Any]) -> dict[str, Any]:
    """The content by aspect, as profiles of ours have it. `config` is a trial's configuration with or without its
    defaults, `lock` holds the digests of its skills, further instructions and other files."""
    given = dict(_table(config.get("agent")))
    agent, lessons = unwrapped(given), _table(_table(given.get("kwargs")).get(OPTION)) if is_wrapped(given) else {}
    options = dict(_table(agent.get("kwargs")))
    version = options.pop("version", None)
    workflow = options.pop("workflow") if isinstance(options.get("workflow"), dict) else {}
    aspects = {
        "agent": agent.get("import_path") or agent.get("name") or _DEFAULT_AGENT,
        "agent_version": version if isinstance(version, str) else None,
        "model": agent.get("model_name"),
        "options": options,
        "workflow": workflow,
        "lessons": {SNAPSHOT: lessons.get("digest")} if lessons else None,
        "oracle": _is_oracle(workflow),
        "skills": _digests(lock.get("skills")) or agent.get("skills"),
        "mcp_servers": {
            str(server.get("name")): {"transport": _DEFAULT_TRANSPORT} | _set(server, "name")
            for server in _tables(agent.get("mcp_servers"))
        },
        "env": agent.get("env"),
        "limits": _set({name: agent.get(name) for name in _LIMITS}),
        "allowed_hosts": agent.get("extra_allowed_hosts"),
        "continues": _set({name: agent.get(name) for name in ("resume_trajectory", "load_trajectory")}),
        "instructions": _digests(lock.get("extra_instructions")) or _instructions(config),
        "user_agent": _set(_table(config.get("user_agent"))),
        "user_files": _user_files(lock),
        "compose_files": _digests(lock.get("extra_docker_compose")),
        "timeouts": _set({name: config.get(name) for name in _TIMEOUTS if config.get(name) != 1.0}),
        "environment": _environment(_table(config.get("environment"))),
        "verifier": _set(_table(config.get("verifier")), *_NO_TREATMENT),
        "regraded": config.get("source_trial") is not None,
    }
    return {name: _clean(value, name) for name, value in _set(aspects).items()}


def _is_oracle(workflow: Mapping[str, Any]) -> bool:
    if not workflow:
        return False
    from terminalbench.workflow.load import is_oracle

    return is_oracle(workflow)


def treatment_id(content: Mapping[str, Any]) -> str:
    """Stable id: equal for equal contents."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"h{hashlib.sha256(canonical.encode(errors='surrogatepass')).hexdigest()[:12]}"


def _clean(value: Any, name: str) -> Any:
    """A value without what is secret; a text too long to keep is its digest."""
    if isinstance(value, Mapping):
        return {str(key): _clean(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, name) for item in value]
    if not isinstance(value, str):
        return value
    if (_MASKED in value and len(value) < 16) or _hides(name, value):
        return HIDDEN
    if len(value) > _LONGEST:
        return f"sha256:{hashlib.sha256(value.encode(errors='surrogatepass')).hexdigest()}"
    return value


def _hides(name: str, value: str) -> bool:
    """Return whether a value is a secret, or refers to one: how a key is handed over is no part of a treatment."""
    return (
        is_secret(name, value)
        or looks_secret(name, value)
        or (value.startswith("${") and VARIABLE_NAME.search(name) is not None)
    )


def _environment(given: Mapping[str, Any]) -> dict[str, Any]:
    found = _set(given, *_NO_TREATMENT)
    return found if "import_path" in found else {"type": _DEFAULT_ENVIRONMENT} | found


def _instructions(config: Mapping[str, Any]) -> list[Any]:
    texts, paths = config.get("extra_instructions"), config.get("extra_instruction_paths")
    return [*(texts if isinstance(texts, list) else ()), *(paths if isinstance(paths, list) else ())]


def _digests(locks: Any) -> dict[str, Any]:
    """Digests of files by their name, as a lock has them."""
    return {
        str(one.get("name") or place): one["digest"] for place, one in enumerate(_tables(locks), 1) if "digest" in one
    }


def _user_files(lock: Mapping[str, Any]) -> dict[str, Any]:
    """Digests of what the simulated user is told by files: its persona, its prompt, the inputs of its bridge."""
    named = {name: _table(lock.get(name)) for name in ("user_persona", "user_prompt_template", "bridge_prompt")}
    named |= {str(name): _table(one) for name, one in _table(lock.get("bridge_inputs")).items()}
    return {name: one["digest"] for name, one in named.items() if "digest" in one}


def _set(table: Mapping[str, Any], *without: str) -> dict[str, Any]:
    """The fields of a table of Harbor's that are set: it writes them with their defaults, or leaves those out."""
    return {
        name: value
        for name, value in table.items()
        if name not in without and value is not None and value is not False and value not in ("", [], {}, "auto")
    }


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _tables(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
