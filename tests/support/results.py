"""Batches on disk, made without running anything."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import JobSpec, Plan, PlannedTask
from terminalbench.json_files import write_json
from terminalbench.records.trial import TaskRef

STAMP = "2026-01-23__16-26-48"


def typed(name: str, value: Any) -> Any:
    """The value of a field of `Plan`, from the JSON shape it has in plan.json."""
    return msgspec.convert(value, get_type_hints(Plan)[name]) if isinstance(value, dict) else value


def make_plan(
    batch: Batch, profiles: tuple[str, ...] = ("p",), tasks: Iterable[str] = "ab", attempts: int = 1, **fields: object
) -> Plan:
    """Write a plan over the tasks of dataset "d"."""
    planned = tuple(PlannedTask(TaskRef(t, "d"), "d", {"path": f"/x/{t}"}) for t in tasks)
    jobs = tuple(JobSpec(f"{STAMP}__{p}", p, f"id-{p}", attempts, planned) for p in profiles)
    slug = batch.folder.parent.name
    known = {name: typed(name, value) for name, value in fields.items()}
    plan = Plan(slug=slug, name=slug, batch=batch.number, folder="f", baseline=profiles[0], jobs=jobs, **known)
    write_json(batch.plan_json, plan)
    batch.runs.mkdir(exist_ok=True)
    return plan


def make_trial(
    batch: Batch, name: str, *, profile: str = "p", reward: float | None = 1.0, error: str | None = None, job: str | None = None,
    second: int = 0, cost: float | None = None, attempt: int | None = None,
) -> Path:  # fmt: skip
    """Write the result of one trial, as Harbor 0.24 does; the task is what stands before "__" in its name."""
    task = name.split("__")[0]
    folder = batch.runs / (job or f"{STAMP}__{profile}") / name
    result = {
        "id": f"00000000-0000-0000-0000-{abs(hash((str(folder), name))) % 10**12:012}",
        "task_name": f"tests/{task}",
        "trial_name": name,
        "trial_uri": f"file://{folder}",
        "task_id": {"path": f"/x/{task}"},
        "source": "d",
        "task_checksum": "c" * 64,
        "config": {"task": {"path": f"/x/{task}", "source": "d"}, "trial_name": name, "agent": {"name": "oracle"}},
        "agent_info": {"name": "oracle", "version": "1.0.0"},
        "agent_result": {"cost_usd": cost} if cost is not None else None,
        "verifier_result": None if reward is None else {"rewards": {"reward": reward}},
        "exception_info": None if error is None else {
            "exception_type": error, "exception_message": "why", "exception_traceback": "", "occurred_at": "2026-01-23T16:30:00Z",
        },
        "started_at": f"2026-01-23T16:30:{second:02}Z",
        "finished_at": f"2026-01-23T16:31:{second:02}Z",
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result))
    if attempt is not None:
        (folder / "planned.json").write_text(json.dumps({"attempt": attempt}))
    return folder
