"""From our plan to Harbor's own words: the JobConfig of a profile and the command that runs it.

Plain data in, plain data out; Harbor itself is not imported. Values of variables never enter a JobConfig:
only `${VAR}` references do.
"""

import json
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from terminalbench import registry
from terminalbench.experiments.agents import agent_class
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.environments import OF_THIS_MACHINE, image_entries
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.lessons import wrapped
from terminalbench.experiments.network import base_url_variables, declared_addresses, model_endpoints, phases
from terminalbench.experiments.plan import JobSpec, PlannedImages, PlannedTask
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.tables import ProfilePrice, RunTable
from terminalbench.harbor.read.result_file import task_source
from terminalbench.llm.local.spec import is_local
from terminalbench.secrets.patterns import TEMPLATE, references

PLUGIN = "terminalbench.harbor.plugin:EventPlugin"
VERIFIER = "terminalbench.harbor.verifier:SafeVerifier"

RETRY_WAIT_SEC = 1.0
"""Harbor's own pause before a retry, always the same. The one that grows, with jitter, is the plugin's."""


def job_config(
    experiment: Experiment, profile: Profile, spec: JobSpec, batch: Batch, images: PlannedImages | None = None
) -> dict[str, Any]:
    """The JobConfig of one profile's job: all its tasks, in the order of the file, on the images of its plan."""
    run = experiment.run
    config: dict[str, Any] = {
        "job_name": spec.name,
        "jobs_dir": str(batch.runs),
        "n_attempts": spec.attempts,
        "environment": _environment(experiment, profile),
        "verifier": _verifier(run),
        "agents": [_with_lessons(_agent(experiment, profile), experiment.run, profile, batch)],
        "tasks": [_task(task) for task in spec.tasks if task.found],
    }
    datasets = _datasets(spec.tasks)
    if datasets:
        config["datasets"] = datasets
    config = with_settings(config, run, profile.parallel)
    if run.timeout_multiplier != 1.0:
        config["timeout_multiplier"] = run.timeout_multiplier
    if profile.system_prompt and profile.agent.system_prompt is None:
        config["extra_instructions"] = [profile.system_prompt]
    return with_pins(config, images)


def with_pins(config: Mapping[str, Any], images: PlannedImages | None) -> dict[str, Any]:
    """A JobConfig whose sandboxes take the images that the plan has pinned, as it prepared them last."""
    if images is None or not images.pins:
        return dict(config)
    environment = dict(config["environment"])
    told = {"pins": images.pins} | ({"prepared_at": images.prepared_at} if images.prepared_at is not None else {})
    environment["kwargs"] = {**(environment.get("kwargs") or {}), **told}
    return {**config, "environment": environment}


def with_settings(config: Mapping[str, Any], settings: RunTable, own_parallel: int | None) -> dict[str, Any]:
    """A JobConfig that runs as `[run]` and the profile say now: how many at once, how many retries.

    They may change in a batch.
    """
    found = {name: value for name, value in config.items() if name not in ("n_concurrent_trials", "retry")}
    if parallel := own_parallel or settings.parallel:
        found["n_concurrent_trials"] = parallel
    if settings.retries:
        found["retry"] = {
            "max_retries": settings.retries,
            "wait_multiplier": 1.0,
            "min_wait_sec": RETRY_WAIT_SEC,
            "max_wait_sec": RETRY_WAIT_SEC,
        }
    return found


def with_command_files(config: dict[str, Any], planned: Mapping[str, str]) -> dict[str, Any]:
    """A JobConfig whose commands get their files as they are `planned` by now, by `name at target`."""
    digests = {name.rpartition(" at ")[2]: digest for name, digest in planned.items()}
    for agent in config["agents"]:
        for told in agent.get("kwargs", {}).get("command", {}).get("files", {}).values():
            told["digest"] = digests.get(told["target"], told["digest"])
    return config


MOVED = {"terminalbench.harbor.sandbox.environment:LocalSandbox": registry.BUILTIN["environments"]["local"]}
"""Classes that recorded JobConfigs name by where they were when the batch was made."""


def wave_config(template: dict[str, Any], wave: JobSpec, batch: Batch) -> dict[str, Any]:
    """The JobConfig of a further job of the same profile: another name and other trials, everything else the same."""
    tasks = [_task(task) for task in wave.tasks]
    environment = dict(template.get("environment") or {})
    if (old := environment.get("import_path")) in MOVED:
        environment["import_path"] = MOVED[old]
    if environment.get("import_path") == registry.BUILTIN["environments"]["local"]:
        # A batch that was planned when sandboxes shared this machine's network: what is on it has to be declared.
        network = {"declared": [f"${{{name}}}" for name in base_url_variables()]}
        environment["kwargs"] = {"network": network, **(environment.get("kwargs") or {})}
    return {
        **template,
        "environment": environment,
        "job_name": wave.name,
        "jobs_dir": str(batch.runs),
        "n_attempts": wave.attempts,
        "tasks": tasks,
    }


