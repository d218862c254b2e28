"""Proving an experiment before a run: the tasks can be solved and are not solved by doing nothing, in the exact
environment; every agent installs; every model answers."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.findings.failed_checks import last_lines
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.envfile import secrets_of
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import ExclusionKind, JobSpec, Plan, PlannedImages, ProfileRecord
from terminalbench.experiments.planner import Selection
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.quarantine import QuarantinedTask, write_quarantine
from terminalbench.experiments.quarantine import release as take_out
from terminalbench.harbor.agents.endpoint import EndpointReport, EndpointRequest
from terminalbench.harbor.jobs import command, harbor_program, job_config
from terminalbench.harbor.limits.gate import Gate, GateState
from terminalbench.harbor.read.results import read_job
from terminalbench.live.state import LiveState, replay
from terminalbench.llm.local.spec import LocalSpec, is_local, parse_local
from terminalbench.llm.model import ModelError
from terminalbench.llm.ollama import OllamaServer, server_url
from terminalbench.records.event import Event
from terminalbench.records.trial import Outcome, TaskRef, Trial
from terminalbench.runner.environment import child_environment
from terminalbench.runner.executors.local import ask
from terminalbench.runner.preflight import PreparedPlan
from terminalbench.runner.run import prepare_run
from terminalbench.runner.supervise import BatchSupervisor
from terminalbench.runner.waves import Launch
from terminalbench.secrets.patterns import is_template
from terminalbench.secrets.values import Secrets

_PROBE_TIMEOUT_SEC = 120
_SAID_LINES = 5
CHECKS = ".check"
_NEEDS_AGENTS = (
    "its own solution passes only if the tests run in the system that it changed: "
    'set verifier_system = "agent" in [metadata] of its task.toml'
)


@dataclass(frozen=True)
class TaskCheck:
    """The results of oracle and nop on one task; `problem` says why the task cannot be trusted, if it cannot.

    `said` are then the last lines of the verifier.
    """

    task: TaskRef
    oracle: Outcome | None
    nop: Outcome | None
    problem: str | None
    quarantined: bool = False
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProfileCheck:
    """The answer whether a profile can run: what was found before, its agent's installation, its model's endpoint.

    `install` and `endpoint` are None when there was nothing to probe.
    """

    profile: str
    problem: str | None
    install: str | None
    endpoint: str | None


@dataclass(frozen=True)
class CheckReport:
    """The findings, and the folder in which the trials of the check are kept.

    `quarantined` is the file that now holds the failing tasks; `released` left it, `still_held` stay in it.
    """

    tasks: tuple[TaskCheck, ...]
    profiles: tuple[ProfileCheck, ...]
    folder: Path
    interrupted: bool
    quarantined: Path | None = None
    released: tuple[str, ...] = ()
    still_held: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether everything that was asked for is in order."""
        return not self.interrupted and not any([*(t.problem for t in self.tasks), *(p.problem for p in self.profiles)])


def check(
    experiment: Experiment,
    selection: Selection,
    *,
    probe: bool = True,
    quarantine: bool = False,
    release: bool = False,
    progress: Callable[[LiveState], None] = lambda _state: None,
    preparing: Callable[[str], None] = lambda _text: None,
) -> CheckReport:
    """Check tasks, agents and models. Costs one tiny call per model, and two trials without a model per task.

    `quarantine` leaves the failing tasks out of later runs; `release` checks the quarantined ones too, and takes out
    those that are in order again.
    """
    held = experiment.quarantine
    if release and not held:
        raise UserError("no task is quarantined", where=str(experiment.file))
    report = _checked(
        dataclasses.replace(experiment, quarantine={}) if release else experiment, selection, probe, progress, preparing
    )
    failing = [t for t in report.tasks if t.problem and not t.quarantined]
    if quarantine and failing and not report.interrupted:
        today = datetime.now(UTC).date().isoformat()
        found = [QuarantinedTask(t.task.id, t.task.dataset, t.problem or "", today) for t in failing]
        report = dataclasses.replace(report, quarantined=write_quarantine(experiment.file, found))
    again = [t for t in report.tasks if release and (t.task.dataset, t.task.id) in held]
    fine = [t.task for t in again if not t.problem]
    if fine:
        take_out(experiment.file, [(task.dataset, task.id) for task in fine])
    still = tuple(t.task.id for t in again if t.problem)
    return dataclasses.replace(report, released=tuple(task.id for task in fine), still_held=still)


