from pathlib import Path

import pytest

from support.experiments import BASE, ORACLE, good, problems
from terminalbench.errors import UserError
from terminalbench.experiments.config import load


def test_the_smallest_experiment(project) -> None:
    experiment = good(project, BASE + ORACLE)
    assert experiment.name == experiment.slug == "s"
    assert [(t.id, t.dataset) for t in experiment.tasks] == [("a", "terminal-bench@2.0")]
    assert (experiment.run.attempts, experiment.run.container_env) == (1, "docker")
    assert experiment.run.run_timeout_sec is None
    assert experiment.baseline.key == "oracle"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schema_version = 3\n", "schema_version: must be 2, not 3"),
        ('schema_version = "2"\n', "schema_version: must be a whole number, not a string"),
        ("schema_version = true\n", "schema_version: must be a whole number, not true"),
        ("", "schema_version: is required (Must be 2.)"),
    ],
)
def test_the_version_must_be_two(project, text: str, expected: str) -> None:
    assert problems(project, text + 'slug = "s"\n[tasks]\nitems = [{ id = "a" }]\n' + ORACLE) == [expected]


@pytest.mark.parametrize("slug", [".", "..", "", "a/b", "a b", "é", "a\\n"])
def test_a_slug_cannot_leave_the_results_folder(project, slug: str) -> None:
    text = (BASE + ORACLE).replace('slug = "s"', f'slug = "{slug}"')
    assert any(line.startswith("slug: must be letters, digits") for line in problems(project, text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[run]\natempts = 5\n", 'run.atempts: unknown key (did you mean "attempts"?)'),
        ("[run]\nattempts = 0\n", "run.attempts: must be at least 1, not 0"),
        ("[run]\nattempts = 1.5\n", "run.attempts: must be a whole number, not 1.5"),
        ("[run]\nparallel = -1\n", "run.parallel: must be at least 0, not -1"),
        ("[run]\ntimeout_multiplier = 0\n", "run.timeout_multiplier: must be above 0, not 0"),
        ("[run]\ntimeout_multiplier = nan\n", "run.timeout_multiplier: must be a finite number"),
        ('[run]\nforce_rebuild = "no"\n', "run.force_rebuild: must be true or false, not a string"),
        ('[run]\ncontainer_env = "dokcer"\n', 'run.container_env: no environment is called "dokcer" (did you mean "docker"?)'),
        ('[run]\nexecutor = "slurm"\n', 'run.executor: no executor is called "slurm" (known: local, ray)'),
        ('[run]\nharbor_args = ["-k", "3"]\n', "run.harbor_args[0]: -k cannot be set here"),
        ('[run]\nharbor_args = "--debug"\n', "run.harbor_args: must be a list of strings, not a string"),
        ("""[run]\nharbor_args = ["--mounts", '[{"type": "bind", "source": "", "target": "/a"}]']\n""", "run.harbor_args[1]: must be a list of mounts, each with a source and a target"),
        ('[run]\nharbor_args = ["--mounts=[{]"]\n', "run.harbor_args[0]: is not readable as JSON"),
        ('[run]\nharbor_args = ["-k3"]\n', "run.harbor_args[0]: -k3 cannot be set here"),
        ('[run]\nharbor_args = ["--verifier", "x:Y"]\n', "run.harbor_args[0]: --verifier cannot be set here"),
        ('[run]\nharbor_args = ["--debgu"]\n', 'run.harbor_args[0]: --debgu cannot be set here: the plan or a profile decides it (did you mean "--debug"?)'),
        ("[profiles.q]\nagent = \"terminus-2\"\nmodel = \"m/x\"\noptions = { llm_kwargs = { since = [2026-01-31] } }\n", 'profiles.q.options.llm_kwargs.since[0]: is a date, which cannot be passed to an agent (write it as a string: "2026-01-31")'),
        ("[profiles.q]\nagent = \"terminus-2\"\nmodel = \"m/x\"\noptions = { llm_kwargs = { at = 07:30:00 } }\n", "profiles.q.options.llm_kwargs.at: is a time, which cannot be passed to an agent"),
        ("[profiles.q]\nagent = \"terminus-2\"\nmodel = \"m/x\"\noptions = { llm_kwargs = { top_p = nan } }\n", "profiles.q.options.llm_kwargs.top_p: must be a finite number"),
        ("[run]\nattempts = " + "9" * 400 + "\n", "run.attempts: must be at most 1e+15"),
        ('[run]\nray = { address = "6379" }\n', "run.ray.address: must be host:port, as 10.0.0.5:6379"),
        ('[run]\nexecutor = "a.b:C"\n', 'run.executor: no executor is called "a.b:C"'),
        ('[artifacts]\ntargets = ["../x"]\n', 'artifacts.targets[0]: must be the name of a folder'),
        ('[analysis]\nbaseline = "orcale"\n', 'analysis.baseline: no profile is called "orcale" (did you mean "oracle"?)'),
        ('[analysis]\ncontrasts = [["oracle", "oracle"]]\n', "analysis.contrasts[0]: must be two different profile keys"),
        ("[top_up]\nmax_attempts = 3\n", "top_up.interval_width: is required"),
        ("[top_up]\ninterval_width = 0.2\nmax_attempts = 2\n[run]\nattempts = 3\n", "top_up.max_attempts: is less than run.attempts (3)"),
        ("[top_up]\ninterval_width = 0\n", "top_up.interval_width: must be above 0, not 0"),
        ('[analysis]\ninfra_errors = "zero"\n', 'analysis.infra_errors: must be one of exclude, fail, not "zero"'),
        ('[analysis]\nalpha = 1\n', "analysis.alpha: must be at most 0.5, not 1"),
        ('[analysis]\nanalyzers = ["x"]\n', 'analysis.analyzers[0]: no analyzer is called "x" (known: behaviour'),
        ('[profiels.x]\nagent = "nop"\n', 'profiels: unknown key (did you mean "profiles"?)'),
        ('run = 3\n', "run: must be a table, not 3"),
    ],
)  # fmt: skip
def test_one_mistake_gives_one_line(project, text: str, expected: str) -> None:
    head = text if text.startswith("run =") else ""
    found = problems(project, head + BASE + ORACLE + ("" if head else text))
    assert len(found) == 1
    assert found[0].startswith(expected)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("[]", "tasks.items: must not be empty"),
        ('["a"]', 'tasks.items[0]: must be a table, not a string (as in { id = "..." })'),
        ('[{ id = "" }]', "tasks.items[0].id: must not be empty"),
        ("[{}]", "tasks.items[0].id: is required (Its id within the dataset; or a glob, as `git-*`, where"),
        ('[{ id = "a" }, { id = "a" }]', 'tasks.items[1]: task "a" of terminal-bench@2.0 is already tasks.items[0] (remove one)'),
        ('[{ id = "a", datset = "x@1" }]', 'tasks.items[0].datset: unknown key (did you mean "dataset"?)'),
        ('[{ id = "a", dataset = "nowhere" }]', 'tasks.items[0].dataset: "nowhere" is not a dataset'),
        ('[{ id = "a", dataset = "starer" }]', 'tasks.items[0].dataset: "starer" is not a dataset (did you mean "starter"?)'),
        ('[{ id = "a*" }]', "tasks.items[0].id: the tasks of terminal-bench@2.0 are known only when a run starts"),
        ('[{ id = "?", dataset = "starter" }]', 'tasks.items[0].id: "?" fits no task of starter'),
        ('"al"', 'tasks.items: must be one of all, not "al" (did you mean "all"?)'),
        ('[{ id = "a", dataset = "./none" }]', "tasks.items[0].dataset: no folder of tasks at"),
    ],
)  # fmt: skip
def test_wrong_tasks(project, items: str, expected: str) -> None:
    found = problems(project, BASE.replace('[{ id = "a" }]', items) + ORACLE)
    assert len(found) == 1
    assert found[0].startswith(expected)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ('"all"', ["a", "b1", "b2"]),
        ('[{ id = "b*" }]', ["b1", "b2"]),
        ('[{ id = "b*", timeout_sec = 9 }, { id = "*" }]', ["b1 9.0", "b2 9.0", "a"]),
        ('[{ id = "b[2]" }, { id = "a" }]', ["b2", "a"]),
        ('[{ id = "b*" }, { id = "b2", timeout_sec = 5 }]', ["b1", "b2 5.0"]),
        ('[{ id = "b2", timeout_sec = 5 }, { id = "*" }]', ["b2 5.0", "a", "b1"]),
    ],
)
def test_a_glob_is_the_tasks_that_fit_and_one_that_is_named_keeps_its_keys(project, items: str, expected: list) -> None:
    for task in ("b2", "a", "b1"):
        project.task("d", task)
    found = good(project, BASE.replace('[{ id = "a" }]', f'{items}\ndefault_dataset = "d"') + ORACLE).tasks
    assert [f"{t.id} {t.timeout_sec}" if t.timeout_sec else t.id for t in found] == expected


