"""`tbench compare`, on batches made without running anything."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.marked import batch
from support.results import make_trial
from terminalbench.analytics.model import Comparison
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.site import Site
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Exclusion, ExclusionKind, Plan
from terminalbench.index.queries import view_batch
from terminalbench.json_files import read_json, write_json
from terminalbench.records.trial import TaskRef
from terminalbench.report.run_end import next_steps
from terminalbench.runner.resume import missing_cells
from terminalbench.text.reasons import doubt

GOLDEN = Path(__file__).parents[1] / "golden"


def test_the_text_is_what_a_person_reads(tmp_path: Path, tbench, golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    made = batch(
        tmp_path,
        {"text": "+x xx ++ x+ xE xx xx +x", "canvas": "++ x+ ++ ++ +x x+ xx ++"},
        cost=0.25,
        hypothesis="it helps",
    )
    for name, more in (("compare.txt", ()), ("compare_details.txt", ("--details",))):
        ran = tbench("compare", made.folder, *more)
        assert ran.code == 0, ran.err
        golden(GOLDEN / name, ran.out)
        assert max(map(len, ran.out.splitlines())) <= 100
        assert (len(ran.out.splitlines()) < 15) == (not more), "the answer, a table, and what to do next"


def test_the_json_is_the_comparison(tmp_path: Path, tbench) -> None:
    made = batch(tmp_path, {"a": "xx " * 8, "b": "++ " * 8})
    document = json.loads(tbench("compare", made.folder, "--json").out)
    assert document["contrasts"][0]["verdict"] == "better"
    assert document["contrasts"][0]["sentence"].startswith("b vs a: +100.0 pt")
    assert document["batches"] == ["s/0"]
    assert (document["rule"], document["coverage"]) == ("exclude", 0.9), "written also where nothing else is declared"
    older = {key: value for key, value in document.items() if key not in ("rule", "coverage")}
    assert msgspec.json.decode(json.dumps(older), type=Comparison).rule == "exclude", (
        "a file without them can still be read"
    )


def test_a_partial_batch_says_what_is_missing(tmp_path: Path, tbench) -> None:
    ran = tbench("compare", batch(tmp_path, {"a": "xx .. ..", "b": "++ ++ .."}).folder)
    assert ran.code == 0
    assert "a: 4 of 6 planned trials have not run or were cut off" in ran.out
    assert "because only 66.7 % of what b was to do was measured" in " ".join(ran.out.split())


def test_several_batches_are_pooled_and_an_edited_profile_is_not(tmp_path: Path, tbench) -> None:
    first = batch(tmp_path, {"a": "xx " * 8, "b": "++ " * 8})
    second = batch(tmp_path, {"a": "xx " * 8, "b": "++ " * 8})
    plan = msgspec.json.decode(second.plan_json.read_bytes())
    plan["jobs"][1]["profile_id"] = "edited"
    write_json(second.plan_json, plan)
    ran = tbench("compare", first.folder, "s/1", "--results", tmp_path)
    assert ran.code == 0, ran.err
    assert "b@0 vs a:" in ran.out
    assert "b@1 vs b@0:" in ran.out
    assert "from different batches" in ran.out
    asked = tbench("compare", first.folder, second.folder, "--compare", "b@1", "b@0")
    assert "b@1 vs b@0:" in asked.out
    assert "b@0 vs a:" not in asked.out


@pytest.mark.parametrize("known", [0, 1])
def test_a_batch_with_families_and_one_without_are_pooled_by_family(tmp_path: Path, tbench, known: int) -> None:
    made = [batch(tmp_path, {"a": "xx " * 8, "b": "++ " * 8}) for _ in range(2)]
    plan = msgspec.json.decode(made[known].plan_json.read_bytes())
    for job in plan["jobs"]:
        for place, task in enumerate(job["tasks"]):
            task["ref"]["family"] = f"f{place // 2}"
    write_json(made[known].plan_json, plan)
    ran = tbench("compare", made[0].folder, made[1].folder, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)["contrasts"][0]
    assert "refused" not in found
    assert "only_new" not in found
    assert (found["unit"], found["estimate"]["units"], found["estimate"]["tasks"]) == ("family", 4, 8)
    assert found["estimate"]["trials"] == 64
    assert [len(profile["tasks"]) for profile in json.loads(ran.out)["profiles"]] == [8, 8]


def test_the_newest_batch_is_the_default(tmp_path: Path, tbench) -> None:
    batch(tmp_path, {"a": "xx " * 8, "b": "++ " * 8})
    assert "b vs a: +100.0 pt" in tbench("compare", "--results", tmp_path, "--details").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--baseline", "c"], 'no profile is called "c"'),
        (["--compare", "a", "zz"], 'no profile is called "zz"'),
        (["--vs", "a", "zz"], 'no profile is called "zz"'),
        (["nowhere/3"], "nowhere/3: no such batch or experiment file (tbench list shows the batches)"),
        (["s"], 's: no such batch or experiment file (did you mean "s/0"?)'),
    ],
)
def test_wrong_questions_are_refused(tmp_path: Path, tbench, arguments: list[str], message: str) -> None:
    batch(tmp_path, {"a": "x", "b": "+"})
    ran = tbench("compare", "--results", tmp_path, *arguments)
    assert (ran.code, message in ran.err) == (2, True)


def test_an_experiment_file_means_its_latest_batch_and_shows_departures(project, tbench) -> None:
    text = (
        'schema_version = 2\nslug = "s"\n[tasks]\nitems = [{ id = "a" }]\n[analysis]\nalpha = 0.2\n'
        '[profiles.p]\nagent = "oracle"\n[profiles.q]\nagent = "nop"\n'
    )
    file = project.experiment(text)
    assert "has no batch with data yet" in tbench("compare", file).err
    batch(project.root / "results", {"p": "xx " * 8, "q": "++ " * 8})
    ran = tbench("compare", file)
    assert ran.code == 0, ran.err
    assert "analysis: alpha = 0.05 was declared and is used, although the file now has 0.2" in ran.out


def test_one_profile_is_described_and_not_gated(tmp_path: Path, tbench) -> None:
    made = batch(tmp_path, {"only": "+x ++"})
    assert "75.0 %" in tbench("compare", made.folder, "--details").out
    ran = tbench("compare", made.folder, "--fail-if", "worse")
    assert (ran.code, "no contrast to judge" in ran.err) == (2, True)


def test_what_is_unknown_is_said_and_what_is_undefined_is_not_called_unknown(
    tmp_path: Path, tbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = {"a": "xx " * 8, "b": "++ " * 8}
    assert "\nCost and tokens are unknown.\n" in tbench("compare", batch(tmp_path / "1", words).folder, "--details").out
    assert "unknown" not in tbench("compare", batch(tmp_path / "2", {"a": "..", "b": ".."}).folder, "--details").out
    short = tbench("compare", tmp_path / "1" / "s" / "0").out
    assert short.split("\n\n")[2].splitlines()[0].split() == [
        "profile",
        "passed",
        "measured",
        "pass",
        "rate",
        "interval",
    ]
    assert "\nunknown: cost, a success, agent time\n" in short, "what nothing is known of takes no column"
    out = tbench("compare", batch(tmp_path / "3", words, cost=0.25).folder, "--details").out
    table = out[out.index("profile  cost") :].splitlines()
    assert [line.split()[:3] for line in table[1:3]] == [["a", "$4.00", "-"], ["b", "$4.00", "$0.25"]]


def test_a_column_of_nothing_takes_no_room(tmp_path: Path, tbench) -> None:
    made = batch(tmp_path, {"plain-agent": "+x " * 8, "with-canvas": "++ " * 8})
    out = tbench("compare", made.folder, "--details").out
    assert "not measured\n" not in out
    assert "\nplain-agent       8     16/16" in out
    assert "\nprofile      passed  measured" in out


LONG = ("claude-code-with-a-very-long-profile-name-and-mcp", "codex-baseline-without-anything-but-long", "c")


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_the_terminal(tmp_path: Path, tbench, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    words = dict(
        zip(LONG, ("+xx xxx ++x x+x xEE xxx", "+++ x++ ++x +++ +x+ x++", "+xE ... ++x xxx +xx ..."), strict=True)
    )
    out = tbench("compare", batch(tmp_path, words, cost=12.5, equivalence_margin=0.1).folder, "--details").out
    assert max(map(len, out.splitlines())) <= width
    assert f"{LONG[2]}  (1 errored, 6 not run)" in out
    assert "the interval that must fit into it is" in " ".join(out.split())
    answer = tbench("compare", tmp_path / "s" / "0").out.splitlines()
    assert max(len(line) for line in answer if not line.startswith("  tbench ")) <= width, "a command is one line"
    assert sum(line.startswith("  tbench resume ") for line in answer) == 1


def test_a_table_with_every_column_fits_eighty(tmp_path: Path, tbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ("claude-code-" * 9, "codex-without-anything-but-a-long-name")
    made = batch(tmp_path, dict(zip(names, ("++++ xx++ +++E", "++++ ++++ ++++"), strict=True)), cost=1234.5)
    batch(tmp_path, {"a": "EE xx"})
    make_trial(made, "a__extra", profile=names[1], reward=0.0)
    out = tbench("compare", made.folder, "--details").out
    table = out[out.index("\nprofile  (not measured)") :].split("\n\ncontrast")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert ("pass@3" in table, "time" in table) == (True, True), "no column is dropped"
    for command in (("list", "--results", tmp_path), ("errors", made.folder)):
        ran = tbench(*command)
        assert (ran.code, max(map(len, ran.out.splitlines())) <= 80) == (0, True), ran.out + ran.err


def test_one_profile_alone_says_so(tmp_path: Path, tbench) -> None:
    made = batch(tmp_path, {"only": "+x ++"})
    assert (
        "There is only one profile, so there is nothing to compare." in tbench("compare", made.folder, "--details").out
    )
    gated = tbench("compare", made.folder, "--fail-if", "worse")
    assert (gated.code, gated.err) == (
        2,
        "error: --fail-if: there is no contrast to judge (there is only one profile)\n",
    )


def test_leaving_out_a_declared_contrast_is_a_departure(tmp_path: Path, tbench) -> None:
    made = batch(tmp_path, {"a": "xx " * 6, "b": "++ " * 6, "c": "+x " * 6})
    assert "Departures" not in tbench("compare", made.folder, "--details").out
    out = tbench("compare", made.folder, "--compare", "b", "a", "--details").out
    assert "p = 0.031: better" in out
    assert "declared, but not requested now, so Holm's adjustment leaves it out: c vs a" in out


def test_what_cannot_be_compared_is_named(tmp_path: Path, tbench) -> None:
    made = batch(tmp_path, {"a": "+x", "b": "++"})
    assert "no such batch or experiment file" in tbench("compare", tmp_path / "nowhere").err
    slug = tbench("compare", made.folder.parent)
    assert (slug.code, f"name one of its batches, such as {made.folder}" in slug.err) == (2, True)
    assert (
        "no task has a known number of tokens for both"
        in tbench("compare", made.folder, "--metric", "tokens", "--details").out
    )


def test_the_printed_command_runs_exactly_what_is_missing(tmp_path: Path, tbench) -> None:
    first = batch(tmp_path, {"a": "++ xE x. xx", "b": "+E ++ ++ ++"})
    second = batch(tmp_path, {"a": "++ x. xx xx", "b": "++ ++ ++ .+"})
    found = json.loads(tbench("compare", first.folder, second.folder, "--json").out)["repeat"]
    assert [(one["batch"], one["trials"]) for one in found] == [("s/0", 3), ("s/1", 2)]
    for one, made in zip(found, (first, second), strict=True):
        command, verb, place, *options = shlex.split(one["command"])
        assert (command, verb, Path(place).resolve()) == ("tbench", "resume", made.folder)
        retry = "all" if options == ["--retry-errors"] else None
        assert sum(cells.total() for cells in missing_cells(view_batch(made), retry).values()) == one["trials"]
    out = " ".join(tbench("compare", first.folder, second.folder, "--details").out.split())
    assert f"run 5 missing trials again: {found[0]['command']}; {found[1]['command']} " in out


def test_doubtful_results_are_said_in_the_text(tmp_path: Path, tbench) -> None:
    made = batch(tmp_path, {"a": "xx " * 8, "b": "++ " * 8}, cost=None)
    for result in made.runs.glob("*__b/*/result.json"):
        result.write_text(
            result.read_text().replace('"oracle", "version"', '"claude-code", "model_info": {"name": "m"}, "version"')
        )
    ran = tbench("compare", made.folder)
    why = "because 100.0 % of b's results look doubtful: no_tokens (analysis.doubtful allows 10.0 %)"
    assert f"inconclusive, {why}" in " ".join(ran.out.split())
    assert f"16 results of 16 of b look doubtful: 16 x {doubt('no_tokens')}" in " ".join(ran.out.split())
    gate = tbench("compare", made.folder, "--fail-if", "worse")
    assert gate.code == 3
    assert why in gate.err


def test_the_report_prints_the_command_of_compare(tmp_path: Path, tbench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = batch(tmp_path / "my results", {"a": "++ xE", "b": "++ ++"})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    command = json.loads(tbench("compare", made.folder, "--json").out)["repeat"][0]["command"]
    assert shlex.split(command) == ["tbench", "resume", str(made.folder), "--retry-errors"]

    def written() -> str:
        assert tbench("report", made.folder, "-o", tmp_path / "out").code == 0
        assert tbench("analyze", made.folder, "--no-llm", "-o", tmp_path / "analysed").code == 0
        files = [tmp_path / place / "comparison_report.md" for place in ("out", "analysed")]
        texts = [file.read_text().replace("\\", "") for file in files]
        assert [command in text for text in texts] == ["resume" in text for text in texts]
        return texts[0]

    assert command in written()
    plan = msgspec.json.decode(made.plan_json.read_bytes())
    write_json(made.plan_json, {**plan, "folder": "results/s/0", "provenance": {"root": str(tmp_path)}})
    assert "resume" not in written() + tbench("compare", made.folder, "--details").out, "a copy would be refused"
    refused = tbench("resume", made.folder)
    assert (refused.code, f"was planned for the folder {tmp_path}/results/s/0" in refused.err) == (2, True)
    write_json(made.plan_json, plan)
    monkeypatch.setattr("terminalbench.live.processes.live_processes", lambda _batch: [object()])
    assert "resume" not in written() + tbench("compare", made.folder, "--details").out, "it still runs"


def test_no_model_is_called_so_on_every_surface(tmp_path: Path, tbench) -> None:
    """The agent of made trials is `oracle`."""
    made = batch(tmp_path, {"a": "++ xx", "b": "++ ++"})
    jobs = made.runs.rename(tmp_path / "jobs")
    listed = tbench("list", "--results", jobs).out
    assert ("no model" in listed, "unknown  a folder" in listed, "$0.00" in listed) == (True, False, False)
    out = tbench("compare", jobs, "--details").out
    assert "Cost and tokens are unknown" not in out
    assert "$" not in out
    assert out.count("no model  ") == 2, "a row each"
    assert tbench("report", jobs, "-o", tmp_path / "out").code == 0
    assert "no model" in (tmp_path / "out" / "comparison_report.md").read_text()


def looked(root: Path, *words: dict[str, str], **analysis: Any) -> list[Batch]:
    """Batches of one experiment with the same profiles, one after the other."""
    return [batch(root, one, **analysis) for one in words]


WON, LOST = {"a": "xx " * 8, "b": "++ " * 8}, {"a": "++ " * 8, "b": "xx " * 8}
EVEN = {"a": "+x " * 8, "b": "x+ " * 8}


def test_a_comparison_takes_every_batch_with_the_same_profiles(tmp_path: Path, tbench) -> None:
    """One of six batches of equal profiles says better by luck; named alone, it is still judged with the others."""
    made = looked(tmp_path, EVEN, EVEN, EVEN, WON, LOST, EVEN)
    document = json.loads(tbench("compare", made[3].folder, "--json").out)
    assert sorted(document["batches"]) == [f"s/{n}" for n in range(6)]
    assert (document["contrasts"][0]["verdict"], document.get("departures")) == ("inconclusive", None)
    every = json.loads(tbench("compare", *(one.folder for one in made), "--json").out)
    numbers = [document["contrasts"][0]["estimate"], every["contrasts"][0]["estimate"]]
    assert numbers[0] == numbers[1], "the same numbers, whichever batch is named"


def test_leaving_batches_out_is_a_departure_that_is_kept(tmp_path: Path, tbench) -> None:
    made = looked(tmp_path, EVEN, WON)
    gate = ("compare", made[1].folder, "--fail-if", "worse")
    alone = tbench(*gate, "--only", "the key of the first was wrong")
    assert (alone.code, "b vs a: +100.0 pt" in alone.out) == (3, True)
    said = " ".join(alone.out.split())
    assert "batches: other batches with the same profiles are left out: s/0: the key of the first was wrong" in said
    assert tbench(*gate, "--only", "the key of the first was wrong", "--accept", "batches").code == 0
    later = " ".join(tbench("compare", made[0].folder, "--details").out.split())
    assert "s/1 was compared without 0: the key of the first was wrong" in later
    assert later.count("was compared without") == 1, "the same choice is told once"
    assert tbench("compare", made[1].folder, "--only", " ").code == 2
    assert tbench("compare", *(one.folder for one in made), "--only", "no other").code == 0


def test_batches_that_ask_another_question_are_named_and_not_taken(tmp_path: Path, tbench) -> None:
    made = looked(tmp_path, EVEN, {"a": "EE " * 8, "b": "EE " * 8}, {"a": "++ " * 8, "c": "xx " * 8}, EVEN)
    plan = json.loads(made[3].plan_json.read_text())
    write_json(made[3].plan_json, plan | {"settings": {"timeout_multiplier": 2.0}})
    ran = tbench("compare", made[0].folder, "--json")
    document = json.loads(ran.out)
    assert document["batches"] == ["s/0"]
    told = " ".join(document["warnings"])
    assert "s/1 has the same profiles but is not pooled: none of its trials was measured" in told
    assert "s/3 has the same profiles but is not pooled: run.timeout_multiplier is 1.0 in s/0, 2.0 in s/3" in told
    assert "s/2" not in told, "only one of its profiles is the same"


def test_declared_looks_pay_for_all_batches(tmp_path: Path, tbench) -> None:
    """Twelve tasks, each batch one attempt: what undeclared batches can no longer show, declared ones do."""
    first, second = {"a": "x " * 5 + "+ " * 7, "b": "+ " * 12}, {"a": "x " * 7 + "+ " * 5, "b": "+ " * 12}
    made = looked(tmp_path, first, second, planned_trials=24)
    document = json.loads(tbench("compare", made[1].folder, "--json").out)
    assert document["contrasts"][0]["verdict"] == "better"
    assert "sequential" not in document["contrasts"][0]


def test_every_surface_says_why_there_is_no_pass_at_k(tmp_path: Path, tbench) -> None:
    """Of one task of the second profile nothing was measured; where a column for pass@k stands, its cell is none."""
    made = batch(tmp_path, {"a": "+x ++", "b": "++ EE"})
    why = "b: pass@k is not shown, because it needs all planned tasks, and 1 of 2 were never measured"
    assert f"warning: {why}" in " ".join(tbench("compare", made.folder).out.split())
    details = tbench("compare", made.folder, "--details").out
    assert why in " ".join(details.split())
    found = json.loads(tbench("compare", made.folder, "--json").out)
    assert why in found["warnings"]
    assert [[*one.get("pass_at", {})] for one in found["profiles"]] == [["1", "2"], []]
    assert tbench("report", made.folder).code == 0
    assert why in (made.analytics / "comparison_report.md").read_text().replace("\\", "")
    page = (made.analytics / "report.html").read_text()
    assert why in page
    cells = page.split('data-label="pass@k, pass^k"')[1:]
    assert ["@2" in cell.partition("</td>")[0] for cell in cells] == [True, False]
    shown = answer(Site(tmp_path), "batches/s/0/", {}).body
    assert shown is not None
    assert why in shown.decode()


@pytest.mark.parametrize("cost", [0.5, None])
def test_trials_that_a_used_up_budget_holds_back_are_not_got_by_a_resume_alone(
    tmp_path: Path, tbench, cost: float | None
) -> None:
    """The step that helps is named by the comparison, and at the end of the run: the cost that was not told, too."""
    made = batch(tmp_path, {"a": "++ ++ ++", "b": "++ +. .."}, cost=cost)
    held = tuple(Exclusion("used up", profile="b", task=TaskRef(task, "d"), kind=ExclusionKind.BUDGET) for task in "bc")
    plan = msgspec.structs.replace(read_json(made.plan_json, Plan), excluded=held)
    write_json(made.plan_json, msgspec.structs.replace(plan, settings=replace(plan.settings, budget_usd=3.0)))
    asked = tbench("compare", made.folder, "--json")
    (step,) = json.loads(asked.out)["repeat"]
    raised = "raise run.budget_usd in the experiment file, then"
    declared = "declare price or likely_cost_usd of b, which told no cost, or " if cost is None else ""
    assert step == {"batch": "s/0", "trials": 3, "command": "tbench resume FILE.toml", "before": f"{declared}{raised}"}
    said = tbench("compare", made.folder).out
    assert f"un 3 missing trials again: {declared}{raised}: tbench resume FILE.toml" in " ".join(said.split())
    assert f"tbench resume {made.folder}" not in said
    (line,) = (one for one in next_steps(view_batch(made), "x", interrupted=False) if "budget" in one)
    told = "no trial of b told its cost: declare price or likely_cost_usd in the experiment file, or "
    assert line == f"the budget is used up; {told if cost is None else ''}{raised}: tbench resume FILE.toml"
