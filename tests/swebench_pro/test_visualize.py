"""Charts: what is drawn, by which numbers, and that a page needs nothing else."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.results import make_plan, make_trial
from support.workflows import gives_up, passes
from terminalbench.analytics.compare import compare_views
from terminalbench.cli.main import main
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.index.results import open_view
from terminalbench.swebench_pro.convert import short_id
from terminalbench.swebench_pro.projections import project
from terminalbench.swebench_pro.rows import ResultRow, RunVerdict, read_arms, read_results
from terminalbench.swebench_pro.visualize import make_charts, with_verdicts

NAMES = ("pass_rate", "cost_pass_rate", "tokens_per_step", "wall_time", "outcomes", "paired_effects")


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Two arms on six instances, one error, one that never ran."""
    batch = allocate(tmp_path_factory.mktemp("drawn") / "results", "pro")
    make_plan(batch, ("singleshot", "s1_tdd"), "abcdef")
    for n, task in enumerate("abcdef"):
        if n < 5:
            reward = float(n < 1) if n < 4 else None
            error = None if n < 4 else "AgentSetupTimeoutError"
            trial = make_trial(
                batch, f"{task}__1", profile="singleshot", reward=reward, error=error, second=n, cost=0.1
            )
            gives_up().write(trial)
        passes().write(make_trial(batch, f"{task}__2", profile="s1_tdd", reward=float(n < 5), second=n, cost=0.2))
    return batch


