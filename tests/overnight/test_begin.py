"""What a night keeps of its suite, and what it uses it for."""

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from jobkit import write_task

from terminalbench.experiments.batch import allocate
from terminalbench.experiments.config import load
from terminalbench.overnight.begin import Night, Request, begin
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration import drawn_tasks, load_base, write_iteration
from terminalbench.overnight.night import Role, Work


def begun(root: Path, tasks: list[dict[str, str]], **asked: object) -> Night:
    """A night on these tasks, which is not run."""
    for task in tasks:
        write_task(root / task["path"])
    suite = root / "suite.json"
    suite.write_text(json.dumps({"name": "s", "version": "1", "run": {"container_env": "local"}, "tasks": tasks}))
    folder = NightFolder(root.parent / "night")
    folder.folder.mkdir()
    return begin(Request(suite=suite, models=("nop",), root=root, **asked), folder, datetime.now(UTC))  # ty: ignore


def test_the_batch_of_an_iteration_has_its_number(tmp_path: Path) -> None:
    """Also when an earlier worker was killed before it had a plan; not when another batch is there."""
    assert [allocate(tmp_path, "n", n).folder.name for n in (2, 2, 1)] == ["2", "2", "1"]
    (tmp_path / "n/2/plan.json").touch()
    assert allocate(tmp_path, "n", 2).number == 3
    root = tmp_path / "project"
    root.mkdir()
    night = begun(root, [{"id": "a", "path": "tasks/a"}])
    base = load_base(night.folder, night.config)
    for role, slug in ((Role.ITERATION, "night"), (Role.VALIDATION, "validation")):
        assert load(write_iteration(night.folder, night.config, base, Work(3, role, 1)), root).slug == slug


def test_category_and_difficulty_of_the_suite_are_kept_and_are_the_strata_of_the_validation(tmp_path: Path) -> None:
    levels = ["easy"] * 6 + ["hard"] * 2
    tasks = [
        {"id": f"t{n}", "path": f"tasks/t{n}", "category": "data", "difficulty": level}
        for n, level in enumerate(levels)
    ]
    root = tmp_path / "project"
    root.mkdir()
    night = begun(root, tasks)
    assert [(task.id, task.category, task.difficulty) for task in night.config.suite_tasks] == [
        (f"t{n}", "data", level) for n, level in enumerate(levels)
    ]
    config = msgspec.structs.replace(night.config, validation_rate=0.5)
    base = load_base(night.folder, config)
    for seed in range(20):
        drawn = drawn_tasks(config, base, Work(1, Role.VALIDATION, seed))
        hard = [name for name in drawn if name.rpartition("/t")[2] in ("6", "7")]
        assert (len(drawn), len(hard)) == (4, 1), "half of the easy ones, half of the hard ones"
