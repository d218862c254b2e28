"""A batch goes on with what it was planned with: changed code, skills and tasks are refused by name, or kept as departures."""

import dataclasses
from pathlib import Path

import msgspec
import pytest

import terminalbench
from conftest import DATA
from runner.resuming import NOW, Started, experiment, finished, planned
from support.experiments import Project
from terminalbench.analytics.settings import profile_names, settings_of
from terminalbench.errors import UserError
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.config import load
from terminalbench.experiments.plan import Exclusion, ExclusionKind, Plan
from terminalbench.experiments.planner import make_plan
from terminalbench.experiments.profiles import CommandFile
from terminalbench.experiments.tables import TopUpTable
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import read_json, read_jsonl, write_json
from terminalbench.records.event import Event
from terminalbench.runner.changes import PlanDrift, find_changes, task_files, with_task_files, with_values
from terminalbench.runner.preflight import PreparedPlan
from terminalbench.runner.resume import ResumeRequest, resume
from terminalbench.runner.run import Listener, launch, record

AGENT = (
    "class Mine:\n    AGENT_INFO = {'model': False, 'mcp': False}\n    def __init__(self, logs_dir):\n        pass\n"
)
MINE = '[profiles.p]\nagent = "lab.agents:Mine"\n'


@pytest.fixture
def batch(project: Project) -> Batch:
    """A batch of an agent of one's own."""
    return begun(project, MINE)


def begun(project: Project, profile: str) -> Batch:
    """A batch planned as `run` does, with one of its two tasks finished."""
    agent_info.cache_clear()
    project.write("lab/__init__.py", "")
    project.write("lab/agents.py", AGENT)
    for task in ("a", "b"):
        project.write(f"d/{task}/tests/test.sh", "exit 0\n")
        project.write(f"d/{task}/instruction.md", "do it\n")
        project.write(f"d/{task}/environment/Dockerfile", "FROM debian:12\n")
    made = experiment(project, profile)
    found = allocate(made.results_root, made.slug)
    plan = with_task_files(make_plan(made, found, NOW))
    record(made, PreparedPlan(plan, {profile.key: profile for profile in made.profiles}, {}), plan, found)
    finished(found, "a")
    return found


def plan_of(batch: Batch) -> Plan:
    return read_json(batch.plan_json, Plan)


def targets(project: Project) -> list:
    """A resume by the folder of the batch, and by the experiment file."""
    return [None, load(project.root / "experiments" / "exp.toml")]


def test_what_did_not_change_goes_on(project: Project, batch: Batch, started: Started) -> None:
    for target in targets(project):
        project.write("d/b/tests/__pycache__/x.pyc", "junk")
        project.write("lab/__pycache__/x.pyc", "junk")
        resume(batch, ResumeRequest(), target)
        assert started.cells() == {("p", "b")}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("lab/agents.py", 'profile "p" has changed: agent_code.lab/agents.py: '),
        ("lab/new.py", "agent_code.lab/new.py: + "),
        ("d/b/tests/test.sh", 'task "d/b" has changed: tests/test.sh'),
        ("d/b/instruction.md", 'task "d/b" has changed: instruction.md'),
        ("d/b/environment/new.txt", 'task "d/b" has changed: environment/new.txt is new'),
    ],
)
def test_what_changed_is_refused_by_its_name(
    project: Project, batch: Batch, started: Started, path: str, said: str
) -> None:
    project.write(path, AGENT + "# edited\n")
    before = batch.plan_json.read_bytes()
    for target in targets(project):
        for request in (ResumeRequest(), ResumeRequest(attempts=3)):
            with pytest.raises(UserError) as caught:
                resume(batch, request, target)
            assert caught.value.what.startswith("changed since batch 0 was planned:\n")
            assert said in caught.value.what
            assert "--accept-changed" in (caught.value.hint or "")
    assert batch.plan_json.read_bytes() == before, "nothing is recorded of what is refused"
    assert started.jobs == []


