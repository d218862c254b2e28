"""A training that is killed at any moment and resumed: no trial is paid twice, and the same is decided.

Trials are scripted; all else is the trainer as it is. tests/e2e/test_training.py kills a real one.
"""

from pathlib import Path

import pytest

from chaos.trainings import Tally, chance, decisions, play
from conftest import REPO
from support.experiments import Project
from support.scripted_trials import Killed, ScriptedTrials, script_trials
from terminalbench.errors import UserError
from terminalbench.trainer.gym import Gym
from terminalbench.trainer.journal import NightEntry, read_nights, read_sealed
from terminalbench.trainer.lineage import LineageStore
from terminalbench.trainer.plan import load_plan
from terminalbench.trainer.run import measure_holdout, run_training

PLAN = "experiments/training-quickstart.toml"
MOMENTS = (
    (
        ("after the split", 1),
        ("after the lineage", 1),  # the start is known and not champion
        ("before a batch", 2),  # between batches
        ("before the journal", 1),
        ("in a batch", 65),
        ("after the journal", 4),  # decided, and not crowned
        ("after the champion's file", 2),
    ),
    (
        ("after the declaration", 1),
        ("before the champion's file", 1),
        ("in a batch", 15),
        ("after the journal", 1),
        ("before the champion's file", 3),  # crowned in the log, not in its file; its first was begun twice
    ),
)


@pytest.fixture
def trials(project: Project, monkeypatch: pytest.MonkeyPatch) -> ScriptedTrials:
    project.write(PLAN, (REPO / PLAN).read_text())
    return script_trials(monkeypatch, project.root, "training-quickstart", chance)


def trained(root: Path, *, resume: bool = False) -> list[NightEntry]:
    return run_training(load_plan(root / PLAN), resume=resume).nights


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[object, ...], int]:
    """The same training, never killed: what it decides, and the trials that it pays."""
    with pytest.MonkeyPatch.context() as patch:
        project = Project(tmp_path_factory.mktemp("undisturbed"))
        project.write(PLAN, (REPO / PLAN).read_text())
        made = script_trials(patch, project.root, "training-quickstart", chance)
        trained(project.root)
        return decisions(project.root), made.paid.total()


@pytest.mark.parametrize("moments", MOMENTS)
def test_killed_and_resumed(
    project: Project,
    trials: ScriptedTrials,
    undisturbed: tuple[tuple[object, ...], int],
    moments: tuple[tuple[str, int], ...],
) -> None:
    for number, moment in enumerate(moments):
        trials.moments.kill = moment
        with pytest.raises(Killed, match=moment[0]):
            trained(project.root, resume=number > 0)
    trained(project.root, resume=True)
    assert decisions(project.root) == undisturbed[0]
    assert set(trials.paid.values()) == {1}
    assert trials.paid.total() == undisturbed[1]


def test_killed_by_real_signals_again_and_again(tmp_path: Path) -> None:
    tally = Tally()
    play(tmp_path, (REPO / PLAN).read_text(), 1, 80, tally)
    assert tally.problems == []
    assert tally.kills >= 3


def test_the_holdout_is_counted_before_a_trial_runs_and_never_searched(
    project: Project, trials: ScriptedTrials
) -> None:
    trained(project.root)
    plan = load_plan(project.root / PLAN)
    gym = Gym(project.root)
    before = trials.paid.copy()
    trials.moments.kill = ("before a batch", trials.moments.seen["before a batch"] + 1)
    with pytest.raises(Killed):
        measure_holdout(plan, "the last word")
    assert [look.reason for look in gym.looks(plan.environment)] == ["the last word"]  # and no trial ran
    assert trials.paid == before
    trials.moments.kill = ("in a batch", trials.moments.seen["in a batch"] + 5)
    with pytest.raises(Killed):
        measure_holdout(plan, "another reason")
    found = measure_holdout(plan, "another reason")
    assert (found.look, found.reason, found.old) == (1, "the last word", plan.start.profile.id)
    assert found.verdict is not None
    assert (found.verdict.difference or 0) > 0.5
    assert read_sealed(plan.folder) == [found]
    assert len(gym.looks(plan.environment)) == 1
    assert set(trials.paid.values()) == {1}
    measure_holdout(plan, "once more")
    assert [look.number for look in gym.looks(plan.environment)] == [1, 2]

    # Who has seen which task: the search saw train alone, what confirms saw dev alone, the looks what was held out.
    seen: dict[str, set[str]] = {"search": set(), "dev": set(), "holdout": set()}
    searched = {batch for night in read_nights(plan.folder) for batch in night.searched}
    sealed = {one.batch for one in read_sealed(plan.folder)}
    for batch, _, task, _ in trials.paid:
        seen["search" if batch in searched else "holdout" if batch in sealed else "dev"].add(task)
    held = {name.rpartition("/")[2] for name in gym.looks(plan.environment)[0].tasks}
    assert seen == {
        "search": {task.id for task in plan.split.train},
        "dev": {task.id for task in plan.split.dev},
        "holdout": held,
    }


def test_status_says_what_the_night_does(project: Project, trials: ScriptedTrials, tbench) -> None:
    trials.moments.kill = ("in a batch", 10)
    with pytest.raises(Killed):
        trained(project.root)
    ran = tbench("trainer", "status", project.root / PLAN)
    assert "now: night 1 has started; last step: explore-1" in ran.out
    assert "night 0 of 4" in ran.out


def test_a_training_without_a_gain_says_so_and_spends_no_look(project: Project, trials: ScriptedTrials, tbench) -> None:
    trials.chance = lambda _: 0.5
    trained(project.root)
    plan = load_plan(project.root / PLAN)
    assert "No gain was shown: the first champion stays." in tbench("trainer", "report", project.root / PLAN).out
    with pytest.raises(UserError, match="nothing to measure"):
        measure_holdout(plan, "why not")
    assert Gym(project.root).looks(plan.environment) == []


def test_a_champion_that_worsens_is_rolled_back_and_the_one_before_it_was_its_control(
    project: Project, trials: ScriptedTrials
) -> None:
    file = project.root / PLAN
    file.write_text(file.read_text().replace("nights = 4", "nights = 12").replace("trials = 32", "trials = 60"))
    first = load_plan(file).start.profile.id
    store = LineageStore(project.root)

    def swapped(prompt: str) -> float:
        """The model behind both is replaced once the other prompt is champion: what helped does harm."""
        now = store.lineage("training-quickstart").champion
        helps = now is None or now.id == first
        return 0.95 if ("Check" in prompt) is helps else 0.1

    trials.chance = swapped
    nights = trained(project.root)
    lineage = store.lineage("training-quickstart")
    assert [one.why for one in lineage.crowned] == ["started", "promoted", "rolled_back"]
    better = lineage.crowned[1].id
    assert (lineage.champion and lineage.champion.id, lineage.crowned[2].before) == (first, better)
    watched = [night for night in nights if night.champion == better]
    assert {night.control.old for night in watched} == {first}
    assert watched[-1].control.verdict is not None
    assert watched[-1].control.verdict.action == "roll_back"
    assert nights[-1].after.champion == first
