"""Rows as Harbor tasks: what is written, what is refused, and what must not get inside."""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from swebench_pro.instances import BASE, FIX, ID, checkout_for, row
from terminalbench.errors import UserError
from terminalbench.swebench_pro.convert import Conversion, convert, files_of
from terminalbench.swebench_pro.dataset import SourceRows, instance_of
from terminalbench.swebench_pro.official import Checkout


def converted(tmp_path: Path, *rows: dict, **files: str) -> Conversion:
    instances = tuple(map(instance_of, rows))
    checkout = checkout_for(tmp_path / "evaluator", *(one.instance_id for one in instances), **files)
    return convert(
        SourceRows("rows.jsonl", instances, (), "abc123"), instances, Checkout.at(checkout), tmp_path / "out"
    )


def test_a_task_has_the_official_image_scripts_and_env_and_a_verifier_of_its_own(tmp_path: Path) -> None:
    done = converted(tmp_path, row(), base='FROM x\nENV A="1 2"\n  ENV B 3\n', instance="FROM base\nENV C=4")
    folder = tmp_path / "out" / ID
    assert done.written == [ID]
    task = tomllib.loads((folder / "task.toml").read_text())
    assert task["verifier"]["environment_mode"] == "separate"
    assert task["agent"]["network_mode"] == "no-network"
    assert task["metadata"] | {"evaluator_commit": ""} == {
        "swebench_pro": True,
        "instance_id_hash": task["task"]["name"].rpartition("-")[2],
        "repo": "acme/tool",
        "language": "python",
        "base_commit": BASE,
        "workdir": "/app",
        "n_fail_to_pass": 1,
        "n_pass_to_pass": 1,
        "dataset_revision": "abc123",
        "evaluator_commit": "",
    }
    dockerfile = (folder / "environment/Dockerfile").read_text()
    assert dockerfile.startswith(f"FROM jefzda/sweap-images:acme.tool-{ID.removeprefix('instance_')}"[:140])
    assert "\nENTRYPOINT []\n" in dockerfile
    entry = (folder / "tests/entry.sh").read_text()
    assert 'export A="1 2"\nexport B 3\nexport C=4\n' in entry
    assert "run_script.sh test_tool.py >" in entry
    assert (folder / "tests/run_script.sh").read_text() == "#!/bin/bash\necho run\n"
    assert json.loads((folder / "tests/tests.json").read_text())["pass_to_pass"] == ["test_tool.py::test_b"]
    assert json.loads((tmp_path / "out/swebench-pro.json").read_text())["revision"] == "abc123"
    for script in folder.rglob("*.sh"):
        subprocess.run(["bash", "-n", script], check=True)


def test_neither_prompt_nor_environment_know_the_fix(tmp_path: Path) -> None:
    said = f"Fixed by {FIX} and {FIX[:9].upper()}, not by {FIX[:9]}0."
    done = converted(tmp_path, row(problem_statement=said))
    folder = tmp_path / "out" / ID
    assert "Fixed by [commit] and [commit], not by fffffffff0." in (folder / "instruction.md").read_text()
    assert done.redacted == [ID]
    for name in ("task.toml", "instruction.md", "environment/prune.sh", "tests/entry.sh", "tests/tests.json"):
        assert FIX not in (folder / name).read_text()
    # The build needs both, and leaves neither in what it makes: `FROM` is a name of the host, prune.sh is removed.
    lines = [line for line in (folder / "environment/Dockerfile").read_text().splitlines() if FIX in line]
    assert [line.split()[0] for line in lines] == ["FROM", "RUN"]
    assert lines[1].endswith("&& rm /prune.sh")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"before_repo_set_cmd": f"x\ngit checkout {FIX} -- other.py"},
            "test_patch and before_repo_set_cmd name different files: other.py, test_tool.py",
        ),
        ({"test_patch": "no patch"}, "test_patch names no file"),
        ({"before_repo_set_cmd": "make tests"}, "the last line of before_repo_set_cmd does not check out its tests"),
        ({"instance_id": "instance_unknown"}, "the evaluator has no run_scripts/instance_unknown/run_script.sh"),
    ],
)
def test_a_row_that_cannot_be_judged_is_refused_by_name(tmp_path: Path, changes: dict, said: str) -> None:
    one = row(**changes)
    checkout = Checkout.at(checkout_for(tmp_path / "evaluator", ID))
    done = convert(SourceRows("r", (), ()), [instance_of(one)], checkout, tmp_path / "out")
    assert done.written == []
    assert str(done.refused[0]) == f"{one['instance_id']}: {said}"


