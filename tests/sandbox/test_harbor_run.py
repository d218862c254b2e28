"""The real `harbor run` on the local sandbox: a task that must pass, an agent that must fail, a killed run."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.driving import Driver
from support.pace import seconds
from terminalbench.harbor.read.results import read_trial

pytestmark = [pytest.mark.long, pytest.mark.any_user]  # whole runs
TASK = """schema_version = "1.4"
{top}
[task]
name = "tests/{name}"
version = "0.1.0"
description = "a task of the sandbox's tests"
[verifier]
timeout_sec = 60.0
{verifier}
[agent]
timeout_sec = 60.0
[environment]
build_timeout_sec = 60.0
cpus = 1
memory_mb = 256
storage_mb = 100
network_mode = "no-network"
[metadata]
host_base = true
"""
DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY numbers.txt .\nENV WANTED=15\n"
SOLVE = "#!/bin/bash\nset -e\npaste -sd+ /app/numbers.txt | bc > /app/sum 2>/dev/null || python3 -c \"print(sum(map(int, open('/app/numbers.txt'))))\" > /app/sum\n"
TEST = '#!/bin/bash\nif [ "$(cat /app/sum 2>/dev/null)" = "$WANTED" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'


def make_task(root: Path, name: str, *, solve: str = SOLVE, separate: bool = False) -> Path:
    """A small task; a `separate` one is verified in a sandbox of its own, which gets /app as an artifact."""
    folder = root / name
    for part in ("environment", "solution", "tests"):
        (folder / part).mkdir(parents=True)
    verifier = 'environment_mode = "separate"' if separate else ""
    top = 'artifacts = ["/app"]' if separate else ""
    (folder / "task.toml").write_text(TASK.format(name=name, top=top, verifier=verifier))
    (folder / "instruction.md").write_text("Write the sum of the numbers in /app/numbers.txt to /app/sum.\n")
    (folder / "environment" / "Dockerfile").write_text(DOCKERFILE)
    (folder / "environment" / "numbers.txt").write_text("4\n5\n6\n")
    (folder / "solution" / "solve.sh").write_text(solve)
    (folder / "tests" / "test.sh").write_text(TEST.replace("$WANTED", "15") if separate else TEST)
    if separate:
        (folder / "tests" / "Dockerfile").write_text("FROM debian:12\nCOPY . /tests/\nWORKDIR /tests\n")
    return folder


def job(driver: Driver, work: Path, tasks: list[Path], **more: Any) -> Path:
    config = {
        "job_name": "job",
        "jobs_dir": str(work / "jobs"),
        "n_concurrent_trials": 2,
        "environment": {"import_path": "terminalbench.sandbox.environment:LocalSandbox"},
        "agents": [{"name": "oracle"}, {"name": "nop"}],
        "tasks": [{"path": str(task)} for task in tasks],
        **more,
    }
    path = work / "job.json"
    path.write_text(json.dumps(config))
    for folder, _, names in os.walk(work):
        for name in ("", *names):
            os.chown(Path(folder) / name, driver.uid, driver.gid)
    return path


def run(driver: Driver, config: Path, *, fresh: bool = False) -> str:
    """Run a job to its end; what it printed. A `fresh` process loads Harbor itself, others are forked as `tbench` does."""
    if fresh:
        code = "import sys; from harbor.cli.main import app; sys.argv = ['harbor', *sys.argv[1:]]; app()"
        command = driver.command(sys.executable, "-c", code, "run", "-c", str(config), "-y")
        done = subprocess.run(
            command, env=driver.environment(), capture_output=True, text=True, timeout=seconds(200), check=False
        )
        status, printed = done.returncode, done.stdout + done.stderr
    else:
        status = driver("end_of_harbor", driver("start_harbor", str(config)))
        printed = config.with_suffix(".log").read_text()
    assert status == 0, printed
    return printed


def results(work: Path) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for path in sorted((work / "jobs" / "job").glob("*/result.json")):
        result = json.loads(path.read_text())
        reward = (result["verifier_result"] or {}).get("rewards", {}).get("reward")
        error = result["exception_info"] and result["exception_info"]["exception_type"]
        found[result["agent_info"]["name"], Path(result["task_id"]["path"]).name] = error or reward
    return found


def test_the_oracle_passes_doing_nothing_fails_and_a_bomb_ends_alone(driver: Driver, work: Path) -> None:
    bomb = "#!/bin/bash\npython3 -c 'x = bytearray()\nwhile True: x += b\"y\" * (4 << 20)'\n"
    tasks = [
        make_task(work / "tasks", "bomb", solve=bomb),
        make_task(work / "tasks", "shared"),
        make_task(work / "tasks", "separate", separate=True),
    ]
    run(driver, job(driver, work, tasks), fresh=driver.user == "ordinary")
    expected = {("oracle", "bomb"): 0.0, ("oracle", "shared"): 1.0, ("oracle", "separate"): 1.0}
    assert results(work) == expected | {("nop", task.name): 0.0 for task in tasks}
    oracle = next(path for path in (work / "jobs" / "job").glob("*/agent/oracle.txt"))
    assert oracle.stat().st_mode & 0o6000 == 0


SERVED = """#!/bin/bash
if [ -e /app/serve ]; then (cd /app; exec python3 -m http.server 8765 --bind 127.0.0.1) & fi
reward=0
for i in $(seq 40); do
    (: </dev/tcp/127.0.0.1/8765) 2>/dev/null && reward=1
    sleep 0.1
