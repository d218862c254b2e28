"""An executor of a user's package, found by its entry point: a real batch runs through it, and kill asks it."""

import json
import signal
import subprocess
import sys

import pytest
from test_run import LIMIT_SEC, running, scripted, wait_for

from conftest import REPO
from support.warm import Warm

WARM = Warm()

EXECUTOR = '''
import json
import os
from pathlib import Path

from terminalbench.runner.executors.local import LocalExecutor

BOOK = Path(__file__).with_name("book.jsonl")


class Recording:
    """Runs jobs as the local one does, and writes down what it is asked."""

    def __init__(self):
        self.local = LocalExecutor()

    def note(self, **said):
        with BOOK.open("a") as book:
            print(json.dumps({"pid": os.getpid(), **said}), file=book)

    def start(self, job):
        self.note(asked="start", job=job.name, log=str(job.log), folder=str(job.folder))
        return self.local.start(job)

    def poll(self, worker):
        code = self.local.poll(worker)
        if code is not None:
            self.note(asked="poll", job=worker.job, code=code)
        return code

    def stop(self, worker, *, now=False):
        self.note(asked="stop", job=worker.job, now=now, executor=worker.executor)
        self.local.stop(worker, now=now)

    def alive(self, worker):
        return self.local.alive(worker)

    def user(self, worker):
        return self.local.user(worker)
'''
RUN = """
import sys
from pathlib import Path

sys.path.append(sys.argv.pop(1))
from support.warm import Warm
from terminalbench.experiments.config import load
from terminalbench.experiments.planner import Selection
from terminalbench.runner.executors import local
from terminalbench.runner.run import prepare_run, run

local.spawn = Warm(sys.argv.pop(1))
experiment = load(Path(sys.argv[1]), None)
run(experiment, prepare_run(experiment, Selection()), executor=sys.argv[2])
"""


def install(lab) -> None:
    """What `pip install` of a user's package leaves on the path."""
    lab.project.write("site/mine/__init__.py", "")
    lab.project.write("site/mine/executor.py", EXECUTOR)
    lab.project.write("site/mine-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    lab.project.write(
        "site/mine-1.0.dist-info/entry_points.txt", "[terminalbench.executors]\nrecording = mine.executor:Recording\n"
    )
    lab.project.write("run.py", RUN)
    lab.env["PYTHONPATH"] = str(lab.root / "site")


def book(lab) -> list[dict]:
    return [json.loads(line) for line in (lab.root / "site/mine/book.jsonl").read_text().splitlines()]


def start(lab, *arguments):
    tests, where = REPO / "tests", WARM.tbench()[-1]
    process = subprocess.Popen(
        [sys.executable, str(lab.root / "run.py"), str(tests), where, *map(str, arguments)],
        cwd=lab.root, env=lab.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    lab.started.append(process)
    return process


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate(timeout=LIMIT_SEC)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_a_batch_runs_through_a_users_executor(lab) -> None:
    install(lab)
    process = start(lab, lab.experiment(scripted("p")), "recording")
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 0, out + err
    assert [(said["asked"], said.get("code")) for said in book(lab)][:2] == [("start", None), ("poll", 0)]
    (job,) = {said["job"] for said in book(lab)}
    first = book(lab)[0]
    assert (first["log"], first["folder"]) == (str(lab.batch().job_log(job)), str(lab.batch().job_folder(job)))
    assert sum(event.kind == "trial_ended" for event in lab.events()) == 2
    again = ended(lab.start("resume", lab.batch().folder, "--attempts", "2"))
    assert again.returncode in (0, 3), again.stdout + again.stderr
    assert sum(said["asked"] == "start" for said in book(lab)) == 2, "a resume runs it where the batch ran before"


@pytest.mark.long
def test_kill_and_resume_ask_the_executor_that_was_recorded(lab) -> None:
    install(lab)
    process = start(lab, lab.experiment(scripted("p", sleep_sec=120.0), tasks=("a",)), "recording")
    wait_for(lambda: running(lab) or process.poll() is not None)
    (worker,) = lab.batch().folder.glob("workers/*.json")
    assert json.loads(worker.read_text())["executor"] == "recording"
    assert "harbor" in ended(lab.start("kill", lab.batch().folder)).stdout
    process.send_signal(signal.SIGSTOP)  # a runner that does nothing any more
    killed = ended(lab.start("kill", lab.batch().folder, "--yes"))
    assert killed.returncode == 0, killed.stdout + killed.stderr
    process.communicate(timeout=LIMIT_SEC)
    stops = [said for said in book(lab) if said["asked"] == "stop"]
    assert {said["executor"] for said in stops} == {"recording"}
    assert process.pid not in {said["pid"] for said in stops}


def test_an_unknown_executor_is_refused_before_a_batch_is_made(lab) -> None:
    install(lab)
    process = start(lab, lab.experiment(scripted("p")), "recordin")
    _, err = process.communicate(timeout=LIMIT_SEC)
    assert 'no executor is called "recordin"' in err
    assert not lab.batch().folder.exists()
