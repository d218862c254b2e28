"""Going on with a batch: nothing finished is lost or doubled, what is missing runs, only additions are taken."""

import json
import os
import signal
import time
from pathlib import Path

import msgspec
import pytest
from test_run import LIMIT_SEC, alive, at_work, scripted, wait_for

from support.tasks import BOTH
from terminalbench.experiments.plan import Plan
from terminalbench.json_files import read_json
from terminalbench.live.state import replay
from terminalbench.locks import lock, lock_owner
from terminalbench.records.event import Event


def slow(free: int) -> str:
    """A profile of which so many trials go ahead; the others wait until the test says so."""
    return scripted("p", free=free, cost_usd=0.25)


def finished(lab) -> dict[str, int]:
    """The time of every finished trial's result. Ask when Harbor is gone, or has nothing to write."""
    return {str(f): f.stat().st_mtime_ns for f in lab.batch().runs.glob("*/*/result.json") if ran_to_its_end(f)}


def ran_to_its_end(file: Path) -> bool:
    """A trial cancelled at the wrong moment has neither an error nor a verdict; one on a full disk may have no text."""
    try:
        result = json.loads(file.read_text())
    except ValueError:
        return False
    error = result["exception_info"]
    return error["exception_type"] != "CancelledError" if error else result["verifier_result"] is not None


def worker(lab) -> int:
    """The Harbor process of a batch with one profile."""
    return json.loads(next((lab.batch().folder / "workers").glob("*.json")).read_text())["pid"]


