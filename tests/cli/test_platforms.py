"""Other systems than Linux, as far as they can be acted here: what is not there is taken away before anything is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from terminalbench.sandbox.probe import probe

ACTED = """
import os, select, signal, sys
sys.platform = {platform!r}
for module, names in ((os, {os!r}), (select, ["epoll"]), (signal, {signals!r})):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
for name in {modules!r}:
    sys.modules[name] = None
sys.argv = ["tbench", *{arguments!r}]
from terminalbench.cli.main import entry
entry()
"""
LINUX_ALONE = [
    "eventfd", "memfd_create", "pidfd_open", "posix_fadvise", "sched_getaffinity", "setns", "splice", "unshare",
]  # fmt: skip
TABLE = "task,profile,passed\n" + "".join(f"t{n},old,0\nt{n},new,1\n" for n in range(8))


def act(platform: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `tbench` as on another system."""
    missing = {"os": LINUX_ALONE, "signals": [], "modules": []}
    if platform == "win32":
        missing = {
            "os": [*LINUX_ALONE, "fork", "killpg", "geteuid"],
            "signals": ["SIGHUP", "SIGQUIT", "SIGKILL"],
            "modules": ["fcntl", "grp", "pty", "pwd", "resource", "termios"],
        }
    code = ACTED.format(platform=platform, arguments=arguments, **missing)
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=600)


def test_windows_is_told_of_wsl(tmp_path: Path) -> None:
    ran = act("win32", tmp_path, "list")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert (
        ran.stderr
        == "error: terminalbench runs on Linux and macOS; on Windows, install and use it in WSL 2 (wsl --install)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", "results.csv"), "new vs old: +100.0 pt"),
        (("import", "results.csv", "--name", "told"), "16 trials"),
    ],
)
def test_macos_compares_and_imports(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "results.csv").write_text(TABLE)
    ran = act("darwin", tmp_path, *arguments)
    assert ran.returncode == 0, ran.stderr
    assert said in ran.stdout


def test_macos_is_told_before_a_run_that_the_local_sandbox_needs_linux(tmp_path: Path) -> None:
    assert act("darwin", tmp_path, "init", "--demo", ".").returncode == 0
    for command in ("validate", "plan"):
        ran = act("darwin", tmp_path, command, "experiments/demo.toml")
        assert ran.returncode == 0, ran.stderr
        assert "weak, strong: the local sandbox needs Linux, but this is darwin" in " ".join(ran.stdout.split())


def test_macos_has_no_local_sandbox_and_is_told_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    found = probe()
    assert not found.works
    assert "it needs Linux, but this is darwin (" in found.lines[1]
    assert "elsewhere" in found.lines[1] or "docker" in found.lines[1]