def test_the_same_id_in_two_datasets_is_two_tasks(project) -> None:
    text = BASE.replace('{ id = "a" }', '{ id = "a" }, { id = "a", dataset = "x@1", family = "f" }') + ORACLE
    assert [(t.dataset, t.family) for t in good(project, text).tasks] == [("terminal-bench@2.0", None), ("x@1", "f")]


def test_ten_mistakes_are_ten_lines_each_with_file_key_and_hint(project, tbench) -> None:
    file = project.experiment("""
schema_version = 2
slug = "a/b"
[run]
atempts = 5
parallel = "four"
container_env = "dokcer"
[tasks]
items = [{ id = "a" }, { id = "a" }, { idd = "b", id = "c" }]
[defaults]
agent = "claude-code"
[profiles.plain]
no_mcp = true
resoning = "low"
[profiles.other]
agent = "claud-code"
[profiles.oracle]
agent = "oracle"
mcp_servers = ["x"]
[profiles.tools]
prompt = "missing.md"
no_mcp = true
""")
    ran = tbench("validate", file)
    lines = ran.err.splitlines()
    assert ran.code == 2
    assert ran.out == ""
    assert len(lines) == 10
    numbers = [int(line.removeprefix(f"{file}:").partition(":")[0]) for line in lines]
    assert numbers == sorted(numbers)
    keys = [line.split(": ")[1] for line in lines]
    assert sorted(keys) == sorted([
        "slug", "run.atempts", "run.parallel", "run.container_env", "tasks.items[1]", "tasks.items[2].idd",
        "profiles.plain.resoning", "profiles.other.agent", "profiles.oracle.mcp_servers", "profiles.tools.prompt",
    ])  # fmt: skip
    assert sum(line.endswith(")") for line in lines) >= 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slug = \nx = 1", ":1: is not valid TOML: Invalid value (column 8) (put texts in quotes"),
        ('a = 1\nb = "open\n', r":2: is not valid TOML: Illegal character '\n' (column 10) (a quote is not closed"),
        ("a = 1\na = 2\n", ":2: is not valid TOML: Cannot overwrite a value (column 6) (the key is given twice"),
        ("a = " + "[" * 3000, "is not valid TOML"),
        ("a = " + "9" * 6000, "is not valid TOML"),
        ("\xff", "is not valid TOML"),
    ],
)
def test_what_is_no_toml_says_where(project, text: str, expected: str) -> None:
    file = project.experiment(text)
    with pytest.raises(UserError, match=str(file)) as caught:
        load(file)
    assert expected in str(caught.value)


