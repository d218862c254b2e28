"""`tbench kill` and `tbench status`: only what is ours, verified; decoys live."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from test_run import LIMIT_SEC, alive, at_work, scripted, wait_for

LONG = scripted("p", free=0)


@pytest.fixture
def decoys(lab, tmp_path):
    """A process called harbor, an editor on terminalbench/, and one that holds the batch's pid file name in its command."""
    harbor = tmp_path / "harbor"
    shutil.copy("/bin/sleep", harbor)
    processes = [
        subprocess.Popen([harbor, "3000"]),
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3000)", "vim", "terminalbench/foo.py"]),
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(3000)", "harbor", "run", "-c", str(lab.root / "results")]
        ),
    ]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def start(lab):
    lab.env["XDG_STATE_HOME"] = str(lab.root / "state")
    file = lab.experiment(LONG)
    process = lab.start("run", file)
    wait_for(lambda: at_work(lab) == 2, process)
    return file, process


def test_it_lists_first_then_ends_ours_and_spares_the_rest(lab, decoys) -> None:
    file, process = start(lab)
    status = json.loads(lab.tbench("status", "--json").stdout)
    assert [(s["state"], s["runner"], s["planned"]) for s in status] == [("running", process.pid, 2)]
    harbor = status[0]["harbor"][0]
    listed = lab.tbench("kill", file)
    assert listed.returncode == 2
    assert f"runner {process.pid}" in listed.stdout
    assert f"harbor {harbor}" in listed.stdout
    assert alive(harbor)
    ran = lab.tbench("kill", file, "--yes")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 130
    assert not alive(harbor)
    assert all(decoy.poll() is None for decoy in decoys)
    assert "nothing is running" in lab.tbench("kill", file, "--yes").stdout
    assert "nothing is running" in lab.tbench("status").stdout
    assert {entry["outcome"] for entry in lab.index()} <= {"cancelled", "not_run"}


def test_all_finds_batches_of_every_results_folder(lab, decoys) -> None:
    _, process = start(lab)
    elsewhere = lab.root / "elsewhere"
    elsewhere.mkdir()
    ran = lab.tbench("kill", "--all", "--yes")
    assert ran.returncode == 0, ran.stderr
    process.communicate(timeout=LIMIT_SEC)
    assert all(decoy.poll() is None for decoy in decoys)
    assert "nothing is running" in lab.tbench("kill", "--all").stdout


def test_a_runner_that_does_not_answer_is_ended_hard(lab, monkeypatch) -> None:
    from terminalbench.runner.kill import end, find

    _, process = start(lab)
    os.kill(process.pid, signal.SIGSTOP)
    found = find([lab.batch()])
    assert {p.kind for p in found.processes} == {"runner", "harbor"}
    left = end([lab.batch()], found, grace_sec=1.0)
    assert not left
    process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == -9
    assert not list((lab.batch().folder / "workers").glob("*.json"))


def test_a_recycled_pid_is_a_stranger(lab) -> None:
    file, process = start(lab)
    worker = next((lab.batch().folder / "workers").glob("*.json"))
    record = json.loads(worker.read_text())
    process.kill()
    process.communicate(timeout=LIMIT_SEC)
    wait_for(lambda: not alive(record["pid"]))
    worker.write_text(json.dumps({**record, "pid": os.getpid(), "group": os.getpid()}))
    ran = lab.tbench("kill", file, "--yes")
    assert ran.returncode == 0
    assert "nothing is running" in ran.stdout


def test_a_detached_run_goes_on_without_its_terminal(lab) -> None:
    """Its Harbor is a started one, none that was forked: `kill` knows it too."""
    lab.env["XDG_STATE_HOME"] = str(lab.root / "state")
    file = lab.experiment(LONG)
    ran = lab.process("run", file, "--detach")
    assert ran.returncode == 0, ran.stderr
    assert "running in the background: pid" in ran.stdout
    status = json.loads(lab.tbench("status", "--json").stdout)
    assert [s["state"] for s in status] == ["running"]
    assert os.getsid(status[0]["runner"]) == status[0]["runner"]
    wait_for(lambda: at_work(lab) == 2)
    harbor = json.loads(lab.tbench("status", "--json").stdout)[0]["harbor"][0]
    assert f"harbor {harbor}" in lab.tbench("kill", file).stdout
    assert lab.tbench("kill", file, "--yes").returncode == 0
    assert not alive(status[0]["runner"])
    assert not alive(harbor)


def test_a_detached_run_that_is_refused_says_so(lab) -> None:
    ran = lab.process("run", lab.root / "none.toml", "--detach")
    assert ran.returncode == 2
    assert "no such file" in ran.stderr
