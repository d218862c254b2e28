"""Whatever a TOML file holds, `validate` and `plan` answer with 0 or 2 and never with a traceback."""

import tomllib

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from conftest import DATA

KEYS = [
    "schema_version", "name", "slug", "tasks", "items", "default_dataset", "id", "dataset", "family", "run", "attempts",
    "retries", "parallel", "container_env", "harbor_args", "registry_path", "defaults", "profiles", "p", "agent", "model",
    "reasoning", "mcp_servers", "hooks", "env", "env_file", "no_mcp", "extends", "options", "skills", "prompt", "workflow",
    "datasets", "x@1", "path", "repo", "ref", "mcp", "aliases", "artifacts", "targets", "analysis", "baseline", "contrasts",
]  # fmt: skip
WORDS = [
    "oracle",
    "nop",
    "claude-code",
    "local",
    "docker",
    "x@1",
    "starter",
    "p",
    "q",
    "",
    ".",
    "..",
    "/",
    "a/b",
    "~",
    "low",
    "pkg.mod:C",
]
values = st.recursive(
    st.none().map(lambda _: 2) | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(WORDS)
    | st.dates() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=5),
    max_leaves=25,
)  # fmt: skip
tables = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), values, max_size=8)

VALID = {
    "schema_version": 2,
    "slug": "s",
    "tasks": {"items": [{"id": "a"}]},
    "profiles": {"p": {"agent": "oracle"}},
}


def both(tbench, file) -> None:
    for command in ("validate", "plan", "migrate"):
        ran = tbench(command, file)
        assert ran.code in ((0, 2, 3) if command == "migrate" else (0, 2)), ran.err
        assert "Traceback" not in ran.err
        assert "error: unexpected" not in ran.err


@given(raw=tables)
def test_any_table(project, tbench, raw: dict) -> None:
    try:
        text = tomlkit.dumps(raw)
        tomllib.loads(text)
    except Exception:  # noqa: BLE001  what tomlkit cannot write is no TOML file
        return
    both(tbench, project.experiment(text))


@given(
    section=st.sampled_from(["run", "defaults", "tasks", "profiles", "datasets", "mcp", "artifacts", "analysis"]),
    value=values,
)
def test_one_wrong_section_in_a_valid_file(project, tbench, section: str, value: object) -> None:
    try:
        text = tomlkit.dumps({**VALID, section: value})
        tomllib.loads(text)
    except Exception:  # noqa: BLE001
        return
    both(tbench, project.experiment(text))


@given(data=st.binary(max_size=200), at=st.integers(0, 900), length=st.integers(0, 40))
@pytest.mark.parametrize("seed", ["seed_000.toml", "seed_001.toml"])
def test_damaged_bytes(project, tbench, seed: str, data: bytes, at: int, length: int) -> None:
    whole = (DATA / seed).read_bytes()
    file = project.root / "damaged.toml"
    file.write_bytes(whole[:at] + data + whole[at + length :])
    both(tbench, file)
