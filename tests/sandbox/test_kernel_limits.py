"""Limits the kernel holds for a sandbox: asked for only where they are the sandbox's own."""

import os
from types import SimpleNamespace

import pytest

from terminalbench.sandbox.engine import inside

OBJECTS = ["shmall", "msgmni", "sem"]


@pytest.mark.parametrize(
    ("release", "written"),
    [
        ("6.14.0-1017-azure", [*OBJECTS, "pid_max"]),
        ("7.0-rc1", [*OBJECTS, "pid_max"]),
        ("6.13.12", OBJECTS),
        ("6.8.0-31-generic", OBJECTS),
        ("5.15.167.4-microsoft-standard-WSL2", OBJECTS),
        ("strange", OBJECTS),
    ],
)
@pytest.mark.parametrize("entered", [True, False])
def test_the_numbers_of_the_host_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, release: str, written: list[str], entered: bool
) -> None:
    """Before Linux 6.14 there is one number of processes for all; outside of a namespace all of them are the host's."""
    opened: list[str] = []
    monkeypatch.setattr(inside.kernel, "write", lambda path, _: opened.append(path.rpartition("/")[2]))
    monkeypatch.setattr(inside, "in_sandbox", lambda work: work())
    spaces = iter(["ipc:[1]", "ipc:[2]" if entered else "ipc:[1]"])
    monkeypatch.setattr(inside.proc, "namespace", lambda *_: next(spaces))
    stand_in = SimpleNamespace(
        **{name: getattr(os, name) for name in ("CLONE_NEWPID", "CLONE_NEWUSER", "CLONE_NEWIPC")},
        setns=lambda *_: None,
        uname=lambda: SimpleNamespace(release=release),
    )
    monkeypatch.setattr(inside, "os", stand_in)
    assert inside.set_kernel_limits(0, 100, 1 << 20) is (entered and "pid_max" in written)
    assert opened == (written if entered else [])
