"""docs/sandbox.md: an agent of npm that lies on this machine works in the local sandbox; a small one stands in for it."""

import json
from pathlib import Path

import pytest
from walk import walk

from conftest import REPO
from support.pages import shell_blocks
from support.warm import Warm

RECIPE = (REPO / "docs" / "sandbox.md").read_text().partition("## Agents of this machine")[2].partition("\n## ")[0]
SOLUTION = REPO / "src/terminalbench/starter/tasks/git-lost-commit/solution/solve.sh"
NPM = """#!/bin/sh
# npm install --prefix agents @openai/codex@...
mkdir -p "$3/node_modules/@openai/codex/bin" "$3/node_modules/.bin"
cp "$(dirname "$0")/codex.js" "$3/node_modules/@openai/codex/bin/"
chmod +x "$3/node_modules/@openai/codex/bin/codex.js"
ln -s ../@openai/codex/bin/codex.js "$3/node_modules/.bin/codex"
"""
CODEX = """#!/usr/bin/env node
const {execFileSync} = require("child_process");
if (process.argv[2] === "--version") { console.log("codex-cli 0.46.0"); process.exit(0); }
execFileSync("bash", ["-c", %s], {stdio: "inherit"});
"""


def test_a_mount_that_hides_the_working_folder_is_refused(lab) -> None:
    lab.project.write("tools/x.sh", "")
    profile = '[profiles.p]\nagent = "oracle"\nmounts = { "tools" = "/app" }\n'
    ran = lab.tbench("run", lab.experiment(profile, tasks=("a",)))
    assert ran.returncode == 1
    assert "the mount on /app hides the task's working folder" in " ".join(ran.stdout.split())


@pytest.mark.long
def test_a_mounted_agent_of_npm_runs_and_nothing_is_installed(tmp_path: Path) -> None:
    folder, programs = tmp_path / "lab", tmp_path / "programs"
    (folder / "experiments").mkdir(parents=True)
    (folder / ".tbench").touch()
    programs.mkdir()
    (programs / "npm").write_text(NPM)
    (programs / "npm").chmod(0o755)
    (programs / "codex.js").write_text(CODEX % json.dumps(SOLUTION.read_text()))
    Warm().write_tbench(programs)
    env = {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "OPENAI_API_KEY": "sk-scripted-0123456789"}
    walked = walk(folder, shell_blocks(RECIPE), env)
    assert walked.code == 0, walked.said
    (run,) = json.loads((folder / "results" / "codex" / "0" / "runs" / "index.json").read_text())["runs"]
    assert run["outcome"] == "passed", run
