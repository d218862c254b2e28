"""A training plan: strict, one message for each mistake with its place, and fixed once it is declared."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from conftest import REPO
from support.experiments import Project
from terminalbench.errors import InvalidFile, UserError
from terminalbench.experiments.profile_changes import changed_places
from terminalbench.experiments.schema import tables_markdown
from terminalbench.json_files import read_json, write_json
from terminalbench.trainer.check import idle_looks
from terminalbench.trainer.gym import Gym
from terminalbench.trainer.journal import plan_json
from terminalbench.trainer.lineage import ChampionReason, LineageStore
from terminalbench.trainer.plan import PlanDeclaration, TrainingPlan, declare, load_plan
from terminalbench.trainer.tables import BudgetTable, EvolverTable, GateTable, PlanTable, RangeTable, SplitTable
from terminalbench.trainer.variants import Change, ToolsTable

PLAN = """
schema_version = 1
slug = "mine"
environment = "starter"
nights = 9

[profile]
agent = "simulated"
model = "m"

[run]
container_env = "local"

[split]
train = 0.2
dev = 0.6

[budget]
trials = 60

[[variants]]
reason = "more steps"
options = { steps_mean = 9 }
"""


def written(project: Project, *changes: tuple[str, str], more: str = "") -> Path:
    text = PLAN + more
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return project.write("training/plan.toml", text)


def plan(project: Project, *changes: tuple[str, str], more: str = "") -> TrainingPlan:
    return load_plan(written(project, *changes, more=more))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("nights = 9", "nigths = 9"), '5: nigths: unknown key (did you mean "nights"?)'),
        (("trials = 60", "trials = 2"), "19: budget.trials: must be at least 4, not 2"),
        (
            ("trials = 60", "trials = 60\nexplore = 0.35"),
            "20: budget.explore: is no longer a key: what budget.control leaves goes to the",
        ),
        (("train = 0.2", "train = 0.8"), "14: split: train, dev and holdout (0.2) add up to 1.6, more than 1"),
        (
            ("[[variants]]", '[[variants]]\nreason = "first"\noptions = { steps_mean = 9 }\n[[variants]]'),
            "24: variants[1]: is the same profile as variants[0] (remove one of them)",
        ),
        (('reason = "more steps"', ""), "21: variants[0].reason: is required"),
        (("steps_mean", "stepsmean"), "23: variants[0].options.stepsmean: agent simulated does not have this option"),
        (("{ steps_mean = 9 }", "{}"), "21: variants[0]: changes nothing"),
        (('model = "m"', 'modle = "m"'), '9: profile.modle: unknown key (did you mean "model"?)'),
        (('container_env = "local"', "attempts = 3"), "12: run.attempts: cannot be set in a plan"),
        (('container_env = "local"', "parallel = -1"), "12: run.parallel: must be at least 0"),
        (
            ('"starter"', '"startre"'),
            '4: environment: startre: is not an environment: "startre" is not a dataset (did you mean',
        ),
        (("[profile]", "[other]"), "7: other: unknown key"),
        (("schema_version = 1", "schema_version = 2"), "2: schema_version: must be 1, not 2"),
        (
            ("trials = 60", "trials = 20"),
            "19: budget.trials: 20 trials a night leave 15 to confirm; 10 dev tasks under",
        ),
        (
            ("nights = 9", "nights = 9\ngate = { alpha = 0.001 }"),
            "6: gate: 10 dev tasks can never show a gain at alpha 0.001 over 1 challenger",
        ),
        (
            ("nights = 9", 'nights = 9\n[evolver]\nname = "gpea"'),
            '7: evolver.name: no evolver is called "gpea" (did you mean "gepa"?)',
        ),
    ],
)
def test_a_mistake_is_said_at_its_place(project: Project, change: tuple[str, str], said: str) -> None:
    file = written(project, change)
    with pytest.raises(UserError) as caught:
        load_plan(file)
    assert any(line.startswith((f"{file}: {said}", f"{file}:{said}")) for line in caught.value.lines())
    assert not (project.root / ".terminalbench/training").exists()


def test_all_mistakes_are_said_at_once(project: Project) -> None:
    with pytest.raises(InvalidFile) as caught:
        plan(project, ("nights = 9", "nights = 0"), ("trials = 60", 'trials = "many"'), more="[gate]\nalpha = 2\n")
    assert [problem.key for problem in caught.value.problems] == ["nights", "budget.trials", "gate.alpha"]


def test_what_a_plan_means(project: Project) -> None:
    found = plan(project)
    assert (found.lineage, found.challengers, found.simulated) == ("mine", 1, True)
    split = Gym(project.root).split(found.environment)
    assert (split.train, split.dev) == (found.split.train, found.split.dev)
    assert plan(project, more="[gate]\nchallengers = 7\n").challengers == 7


def test_a_declared_plan_does_not_change(project: Project) -> None:
    first = declare(plan(project))
    assert (
        declare(plan(project))
        == first
        == read_json(project.root / ".terminalbench/training/mine/plan.json", PlanDeclaration)
    )
    for change, more, said in (
        (("nights = 9", "nights = 10"), "", "nights: 9 -> 10"),
        (("steps_mean = 9", "steps_mean = 8"), "", "variants[0].options.steps_mean: 9 -> 8"),
        (('model = "m"', 'model = "n"'), "", "start.model: m -> n"),
        (("nights = 9", "nights = 9"), "[gate]\nalpha = 0.1\n", "gate.alpha: 0.05 -> 0.1"),
    ):
        with pytest.raises(UserError, match="is not the plan that was declared on") as caught:
            declare(plan(project, change, more=more))
        assert said in str(caught.value)
    declare(plan(project, ("nights = 9", "# nine\nnights = 9")))  # the same, said otherwise


def test_a_prompt_that_changes_under_a_declared_plan_is_found(project: Project) -> None:
    project.write("p.md", "One.\n")
    with_prompt = ('model = "m"', 'model = "m"\nprompt = "p.md"')
    declare(plan(project, with_prompt))
    project.write("p.md", "Two.\n")
    with pytest.raises(UserError, match=r"start\.system_prompt: One\. -> Two\."):
        declare(plan(project, with_prompt))


def test_a_task_that_changes_its_part_is_found(project: Project) -> None:
    declare(plan(project))
    (project.root / ".terminalbench/gym/splits.jsonl").unlink()
    with pytest.raises(UserError, match=r"parts\.dev"):
        declare(plan(project, ("dev = 0.6", "dev = 0.6\nseed = 5")))


def test_a_task_that_was_edited_since_is_found(project: Project) -> None:
    places = [project.task("own", name).parent for name in "abcdefghijklmnop"]
    own = ('environment = "starter"', 'environment = "own"')
    declare(plan(project, own))
    for place in (places[0], places[3]):
        (place / "instruction.md").write_text("Another task.")
    with pytest.raises(UserError, match="2 tasks changed since the plan was declared: own/a, own/d"):
        declare(plan(project, own))


def test_a_plan_without_a_profile_goes_on_from_the_champion(project: Project) -> None:
    none = ('[profile]\nagent = "simulated"\nmodel = "m"\n', "")
    with pytest.raises(UserError, match='profile: lineage "mine" has no champion to start from'):
        plan(project, none)
    store, first = LineageStore(project.root), plan(project)
    made = first.start
    store.add("mine", made, reason="r", source="plan")
    store.crown("mine", made.profile.id, ChampionReason.STARTED, reason="the first")
    follows = plan(project, none, ('slug = "mine"', 'slug = "next"\nlineage = "mine"'))
    assert follows.start.profile.id == made.profile.id
    declare(follows)
    other = plan(project, ('model = "m"', 'model = "n"'), ('slug = "mine"', 'slug = "third"')).start
    store.add("mine", other, reason="r", source="person")
    store.crown("mine", other.profile.id, ChampionReason.BY_HAND, reason="try")
    # It was declared with the champion of then, and stays so.
    declare(plan(project, none, ('slug = "mine"', 'slug = "next"\nlineage = "mine"')))
    with pytest.raises(UserError, match='lineage "mine" started with'):
        plan(project, ('model = "m"', 'model = "n"'))


def test_the_stored_plan_is_readable_by_people(project: Project) -> None:
    declare(plan(project))
    kept = json.loads((project.root / ".terminalbench/training/mine/plan.json").read_text())
    assert kept["content"]["gate"]["alpha"] == 0.05
    assert len(kept["digest"]) == 16


def test_validate_knows_a_plan(tbench) -> None:
    ran = tbench("validate", str(REPO / "experiments" / "training-quickstart.toml"))
    assert ran.code == 0, ran.err
    assert "a training plan of 4 nights" in ran.out


def test_looking_at_a_training_writes_nothing(project: Project, tbench) -> None:
    file = written(project)
    before = {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()}
    for command in ("status", "history", "report", "diff"):
        ran = tbench("trainer", command, file)
        assert "tbench trainer run training/plan.toml" in ran.out + ran.err
        assert ran.code == (2 if command == "diff" else 0)
    status = tbench("trainer", "status", file, "--json")
    assert json.loads(status.out)["declared"] is None
    assert tbench("gym", "show", "starter", "--root", project.root).code == 0
    assert {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()} == before


def test_a_night_that_trains_brings_its_own_suite_and_profile(project: Project, tbench) -> None:
    file = written(project)
    for option in (("--suite", "starter"), ("--model", "simulated")):
        ran = tbench("overnight", "--learn", file, *option, "--output", project.root / "results/n")
        assert ran.code == 2
        assert f"{option[0]}: with --learn, the plan decides" in ran.err
    declare(load_plan(file))
    other = written(project, ("nights = 9", "nights = 10"))
    ran = tbench("overnight", "--learn", other, "--output", project.root / "results/n")
    assert (ran.code, "is not the plan that was declared" in ran.err) == (2, True)
    assert not (project.root / "results").exists()


KEYS = [
    ("", PlanTable),
    ("[budget]", BudgetTable),
    ("[split]", SplitTable),
    ("[evolver]", EvolverTable),
    ("[evolver.ranges.<option>]", RangeTable),
    ("[[variants]]", Change),
    ("[variants.tools]", ToolsTable),
    ("[gate]", GateTable),
]


def test_the_page_has_every_key_as_it_is_declared() -> None:
    assert tables_markdown(KEYS).strip() in (REPO / "docs/tbench/training.md").read_text()


def test_the_first_plan_is_that_of_the_page_and_never_written_over_another(project: Project, tbench) -> None:
    ran = tbench("trainer", "run", "none.toml")
    assert (ran.code, ran.err) == (2, "error: none.toml: no such file (tbench trainer init makes one)\n")
    assert tbench("trainer", "init").out.endswith("next: tbench trainer run experiments/training-quickstart.toml\n")
    made = project.root / "experiments/training-quickstart.toml"
    assert made.read_bytes() == (REPO / "experiments/training-quickstart.toml").read_bytes()
    plan = load_plan(made)
    assert (plan.table.nights, plan.root) == (4, project.root)  # in a folder that nothing else marks as a project
    made.write_text("mine")
    assert tbench("trainer", "init").code == 2
    assert made.read_text() == "mine"


def test_looks_that_can_decide_nothing_are_named(project: Project) -> None:
    assert idle_looks(plan(project)) == (
        "looks 1 to 2 of 5 can decide nothing: 10 dev tasks reach p = 0.002 at best, but p must be 0.0013"
    )
    assert idle_looks(plan(project, ("nights = 9", "nights = 9\ngate = { looks = 1 }"))) is None


VARIANTS = ('[[variants]]\nreason = "more steps"\noptions = { steps_mean = 9 }\n', "")
PRICED = (
    'agent = "simulated"\nmodel = "m"',
    'agent = "claude-code"\nmodel = "m"\nno_mcp = true\nlikely_cost_usd = 0.1',
)
ONE = ("options = { steps_mean = 9 }", 'sections = { "A" = "Look twice." }')


def test_a_plan_says_what_gains_take_and_what_would_be_cheaper(project: Project, tbench) -> None:
    file = written(project, PRICED, ONE, ("nights = 9", "nights = 28"), ("trials = 60", "trials = 240"))
    ran = tbench("trainer", "plan", file)
    assert ran.code == 0, ran.err
    assert "a gain of 5 points: not shown by this plan" in ran.out
    assert "a gain of 20 points: about 6 nights, 1,344 trials, $134.40; shown in 67 of 100 cases" in ran.out
    assert "to show 10 points: about 26 dev tasks (now 10" in ran.out
    told = json.loads(tbench("trainer", "plan", file, "--json").out)
    assert (told["trial_usd"], [one["trials"] for one in told["gains"]]) == (0.1, [None, None, 1344])
    assert ran.out.splitlines()[1] in tbench("validate", file).out
    assert not (project.root / ".terminalbench").exists()


def test_a_plan_that_can_decide_nothing_is_refused_before_its_first_trial(project: Project, tbench) -> None:
    few = ("dev = 0.6", "dev = 0.6\n[gate]\nlooks = 1\nalpha = 0.006")
    file = written(project, few, ("trials = 60", "trials = 30"))
    for command in (("validate",), ("trainer", "plan"), ("trainer", "run"), ("overnight", "--learn")):
        ran = tbench(*command, file)
        assert (ran.code, "so this plan can decide nothing (about" in ran.err) == (2, True), ran.err
    assert not (project.root / "results").exists()


@pytest.mark.parametrize("command", [("trainer", "run"), ("overnight", "--learn")])
def test_a_search_whose_model_is_dead_is_refused_before_its_first_trial(
    project: Project, tbench, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    file = written(project, ("nights = 9", 'nights = 9\n[evolver]\nname = "reflect"\nmodel = "ollama:none"'), VARIANTS)
    ran = tbench(*command, file)
    assert (ran.code, "evolver.model: ollama:none: " in ran.err) == (2, True), ran.err
    assert not (project.root / "results").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("steps_mean", "stepsmean"), "variants[0].options.stepsmean: agent simulated does not have this option"),
        (('agent = "simulated"', 'agent = "simulatde"'), "profile.agent"),
        (("{ steps_mean = 9 }", "{}"), "variants[0]: changes nothing"),
        (('"starter"', '"startre"'), "is not an environment"),
        (('model = "m"', 'model = "m"\nprompt = "none.md"'), "profile.prompt"),
        (("nights = 9", 'nights = 9\n[evolver]\nname = "no.such:Evolver"'), "no.such"),
        (("options = { steps_mean = 9 }", 'sections = { "A" = "see /tests/test.sh" }'), "variants[0]"),
        (('environment = "starter"\n', ""), "environment: is required"),
    ],
)
def test_validate_refuses_what_a_run_refuses_and_writes_nothing(project: Project, tbench, change, said: str) -> None:
    ran = tbench("validate", written(project, change))
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert not (project.root / ".terminalbench").exists()


def test_validate_refuses_another_plan_than_the_declared_one(project: Project, tbench) -> None:
    prompt = "options = { steps_mean = 9 }", 'sections = { "A" = "Look twice." }'
    ran = tbench("validate", written(project, prompt))
    assert ran.code == 0, ran.err
    assert "note: looks 1 to 2 of 5 can decide nothing" in ran.out
    assert not (project.root / ".terminalbench").exists()
    declared = declare(plan(project, prompt))
    earlier = {**declared.content, "budget": {**declared.content["budget"], "explore": 0.35, "confirm": 0.4}}
    kept = plan_json(plan(project, prompt).folder)
    write_json(kept, replace(declared, content=earlier, digest="of those"))
    assert declare(plan(project, prompt)).digest == "of those", "shares that an earlier version kept change nothing"
    ran = tbench("validate", written(project, prompt, ("trials = 60", "trials = 61")))
    assert (ran.code, "budget.trials: 60 -> 61" in ran.err) == (2, True)


def test_a_plan_is_no_experiment_and_an_experiment_no_plan(project: Project, tbench) -> None:
    for command in ("run", "plan"):
        ran = tbench(command, written(project))
        assert (ran.code, "is a training plan (run it with: tbench trainer run training/plan.toml)" in ran.err) == (
            2,
            True,
        )
    file = project.write("e.toml", 'schema_version = 2\nslug = "s"\ntasks = { items = "all" }\n')
    for command in ("status", "run"):
        ran = tbench("trainer", command, file)
        assert (ran.code, "is an experiment, not a training plan (run it with: tbench run e.toml)" in ran.err) == (
            2,
            True,
        )


def test_a_long_text_is_shown_where_it_differs() -> None:
    one, other = (f"{'a/task, ' * 20}b/{name}" for name in ("x", "y"))
    assert changed_places({"parts": {"train": one}}, {"parts": {"train": other}}) == [
        "parts.train: ..., a/task, b/x -> ..., a/task, b/y"
    ]
