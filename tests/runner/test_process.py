"""Processes of ours, however we were started."""

import signal
import subprocess
import sys

from terminalbench.runner.process import tied


def test_harbor_hears_an_interrupt_though_we_were_started_in_the_background() -> None:
    """A shell script's `tbench run ... &` ignores SIGINT, which children inherit; then Harbor could only be killed."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        argv = tied([sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT).__name__)"])
        said = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    finally:
        signal.signal(signal.SIGINT, before)
    assert said.stdout == "default_int_handler\n", said.stderr
