"""Processes of ours, however we were started."""

import signal
import subprocess
import sys

from terminalbench.runner.executors.local import tied
from terminalbench.runner.last_words import log_tail
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


def test_the_last_words_of_a_job_name_what_it_raised(tmp_path) -> None:
    log = tmp_path / "log"
    log.write_text("start\n╭─ Traceback ─╮\n│ line 14 │\n│ RuntimeError: no room; api_key=abcdef123456 │\n╰──╯\n")
    assert log_tail(log, NONE) == "RuntimeError: no room; api_key=[redacted]"
    log.write_text("one\n\ntwo\n")
    assert log_tail(log, NONE) == "one two"
    assert log_tail(tmp_path / "none", NONE) == ""