def test_files_that_cannot_be_read(project) -> None:
    with pytest.raises(UserError, match="no such file.*tbench init"):
        load(project.root / "none.toml")
    with pytest.raises(UserError, match="is a folder"):
        load(project.root)
    file = project.root / "latin.toml"
    file.write_bytes(b'name = "caf\xe9"')
    with pytest.raises(UserError, match="is not UTF-8 text"):
        load(file)


def test_a_byte_order_mark_is_fine(project) -> None:
    assert good(project, "\ufeff" + (BASE + ORACLE).lstrip()).slug == "s"


@pytest.mark.parametrize(
    "text",
    [
        'slug = "s"\n[tasks]\ndataset = "d@1"\nids = ["a"]\n[[profiles]]\nkey = "x"\n',
        'schema_version = 2\nslug = "s"\n[tasks.a]\n[profiles.x]\nno_mcp = true\n',
    ],
)
def test_an_older_shape_names_migrate(project, tbench, text: str) -> None:
    ran = tbench("validate", project.experiment(text))
    assert ran.code == 2
    assert "tbench migrate" in ran.err


def test_relative_paths_start_at_the_project_root(project, tmp_path: Path) -> None:
    project.write("prompts/p.md", "be brief")
    profile = '[profiles.p]\nno_mcp = true\nprompt = "prompts/p.md"\n'
    file = project.write("deep/er/exp.toml", BASE + profile)
    assert load(file).root == project.root
    outside = tmp_path / "alone"
    outside.mkdir()
    (outside / "prompts").mkdir()
    (outside / "prompts" / "p.md").write_text("be brief")
    lone = outside / "exp.toml"
    lone.write_text(BASE + profile)
    assert load(lone).root == outside
    assert load(lone, project.root).root == project.root
    with pytest.raises(UserError, match="--root is not a folder"):
        load(lone, project.root / "none")


