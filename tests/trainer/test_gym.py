"""The gym: environments, splits by family that stay, and a holdout whose every look is counted."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.results import make_trial
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.datasets import TaskSource
from terminalbench.experiments.experiment import Task
from terminalbench.json_files import write_json
from terminalbench.trainer.environments import open_environment
from terminalbench.trainer.gym import Gym, Shares, SplitPart, assign, parts_of, unit_of
from terminalbench.trainer.journal import HoldoutLook, PlanDeclaration, add_sealed, plan_json, training_folder
from terminalbench.trainer.training import Training, report

EXPERIMENT = """
schema_version = 2
slug = "mine"
[tasks]
default_dataset = "starter"
items = [{ id = "csv-clean" }, { id = "git-lost-commit" }, { id = "sqlite-report" }, { id = "fix-failing-test" }]
[profiles.a]
agent = "oracle"
"""


def task(name: str, family: str | None = None) -> Task:
    return Task(name, "d", family, TaskSource({}, found=True))


def tasks(sizes: dict[str, int]) -> list[Task]:
    return [task(f"{family}-{n}", family) for family, size in sizes.items() for n in range(size)]


families = st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 6), min_size=3)


@given(families, families, st.integers(0, 50))
def test_families_are_never_cut_and_never_move(first: dict[str, int], more: dict[str, int], seed: int) -> None:
    before = tasks(first)
    known = assign(before, [], Shares(), seed)
    parts = parts_of(before, known)
    assert set(parts.values()) == set(SplitPart)
    assert len(parts) == len(before)
    grown = tasks({name: max(first.get(name, 0), more.get(name, 0)) for name in first | more})
    after = parts_of(grown, [*known, *assign(grown, known, Shares(), seed + 1)])
    assert len(after) == len(grown)
    assert all(after[key] is part for key, part in parts.items())
    by_family: dict[str | None, set[SplitPart]] = {}
    for one in grown:
        by_family.setdefault(one.family, set()).add(after[one.dataset, one.id])
    assert all(len(found) == 1 for found in by_family.values())


def test_the_split_is_drawn_by_its_seed_and_near_its_shares() -> None:
    many = tasks({f"f{n}": 1 + n % 3 for n in range(60)})
    drawn = [parts_of(many, assign(many, [], Shares(2, 2, 1), seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    for part, share in (("train", 0.4), ("dev", 0.4), ("holdout", 0.2)):
        assert sum(found == part for found in drawn[0].values()) == pytest.approx(share * len(many), abs=3)


def test_a_task_without_a_family_is_its_own() -> None:
    alone = [task("a"), task("b"), task("c")]
    assert {parts_of(alone, assign(alone, [], Shares(), 0))[t.dataset, t.id] for t in alone} == set(SplitPart)
    with pytest.raises(UserError, match="2 families cannot be split"):
        assign(alone[:2], [], Shares(), 0)


def test_a_family_that_was_split_as_single_tasks_is_not_cut() -> None:
    alone = [task("a"), task("b"), task("c")]
    known = assign(alone, [], Shares(), 0)
    joined = [task("a", "f"), task("x", "f"), task("b", "g"), task("c", "h")]
    made = assign(joined, known, Shares(), 0)
    parts = parts_of(joined, [*known, *made])
    assert parts["d", "x"] is parts["d", "a"] is parts_of(alone, known)["d", "a"]
    with pytest.raises(UserError, match="would be cut"):
        assign([task("a", "f"), task("b", "f"), task("c"), task("y")], known, Shares(), 0)


def test_a_task_held_out_in_one_environment_is_held_out_in_all(project) -> None:
    project.experiment(EXPERIMENT)
    gym, whole = Gym(project.root), open_environment("starter", project.root)
    split = gym.make_split(whole)
    some = open_environment("experiments/exp.toml", project.root)
    part = gym.split(some)
    assert {t.id for t in part.train} <= {t.id for t in split.train}
    assert {t.id for t in part.dev} <= {t.id for t in split.dev}
    assert len(part.train) + len(part.dev) + part.held_out == 4
    look = gym.look(whole, by="test", reason="the final word")
    assert len(look.tasks) == split.held_out
    assert [one.reason for one in gym.looks(some)] == ["the final word"] * (part.held_out > 0)


def test_a_look_is_counted_before_its_tasks_are_told(project, monkeypatch: pytest.MonkeyPatch) -> None:
    gym, starter = Gym(project.root), open_environment("starter", project.root)
    with pytest.raises(UserError, match="no held-out tasks"):
        gym.look(starter, by="test", reason="too early")
    gym.make_split(starter)
    with pytest.raises(UserError, match="needs a reason"):
        gym.look(starter, by="test", reason=" ")
    assert gym.looks(starter) == []
    monkeypatch.setattr("terminalbench.trainer.gym.append_jsonl", lambda *_a, **_k: (_ for _ in ()).throw(OSError))
    with pytest.raises(OSError):
        gym.look(starter, by="test", reason="the disk is full")
    monkeypatch.undo()
    for number in (1, 2):
        held = gym.look(starter, by="test", reason=f"look {number}")
    assert [look.number for look in gym.looks(starter)] == [1, 2]
    assert gym.looks(starter)[-1] == held


def test_a_damaged_split_is_refused_cut_off_or_not_and_looks_stay_counted(project) -> None:
    gym, starter = Gym(project.root), open_environment("starter", project.root)
    gym.make_split(starter)
    gym.look(starter, by="test", reason="the first")
    line = gym.splits_file.read_bytes()
    for damaged in (line[: len(line) // 2], line[: len(line) // 2] + b"\n", line.replace(b'"train"', b'"other"')):
        gym.splits_file.write_bytes(damaged)
        with pytest.raises(TbenchError, match="line 1 cannot be read.*restore the file"):
            gym.make_split(starter)
        assert gym.splits_file.read_bytes() == damaged
        assert len(gym.looks(starter)) == 1


def test_trials_of_held_out_tasks_outside_of_looks_are_told(project, tbench) -> None:
    for name in "abcd":
        project.task("d", name)
    tbench("gym", "split", "d")
    gym, environment = Gym(project.root), open_environment("d", project.root)
    assert gym.trials_outside(environment, project.root / "results") == {}
    look = gym.look(environment, by="test", reason="the last word")
    add_sealed(training_folder(project.root, "mine"), HoldoutLook(look=look.number, reason="r", new="p1", old="p2"))
    for number, labels in enumerate(
        [
            {},
            {"training": "mine", "night": "1", "part": "holdout"},
            {"training": "mine", "night": "7", "part": "holdout"},  # no look of that number is recorded
        ]
    ):
        batch = Batch(project.root / f"results/mine/{number}")
        for name in "abcd":
            make_trial(batch, f"{name}__1")
        write_json(batch.plan_json, {"labels": labels})
    each = len(look.tasks)
    assert gym.trials_outside(environment, project.root / "results") == {"mine/0": each, "mine/2": each}
    said = f"outside of recorded looks: {2 * each} trials of held-out tasks in mine/0, mine/2"
    assert said in tbench("gym", "show", "d").out
    training = Training(project.root, "mine", "mine", 3)
    write_json(plan_json(training.folder), PlanDeclaration("mine", "0", "2026-01-20T20:00:00Z", {"environment": "d"}))
    assert training.outside == said
    assert f"- {said}\n" in report(training.lineage, "mine", 3, [], (), training.outside)


def test_what_can_be_an_environment(project) -> None:
    for name in ("x", "y"):
        project.task("swebench-pro", name)
        project.task("own/tasks", name)
    assert [t.id for t in open_environment("swebench-pro", project.root).tasks] == ["x", "y"]
    assert open_environment("own/tasks", project.root).what == "folder of tasks"
    assert {t.family for t in open_environment("tb-2.0", project.root).tasks} >= {"security", "debugging"}
    for name, said in (
        ("terminal-bench@2.0", "known only when a run asks the registry"),
        ("startre", "did you mean"),
        ("no/such", "no"),
    ):
        with pytest.raises(UserError, match=said) as caught:
            open_environment(name, project.root)
        assert str(caught.value).startswith(name)


def test_a_task_in_quarantine_is_in_no_part(project) -> None:
    file = project.experiment(EXPERIMENT)
    from terminalbench.experiments.quarantine import QuarantinedTask, write_quarantine

    write_quarantine(file, [QuarantinedTask("csv-clean", "starter", "flaky")])
    found = open_environment("experiments/exp.toml", project.root).tasks
    assert "csv-clean" not in {one.id for one in found}
    assert len(found) == 3


def test_the_commands(project, tbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    project.experiment(EXPERIMENT)
    project.experiment("slug = 3\n", "broken.toml")
    assert "Not split yet: tbench trainer gym split starter" in tbench("gym", "show", "starter").out
    made = json.loads(tbench("gym", "split", "starter", "--seed", 3, "--json").out)
    assert made["train"] + made["dev"] + made["holdout"] == made["new"] == 16
    again = tbench("gym", "split", "starter", "--seed", 4)
    assert made["split"] in again.out
    assert "nothing to do: every task already belongs to a part" in again.out
    sealed = json.loads(tbench("gym", "show", "starter", "--json").out)
    assert (sealed["holdout"], sealed["held_out"], sealed["looks"]) == ([], made["holdout"], [])
    open_tasks = {*sealed["train"], *sealed["dev"]}
    held = {f"starter/{t.id}" for t in open_environment("starter", project.root).tasks} - open_tasks
    out = tbench("gym", "show", "starter").out
    assert not any(name.partition("/")[2] in out for name in held)
    assert tbench("gym", "show", "starter", "--holdout").code == 2
    seen = json.loads(tbench("gym", "show", "starter", "--holdout", "--reason", "why not", "--json").out)
    assert set(seen["holdout"]) == held
    assert "looks at the holdout: 1" in tbench("gym", "show", "starter").out
    listed = tbench("gym", "list")
    assert max(map(len, listed.out.splitlines())) <= 80
    rows = {row["environment"]: row for row in json.loads(tbench("gym", "list", "--json").out)}
    assert (rows["starter"]["looks"], rows["starter"]["families"]) == (1, 6)
    assert "tbench validate" in rows["experiments/broken.toml"]["problem"]
    assert rows["experiments/exp.toml"]["tasks"] == 4
    assert tbench("gym", "split", "starter", "--shares", "1/0/1").code == 2


def test_a_unit_is_a_family_or_a_task() -> None:
    assert unit_of(task("a", "f")) == unit_of(task("b", "f")) != unit_of(task("f"))


def test_the_page_runs(project, tbench) -> None:
    from support.pages import commands_of

    page = Path(__file__).parents[2] / "docs/tbench/training.md"
    found = [arguments for arguments in commands_of(page, "trainer") if arguments[1] == "gym"]
    assert len(found) == 4
    for arguments in found:
        assert tbench(*arguments).code == 0, arguments
    assert tbench("gym", "list").out == tbench("trainer", "gym", "list").out  # the older name
