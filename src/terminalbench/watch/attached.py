"""The live view of a run in a process of its own, so that nothing that happens to the view can harm the run.

    python -m terminalbench.watch.attached <batch folder> <file descriptor>

The run holds the other end of a pipe: the view ends when that is closed. How the view ended is its exit code.
"""

import os
import signal
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

from terminalbench.experiments.batch import Batch
from terminalbench.watch.terminal import RESET

EXIT_OVER = 0
EXIT_LEFT = 40
EXIT_STOP = 41
GOODBYE = b"."
_END_SEC = 5.0


@dataclass
class AttachedView:
    """The view's process, seen from the run."""

    batch: Batch
    process: subprocess.Popen[bytes]
    channel: int
    saved: list

    @classmethod
    def start(cls, batch: Batch) -> "AttachedView":
        """Start the view. It stays in our process group: only that may read this terminal."""
        theirs, ours = os.pipe()
        saved = termios.tcgetattr(sys.stdin.fileno())
        argv = [sys.executable, "-P", "-m", "terminalbench.watch.attached", str(batch.folder), str(theirs)]
        try:
            process = subprocess.Popen(argv, pass_fds=(theirs,))
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return cls(batch, process, ours, saved)

    def poll(self) -> int | None:
        """How the view ended; None while it is shown."""
        code = self.process.poll()
        if code is not None and code not in (EXIT_OVER, EXIT_LEFT, EXIT_STOP):
            self._put_back()
        return code

    def end(self) -> None:
        """Take the view away, because the run is over. A second call does nothing."""
        if self.channel < 0:
            return
        try:
            os.write(self.channel, GOODBYE)
        except BrokenPipeError:
            pass
        os.close(self.channel)
        self.channel = -1
        try:
            code = self.process.wait(_END_SEC)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if code not in (EXIT_OVER, EXIT_LEFT, EXIT_STOP):
            self._put_back()

    def _put_back(self) -> None:
        """What a view that was killed left undone."""
        # Whoever changes a terminal from the background is stopped: the run must not be.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self.saved)
            sys.stdout.write(RESET)
            sys.stdout.flush()
        except (OSError, termios.error):
            return  # the terminal is gone
        finally:
            signal.signal(signal.SIGTTOU, before)


def main(arguments: list[str]) -> int:
    """The view's own process."""
    from terminalbench.live.feed import Feed
    from terminalbench.watch.app import Ending, show

    folder, channel = Path(arguments[0]), int(arguments[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is meant for the run, until the view listens itself
    ending = show(Feed(Batch(folder)), channel)
    if ending is Ending.ORPHANED:
        print(f"the run was killed; tbench resume {folder} goes on with it", file=sys.stderr)
    return {Ending.LEFT: EXIT_LEFT, Ending.STOP: EXIT_STOP, Ending.TERMINATED: 128 + signal.SIGTERM}.get(
        ending, EXIT_OVER
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
