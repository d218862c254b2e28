"""An experiment, written and loaded again, is the same plan with the same profile ids."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from support.experiments import Project
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import load
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.planner import make_plan
from terminalbench.experiments.quarantine import QuarantinedTask, quarantine_file, write_quarantine
from terminalbench.experiments.write import write_experiment
from terminalbench.json_files import encode_json

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(str.strip)
PROFILE = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["m", "anthropic/x"]),
        "reasoning": st.sampled_from(["low", "high"]),
        "agent_version": st.just("2.0.1"),
        "prompt": st.sampled_from(["prompts/one.md", "prompts/two.md"]),
        "skills": st.just(["skill"]),
        "hooks": st.just("hooks.json"),
        "env": st.sampled_from([["TOKEN"], {"A": "${B}", "C": "plain"}]),
        "env_file": st.sampled_from([".env", "none.env"]),
        "description": TEXT,
        "options": st.dictionaries(
            st.sampled_from(["max_turns", "fallback_model"]), st.integers(0, 9) | st.just("7"), max_size=2
        ),
        "price": st.sampled_from([0, {"input": 3, "output": 15.5}, {"input": 1, "output": 2, "cache_read": 0.1}]),
        "mcp_git_source": st.just("https://example.org/servers.git"),
        "lessons": st.sampled_from(["masked", "recall", "off", {"k": 2}, {"mode": "recall", "budget": 90, "withhold": 0.5}]),
    },
)  # fmt: skip
SERVERS = st.sampled_from([["one"], ["one", "two"], None])
TASKS = st.lists(
    st.fixed_dictionaries(
        {"id": st.sampled_from(["a", "b"]), "dataset": st.sampled_from(["tasks", "named@1", "other@2", "git@1"])},
        optional={"family": TEXT, "timeout_sec": st.sampled_from([30.0, 600.5])},
    ),
    min_size=1, max_size=5, unique_by=lambda item: (item["id"], item["dataset"]),
)  # fmt: skip
PHASES = ("setup", "agent", "verifier")
NETWORK = st.sampled_from(
    ["public", "none", "model-only", ["pypi.org", "*.example.org", "192.0.2.0/24", "2001:db8::1"]]
)
TABLES = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXT,
        "labels": st.dictionaries(st.sampled_from(["role", "night.1"]), TEXT, max_size=2),
        "run": st.fixed_dictionaries(
            {"container_env": st.just("local")},
            optional={
                "attempts": st.integers(1, 5),
                "budget_usd": st.floats(0.5, 1e6),
                "harbor_args": st.just(["--debug"]),
                "on_rate_limit": st.just("slow"),
                "seed": st.integers(-5, 5),
                "network": st.just("host") | st.fixed_dictionaries({}, optional=dict.fromkeys(PHASES, NETWORK)),
            },
        ),
        "artifacts": st.just({"targets": ["notes"]}),
        "analysis": st.fixed_dictionaries(
            {}, optional={"hypothesis": TEXT, "looks": st.just("any") | st.integers(1, 20), "contrasts": st.just([["q.2", "p"]]),
                          "alpha": st.floats(0.01, 0.5), "baseline": st.just("q.2")},
        ),
        "top_up": st.just({"interval_width": 0.2, "max_attempts": 7}),
        "notify": st.just({"urls": ["${URL}"], "on": ["finished"]}),
        "defaults": st.sampled_from([{"model": "d", "env": ["SHARED"]}, {"lessons": "recall"}]),
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("lab"))
    for dataset in ("tasks", "elsewhere"):
        for task in "ab":
            project.task(dataset, task)
    project.server("one")
    project.server("two", folder="servers/second")
    project.write("servers/second/USAGE.md", "use it")
    project.write("prompts/one.md", "be brief")
    project.write("prompts/two.md", "be\nlong\n")
    project.write("hooks.json", '{"hooks": {"Stop": []}}')
    project.write("skill/SKILL.md", "a skill")
    project.write(".env", "TOKEN=x\n")
    return project


def document(tables: dict[str, Any], tasks: list, profiles: list[tuple[dict, Any]], *, extends: bool) -> dict[str, Any]:
    made = {"schema_version": 2, "slug": "s", **tables}
    made["tasks"] = {"items": tasks}
    made["datasets"] = {"named@1": {"path": "elsewhere"}, "git@1": {"repo": "https://example.org/r.git", "ref": "v1"}}
    made["mcp"] = {"aliases": {"two": "servers/second"}}
    tables_of = {}
    for key, (profile, servers) in zip(("p", "q.2"), profiles, strict=True):
        tables_of[key] = {**profile, **({"mcp_servers": servers} if servers else {"no_mcp": True})}
    if extends:
        tables_of["child"] = {"extends": "p", "description": "a child"}
    tables_of["idle"] = {"agent": "oracle"}
    return {**made, "profiles": tables_of}


def planned(experiment: Experiment) -> Plan:
    batch = Batch(experiment.results_root / "s" / "0")
    plan = make_plan(experiment, batch, datetime(2026, 1, 1, tzinfo=UTC))
    notes = tuple(note for note in plan.notes if "does not support" not in note and "no file at" not in note)
    return msgspec.structs.replace(plan, notes=notes)


@given(TABLES, TASKS, st.lists(st.tuples(PROFILE, SERVERS), min_size=2, max_size=2), st.booleans(), st.booleans())
def test_what_is_written_loads_to_the_same_plan(
    lab: Project, tables: dict, tasks: list, profiles: list, extends: bool, quarantined: bool
) -> None:
    file = lab.root / "first.toml"
    file.write_text(tomlkit.dumps(document(tables, tasks, profiles, extends=extends)), encoding="utf-8")
    for path in (file, lab.root / "second.toml"):
        quarantine_file(path).unlink(missing_ok=True)
    if quarantined:
        write_quarantine(file, [QuarantinedTask(tasks[0]["id"], tasks[0]["dataset"], 'it is "flaky"')])
    before = load(file)
    write_experiment(before, lab.root / "second.toml")
    after = load(lab.root / "second.toml")
    assert [profile.id for profile in after.profiles] == [profile.id for profile in before.profiles]
    assert encode_json(planned(after)) == encode_json(planned(before))


def test_changes_are_written_too(lab: Project) -> None:
    file = lab.root / "changed.toml"
    file.write_text(
        tomlkit.dumps(document({}, [{"id": "a", "dataset": "tasks"}], [({}, ["one"]), ({}, None)], extends=False))
    )
    experiment = load(file)
    first = dataclasses.replace(experiment.profiles[0], model="another", key="renamed")
    changed = dataclasses.replace(
        experiment, profiles=(first,), run=dataclasses.replace(experiment.run, attempts=4), labels={"iteration": "3"}
    )
    write_experiment(changed, Path(lab.root / "next.toml"))
    again = load(lab.root / "next.toml")
    assert [(profile.key, profile.model) for profile in again.profiles] == [("renamed", "another")]
    assert (again.run.attempts, again.labels) == (4, {"iteration": "3"})
    assert encode_json(planned(again)) == encode_json(planned(changed))
