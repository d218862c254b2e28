"""Problems that Harbor itself finds before the first trial, in a process of its own (`harbor.answer`).

Variables reach it through the pipe, never through arguments.
"""

import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from terminalbench.decode import decode
from terminalbench.errors import did_you_mean
from terminalbench.locks import start_ticks

if TYPE_CHECKING:
    from terminalbench.experiments.agents import AgentInfo


_FOLDER = "tbench-preflight-"
_OLD_SEC = 86_400.0


class JobRequest(msgspec.Struct, frozen=True):
    """One job to check: its JobConfig, the environment its process will have, and the user's own arguments for it.

    `env_file` is what to call the file that variables come from; `declared` are those that tasks may take.
    """

    name: str
    config: dict[str, Any]
    env: dict[str, str]
    arguments: tuple[str, ...] = ()
    env_file: str = "the env file"
    declared: tuple[str, ...] = ()


class PreflightRequest(msgspec.Struct, frozen=True):
    """The jobs of a batch. They share their tasks and their environment type."""

    jobs: tuple[JobRequest, ...]


class JobReport(msgspec.Struct, frozen=True):
    """The problems of one job as a whole; empty when there are none."""

    name: str
    problems: tuple[str, ...] = ()


class PreflightReport(msgspec.Struct, frozen=True):
    """The problems of the environment, of jobs, and of tasks (by their place in the JobConfig).

    `notes` say what is not as one would expect of the environment, and stops nothing.
    """

    environment: str | None
    jobs: tuple[JobReport, ...]
    tasks: dict[int, str]
    notes: tuple[str, ...] = ()


def check(request: PreflightRequest) -> PreflightReport:
    """Check every job, and every task once: a task is the same in all jobs."""
    environment: str | None = None
    tasks: dict[int, str] = {}
    reports: list[JobReport] = []
    checked_tasks = False
    declared = set.intersection(*(set(job.declared) for job in request.jobs))
    for job in request.jobs:
        with _environment_of(job):
            problems = list(_job_problems(job))
            if not problems and environment is None and not checked_tasks:
                environment = _environment_problem(job.config)
            if not problems and environment is None:
                places = [i for i in range(len(job.config["tasks"])) if i not in tasks]
                found = _task_problems(job.config, declared, only=places[:1] if checked_tasks else places)
                if not checked_tasks:
                    by_agent = _agents_own(job.config, declared, found)
                    problems += dict.fromkeys(by_agent.values())
                    tasks = {index: reason for index, reason in found.items() if index not in by_agent}
                    checked_tasks = not by_agent
                elif found:
                    problems += list(found.values())
        reports.append(JobReport(job.name, tuple(problems)))
    return PreflightReport(environment, tuple(reports), tasks, _environment_notes(request.jobs[0].config))


def _agents_own(config: dict[str, Any], declared: set[str], found: dict[int, str]) -> dict[int, str]:
    """The problems that vanish with an agent that does nothing: they are the agent's, not the tasks'."""
    neutral = {**config, "agents": [{"name": "nop"}]}
    still = _task_problems(neutral, declared, only=list(found)) if found else {}
    return {index: reason for index, reason in found.items() if index not in still}