def _checked(
    experiment: Experiment,
    selection: Selection,
    probe: bool,
    progress: Callable[[LiveState], None],
    preparing: Callable[[str], None],
) -> CheckReport:
    prepared = prepare_run(experiment, selection, preparing, refuse=False)
    plan = prepared.plan
    batch = allocate(experiment.results_root / CHECKS, experiment.slug)
    stamp = datetime.now(UTC).strftime("%Y-%m-%d__%H-%M-%S")
    refused = {exclusion.task for exclusion in plan.excluded if exclusion.profile is None}
    tasks = tuple(task for task in plan.jobs[0].tasks if task.ref not in refused)
    trusted: dict[str, Launch] = {}
    for agent in ("oracle", "nop"):
        profile = _stand_in(agent)
        job = JobSpec(f"{stamp}__{profile.key}", profile.key, profile.id, 1, tasks)
        own = child_environment(profile, experiment.root, os.environ, experiment.run.container_env)
        env = next(iter(prepared.environments.values()), own)  # with the variables that the tasks may take
        trusted[agent] = _launch(experiment, batch, profile, job, env, plan.images)
    installs: dict[str, Launch] = {}  # for each agent that is installed: a job that only does that, on the first task
    for job in map(plan.runnable, plan.jobs if probe else ()):
        profile = prepared.profiles[job.profile]
        if job.tasks and profile.agent.version:
            name = f"{stamp}__install-{profile.key}"
            single = msgspec.structs.replace(job, name=name, tasks=job.tasks[:1], attempts=1)
            env = prepared.environments[job.profile]
            installs[profile.key] = _launch(experiment, batch, profile, single, env, plan.images, install_only=True)
    Gate(batch.gate_json).create(GateState())  # without limits: what a check runs costs nothing
    state = replay(_plan_of(plan, trusted), [])

    def watch(event: Event) -> None:
        if event.profile in state.profiles:
            state.apply(event)

    supervisor = BatchSupervisor(batch, [*trusted.values(), *installs.values()], 0, watch, lambda: progress(state))
    supervisor.run()
    found = {agent: _by_task(batch, launch.job.name) for agent, launch in trusted.items()}
    interrupted, opted = bool(supervisor.signals), {}
    again = (
        None
        if interrupted
        else _in_the_agents_system(experiment, batch, trusted["oracle"], found["oracle"], plan.images)
    )
    if again is not None:
        again.run()
        interrupted = bool(again.signals)
        opted = _by_task(batch, again.launches[0].job.name)
    secrets = secrets_of(plan)
    checks = tuple(
        _with_words(_judge(plan, t.ref, t.label, found["oracle"], found["nop"], opted), t.label, found, batch, secrets)
        for t in plan.jobs[0].tasks
    )
    kept = {} if interrupted else installs
    profiles = tuple(_profile_check(prepared, j, kept, batch, probe=probe and not interrupted) for j in plan.jobs)
    return CheckReport(checks, profiles, batch.folder, interrupted, notes=prepared.notes)


def _in_the_agents_system(
    experiment: Experiment,
    batch: Batch,
    oracle: Launch,
    found: Mapping[tuple[str | None, str], Trial],
    images: PlannedImages | None,
) -> BatchSupervisor | None:
    """Tries solutions that failed once more, with tests that run in the system that they changed; None without any."""
    failed = {key for key, trial in found.items() if trial.outcome is Outcome.FAILED}
    tasks = tuple(task for task in oracle.job.tasks if (task.label, task.ref.id) in failed)
    if not tasks or experiment.run.container_env != "local" or experiment.run.verifier_system == "agent":
        return None
    opted = dataclasses.replace(experiment, run=dataclasses.replace(experiment.run, verifier_system="agent"))
    job = msgspec.structs.replace(oracle.job, name=f"{oracle.job.name}-agent-system", tasks=tasks)
    launch = _launch(opted, batch, _stand_in("oracle"), job, oracle.env, images)
    return BatchSupervisor(batch, [launch], 0, lambda _: None, lambda: None)


