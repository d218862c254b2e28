"""MCP servers from git: the commit is part of the profile, is asked for once, and stays with the batch."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from runner.resuming import Started, experiment, planned
from servers.git_http import git
from support.experiments import Project
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.planner import Selection
from terminalbench.json_files import read_json, write_json
from terminalbench.runner.provenance import pinned, planned_ref, source_problem
from terminalbench.runner.resume import ResumeRequest, resume
from terminalbench.runner.run import prepare_run


@dataclass
class Repository:
    """A repository of MCP servers that gets new commits."""

    folder: Path

    def commit(self) -> str:
        git(self.folder, "commit", "-q", "--allow-empty", "-m", "more")
        return git(self.folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = tmp_path / "servers"
    folder.mkdir()
    git(folder, "init", "-q")
    return Repository(folder)


def profile(key: str, repository: Repository, more: str = "") -> str:
    source = f'mcp_servers = ["srv"]\nmcp_git_source = "{repository.folder}"\n'
    return f'[profiles.{key}]\nagent = "claude-code"\nmodel = "m"\n{source}{more}'


def written(project: Project, *profiles: str) -> Experiment:
    project.server("srv")
    return experiment(project, "".join(profiles))


def everywhere(made: Experiment) -> Experiment:
    return pinned(made, [profile.key for profile in made.profiles])


def refs(batch: Batch) -> dict[str, str | None]:
    """What each profile of a batch runs, by its JobConfig; the plan records the same."""
    plan: Plan = read_json(batch.plan_json, Plan)
    found = {job.profile: planned_ref(read_json(batch.job_config(job.name))) for job in plan.jobs}
    assert {record.key: record.content.get("mcp_git_ref") for record in plan.profiles} == found
    return found


def test_the_plan_and_the_id_tell_the_commit(project: Project, repository: Repository, started: Started) -> None:
    made = written(project, profile("p", repository), profile("q", repository, 'reasoning = "high"\n'))
    ids = set()
    for _ in range(2):
        commit = repository.commit()
        plan = prepare_run(made, Selection()).plan
        assert [record.content["mcp_git_ref"] for record in plan.profiles] == [commit, commit]
        assert [request.config["agents"][0]["kwargs"]["mcp_source"]["ref"] for request in started.requests] == [
            commit,
            commit,
        ]
        assert [job.profile_id for job in plan.jobs] == [record.id for record in plan.profiles]
        ids.add(plan.jobs[0].profile_id)
    assert len(ids) == 2, "other server code is another treatment"


def test_a_source_is_asked_once_and_only_for_what_runs(
    project: Project, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "terminalbench.runner.provenance.remote_commit", lambda source: asked.append(source) or "c" * 40
    )
    made = written(project, *(profile(key, repository) for key in ("p", "q", "r")))
    assert [p.mcp_git_ref for p in pinned(made, ["p", "q"]).profiles] == ["c" * 40, "c" * 40, None]
    assert asked == [str(repository.folder)]


def test_a_batch_keeps_its_commit_and_what_is_added_shares_it(
    project: Project, repository: Repository, started: Started, tbench
) -> None:
    first = repository.commit()
    fixed = profile("fixed", repository, f'mcp_git_ref = "{"d" * 40}"\n')
    batch = planned(everywhere(written(project, fixed, profile("p", repository))))
    repository.commit()
    resume(batch, ResumeRequest(), written(project, fixed, profile("p", repository)))
    assert {job.profile for job in started.jobs} == {"fixed", "p"}
    grown = written(project, fixed, profile("p", repository), profile("q", repository, 'reasoning = "high"\n'))
    resume(batch, ResumeRequest(), grown)
    assert refs(batch) == {"fixed": "d" * 40, "p": first, "q": first}
    shown = tbench("plan", grown.file, "--batch", "0").out
    assert "p: 0 of 2 trials are finished and reused" in shown
    resume(batch, ResumeRequest(), grown)
    assert refs(batch) == {"fixed": "d" * 40, "p": first, "q": first}


def test_a_profile_whose_commit_cannot_be_found_out_is_not_added(
    project: Project, repository: Repository, started: Started, tmp_path: Path
) -> None:
    repository.commit()
    batch = planned(everywhere(written(project, profile("p", repository))))
    before = batch.plan_json.read_bytes()
    gone = Repository(tmp_path / "gone")
    with pytest.raises(
        UserError, match='profile "q" was not added, because the newest commit of .* could not be read from git'
    ):
        resume(batch, ResumeRequest(), written(project, profile("p", repository), profile("q", gone)))
    assert batch.plan_json.read_bytes() == before


def test_what_the_file_pins_elsewhere_is_another_treatment(
    project: Project, repository: Repository, started: Started
) -> None:
    repository.commit()
    batch = planned(everywhere(written(project, profile("p", repository))))
    with pytest.raises(UserError, match="has changed"):
        resume(batch, ResumeRequest(), written(project, profile("p", repository, f'mcp_git_ref = "{"d" * 40}"\n')))
    tagged = planned(written(project, profile("p", repository, 'mcp_git_ref = "v1"\n')))
    with pytest.raises(UserError, match="has changed"):
        resume(tagged, ResumeRequest(), written(project, profile("p", repository)))


def test_a_batch_whose_plan_records_no_commit_goes_on(
    project: Project, repository: Repository, started: Started
) -> None:
    """Older versions pinned the JobConfig alone."""
    first = repository.commit()
    made = written(project, profile("p", repository))
    batch = planned(everywhere(made))
    plan: Plan = read_json(batch.plan_json, Plan)
    (record,) = plan.profiles
    content = {name: value for name, value in record.content.items() if name != "mcp_git_ref"}
    old_id = made.profiles[0].id
    older = msgspec.structs.replace(
        plan,
        profiles=(msgspec.structs.replace(record, id=old_id, content=content),),
        jobs=(msgspec.structs.replace(plan.jobs[0], profile_id=old_id),),
    )
    write_json(batch.plan_json, older)
    repository.commit()
    for target in (None, made):
        resume(batch, ResumeRequest(), target)
        assert started.cells() == {("p", "a"), ("p", "b")}
    resume(batch, ResumeRequest(), written(project, profile("p", repository), profile("q", repository)))
    plan = read_json(batch.plan_json, Plan)
    assert [job.profile_id == old_id for job in plan.jobs] == [True, False]
    assert {planned_ref(read_json(batch.job_config(job.name))) for job in plan.jobs} == {first}
    assert not plan.excluded


def test_a_branch_or_a_mistyped_tag_is_found_before_the_first_trial(
    project: Project, repository: Repository, started: Started
) -> None:
    commit = repository.commit()
    git(repository.folder, "tag", "v1")
    git(repository.folder, "branch", "side")
    source = str(repository.folder)
    assert source_problem(source, "v1") is None
    assert source_problem(source, commit) is source_problem(source, commit[:7]) is None
    assert source_problem(f"{source}-private", "v9") is None, "it does not answer, so nobody knows"
    made = written(
        project,
        profile("good", repository, 'mcp_git_ref = "v1"\n'),
        profile("typo", repository, 'mcp_git_ref = "v9"\n'),
        profile("branch", repository, 'mcp_git_ref = "side"\n'),
    )
    plan = prepare_run(made, Selection()).plan
    assert {e.profile: e.reason.removeprefix(source) for e in plan.excluded} == {
        "typo": ' has no tag "v9"; mcp_git_ref takes a tag or a commit, not a branch',
        "branch": ' has no tag "side"; mcp_git_ref takes a tag or a commit, not a branch',
    }
    assert [request.name.split("__")[-1] for request in started.requests] == ["good"]
