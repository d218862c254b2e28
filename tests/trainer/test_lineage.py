"""The lineage: append-only, never half written, and the champion that an experiment takes is pinned."""

import json
from pathlib import Path

import pytest

from support.experiments import BASE, Project, good, problems
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.champions import champion_file
from terminalbench.experiments.profiles import RECIPE
from terminalbench.trainer import lineage
from terminalbench.trainer.environments import open_environment
from terminalbench.trainer.lineage import ChampionReason, LineageStore, history
from terminalbench.trainer.variants import Change, ResolvedProfile, changed, resolved

STARTER = BASE.replace('"a"', '"csv-clean"').replace("[tasks]", '[tasks]\ndefault_dataset = "starter"')
BEST = STARTER + '[profiles.best]\nchampion = "mine"\n'
TABLE = {"agent": "claude-code", "model": "m", "prompt": "p.md", "no_mcp": True}


class Line:
    """A lineage with a champion and a variant of it."""

    def __init__(self, project: Project) -> None:
        project.write("p.md", "Work.\n")
        self.root, self.store = project.root, LineageStore(project.root)
        self.starter = open_environment("starter", project.root)
        self.first = resolved(self.starter, TABLE, "profile")
        self.store.add("mine", self.first, reason="where we are", source="plan")
        self.store.crown("mine", self.first.profile.id, ChampionReason.STARTED, reason="the first")

    def second(self, text: str = "Run the tests.") -> ResolvedProfile:
        made = changed(self.starter, self.first, Change("r", sections={"End": text}), "v")
        self.store.add("mine", made, reason=text, source="someone", parent=self.first.profile.id)
        return made


@pytest.fixture
def line(project: Project) -> Line:
    return Line(project)


def test_an_experiment_gets_the_champion_as_it_is(line: Line, project: Project) -> None:
    text = BEST + '[defaults]\nmodel = "other"\nreasoning = "high"\n'
    before = good(project, text).profiles[0]
    assert (before.id, before.model, before.reasoning) == (line.first.profile.id, "m", None)
    assert before.description is not None
    assert "champion of mine since" in before.description
    made = line.second()
    assert good(project, text).profiles[0].id == before.id
    line.store.crown("mine", made.profile.id, ChampionReason.PROMOTED, reason="+6 pt", evidence={"difference": 0.06})
    after = good(project, text).profiles[0]
    assert after.id == made.profile.id
    assert "Run the tests." in (after.system_prompt or "")


def test_a_profile_keeps_the_recipe_that_it_was_recorded_by(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "RECIPE", RECIPE + 1)
    made = line.second()
    known = LineageStore(line.root).lineage("mine").variants
    assert [known[one.profile.id].recipe for one in (line.first, made)] == [RECIPE, RECIPE + 1]


def test_the_plan_pins_it(line: Line, project: Project, tbench) -> None:
    project.experiment(BEST)
    assert line.first.profile.id in tbench("plan", "experiments/exp.toml").out
    planned = json.loads(tbench("plan", "experiments/exp.toml", "--json").out)
    assert [record["id"] for record in planned["profiles"]] == [line.first.profile.id]


def test_a_champion_whose_files_changed_is_a_problem_not_another_champion(line: Line, project: Project) -> None:
    kept = project.root / line.first.table["prompt"]
    kept.write_text("Play.\n")
    (found,) = problems(project, BEST)
    assert found.startswith(f'profiles.best.champion: is no longer the champion of "mine" ({line.first.profile.id})')
    assert "system_prompt: Work. -> Play." in found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            BEST.replace('"mine"', '"mien"'),
            'profiles.best.champion: no lineage is called "mien" (did you mean "mine"?)',
        ),
        (BEST + 'model = "x"\n', "profiles.best.model: cannot be combined with champion (remove it"),
        (BEST.replace('"mine"', '"../mine"'), "profiles.best.champion: must be letters"),
    ],
)
def test_what_is_wrong_with_a_champion_is_said_at_its_place(line: Line, project: Project, text: str, said: str) -> None:
    assert any(one.startswith(said) for one in problems(project, text))  # in the order of their lines