def _plan_of(plan: Plan, trusted: Mapping[str, Launch]) -> Plan:
    """Return what the check runs on the tasks, as a plan."""
    jobs = tuple(launch.job for launch in trusted.values())
    records = tuple(
        ProfileRecord(job.profile, job.profile_id, {"agent": a}) for a, job in zip(trusted, jobs, strict=True)
    )
    return msgspec.structs.replace(plan, jobs=jobs, profiles=records, excluded=())


def _stand_in(agent: str) -> Profile:
    info = agent_info(agent)
    if info is None:
        raise LookupError(agent)
    return Profile(key=f"check-{agent}", agent=info)


def _launch(
    experiment: Experiment,
    batch: Batch,
    profile: Profile,
    job: JobSpec,
    env: dict[str, str],
    images: PlannedImages | None,
    **more: bool,
) -> Launch:
    return Launch(
        job,
        lambda wave: _config(job_config(experiment, profile, wave, batch, images), **more),
        lambda wave: command(experiment.run, wave, batch, harbor_program()),
        env,
    )


def _config(config: dict[str, Any], **more: bool) -> dict[str, Any]:
    """A JobConfig of a check: an agent is installed for real, whatever set-up was kept."""
    environment = dict(config["environment"])
    if "network" in (environment.get("kwargs") or {}):
        environment["kwargs"] = {**environment["kwargs"], "setups_since": None}
    return {**config, **more, "environment": environment}


def _by_task(batch: Batch, job: str) -> dict[tuple[str | None, str], Trial]:
    readings = read_job(batch.job_folder(job))
    return {(r.trial.dataset, r.trial.task): r.trial for r in readings if r.trial is not None}


def _judge(plan: Plan, task: TaskRef, label: str, oracle: Mapping, nop: Mapping, opted: Mapping) -> TaskCheck:
    excluded = next((e for e in plan.excluded if e.profile is None and e.task == task), None)
    if excluded is not None:
        return TaskCheck(task, None, None, excluded.reason, excluded.kind is ExclusionKind.QUARANTINED)
    solved, idle = oracle.get((label, task.id)), nop.get((label, task.id))
    problems = []
    if solved is None or solved.outcome is not Outcome.PASSED:
        with_agents = opted.get((label, task.id))
        if with_agents is not None and with_agents.outcome is Outcome.PASSED:
            problems.append(_NEEDS_AGENTS)
        else:
            problems.append(f"its own solution does not pass ({_ending(solved)}){_service_hint(solved)}")
    if idle is None or idle.outcome is not Outcome.FAILED:
        problems.append(f"an agent that does nothing does not fail ({_ending(idle)})")
    problems += _wrong_lists(idle)
    return TaskCheck(
        task, solved.outcome if solved else None, idle.outcome if idle else None, "; ".join(problems) or None
    )


def _with_words(
    check: TaskCheck, label: str, found: Mapping[str, Mapping], batch: Batch, secrets: Secrets
) -> TaskCheck:
    """A task that cannot be trusted, with the last words of the verifier on the trial that shows it."""
    agent = "nop" if check.oracle is Outcome.PASSED else "oracle"
    trial = found[agent].get((label, check.task.id)) if check.problem else None
    if trial is None:
        return check
    file = batch.job_folder(trial.job) / trial.name / "verifier" / "test-stdout.txt"
    return dataclasses.replace(check, said=tuple(last_lines(file, secrets)[0][-_SAID_LINES:]))