def _task(task: PlannedTask) -> dict[str, Any]:
    return {**task.config, "source": task_source(task.label, task.ref.id, task.config)}


def command(
    settings: RunTable,
    spec: JobSpec,
    batch: Batch,
    harbor: str = "harbor",
    *,
    shared: str | None = None,
    price: ProfilePrice | None = None,
) -> list[str]:
    """The command that runs the job; `settings` are those of `[run]`, `shared` is the gate of several batches.

    `price` is the one that the profile declares.
    """
    return [
        harbor, "run", "-c", str(batch.job_config(spec.name)), "-y",
        "--plugin", PLUGIN, "--pk", f"events={batch.events_jsonl}", "--pk", f"profile={_plugin_text(spec.profile)}",
        "--pk", f"gate={batch.gate_json}", *(("--pk", f"shared={shared}") if shared else ()),
        *(("--pk", f"grace_sec={settings.grace_sec}") if settings.grace_sec != RunTable.grace_sec else ()),
        *(("--pk", f"price={json.dumps(asdict(price))}") if price is not None else ()),
        *settings.harbor_args,
    ]  # fmt: skip


def harbor_program() -> str:
    """The `harbor` that is installed beside this Python."""
    return str(Path(sys.executable).parent / "harbor")


def _plugin_text(text: str) -> str:
    """A value for `--pk`, which Harbor reads as JSON where it can: a profile called 12 must stay a text."""
    try:
        json.loads(text)
    except ValueError:
        return text
    return json.dumps(text)


def _verifier(settings: RunTable) -> dict[str, Any]:
    config: dict[str, Any] = {"import_path": VERIFIER}
    if settings.verifier_system is not None:
        config["kwargs"] = {"verifier_system": settings.verifier_system}
    return config


def _environment(experiment: Experiment, profile: Profile) -> dict[str, Any]:
    name = experiment.run.container_env
    path = registry.import_path("environments", name)
    config: dict[str, Any] = {"import_path": path} if path is not None else {"type": name}
    if name == "local":
        more: dict[str, Any] = {"images": image_entries(experiment.run, experiment.root), "ca": experiment.run.ca}
        if experiment.run.fresh_setup or experiment.force_rebuild:
            more["setups_since"] = time.time()
        told = {key: value for key, value in more.items() if value}
        config["kwargs"] = {"network": _network(experiment.run, profile), **told}
    elif experiment.run.container_options:
        config["kwargs"] = dict(experiment.run.container_options)
    if profile.mounts or profile.programs:
        inner = [entry for program in profile.programs for entry in program.entries()]
        entries = {entry["target"]: entry for entry in (*inner, *(one.entry() for one in profile.mounts))}
        config["mounts"] = [*entries.values()]
    if name in OF_THIS_MACHINE:
        # Harbor's `delete` also removes the images it built, so that every batch would build them again.
        config["delete"] = False
    if experiment.force_rebuild:
        config["force_build"] = True
    return config


def _network(run: RunTable, profile: Profile) -> dict[str, Any] | str:
    """Return what the local sandbox is told of the network."""
    if isinstance(run.network, str):
        return run.network
    own = phases(run.network) if run.network is not None else {}
    told = {**own, "model": model_endpoints(profile), "declared": declared_addresses(profile)}
    return {name: value for name, value in told.items() if value}


def _agent(experiment: Experiment, profile: Profile) -> dict[str, Any]:
    # Harbor prefers `name` to `import_path` and the profile's key never enters, so that a profile
    # called "codex" stays what its table says.
    agent = profile.agent
    path = agent_class(agent, profile.model)
    config: dict[str, Any] = {"import_path": path} if path else {"name": agent.name}
    if profile.model is not None:
        digest = profile.option_files.get("model") if is_local(profile.model) else None
        config["model_name"] = f"{profile.model},digest={digest}" if digest else profile.model
    if experiment.run.agent_timeout_sec is not None:
        config["override_timeout_sec"] = experiment.run.agent_timeout_sec
    kwargs = _kwargs(experiment, profile)
    if kwargs:
        config["kwargs"] = kwargs
    if profile.skills:
        config["skills"] = [str(folder.path) for folder in profile.skills]
    if profile.mcp.servers and not agent.hooks:
        config["mcp_servers"] = [_native_server(name, entry) for name, entry in profile.mcp.servers.items()]
    named = {name: f"${{{name}}}" for name in references(profile.mcp.servers)}
    env = {**named, **profile.conditions("env"), **profile.env}
    if env:
        config["env"] = env
    return config


