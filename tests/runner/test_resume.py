"""What `resume` takes from the experiment as it is now, and what it keeps from the plan; nothing is run here."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from runner.resuming import ORACLE, Started, experiment, finished, planned
from support.experiments import Project
from support.results import make_trial
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.config import load
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.quarantine import QuarantinedTask, quarantine_file, write_quarantine
from terminalbench.experiments.tables import NotifyTable
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import append_jsonl, read_json
from terminalbench.records.event import Event, EventKind
from terminalbench.report.run_end import ResumeWords, next_steps
from terminalbench.runner.resume import ResumeRequest, resume


@pytest.mark.parametrize("kind", ["link", "beside"])
def test_a_batch_whose_results_lie_elsewhere_goes_on_by_every_name(project: Project, tbench, kind: str) -> None:
    elsewhere = project.root.parent / "out"
    elsewhere.mkdir()
    if kind == "link":
        (project.root / "results").symlink_to(elsewhere)
    made = experiment(project, run='results_root = "../out"' if kind == "beside" else "")
    batch = planned(made)
    finished(batch, "a", "b")
    there = [] if kind == "link" else ["--results", "../out"]
    for target in ([made.file], [batch.folder], [elsewhere / "s" / "0"], ["s/0", *there], there):
        ran = tbench("resume", *target)
        assert (ran.code, ran.err) == (0, ""), target
        assert "nothing was missing" in ran.out


def test_a_resume_that_finds_nothing_new_writes_no_export(project: Project, tbench) -> None:
    batch = planned(experiment(project))
    finished(batch, "a", "b")
    batch.events_jsonl.touch()
    assert tbench("resume", batch.folder).code == 0
    later = 10**9 + max(path.stat().st_mtime_ns for path in (*batch.runs.rglob("*"), batch.plan_json))
    os.utime(batch.index_json, ns=(later, later))
    assert tbench("resume", batch.folder).code == 0
    assert batch.index_json.stat().st_mtime_ns == later, "it is younger than all it tells of"
    result = next(batch.runs.glob("*/a__*/result.json"))
    result.write_text(result.read_text().replace('"reward": 1.0', '"reward": 0.0') + " ")
    assert tbench("resume", batch.folder).code == 0
    assert batch.index_json.stat().st_mtime_ns != later, "a result that was edited in place"
    batch.index_json.write_text("{}")
    os.utime(batch.index_json, ns=(later, later))
    os.utime(batch.events_jsonl, ns=(later, later))
    assert tbench("resume", batch.folder).code == 0
    assert batch.index_json.read_text() != "{}", "another command may have read what the events tell of"


def test_a_project_that_shares_its_results_is_another_project(project: Project, tbench) -> None:
    batch = planned(experiment(project))
    finished(batch, "a", "b")
    (project.root.parent / "clone").mkdir()
    clone = Project(project.root.parent / "clone")
    (clone.root / "results").symlink_to(project.root / "results")
    other = experiment(clone)
    with pytest.raises(UserError, match=f"was started in {project.root}, not in {clone.root}"):
        resume(Batch(other.results_root / "s" / "0"), ResumeRequest(), other)
    outside = f'results_root = "{project.root}/results"'
    other = experiment(clone, run=outside)
    with pytest.raises(UserError, match=f"was started in {project.root}"):
        resume(batch, ResumeRequest(), other)
    ran = tbench("kill", other.file, "--root", clone.root, "--yes")
    assert (ran.code, f"was started in {project.root}" in ran.err) == (2, True)


KEYED = '[profiles.p]\nagent = "oracle"\nenv = ["LATER_KEY"]\n'


@pytest.mark.parametrize("by_file", [True, False])
def test_a_key_is_read_from_an_env_file_that_came_later(project: Project, started: Started, by_file: bool) -> None:
    made = experiment(project, KEYED)
    batch = planned(made)
    place = project.root / "experiments" / ".env"
    started.problems["p"] = "LATER_KEY is not set"
    resume(batch, ResumeRequest(), load(made.file) if by_file else None)
    assert started.requests[0].env_file == str(place), "the file that a person is told to put it into"
    assert "LATER_KEY" not in started.requests[0].env
    started.problems.clear()
    place.write_text("LATER_KEY=now-it-is-there\n")
    resume(batch, ResumeRequest(), load(made.file) if by_file else None)
    assert started.requests[0].env["LATER_KEY"] == "now-it-is-there"
    assert started.environments["p"]["LATER_KEY"] == "now-it-is-there"
    assert read_json(batch.plan_json, Plan).profiles[0].env_file == "experiments/.env"


def test_a_key_is_taken_from_the_shell_of_the_resume(
    project: Project, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = planned(experiment(project, KEYED))
    monkeypatch.setenv("LATER_KEY", "exported")
    resume(batch, ResumeRequest())
    assert started.environments["p"]["LATER_KEY"] == "exported"


def test_an_env_file_may_move(project: Project, started: Started) -> None:
    project.write("old.env", "LATER_KEY=old\n")
    batch = planned(experiment(project, KEYED + 'env_file = "old.env"\n'))
    (project.root / "old.env").rename(project.root / "new.env")
    with pytest.raises(UserError, match="is missing, and LATER_KEY") as caught:
        resume(batch, ResumeRequest())
    assert "tbench resume EXPERIMENT.toml" in (caught.value.hint or "")
    resume(batch, ResumeRequest(), experiment(project, KEYED + 'env_file = "new.env"\n'))
    assert started.environments["p"]["LATER_KEY"] == "old"
    resume(batch, ResumeRequest())
    assert started.environments["p"]["LATER_KEY"] == "old", "what was taken once is remembered"


def test_a_quarantine_counts_as_it_is_now(project: Project, started: Started) -> None:
    made = experiment(project)
    batch = planned(made)
    finished(batch, "a")
    write_quarantine(made.file, [QuarantinedTask("b", "d", "flaky")])
    result = resume(batch, ResumeRequest(), load(made.file))
    assert result.view is not None, "nothing had to run"
    assert [cell.reason for cell in result.view.cells if cell.task.id == "b"] == ["quarantined: flaky"]
    said = next_steps(result.view, "results/s/0", interrupted=False, nothing_ran=True)
    assert said[0] == "nothing was missing, so nothing ran"
    assert "quarantined (1 trial): tbench check FILE.toml --release" in said[1]
    assert not any("continue the night" in line for line in said), "it would do nothing"
    quarantine_file(made.file).unlink()
    resume(batch, ResumeRequest(), load(made.file))
    assert started.cells() == {("p", "b")}
    scan_batch(batch)
    assert next_steps(view_batch(batch), "x", interrupted=False) == ["to continue: tbench resume x"]
    ways = ResumeWords("this command with --resume", "this command with --retry-errors")
    assert next_steps(view_batch(batch), "x", interrupted=False, ways=ways) == [
        "to continue: this command with --resume"
    ]


def test_a_result_that_cannot_be_read_is_run_again_by_every_resume(project: Project) -> None:
    batch = planned(experiment(project))
    for task in ("a", "b"):
        make_trial(batch, f"{task}__1").joinpath("result.json").write_text("{")
    scan_batch(batch)
    assert next_steps(view_batch(batch), "x", interrupted=False) == ["to continue: tbench resume x"]


def test_errors_of_a_quarantined_task_stay_what_they_are(project: Project, started: Started) -> None:
    made = experiment(project)
    batch = planned(made)
    for task in ("a", "b"):
        make_trial(batch, f"{task}__1", reward=None, error="RuntimeError")
    write_quarantine(made.file, [QuarantinedTask("b", "d", "flaky")])
    resume(batch, ResumeRequest(retry_errors="all"), load(made.file))
    assert started.cells() == {("p", "a")}
    assert [name.split("/")[1] for name in read_json(batch.plan_json, Plan).superseded] == ["a__1"]
    make_trial(batch, "a__2")
    scan_batch(batch)
    assert next_steps(view_batch(batch), "x", interrupted=False) == []


def test_a_quarantined_task_of_another_family_stays_in_quarantine(project: Project, started: Started) -> None:
    made = experiment(project)
    batch = planned(made)
    write_quarantine(made.file, [QuarantinedTask("b", "d", "flaky")])
    made.file.write_text(made.file.read_text().replace('{ id = "b" }', '{ id = "b", family = "new" }'))
    resume(batch, ResumeRequest(), load(made.file))
    assert started.cells() == {("p", "a")}


def test_a_batch_that_was_planned_without_families_goes_on(project: Project, started: Started) -> None:
    made = experiment(project)
    batch = planned(made)
    assert b"family" not in batch.plan_json.read_bytes()
    finished(batch, "a")
    for task in ("a", "b", "c"):
        project.write(f"d/{task}/task.toml", 'schema_version = "1.4"\n[metadata]\nhost_base = true\nfamily = "git"\n')
    grown = made.file.read_text().replace('{ id = "b" }', '{ id = "b" }, { id = "c" }')
    made.file.write_text(grown + '[profiles.q]\nagent = "nop"\n')
    write_quarantine(made.file, [QuarantinedTask("b", "d", "flaky")])
    resume(batch, ResumeRequest(), load(made.file))
    assert started.cells() == {("p", "c"), ("q", "a"), ("q", "c")}
    plan = read_json(batch.plan_json, Plan)
    assert [[(t.ref.id, t.ref.family) for t in job.tasks] for job in plan.jobs] == [
        [("a", None), ("b", None), ("c", "git")]
    ] * 2, "what was planned once stays one unit under every profile"
    scan_batch(batch)
    by_cell = {(cell.profile, cell.task.id): cell for cell in view_batch(batch).cells}
    assert by_cell["p", "a"].outcome == "passed"
    assert by_cell["q", "b"].reason == "quarantined: flaky"


def test_a_copy_of_the_file_releases_nothing(project: Project, started: Started) -> None:
    made = experiment(project)
    write_quarantine(made.file, [QuarantinedTask("b", "d", "flaky")])
    batch = planned(load(made.file))
    copy = made.file.with_name("copy.toml")
    copy.write_bytes(made.file.read_bytes())
    resume(batch, ResumeRequest(), load(copy))
    assert started.cells() == {("p", "a")}


def test_the_keys_of_an_env_file_that_is_no_longer_named_stay_hidden(project: Project, started: Started) -> None:
    project.write("old.env", "LATER_KEY=the-old-key-1234567890\n")
    batch = planned(experiment(project, KEYED.replace("env =", 'env_file = "old.env"\nenv =')))
    log = batch.runs / read_json(batch.plan_json, Plan).jobs[0].name / "a__1" / "agent" / "log.txt"
    project.write(log.relative_to(project.root).as_posix(), "key: the-old-key-1234567890")
    project.write("new.env", "LATER_KEY=the-new-key-1234567890\n")
    resume(batch, ResumeRequest(), experiment(project, KEYED.replace("env =", 'env_file = "new.env"\nenv =')))
    assert log.read_text() == "key: [redacted]", "a trial that was cut off is scrubbed by the resume"


def test_whom_to_notify_and_what_to_copy_are_as_the_file_says_now(project: Project, started: Started) -> None:
    batch = planned(experiment(project, ORACLE + '[artifacts]\ntargets = ["old"]\n'))
    tables = '[artifacts]\ntargets = ["new"]\n[notify]\nurls = ["${WHERE}"]\non = ["finished"]\n'
    resume(batch, ResumeRequest(), experiment(project, ORACLE + tables))
    plan = read_json(batch.plan_json, Plan)
    assert (plan.artifacts, plan.notify) == (("new",), NotifyTable(urls=["${WHERE}"], on=["finished"]))


def test_what_a_killed_run_did_not_copy_is_copied_though_no_trial_is_missing(project: Project) -> None:
    batch = planned(experiment(project, ORACLE + '[artifacts]\ntargets = ["sess"]\n'))
    finished(batch, "a", "b")
    (folder,) = batch.runs.glob("*/a__1")
    project.write(f"{folder.relative_to(project.root)}/agent/sessions/sess/note.txt", "said")
    resume(batch, ResumeRequest())
    assert (batch.artifacts / "sess" / "a__1" / "note.txt").read_text() == "said"


def test_a_profile_that_was_left_out_for_good_does_not_slip_in(project: Project, started: Started) -> None:
    project.server("srv")
    claude = '[profiles.{}]\nagent = "claude-code"\nmodel = "m"\n'
    source = f'mcp_servers = ["srv"]\nmcp_git_source = "{project.root}/no-repository"\n'
    batch = planned(experiment(project, claude.format("unpinned") + source + ORACLE))
    resume(batch, ResumeRequest())
    assert {profile for profile, _ in started.cells()} == {"p"}
    reasons = {e.profile: e.reason for e in read_json(batch.plan_json, Plan).excluded}
    assert "could not be determined" in reasons["unpinned"]


def test_strict_goes_for_a_batch_that_goes_on(project: Project, tbench, monkeypatch: pytest.MonkeyPatch) -> None:
    harbor = Started()
    harbor.problems["q"] = "no key"
    monkeypatch.setattr("terminalbench.runner.preflight.ask_harbor", harbor.ask)
    made = experiment(project, ORACLE + '[profiles.q]\nagent = "oracle"\n')
    batch = planned(made)
    ran = tbench("run", made.file, "--batch", "0", "--strict")
    assert ran.code == 2
    assert "--strict refuses this run, because it would leave out:\n  q: no key" in ran.err
    assert not [path for path in batch.runs.iterdir() if path.is_dir()]
    assert not batch.events_jsonl.exists(), "nothing is recorded of what is refused"
    assert read_json(batch.plan_json, Plan).excluded == ()


def test_strict_minds_only_what_is_missing(project: Project, started: Started) -> None:
    made = experiment(project)
    batch = planned(made)
    finished(batch, "a")
    write_quarantine(made.file, [QuarantinedTask("a", "d", "flaky")])
    resume(batch, ResumeRequest(strict=True), load(made.file))
    assert started.cells() == {("p", "b")}


def test_a_batch_that_was_never_set_up_says_so(project: Project, tbench) -> None:
    made = experiment(project)
    allocate(made.results_root, made.slug)
    ran = tbench("resume", made.file, "--batch", "0")
    assert (ran.code, "batch 0 was never set up (tbench run" in ran.err) == (2, True)


def test_a_batch_of_another_file_with_the_same_slug_is_named(project: Project, tbench) -> None:
    first, second = experiment(project), experiment(project, name="other.toml")
    batch = planned(second)
    finished(batch, "a", "b")
    note = "batch 0 of s was started from other.toml, not from exp.toml"
    for arguments in (["resume"], ["compare"], ["report"], ["errors"], ["watch"], ["export"]):
        assert note in tbench(*arguments, first.file).err, arguments
        assert note not in tbench(*arguments, second.file).err, arguments
    ran = tbench("kill", first.file, "--yes")
    assert (ran.code, note in ran.err, "name the batch: results/s/0" in ran.err) == (2, True, True)
    assert tbench("kill", second.file, "--yes").out == "nothing is running\n"


def test_a_number_goes_with_a_file(project: Project, tbench) -> None:
    batch = planned(experiment(project))
    for target in ([], [batch.folder], ["s/0"]):
        ran = tbench("resume", *target, "--batch", "0")
        assert (ran.code, "--batch works only with an experiment file" in ran.err) == (2, True), target


def ended(batch: Batch, folder: Path, outcome: str, **detail: bool) -> None:
    about: dict[str, Any] = {
        "profile": "p",
        "trial": folder.name,
        "task": folder.name[0],
        "dataset": "d",
        "outcome": outcome,
    }
    append_jsonl(batch.events_jsonl, Event.now(EventKind.TRIAL_ENDED, folder.parent.name, **about, detail=detail))


def test_a_trial_with_a_verdict_that_is_gone_is_run_again_as_a_departure(
    project: Project, started: Started, tbench
) -> None:
    batch = planned(experiment(project, run="attempts = 4"))
    trials = {f"{task}__{n}": make_trial(batch, f"{task}__{n}", reward=0.0) for task in "ab" for n in (1, 2, 3, 4)}
    for folder in trials.values():
        ended(batch, folder, "failed")
    tbench("resume", batch.folder)
    assert read_json(batch.plan_json, Plan).departures == (), "all of them are there"
    ended(batch, trials["b__1"], "errored")
    for name in ("a__1", "a__2"):
        shutil.rmtree(trials[name])
    (trials["a__3"] / "result.json").write_text('{"task_name": "te')
    again = trials["a__4"].with_name("a__9")  # it had an error, was tried again at once, and ended without a verdict
    ended(batch, again, "failed", retried=True)
    ended(batch, again, "errored")
    ran = tbench("resume", batch.folder)
    told = (
        "3 trials that had ended with a verdict were gone or unreadable and are run again: p a (failed), p a (failed), "
        "p a (failed)"
    )
    assert told in " ".join(ran.err.split())
    assert [str(d) for d in read_json(batch.plan_json, Plan).departures] == [f"lost-verdicts: {told}"]
    tbench("resume", batch.folder)
    assert len(read_json(batch.plan_json, Plan).departures) == 1, "they are told of once"
    shutil.rmtree(trials["b__2"])
    tbench("resume", batch.folder)
    last = read_json(batch.plan_json, Plan).departed()[-1]
    assert "1 trial that had ended with a verdict was gone or unreadable and is run again: p b (failed)" in last.text


def test_what_was_run_again_on_request_is_no_lost_verdict(project: Project, started: Started, tbench) -> None:
    batch = planned(experiment(project))
    ended(batch, make_trial(batch, "a__1", reward=0.0), "failed")
    late = make_trial(batch, "b__1", reward=0.0, error="AgentTimeoutError")
    ended(batch, late, "failed")
    resume(batch, ResumeRequest(retry_errors="agent_timeout"))
    shutil.rmtree(late)
    resume(batch, ResumeRequest())
    assert started.cells() == {("p", "b")}
    assert read_json(batch.plan_json, Plan).departures == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("timeout_working", ['"timeout_working" is a failure class', "--retry-errors agent_timeout"]),
        ("unexplained", ['"unexplained" is a failure class', "failed with a verdict is measured"]),
        ("not_run", ["resume always runs trials that did not end"]),
        ("nonsense", ['no error class is called "nonsense"', "known: all, setup"]),
        ("s/0", ["name the batch before --retry-errors"]),
    ],
)
def test_a_class_that_no_error_has_is_explained(project: Project, tbench, name: str, said: list[str]) -> None:
    batch = planned(experiment(project))
    ran = tbench("resume", batch.folder, "--retry-errors", name)
    assert ran.code == 2
    assert all(text in " ".join(ran.err.split()) for text in said), ran.err


def test_run_with_the_number_of_a_batch_makes_it_or_goes_on_with_a_part(
    project: Project, tbench, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("terminalbench.runner.run.run_jobs", started.run)
    made = experiment(project, ORACLE + '[profiles.q]\nagent = "oracle"\n')
    shown = tbench("run", made.file, "--batch", "7", "--tasks", "a", "--dry-run")
    assert (shown.code, "batch 7 in results/s/7" in shown.out) == (0, True), shown.err
    assert not (made.results_root / "s").exists()
    tbench("run", made.file, "--batch", "7", "--label", "x=y")
    batch = Batch(made.results_root / "s" / "7")
    assert read_json(batch.plan_json, Plan).batch == 7
    assert started.cells() == {(profile, task) for profile in "pq" for task in "ab"}
    started.jobs.clear()
    tbench("run", made.file, "--batch", "7", "--tasks", "b", "--profiles", "q")
    assert started.cells() == {("q", "b")}
    for wrong, said in (
        (["--tasks", "c"], 'no task of the batch is called "c"'),
        (["--label", "x=z"], "batch 7 continues as it was planned"),
    ):
        ran = tbench("run", made.file, "--batch", "7", *wrong)
        assert (ran.code, said in ran.err) == (2, True), ran.err
