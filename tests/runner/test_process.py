"""Processes of ours, however we were started."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from support.pace import seconds
from terminalbench.runner.deaths import log_tail
from terminalbench.runner.executors.base import JobRun
from terminalbench.runner.executors.local import here, tied
from terminalbench.secrets.values import NONE


def test_harbor_hears_an_interrupt_though_we_were_started_in_the_background() -> None:
    """A shell script's `tbench run ... &` ignores SIGINT, which children inherit; then Harbor could only be killed."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        argv = tied([sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT).__name__)"])
        said = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    finally:
        signal.signal(signal.SIGINT, before)
    assert said.stdout == "default_int_handler\n", said.stderr


def test_jobs_on_this_machine_are_told_that_the_check_has_started_a_sandbox(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import os; print(os.environ['TBENCH_SANDBOX_CHECKED'], os.environ['OWN'])"]
    job, executor = JobRun("job", "profile", argv, {"OWN": "kept"}, tmp_path / "job", tmp_path / "log"), here()
    worker = executor.start(job)
    while executor.poll(worker) is None:
        time.sleep(0.01)
    assert job.log.read_text() == "1 kept\n"


LEAVER = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 32):
            if number not in (9, 17, 19):
                signal.signal(number, signal.SIG_IGN)
        os.write(1, b"%d" % os.getpid())
        os.close(1)
        time.sleep(300)
    os._exit(0)
os.waitpid(-1, 0)
"""


def test_what_an_agent_left_in_another_session_ends_with_its_harbor() -> None:
    """Harbor ends by itself, and nothing of its group is left; the agent's process ignores all but one signal."""
    argv = tied([sys.executable, "-c", LEAVER], signal.SIGINT)
    said = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=240, start_new_session=True)
    left = Path("/proc", said.stdout, "stat")

    def runs() -> bool:
        try:
            return left.read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
        except OSError:
            return False

    assert runs(), "it has to outlive its parent to prove anything"
    deadline = time.monotonic() + seconds(60)
    while runs() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not runs()


def test_the_last_words_of_a_job_name_what_it_raised(tmp_path) -> None:
    log = tmp_path / "log"
    log.write_text("start\n╭─ Traceback ─╮\n│ line 14 │\n│ RuntimeError: no room; api_key=abcdef123456 │\n╰──╯\n")
    assert log_tail(log, NONE) == "RuntimeError: no room; api_key=[redacted]"
    log.write_text("one\n\ntwo\n")
    assert log_tail(log, NONE) == "one two"
    assert log_tail(tmp_path / "none", NONE) == ""
