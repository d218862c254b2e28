"""A secret in the environment and in the env file reaches no output of any command that does not need it."""

import json
from importlib import import_module

import msgspec
import pytest

from support.experiments import BASE
from support.live import plan
from terminalbench.experiments.batch import Batch
from terminalbench.json_files import write_json

CANARY = "canary-9f8e7d6c5b4a"

TEXT = """
[defaults]
env = ["MY_API_KEY"]
env_file = "experiments/.env"
[profiles.a]
mcp_servers = ["s"]
[profiles.b]
no_mcp = true
prompt = "p.md"
"""


@pytest.fixture
def experiment(project, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", CANARY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)
    project.write("experiments/.env", f"MY_API_KEY={CANARY}\nANTHROPIC_API_KEY='{CANARY}'\n")
    entry = {"command": "server", "args": ["--key", "${MY_API_KEY}"], "env": {"KEY": "${MY_API_KEY}"}}
    project.write("s/.mcp.json", json.dumps({"mcpServers": {"s": entry}}))
    project.write("p.md", "be brief")
    return project.experiment(BASE + TEXT)


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate",),
        ("plan",),
        ("plan", "--json"),
        ("plan", "--job-configs", "out"),
        ("plan", "--tasks", "nope"),
        ("plan", "--debug", "--profiles", "nope"),
        ("diff", "a", "b"),
        ("diff", "a", "b", "--json"),
        ("migrate",),
    ],
)
def test_the_canary_is_nowhere(project, tbench, experiment, arguments: tuple[str, ...]) -> None:
    name, *rest = arguments
    ran = tbench(name, experiment, *rest)
    assert CANARY not in ran.out + ran.err
    for file in project.root.rglob("*"):
        if file.is_file() and file.name != ".env":
            assert CANARY.encode() not in file.read_bytes(), file


def test_a_canary_written_into_the_experiment_is_refused_and_not_repeated(project, tbench, experiment) -> None:
    experiment.write_text(experiment.read_text().replace('["MY_API_KEY"]', f'{{ MY_API_KEY = "{CANARY}" }}'))
    ran = tbench("validate", experiment)
    assert ran.code == 2
    assert "looks like a secret" in ran.err
    assert CANARY not in ran.out + ran.err


def test_job_configs_hold_references_only(project, tbench, experiment) -> None:
    assert tbench("plan", experiment, "--job-configs", "out").code == 0
    configs = [json.loads(f.read_text()) for f in sorted((project.root / "out").glob("*.job.json"))]
    assert configs[0]["agents"][0]["env"] == {"MY_API_KEY": "${MY_API_KEY}", "ENABLE_TOOL_SEARCH": "false"}


@pytest.mark.parametrize("more", [(), ("--debug",)])
def test_an_unexpected_error_does_not_show_what_an_env_file_gave(project, tbench, monkeypatch, more) -> None:
    value = "given-0a1b2c3d4e5f-by-a-file"
    project.write("experiments/.env", f"FILE_API_KEY={value}\nREGION=eu-west-1\n")
    batch = Batch(project.root / "results" / "s" / "0")
    batch.runs.mkdir(parents=True)
    planned = plan()
    profile = msgspec.structs.replace(planned.profiles[0], env_file="experiments/.env")
    origin = msgspec.structs.replace(planned.provenance, root=str(project.root))
    write_json(batch.plan_json, msgspec.structs.replace(planned, profiles=(profile,), provenance=origin))

    def fail(_batch: object) -> None:
        raise RuntimeError(f"eu-west-1 refused {value}")

    import_module("terminalbench.lab.run")  # loaded later, it would keep the stand-in for the tests that follow
    monkeypatch.setattr("terminalbench.index.queries.view_batch", fail)
    ran = tbench("watch", batch.folder, *more)
    assert ran.code == 1
    assert "error: unexpected RuntimeError: eu-west-1 refused [redacted]" in ran.err
    assert value not in ran.out + ran.err
