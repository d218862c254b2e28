"""Tasks whose id is not the name of their folder: their trials count, and a resume runs none again."""

import json

from support.tasks import write_task
from terminalbench.starter import TASKS_DIR

ORACLE = '[profiles.oracle]\nagent = "oracle"\n'
IDS = ("clean-it", "b", "linked", "one__twin", "the/other", "clean%2Dit")


def experiment(lab):
    """A registry file that names a starter task anew, a link to a task, and two tasks in folders of one name."""
    write_task(lab.root / "more" / "a")
    (lab.root / "linked").symlink_to(lab.root / "tasks" / "b")
    places = (TASKS_DIR / "csv-clean", "tasks/b", "linked", "tasks/a", "more/a", "tasks/a")
    tasks = [{"name": name, "path": str(place)} for name, place in zip(IDS, places, strict=True)]
    lab.project.write("registry.json", json.dumps([{"name": "mini", "version": "1.0", "tasks": tasks}]))
    file = lab.experiment(ORACLE, tasks=IDS, run="parallel = 3")
    file.write_text(file.read_text().replace('default_dataset = "tasks"', 'default_dataset = "registry.json"'))
    return file


def test_a_registry_may_name_its_tasks_as_it_likes(lab) -> None:
    file = experiment(lab)
    ran = lab.tbench("run", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lab.outcomes() == {("oracle", name): ["passed"] for name in IDS}
    assert len(lab.index()) == len(IDS)
    ended = [(event.dataset, event.task, event.attempt) for event in lab.events() if event.kind == "trial_ended"]
    assert sorted(ended) == sorted(("registry.json", name, 1) for name in IDS)
    jobs = sorted(path.name for path in lab.batch().runs.iterdir())
    assert lab.tbench("resume", file).returncode == 0
    assert sorted(path.name for path in lab.batch().runs.iterdir()) == jobs
    assert f"{len(IDS)} of {len(IDS)}" in lab.tbench("plan", file, "--batch", "0").stdout


def test_a_task_named_by_its_registry_can_be_checked(lab) -> None:
    file = experiment(lab)
    ran = lab.tbench("check", file, "--tasks", "linked", "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [(t["task"]["id"], t["problem"]) for t in json.loads(ran.stdout)["tasks"]] == [("linked", None)]