@contextlib.contextmanager
def _environment_of(job: JobRequest) -> Generator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(job.env)
    for entry in reversed(job.env.get("PYTHONPATH", "").split(os.pathsep)):
        if entry and entry not in sys.path:
            sys.path.insert(0, entry)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _job_problems(job: JobRequest) -> Iterator[str]:
    from harbor.agents.factory import AgentFactory
    from harbor.models.job.config import JobConfig
    from harbor.utils.env import resolve_env_vars
    from pydantic import ValidationError

    from terminalbench.experiments.agents import NO_MODEL, NO_MODEL_HINT
    from terminalbench.experiments.envfile import not_set
    from terminalbench.experiments.lessons import unwrapped
    from terminalbench.harbor.agents.needs import missing_key, not_installable
    from terminalbench.secrets.patterns import references

    config = job.config
    try:
        parsed = JobConfig.model_validate(config)
    except ValidationError as error:
        yield from (f"Harbor refuses {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        return
    back = decode(parsed.model_dump_json())
    yield from (f"Harbor ignores the key {key.lstrip('.')}" for key in dropped(config, back))
    agent = type(parsed.agents[0]).model_validate(unwrapped(parsed.agents[0].model_dump(exclude_unset=True)))
    try:
        variables = resolve_env_vars(agent.env)
    except ValueError as error:
        names = list(dict.fromkeys(n for text in agent.env.values() for n in references(text) if n not in os.environ))
        yield not_set(names or [str(error)], job.env_file)
        return
    yield from weak_keys({**variables, **parsed.verifier.env})
    try:
        kind = AgentFactory.get_agent_class_from_config(agent)
        if not hasattr(kind, "preflight"):
            yield f"{kind.__name__} is not a Harbor agent (declare it as class {kind.__name__}(BaseAgent))"
            return
        AgentFactory.run_preflight(agent)
    except (Exception, SystemExit) as error:  # noqa: BLE001  any agent's own check may raise anything
        yield f"the agent cannot be used: {_said(error)}"
        return
    info = _info(agent.name, agent.import_path)
    if info.needs_model and not agent.model_name:
        yield f"agent {info.name} {NO_MODEL} ({NO_MODEL_HINT})"
        return
    yield from _unknown_options(kind, agent.kwargs)
    missing = missing_key(kind, info.logins, agent.model_name, agent.kwargs, {**os.environ, **variables})
    if missing is not None:
        yield f"{missing} (put it into {job.env_file}, or list it in env and export it)"
    given = {*variables, *(config["environment"].get("env") or {}), *(f"option:{name}" for name in agent.kwargs)}
    uninstallable = not_installable(info, config["environment"], job.arguments, config["tasks"], given)
    if uninstallable is not None:
        yield uninstallable


def weak_keys(variables: Mapping[str, str]) -> Iterator[str]:
    """Keys that Harbor would cut out of the text of every file of a trial, where they are words of other texts.

    It takes a variable for a key by its name. Only the names are told.
    """
    from harbor.utils.env import is_env_template, is_sensitive_env_key

    from terminalbench.secrets.patterns import WEAK, WEAK_HINT, is_weak

    for name, value in variables.items():
        if value and is_sensitive_env_key(name) and not is_env_template(value) and is_weak(value):
            yield f"the value of {name} {WEAK} ({WEAK_HINT})"


def _info(name: str | None, path: str | None) -> "AgentInfo":
    """The record of the agent of a job; that of a class which has no record says nothing."""
    from terminalbench import registry
    from terminalbench.experiments.agents import AgentInfo, agent_info

    ours = {place: known for known, place in registry.BUILTIN["agents"].items()}
    spec = ours.get(path or "") or path or name or ""
    return agent_info(spec) or AgentInfo(name=spec)


def _unknown_options(kind: Any, options: dict[str, Any]) -> Iterator[str]:
    """The options that the class of an agent does not name, which `validate` cannot tell."""
    import inspect

    record = getattr(kind, "AGENT_INFO", {})
    if kind.options_model is not None or record.get("any_options"):
        return  # Harbor is strict about an options model itself
    named: set[str] = set(record.get("options") or ())
    for place in kind.__mro__:
        init = vars(place).get("__init__")
        parameters = inspect.signature(init).parameters.values() if inspect.isfunction(init) else ()
        named |= {parameter.name for parameter in parameters}
        if parameters and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    for flag in (*getattr(kind, "CLI_FLAGS", ()), *getattr(kind, "ENV_VARS", ())):
        named.add(flag.kwarg)
    for option in options:
        if option not in named:
            hint = did_you_mean(option, sorted(named)) or "it has no options"
            yield f'agent {kind.__module__}:{kind.__name__} has no option "{option}" ({hint})'


def _environment_problem(config: dict[str, Any]) -> str | None:
    from harbor.environments.factory import EnvironmentFactory
    from harbor.models.trial.config import EnvironmentConfig

    environment = EnvironmentConfig.model_validate(config["environment"])
    try:
        EnvironmentFactory.run_preflight(environment.type, environment.import_path)
        EnvironmentFactory.validate_resource_policies(environment)
    except (Exception, SystemExit) as error:  # noqa: BLE001  any environment's own check may raise anything
        return _said(error)
    return None


def _environment_notes(config: dict[str, Any]) -> tuple[str, ...]:
    """Return what a class of one's own has noted in its preflight."""
    module, _, name = (config["environment"].get("import_path") or "").partition(":")
    return getattr(getattr(sys.modules.get(module), name, None), "preflight_notes", ())


def _task_problems(config: dict[str, Any], declared: set[str], *, only: list[int]) -> dict[int, str]:
    """Create a trial of each of these tasks as Harbor would, in a throw-away folder; those that fail, and why."""
    import asyncio

    found: dict[int, str] = {}
    with _throw_away() as folder:
        for index in only:
            single = {**config, "tasks": [config["tasks"][index]], "n_attempts": 1, "jobs_dir": folder}
            problem = asyncio.run(_create(single, declared, Path(folder)))
            if problem is not None:
                found[index] = problem
    return found


@contextlib.contextmanager
def _throw_away() -> Generator[str]:
    """A folder for as long as it is needed. By its name the next check knows what a killed one left."""
    for left in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        if _is_left(left):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{_space()}.{os.getpid()}.{start_ticks(os.getpid())}-") as folder:
        yield folder


def _space() -> int:
    """The space in which a pid means a process: a container has its own, and may share the folder."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _is_left(folder: Path) -> bool:
    """Return whether a folder is ours and its process is gone; where that cannot be told, whether it is a day old."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
        return False
    named = re.fullmatch(rf"{_FOLDER}(\d+)\.(\d+)\.(\d+)-.*", folder.name)
    if named is None or int(named[1]) != _space():
        return time.time() - status.st_mtime > _OLD_SEC
    return start_ticks(int(named[2])) != int(named[3])


async def _create(config: dict[str, Any], declared: set[str], folder: Path) -> str | None:
    from harbor.job_plan import JobPlan
    from harbor.models.job.config import JobConfig
    from harbor.models.task.task import Task
    from harbor.trial.trial import Trial

    from terminalbench.experiments.task_folder import broken
    from terminalbench.harbor.verifier import system_of_tests

    task = config["tasks"][0]
    if "git_url" not in task and "path" in task:
        path = Path(task["path"])
        if not path.is_dir():
            return f"there is no folder {path}"
        if not Task.is_valid_dir(path):
            needed = "it needs task.toml, instruction.md, environment/ and tests/"
            return f"{path} is not a valid Harbor task: {broken(path) or needed}"
        if (problem := _folder_problem(path, declared)) is not None:
            return problem
    try:
        plan = await JobPlan.from_config(JobConfig.model_validate(config))
        trial = await Trial.create(plan.trial_configs[0].model_copy(update={"trials_dir": folder}))
        system_of_tests(trial.task.config.metadata)
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it raises would end the whole job
        return _said(error)
    return _folder_problem(trial.task.paths.task_dir, declared)  # one that was fetched only now


def _folder_problem(folder: Path, declared: set[str]) -> str | None:
    from terminalbench.experiments.task_folder import foreign_file, undeclared

    found = foreign_file(folder)
    return undeclared(folder, declared, os.environ) if found is None else f"{found} (copy it into the folder)"


def dropped(sent: Any, parsed: Any, at: str = "") -> Iterator[str]:
    """The keys that were sent and did not come back with the same value."""
    if isinstance(sent, dict):
        for key, value in sent.items():
            if not isinstance(parsed, dict) or key not in parsed:
                yield f"{at}.{key}"
            else:
                yield from dropped(value, parsed[key], f"{at}.{key}")
    elif isinstance(sent, list):
        if not isinstance(parsed, list) or len(parsed) != len(sent):
            yield at
        else:
            for index, value in enumerate(sent):
                yield from dropped(value, parsed[index], f"{at}[{index}]")
    elif sent != parsed:
        yield at


def _said(error: BaseException) -> str:
    from terminalbench.secrets.values import Secrets

    text = " ".join(str(error).split()) or type(error).__name__
    return Secrets.of_environment().redact(text)[:500]
