import tomllib

import pytest

from conftest import DATA
from terminalbench.experiments.migrate import migrate

TABLES = """\
schema_version = 2 # v
slug = "s"

[run]
extra_flags = ["--debug"]
harbor_bin = "harbor"

[tasks]
default_dataset = "terminal-bench@2.0" # where from

[tasks.b]
[tasks.a]
dataset = "o@1"
[tasks."c.d"]

[defaults]
claude_version = "2.0.76" # pinned
install_r_languageserver = true

# the plain one
[profiles.text]
no_mcp = true # no tools
claude_version = "2.0.77"
"""


def test_the_list_shape(project) -> None:
    migration = migrate(DATA / "seed_001.toml")
    new = tomllib.loads(migration.text)
    old = tomllib.loads((DATA / "seed_001.toml").read_text())
    assert new["schema_version"] == 2
    assert [item["id"] for item in new["tasks"]["items"]] == old["tasks"]["ids"]
    assert new["tasks"]["default_dataset"] == "terminal-bench@2.0"
    assert list(new["profiles"]) == ["text", "codegraph", "codecanvas"]
    assert new["profiles"]["codecanvas"] == {"mcp_servers": ["codecanvas"], "hooks": "codecanvas/hooks.json"}
    assert new["mcp"] == {"aliases": {"codegraph": "locagent"}}
    assert {k: new[k] for k in ("run", "defaults", "artifacts")} == {
        k: old[k] for k in ("run", "defaults", "artifacts")
    }
    for comment in (
        "# base output dir",
        "# harbor -n",
        "# local-only path; not committed",
        "# Copy these",
        "# standardized",
    ):
        assert comment in migration.text
    assert len(migration.changes) == 5


def test_the_table_shape(project) -> None:
    migration = migrate(project.experiment(TABLES))
    new = tomllib.loads(migration.text)
    assert new["tasks"] == {
        "default_dataset": "terminal-bench@2.0",
        "items": [{"id": "b"}, {"id": "a", "dataset": "o@1"}, {"id": "c.d"}],
    }
    assert new["run"] == {"harbor_args": ["--debug"]}
    assert new["defaults"] == {"agent_version": "2.0.76"}
    assert new["profiles"]["text"] == {"no_mcp": True, "agent_version": "2.0.77"}
    for comment in ("# v", "# where from", "# the plain one", "# no tools", "# pinned"):
        assert comment in migration.text
    assert "run.harbor_bin: removed (Harbor is pinned with this project)" in migration.changes


def test_the_result_validates(project, tbench) -> None:
    new = project.write("experiments/new.toml", migrate(project.experiment(TABLES)).text)
    assert tbench("validate", new).code == 0
    assert migrate(new).changes == ()


def test_comments_behind_list_items_and_keys_move_along(project) -> None:
    text = (
        'slug = "s"\n[tasks]\nids = [\n  "a", # first\n  "b",\n]\n[[profiles]]\nkey = "x.y" # the one\nno_mcp = true\n'
    )
    migrated = migrate(project.experiment(text)).text
    assert '{id = "a"}, # first' in migrated
    assert '[profiles."x.y"] # the one' in migrated


def test_printing_leaves_the_file_and_standard_output_is_toml(project, tbench) -> None:
    file = project.experiment(TABLES)
    ran = tbench("migrate", file)
    assert ran.code == 0
    assert tomllib.loads(ran.out)["schema_version"] == 2
    assert "renamed to harbor_args" in ran.err
    assert file.read_text() == TABLES


def test_an_existing_file_is_not_overwritten(project, tbench) -> None:
    file = project.experiment(TABLES)
    ran = tbench("migrate", file, "-o", file)
    assert ran.code == 2
    assert "exists already" in ran.err
    assert tbench("migrate", file, "-o", file, "--force").code == 0
    assert tomllib.loads(file.read_text())["tasks"]["items"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", "it has no [tasks] or no profiles"),
        ('slug = "s"\n[tasks]\nids = ["a"]\n[[profiles]]\nno_mcp = true\n', "has no key"),
        (
            'slug = "s"\n[tasks]\nids = ["a"]\n[[profiles]]\nkey = "a"\n[[profiles]]\nkey = "a"\n',
            'a profile "a" exists already',
        ),
        ('slug = "s"\n[tasks.my.task]\n[profiles.a]\n', 'quote the id: [tasks."my.task"]'),
        (
            'schema_version = 3\nslug = "s"\n[tasks]\nids = ["a"]\n[[profiles]]\nkey = "a"\n',
            "schema_version 3 is unknown",
        ),
        ('slug = "s"\n[tasks]\nids = [1, ["x"]]\n[[profiles]]\nkey = "a"\n', "tasks.ids: must be a list of strings"),
    ],
)
def test_what_cannot_be_converted_says_why(project, tbench, text: str, expected: str) -> None:
    ran = tbench("migrate", project.experiment(text))
    assert ran.code == 2
    assert expected in ran.err


