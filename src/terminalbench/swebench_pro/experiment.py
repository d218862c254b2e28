"""An experiment over arms and instances: one experiment file in the output folder, one batch, projections at its end.

An arm is a profile with the agent `guarded`, an instance is a task. The file is written once; going on with it means
that arms, model and instances are the same, and says what differs when they are not.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import load
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.profile_changes import summaries
from terminalbench.experiments.tables import SCHEMA_VERSION, SLUG
from terminalbench.experiments.write import experiment_toml
from terminalbench.files import write_project_file
from terminalbench.json_files import read_json
from terminalbench.lab.resume import resume
from terminalbench.lab.run import Ended, run
from terminalbench.locks import LockHeld, lock
from terminalbench.runner.growth import changed_settings
from terminalbench.runner.run import Listener
from terminalbench.secrets.find import WEAK, WEAK_HINT, is_weak
from terminalbench.swebench_pro.instances import TaskInstance
from terminalbench.swebench_pro.output import SLUG as BATCH_SLUG
from terminalbench.swebench_pro.output import Output
from terminalbench.swebench_pro.projections import Projected, project
from terminalbench.swebench_pro.rows import BASELINE
from terminalbench.swebench_pro.workers import Sharing, at_start
from terminalbench.text.numbers import plural, some

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
_ADDRESS = re.compile(r"https?://[^/\s]+")
_DIFFERENCES = 12


@dataclass(frozen=True)
class Wanted:
    """What is to be run. `arms` are names of shipped workflows or files; `max_cost_usd` is the budget of the batch."""

    arms: tuple[str, ...]
    instances: tuple[TaskInstance, ...]
    tasks: Path
    model: str
    provider: str
    base_url: str | None = None
    max_workers: int = 1
    trial_timeout_sec: float | None = None
    max_cost_usd: float | None = None
    container_env: str = "docker"


@dataclass(frozen=True)
class Done:
    """What became of it."""

    ended: Ended
    projected: Projected


def model_name(provider: str, model: str) -> str:
    """A model as the bench names it. A name that says its provider already stays as it is."""
    if provider in _BY_COLON:
        return model if model.startswith(f"{provider}:") else f"{provider}:{model}"
    return model if model.startswith(f"{provider}/") else f"{provider}/{model}"


def key_variable(provider: str) -> str | None:
    """The variable in which LiteLLM looks for a provider's key; None where there is none."""
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


def arm_key(arm: str) -> str:
    """The profile of an arm: the name of its workflow, of a file its stem."""
    name = Path(arm).stem if arm.endswith(".toml") else arm
    if not re.fullmatch(SLUG, name):
        raise UserError(f'"{arm}" cannot be the name of an arm', hint="a shipped workflow, or a .toml file of one")
    return name


def document(wanted: Wanted, output: Output) -> dict[str, Any]:
    """The experiment as a TOML document."""
    keys = [arm_key(arm) for arm in wanted.arms]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise UserError(f"{some(twice)}: an arm is named twice")
    side_by_side, each = at_start(wanted.max_workers, len(keys))
    run_table: dict[str, Any] = {
        "results_root": str(output.results_root.resolve()),
        "container_env": wanted.container_env,
        "parallel": each,
        "profiles_parallel": side_by_side,
    }
    run_table |= {"agent_timeout_sec": wanted.trial_timeout_sec} if wanted.trial_timeout_sec else {}
    run_table |= {"budget_usd": wanted.max_cost_usd} if wanted.max_cost_usd else {}
    profiles = {key: _profile(wanted, arm) for key, arm in zip(keys, wanted.arms, strict=True)}
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "slug": BATCH_SLUG,
        "name": f"SWE-Bench Pro: {some(keys, 3)} with {wanted.model}",
        "run": run_table,
        "tasks": {
            "default_dataset": str(wanted.tasks.resolve()),
            "items": [{"id": instance.instance_id} for instance in wanted.instances],
        },
        "profiles": profiles,
    }
    return found | ({"analysis": {"baseline": BASELINE}} if BASELINE in keys else {})


def _profile(wanted: Wanted, arm: str) -> dict[str, Any]:
    variable = key_variable(wanted.provider)
    found: dict[str, Any] = {
        "agent": AGENT,
        "model": model_name(wanted.provider, wanted.model),
        "workflow": str(Path(arm).resolve()) if arm.endswith(".toml") else arm,
    }
    found |= {"env": [variable]} if variable is not None else {}
    options: dict[str, Any] = {"base_url": wanted.base_url} if wanted.base_url else {}
    options |= {"temperature": 0} if wanted.provider == _WITHOUT_TEMPERATURE else {}
    found |= {"options": options} if options else {}
    return found