@pytest.fixture(scope="module")
def output(batch: Batch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its projections, drawn."""
    output = tmp_path_factory.mktemp("output")
    project([batch], output)
    assert main(["swebench-pro", "visualize", "--results", str(output / "results.jsonl")]) == 0
    return output


def test_every_chart_is_a_file_and_on_the_page(output: Path) -> None:
    page = (output / "charts" / "index.html").read_text()
    for name in NAMES:
        alone = (output / "charts" / f"{name}.svg").read_text()
        assert alone.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
        assert "<style>" in alone
        assert f'id="{name}"' in page
    assert page.count("<svg") == len(NAMES)
    assert not [word for word in ("<script", "<link", "src=", "http://", "https://") if word in page]


def test_numbers_and_denominators_are_those_of_compare(batch: Batch, output: Path) -> None:
    drawn = make_charts(read_results(output / "results.jsonl").rows).comparison
    compared = compare_views([open_view(batch)])
    for mine, theirs in zip(drawn.profiles, compared.profiles, strict=True):
        for name in (
            "planned",
            "measured",
            "passed",
            "rate",
            "rate_all",
            "interval",
            "cost_usd",
            "cost_unknown_trials",
            "outcomes",
        ):
            assert getattr(mine, name) == getattr(theirs, name), name
    (mine,), (theirs,) = drawn.contrasts, compared.contrasts
    assert (mine.estimate, mine.verdict, mine.p_adjusted) == (theirs.estimate, theirs.verdict, theirs.p_adjusted)
    assert (drawn.profiles[0].measured, drawn.profiles[0].planned) == (4, 6)


def test_an_arm_that_sees_the_verdict_is_left_out() -> None:
    rows = [ResultRow(instance_id="i", arm=arm, resolved=True, oracle=arm == "cheat") for arm in ("a", "b", "cheat")]
    charts = make_charts(rows)
    assert [p.profile for p in charts.comparison.profiles] == ["a", "b"]
    assert any("cheat" in note for note in charts.notes)
    with pytest.raises(UserError, match="nothing to draw"):
        make_charts([row for row in rows if row.oracle])


def test_lines_that_cannot_be_read_are_said() -> None:
    charts = make_charts([ResultRow(instance_id="i", arm="a", resolved=True)], bad_lines=10)
    assert "10 lines of the results could not be read." in charts.notes


def test_instances_are_named_by_repository_and_commit() -> None:
    commit = "1077729a19c0ce902e713cf6fab42c91fb7907f1"
    assert short_id(f"instance_element-hq__element-web-{commit}-vnan") == "element-hq__element-web-1077729a"
    assert short_id("mine") == "mine"


def verdicts(folder: Path, document: Any) -> Path:
    path = folder / "resolved.json"
    path.write_text(json.dumps(document))
    return path


def test_verdicts_of_an_evaluation_are_by_instance_and_arm(tmp_path: Path) -> None:
    rows = [
        ResultRow(instance_id="i", arm="a", patch_content="x"),
        ResultRow(instance_id="i", arm="b", patch_content="x"),
    ]
    found = with_verdicts(rows, verdicts(tmp_path, {"resolved": {"a": {"i": True}, "b": {"i": None}}, "verdicts": []}))
    assert [(row.resolved, row.outcome) for row in found] == [(True, "passed"), (None, "errored")]
    with pytest.raises(UserError, match="does not name arms"):
        with_verdicts(rows, verdicts(tmp_path, {"i": True}))
    assert with_verdicts(rows[:1], verdicts(tmp_path, {"i": False}))[0].resolved is False
    with pytest.raises(UserError, match="no verdict on any of the results: 2 runs of a, b"):
        with_verdicts(rows, verdicts(tmp_path, {"resolved": {"other": {"i": True}}}))
    with pytest.raises(UserError, match="no verdicts"):
        with_verdicts(rows, verdicts(tmp_path, [1]))


def test_results_of_the_official_evaluator_and_of_others_are_arms_beside_ours(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of a leaderboard has a folder for each entry; a report of SWE-bench is one arm, and may have errors."""
    ids = [f"instance_o__r-{letter}" for letter in "abcdef"]
    for name, solved in (("sonnet", 4), ("kimi", 1)):
        place = tmp_path / "board" / name / "eval_results.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({one: number < solved for number, one in enumerate(ids)}))
    report = {"resolved_ids": ids[:2], "unresolved_ids": ids[2:4], "error_ids": [ids[4]], "incomplete_ids": [ids[5]]}
    (tmp_path / "gpt.run1.json").write_text(json.dumps(report))
    sources = [output / "results.jsonl", tmp_path / "board", tmp_path / "gpt.run1.json"]
    found = read_arms(sources)
    resolved = {arm: sum(bool(row.resolved) for row in found.rows if row.arm == arm) for arm in ("sonnet", "kimi")}
    assert resolved == {"sonnet": 4, "kimi": 1}
    (gpt,) = {row.arm for row in found.rows} - {"sonnet", "kimi", "singleshot", "s1_tdd"}
    standings = {row.instance_id[-1]: row.standing for row in found.rows if row.arm == gpt}
    assert standings == {
        "a": RunVerdict.RESOLVED, "b": RunVerdict.RESOLVED, "c": RunVerdict.UNRESOLVED, "d": RunVerdict.UNRESOLVED,
        "e": RunVerdict.ERROR, "f": RunVerdict.NOT_RUN,
    }  # fmt: skip
    command = ["swebench-pro", "visualize", "--output-dir", str(tmp_path / "out")]
    assert main([*command, *(word for one in sources for word in ("--results", str(one)))]) == 0
    page = (tmp_path / "out" / "charts" / "index.html").read_text()
    assert all(arm in page for arm in ("sonnet", "kimi", gpt, "s1_tdd"))
    capsys.readouterr()
    shutil.copytree(tmp_path / "board" / "kimi", tmp_path / "other" / "kimi")
    same = ("--results", str(tmp_path / "board"), "--results", str(tmp_path / "other"))
    assert main([*command, *same]) == 2
    assert 'has an arm "kimi", but so does' in capsys.readouterr().err
    assert main([*command, "--results", str(tmp_path / "none.jsonl")]) == 2


def test_the_note_below_the_effects_says_what_the_matrix_shows() -> None:
    """Arms that come to the same on a common instance have no picture, and have an instance in common all the same."""

    def note(second: str) -> str:
        rows = [ResultRow(instance_id=name, arm=arm, resolved=False) for name, arm in (("i", "a"), (second, "b"))]
        effects = make_charts(rows).charts[-1]
        assert effects.svg is None
        return effects.note

    assert note("i").startswith("No two arms differ. ")
    assert note("j").startswith("No two arms were measured on the same instance.")


def test_the_axis_of_times_has_its_unit_and_outer_numbers_stay_inside(output: Path) -> None:
    assert ">seconds</text>" in (output / "charts" / "wall_time.svg").read_text()
    rates = (output / "charts" / "pass_rate.svg").read_text()
    assert 'class="dim">0 %</text>' in rates
    assert 'class="dim e">100 %</text>' in rates
