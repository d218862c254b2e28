"""Beginning a night, and going on with one: what was asked for becomes `config.json`, which alone counts later.

Everything is checked before the first byte is written: the suite, each model by a real request, the code.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from terminalbench.campaign import refuse_differences
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.envfile import variables_of
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.tables import DEFAULT_ENV_FILE, RayTable, RunTable
from terminalbench.experiments.write import write_experiment
from terminalbench.files import write_bytes
from terminalbench.harbor.limits.gate import read_shared
from terminalbench.json_files import read_json, write_json
from terminalbench.overnight.decisions import nothing_left, seed_of, until_moment
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration_files import (
    labelled,
    load_base,
    make_base,
    night_lessons,
    of_one_model,
    with_lessons,
)
from terminalbench.overnight.models import (
    ModelSpec,
    check_model,
    model_environment,
    parse_model,
    parse_models,
    profile_of,
)
from terminalbench.overnight.night import (
    IterationWork,
    LessonsMode,
    NightConfig,
    NightModel,
    NightState,
    NightTraining,
    Role,
    put_up,
    renew,
    until_of,
)
from terminalbench.overnight.nights import config_of
from terminalbench.overnight.suite import Suite, load_suite
from terminalbench.records.values import copied
from terminalbench.runner.control import check_orders
from terminalbench.runner.named_files import named_files, unpinned
from terminalbench.runner.notify import refuse_unsendable
from terminalbench.runner.run import cluster
from terminalbench.runner.worktree import CodePin, archive_file, ensure, pin, pinned_path, record_file, release
from terminalbench.text.names import typed
from terminalbench.text.numbers import dollars, plural, some

DEFAULT_ITERATIONS = 10
VALIDATOR = "claude-code"
"""The model that checks the others."""

type Dirty = Literal["capture", "refuse"]
type Workers = int | Literal["auto"]


@dataclass(frozen=True)
class NightRequest:
    """What a person asked for; None: as usual, or of a night that goes on, as it was."""

    suite: Path | None = None
    output: Path | None = None
    iterations: int | None = None
    until: str | None = None
    budget_usd: float | None = None
    tasks: tuple[str, ...] = ()
    attempts: int | None = None
    models: tuple[str, ...] = ()
    ollama_endpoint: str | None = None
    validation_rate: float | None = None
    validation_budget_usd: float | None = None
    workers: Workers | None = None
    model_slots: int | None = None
    sandboxes: int | None = None
    executor: str | None = None
    ray_address: str | None = None
    seed: int | None = None
    lessons: LessonsMode | None = None
    reflect_model: str | None = None
    reflect_budget_usd: float | None = None
    learn: NightTraining | None = None
    dirty: Dirty = "capture"
    root: Path | None = None
    command: str = "overnight"
    again: bool = False
    """Whether it is the request of the beginning once more: `--output` names a night that was begun."""


@dataclass(frozen=True)
class PreparedNight:
    """A night that can be run. `extended` says which limits were changed by a resume."""

    folder: NightFolder
    config: NightConfig
    state: NightState
    notes: tuple[str, ...] = ()
    extended: tuple[str, ...] = ()
    over: bool = False
    """Whether nothing is left to do of what was asked for."""


@dataclass(frozen=True)
class _CheckedModel:
    """A model that answers, and what was found out about it."""

    model: ModelSpec
    facts: dict[str, str]


def night_at(place: Path) -> NightFolder:
    """The night that `--resume` names: by its folder, or by its state."""
    place = place.resolve()  # paths below it are keys: of batches in the gate
    folder = NightFolder(place.parent if place.name == "state.json" else place)
    if not folder.config_json.is_file():
        hint = "name the folder of a night, or its state.json"
        raise UserError("is not the folder of a night", where=str(place), hint=hint)
    return folder


def begin(request: NightRequest, folder: NightFolder, now: datetime) -> PreparedNight:
    """Make the folder of a new night. The caller holds its lock."""
    if folder.config_json.exists():
        hint = f"continue it with tbench {request.command} --resume {typed(folder.folder)}, or choose another --output"
        raise UserError("already contains a night", where=str(folder.folder), hint=hint)
    if folder.starting.exists():
        _clear_start(folder)  # this command was killed before the night was begun
    own = (folder.lock.name, folder.starting.name)
    others = sorted(entry.name for entry in folder.folder.iterdir() if entry.name not in own)
    if others:
        hint = "choose a new --output, or an empty folder"
        raise UserError(f"contains other files: {some(others, 3)}", where=str(folder.folder), hint=hint)
    if request.suite is None:
        raise UserError(
            "--suite is missing",
            hint="start a night with --suite FILE or --suite starter, or continue one with --resume DIR",
        )
    _refuse_idle_caps(request, request.workers)
    suite = load_suite(request.suite, request.tasks, request.root)
    until = until_moment(request.until, now).isoformat() if request.until is not None else None
    with variables_of(suite.root / DEFAULT_ENV_FILE):
        lessons = night_lessons(request.lessons, request.reflect_model, request.reflect_budget_usd)
    checked = [_check(model, suite, request) for model in parse_models(request.models)]
    validator, off = _validator(suite, request, [one.model.key for one in checked])
    made = _experiment(suite, checked, validator, request)  # all that is wrong
    with cluster(made.run, (profile.parallel for profile in made.profiles)):
        pass  # it can be reached; each worker does so by itself
    refuse_unsendable(made.notify, str(suite.file))
    write_bytes(folder.starting, b"")
    code = pin(suite.root, folder.code, dirty=request.dirty, named=named_files(made))
    pinned = load_suite(pinned_path(code, suite.file), request.tasks, Path(code.root))
    made = _experiment(pinned, checked, validator, request)
    write_experiment(make_base(made, folder, request.attempts), folder.base_toml)
    config = _config(request, suite, code, now, until)
    base = load_base(folder, config)
    own = [one for one in base.profiles if validator is None or one.key != validator.model.key]
    facts = {one.model.key: one for one in checked}
    models = [
        NightModel(facts[p.key].model.spec, p.key, p.id, facts[p.key].facts)
        if p.key in facts
        else NightModel(p.model or p.agent.name, p.key, p.id)
        for p in own
    ]
    config = msgspec.structs.replace(
        config,
        models=of_one_model(models),
        lessons=lessons,
        tasks=[task.name for task in base.tasks],
        attempts=base.run.attempts,
        validation=_as_model(base, validator),
        validation_off=off,
    )
    put_up(folder.gate_json, config)
    state = _new_state(folder, config)
    write_json(folder.state_json, state)
    write_json(folder.config_json, config)  # from here on it is a night
    folder.starting.unlink()
    return PreparedNight(folder, config, state, (*suite.notes, *code.notes, *unpinned(base, code), *_fixed_seeds(base)))


def _new_state(folder: NightFolder, config: NightConfig) -> NightState:
    workers = config.workers if isinstance(config.workers, int) else 1
    return NightState(config.run_id, read_shared(folder.gate_json).clock, workers=workers)


def _clear_start(folder: NightFolder) -> None:
    """Remove what a start that did not come to its end has left: nothing of it was run."""
    if record_file(folder.code).is_file():
        release(folder.code)
    made = (folder.base_toml, folder.state_json, *folder.folder.glob(f"{folder.gate_json.stem}.*"))
    for path in (*made, archive_file(folder.code), record_file(folder.code)):
        path.unlink(missing_ok=True)


def _fixed_seeds(base: Experiment) -> list[str]:
    fixed = [p.key for p in base.profiles if p.agent.seed_option is not None and p.agent.seed_option in p.options]
    return [f"{key} sets its own seed, so its iterations may be copies of each other" for key in fixed]


def _experiment(
    suite: Suite, checked: list[_CheckedModel], validator: _CheckedModel | None, request: NightRequest
) -> Experiment:
    """The tasks of the suite with the profiles of the models, or with its own; and with that of the validator."""
    if not request.models and suite.experiment is None:
        raise UserError("this suite defines no profiles", where=str(suite.file), hint="name at least one --model")

    environment = model_environment(suite.root)

    def table(one: _CheckedModel) -> dict[str, Any]:
        return profile_of(one.model, ollama_endpoint=request.ollama_endpoint, facts=one.facts, environment=environment)

    more = {validator.model.key: table(validator)} if validator is not None else {}
    if request.models or suite.experiment is None:
        made = suite.with_profiles({**{one.model.key: table(one) for one in checked}, **more})
    else:
        added = suite.with_profiles(more).profiles if more else ()
        made = replace(suite.experiment, profiles=(*suite.experiment.profiles, *added))
    return with_lessons(replace(made, run=_on_executor(made.run, request)), request.lessons, but=more)


def _on_executor(run: RunTable, request: NightRequest) -> RunTable:
    """Return the table that the suite says, but for where and by what the night is to run."""
    run = replace(run, executor=request.executor or run.executor)
    if request.ray_address is None:
        return run
    if run.executor != "ray":
        raise UserError("--ray-address works only with --executor ray", hint="add --executor ray, or leave it out")
    return replace(run, ray=replace(run.ray or RayTable(), address=request.ray_address))


def _check(model: ModelSpec, suite: Suite, request: NightRequest) -> _CheckedModel:
    facts = check_model(
        model,
        ollama_endpoint=request.ollama_endpoint,
        container_env=suite.run.container_env,
        harbor_args=suite.run.harbor_args,
        environment=model_environment(suite.root),
    )
    return _CheckedModel(model, facts)


def _validator(suite: Suite, request: NightRequest, models: Sequence[str]) -> tuple[_CheckedModel | None, str | None]:
    """Return who validates; or why nobody does, when that was asked for."""
    if not request.validation_rate:
        return None, None
    if VALIDATOR in models:
        return None, f"{VALIDATOR} cannot validate, because it is one of the models of the night"
    try:
        return _check(parse_model(VALIDATOR), suite, request), None
    except UserError as error:
        return None, error.what


def _as_model(base: Experiment, validator: _CheckedModel | None) -> NightModel | None:
    if validator is None:
        return None
    profile = next(p for p in base.profiles if p.key == validator.model.key)
    return NightModel(validator.model.spec, profile.key, profile.id, validator.facts)


def _config(request: NightRequest, suite: Suite, code: CodePin, now: datetime, until: str | None) -> NightConfig:
    iterations = request.iterations
    if iterations is None and until is None:
        iterations = DEFAULT_ITERATIONS
    return copied(
        NightConfig,
        request,
        run_id=f"tbrun-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}",
        created_at=now.astimezone(UTC).isoformat(timespec="seconds"),
        suite=str(suite.file.resolve()),
        suite_name=suite.name,
        suite_version=suite.version,
        suite_digest=suite.digest,
        models=[],
        tasks=[],
        iterations=iterations,
        attempts=0,
        seed=request.seed if request.seed is not None else int.from_bytes(os.urandom(4), "big") >> 1,
        workers=request.workers if request.workers is not None else 1,
        code=code,
        until=until,
        until_said=request.until,
        validation_rate=request.validation_rate or 0.0,
        project_root=str(suite.root.resolve()),
        suite_tasks=list(suite.tasks),
        lessons=None,  # found out when the models are known
    )


def _refuse_idle_caps(request: NightRequest, workers: Workers | None) -> None:
    given = request.model_slots or request.sandboxes
    if given is not None and workers != "auto":
        raise UserError(
            "--model-slots and --sandboxes need --workers auto", hint="add --workers auto, or leave them out"
        )


def go_on(request: NightRequest, folder: NightFolder, now: datetime) -> PreparedNight:
    """Open a night to go on with it. The caller holds its lock. What differs from what it is, is refused by name."""
    config = config_of(folder)
    differences = list(_differences(request, folder, config))
    refuse_differences(differences, folder.folder, "leave out these options, or start another night")
    _refuse_idle_caps(request, request.workers or config.workers)
    same_until = request.again and request.until == config.until_said
    later = None if request.until is None or same_until else until_moment(request.until, now).isoformat()
    config, extended = _extended(config, request, later)
    until = until_of(config)
    if until is not None and until <= now.timestamp() and request.again:
        state, lost = _state_of(folder, config)
        return PreparedNight(folder, config, state, notes=lost, over=True)
    if until is not None and until <= now.timestamp():
        hint = "extend it with a later --until"
        raise UserError(
            f"the night had to end at {config.until}, which has passed", where=str(folder.folder), hint=hint
        )
    folder.starting.unlink(missing_ok=True)
    ensure(folder.code)
    list(check_orders(folder.gate_json.absolute()))
    if extended:
        write_json(folder.config_json, config)
    renew(folder.gate_json, config)
    state, lost = _state_of(folder, config)
    if isinstance(config.workers, int):
        state.workers = config.workers
    over = not extended and (nothing_left(state, config.iterations) or (request.again and state.status == "stopped"))
    return PreparedNight(folder, config, state, notes=lost, extended=extended, over=over)


def _state_of(folder: NightFolder, config: NightConfig) -> tuple[NightState, tuple[str, ...]]:
    """Return how far the night is; made again from the labels of its batches where the file is lost, with a word about
    it."""
    try:
        return read_json(folder.state_json, NightState), ()
    except (TbenchError, FileNotFoundError):
        state = _new_state(folder, config)
    batches = labelled(folder, config.run_id)
    known = {(Role.ITERATION, number) for number in range(1, max((n for _, n in batches), default=0) + 1)} | {*batches}
    for role, number in sorted(known, key=lambda key: (key[1], key[0])):
        batch = batches.get((role, number))
        place = f"{batch.folder.parent.name}/{batch.number}" if batch is not None else None
        seed = seed_of(config.seed, number, role)
        state.work.append(IterationWork(number, role, seed, batch=place, starts=int(batch is not None)))
    found = plural(len(batches), "batch", "batches")
    said = f"state.json could not be read, so it is rebuilt from {found}, found by their labels"
    return state, (said,)


def _differences(request: NightRequest, folder: NightFolder, config: NightConfig) -> Iterator[str]:
    """Yield what is asked for otherwise than the night is; limits are another matter."""
    if request.output is not None and request.output.resolve() != folder.folder.resolve():
        yield f"--output: the night is in {folder.folder}"
    if (
        request.suite is not None
        and request.suite.resolve() != Path(config.suite)
        and str(request.suite) != config.suite_name
    ):
        yield f"--suite: the night has {config.suite}"
    if request.models and list(request.models) != config.specs:
        yield f"--model: the night has {', '.join(config.specs)}"
    if request.tasks:
        chosen = [task.name for task in load_suite(Path(config.suite), request.tasks).tasks]
        if chosen != config.tasks:
            yield f"--tasks: the night has {', '.join(config.tasks)}"
    learns = config.lessons
    now = {
        "attempts": config.attempts,
        "seed": config.seed,
        "ollama_endpoint": config.ollama_endpoint,
        "executor": config.executor,
        "ray_address": config.ray_address,
        "validation_rate": config.validation_rate,
        "lessons": learns and learns.mode,
        "reflect_model": learns and learns.model,
        "reflect_budget_usd": learns and learns.budget_usd,
    }
    for name, is_now in now.items():
        wanted = getattr(request, name)
        if wanted is not None and wanted != is_now:
            option = "claude-validation-rate" if name == "validation_rate" else name.replace("_", "-")
            yield f"--{option}: the night has {is_now}, not {wanted}"
    # Limits may only be extended: what has been done cannot be taken back.
    if request.iterations is not None and config.iterations is not None and request.iterations < config.iterations:
        yield f"--iterations: the night already has {config.iterations}"
    if request.budget_usd is not None and config.budget_usd is not None and request.budget_usd < config.budget_usd:
        yield f"--budget-usd: the night already has {dollars(config.budget_usd)}"


_EXTENDED = ("iterations", "budget_usd", "validation_budget_usd", "workers", "model_slots", "sandboxes")
"""What a resume may change, besides `--until`."""


def _extended(config: NightConfig, request: NightRequest, until: str | None) -> tuple[NightConfig, tuple[str, ...]]:
    """Return the night with the limits that a resume names, and a line for each that is another one."""
    asked = {"until": until, **{name: getattr(request, name) for name in _EXTENDED}}
    differing = {name: one for name, one in asked.items() if one is not None and one != getattr(config, name)}
    said = tuple(f"{name}: {getattr(config, name)} -> {value}" for name, value in differing.items())
    return msgspec.structs.replace(config, **differing), said