def run_experiment(
    wanted: Wanted, output: Output, *, going_on: bool, retry_errors: str | None = None, listener: Listener | None = None
) -> Done:
    """Run the experiment, or go on with it, and project its batch.

    Without `going_on`, a folder that holds a batch already is refused; with it, a changed workflow, model or set of
    instances is. `retry_errors` as for `resume`.
    """
    if wanted.base_url is not None and not _ADDRESS.match(wanted.base_url):
        raise UserError(f"--base-url {wanted.base_url} is no address", hint="as in http://127.0.0.1:8000/v1")
    if not wanted.instances:
        raise UserError("no instance is left by --language, --instances and --max-instances", where=str(wanted.tasks))
    refuse_unknown_provider(wanted.provider, wanted.model)
    hand_over_key(wanted.provider, wanted.base_url)
    text = _understood(wanted, output)
    try:
        with lock(output.lock, "tbench swebench-pro experiment"):
            return _run(wanted, output, text, going_on, retry_errors, listener)
    except LockHeld as held:
        hint = "wait for it, or choose another --output-dir"
        raise UserError(
            f"is being run by {held.owner or 'another process'}", where=str(output.folder), hint=hint
        ) from None


def _run(
    wanted: Wanted, output: Output, text: str, going_on: bool, retry_errors: str | None, listener: Listener | None
) -> Done:
    batches = output.batches()
    if batches and not going_on:
        hint = "--resume goes on with it; or choose another --output-dir"
        raise UserError("holds an experiment already", where=str(output.folder), hint=hint)
    before = output.experiment_toml.read_text() if output.experiment_toml.is_file() else None
    write_project_file(output.experiment_toml, text)
    experiment = load(output.experiment_toml)
    told = _with_workers(listener or Listener(), wanted.max_workers)
    if not batches:
        ended = run(experiment, listener=told)
    else:
        try:
            refuse_differences(experiment, read_json(batches[-1].plan_json, Plan), output)
            ended = resume(experiment, retry_errors=retry_errors, listener=told)
        except UserError:
            if before is not None:
                write_project_file(output.experiment_toml, before)
            raise
    return Done(ended, project([ended.batch], output.folder))


def _understood(wanted: Wanted, output: Output) -> str:
    """The text of the experiment file, checked; nothing is left in the output folder when it is wrong."""
    import tomlkit

    new = output.experiment_toml.with_name(f".{os.getpid()}.toml")
    write_project_file(new, tomlkit.dumps(document(wanted, output)))
    try:
        return experiment_toml(load(new))
    except UserError as error:
        if error.where == str(new):  # that file is gone when this is read
            error.where = "the experiment that was asked for"
        raise
    finally:
        new.unlink()
        with suppress(OSError):  # not empty: it was there before
            output.folder.rmdir()


def refuse_differences(experiment: Experiment, plan: Plan, output: Output) -> None:
    """Say what is not as the batch was planned: instances, arms, what each arm is, and under which limits."""
    planned = {task.ref.id for job in plan.jobs for task in job.tasks}
    now = {task.id for task in experiment.tasks}
    found = [f"+ instance {name}" for name in sorted(now - planned)]
    found += [f"- instance {name}" for name in sorted(planned - now)]
    profiles = {profile.key: profile for profile in experiment.profiles}
    for job in plan.jobs:
        record, profile = plan.record(job.profile), profiles.get(job.profile)
        if profile is None:
            found.append(f"- arm {job.profile}")
        elif record is not None:
            found += [f"arm {job.profile}: {line}" for line in summaries(record.changes(profile.content))]
    found += changed_settings(plan.settings, experiment.run)
    if found:
        more = [f"and {plural(len(found) - _DIFFERENCES, 'more difference')}"] if len(found) > _DIFFERENCES else []
        listed = "\n  ".join([*found[:_DIFFERENCES], *more])
        raise UserError(
            f"is not the experiment that is asked for now:\n  {listed}",
            where=str(output.folder),
            hint="ask for what it was, or choose another --output-dir",
        )


def _with_workers(listener: Listener, workers: int) -> Listener:
    """The listener, and workers handed on from arm to arm."""
    sharing: list[Sharing] = []

    def prepared(plan: Plan, batch: Batch, trials: int) -> None:
        if not sharing and workers > 1 and len(plan.jobs) > 1:
            sharing.append(Sharing(batch, workers))
        listener.prepared(plan, batch, trials)

    def tick() -> None:
        if sharing:
            sharing[0].tick()
        listener.tick()

    return Listener(prepared, tick, listener.event, listener.stopped, listener.note)