def test_the_argument_of_the_run_script_is_unquoted_and_what_bash_changes_is_listed(tmp_path: Path) -> None:
    plain, odd = "instance_plain", "instance_odd"
    done = converted(
        tmp_path,
        row(instance_id=plain, selected_test_files_to_run=["TestA", "TestB/sub#01", "t[1]"]),
        row(instance_id=odd, selected_test_files_to_run=["TestA/it's", "b"]),
    )
    assert done.argument_changed == [odd]
    assert "run_script.sh TestA,TestB/sub#01,t[1] >" in (tmp_path / "out" / plain / "tests/entry.sh").read_text()
    assert "run_script.sh TestA/it's,b >" in (tmp_path / "out" / odd / "tests/entry.sh").read_text()


def test_lists_come_from_the_rows_and_a_difference_to_the_checkout_is_told(tmp_path: Path) -> None:
    info = 'Instance ID: x\nFAIL_TO_PASS: ["test_tool.py::test_a"]\nPASS_TO_PASS: []\nTest Files: ["test_tool.py"]\n'
    assert converted(tmp_path, row(), info=info).drift == {ID: ["pass_to_pass"]}


def test_a_task_is_replaced_whole_and_another_folder_is_left_alone(tmp_path: Path) -> None:
    converted(tmp_path, row())
    (tmp_path / "out" / ID / "tests" / "old.txt").write_text("of an earlier conversion")
    converted(tmp_path, row())
    assert not (tmp_path / "out" / ID / "tests" / "old.txt").exists()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [ID, "swebench-pro.json"]
    (tmp_path / "out" / ID / "instance.json").unlink()
    with pytest.raises(UserError, match="contains no SWE-Bench Pro task"):
        converted(tmp_path, row())


def test_a_checkout_is_known_by_its_commit_else_by_its_files(tmp_path: Path) -> None:
    folder = checkout_for(tmp_path / "evaluator", ID)
    first = Checkout.at(folder).commit
    assert first.startswith("sha256:")
    (folder / "run_scripts" / ID / "parser.py").write_text("other")
    assert Checkout.at(folder).commit != first
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert Checkout.at(folder).commit == head
    (folder / "run_scripts" / ID / "parser.py").write_text("changed")
    assert Checkout.at(folder).commit == f"{head}-dirty"
    with pytest.raises(UserError, match="scaleapi/SWE-bench_Pro-os, made by git clone"):
        Checkout.at(tmp_path)


def test_the_files_of_a_patch_are_named_as_git_quotes_them() -> None:
    patch = (
        'diff --git a/a b.txt b/a b.txt\ndiff --git "a/\\303\\274\\t.py" "b/\\303\\274\\t.py"\ndiff --git a/old b/new\n'
    )
    assert files_of(patch) == {"a b.txt", "ü\t.py", "old", "new"}


def test_tasks_writes_what_it_can_and_names_the_rest(tmp_path: Path, tbench) -> None:
    rows = tmp_path / "rows.jsonl"
    ids = [f"instance_{n}" for n in range(81)]
    rows.write_text(
        "".join(
            json.dumps(row(instance_id=name, patch="" if name == ids[7] else row()["patch"])) + "\n" for name in ids
        )
    )
    checkout = checkout_for(tmp_path / "evaluator", *ids)
    ran = tbench(
        "swebench-pro", "tasks", str(rows), "-o", str(tmp_path / "out"), "--evaluator", str(checkout), "--json"
    )
    assert ran.code == 3
    assert "refused: row 8 (instance_7): patch is empty" in ran.err
    assert len(json.loads(ran.out)["written"]) == 80
    ran = tbench(
        "swebench-pro", "tasks", str(rows), "-o", str(tmp_path / "few"), "--evaluator", str(checkout),
        "--instances", "_7,_8", "--max-instances", "2", "--agent-network", "public",
    )  # fmt: skip
    assert "2 tasks in" in ran.out
    assert "the agent has network" in ran.out
    assert sorted(path.name for path in (tmp_path / "few").glob("*/")) == ["instance_70", "instance_8"]
    ran = tbench("swebench-pro", "tasks", str(rows), "-o", str(tmp_path / "x"), "--evaluator", str(tmp_path))
    assert (ran.code, "git clone" in ran.err) == (2, True)