done
echo $reward > /logs/verifier/reward.txt
"""


def test_two_trials_on_one_port_have_their_own_verdicts(driver: Driver, work: Path) -> None:
    """A server on a fixed port, side by side with a trial that did nothing: that one fails, as it would alone."""
    task = make_task(work / "tasks", "served", solve="#!/bin/bash\ntouch /app/serve\n")
    (task / "tests" / "test.sh").write_text(SERVED)
    config = task / "task.toml"
    config.write_text(config.read_text().replace('"no-network"', '"public"'))
    run(driver, job(driver, work, [task]))
    assert results(work) == {("oracle", "served"): 1.0, ("nop", "served"): 0.0}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_leaves_nothing(driver: Driver, work: Path, number: int) -> None:
    token = str(9000 + os.getpid() % 100000)
    task = make_task(work / "tasks", "slow", solve=f"#!/bin/bash\nsetsid sleep {token} &\nsleep {token}\n")
    config = job(driver, work, [task], agents=[{"name": "oracle"}])
    running = driver("start_harbor", str(config))
    try:
        assert _until(lambda: len(_sleeping(token)) == 2)
        os.kill(running, number)
        assert driver("end_of_harbor", running) != 0
        assert _until(lambda: not _sleeping(token))
        assert _until(lambda: not any(path.name.startswith(f"{running}-") for path in (driver.kept / "run").iterdir()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(running, signal.SIGKILL)
        driver("end_of_harbor", running)


def _sleeping(token: str) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_text() == f"sleep\0{token}\0":
                found.append(folder.name)
        except OSError:
            continue
    return found


def _until(condition: Any, patience_sec: float = 60) -> bool:
    deadline = time.monotonic() + patience_sec
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return bool(condition())


RUNS_PROGRAM = """#!/bin/bash
chmod +x /app/program
if [ "$($TBENCH_RUN_PROGRAM /app/program)" = 15 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
sleep 0.3
"""
FAKE = "printf '#!/bin/sh\\necho 15\\n' > /tmp/fake; chmod 755 /tmp/fake; "
PROGRAM = "cat > /app/program <<'X'\n#!/bin/bash\n{}\necho 16\nX\n"
ON_THE_VERDICT = {
    "system": FAKE + "cp /tmp/fake /usr/local/bin/cat; cp --remove-destination /tmp/fake /usr/bin/cat; cp --remove-destination"
    " /tmp/fake /bin/bash; echo 'cat() { echo 15; }; export -f cat' | tee /etc/profile /etc/bash.bashrc /root/.bashrc",
    "writer": "setsid bash -c 'while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done' >/dev/null 2>&1 &\n"
    "echo '{\"reward\": 1}' > /logs/verifier/reward.json; mkdir -p /tests; cp /bin/true /tests/test.sh; sleep 0.1",
    "names": "ln -s /tests/expected $'/app/x\\ntbench:failed y'; mkdir $'/app/\\nroot:0'; seq 3000 | xargs -I{} ln -s /none /app/l{}",
    "broken": "rm -f /usr/bin/bash /bin/bash; rm -rf /app",
    "forging": PROGRAM.format("(setsid bash -c 'while :; do echo 1 > /logs/verifier/reward.txt; done' >/dev/null 2>&1 &)\nsleep 0.2"),
    "killing": PROGRAM.format("echo 1 > /logs/verifier/reward.txt\nkill -9 $PPID\nkill -9 -- -1"),
    "hanging": PROGRAM.format("(trap '' TERM; setsid sleep 600) & sleep 600"),
}  # fmt: skip
FLAGGED = {
    "system": "tampering:system",
    "writer": "tampering:reward_file",
    "names": "tampering:links_into_tests",
    "broken": "tampering:environment",
}


@pytest.mark.both_users
def test_attacks_on_the_verdict_are_failures(driver: Driver, work: Path) -> None:
    """Each is an agent that has not done its task. None passes, and none is an error, after which it would run again."""
    tasks = [
        make_task(work / "tasks", name, solve=f"#!/bin/bash\n{script}\n") for name, script in ON_THE_VERDICT.items()
    ]
    for task in tasks:
        if task.name in ("forging", "killing", "hanging"):
            (task / "tests" / "test.sh").write_text(RUNS_PROGRAM)
        if task.name == "hanging":
            (task / "task.toml").write_text((task / "task.toml").read_text().replace("60.0", "15.0", 1))
    honest = make_task(work / "tasks", "honest")
    verifier = {"import_path": "terminalbench.harbor.verifier:SafeVerifier"}
    config = job(driver, work, [*tasks, honest], agents=[{"name": "oracle"}], verifier=verifier)
    printed = run(driver, config)
    read = [read_trial(path.parent).trial for path in (work / "jobs" / "job").glob("*/result.json")]
    found = {trial.task: trial for trial in read if trial is not None}
    assert {name: trial.outcome.value for name, trial in found.items()} == {
        "honest": "passed", **dict.fromkeys(ON_THE_VERDICT, "failed"),
    }, printed  # fmt: skip
    for name, flag in FLAGGED.items():
        assert flag in found[name].suspect, found[name]
    assert found["honest"].suspect == []