def test_changed_code_of_the_environment_is_refused(project: Project, batch: Batch, started: Started) -> None:
    project.write("rooms.py", "class Room:\n    pass\n")
    file = project.root / "experiments" / "exp.toml"
    file.write_text(file.read_text().replace('container_env = "local"', 'container_env = "rooms:Room"'))
    other = planned(load(file))
    finished(other, "a")
    resume(other, ResumeRequest())
    assert started.cells() == {("p", "b")}
    project.write("rooms.py", "class Room:\n    edited = True\n")
    with pytest.raises(UserError, match=r'profile "p" has changed: environment_code.rooms.py: '):
        resume(other, ResumeRequest())


def test_many_changed_files_are_one_line(project: Project, batch: Batch, started: Started, tbench) -> None:
    for number in range(9):
        project.write(f"lab/part{number}.py", "x")
    with pytest.raises(
        UserError, match=r"has changed: agent_code: 9 files differ: lab/part0.py, .*, lab/part3.py and 5 more "
    ):
        resume(batch, ResumeRequest())
    file = project.root / "experiments" / "exp.toml"
    file.write_text(file.read_text().replace("[profiles.p]", '[profiles.o]\nagent = "oracle"\n[profiles.p]'))
    assert "vs o: agent_code: 11 files differ: lab/__init__.py, lab/agents.py, " in tbench("plan", file).out


def test_a_top_up_refuses_what_changed_too(project: Project, batch: Batch, started: Started) -> None:
    write_json(
        batch.plan_json, msgspec.structs.replace(plan_of(batch), top_up=TopUpTable(interval_width=0.1, max_attempts=3))
    )
    project.write("d/b/tests/test.sh", "exit 1\n")
    with pytest.raises(UserError, match="has changed"):
        terminalbench.resume(batch.folder, top_up=True)
    assert started.jobs == []


def test_a_task_that_is_finished_may_change(project: Project, batch: Batch, started: Started) -> None:
    project.write("d/a/tests/test.sh", "exit 1\n")
    resume(batch, ResumeRequest())
    assert started.cells() == {("p", "b")}
    with pytest.raises(UserError, match='task "d/a" has changed'):
        resume(batch, ResumeRequest(attempts=2))


def test_an_accepted_change_is_a_departure_and_is_asked_for_once(
    project: Project, batch: Batch, started: Started
) -> None:
    before = plan_of(batch)
    project.write("lab/agents.py", AGENT + "# edited\n")
    project.write("d/b/tests/test.sh", "exit 1\n")
    resume(batch, ResumeRequest(accept_changed=True))
    assert started.cells() == {("p", "b")}
    plan = plan_of(batch)
    code, task = map(str, plan.departed())
    assert code.startswith('changed-profiles: profile "p" has changed: agent_code.lab/agents.py: ')
    assert task == 'changed-tasks: task "d/b" has changed: tests/test.sh'
    told = read_jsonl(batch.events_jsonl, Event).records[-1].detail
    assert told["departures"] == [code, task]
    assert len({before.jobs[0].profile_id, plan.jobs[0].profile_id, targets(project)[1].profiles[0].id}) == 3, (
        "trials of two treatments are pooled with those of neither"
    )
    assert plan.profiles[0].id == plan.jobs[0].profile_id
    grown = project.root / "experiments" / "exp.toml"
    grown.write_text(grown.read_text() + '[profiles.q]\nagent = "oracle"\n')
    for target in targets(project):
        resume(batch, ResumeRequest(), target)
    assert {profile for profile, _ in started.cells()} == {"p", "q"}
    assert len(plan_of(batch).departures) == 2
    project.write("lab/agents.py", AGENT)
    with pytest.raises(UserError, match="has changed"):
        resume(batch, ResumeRequest())


def test_trials_take_the_files_of_a_command_as_they_were_accepted(project: Project, started: Started) -> None:
    project.write("x.sh", "true\n")
    command = '[profiles.p.command]\nrun = ["sh", "{files}/x.sh", "{instruction}"]\nfiles = ["x.sh"]\n'
    batch = begun(project, f'[profiles.p]\nagent = "command"\n{command}')
    project.write("x.sh", "true # edited\n")
    resume(batch, ResumeRequest(accept_changed=True))
    job = plan_of(batch).jobs[0]
    (told,) = launch(batch, plan_of(batch), job, {}).config(job)["agents"][0]["kwargs"]["command"]["files"].values()
    assert told["digest"] == CommandFile("x.sh", project.root / "x.sh", told["target"]).digest