def test_an_interrupted_batch_is_finished_without_loss(lab) -> None:
    """One batch: its run is killed, two resumes are interrupted, each while a trial is at work, and the next finishes it."""
    file = lab.experiment(slow(2), run="attempts = 2\nparallel = 1")
    before: dict[str, int] = {}
    for number, (command, how) in enumerate(
        (("run", signal.SIGKILL), ("resume", signal.SIGINT), ("resume", signal.SIGTERM)), 3
    ):
        process = lab.start(command, file, fresh=how == signal.SIGKILL)  # the kernel tells Harbor of it
        wait_for(lambda: at_work(lab) == number, process)  # noqa: B023
        harbor = worker(lab)
        assert alive(harbor)
        os.kill(process.pid, how)
        out, _ = process.communicate(timeout=LIMIT_SEC)
        assert process.returncode == (-9 if how == signal.SIGKILL else 130)
        wait_for(lambda: not alive(harbor))  # noqa: B023 - a killed runner takes Harbor with it
        if how == signal.SIGKILL:
            assert lab.tbench("index").returncode in (0, 3)
        else:
            assert "cancelled" in out
            assert not list((lab.batch().folder / "workers").glob("*.json"))
        assert {entry["outcome"] for entry in lab.index()} <= {"failed", "cancelled", "not_run"}
        before = before or finished(lab)
        assert finished(lab) == before
        assert len(before) == 2
    lab.go()
    ran = lab.tbench("resume", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    after = finished(lab)
    assert before.items() <= after.items()
    assert len(after) == 4
    assert all(outcomes == ["failed"] * 2 for outcomes in lab.outcomes().values())
    total = sum(entry["cost_usd"] or 0 for entry in lab.index())
    assert total == pytest.approx(0.25 * sum(1 for entry in lab.index() if entry["cost_usd"]))
    assert lab.tbench("resume", file).returncode == 0
    assert finished(lab) == after


def test_a_finished_batch_is_left_alone(done) -> None:
    lab, file = done.lab, done.file
    jobs = sorted(p.name for p in lab.batch().runs.iterdir())
    for arguments in (["resume", file], ["resume"], ["resume", lab.batch().folder], ["run", file, "--batch", "0"]):
        assert lab.tbench(*arguments).returncode == 0
    assert sorted(p.name for p in lab.batch().runs.iterdir()) == jobs


def test_only_some_profiles_go_on_and_the_others_stay_as_they_are(done) -> None:
    lab, batch = done.lab, done.lab.batch()
    refused = lab.tbench("resume", batch.folder, "--attempts", "2", "--profiles", "nob")
    assert (refused.returncode, 'no profile of the batch is called "nob"' in refused.stderr) == (2, True)
    assert "nop" in refused.stderr
    ran = lab.tbench("resume", batch.folder, "--attempts", "2", "--profiles", "nop")
    assert ran.returncode == 3, "what is missing of the other is missing"
    told = {cell: outcomes for cell, outcomes in lab.outcomes().items() if cell[0] == "nop"}
    assert told == {("nop", task): ["failed"] * 2 for task in "ab"}
    assert [p.name.rpartition("__")[2] for p in batch.runs.iterdir() if p.is_dir()].count("oracle") == 1
    top_up = lab.tbench("resume", batch.folder, "--top-up", "--profiles", "nop")
    assert (top_up.returncode, "--top-up cannot be combined" in top_up.stderr) == (2, True)


def test_an_end_that_a_killed_process_did_not_tell_is_told_by_a_resume(done) -> None:
    """Its result was written; what is shown live counts it too."""
    lab, batch = done.lab, done.lab.batch()
    lines = batch.events_jsonl.read_bytes().splitlines(keepends=True)
    told = next(line for line in lines if b'"trial_ended"' in line)
    batch.events_jsonl.write_bytes(b"".join(line for line in lines if line != told))
    assert len(replay(None, lab.events()).finished) == 3
    for _ in range(2):
        assert lab.tbench("resume", batch.folder).returncode == 0
        ends = [event for event in lab.events() if event.kind == "trial_ended"]
        assert len(ends) == len(replay(None, lab.events()).finished) == 4
    before = msgspec.json.decode(told, type=Event)
    assert (ends[-1].trial, ends[-1].outcome, ends[-1].attempt) == (before.trial, before.outcome, before.attempt)


@pytest.mark.parametrize(
    ("profiles", "tasks", "run", "expected"),
    [
        ('[profiles.oracle]\nagent = "nop"\n[profiles.nop]\nagent = "nop"\n', ("a", "b"), "", "agent: oracle -> nop"),
        ('[profiles.oracle]\nagent = "oracle"\n', ("a", "b"), "", "profiles.nop: is missing"),
        (BOTH, ("a",), "", "tasks.items: b removed"),
        (BOTH, ("a", "b"), "timeout_multiplier = 2.0", "run.timeout_multiplier: was 1.0, is 2.0"),
    ],
)  # fmt: skip
def test_anything_but_an_addition_is_refused(
    done, profiles: str, tasks: tuple[str, ...], run: str, expected: str
) -> None:
    lab = done.lab
    plan = lab.batch().plan_json.read_bytes()
    lab.experiment(profiles, tasks=tasks, run=run)
    ran = lab.tbench("resume", done.file)
    assert ran.returncode == 2
    assert expected in ran.stderr
    assert lab.batch().plan_json.read_bytes() == plan


def test_a_batch_in_use_names_its_owner(done) -> None:
    with lock(done.lab.batch().lock, "tbench run of somebody"):
        ran = done.lab.tbench("resume", done.file, "--attempts", "2")
    assert ran.returncode == 1
    assert f"results/s/0: in use by tbench run of somebody (pid {os.getpid()}" in ran.stderr
    assert "(tbench watch results/s/0 shows it, tbench kill results/s/0 ends it)" in ran.stderr


def test_attempts_tasks_and_profiles_are_added(lab) -> None:
    one = '[profiles."a.b__c"]\nagent = "oracle"\n'
    file = lab.experiment(one, tasks=("a",))
    assert lab.tbench("run", file).returncode == 0
    first = finished(lab)
    assert lab.tbench("resume", file, "--attempts", "2").returncode == 0
    assert lab.outcomes() == {("a.b__c", "a"): ["passed"] * 2}
    lab.experiment(
        one + '[profiles.nop]\nagent = "nop"\n', tasks=("b", "a"), run="attempts = 2\nparallel = 2\nretries = 1"
    )
    ran = lab.tbench("resume", file)
    assert ran.returncode == 0, ran.stderr
    assert "continuing batch 0 (results/s/0): 6 trials to run" in ran.stderr
    (added,) = lab.batch().runs.glob("*-w3__a.b__c.job.json")
    config = json.loads(added.read_text())
    assert (config["n_concurrent_trials"], config["retry"]["max_retries"]) == (2, 1), "as the file says now"
    assert lab.outcomes() == {
        ("a.b__c", "b"): ["passed"] * 2,
        ("a.b__c", "a"): ["passed"] * 2,
        ("nop", "b"): ["failed"] * 2,
        ("nop", "a"): ["failed"] * 2,
    }
    assert first.items() <= finished(lab).items()
    assert len(finished(lab)) == 8
    assert lab.batch().experiment_toml.read_bytes() == file.read_bytes()
    jobs = sorted(p.name for p in lab.batch().runs.iterdir() if p.is_dir())
    assert lab.tbench("resume", file).returncode == 0
    assert sorted(p.name for p in lab.batch().runs.iterdir() if p.is_dir()) == jobs


def test_errors_are_tried_again_on_request_and_superseded(lab) -> None:
    """An outage is not a failure."""
    nop = '[profiles.nop]\nagent = "nop"\n'
    file = lab.experiment(scripted("p", outage="boom", cost_usd=0.5) + nop, tasks=("a",))
    ran = lab.tbench("run", file)
    assert ran.returncode == 3
    assert lab.outcomes()["p", "a"] == ["errored"]
    assert "boom" in ran.stdout
    assert "$0.50" in ran.stdout
    assert "run the broken trials again (1 trial): tbench resume results/s/0 --retry-errors" in ran.stdout
    again = lab.tbench("resume", file)
    assert again.returncode == 3
    assert "nothing was missing, so nothing ran" in again.stdout
    wrong = lab.tbench("resume", "--retry-errors", "s/0")
    assert wrong.returncode == 2
    assert "name the batch before --retry-errors" in wrong.stderr
    assert len(list(lab.batch().runs.glob("*__p"))) == 1
    assert lab.tbench("resume", file, "--retry-errors", "auth").returncode == 3
    assert len(list(lab.batch().runs.glob("*__p"))) == 1
    template = lab.batch().job_config(next(p.name for p in lab.batch().runs.glob("*__p") if p.is_dir()))
    config = json.loads(template.read_text())
    config["agents"][0]["kwargs"].pop("outage")
    template.write_text(json.dumps(config))
    ran = lab.tbench("resume", file, "--retry-errors")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lab.outcomes()["p", "a"] == ["failed"]
    assert "superseded" in ran.stdout
    assert "$1.00" in ran.stdout
    wrong = lab.tbench("resume", file, "--retry-errors", "bad-luck")
    assert wrong.returncode == 2
    assert "rate_limit" in wrong.stderr


def test_what_a_profile_does_is_run_again_by_name_only_and_its_first_verdict_counts(lab) -> None:
    file = lab.experiment(scripted("p", crash="boom"), tasks=("a",), run="retries = 2")
    ran = lab.tbench("run", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lab.outcomes()["p", "a"] == ["failed"]
    assert sum(event.kind == "trial_ended" for event in lab.events()) == 1, "no retry of Harbor's"
    left = lab.tbench("resume", file, "--retry-errors")
    assert "nothing was missing, so nothing ran" in left.stdout
    assert "(agent_crash 1) are run again only by name: --retry-errors agent_crash" in left.stdout + left.stderr
    template = lab.batch().job_config(next(p.name for p in lab.batch().runs.glob("*__p") if p.is_dir()))
    config = json.loads(template.read_text())
    config["agents"][0]["kwargs"] = {"script": "echo forty-two > /app/answer.txt"}
    template.write_text(json.dumps(config))
    again = lab.tbench("resume", file, "--retry-errors", "agent_crash")
    assert again.returncode == 0, again.stdout + again.stderr
    assert lab.outcomes()["p", "a"] == ["failed"], "the second try passed, and does not count"
    assert "1 trial was run again after a verdict: the first counts; by the last 1 passed" in again.stdout


def test_a_missing_key_can_be_supplied_later(lab) -> None:
    profile = scripted("keyed", script="true") + 'env = ["LATER_KEY"]\n'
    file = lab.experiment('[profiles.nop]\nagent = "nop"\n' + profile, tasks=("a",))
    assert lab.tbench("run", file).returncode == 3
    assert lab.outcomes()["keyed", "a"] == ["not_run"]
    assert lab.tbench("resume", file).returncode == 3
    lab.project.write("experiments/.env", "LATER_KEY=now-it-is-there\n")
    ran = lab.tbench("resume", lab.batch().folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lab.outcomes()["keyed", "a"] == ["failed"]


def test_what_a_retry_would_delete_is_kept_with_its_cost(lab) -> None:
    secret = "canary-retry-5f4e3d"
    lab.env["RETRY_TOKEN"] = secret
    profile = scripted("p", outage="boom", cost_usd=0.5, files={"note.txt": "evidence"}) + 'env = ["RETRY_TOKEN"]\n'
    file = lab.experiment(profile, tasks=("a",), run="retries = 1")
    ran = lab.tbench("run", file)
    assert ran.returncode == 1
    kept = list(lab.batch().superseded.glob("*/a__*-try1"))
    assert len(kept) == 1
    assert (kept[0] / "agent" / "note.txt").read_text() == "evidence"
    assert (kept[0] / "result.json").is_file()
    assert "$1.00" in ran.stdout
    assert lab.outcomes() == {("p", "a"): ["errored"]}
    entries = lab.index()
    assert [e.get("superseded", False) for e in entries] == [False, True]
    assert (lab.batch().folder / entries[1]["results_json"]).is_file()
    for path in lab.batch().folder.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()


def test_datasets_keep_their_labels_when_a_batch_grows(lab) -> None:
    from support.tasks import write_task

    for name in ("x", "y"):
        write_task(lab.root / name / "same" / "t", solve="true" if name == "y" else "echo forty-two > /app/answer.txt")
    file = lab.experiment('[profiles.o]\nagent = "oracle"\n')

    def items(*datasets: str) -> None:
        text = file.read_text()
        start, end = text.index("items = "), text.index("]", text.index("items = ")) + 1
        listed = ", ".join(f'{{ id = "t", dataset = "{d}" }}' for d in datasets)
        file.write_text(f"{text[:start]}items = [{listed}]{text[end:]}")

    items("x/same")
    assert lab.tbench("run", file).returncode == 0
    items("y/same", "x/same")
    assert lab.tbench("resume", file).returncode == 0
    found = {entry["dataset"]: entry["outcome"] for entry in lab.index()}
    assert found == {"x/same": "passed", "y/same": "failed"}


def test_a_selection_stays_a_selection(lab) -> None:
    file = lab.experiment(BOTH)
    assert lab.tbench("run", file, "--profiles", "nop", "--tasks", "a").returncode == 0
    file.write_text(file.read_text() + "# a comment\n")
    assert lab.tbench("resume", file).returncode == 0
    assert lab.outcomes() == {("nop", "a"): ["failed"]}


def test_a_moved_project_and_changed_skills_code_and_tasks_are_refused(lab) -> None:
    lab.project.write("skill/SKILL.md", "how to")
    profile = scripted("p", script="true")
    lab.project.write(
        "lab_agents.py",
        (lab.root / "lab_agents.py")
        .read_text()
        .replace(
            "    options_model = Options\n",
            "    options_model = Options\n    from harbor.agents.capabilities import AgentCapabilities\n    capabilities = AgentCapabilities(skills=True)\n",
        ),
    )
    file = lab.experiment(profile + 'skills = ["skill"]\n', tasks=("a",))
    ran = lab.tbench("run", file)
    assert ran.returncode == 0, ran.stderr
    lab.project.write("skill/SKILL.md", "how else")
    for target in (file, lab.batch().folder):
        ran = lab.tbench("resume", target, "--attempts", "2")
        assert ran.returncode == 2
        assert "has changed" in ran.stderr
    lab.project.write("skill/SKILL.md", "how to")
    with (lab.root / "lab_agents.py").open("a") as code:
        code.write("# edited\n")
    with (lab.root / "tasks" / "a" / "tests" / "test.sh").open("a") as tests:
        tests.write("# edited\n")
    for target in (file, lab.batch().folder):
        ran = lab.tbench("resume", target, "--attempts", "2")
        assert ran.returncode == 2
        assert 'profile "p" has changed: agent_code.lab_agents.py: ' in ran.stderr
        assert 'task "tasks/a" has changed: tests/test.sh' in ran.stderr
        assert lab.outcomes() == {("p", "a"): ["failed"]}
    ran = lab.tbench("resume", lab.batch().folder, "--attempts", "2", "--accept-changed")
    assert ran.returncode == 0, ran.stderr
    assert lab.outcomes() == {("p", "a"): ["failed"] * 2}
    kinds = [departure.kind for departure in read_json(lab.batch().plan_json, Plan).departed()]
    assert kinds == ["changed-profiles", "changed-tasks"]
    assert lab.tbench("run", file).returncode == 0
    assert lab.tbench("resume", file, "--attempts", "2").returncode == 0, "a new batch has the new files"
    shown = " ".join(lab.tbench("compare", lab.batch(0).folder, lab.batch(1).folder).stdout.split())
    assert "p@1 vs p@0" in shown, "both versions are kept apart"
    assert 's/0: task "tasks/a" has changed: tests/test.sh' in shown
    elsewhere = lab.root.parent / "elsewhere"
    lab.root.rename(elsewhere)
    lab.root.mkdir()
    ran = lab.tbench("resume", elsewhere / "results" / "s" / "0", "--attempts", "3")
    assert ran.returncode == 2
    assert "was planned for" in ran.stderr


def test_what_a_killed_runner_left_running_is_ended_before_anything_runs_again(lab) -> None:
    """Harbor cannot be ended by its runner's death (it is stopped): resume waits for it, then runs what is missing."""
    file = lab.experiment(slow(1), tasks=("a",), run="attempts = 3\nparallel = 1")
    process = lab.start("run", file)
    wait_for(lambda: at_work(lab) == 2, process)
    left = worker(lab)
    os.kill(left, signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=LIMIT_SEC)
    assert alive(left)
    lab.go()
    resume = lab.start("resume", file)
    wait_for(lambda: (owner := lock_owner(lab.batch().lock)) is not None and owner.pid == resume.pid, resume)
    time.sleep(1.0)  # it most likely waits by now, but whenever Harbor goes on: it is gone before anything runs again
    os.kill(left, signal.SIGCONT)
    out, err = resume.communicate(timeout=LIMIT_SEC)
    assert resume.returncode == 0, out + err
    assert not alive(left)
    events = lab.events()
    resumed = next(n for n, e in enumerate(events) if e.kind == "resumed")
    assert all(event.pid != left for event in events[resumed:])
    assert len(finished(lab)) == 3
    assert lab.outcomes() == {("p", "a"): ["failed"] * 3}


def test_two_resumes_at_once_are_one_resume(lab) -> None:
    file = lab.experiment(slow(1), tasks=("a",), run="attempts = 2\nparallel = 1")
    process = lab.start("run", file)
    wait_for(lambda: at_work(lab) == 2, process)
    harbor = worker(lab)
    process.kill()
    process.communicate(timeout=LIMIT_SEC)
    both = [lab.start("resume", file) for _ in range(2)]
    wait_for(lambda: any(resume.poll() is not None for resume in both))
    refused, other = sorted(both, key=lambda resume: resume.poll() is None)
    _, err = refused.communicate(timeout=LIMIT_SEC)
    assert refused.returncode == 1, err
    assert f"in use by tbench resume s/0 (pid {other.pid} on " in err
    lab.go()
    out, err = other.communicate(timeout=LIMIT_SEC)
    assert other.returncode == 0, out + err
    assert not alive(harbor)
    assert len(finished(lab)) == 2
    assert lab.outcomes() == {("p", "a"): ["failed"] * 2}
