"""The environment of a Harbor process: explicit, so that nothing of the user's shell leaks into a trial."""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.experiments.envfile import not_set, read_env_file
from terminalbench.experiments.environments import own_variables
from terminalbench.experiments.network import base_url_variables
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.tables import DEFAULT_ENV_FILE
from terminalbench.experiments.task_folder import declared_names
from terminalbench.registry import is_import_path
from terminalbench.secrets.patterns import references, secret_names
from terminalbench.secrets.values import NAMES_VARIABLE

PASSED_ON = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|XDG_\w+|DOCKER_(HOST|CONFIG|CONTEXT|CERT_PATH|TLS_VERIFY)"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NODE_EXTRA_CA_CERTS|GIT_SSL_CAINFO"
    r"|(?i:https?_proxy|no_proxy|all_proxy)|TERMINALBENCH_\w+"
)
"""What every process needs to work on this machine. None of it is a key of a model provider."""

_REQUIRED = re.compile(r"\$\{([A-Za-z_]\w*)\}")
"""A value that is a variable without a default: Harbor refuses a profile where it is not set."""
FIXED = {
    "HARBOR_TELEMETRY": "off",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "PYTHONUNBUFFERED": "1",
}


def child_environment(
    profile: Profile, root: Path, shell: Mapping[str, str] | None = None, container_env: str = "local"
) -> dict[str, str]:
    """The whole environment of a profile's Harbor process."""
    guards = profile.workflow.guards if profile.workflow is not None else ()
    own_parts = is_import_path(profile.agent.name) or is_import_path(container_env) or bool(guards)
    place = root if own_parts else None
    shell = os.environ if shell is None else shell
    names = [*named_variables(profile), *own_variables(container_env, shell)]
    return process_environment(names, profile.env_file, place, shell) | stated_endpoints(profile.env)


def left_out_here(
    profiles: Iterable[Profile], root: Path, shell: Mapping[str, str], container_env: str
) -> dict[str, list[str]]:
    """Return the profiles that a run with this shell would leave out, by the reason that it gives, without Harbor.

    That are those without a variable that they name, and those with an env file that cannot be read; all of them where
    the local sandbox is asked for and this is not Linux.
    """
    if container_env == "local" and not sys.platform.startswith("linux"):
        why = f'the local sandbox needs Linux, but this is {sys.platform} (container_env = "docker" works here)'
        return {why: [profile.key for profile in profiles]}
    found: dict[str, list[str]] = {}
    for profile in profiles:
        try:
            env = child_environment(profile, root, shell, container_env)
        except UserError as error:
            found.setdefault(f"its env file {error}", []).append(profile.key)
            continue
        named = (match[1] for text in profile.env.values() if (match := _REQUIRED.fullmatch(text)) is not None)
        if missing := [name for name in dict.fromkeys(named) if name not in env]:
            why = not_set(missing, profile.env_file or root / DEFAULT_ENV_FILE)
            found.setdefault(why, []).append(profile.key)
    return found


def process_environment(
    names: Iterable[str], env_file: Path | None, root: Path | None, shell: Mapping[str, str]
) -> dict[str, str]:
    """The machine's basics, the named variables, then the env file, which wins over the shell.

    `root` is put on Python's path, for parts the project brings itself (`pkg.mod:Class`). Only for those: a module of
    the project must not stand in for one of the same name that Harbor needs.
    """
    env = {name: value for name, value in shell.items() if PASSED_ON.fullmatch(name)}
    given = {name: shell[name] for name in names if name in shell}
    if env_file is not None and env_file.exists():
        given |= read_env_file(env_file)
    env |= given | {NAMES_VARIABLE: ",".join(secret_names(given))}
    own = [str(Path(part).absolute()) for part in shell.get("PYTHONPATH", "").split(os.pathsep) if part]
    if root is not None or own:  # made absolute: a job does not start in this process's folder
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(root or ""), *own)))
    return env | FIXED


def stated_endpoints(env: Mapping[str, str]) -> dict[str, str]:
    """The addresses of models that a profile's own table states: Harbor's process may ask them itself."""
    known = set(base_url_variables())
    return {name: value for name, value in env.items() if name in known and "${" not in value}


def named_variables(profile: Profile) -> list[str]:
    """The variables a profile refers to, in its own table and in its MCP configurations."""
    return references([profile.env, profile.mcp.servers])


def declared_variables(names: Iterable[str], env_file: Path | None) -> tuple[str, ...]:
    """The variables that a task's files may take: those that the profile's tables or its env file name."""
    there = env_file is not None and env_file.exists()
    return tuple(sorted(declared_names({*names}, env_file if there else None) or ()))