@pytest.mark.parametrize(
    "text",
    [
        'slug = "s"\ntasks.dataset = "d@1"\ntasks.ids = ["a"]\nprofiles = [{ key = "x", no_mcp = true }]\n',
        'slug = "s"\n[tasks.a]\n[profiles.x]\nno_mcp = true\n[tasks.b]\n',
        'slug = "s"\nname = """\nschema_version = 1\n"""\n[tasks]\nids = ["a"]\n[[profiles]]\nkey = "x"\nno_mcp = true\n',
        'slug = "s"\ntasks = { dataset = "d@1", ids = ["a"] }\n[[profiles]]\nkey = "x"\nno_mcp = true\n',
    ],
)
def test_odd_layouts_are_converted_too(project, tbench, text: str) -> None:
    migrated = migrate(project.experiment(text))
    new = tomllib.loads(migrated.text)
    assert new["tasks"]["items"][0] == {"id": "a"}
    assert new["profiles"] == {"x": {"no_mcp": True}}
    if "name" in new:
        assert new["name"] == "schema_version = 1\n"
    assert tbench("validate", project.write("experiments/new.toml", migrated.text)).code == 0


def test_nothing_is_dropped_without_a_word(project) -> None:
    text = 'slug = "s"\n[run]\nextra_flags = ["--debug"]\nharbor_args = ["-q"]\n[tasks.a]\ntimeout = 3\n[profiles.x]\nno_mcp = true\n'
    migrated = migrate(project.experiment(text))
    assert tomllib.loads(migrated.text)["run"] == {"harbor_args": ["-q", "--debug"]}
    assert any("tasks.a: dropped timeout" in change for change in migrated.changes)
    assert any("run.extra_flags: added to harbor_args" in change for change in migrated.changes)


def test_a_list_and_tables_of_tasks_become_one_list(project, tbench) -> None:
    text = (
        'slug = "s"\n[tasks]\ndataset = "d@1"\nids = ["a", "c"] # both\n'
        '[tasks.b]\nfamily = "f"\n[tasks.c]\ndataset = "o@2"\n[[profiles]]\nkey = "x"\nno_mcp = true\n'
    )
    migrated = migrate(project.experiment(text))
    assert tomllib.loads(migrated.text)["tasks"] == {
        "default_dataset": "d@1",
        "items": [{"id": "a"}, {"id": "c", "dataset": "o@2"}, {"id": "b", "family": "f"}],
    }
    assert "tasks.ids: 2 tasks moved to tasks.items" in migrated.changes
    assert "[tasks.<id>]: 2 tables moved to tasks.items" in migrated.changes
    assert not any("layout" in change for change in migrated.changes)
    assert tbench("validate", project.write("experiments/new.toml", migrated.text)).code == 0


def test_what_the_older_runner_assumed_is_written_and_said(project, tbench) -> None:
    project.server("codegraph", folder="locagent")
    text = (
        '# mine\n[run]\nrun_timeout_sec = 0 # none\n[tasks]\ndataset = "d@1"\nids = ["a"]\n'
        '[[profiles]]\nkey = "x"\nmcp_servers = ["codegraph"]\n'
    )
    new = project.root / "experiments/new.toml"
    ran = tbench("migrate", project.experiment(text, "my exp.toml"), "-o", new)
    assert ran.code == 0
    assert 'slug: was missing; "my-exp" is made from the name of the file' in ran.err
    assert "run.run_timeout_sec: 0 meant no limit" in ran.err
    assert "mcp.aliases.codegraph: set to locagent" in ran.err
    made = tomllib.loads(new.read_text())
    assert (made["slug"], made["run"], made["mcp"]) == ("my-exp", {}, {"aliases": {"codegraph": "locagent"}})
    assert new.read_text().startswith("# mine\n")
    assert tbench("validate", new).code == 0
    project.server("codegraph")
    assert "mcp" not in tomllib.loads(migrate(project.root / "experiments/my exp.toml").text)


def test_what_is_left_to_mend_is_told_with_the_lines_of_the_new_file(project, tbench) -> None:
    new = project.root / "experiments/new.toml"
    ran = tbench("migrate", DATA / "seed_001.toml", "-o", new)
    assert ran.code == 3
    line = next(i for i, text in enumerate(new.read_text().splitlines(), 1) if text == 'mcp_servers = ["codecanvas"]')
    assert f"{new}:{line}: profiles.codecanvas.mcp_servers: no MCP configuration at" in ran.err
    checked = tbench("validate", new)
    assert checked.code == 2
    assert checked.err.splitlines() == [text for text in ran.err.splitlines() if text.startswith(f"{new}:")]
