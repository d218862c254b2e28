"""Mounts and programs of a profile: what is mounted, what is refused, and that one byte of it is another profile."""

import json
from pathlib import Path

import pytest

from terminalbench.errors import InvalidFile
from terminalbench.experiments.config import load
from terminalbench.experiments.mounts import Mount, find_program
from terminalbench.harbor.jobs import job_config

HEAD = """
schema_version = 2
slug = "s"
[run]
container_env = "local"
{run}
[tasks]
default_dataset = "starter"
items = [{{ id = "git-lost-commit" }}]
[profiles.a]
agent = "nop"
{profile}
"""


def write(folder: Path, profile: str, run: str = "") -> Path:
    file = folder / "experiments" / "s.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(HEAD.format(profile=profile, run=run))
    return file


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a package of npm for all, one of a project, a virtual environment and a script."""
    prefix, project = tmp_path / "prefix", tmp_path / "work"
    script(prefix / "lib/node_modules/@me/cli/bin/cli.js", '#!/usr/bin/env node\nrequire("../lib/x")\n')
    script(prefix / "lib/node_modules/@me/cli/lib/x.js", "1")
    script(prefix / "lib/node_modules/other/x.js", "1")
    script(project / "node_modules/tool/cli.js", "#!/usr/bin/env -S node --no-warnings\n")
    script(tmp_path / "venv/bin/pytool", f"#!{tmp_path}/venv/bin/python\n")
    script(tmp_path / "py/3.12/bin/python3.12", "ELF")
    (tmp_path / "venv/bin/python").symlink_to(tmp_path / "py/current/bin/python3.12")
    (tmp_path / "py/current").symlink_to(tmp_path / "py/3.12")
    (tmp_path / "venv/pyvenv.cfg").write_text(f"home = {tmp_path}/py/current/bin\nversion = 3.12.1\n")
    script(tmp_path / "bin/node", "ELF")
    script(tmp_path / "bin/plain", "#!/bin/sh\n")
    (tmp_path / "bin/cli").symlink_to(prefix / "lib/node_modules/@me/cli/bin/cli.js")
    (tmp_path / "bin/tool").symlink_to(project / "node_modules/tool/cli.js")
    (tmp_path / "bin/pytool").symlink_to(tmp_path / "venv/bin/pytool")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "mounted"),
    [
        ("cli", {"prefix/lib/node_modules/@me/cli": None, "bin/node": "/usr/local/bin/node"}),
        ("tool", {"work/node_modules": None, "bin/node": "/usr/local/bin/node"}),
        ("plain", {"bin/plain": "/usr/local/bin/plain"}),
    ],
)
def test_a_program_comes_with_what_it_needs(places: Path, name: str, mounted: dict[str, str | None]) -> None:
    program = find_program(name)
    assert program is not None
    told = {str(one.source.relative_to(places)): one.target for one in program.mounts}
    assert told == {source: target or str(places / source) for source, target in mounted.items()}


def test_a_virtual_environment_comes_with_its_python_under_each_of_its_names(places: Path) -> None:
    program = find_program("pytool")
    assert program is not None
    assert [(str(one.source.relative_to(places)), one.target) for one in program.mounts] == [
        ("venv/bin/pytool", "/usr/local/bin/pytool"),
        ("venv", f"{places}/venv"),
        ("py/3.12", f"{places}/py/current"),
        ("py/3.12", f"{places}/py/3.12"),
    ]


def test_a_python_is_its_environment_or_its_whole_installation(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{places}/venv/bin")
    program = find_program("python")
    assert program is not None
    assert [one.target for one in program.mounts] == [f"{places}/{name}" for name in ("venv", "py/current", "py/3.12")]
    assert program.script == f'#!/bin/sh\nexec "{places}/venv/bin/python" "$@"\n'
    monkeypatch.setenv("PATH", f"{places}/py/current/bin")
    program = find_program("python3.12")
    assert program is not None
    assert [one.target for one in program.mounts] == [f"{places}/py/3.12"]


def test_one_byte_of_a_program_or_a_mount_is_another_profile(places: Path) -> None:
    tools = script(places / "tools/x.sh", "one").parent
    file = write(places, 'programs = ["cli"]\nmounts = { "tools" = "/opt/tools" }')
    first = load(file, places).profiles[0]
    assert set(first.content) >= {"programs", "mounts"}
    script(places / "prefix/lib/node_modules/other/x.js", "2")
    assert load(file, places).profiles[0].id == first.id, "another package of the same place is none of its business"
    script(places / "prefix/lib/node_modules/@me/cli/lib/x.js", "2")
    second = load(file, places).profiles[0]
    script(tools / "x.sh", "two")
    third = load(file, places).profiles[0]
    (tools / "x.sh").chmod(0o644)
    assert len({first.id, second.id, third.id, load(file, places).profiles[0].id}) == 4
    entries = {one["target"]: one for one in _entries(file, places)}
    assert entries["/opt/tools"] == {
        "type": "bind",
        "source": str(tools),
        "target": "/opt/tools",
        "read_only": True,
    }
    start = Path(entries["/usr/local/bin/cli"]["source"])
    assert start.read_text() == (
        f'#!/bin/sh\nexec /usr/local/bin/node "{places}/prefix/lib/node_modules/@me/cli/bin/cli.js" "$@"\n'
    )
    assert start.stat().st_mode & 0o777 == 0o755


def _entries(file: Path, root: Path) -> list[dict[str, str]]:
    from datetime import UTC, datetime

    from terminalbench.experiments.batch import Batch
    from terminalbench.experiments.planner import make_plan

    experiment, batch = load(file, root), Batch(root / "results" / "s" / "0")
    plan = make_plan(experiment, batch, datetime.now(UTC))
    return job_config(experiment, experiment.profiles[0], plan.jobs[0], batch)["environment"]["mounts"]


def test_what_harbors_arguments_mount_is_in_the_id(places: Path) -> None:
    mount = {"type": "bind", "source": str(places / "bin/plain"), "target": "/usr/local/bin/plain"}
    file = write(places, "", f"harbor_args = ['--mounts', '{json.dumps([mount])}']")
    first = load(file, places).profiles[0]
    assert _entries(file, places) == [mount], "as it was told"
    script(places / "bin/plain", "#!/bin/sh\n#\n")
    assert load(file, places).profiles[0].id != first.id
    both = write(places, 'programs = ["plain"]', f"harbor_args = ['--mounts', '{json.dumps([mount])}']")
    with pytest.raises(InvalidFile, match=r"its --mounts would replace the mounts of the profiles"):
        load(both, places)


@pytest.mark.parametrize(
    ("profile", "told"),
    [
        (
            'programs = ["plian"]',
            'profiles.a.programs[0]: no program plian on PATH (install it, or mount it with mounts; did you mean "plain"?)',
        ),
        ('programs = ["bin/plain"]', 'profiles.a.programs[0]: "bin/plain" is not the name of another program'),
        ('programs = ["plain", "plain"]', 'profiles.a.programs[1]: "plain" is not the name of another program'),
        ('mounts = { "nothing" = "/x" }', "profiles.a.mounts.nothing: no file or folder at"),
        ('mounts = { "bin" = "opt" }', 'profiles.a.mounts.bin: "opt" is not a path in the sandbox'),
        ('mounts = { "bin" = "/opt/../etc" }', 'profiles.a.mounts.bin: "/opt/../etc" is not a path in the sandbox'),
        ('mounts = { "bin" = "/x", "venv" = "/x/" }', "profiles.a.mounts.venv: /x is"),
        ('mounts = { "bin" = "/tests/x" }', "profiles.a.mounts.bin: the agent must not change /tests"),
        ('mounts = { "secrets" = "/x" }', "which the agent would see (mount a separate folder)"),
        ('mounts = { "results" = "/x" }', "holds the results, which the agent would see"),
    ],
)
def test_what_cannot_be_mounted_is_said(places: Path, profile: str, told: str) -> None:
    script(places / "secrets/.env", "KEY=1")
    (places / "results").mkdir()
    with pytest.raises(InvalidFile) as caught:
        load(write(places, profile), places, thorough=True)
    assert told in str(caught.value)


def test_a_machine_without_the_program_can_still_read_the_experiment(places: Path) -> None:
    experiment = load(write(places, 'programs = ["not-here"]'), places)
    assert (
        "profiles.a.programs[0]: no program not-here on PATH, so the profile's id does not include it"
        in experiment.notes
    )


def test_large_folders_are_told_apart_by_names_sizes_and_times(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("terminalbench.experiments.mounts._MOST_FILES", 2)
    for name in ("a", "b", "c"):
        script(places / "big" / name, name)
    before = Mount(places / "big", "/x").digest
    assert Mount(places / "big", "/x").digest == before
    experiment = load(write(places, 'mounts = { "big" = "/x" }'), places, thorough=True)
    assert any("is large: the profile's id includes its names, sizes and times" in note for note in experiment.notes)
    script(places / "big" / "b", "z")
    assert Mount(places / "big", "/x").digest != before
