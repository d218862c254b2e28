"""Limits the kernel holds for a sandbox: asked for only where they are the sandbox's own."""

import os
from types import SimpleNamespace

import pytest

from terminalbench.sandbox.engine import inside


@pytest.mark.parametrize(
    ("release", "written"),
    [
        ("6.14.0-1017-azure", ["shmall", "pid_max"]),
        ("7.0-rc1", ["shmall", "pid_max"]),
        ("6.13.12", ["shmall"]),
        ("6.8.0-31-generic", ["shmall"]),
        ("5.15.167.4-microsoft-standard-WSL2", ["shmall"]),
        ("strange", ["shmall"]),
    ],
)
def test_the_number_of_processes_of_the_host_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, release: str, written: list[str]
) -> None:
    """Before Linux 6.14 there is one for all, and root of a sandbox of root could set it."""
    opened: list[str] = []

    def keep(path: str, *_: object) -> int:
        opened.append(path.rpartition("/")[2])
        return 99

    monkeypatch.setattr(inside, "in_sandbox", lambda work: work())
    stand_in = SimpleNamespace(
        **{name: getattr(os, name) for name in ("O_WRONLY", "O_CLOEXEC", "CLONE_NEWUSER", "CLONE_NEWIPC")},
        CLONE_NEWPID=os.CLONE_NEWPID,
        open=keep,
        write=lambda *_: 1,
        setns=lambda *_: None,
        uname=lambda: SimpleNamespace(release=release),
    )
    monkeypatch.setattr(inside, "os", stand_in)
    assert inside.set_kernel_limits(0, 100, 1 << 20) is ("pid_max" in written)
    assert opened == written
