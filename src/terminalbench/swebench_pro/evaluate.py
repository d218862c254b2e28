"""Evaluating files of predictions on instance tasks: as a batch of the bench, or by the official evaluator.

<predictions>/evaluation/
  evaluate-*.toml    what is run: one profile for each file, agent `patch`
  patches/           the patches of each file, named by their content
  batches/           its batches: the same patches on the same tasks go on with the same batch
  official/<arm>-*/  what the official evaluator left
  resolved.json      the verdict on each (instance, arm) pair, merged atomically
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import load
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.tables import SLUG, RunTable
from terminalbench.faults import ErrorClass
from terminalbench.files import tail_plain, write_bytes, write_project_file
from terminalbench.index.queries import CellState
from terminalbench.json_files import read_json, write_json
from terminalbench.lab.resume import resume
from terminalbench.lab.run import Told, run
from terminalbench.records.trial import Outcome
from terminalbench.runner.resume import ALL_ERRORS
from terminalbench.swebench_pro import official
from terminalbench.swebench_pro.convert import ROW_FILE, TaskInstance
from terminalbench.swebench_pro.official import Checkout
from terminalbench.swebench_pro.predictions import FILE, PatchVerdict, Predictions, VerdictState, merge

if TYPE_CHECKING:
    from terminalbench.lab.run import FinishedRun

FOLDER = "evaluation"
_SAID = "eval_error: "
"""How the verifier of an instance begins to say why it has no verdict."""
_LOG_BYTES = 20_000
_JUDGED_BY = ("task.toml", "environment", "tests")
"""The files of a task that the verdict on a patch depends on."""


@dataclass(frozen=True)
class LocalEvaluation:
    """How an evaluation runs as a batch: where its trials run, by which executor, how many at once, how long each."""

    container_env: str = "docker"
    workers: int = 4
    timeout_sec: float | None = None
    executor: str | None = None


@dataclass(frozen=True)
class EvaluationResult:
    """What an evaluation found. `batches` are where its trials are, when they were trials."""

    verdicts: tuple[PatchVerdict, ...]
    file: Path
    batches: tuple[Path, ...] = ()
    interrupted: bool = False
    problems: tuple[str, ...] = field(default=())


def evaluate_local(
    predictions: Sequence[Predictions],
    instances: Sequence[TaskInstance],
    folder: Path,
    settings: LocalEvaluation,
    listener: Told | None = None,
) -> EvaluationResult:
    """Run every patch as a trial: agent `patch`, one profile a file. What has a verdict already is not run again.

    A batch is every profile on every task: files that have patches for other instances are another batch.
    """
    groups: dict[frozenset[str], list[Predictions]] = {}
    for arm in predictions:
        groups.setdefault(frozenset(arm.patches), []).append(arm)
    groups.pop(frozenset(), None)
    if not groups:
        raise UserError("no prediction belongs to an instance of these tasks", where=str(predictions[0].file.parent))
    done = EvaluationResult((), folder / FILE)
    for names, arms in groups.items():
        keys = _keys(arms)
        ended = _run(arms, keys, [one for one in instances if one.instance_id in names], folder, settings, listener)
        verdicts = _verdicts(arms, keys, ended)
        merge(done.file, verdicts)
        done = EvaluationResult(
            (*done.verdicts, *verdicts),
            done.file,
            (*done.batches, ended.batch.folder),
            ended.interrupted,
            (*done.problems, *ended.problems),
        )
        if ended.interrupted:
            break
    return done


def _run(
    arms: Sequence[Predictions],
    keys: Mapping[str, str],
    instances: Sequence[TaskInstance],
    folder: Path,
    settings: LocalEvaluation,
    listener: Told | None,
) -> "FinishedRun":
    slug, text = _experiment(arms, keys, instances, folder, settings)
    file = folder / f"{slug}.toml"
    write_project_file(file, text)
    experiment = load(file, folder)
    earlier = experiment.results_root / slug / "0"
    if (earlier / "plan.json").is_file():
        _run_as(Batch(earlier), experiment.run)
        return resume(earlier, retry_errors=ALL_ERRORS, listener=listener, root=folder)
    return run(experiment, listener=listener)


def _run_as(batch: Batch, asked: RunTable) -> None:
    """Have a batch go on by the executor, and with as many trials at once, as asked now: no verdict hangs on these."""
    plan = read_json(batch.plan_json, Plan)
    settings = replace(plan.settings, executor=asked.executor, parallel=asked.parallel, ray=asked.ray)
    if settings != plan.settings:
        write_json(batch.plan_json, msgspec.structs.replace(plan, settings=settings))


def evaluate_official(
    predictions: Sequence[Predictions],
    instances: Sequence[TaskInstance],
    folder: Path,
    checkout: Checkout,
    drive: official.EvaluatorSettings,
) -> EvaluationResult:
    """Have the official evaluator judge every file, one after the other; each is kept when it is done."""
    rows = official.rows_of([one.folder for one in instances], ROW_FILE)
    verdicts: list[PatchVerdict] = []
    for arm in predictions:
        found = official.evaluate(checkout, rows, arm, folder / "official", drive)
        merge(folder / FILE, found)
        verdicts += found
    return EvaluationResult(tuple(verdicts), folder / FILE)


def _keys(predictions: Sequence[Predictions]) -> dict[str, str]:
    """The profile of each arm: its name, where that is one."""
    keys: dict[str, str] = {}
    for arm in predictions:
        key = arm.arm if re.fullmatch(SLUG, arm.arm) else re.sub(r"[^A-Za-z0-9._-]+", "-", arm.arm)[:80].strip("-.")
        while not key or key in keys.values():
            key = f"{key or 'arm'}-2"
        keys[arm.arm] = key
    return keys


def _experiment(
    predictions: Sequence[Predictions],
    keys: Mapping[str, str],
    instances: Sequence[TaskInstance],
    folder: Path,
    settings: LocalEvaluation,
) -> tuple[str, str]:
    """Slug and text of the experiment file. The slug names patches and tasks: other ones are another batch."""
    import tomlkit

    profiles = {}
    for arm in predictions:
        file = folder / "patches" / f"{keys[arm.arm]}-{arm.digest[:12]}.json"
        write_bytes(file, arm.content)
        options = {"predictions": str(file.absolute()), "sha256": arm.digest}
        profiles[keys[arm.arm]] = {"agent": "patch", "description": f"predictions of {arm.arm}", "options": options}
    tasks = [[one.instance_id, official.digest_of(one.folder, _JUDGED_BY)] for one in instances]
    what = hashlib.sha256(json.dumps([profiles, tasks, settings.container_env], sort_keys=True).encode()).hexdigest()
    slug = f"evaluate-{what[:12]}"
    settings_table: dict[str, object] = {
        "results_root": "batches",
        "container_env": settings.container_env,
        "parallel": settings.workers,
        "profiles_parallel": 1,
    }
    if settings.executor is not None:
        settings_table["executor"] = settings.executor
    if settings.timeout_sec is not None:
        factor = settings.timeout_sec / _verifier_sec(instances)
        settings_table["harbor_args"] = ["--verifier-timeout-multiplier", f"{factor:.6f}"]
    document = {
        "schema_version": 2,
        "slug": slug,
        "name": f"Evaluation of {', '.join(keys)}",
        "run": settings_table,
        "tasks": {
            "default_dataset": str(instances[0].folder.parent.absolute()),
            "items": [{"id": one.instance_id} for one in instances],
        },
        "profiles": profiles,
    }
    return slug, tomlkit.dumps(document)


def _verifier_sec(instances: Sequence[TaskInstance]) -> float:
    """Return how long the tests of the tasks may take, by their own word; one for all, since Harbor takes one
    factor."""
    found = set()
    for one in instances:
        table = tomllib.loads((one.folder / "task.toml").read_text("utf-8"))
        found.add(float(table.get("verifier", {}).get("timeout_sec", 600.0)))
    if len(found) > 1:
        raise UserError("the tasks have different time limits: --timeout needs one", hint="create all tasks again")
    return found.pop()


def _why(batch: Batch, cell: CellState) -> str:
    """Return why there is no verdict: as the task's own evaluation says, else as the bench does."""
    trial = cell.row.trial if cell.row is not None else None
    if trial is not None and trial.error_class is ErrorClass.VERIFIER:
        log = batch.job_folder(trial.job) / trial.name / "verifier" / "test-stdout.txt"
        for line in reversed((tail_plain(log, _LOG_BYTES) or "").splitlines()):
            if line.startswith(_SAID):
                return line.removeprefix(_SAID).strip()
    return cell.reason or str(cell.outcome)


