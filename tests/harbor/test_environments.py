"""Every environment that Harbor has: planned, checked before a run, given its options and its provider's variables."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from harbor.models.environment_type import EnvironmentType
from harbor.models.job.config import JobConfig

from support.experiments import BASE, good, problems
from terminalbench.experiments import environments
from terminalbench.experiments.agents import harbor_environments
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.environments import OF_THIS_MACHINE, environment_needs
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.planner import make_plan
from terminalbench.harbor.jobs import job_config
from terminalbench.runner.environment import child_environment

NOW = datetime(2026, 1, 23, 16, 26, 48, tzinfo=UTC)
ALL = sorted(member.value for member in EnvironmentType)
ELSEWHERE = [name for name in ALL if harbor_environments()[name].get("extra")]
PROFILE = '[profiles.p]\nagent = "oracle"\n'


def text(name: str, options: str = "") -> str:
    needed = ", ".join(f'{option} = "x"' for option in harbor_environments()[name].get("required", []))
    given = options or (f"container_options = {{ {needed} }}\n" if needed else "")
    return f'[run]\ncontainer_env = "{name}"\nparallel = 9\n{given}'


def configs(experiment: Experiment) -> list[dict[str, Any]]:
    batch = Batch(experiment.results_root / "s" / "0")
    plan = make_plan(experiment, batch, NOW)
    pairs = zip(experiment.profiles, plan.jobs, strict=True)
    return [job_config(experiment, profile, job, batch) for profile, job in pairs]


@pytest.mark.parametrize("name", ALL)
def test_each_is_planned_as_harbor_reads_it(project: Any, name: str) -> None:
    [config] = configs(good(project, BASE + text(name) + PROFILE))
    parsed = JobConfig.model_validate(config)
    assert parsed.environment.type == EnvironmentType(name)
    assert (parsed.n_concurrent_trials, parsed.environment.import_path) == (9, None)
    assert set(parsed.environment.kwargs) == set(harbor_environments()[name].get("required", []))
    assert parsed.environment.delete is (name not in OF_THIS_MACHINE), "else a sandbox elsewhere runs on, and is billed"


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_it_needs_is_said_before_the_run(project: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    info = harbor_environments()[name]
    monkeypatch.setattr(environments, "_installed", lambda package: False)
    for variable in info.get("variables", ()):
        monkeypatch.delenv(variable, raising=False)
    told = list(environment_needs(good(project, BASE + text(name) + PROFILE)))
    assert f'pip install "harbor[{info["extra"]}]"' in told[0]
    assert (len(told) == 2) is bool(info.get("variables"))
    for variable in info.get("variables", ()):
        assert variable in told[1]
        monkeypatch.setenv(variable, "x")
    assert len(list(environment_needs(good(project, BASE + text(name) + PROFILE)))) == 1


def test_a_key_of_the_env_file_is_a_key(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    project.write("experiments/.env", "E2B_API_KEY=abc\n")
    assert not any("E2B_API_KEY" in said for said in environment_needs(good(project, BASE + text("e2b") + PROFILE)))


@pytest.mark.parametrize(
    ("name", "variable"),
    [("e2b", "E2B_API_KEY"), ("daytona", "DAYTONA_TARGET"), ("ec2", "AWS_PROFILE"), ("gke", "KUBECONFIG")],
)
def test_its_providers_variables_reach_harbor_and_no_sandbox(project: Any, name: str, variable: str) -> None:
    experiment = good(project, BASE + text(name) + PROFILE)
    shell = {variable: "value-of-it", "OTHER_API_KEY": "no"}
    env = child_environment(experiment.profiles[0], experiment.root, shell, name)
    assert env[variable] == "value-of-it"
    assert "OTHER_API_KEY" not in env
    assert variable not in child_environment(experiment.profiles[0], experiment.root, shell, "local")
    assert "value-of-it" not in json.dumps(configs(experiment))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("gke", "", "needs cluster_name, namespace, region, registry_location, registry_name"),
        ("modal", "container_options = { regoin = 'eu' }\n", 'does not have this option (did you mean "region"?)'),
        ("e2b", "container_options = { template = 'x' }\n", "does not have this option (it has none)"),
        ("local", "container_options = { rootfs = '/' }\n", "the local sandbox takes no options"),
        ("prime", "container_options = { api_key = 'sk-proj-Q3nT7xLw9ZbV2kRf8YcM' }\n", "looks like a secret"),
    ],
)
def test_options_that_it_does_not_take_or_lacks_are_refused(project: Any, name: str, options: str, said: str) -> None:
    found = problems(project, f'{BASE}[run]\ncontainer_env = "{name}"\n{options}{PROFILE}')
    assert any(said in line for line in found), found


@pytest.mark.parametrize(("wrong", "meant"), [("daytonaa", "daytona"), ("gcp", "gke"), ("modl", "modal")])
def test_a_name_that_is_none_is_refused_with_the_likely_one(project: Any, wrong: str, meant: str) -> None:
    [said] = problems(project, f'{BASE}[run]\ncontainer_env = "{wrong}"\n{PROFILE}')
    assert said.startswith(f'run.container_env: no environment is called "{wrong}"')
    assert meant in said


def test_a_profile_has_its_own_limit(project: Any) -> None:
    profiles = PROFILE + '[profiles.q]\nextends = "p"\nparallel = 2\n[profiles.r]\nextends = "q"\n'
    experiment = good(project, BASE + text("modal") + profiles)
    assert [config["n_concurrent_trials"] for config in configs(experiment)] == [9, 2, 2]
    assert len({profile.id for profile in experiment.profiles}) == 1, "a limit is no treatment"
    plan = make_plan(experiment, Batch(experiment.results_root / "s" / "0"), NOW)
    assert [plan.at_once(name) for name in "pqr"] == [9, 2, 2]


def test_the_examples_of_the_page_are_right_and_it_names_them_all(project: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sandboxes-elsewhere.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    named = {good(project, text if "slug" in text else BASE + text + PROFILE).run.container_env for text in blocks}
    assert named == {"modal", "daytona", "e2b", "runloop", "gke", "ec2", "openshift"}
    listed = page.partition("All of Harbor's: `")[2].partition("`")[0].split()
    assert listed == ALL
