"""A Python process of our own that serves this one: it has nothing of its environment, and is gone with it."""

import atexit
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from terminalbench.sandbox.engine import wire

_SOURCES = Path(__file__).resolve().parents[2]
_BOOT = "import sys; sys.path.insert(0, {root!r}); from {module} import main; main()"
_END_PATIENCE_SEC = 10


def spawn(command: list[str], channel: int, complaint: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, with one end of its channel and the file for what it complains of."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=complaint,
        env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
        pass_fds=(channel,),
        start_new_session=True,
    )


class Attendant:
    """A running one, and our end of its channel; it ends when that is closed, however this process ends."""

    def __init__(self, module: str, *arguments: str, complaint: IO[bytes] | int = subprocess.DEVNULL) -> None:
        """Start `main()` of a module, whose arguments are the number of its channel and these."""
        self.pid = os.getpid()
        self.channel, theirs = wire.socket_pair()
        boot = _BOOT.format(root=str(_SOURCES), module=module)
        with theirs:
            handle = theirs.fileno()
            command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", boot, str(handle), *arguments]
            self.process = spawn(command, handle, complaint)
        atexit.register(self.close)

    def alive(self) -> bool:
        """Return whether it still serves this very process (not a fork of it).

        A process that is killed lets go of its channel a little before its parent can know that it has ended.
        """
        if self.pid != os.getpid() or self.process.poll() is not None:
            return False
        handle = self.channel.fileno()
        return handle >= 0 and not wire.hung_up(handle)

    def close(self) -> None:
        """Let it go and wait for it."""
        if self.pid == os.getpid():
            self.channel.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_PATIENCE_SEC)
