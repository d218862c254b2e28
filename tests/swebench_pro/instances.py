"""Rows of the dataset for tests, in the shape of the real ones."""

from pathlib import Path
from typing import Any

BASE = "1" * 40
FIX = "f" * 40
ID = f"instance_acme__tool-{FIX}-v{'e' * 40}"


def row(**changes: Any) -> dict[str, Any]:
    """A complete row; `changes` replace columns."""
    return {
        "instance_id": ID,
        "repo": "acme/tool",
        "base_commit": BASE,
        "repo_language": "python",
        "problem_statement": "It is broken.",
        "requirements": "- It works.",
        "interface": "",
        "patch": "diff --git a/tool.py b/tool.py\n--- a/tool.py\n+++ b/tool.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n",
        "test_patch": "diff --git a/test_tool.py b/test_tool.py\n--- a/test_tool.py\n+++ b/test_tool.py\n@@ -1 +1 @@\n-x\n+y\n",
        "fail_to_pass": '["test_tool.py::test_a"]',
        "pass_to_pass": "['test_tool.py::test_b']",
        "selected_test_files_to_run": '["test_tool.py"]',
        "before_repo_set_cmd": f"git reset --hard {BASE}\ngit clean -fd\ngit checkout {BASE}\ngit checkout {FIX} -- test_tool.py",
        "dockerhub_tag": "",
    } | changes


def checkout_for(
    folder: Path, *ids: str, base: str = "FROM x\n", instance: str = "FROM y\n", info: str | None = None
) -> Path:
    """A folder in the shape of the evaluator's checkout, with scripts for these instances."""
    for name in ids:
        scripts = folder / "run_scripts" / name
        scripts.mkdir(parents=True, exist_ok=True)
        (scripts / "run_script.sh").write_text("#!/bin/bash\necho run\n")
        (scripts / "parser.py").write_text("print('parse')\n")
        if info is not None:
            (scripts / "instance_info.txt").write_text(info)
        for kind, text in (("base", base), ("instance", instance)):
            place = folder / "dockerfiles" / f"{kind}_dockerfile" / name
            place.mkdir(parents=True, exist_ok=True)
            (place / "Dockerfile").write_text(text)
    return folder