def _with_lessons(agent: dict[str, Any], run: RunTable, profile: Profile, batch: Batch) -> dict[str, Any]:
    """The agent, in a wrapper where its trials may be shown lessons.

    Another batch draws by another seed, also with the same `run.seed`: trials that draw alike would be no new evidence.
    """
    if profile.lessons is None:
        return agent
    place = f"{batch.folder.parent.name}/{batch.folder.name}"
    seed = place if run.seed is None else f"{run.seed} {place}"
    digest = profile.snapshot.digest if profile.snapshot is not None else None
    return wrapped(agent, {"snapshot": str(batch.lessons(profile.key)), "digest": digest, "seed": seed})


def _kwargs(experiment: Experiment, profile: Profile) -> dict[str, Any]:
    agent = profile.agent
    kwargs = {**profile.conditions("options"), **profile.options}
    if profile.reasoning is not None and agent.reasoning is not None:
        kwargs[agent.reasoning] = profile.reasoning
    if profile.agent_version is not None:
        kwargs["version"] = profile.agent_version
    if profile.system_prompt and agent.system_prompt is not None:
        kwargs[agent.system_prompt] = profile.system_prompt
    if agent.seed_option is not None and agent.seed_option not in kwargs:
        kwargs |= _seed(experiment, profile, agent.seed_option)
    if agent.hooks:
        kwargs.update(_claude_code(profile))
    if profile.workflow is not None:
        kwargs["workflow"] = profile.workflow.texts
    if profile.command is not None:
        files = {str(one.path): {"target": one.target, "digest": one.digest} for one in profile.command.files}
        kwargs["command"] = {**profile.command.plain(), **({"files": files} if files else {})}
    return kwargs


def _seed(experiment: Experiment, profile: Profile, option: str) -> dict[str, int]:
    """The seed of the run; another for a profile that equals one before it: an A/A test of copies would say nothing."""
    twins = experiment.twins.get(profile.key, 0)
    return {option: (experiment.run.seed or 0) + twins} if twins or experiment.run.seed is not None else {}


def _claude_code(profile: Profile) -> dict[str, Any]:
    """Return what our Claude Code agent takes beyond Harbor's."""
    kwargs: dict[str, Any] = {}
    if profile.mcp.servers:
        kwargs["mcp_config"] = profile.mcp.config()
    if profile.mcp_git_source is not None:
        source = {"git": profile.mcp_git_source}
        kwargs["mcp_source"] = source | ({"ref": profile.mcp_git_ref} if profile.mcp_git_ref else {})
        kwargs["mcp_extras"] = sorted({folder.name for folder in profile.mcp.folders.values()})
    elif local := profile.local_servers():
        kwargs["mcp_source"] = {"paths": {name: str(folder.path) for name, folder in local.items()}}
    hooks = profile.hooks_config()
    if hooks is not None:
        kwargs["hooks"] = hooks
    return kwargs


def _native_server(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """One server as Harbor's own `mcp_servers` takes it. Harbor has no `env` there, so a shell sets it."""
    if "url" in entry:
        transport = entry.get("type") or entry.get("transport") or "streamable-http"
        return {"name": name, "transport": {"http": "streamable-http"}.get(transport, transport), "url": entry["url"]}
    argv = [entry["command"], *entry.get("args", [])]
    env = entry.get("env") or {}
    if env:
        exports = " ".join(f"{key}={_shell_value(value)}" for key, value in env.items())
        argv = ["sh", "-c", f'export {exports}; exec "$0" "$@"', *argv]
    return {"name": name, "transport": "stdio", "command": argv[0], "args": argv[1:]}


def _shell_value(value: str) -> str:
    """A value for the shell in the sandbox: references stay references, everything else is quoted."""
    parts = [f'"{part}"' if TEMPLATE.fullmatch(part) else shlex.quote(part) if part else "" for part in _split(value)]
    return "".join(parts) or "''"


def _split(value: str) -> list[str]:
    parts, end = [], 0
    for match in TEMPLATE.finditer(value):
        parts += [value[end : match.start()], match.group()]
        end = match.end()
    return [*parts, value[end:]]


def _datasets(tasks: tuple[PlannedTask, ...]) -> list[dict[str, Any]]:
    """Harbor's `datasets` for tasks that are not looked up yet: one entry a dataset."""
    entries: dict[str, dict[str, Any]] = {}
    for task in tasks:
        if task.found:
            continue
        entry = entries.setdefault(task.label, {**task.config, "task_names": []})
        entry["task_names"] = [*entry["task_names"], *task.config["task_names"]]
    return list(entries.values())


def shown(argv: list[str], root: Path) -> str:
    """A command as a person would type it in the project root."""
    return shlex.join([argument.replace(f"{root}/", "") for argument in argv])
