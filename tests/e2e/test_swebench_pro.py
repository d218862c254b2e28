"""The shipped instances of SWE-Bench Pro in the local sandbox: proven by `check`, attempted by agents, evaluated."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from conftest import REPO
from support import pace, tools
from support.experiments import Project
from support.registry import python_system
from terminalbench.harbor.read.results import read_trial
from terminalbench.harbor.read.suspicion import read_safety
from terminalbench.sandbox.helper import find_bwrap
from terminalbench.swebench_pro.dataset import Instance, image_of, read_rows
from terminalbench.swebench_pro.predictions import VerdictState, read_verdicts

sys.path.insert(0, str(REPO / "examples" / "swe_bench_pro"))
import build_instances  # ty: ignore[import-not-found]

OFFICIAL = REPO / "tests" / "support" / "official"
CONFTEST = "diff --git a/conftest.py b/conftest.py\nnew file mode 100644\n--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+# mine\n"
SILENT = (
    "diff --git a/tests/__init__.py b/tests/__init__.py\nnew file mode 100644\n--- /dev/null\n+++ b/tests/__init__.py\n"
    "@@ -0,0 +1,2 @@\n+import os\n+os._exit(1)\n"
)
SPOIL = """
cd /app && git config core.autocrlf true && git config diff.noprefix true
{ env; hostname; cat /proc/1/cmdline | tr '\\0' ' '; cat /proc/self/mountinfo; git log --all --format=%H; git fsck --unreachable; } > /logs/artifacts/seen 2>&1
git cat-file --batch-all-objects --batch='%(objectname)' >> /logs/artifacts/seen
grep -rhoE '[0-9a-f]{40}' /app /opt /etc /logs /root /home /workspace /tests /solution 2> /dev/null >> /logs/artifacts/seen
git apply /dev/stdin <<'GOLDEN'
@GOLDEN@GOLDEN
git -c user.name=a -c user.email=a@b commit -qam all --amend && rm -rf .git && echo new > 'a file "of mine".txt'
"""


@dataclass(frozen=True)
class Bench:
    """Tasks of the shipped instances that this machine can run, by the name of their repository."""

    lab: Any
    rows: dict[str, Instance]
    built: build_instances.Built
    tasks: Path


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, new_lab) -> Bench:
    root = tmp_path_factory.mktemp("pro") / "project"
    root.mkdir()
    lab, built = new_lab(Project(root)), build_instances.build(root / "built")
    ran = lab.tbench(
        "swebench-pro", "tasks", built.rows, "-o", "swebench-pro", "--evaluator", built.evaluator, "--build", "--host-base",
        "--memory-mb", "512", "--timeout", "120", "--json",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["drift"], found["argument_changed"], found["redacted"]) == ({}, [], [])
    rows = {one.repo.split("/")[1]: one for one in read_rows(str(built.rows)).instances}
    return Bench(lab, rows, built, root / "swebench-pro")


def experiment(bench: Bench, profiles: str, *names: str, dataset: str = "swebench-pro", name: str = "exp.toml") -> Path:
    items = ", ".join(f'{{ id = "{bench.rows[one].instance_id}" }}' for one in names)
    head = f'schema_version = 2\nslug = "s"\n[run]\ncontainer_env = "local"\n[tasks]\ndefault_dataset = "{dataset}"\n'
    return bench.lab.project.experiment(f"{head}items = [{items}]\n{profiles}", name)


def test_every_language_has_instances_and_what_cannot_run_here_is_skipped_by_name(bench: Bench) -> None:
    languages = [build_instances.language_of(name) for name in build_instances.NAMES]
    assert {language: languages.count(language) for language in languages} == {
        "python": 3,
        "javascript": 2,
        "typescript": 2,
        "go": 2,
    }
    for name in build_instances.NAMES:
        assert (name in bench.built.names) is (build_instances.missing_tool(build_instances.language_of(name)) is None)
    assert set(bench.built.names) | set(bench.built.skipped) == set(build_instances.NAMES)
    assert {"slug", "ledger", "settings"} <= set(bench.built.names)


@pytest.mark.parametrize(
    ("language", "tool"), [("javascript", tools.NODE), ("typescript", tools.TYPESCRIPT), ("go", tools.GO)]
)
def test_instances_run_in_every_language_whose_tool_is_there(bench: Bench, language: str, tool: tools.Tool) -> None:
    """They are among those that the next test proves; one without its tool is skipped by name."""
    tool.path()
    names = {name for name in build_instances.NAMES if build_instances.language_of(name) == language}
    assert len(names) == 2
    assert names <= set(bench.built.names), bench.built.skipped


def test_check_proves_that_golden_passes_and_that_nothing_fails(bench: Bench) -> None:
    """And that without a change fail_to_pass fails and pass_to_pass passes: a wrong list is found. Of `slug`: below."""
    wrong = bench.rows["ledger"].instance_id
    shutil.copytree(bench.tasks, bench.lab.root / "wrong")
    lists = bench.lab.root / "wrong" / wrong / "tests" / "tests.json"
    told = json.loads(lists.read_text())
    told["pass_to_pass"].append(told["fail_to_pass"].pop())
    told["fail_to_pass"].append(told["pass_to_pass"].pop(0))
    lists.write_text(json.dumps(told))
    names = [name for name in bench.built.names if name not in ("ledger", "slug")]
    file = experiment(bench, '[profiles.oracle]\nagent = "oracle"\n', *names)
    text = file.read_text().replace("items = [", f'items = [{{ id = "{wrong}", dataset = "wrong" }}, ')
    file.write_text(text)
    ran = bench.lab.tbench("check", file, "--json")
    found = {(one["task"]["dataset"], one["task"]["id"]): one for one in json.loads(ran.stdout)["tasks"]}
    problem = found.pop(("wrong", wrong))["problem"]
    assert (
        problem
        == "with an agent that does nothing, only 0% of its pass_to_pass tests pass; with an agent that does nothing, 25% of its fail_to_pass tests already pass"
    )
    assert {(one["oracle"], one["nop"], one["problem"]) for one in found.values()} == {("passed", "failed", None)}
    assert len(found) == len(names)


def test_an_agent_cannot_see_the_fix_nor_spoil_what_is_read_of_its_work(bench: Bench) -> None:
    one = bench.rows["slug"]
    profiles = {
        "spoiler": SPOIL.replace("@GOLDEN@", one.patch),
        "cheat": f"cd /app && git apply /dev/stdin <<'P'\n{one.patch}{CONFTEST}P\n",
    }
    tables = "".join(
        f'[profiles.{key}]\nagent = "lab_agents:Scripted"\noptions = {{ script = {json.dumps(script)} }}\n'
        for key, script in profiles.items()
    )
    ran = bench.lab.tbench("run", experiment(bench, tables, "slug"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    folders = {path.parent.name.rpartition("__")[2]: path for path in bench.lab.batch().folder.glob("runs/*__*/*__*/")}
    trial: dict[str, Any] = {key: read_trial(folder).trial for key, folder in folders.items()}
    assert {key: found.outcome for key, found in trial.items()} == {"spoiler": "passed", "cheat": "passed"}
    assert trial["spoiler"].rewards == {"reward": 1.0, "patch_applied": 1.0, "fail_to_pass": 1.0, "pass_to_pass": 1.0}
    assert trial["spoiler"].suspect == []
    assert trial["cheat"].suspect == ["test_config:conftest"]
    note = read_safety(folders["cheat"])
    assert note is not None
    assert note.test_config == ["conftest"]
    assert one.fixes[0][:4] not in folders["spoiler"].name, "a container is named by it, and its folder is mounted"
    left = folders["spoiler"] / "artifacts" / "logs" / "artifacts"
    patch = (left / "model.patch").read_text()
    assert '"b/a file \\"of mine\\".txt"' in patch
    assert "made/left.txt" not in patch  # of the image's build
    seen = (left / "seen").read_text(errors="replace")
    assert one.base_commit in seen
    assert "unreachable" not in seen
    for secret in (one.fixes[0], one.fixes[0][:12], one.instance_id, "Cut between words", "rpartition"):
        assert secret not in seen


@pytest.fixture(scope="module")
def evaluated(bench: Bench) -> tuple[Path, subprocess.CompletedProcess]:
    """Six pairs: golden, no final newline, silent tests, empty, and an instance whose parser is dead."""
    slug, pages, dead = (bench.rows[name] for name in ("slug", "ledger", "settings"))
    tasks = bench.lab.root / "evaluated"
    shutil.copytree(bench.tasks, tasks)
    (tasks / dead.instance_id / "tests" / "parser.py").write_text("raise SystemExit(1)\n")
    folder = bench.lab.root / "predictions"
    folder.mkdir()
    ours = [
        {"instance_id": slug.instance_id, "patch": slug.patch.rstrip("\n"), "prefix": "x"},
        {"instance_id": pages.instance_id, "patch": "wrong", "model_patch": pages.patch, "prefix": "x"},
        {"instance_id": dead.instance_id, "patch": dead.patch, "prefix": "x"},
    ]
    strange = [
        {"instance_id": slug.instance_id, "patch": "", "prefix": ""},
        {"instance_id": slug.instance_id, "patch": SILENT},
        {"instance_id": pages.instance_id, "model_patch": None},
        {"instance_id": "instance_of_another_dataset", "patch": "x"},
    ]
    (folder / "ours.json").write_text(json.dumps(ours))
    (folder / "a stranger's.jsonl").write_text("".join(json.dumps(one) + "\n" for one in strange))
    command = ["swebench-pro", "evaluate", "--predictions-dir", folder, "--tasks", tasks, "--container-env", "local"]
    ran = bench.lab.tbench(*command, "--max-workers", "2", "--timeout", "60")
    return folder, ran


def states(folder: Path) -> dict[tuple[str, str], tuple]:
    found = read_verdicts(folder / "evaluation" / "resolved.json")
    return {
        (one.instance_id.split("__")[1].split("-")[0], one.arm): (one.state, one.patch_applied, one.empty)
        for one in found.values()
    }


def test_a_strangers_predictions_have_three_states(evaluated) -> None:
    folder, ran = evaluated
    assert states(folder) == {
        ("slug", "ours"): (VerdictState.UNRESOLVED, False, False),
        ("ledger", "ours"): (VerdictState.RESOLVED, True, False),
        ("settings", "ours"): (VerdictState.EVAL_ERROR, None, False),
        ("slug", "a stranger's"): (VerdictState.UNRESOLVED, True, False),
        ("ledger", "a stranger's"): (VerdictState.UNRESOLVED, None, True),
    }
    assert ran.returncode == 3
    assert "a stranger's: 1 prediction for unknown instances: instance_of_another_dataset" in ran.stderr
    assert "a stranger's: 1 instance predicted twice" in ran.stderr
    assert "a stranger's: 1 prediction with an empty patch" in ran.stderr
    assert "the parser left no results" in ran.stderr, "what the evaluation says, not that it left no reward"
    rows = [line.split("  ") for line in ran.stdout.splitlines() if line.startswith(("ours", "a stranger's"))]
    assert [[cell.strip() for cell in row if cell.strip()][1:5] for row in rows] == [
        ["0", "2", "0", "0"],
        ["1", "1", "1", "1"],
    ]


def test_an_evaluation_that_is_run_again_keeps_verdicts_and_tries_errors_again(bench: Bench, evaluated) -> None:
    folder, _ = evaluated
    before = states(folder)
    tasks = bench.lab.root / "evaluated"
    command = ["swebench-pro", "evaluate", "--predictions-dir", folder, "--tasks", tasks, "--container-env", "local"]
    ran = bench.lab.tbench(*command, "--max-workers", "2", "--timeout", "60", "--json")
    document = json.loads(ran.stdout)
    assert states(folder) == before
    assert [path.name for path in map(Path, document["batches"])] == ["0", "0"]
    assert document["arms"]["ours"]["eval_error"] == 1
    assert {one["reason"] for one in document["verdicts"] if one["state"] == "eval_error"} == {
        "the parser left no results"
    }
    tried = sorted(len(list(Path(place).glob("runs/*/*/result.json"))) for place in document["batches"])
    assert tried == [2, 4]  # the one without a verdict twice, nothing else
    wrong = bench.lab.tbench(*command, "--arms", "none")
    assert (wrong.returncode, "arms with predictions: a stranger's, ours" in wrong.stderr) == (2, True)


HANGS = (
    "diff --git a/tiny/slug.py b/tiny/slug.py\n--- a/tiny/slug.py\n+++ b/tiny/slug.py\n@@ -1,3 +1,5 @@\n"
    ' """Short names for titles."""\n+import time\n+time.sleep(10_000)\n \n import re\n'
)


def test_a_patch_on_which_the_tests_hang_is_unresolved_and_tests_that_always_do_are_an_error(
    bench: Bench, tmp_path: Path
) -> None:
    """Both are run once more, on the golden patch."""
    slug, always = bench.rows["slug"], bench.rows["ledger"]
    for one in (slug, always):
        shutil.copytree(bench.tasks / one.instance_id, tmp_path / "tasks" / one.instance_id)
    (tmp_path / "tasks" / always.instance_id / "tests" / "run_script.sh").write_text("sleep 10000\n")
    (tmp_path / "predictions").mkdir()
    told = [{"instance_id": one.instance_id, "patch": HANGS if one is slug else one.patch} for one in (slug, always)]
    (tmp_path / "predictions" / "mine.json").write_text(json.dumps(told))
    command = ["swebench-pro", "evaluate", "--predictions-dir", tmp_path / "predictions", "--tasks", tmp_path / "tasks"]
    limit = ["--container-env", "local", "--max-workers", "2", "--timeout", str(pace.seconds(5))]
    ran = bench.lab.tbench(*command, *limit)
    assert ran.returncode == 3, ran.stderr
    assert states(tmp_path / "predictions") == {
        ("slug", "mine"): (VerdictState.UNRESOLVED, None, False),
        ("ledger", "mine"): (VerdictState.EVAL_ERROR, None, False),
    }
    assert f"mine: {slug.instance_id}: " in ran.stderr
    assert "without the agent's work, the same tests ended" in ran.stderr


def test_tasks_on_the_official_image_are_judged_without_docker(bench: Bench, tmp_path: Path) -> None:
    """As the dataset names it, from the store; here with a system of this machine's programs in it."""
    one = bench.rows["ledger"]
    python_system(tmp_path / "image")
    make = bench.built.evaluator / "dockerfiles" / "instance_dockerfile" / one.instance_id / "repo" / "make.sh"
    subprocess.run(["bash", make, tmp_path / "image" / "app"], check=True, timeout=600)
    image = image_of(one.instance_id, one.repo)
    assert bench.lab.tbench("images", "import", tmp_path / "image", image).returncode == 0
    rows = [line for line in bench.built.rows.read_text().splitlines() if one.instance_id in line]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    made = bench.lab.tbench(
        "swebench-pro", "tasks", tmp_path / "rows.jsonl", "-o", "official", "--evaluator", bench.built.evaluator,
        "--memory-mb", "512", "--timeout", "120",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    (tmp_path / "predictions").mkdir()
    for arm, patch in (("golden", one.patch), ("nothing", CONFTEST)):
        told = [{"instance_id": one.instance_id, "patch": patch}]
        (tmp_path / "predictions" / f"{arm}.json").write_text(json.dumps(told))
    command = ["swebench-pro", "evaluate", "--predictions-dir", tmp_path / "predictions", "--tasks", "official"]
    ran = bench.lab.tbench(*command, "--container-env", "local", "--max-workers", "2")
    assert ran.returncode == 0, ran.stderr
    found = {
        pair.arm: pair.state
        for pair in read_verdicts(tmp_path / "predictions" / "evaluation" / "resolved.json").values()
    }
    assert found == {"golden": VerdictState.RESOLVED, "nothing": VerdictState.UNRESOLVED}
    assert bench.lab.tbench("images", "prune", image, "--yes").returncode == 0


@pytest.mark.parametrize("which", ["stand-in", "checkout"])
def test_the_verdicts_are_those_of_the_official_evaluator(bench: Bench, evaluated, which: str, tmp_path: Path) -> None:
    """Its program as it is, over a stub of the container runtime and repositories that were not pruned."""
    source = Path(os.environ.get("SWEBENCH_PRO_EVALUATOR", "none"))
    if which == "checkout" and not (source / "swe_bench_pro_eval.py").is_file():
        pytest.skip("SWEBENCH_PRO_EVALUATOR names no checkout of the official evaluator")
    checkout = tmp_path / "evaluator"
    shutil.copytree(bench.built.evaluator, checkout)
    program = source if which == "checkout" else OFFICIAL
    shutil.copy(program / "swe_bench_pro_eval.py", checkout)
    if which == "checkout":
        shutil.copytree(program / "helper_code", checkout / "helper_code")
    dead = bench.rows["settings"].instance_id
    (checkout / "run_scripts" / dead / "parser.py").write_text("raise SystemExit(1)\n")
    images = {}
    for name in ("slug", "ledger", "settings"):
        one = bench.rows[name]
        make = checkout / "dockerfiles" / "instance_dockerfile" / one.instance_id / "repo" / "make.sh"
        images[image_of(one.instance_id, one.repo)] = str(tmp_path / name)
        subprocess.run(["bash", make, tmp_path / name], check=True, timeout=600)
    (tmp_path / "images.json").write_text(json.dumps(images))
    folder = tmp_path / "predictions"
    shutil.copytree(evaluated[0], folder, ignore=shutil.ignore_patterns("evaluation"))
    env = {
        "STUB_IMAGES": str(tmp_path / "images.json"),
        "STUB_BWRAP": str(find_bwrap()),
        "PYTHONPATH": str(OFFICIAL / "stub"),
    }
    command = ["swebench-pro", "evaluate", "--predictions-dir", folder, "--tasks", bench.lab.root / "evaluated"]
    with mock.patch.dict(bench.lab.env, env):
        ran = bench.lab.tbench(*command, "--eval-mode", "official", "--evaluator", checkout, "--max-workers", "2")
        assert ran.returncode == 0, "its false is a verdict"
        assert "officially unresolved: the parser left no results" in ran.stderr
        # The official program says of a run that never was what it says of a patch that silences all tests.
        ours = states(evaluated[0]) | {("settings", "ours"): (VerdictState.UNRESOLVED, None, False)}
        assert {pair: told[0] for pair, told in states(folder).items()} == {
            pair: told[0] for pair, told in ours.items()
        }
        output = next((folder / "evaluation" / "official").glob("ours-*/output"))
        results = json.loads((output / "eval_results.json").read_text())
        assert {name.split("__")[1].split("-")[0]: value for name, value in results.items()} == {
            "slug": False, "ledger": True, "settings": False,
        }  # fmt: skip
        # A container that leaves nothing inherits nothing: neither of another arm nor of an earlier patch.
        name = bench.rows["ledger"].instance_id
        (tmp_path / "images.json").write_text("{}")
        (folder / "ours.json").write_text(
            json.dumps([{"instance_id": name, "patch": bench.rows["ledger"].patch + "\n"}])
        )
        bench.lab.tbench(*command, "--eval-mode", "official", "--evaluator", checkout, "--arms", "ours")
    verdict = read_verdicts(folder / "evaluation" / "resolved.json")[name, "ours"]
    assert verdict.state in (VerdictState.UNRESOLVED, VerdictState.EVAL_ERROR)
    assert verdict.reason in (
        "officially unresolved: the parser left no results",
        "the evaluator ended with exit code 1",
    )
    assert verdict.patch == hashlib.sha256((bench.rows["ledger"].patch + "\n").encode()).hexdigest()
