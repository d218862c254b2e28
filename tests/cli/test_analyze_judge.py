"""`tbench analyze` with a judge, as a person meets it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.experiments import ORACLE, Project
from support.judging import ALL, STEPS, recorded
from support.results import make_plan, make_trial
from terminalbench.experiments.batch import allocate
from terminalbench.llm.model import ChatModel, chat_model
from terminalbench.records.trial import Finding

FILE = 'schema_version = 2\nslug = "s"\n[tasks]\nitems = [{ id = "a" }]\n' + ORACLE
ANALYTICS = Path("results/s/0/analytics")


@pytest.fixture
def experiment(project: Project) -> Path:
    batch = allocate(project.root / "results", "s")
    make_plan(batch, ("oracle", "other"), "a", 1)
    for profile in ("oracle", "other"):
        folder = make_trial(batch, f"a__{profile}", profile=profile, reward=0.0)
        (folder / "agent").mkdir()
        document = {"schema_version": "ATIF-v1.6", "agent": {"name": "x", "version": "1"}, "steps": STEPS}
        (folder / "agent" / "trajectory.json").write_text(json.dumps(document))
    return project.experiment(FILE)


@pytest.fixture
def model(project: Project) -> str:
    return recorded(project.root / "answers.jsonl", ALL)


def findings(folder: Path = ANALYTICS) -> list[Finding]:
    import msgspec

    return [msgspec.json.decode(line, type=Finding) for line in (folder / "findings.jsonl").read_text().splitlines()]


def test_without_a_model_one_line_says_so(experiment: Path, tbench: Any) -> None:
    ran = tbench("analyze", experiment)
    assert (ran.code, ran.out.count("nothing was judged")) == (0, 1)
    assert "judged" not in tbench("analyze", experiment, "--no-llm").out
    assert not (ANALYTICS / "judge.json").exists()


def test_a_judged_batch(experiment: Path, model: str, tbench: Any) -> None:
    ran = tbench("analyze", experiment, "--model", model)
    assert (ran.code, ran.err) == (0, "")
    assert "2 trials: 2 read" in ran.out
    assert "judged 6 of 6 questions" in ran.out
    assert "root_cause  oracle   unverified_finish       1" in ran.out
    assert "Both finish without a check." in ran.out
    judged = [finding for finding in findings() if finding.analyzer.startswith("judge:")]
    assert {finding.name for finding in judged} >= {"strategy", "root_cause", "compared_with_oracle"}
    # What was paid for stays among the findings when the tables are written again.
    assert tbench("analyze", experiment, "--no-llm").code == 0
    assert [finding for finding in findings() if finding.analyzer.startswith("judge:")] == judged
    again = tbench("analyze", experiment, "--model", model)
    assert "(6 from the cache), nothing spent" in again.out


def test_only_the_judge(experiment: Path, model: str, tbench: Any) -> None:
    ran = tbench("analyze", experiment, "--llm-only", "--model", model, "--rubric", "strategy")
    assert ran.code == 0
    assert "trials: " not in ran.out
    assert (ANALYTICS / "judge.md").exists()
    assert not (ANALYTICS / "metrics_detail.csv").exists(), "the tables stay as they are"
    assert {finding.analyzer for finding in findings()} == {"judge:strategy"}


def stamps(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_only_the_judge_leaves_the_report_with_its_comparison(experiment: Path, model: str, tbench: Any) -> None:
    pair, out = ("--compare", "oracle", "other", "-o", "out"), Path("out")
    tbench("analyze", experiment, *pair)
    before = stamps(out)
    assert "oracle vs other" in before["comparison_report.md"].decode()
    failed = tbench("analyze", experiment, "--llm-only", *pair, "--model", "replay:none.jsonl")
    assert failed.code == 2
    assert "written to" not in failed.out
    assert stamps(out) == before, "a judge that cannot answer changes nothing"
    # Another question than that of the tables: they stay, and it is said.
    other = tbench("analyze", experiment, "--llm-only", "-o", "out", "--model", model, "--rubric", "strategy")
    assert "the tables and the report there cover other trials or another question" in other.out
    assert "read report.html first" not in other.out
    changed = {name for name, data in stamps(out).items() if before.get(name) != data}
    assert changed == {"judge.json", "judge.md", "findings.jsonl"}
    # The same question: the report gets what the judge said, and keeps its verdict.
    same = tbench("analyze", experiment, "--llm-only", *pair, "--model", model, "--rubric", "strategy")
    assert "another question" not in same.out
    assert "read report.html first" in same.out
    after = stamps(out)
    assert {name for name, data in after.items() if before.get(name) != data} == changed | {
        "report.html",
        "comparison_report.md",
    }
    text = after["comparison_report.md"].decode()
    assert "oracle vs other" in text
    assert "Findings of the judge" in text


def test_a_pair_that_is_asked_for_stands_beside_the_declared_comparison(experiment: Path, tbench: Any) -> None:
    tbench("analyze", experiment)
    before = stamps(ANALYTICS)
    ran = tbench("analyze", experiment, "--compare", "other", "oracle")
    assert ran.code == 0
    assert stamps(ANALYTICS) == before
    beside = ANALYTICS / "other-vs-oracle"
    assert str(beside) in ran.out
    pairs = [(one["new"], one["old"]) for one in json.loads((beside / "comparison.json").read_text())["contrasts"]]
    assert pairs == [("other", "oracle")]


@pytest.mark.parametrize("command", ["analyze", "reflect"])
def test_who_asks_a_model_reads_the_env_file_of_the_experiment(
    experiment: Path, model: str, tbench: Any, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    experiment.with_name("keys.env").write_text("FIRST_KEY=from-the-file\nSECOND_KEY=wins-over-the-shell\n")
    experiment.write_text(
        experiment.read_text().replace("[tasks]", '[defaults]\nenv_file = "experiments/keys.env"\n[tasks]')
    )
    monkeypatch.setenv("SECOND_KEY", "of-the-shell")
    known: list[tuple[str | None, ...]] = []

    def asked(spec: str, *_: Any) -> ChatModel:
        known.append((os.environ.get("FIRST_KEY"), os.environ.get("SECOND_KEY")))
        return chat_model(spec)

    monkeypatch.setattr("terminalbench.llm.model.chat_model", asked)
    monkeypatch.setattr("terminalbench.analytics.judge.run.chat_model", asked)
    if command == "analyze":
        assert tbench("analyze", experiment, "--llm-only", "--model", model).code == 0
    else:
        tbench("memory", "reflect", experiment, "--model", model)
    assert known == [("from-the-file", "wins-over-the-shell")]
    assert (os.environ.get("FIRST_KEY"), os.environ["SECOND_KEY"]) == (None, "of-the-shell")


def test_only_a_judge_that_fails_leaves_nothing_behind(experiment: Path, tbench: Any) -> None:
    ran = tbench("analyze", experiment, "--llm-only", "--model", "replay:none.jsonl")
    assert (ran.code, ran.out) == (2, "")
    assert not ANALYTICS.exists()


def test_only_the_judge_of_a_sample_leaves_the_report_of_the_selection(
    experiment: Path, model: str, tbench: Any
) -> None:
    tbench("analyze", experiment, "--profiles", "other")
    before = stamps(ANALYTICS / "selection")
    ran = tbench("analyze", experiment, "--llm-only", "--model", model, "--rubric", "strategy", "--limit", "2")
    assert ran.code == 0, ran.err
    assert "the tables and the report there cover other trials or another question" in ran.out
    after = stamps(ANALYTICS / "selection")
    assert {name: after[name] for name in before if name != "findings.jsonl"} == {
        name: data for name, data in before.items() if name != "findings.jsonl"
    }
    assert {finding.trial.split("/")[1] for finding in findings(ANALYTICS / "selection")} == {"a__other"}


def test_only_the_judge_of_some_trials_keeps_what_it_said_of_others(experiment: Path, model: str, tbench: Any) -> None:
    asked = ("--model", model, "--rubric", "strategy")
    tbench("analyze", experiment, "--profiles", "other", *asked)
    before = [f for f in findings(ANALYTICS / "selection") if f.analyzer.startswith("judge:")]
    assert before
    assert tbench("analyze", experiment, "--profiles", "oracle", "--llm-only", *asked).code == 0
    assert [f for f in findings(ANALYTICS / "selection") if f in before] == before


def test_only_the_judge_and_nothing_to_read(experiment: Path, model: str, tbench: Any) -> None:
    for file in Path("results").rglob("trajectory.json"):
        file.unlink()
    ran = tbench("analyze", experiment, "--llm-only", "--model", model, "--rubric", "strategy")
    assert ran.code == 3, "nothing was judged, and nothing else was asked for"
    assert "judged 0 of 2 questions" in ran.out
    assert "not judged: 2 x strategy: the trial left no trajectory" in ran.out
    assert tbench("analyze", experiment, "--model", model, "--rubric", "strategy").code == 0, "not every agent has one"
    assert "- strategy: not judged: the trial left no trajectory\n" in (ANALYTICS / "judge.md").read_text()


def test_the_judgement_of_one_selection_does_not_stay_beside_the_tables_of_the_next(
    experiment: Path, model: str, tbench: Any
) -> None:
    asked = ("--model", model, "--rubric", "strategy")
    selection = ANALYTICS / "selection"
    tbench("analyze", experiment, "--profiles", "other", *asked)
    assert "another selection" not in tbench("analyze", experiment, "--profiles", "other").out
    assert (selection / "judge.json").exists(), "the same trials: what was judged stays"
    ran = tbench("analyze", experiment, "--profiles", "oracle")
    assert (
        "note: earlier findings of the judge on another selection were removed; its answers stay in the cache"
        in ran.out
    )
    assert not (selection / "judge.json").exists()
    assert not (selection / "judge.md").exists()
    assert "nothing spent" in tbench("analyze", experiment, "--profiles", "other", *asked).out


def test_what_was_paid_for_serves_every_selection(experiment: Path, model: str, tbench: Any) -> None:
    tbench("analyze", experiment, "--llm-only", "--model", model, "--rubric", "strategy", "--profiles", "other")
    assert (ANALYTICS / "selection" / "judge.json").exists()
    assert not (ANALYTICS / "selection" / "judge-cache").exists()
    everything = ("--llm-only", "--model", model, "--rubric", "strategy")
    assert "(2 from the cache), nothing spent" in tbench("analyze", experiment, *everything, "--batch", "all").out
    assert "nothing spent" in tbench("analyze", experiment, *everything, "--output", "elsewhere").out
    assert not Path("elsewhere/judge-cache").exists()


def test_the_experiment_file_names_the_judge(experiment: Path, model: str, tbench: Any) -> None:
    experiment.write_text(FILE + f'[analysis]\njudge_model = "{model}"\n')
    assert "judged 6 of 6" in tbench("analyze", experiment).out
    assert "judged" not in tbench("analyze", experiment, "--no-llm").out


def test_an_estimate_calls_and_writes_nothing(experiment: Path, model: str, tbench: Any) -> None:
    ran = tbench("analyze", experiment, "--model", model, "--estimate-cost")
    assert ran.code == 0
    assert "6 questions, 0 of them already in the cache" in ran.out
    assert "cost: unknown" in ran.out
    assert not ANALYTICS.exists()


def test_an_estimate_with_a_price(experiment: Path, tbench: Any) -> None:
    ran = tbench("analyze", experiment, "--model", "openai/gpt-4o", "--estimate-cost")
    assert "in (counted)" in ran.out
    assert "cost: about $0.0" in ran.out


def test_a_persons_word_stands_after_the_judges_and_is_counted(experiment: Path, model: str, tbench: Any) -> None:
    tbench("analyze", experiment, "--model", model)
    by = ("--author", "ada", "--reason", "it stopped", "--results", "results")
    assert tbench("label", "a__other", "root_cause", "gave_up", *by).code == 0
    said = [f for f in findings() if f.name == "root_cause" and f.trial.endswith("a__other")]
    assert [(f.analyzer, f.value) for f in said] == [
        ("judge:root_cause", "unverified_finish"),
        ("label:ada", "gave_up"),
    ]
    ran = tbench("analyze", experiment, "--model", model)
    assert "root_cause  other    gave_up" in ran.out
    assert "agreement with people: root_cause: 1 labelled and judged, 0.0 % agree" in ran.out
    for command in ("analyze", "report"):
        assert tbench(command, experiment).code == 0
        assert "root_cause: gave_up (a person says)" in (ANALYTICS / "report.html").read_text(), command
    assert said == [f for f in findings() if f.name == "root_cause" and f.trial.endswith("a__other")]
    assert tbench("label", "a__other", "root_cause", "--remove", *by).code == 0
    assert not [f for f in findings() if f.analyzer == "label:ada"]


def test_a_judge_that_answers_badly_leaves_the_analysis_incomplete(
    experiment: Path, project: Project, tbench: Any
) -> None:
    bad = recorded(project.root / "bad.jsonl", {"strategy": "no idea"})
    ran = tbench("analyze", experiment, "--model", bad, "--rubric", "strategy")
    assert ran.code == 3
    assert "not judged: 2 x strategy: the answer did not have the required form twice" in ran.out
    assert (ANALYTICS / "metrics_detail.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-llm", "--llm-only"], "--no-llm cannot be combined with --llm-only"),
        (["--no-llm", "--model", "x/y"], "--no-llm cannot be combined with --llm-only, --model"),
        (["--llm-only"], "no judge model is set"),
        (["--estimate-cost"], "no judge model is set"),
        (["--model", "nosuchmodel"], 'LiteLLM does not know the provider of "nosuchmodel"'),
        (["--model", "replay:none.jsonl"], "there are no recorded answers at none.jsonl"),
        (["--model", "replay:answers.jsonl", "--rubric", "stratgy"], 'did you mean "strategy"'),
        (["--model", "replay:answers.jsonl", "--compare", "oracle", "nobody"], '"nobody"'),
    ],
)
def test_wrong_wishes_are_refused(
    experiment: Path, model: str, tbench: Any, arguments: list[str], message: str
) -> None:
    ran = tbench("analyze", experiment, *arguments)
    assert ran.code == 2
    assert message in ran.err


def test_harbor_jobs_of_any_origin_are_judged(experiment: Path, model: str, tbench: Any, tmp_path: Path) -> None:
    import shutil

    jobs = tmp_path / "jobs"
    shutil.copytree("results/s/0/runs", jobs)
    for job in [folder for folder in jobs.iterdir() if folder.is_dir()]:
        for folder in (job, *[trial for trial in job.iterdir() if trial.is_dir()]):
            (folder / "config.json").write_text("{}")
    ran = tbench("analyze", jobs, "--model", model, "--output", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "judged 6 of 6 questions" in ran.out