def test_a_kill_between_log_and_pointer_leaves_the_champion_of_before(
    line: Line, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = line.second()
    with monkeypatch.context() as patch:
        patch.setattr("terminalbench.trainer.lineage.write_bytes", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            line.store.crown("mine", made.profile.id, ChampionReason.PROMOTED, reason="+6 pt")
    assert good(project, BEST).profiles[0].id == line.first.profile.id
    assert LineageStore(project.root).lineage("mine").crowned[-1].id == made.profile.id
    line.second("More.")  # the next writer brings the pointer up to date
    assert good(project, BEST).profiles[0].id == made.profile.id
    champion_file(project.root, "mine").unlink()
    line.second("And more.")
    assert good(project, BEST).profiles[0].id == made.profile.id


def test_a_line_cut_off_was_never_written_and_a_damaged_one_is_an_error(line: Line) -> None:
    log = line.store.log
    whole = log.read_bytes()
    log.write_bytes(whole + whole.splitlines()[-1][:40])
    made = line.second()
    assert [entry.seq for entry in history(line.store.lineage("mine"))] == [1, 2, 3]
    assert line.store.lineage("mine").variants[made.profile.id].parent == line.first.profile.id
    log.write_bytes(whole.replace(b'"champion"', b'"unknown"', 1))
    with pytest.raises(TbenchError, match="line 2 cannot be read"):
        line.store.read()


def test_who_may_become_champion(line: Line, tmp_path: Path) -> None:
    store, first = line.store, line.first.profile.id
    with pytest.raises(UserError, match="is already the champion"):
        store.crown("mine", first, ChampionReason.BY_HAND, reason="again")
    with pytest.raises(UserError, match="is not in the lineage"):
        store.crown("mine", "p1", ChampionReason.BY_HAND, reason="who")
    simulated = resolved(line.starter, {"agent": "simulated"}, "profile")
    with pytest.raises(UserError, match="cannot mix simulated and real profiles"):
        store.add("mine", simulated, reason="r", source="s")
    with pytest.raises(UserError, match="parent p0"):
        store.add("mine", resolved(line.starter, {**TABLE, "model": "n"}, "p"), reason="r", source="s", parent="p0")


def test_a_rollback_walks_back_along_the_champions_and_never_toggles(line: Line) -> None:
    made = line.second()
    third = resolved(line.starter, {**TABLE, "model": "third"}, "p")
    line.store.add("mine", third, reason="r", source="s")
    assert line.store.lineage("mine").earlier is None
    for profile in (made.profile.id, third.profile.id):
        line.store.crown("mine", profile, ChampionReason.PROMOTED, reason="+6 pt")
    for wanted in (made.profile.id, line.first.profile.id):
        earlier = line.store.lineage("mine").earlier
        assert earlier is not None
        assert earlier.id == wanted
        line.store.crown("mine", wanted, ChampionReason.BY_HAND, reason="back")
    assert line.store.lineage("mine").earlier is None


def test_a_lineage_tells_who_came_from_whom(line: Line) -> None:
    made = line.second()
    line.store.crown("mine", made.profile.id, ChampionReason.PROMOTED, reason="+6 pt")
    found = line.store.lineage("mine")
    assert [one.id for one in found.line(found.find(made.profile.id[:6]))] == [made.profile.id, line.first.profile.id]
    assert found.control is not None
    assert found.control.id == line.first.profile.id
    line.store.crown("mine", line.first.profile.id, ChampionReason.ROLLED_BACK, reason="worse")
    found = line.store.lineage("mine")
    assert [one.why for one in found.crowned] == ["started", "promoted", "rolled_back"]
    with pytest.raises(UserError, match="it has no first profile"):
        found.find("x")


def test_a_variant_whose_content_was_edited_is_refused_at_its_line(line: Line) -> None:
    made = line.second()
    log = line.store.log
    log.write_text(log.read_text().replace("Run the tests.", "Run no tests."))
    with pytest.raises(UserError, match=f"log.jsonl:3: the content of profile {made.profile.id} is that of p"):
        line.store.read()


def test_a_variant_whose_table_was_edited_is_not_measured(line: Line) -> None:
    made = line.second()
    found, edited = line.store.lineage("mine"), {**made.table, "model": "stronger"}
    found.check(made.profile.id, resolved(line.starter, made.table, "profile").profile)
    with pytest.raises(UserError, match="has changed since it was recorded: model: m -> stronger"):
        found.check(made.profile.id, resolved(line.starter, edited, "profile").profile)


def test_a_champion_whose_file_was_edited_is_refused_and_one_deleted_comes_from_the_log(
    line: Line, project: Project
) -> None:
    file, first = champion_file(project.root, "mine"), line.first.profile.id
    whole = file.read_text()
    file.write_text(whole.replace('"model": "m"', '"model": "n"'))  # in its table and in its content
    (found,) = problems(project, BEST)
    assert f"the content of {first} is that of p" in found
    assert "delete the file: it is rebuilt from" in found
    other = resolved(line.starter, {**TABLE, "model": "n"}, "p").profile.id
    file.write_text(file.read_text().replace(first, other))
    (found,) = problems(project, BEST)
    assert f"{other} was not made champion of mine" in found
    file.unlink()
    assert good(project, BEST).profiles[0].id == first
