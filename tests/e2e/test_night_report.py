"""One real night, by `tbench iterate`: what its files say is what Harbor's say, and it comes back when deleted."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.experiments import Project
from support.pace import seconds
from terminalbench.cli import live_run
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.site import Site
from terminalbench.overnight.episodes import EpisodeStore
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.summary import project_night
from terminalbench.records.episode import EpisodeStatus

PROFILES = """
[profiles.late]
agent = "lab_agents:Scripted"
options = { script = "echo forty-two > /app/answer.txt", sleep_sec = 600.0, cost_usd = 0.5 }

[profiles.sim]
agent = "simulated"
model = "simulated/coin"
options = { solve_probability = 0.5, steps_mean = 2 }
"""


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, new_lab) -> NightFolder:
    """Two iterations of one task; `late` solves it and then runs out of time."""
    root = tmp_path_factory.mktemp("night") / "project"
    root.mkdir()
    (root / "pyproject.toml").touch()
    lab = new_lab(Project(root))
    suite = lab.experiment(PROFILES, tasks=("a",), run=f"parallel = 2\nagent_timeout_sec = {seconds(3)}")
    arguments = ("--suite", suite, "--iterations", "2", "--seed", "5", "--output", root / "night")
    process = lab.start("iterate", *arguments)
    out, err = process.communicate(timeout=seconds(240))
    assert process.returncode == 0, out + err
    (root / "terminal.txt").write_text(out)
    return NightFolder(root / "night")


def harbor(night: NightFolder) -> dict[tuple[int, str], dict[str, Any]]:
    """Every trial by iteration and folder name, from Harbor's own files and the labels of the plan."""
    found = {}
    for plan in night.results_root.glob("*/*/plan.json"):
        number = int(json.loads(plan.read_text())["labels"]["iteration"])
        for file in plan.parent.glob("runs/*/*/result.json"):
            found[number, file.parent.name] = json.loads(file.read_text())
    return found


def test_every_trial_of_harbor_is_in_the_results_once(night: NightFolder) -> None:
    trials = harbor(night)
    assert len(trials) == 4
    told = {}
    for number in (1, 2):
        for profile in json.loads(night.results_json(number).read_text())["profiles"]:
            for task in profile["tasks"]:
                for trial in task["trials"]:
                    told[number, Path(trial["path"]).name] = (trial["reward"], trial["cost_usd"])
                    assert (night.folder / trial["path"] / "result.json").is_file()
    assert told == {
        key: (result["verifier_result"]["rewards"]["reward"], pytest.approx(result["agent_result"]["cost_usd"]))
        for key, result in trials.items()
    }


def test_an_agent_that_ran_out_of_time_with_the_work_done_has_passed(night: NightFolder) -> None:
    late = next(one for one in json.loads(night.results_json(1).read_text())["profiles"] if one["profile"] == "late")
    assert (late["passed"], late["failed"], late["pass_rate"]) == (1, 0, 1.0)
    ends = {(t["outcome"], t["agent_status"]) for task in late["tasks"] for t in task["trials"]}
    assert ends == {("passed", "timed_out")}


def test_the_numbers_of_the_report_are_those_of_harbors_files(night: NightFolder) -> None:
    summary = json.loads(night.summary_json.read_text())
    by_agent: dict[str, list[float]] = {}
    for result in harbor(night).values():
        name = result["agent_info"]["name"]
        by_agent.setdefault(name, []).append(result["verifier_result"]["rewards"]["reward"])
    for model in summary["models"]:
        rewards = by_agent["scripted" if model["profile"] == "late" else "simulated"]
        assert (model["passed"], model["failed"]) == (rewards.count(1.0), rewards.count(0.0))
        assert model["pass_rate"] == pytest.approx(sum(rewards) / 2)
        assert model["simulated"] is (model["profile"] == "sim")
    spent = sum(result["agent_result"]["cost_usd"] for result in harbor(night).values())
    assert summary["cost_usd"] == pytest.approx(spent)
    passed = sum(reward == 1.0 for rewards in by_agent.values() for reward in rewards)
    ran = next(line for line in summary["headlines"] if line.startswith("Ran: "))
    assert ran == f"Ran: finished; 2 of 2 iterations; 4 of 4 trials measured, {passed} passed; cost ${spent:.2f}"


def test_every_surface_says_the_same_numbers_of_a_night(night: NightFolder) -> None:
    results = harbor(night).values()
    passed = sum(result["verifier_result"]["rewards"]["reward"] == 1.0 for result in results)
    spent = f"${sum(result['agent_result']['cost_usd'] for result in results):.2f}"
    said = f"2 of 2 iterations; 4 of 4 trials measured, {passed} passed; cost {spent}"
    summary = json.loads(night.summary_json.read_text())
    root = night.folder.parent
    site = Site(root)
    places = {
        "terminal": (root / "terminal.txt").read_text(),
        "report.md": night.report_md.read_text(),
        "report.html": night.report_html.read_text(),
        "summary.json": "\n".join(summary["headlines"]),
        "watch": CliRunner().invoke(live_run.watch_command, [str(night.folder)], standalone_mode=False).output,
        "dashboard": (answer(site, f"nights/{night.folder.name}/", {}).body or b"").decode(),
    }
    assert [name for name, text in places.items() if said not in text] == []
    assert [line for line in summary["headlines"] if line not in places["terminal"]] == []
    (row,) = csv.DictReader(io.StringIO((answer(site, "nights/nights.csv", {}).body or b"").decode()))
    assert (row["iterations_over"], row["trials"], row["measured"]) == ("2", "4", "4")
    assert f"${float(row['cost_usd']):.2f}" == spent


def test_its_episodes_are_recorded_once_and_by_what_they_are(night: NightFolder) -> None:
    store = EpisodeStore.of_project(night.folder.parent)
    found = store.query()
    assert len(found) == len(store.file.read_bytes().splitlines()) == 4
    assert {one.status for one in found} == {EpisodeStatus.SUCCESS}
    assert {(one.profile, one.simulated) for one in found} == {("late", False), ("sim", True)}
    assert {(one.task_digest, one.code_digest) for one in found} == {(found[0].task_digest, found[0].code_digest)}
    assert None not in (found[0].task_digest, found[0].code_digest)
    late = next(one for one in found if one.profile == "late")
    assert store.baseline(late.profile_id, late.task_digest) == late
    sim = next(one for one in found if one.profile == "sim")
    assert store.baseline(sim.profile_id, sim.task_digest) is None


def test_deleted_it_comes_back_the_same(night: NightFolder) -> None:
    files = [night.summary_json, night.report_md, night.report_html]
    files += [file for number in (1, 2) for file in (night.results_json(number), night.delta_json(number))]
    before = [file.read_bytes() for file in files]
    for file in files:
        file.unlink()
    project_night(night)
    assert [file.read_bytes() for file in files] == before
