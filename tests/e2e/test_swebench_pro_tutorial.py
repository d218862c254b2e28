"""The tutorial of SWE-Bench Pro on real Harbor; and an experiment that is killed, grows and is sharded."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_run import LIMIT_SEC, wait_for

from conftest import REPO
from servers.workflow import Answer, Asked, WorkflowServer
from support.experiments import Project
from support.tasks import write_repository_task
from terminalbench.experiments.batch import Batch
from terminalbench.swebench_pro.rows import RunVerdict, read_results

pytestmark = pytest.mark.timeout(600)
KEY = "sk-scripted-0123456789abcdef"
PAGE = (REPO / "docs" / "swe-bench-pro.md").read_text()
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
INSTANCES = ("instance_good", "instance_hopeless")
ARMS = ("singleshot", "s1_direct")


def answers(asked: Asked) -> Answer:
    """A right patch; of the hopeless instance none that applies."""
    if asked.form == "analysis":
        return {"root_cause": "the sign", "fix_approach": "add", "files": ["calc.py"]}
    search = f"not in the file {asked.number}" if asked.scenario == "hopeless" else "a - b"
    edit = {"action": "modify", "path": "calc.py", "search": search, "replace": "a + b"}
    return {"edits": [edit], "reasoning": "so"}


@dataclass(frozen=True)
class Done:
    """The output folder when the script has ended, what it said, and the command that it is made of."""

    output: Path
    ran: subprocess.CompletedProcess[str]
    server: WorkflowServer
    lab: Any
    argv: list[str]

    @property
    def batch(self) -> Batch:
        return Batch(self.output / "batches" / "swe-bench-pro" / "0")


def write_instance(folder: Path, scenario: str) -> None:
    """An instance with a tiny repository, of which the server knows what to answer by its scenario."""
    write_repository_task(folder)
    text = (folder / "task.toml").read_text()
    mark = '[metadata]\nswebench_pro = true\nrepo = "tiny/calc"\nbase_commit = "0"\n'
    (folder / "task.toml").write_text(text.replace("[metadata]\n", mark))
    told = f"SCENARIO {scenario}: `add(2, 3)` of calc.py returns -1, it should be 5.\n"
    (folder / "instruction.md").write_text(told)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, new_lab: Any) -> Generator[Done]:
    root = tmp_path_factory.mktemp("pro") / "a project"
    root.mkdir()
    lab = new_lab(Project(root))
    for name in INSTANCES:
        write_instance(root / "swebench-pro" / name, name.removeprefix("instance_"))
    output = root / "output" / "swe_bench_pro"
    lab.env |= {"NO_PROXY": "127.0.0.1", "LLM_API_KEY": KEY}
    with WorkflowServer(answers) as server:
        (line,) = (line for line in LINES if " experiment " in line)
        argv = shlex.split(line.replace("http://127.0.0.1:8000", server.url))[1:]
        log = str(output / "experiment.log")
        ran = lab.tbench(*argv, "--evaluate", "--watch", "--log-file", log)
        yield Done(output, ran, server, lab, argv)


def test_each_pair_of_instance_and_arm_is_once_in_the_results(done: Done) -> None:
    assert done.ran.returncode == 0, done.ran.stdout + done.ran.stderr
    rows = read_results(done.output / "results.jsonl")
    assert (rows.bad_lines, rows.repeated) == (0, 0)
    assert Counter((row.instance_id, row.arm) for row in rows.rows) == Counter((i, a) for i in INSTANCES for a in ARMS)
    standings = {row.key[:2]: row.standing for row in rows.rows}
    assert standings == {
        (i, a): RunVerdict.RESOLVED if i == "instance_good" else RunVerdict.GAVE_UP for i in INSTANCES for a in ARMS
    }
    bad = next(row for row in rows.rows if row.key[:2] == ("instance_hopeless", "s1_direct"))
    assert (bad.failed_step, bad.failed_guard, bad.failure, bad.retry_count) == ("patch", "patch", "rmax", 3)
    assert list(bad.per_step_tokens) == ["analysis", "patch"]
    assert bad.total_tokens == sum(many or 0 for many in bad.per_step_tokens.values())


def test_what_was_left_is_evaluated_drawn_and_logged(done: Done) -> None:
    verdicts = json.loads((done.output / "predictions" / "evaluation" / "resolved.json").read_text())["resolved"]
    assert verdicts == {arm: {"instance_good": True, "instance_hopeless": False} for arm in ARMS}
    assert (done.output / "charts" / "index.html").is_file()
    assert "x failed  instance_hopeless" in (done.output / "experiment.log").read_text()
    assert "x failed  instance_hopeless" in done.ran.stdout, "--watch, where no terminal is"


def test_the_script_goes_on_with_it_and_says_why_runs_failed(done: Done) -> None:
    asked = len(done.server.asked)
    settings = dict(zip(done.argv[2::2], done.argv[3::2], strict=True))
    settings |= {"--output-dir": str(done.output), "--tasks": str(done.lab.root / "swebench-pro")}
    names = {name.removeprefix("--").replace("-", "_").upper(): value for name, value in settings.items()}
    script = REPO / "examples" / "swe_bench_pro" / "run_experiment.sh"
    env = done.lab.env | names | {"ENV_FILE": str(done.output / "none")}
    ran = subprocess.run(
        [str(script)], cwd=done.lab.root, env=env, capture_output=True, text=True, timeout=LIMIT_SEC, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(done.server.asked) == asked, "what is done is not run again"
    assert (done.output / "final_error_analysis_latest.md").read_text().count("← FINAL") == 2
    assert "final_error_analysis_latest.md" in ran.stdout


def test_the_key_is_nowhere_in_the_output_and_in_no_argument(done: Done) -> None:
    held = [path for path in done.output.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert held == []
    assert KEY not in done.ran.stdout + done.ran.stderr
    assert {request.headers.get("authorization") for request in done.server.chats} == {f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["--model", "other"], "model: openai/my-model -> openai/other"),
        (["--instances", "good"], "- instance instance_hopeless"),
        (["--arms", "singleshot"], "- arm s1_direct"),
        (["--trial-timeout", "77"], "run.agent_timeout_sec: was None, is 77.0 (use the same options"),
    ],
)
def test_another_experiment_is_refused_with_its_difference(done: Done, changed: list[str], said: str) -> None:
    before = (done.output / "experiment.toml").read_bytes()
    ran = done.lab.tbench(*done.argv, *changed, "--resume")
    assert (ran.returncode, said in ran.stderr) == (2, True), ran.stderr
    assert (done.output / "experiment.toml").read_bytes() == before
    assert done.lab.tbench(*done.argv).returncode == 2, "a folder that holds an experiment is not run over"


def test_every_other_command_of_the_tutorial_works(done: Done) -> None:
    """The last one: it adds an instance to the folder of tasks."""
    rest = [shlex.split(line) for line in LINES if " experiment " not in line]
    assert len(rest) == 8
    for program, *words in rest:
        if program == "python":
            argv = [sys.executable, str(REPO / words[0]), *words[1:], "slug"]  # one is enough here
            ran = subprocess.run(
                argv, cwd=done.lab.root, capture_output=True, text=True, timeout=LIMIT_SEC, check=False
            )
        else:
            ran = done.lab.tbench(*words)
        assert ran.returncode in (0, 3 if words[0] == "compare" else 0), (words, ran.stdout, ran.stderr)


_OF_THE_RUN = {"batch", "trial", "started_at", "finished_at", "superseded", "suspect"}
"""What a row says of when and where it was made, how often, and whether that was suspiciously quick. With times and tokens
(the server bills each answer otherwise) this is all that may differ."""


def ended_rows(results: Path) -> int:
    """How many runs have ended, as the results say that grow while an experiment runs."""
    rows = read_results(results).rows if results.is_file() else []
    return sum(row.standing is not RunVerdict.NOT_RUN for row in rows)


def told(output: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]
    parts = ("_seconds", "tokens", "_usd")
    return [{k: v for k, v in row.items() if k not in _OF_THE_RUN and not k.endswith(parts)} for row in rows]


def test_killed_twice_grown_twice_and_sharded_in_two_it_is_as_one_straight_run(tmp_path: Path, new_lab: Any) -> None:
    """Two workflows and two agents on four instances."""
    root = tmp_path / "project"
    root.mkdir()
    lab = new_lab(Project(root))
    lab.env |= {"NO_PROXY": "127.0.0.1", "LLM_API_KEY": KEY}
    for name in "abcd":
        write_instance(root / "swebench-pro" / f"instance_{name}", "hopeless" if name == "c" else "good")
    fixed = r"def add(a, b): return a + b\n"
    (root / "fix.py").write_text(f"from pathlib import Path\nPath('calc.py').write_text('{fixed}')\n")
    head = (
        'schema_version = 2\nslug = "s"\n[tasks]\ndefault_dataset = "swebench-pro"\nitems = [{ id = "instance_a" }]\n'
    )
    (root / "agents.toml").write_text(f'{head}[profiles.idle]\nagent = "nop"\n')
    program = "command:python3 fix.py"
    with WorkflowServer(answers) as server:
        common = [
            "swebench-pro",
            "experiment",
            "--provider",
            "openai",
            "--base-url",
            f"{server.url}/v1",
            "--model",
            "m",
        ]
        common += ["--container-env", "local", "--max-workers", "4"]
        every = ["--arms", f"singleshot,{program},s1_direct,agents.toml:idle"]
        straight = lab.tbench(*common, *every, "--output-dir", "straight")
        assert straight.returncode == 0, straight.stdout + straight.stderr
        first = [*common, "--shard", "1/2", "--output-dir", "part-1"]
        some = ["--max-instances", "1"]
        results = root / "part-1" / "results.jsonl"
        for more, ended in (["--arms", f"singleshot,{program}", *some], 1), ([*every, *some, "--resume"], 2):
            process = lab.start(*first, *more, own=True)  # in a group of its own, which is killed
            wait_for(lambda least=ended: ended_rows(results) >= least or None, process)
            with contextlib.suppress(ProcessLookupError):  # a quick machine may have ended it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(LIMIT_SEC)
        for arguments in ([*first, *every, "--resume"], [*common, *every, "--shard", "2/2", "--output-dir", "part-2"]):
            ran = lab.tbench(*arguments)
            assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lab.tbench("swebench-pro", "project", "part-2", "part-1", "--output-dir", "whole").returncode == 0
    rows = told(root / "straight")
    whole = told(root / "whole")
    assert [(one["arm"], one["instance_id"]) for one in whole] == [(one["arm"], one["instance_id"]) for one in rows]
    pairs = [(one, other) for one, other in zip(whole, rows, strict=True) if one != other]
    assert [{k: (a[k], b[k]) for k in a if a[k] != b[k]} for a, b in pairs] == []
    resolved = {arm: sum(row["resolved"] for row in rows if row["arm"] == arm) for arm in ("singleshot", "fix", "idle")}
    assert resolved == {"singleshot": 3, "fix": 4, "idle": 0}