def _verdicts(predictions: Sequence[Predictions], keys: Mapping[str, str], ended: "FinishedRun") -> list[PatchVerdict]:
    arms = {keys[arm.arm]: arm for arm in predictions}
    found = []
    for cell in ended.view.cells:
        arm, name = arms.get(cell.profile), cell.task.id
        if arm is None or name not in arm.patches:
            continue
        states = {Outcome.PASSED: VerdictState.RESOLVED, Outcome.FAILED: VerdictState.UNRESOLVED}
        state = states.get(cell.outcome, VerdictState.EVAL_ERROR)
        trial = cell.row.trial if cell.row is not None else None
        hung = trial is not None and trial.error_class is ErrorClass.TESTS_HUNG
        rewards = trial.rewards if trial is not None else {}
        applied = rewards.get("patch_applied")
        found.append(
            PatchVerdict(
                instance_id=name,
                arm=arm.arm,
                state=state,
                patch=hashlib.sha256(arm.patches[name].encode()).hexdigest(),
                patch_applied=None if applied is None else applied >= 1,
                empty=name in arm.empty,
                reason=_why(ended.batch, cell) if hung or state is VerdictState.EVAL_ERROR else None,
                suspect=tuple(trial.suspect) if trial is not None else (),
            )
        )
    return found