def test_a_departure_is_shown_by_compare(project: Project, batch: Batch, started: Started, tbench) -> None:
    project.write("d/b/tests/test.sh", "exit 1\n")
    resume(batch, ResumeRequest(accept_changed=True), None)
    project.experiment((project.root / "experiments" / "exp.toml").read_text() + '[profiles.q]\nagent = "oracle"\n')
    resume(batch, ResumeRequest(), targets(project)[1])
    finished(batch, "b")
    shown = " ".join(tbench("compare", batch.folder, "--details").out.split())
    assert 'changed-tasks: task "d/b" has changed: tests/test.sh' in shown


@pytest.fixture
def env_batch(project: Project, monkeypatch: pytest.MonkeyPatch) -> Batch:
    """A batch whose profile takes variables of the shell, one of them a secret."""
    values = {"QUALITY": "high", "MAX_TOKENS": "100", "API_KEY": "sk-1", "PASSWORD": "postgres"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    for task in ("a", "b"):
        project.write(f"d/{task}/instruction.md", "do it\n")
    made = experiment(project, f'[profiles.p]\nagent = "oracle"\nenv = {list(values)}\n'.replace("'", '"'))
    found = allocate(made.results_root, made.slug)
    plan = with_values(make_plan(made, found, NOW), {"p": values})
    record(made, PreparedPlan(plan, {profile.key: profile for profile in made.profiles}, {}), plan, found)
    finished(found, "a")
    return found


def test_another_value_of_a_variable_is_another_treatment(
    project: Project, env_batch: Batch, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(env_batch)
    assert list(plan.profiles[0].values) == ["QUALITY", "MAX_TOKENS"], "nothing is kept of a secret, not even a digest"
    assert b"high" not in env_batch.plan_json.read_bytes()
    monkeypatch.setenv("API_KEY", "sk-2")  # a key may be another one: who pays is no part of the treatment
    monkeypatch.delenv("MAX_TOKENS")
    resume(env_batch, ResumeRequest())
    monkeypatch.setenv("QUALITY", "low")
    for target in targets(project):
        with pytest.raises(UserError, match='profile "p" has changed: another value of QUALITY'):
            resume(env_batch, ResumeRequest(), target)
    resume(env_batch, ResumeRequest(accept_changed=True))
    after = plan_of(env_batch)
    assert [one.kind for one in after.departed()] == ["changed-profiles"]
    assert after.profiles[0].id == after.jobs[0].profile_id != plan.profiles[0].id
    resume(env_batch, ResumeRequest())
    assert len(plan_of(env_batch).departures) == 1


def test_batches_that_ran_otherwise_depart_in_compare(project: Project, env_batch: Batch) -> None:
    made = load(project.root / "experiments" / "exp.toml")
    other = allocate(made.results_root, made.slug)
    plan = with_values(make_plan(made, other, NOW), {"p": {"QUALITY": "low", "MAX_TOKENS": "100"}})
    settings = dataclasses.replace(plan.settings, timeout_multiplier=0.3)
    write_json(other.plan_json, msgspec.structs.replace(plan, settings=settings))
    views = []
    for batch in (env_batch, other):
        scan_batch(batch)
        views.append(view_batch(batch))
    assert [str(one) for one in settings_of(views).departures] == [
        "run-settings: run.timeout_multiplier is 1.0 in s/0, 0.3 in s/1",
        "changed-profiles: p had a different value of QUALITY in s/1 than in s/0",
    ]
    assert settings_of(views[:1]).departures == ()


def test_the_table_of_a_profile_is_never_accepted(project: Project, batch: Batch, started: Started) -> None:
    file = project.root / "experiments" / "exp.toml"
    file.write_text(file.read_text().replace(MINE, MINE + 'env = ["OTHER"]\n'))
    with pytest.raises(UserError, match="has changed") as caught:
        resume(batch, ResumeRequest(accept_changed=True), load(file))
    assert "finish this batch as planned by naming its folder" in (caught.value.hint or "")


def test_a_plan_of_an_earlier_version_goes_on_with_a_word(project: Project, batch: Batch, started: Started) -> None:
    plan = plan_of(batch)
    content = {name: value for name, value in plan.profiles[0].content.items() if name != "agent_code"}
    old = msgspec.structs.replace(plan.profiles[0], id="p000000000000", content=content, recipe=1)
    jobs = tuple(msgspec.structs.replace(job, profile_id="p000000000000") for job in plan.jobs)
    write_json(batch.plan_json, msgspec.structs.replace(plan, profiles=(old,), jobs=jobs, task_files={}))
    assert b"recipe" not in batch.plan_json.read_bytes()
    project.write("lab/agents.py", AGENT + "# edited\n")
    project.write("d/b/tests/test.sh", "exit 1\n")
    for target in targets(project):
        notes: list[str] = []
        resume(batch, ResumeRequest(), target, Listener(note=notes.append))
        assert started.cells() == {("p", "b")}
        assert notes == [
            'profile "p": an earlier version planned this batch without recording the code of its '
            "agent, so changes of that code cannot be detected"
        ]
    after = plan_of(batch)
    assert (after.jobs[0].profile_id, after.profiles[0].recipe) == ("p000000000000", 1)
    assert list(after.task_files) == ["d/a", "d/b"], "from now on a change of a task can be told"
    project.write("d/b/tests/test.sh", "exit 2\n")
    with pytest.raises(UserError, match='task "d/b" has changed'):
        resume(batch, ResumeRequest())


def test_conditions_of_a_recorded_batch_stay_what_they_were(project: Project, started: Started) -> None:
    """Claude Code without servers ran without the conditions that all profiles have now; what is added has them."""
    text = '[profiles.{}]\nmodel = "m"\nno_mcp = true\n{}'
    made = experiment(project, text.format("old", ""))
    batch = planned(made)
    plan = plan_of(batch)
    content = {name: value for name, value in plan.profiles[0].content.items() if name != "conditions"}
    old = msgspec.structs.replace(plan.profiles[0], id="p000000000000", content=content, recipe=1)
    jobs = tuple(msgspec.structs.replace(job, profile_id="p000000000000") for job in plan.jobs)
    write_json(batch.plan_json, msgspec.structs.replace(plan, profiles=(old,), jobs=jobs))
    config = read_json(batch.job_config(plan.jobs[0].name))
    del config["agents"][0]["env"], config["agents"][0]["kwargs"]
    write_json(batch.job_config(plan.jobs[0].name), config)
    made.file.write_text(made.file.read_text() + text.format("new", 'reasoning = "low"\n'))
    resume(batch, ResumeRequest(), load(made.file))
    before, after = (request.config["agents"][0] for request in started.requests)
    assert "env" not in before
    assert after["env"] == {"ENABLE_TOOL_SEARCH": "false"}
    said = "profiles: new has ENABLE_TOOL_SEARCH, strict_mcp_config, but old does not"
    assert [str(departure) for departure in plan_of(batch).departed()] == [said]


def test_a_recorded_plan_of_an_earlier_version_tells_of_no_change() -> None:
    plan = read_json(DATA / "live" / "plan.json", Plan)
    assert plan.task_files == {}
    for profile in plan.profiles:
        now = {**profile.content, "agent_code": {"lab.py": "1"}, "conditions": {"A": "b"}, "option_files": {"c": "d"}}
        assert profile.changes(now) == []
        assert [change.aspect for change in profile.changes({**now, "model": "other"})] == ["model"]


def test_a_task_that_cannot_be_looked_at_is_unknown(project: Project, batch: Batch) -> None:
    plan = plan_of(batch)
    (local, *_), job = plan.jobs[0].tasks, plan.jobs[0]
    git = msgspec.structs.replace(local, config={"git_url": "x", "git_commit_id": "y", "path": local.config["path"]})
    remote = msgspec.structs.replace(local, config={"name": "d", "task_names": ["a"]}, found=False)
    gone = msgspec.structs.replace(local, config={"path": str(project.root / "nowhere")})
    assert task_files([git, remote, gone]) == {}
    for task in (git, remote, gone):
        changed = msgspec.structs.replace(plan, jobs=(msgspec.structs.replace(job, tasks=(task,)),))
        assert find_changes(batch, changed, {"p": {}}, {(task.label, "a")}) == PlanDrift()


def test_a_task_that_the_check_left_out_may_be_mended(project: Project, batch: Batch, started: Started) -> None:
    plan = msgspec.structs.replace(plan_of(batch), task_files={})
    refused = Exclusion("broken", task=plan.jobs[0].tasks[1].ref, kind=ExclusionKind.TASK_REFUSED)
    plan = with_task_files(msgspec.structs.replace(plan, excluded=(refused,)))
    assert list(plan.task_files) == ["d/a"]
    write_json(batch.plan_json, plan)
    project.write("d/b/instruction.md", "mended")
    resume(batch, ResumeRequest())
    assert started.cells() == {("p", "b")}
    assert plan_of(batch).departures == ()


def test_the_command_and_the_function_take_the_same_word(
    project: Project, batch: Batch, started: Started, tbench
) -> None:
    project.write("d/b/tests/test.sh", "exit 1\n")
    ran = tbench("resume", batch.folder)
    assert (ran.code, 'task "d/b" has changed: tests/test.sh' in ran.err) == (2, True)
    with pytest.raises(UserError, match="has changed"):
        terminalbench.resume(batch.folder)
    assert tbench("resume", batch.folder, "--accept-changed").code == 3, "the stand-in for Harbor runs nothing"
    project.write("d/b/tests/test.sh", "exit 2\n")
    terminalbench.resume(batch.folder, accept_changed=True)
    assert len(plan_of(batch).departures) == 2


def test_diff_shows_which_files_changed_since_a_batch(project: Project, batch: Batch, tbench) -> None:
    project.write("lab/agents.py", AGENT + "# edited\n")
    project.write("lab/more.py", "x\n")
    file: Path = project.root / "experiments" / "exp.toml"
    shown = tbench("diff", file, "p@0", "p").out
    assert shown.startswith(f"--- p@0 {plan_of(batch).profiles[0].id}\n+++ p ")
    assert [line for line in shown.splitlines() if line.startswith("agent_code")] == [
        "agent_code.lab/agents.py",
        "agent_code.lab/more.py",
    ]
    assert "the same treatment" in tbench("diff", file, "p", "p").out
    for name, said in (("p@9", "there is no batch 9"), ("q@0", 'has no profile "q"'), ("p@x", "as in key@3")):
        ran = tbench("diff", file, name, "p")
        assert (ran.code, said in ran.err) == (2, True), name


def test_compare_keeps_versions_of_an_agent_apart(project: Project, batch: Batch, tbench) -> None:
    """The same key, two versions of its code: `p@0` and `p@1`, as for any other edit of a profile."""
    project.write("lab/agents.py", AGENT + "# edited\n")
    made = targets(project)[1]
    other = allocate(made.results_root, made.slug)
    plan = make_plan(made, other, NOW)
    record(made, PreparedPlan(plan, {profile.key: profile for profile in made.profiles}, {}), plan, other)
    finished(other, "a", "b")
    for each in (batch, other):
        scan_batch(each)
    views = [view_batch(each) for each in (batch, other)]
    names = profile_names(views)
    assert set(names.values()) == {"p@0", "p@1"}
    assert plan.jobs[0].profile_id in tbench("plan", made.file).out
    assert plan_of(batch).jobs[0].profile_id not in tbench("plan", made.file).out
    assert settings_of(views).warnings == ()
    old = msgspec.structs.replace(views[0].plan.profiles[0], recipe=1)
    views[0] = msgspec.structs.replace(views[0], plan=msgspec.structs.replace(views[0].plan, profiles=(old,)))
    assert settings_of(views).warnings == (
        "p of s/0 was planned without recording the code of its agent, so whether the code is the same as in the other batches is unknown",
    )