def _wrong_lists(idle: Trial | None) -> list[str]:
    """Return what is wrong with the lists of a SWE-Bench Pro instance, by the shares that passed with nothing done."""
    shares = idle.rewards or {} if idle is not None else {}
    found = []
    if shares.get("pass_to_pass", 1) < 1:
        found.append(
            f"with an agent that does nothing, only {shares['pass_to_pass']:.0%} of its pass_to_pass tests pass"
        )
    if shares.get("fail_to_pass", 0) > 0:
        found.append(
            f"with an agent that does nothing, {shares['fail_to_pass']:.0%} of its fail_to_pass tests already pass"
        )
    return found


def _service_hint(trial: Trial | None) -> str:
    """Processes are ended before the tests run: a task whose answer is a running service has to say so."""
    if trial is None or trial.outcome is not Outcome.FAILED:
        return ""
    return "; if the solution is a running process, set keep_processes = true in [metadata] of its task.toml"


def _ending(trial: Trial | None) -> str:
    if trial is None:
        return "no result"
    return f"{trial.outcome}: {trial.error_message}" if trial.error_message else str(trial.outcome)


def _profile_check(
    prepared: PreparedPlan, job: JobSpec, probes: dict[str, Launch], batch: Batch, *, probe: bool
) -> ProfileCheck:
    plan, profile = prepared.plan, prepared.profiles[job.profile]
    excluded = next((e.reason for e in plan.excluded if e.profile == profile.key), None)
    if excluded is not None:
        return ProfileCheck(profile.key, excluded, None, None)
    install = _install_result(batch, probes[profile.key].job.name) if profile.key in probes else None
    endpoint = _endpoint(profile, prepared.environments[profile.key]) if probe else None
    problems = [
        f"{what}: {said}" for what, said in (("install", install), ("model", endpoint)) if said not in (None, "ok")
    ]
    return ProfileCheck(profile.key, "; ".join(problems) or None, install, endpoint)


def _install_result(batch: Batch, job: str) -> str:
    reading = next(iter(read_job(batch.job_folder(job))), None)
    if reading is None or reading.trial is None:
        return (reading.reason if reading else None) or "no result"
    trial = reading.trial
    return "ok" if trial.error_class is None else f"{trial.error_class}: {trial.error_message}"


def _endpoint(profile: Profile, env: Mapping[str, str]) -> str | None:
    """ "ok", what went wrong, or None when there is no model to ask."""
    if profile.model is None or profile.agent.simulated or not profile.agent.model:
        return None
    variables = {**env, **{name: value for name, value in profile.env.items() if not is_template(value)}}
    base = profile.options.get("api_base") or profile.options.get("base_url")
    if base is None and profile.agent.base_url_env is not None:
        base = variables.get(profile.agent.base_url_env)
    if is_local(profile.model):
        return _served(parse_local(profile.model))
    if profile.agent.name == "ollama":  # by its own API, as the agent does: LiteLLM reads names with a slash otherwise
        return _ollama(profile.model, base or variables.get("OLLAMA_HOST"))
    bare = profile.agent.provider is not None and "/" not in profile.model
    model = f"{profile.agent.provider}/{profile.model}" if bare else profile.model
    function, request = "terminalbench.harbor.agents.endpoint:ask", EndpointRequest(model, base)
    try:
        report = ask(function, request, EndpointReport, variables, _PROBE_TIMEOUT_SEC, "asking the model")
    except TbenchError as error:
        return error.what
    return "ok" if report.answered else report.problem


def _served(spec: LocalSpec) -> str:
    from terminalbench.llm.local.lease import lease

    try:
        held = lease(spec)
    except ModelError as error:
        return f"{error.what} ({error.hint})" if error.hint else error.what
    try:
        return _ollama(held.name, held.url, held.token)
    finally:
        held.close()


def _ollama(name: str, host: str | None, token: str | None = None) -> str:
    server = OllamaServer(server_url(host), _PROBE_TIMEOUT_SEC, token)
    asked = [{"role": "user", "content": "Answer with the word ok."}]
    try:
        server.chat({"model": server.find(name).name, "messages": asked, "options": {"num_predict": 1}})
    except ModelError as error:
        return f"{error.what} ({error.hint})" if error.hint else error.what
    return "ok"
