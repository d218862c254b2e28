"""Files of predictions, ours or a stranger's, and the verdicts that are kept of them."""

import json
from pathlib import Path

import pytest

from swebench_pro.instances import checkout_for
from terminalbench.errors import UserError
from terminalbench.swebench_pro import official
from terminalbench.swebench_pro.official import Checkout
from terminalbench.swebench_pro.predictions import PatchVerdict, Predictions, VerdictState, count, find, merge, read
from terminalbench.swebench_pro.predictions import read_verdicts as read_verdicts

KNOWN = ("a", "b", "c")


def put(folder: Path, name: str, content: object) -> Path:
    file = folder / name
    lines = (
        "".join(json.dumps(one) + "\n" for one in content) if name.endswith("l") and isinstance(content, list) else None
    )
    file.write_text(lines if lines is not None else content if isinstance(content, str) else json.dumps(content))
    return file


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_patches_are_as_they_stand_and_what_is_odd_is_told(tmp_path: Path, name: str) -> None:
    entries = [
        {"instance_id": "a", "patch": "old", "prefix": "p"},
        {"instance_id": "a", "patch": "lost", "model_patch": " kept without end", "prefix": "p"},
        {"instance_id": "b", "model_patch": None},
        {"instance_id": "z", "patch": "x"},
    ]
    found = read(put(tmp_path, name, entries), KNOWN)
    assert found.patches == {"a": " kept without end", "b": ""}
    assert (found.duplicates, found.unknown, found.missing, found.empty) == (("a",), ("z",), ("c",), ("b",))
    assert found.arm == "x"
    table = read(put(tmp_path, "table.json", {"a": " kept without end", "b": {"patch": ""}}), KNOWN)
    assert table.digest == found.digest
    twice = read(put(tmp_path, "twice.json", '{"a": "first", "b": "x", "a": "last"}'), KNOWN)
    assert (twice.patches["a"], twice.duplicates) == ("last", ("a",))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[", "is neither JSON nor JSON lines"),
        ([{"patch": "x"}], "entry 1: has no instance_id"),
        ([{"instance_id": "a"}], "entry 1: has neither patch nor model_patch"),
        ([{"instance_id": "a", "patch": 3}], "entry 1: patch must be a text, not int"),
        ([7], "entry 1: has no instance_id"),
        ('[{"instance_id": "a", "patch": "\\ud800"}]', "patch is not valid Unicode"),
    ],
)
def test_a_file_that_is_none_is_one_message(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read(put(tmp_path, "x.json", content), KNOWN)


def test_the_files_of_a_folder_are_arms(tmp_path: Path) -> None:
    for name in ("b.json", "a.jsonl", "notes.md"):
        put(tmp_path, name, "[]")
    (tmp_path / "evaluation.json").mkdir()
    assert [path.name for path in find(tmp_path)] == ["a.jsonl", "b.json"]
    assert [path.name for path in find(tmp_path, ["b"])] == ["b.json"]
    with pytest.raises(UserError, match="no predictions of c.*arms with predictions: a, b"):
        find(tmp_path, ["c"])
    put(tmp_path, "a.json", "[]")
    with pytest.raises(UserError, match="two files are called a"):
        find(tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        find(tmp_path / "none")


def verdict(arm: str, state: VerdictState, patch: str = "1", **more: object) -> PatchVerdict:
    return PatchVerdict(instance_id="a", arm=arm, state=state, patch=patch, **more)  # ty: ignore[invalid-argument-type]


def test_verdicts_are_kept_by_instance_and_arm(tmp_path: Path) -> None:
    """One arm never stands for another, and an error never takes the place of a verdict on the same patch."""
    file = tmp_path / "resolved.json"
    merge(file, [verdict("x", VerdictState.RESOLVED), verdict("y", VerdictState.UNRESOLVED, patch_applied=False)])
    merge(
        file,
        [verdict("x", VerdictState.EVAL_ERROR, reason="dead"), verdict("z", VerdictState.EVAL_ERROR, reason="dead")],
    )
    assert json.loads(file.read_text())["resolved"] == {"x": {"a": True}, "y": {"a": False}, "z": {"a": None}}
    merge(file, [verdict("x", VerdictState.EVAL_ERROR, "2", reason="dead")])  # another patch: nothing is known of it
    kept = read_verdicts(file)
    assert (kept["a", "x"].resolved, kept["a", "y"].patch_applied) == (None, False)
    found = count(kept.values())
    assert (found.resolved, found.unresolved, found.not_applied, found.eval_error) == (0, 1, 1, 2)


PROGRAM = """
import json, os, sys, time
given = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
print(os.getcwd(), "--use_local_docker" in sys.argv, given["num_workers"], given["dockerhub_username"])
results = {}
for entry in json.load(open(given["patch_path"])):
    name, folder = entry["instance_id"], os.path.join(given["output_dir"], entry["instance_id"])
    os.makedirs(folder + "/workspace", exist_ok=True)
    how = entry["patch"]
    kept = f"{folder}/{entry['prefix']}_output.json"
    if not os.path.exists(kept) and how != "dead":
        open(kept, "w").write(json.dumps({"tests": [] if how == "none" else [{"name": "t", "status": "PASSED"}]}))
        open(folder + "/runs", "a").write("x")
    results[name] = how == "good"
    if how == "hang":
        time.sleep(600)
json.dump(results, open(given["output_dir"] + "/eval_results.json", "w"))
"""


def test_the_official_program_is_driven_from_its_folder_with_results_by_patch(tmp_path: Path) -> None:
    folder = checkout_for(tmp_path / "evaluator", *KNOWN)
    with pytest.raises(UserError, match="has no swe_bench_pro_eval.py"):
        official.evaluate(
            Checkout.at(folder), {}, Predictions("x", tmp_path, {}), tmp_path, official.EvaluatorSettings("python3")
        )
    (folder / "swe_bench_pro_eval.py").write_text(PROGRAM)
    rows = {name: {"instance_id": name} for name in KNOWN}

    def judged(arm: str, timeout: float | None = None, **patches: str) -> dict[str, tuple[VerdictState, str | None]]:
        drive = official.EvaluatorSettings("python3", workers=3, timeout_sec=timeout)
        found = official.evaluate(
            Checkout.at(folder), rows, Predictions(arm, tmp_path, patches), tmp_path / "out", drive
        )
        return {one.instance_id: (one.state, one.reason) for one in found}

    assert judged("x", a="good", b="bad", c="none") == {
        "a": (VerdictState.RESOLVED, None),
        "b": (VerdictState.UNRESOLVED, None),
        "c": (VerdictState.UNRESOLVED, "officially unresolved: no test was collected"),
    }
    place = next((tmp_path / "out").glob("x-*"))
    assert (place / "evaluator.log").read_text() == f"{folder} True 3 jefzda\n"
    torn = next((place / "output" / "b").glob("*_output.json"))
    torn.write_text('{"tests": [')
    left = place / "output" / "a" / "workspace" / "output.json"
    left.write_text("of an earlier patch")
    assert judged("x", a="good", b="bad", c="none")["b"] == (VerdictState.UNRESOLVED, None)
    runs = {name: (place / "output" / name / "runs").read_text() for name in ("a", "b")}
    assert runs == {"a": "x", "b": "xx"}  # the same patch is not judged again, half a result is none
    assert judged("x", a="dead", b="bad", c="none")["a"] == (
        VerdictState.UNRESOLVED,
        "officially unresolved: the parser left no results",
    )
    assert not left.exists()
    assert judged("y", a="dead") == {
        "a": (VerdictState.UNRESOLVED, "officially unresolved: the parser left no results")
    }  # not what x has
    assert judged("z", 1.0, a="hang") == {
        "a": (VerdictState.EVAL_ERROR, "the evaluator did not end within its time limit")
    }
    assert judged("empty") == {}
    (flagged,) = official.evaluate(
        Checkout.at(folder),
        rows,
        Predictions(
            "w", tmp_path, {"a": "diff --git a/conftest.py b/conftest.py\n--- a/conftest.py\n+++ b/conftest.py\n"}
        ),
        tmp_path / "out",
        official.EvaluatorSettings("python3"),
    )
    assert flagged.suspect == ("test_config:conftest",)