def test_the_nearest_git_folder_is_a_root_too(project) -> None:
    (project.root / "sub" / ".git").mkdir(parents=True)
    assert load(project.write("sub/e/exp.toml", BASE + ORACLE)).root == project.root / "sub"


def test_force_rebuild_by_environment(project, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = good(project, BASE + ORACLE)
    monkeypatch.setenv("TERMINALBENCH_FORCE_REBUILD", "0")
    assert not experiment.force_rebuild
    monkeypatch.setenv("TERMINALBENCH_FORCE_REBUILD", "1")
    assert experiment.force_rebuild


@pytest.mark.parametrize("slug", ["index.db", "index.db-wal", ".check"])
def test_slugs_that_have_another_use_are_refused(project, slug: str) -> None:
    text = (BASE + ORACLE).replace('slug = "s"', f'slug = "{slug}"')
    assert problems(project, text)[0].startswith("slug: is reserved")


@pytest.mark.parametrize("path", ["~nosuchuser/x", "a\\u0000b", "x" * 5000])
@pytest.mark.parametrize("key", ["prompt", "hooks", "env_file", "workflow", "skills"])
def test_what_is_no_path_is_a_problem_of_its_key(project, key: str, path: str) -> None:
    value = f'["{path}"]' if key == "skills" else f'"{path}"'
    found = problems(project, BASE + f"[profiles.p]\nno_mcp = true\n{key} = {value}\n")
    assert len(found) == 1
    assert found[0].startswith(f"profiles.p.{key}")
    assert len(found[0]) < 5400


def test_of_very_many_missing_tasks_the_first_are_named_and_the_others_counted(project, tbench, monkeypatch) -> None:
    from terminalbench.experiments import config

    asked: list[str] = []
    hint = config.did_you_mean
    monkeypatch.setattr(config, "did_you_mean", lambda name, known: asked.append(name) or hint(name, known))
    project.task("mine", "task-0")
    items = ", ".join(f'{{ id = "tusk-{n}" }}' for n in range(300))
    file = project.experiment(
        f'schema_version = 2\nslug = "s"\n[tasks]\ndefault_dataset = "mine"\nitems = [{items}]\n'
        '[profiles.p]\nagent = "oracle"\n'
    )
    ran = tbench("validate", file)
    assert ran.code == 2
    assert ran.err.count("mine has no task") == 50
    assert "and 250 more problems" in ran.err
    assert 'mine has no task "tusk-0" (did you mean "task-0"?)' in ran.err
    assert len(asked) == 20


def test_byte_order_marks_and_windows_line_ends_are_fine(project, tbench) -> None:
    file = project.experiment("")
    project.task("mine", "a")
    text = 'schema_version = 2\nslug = "s"\n[tasks]\ndefault_dataset = "mine"\nitems = [{ id = "a" }]\n[profiles.p]\nagent = "oracle"\n'
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert tbench("validate", file).code == 0, tbench("validate", file).err


def test_a_circle_of_profiles_is_one_mistake_and_a_key_stays_in_its_line(project, tbench) -> None:
    project.task("mine", "a")
    project.write("s/SKILL.md", "x")
    file = project.experiment(
        'schema_version = 2\nslug = "s"\n[tasks]\ndefault_dataset = "mine"\nitems = [{ id = "a" }]\n'
        '[profiles.a]\nextends = "b"\n[profiles.b]\nextends = "a"\n'
        '[profiles.c]\nno_mcp = true\nskills = ["s", "./s"]\n'
        '[profiles."x\\ny\\u001b[31m"]\nagent = "oracle"\n'
    )
    said = tbench("validate", file).err.splitlines()
    assert [line.removeprefix(f"{file}:") for line in said[:3]] == [
        "7: profiles.a.extends: is circular: a -> b -> a",
        "9: profiles.b.extends: is circular: b -> a -> b",
        f"12: profiles.c.skills[1]: {project.root / 's'} is named twice (remove one)",
    ]
    assert said[3].startswith(f'{file}:13: profiles."x\\u000Ay\\u001B[31m": the name must be')


LONG = "x" * 300


def test_paths_that_no_system_takes_are_problems_beside_the_others(project, tbench) -> None:
    """Each is one line, and none hides another."""
    project.task("mine", "b")
    tables = (
        f'[run]\nresults_root = "out/{LONG}"\nregistry_path = "{LONG}"\nattempts = 0\n'
        f'[datasets."d@1"]\npath = "~nosuchuser/x"\n[datasets."e@1"]\nregistry_path = "~nosuchuser/x"\n'
    )
    items = f'{{ id = "{LONG}", dataset = "mine" }}, {{ id = "x", dataset = "d@1" }}, {{ id = "x", dataset = "e@1" }}'
    file = project.experiment(BASE.replace('{ id = "a" }', items) + tables + ORACLE)
    ran = tbench("validate", file)
    assert ran.code == 2
    assert sorted(line.split(": ")[1] for line in ran.err.splitlines()) == [
        'datasets."d@1".path',
        'datasets."e@1".registry_path',
        "run.attempts",
        "run.registry_path",
        "run.results_root",
        "tasks.items[0].id",
    ]


@pytest.mark.parametrize("path", ["~nosuchuser/x", "a\\u0000b", LONG])
def test_results_go_to_a_path(project, path: str) -> None:
    found = problems(project, BASE + f'[run]\nresults_root = "{path}"\n' + ORACLE)
    assert len(found) == 1
    assert found[0].startswith("run.results_root: cannot be used as a path")


def test_results_do_not_go_to_a_file(project) -> None:
    project.write("taken", "")
    for place in ("taken", "taken/further/in"):
        found = problems(project, BASE + f'[run]\nresults_root = "{place}"\n' + ORACLE)
        assert found == [f"run.results_root: {project.root / 'taken'} is not a folder (name another folder)"]


def test_slugs_and_keys_of_profiles_fit_into_a_file_name(project) -> None:
    text = BASE.replace('"s"', f'"{"s" * 100}"')
    assert good(project, f'{text}[profiles.{"p" * 100}]\nagent = "oracle"\n').slug == "s" * 100
    text = BASE.replace('"s"', f'"{"s" * 101}"')
    found = problems(project, f'{text}[profiles.{"p" * 101}]\nagent = "oracle"\n')
    assert [line.split(":")[0] for line in found] == ["slug", f"profiles.{'p' * 101}"]
    assert all("at most 100" in line for line in found)


def test_the_quarantine_beside_an_experiment_is_checked_as_one(project, tbench) -> None:
    file = project.experiment(BASE + ORACLE)
    held = file.with_name("exp.quarantine.toml")
    held.write_text('[[task]]\nid = "a"\ndataset = "terminal-bench@2.0"\nreason = "is broken"\n')
    ran = tbench("validate", file, held)
    assert ran.code == 0, ran.err
    assert "ok: 1 task x 1 profile x 1 = 1 trial\n" in ran.out
    assert f"{held}: ok: 1 task in quarantine" in ran.out
    held.write_text('[[task]]\nid = "a"\ndatset = "terminal-bench@2.0"\nreason = ""\n')
    ran = tbench("validate", held)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 3
    assert f'{held}: task[0].datset: unknown key (did you mean "dataset"?)' in ran.err
