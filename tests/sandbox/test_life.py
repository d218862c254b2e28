"""Everything ends with whoever started it, whatever happened; and what could not clean up is cleaned up after."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.driving import Box, Driver, Raised

pytestmark = pytest.mark.any_user


def holders(token: str) -> list[int]:
    """Host processes whose command line names `token`."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and token in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def family(driver: Driver) -> set[int]:
    """The helper, guardians, porters and bwraps of a driver: all that mention its cache, and their children."""
    parents, members = {}, set(holders(str(driver.folder / "cache")))
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit():
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(fields[1])
        except OSError:
            continue
    members |= {pid for pid, parent in parents.items() if parent == driver.process.pid}
    size = -1
    while size != len(members):
        size = len(members)
        members |= {pid for pid, parent in parents.items() if parent in members}
    return members - {driver.process.pid}


def name_of(pid: int) -> str:
    """The name of a process; "" when it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and _state(pid) not in ("Z", "X", "")}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def until(condition: Callable[[], bool], patience_sec: float = 120) -> bool:
    deadline = time.monotonic() + patience_sec
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def groups(pid: int) -> set[str]:
    """Control groups made for the sandboxes of the process `pid`."""
    return {str(path) for path in Path("/sys/fs/cgroup").rglob(f"tbench-{pid}-*")}


def sleep_of(driver: Driver) -> str:
    """How long the sleepers of a driver sleep: no other test's do so."""
    return str(1_000_000 + driver.process.pid)


def busy(driver: Driver) -> Box:
    """A sandbox with two sleepers of its own sessions in it."""
    box, seconds = driver.box(), sleep_of(driver)
    box.out(f"setsid sleep {seconds} >/dev/null 2>&1 & setsid sh -c 'sleep {seconds}; true' >/dev/null 2>&1 &")
    box.until("pgrep -c sleep", "2")
    return box


def leftovers(driver: Driver) -> list[str]:
    root = driver.folder / "cache" / "terminalbench" / f"sandbox-{driver.uid}"
    return [path.name for kind in ("run", "building") for path in (root / kind).glob("*")]


@pytest.mark.both_users
def test_stop_leaves_nothing(own_driver: Driver) -> None:
    box = busy(own_driver)
    sleepers = f"sleep\0{sleep_of(own_driver)}"
    assert until(lambda: len(holders(sleepers)) == 2), holders(sleepers)
    inside = holders(sleepers)
    box.call("stop", True)
    assert alive(set(inside)) == set()
    assert leftovers(own_driver) == []
    assert groups(own_driver.process.pid) == set()


@pytest.mark.both_users
def test_a_killed_owner_leaves_nothing(own_driver: Driver) -> None:
    busy(own_driver)
    busy(own_driver)
    relatives = family(own_driver)
    assert len(relatives) >= 8
    own_driver.process.kill()
    assert until(lambda: not alive(relatives)), alive(relatives)
    assert until(lambda: not leftovers(own_driver)), leftovers(own_driver)
    assert until(lambda: not groups(own_driver.process.pid))


@pytest.mark.both_users
def test_a_killed_owner_in_the_middle_of_a_command_leaves_nothing(own_driver: Driver) -> None:
    box = own_driver.box()
    seconds = 6_000_000 + own_driver.process.pid  # no other test's
    assert own_driver.process.stdin is not None
    own_driver.process.stdin.write(
        f'{{"do": "execute", "args": [{box.number}, "setsid sleep {seconds} & sleep {seconds}"], "options": {{}}}}\n'
    )
    own_driver.process.stdin.flush()
    assert until(lambda: len(holders(f"sleep\0{seconds}")) >= 2)
    relatives = family(own_driver)
    own_driver.process.kill()
    assert until(lambda: not alive(relatives)), alive(relatives)
    assert not holders(f"sleep\0{seconds}")


@pytest.mark.both_users
def test_if_all_are_killed_the_kernel_ends_the_sandbox_and_the_next_start_cleans_up(own_driver: Driver) -> None:
    busy(own_driver)
    relatives = family(own_driver)
    owner = own_driver.process.pid
    keepers = {pid for pid in relatives if name_of(pid).startswith("tbench-")}
    assert len(keepers) >= 2
    for pid in keepers:
        with contextlib.suppress(ProcessLookupError):  # one that only served a command has ended by itself
            os.kill(pid, signal.SIGSTOP)  # so that none can react to the death of another
    for pid in (owner, *keepers):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert until(lambda: not alive(relatives)), alive(relatives)
    assert leftovers(own_driver), "nothing was left: the collector has nothing to show"
    own_driver.restart()
    box = own_driver.box()
    box.call("stop", True)
    assert leftovers(own_driver) == []
    assert groups(owner) == set()


def test_a_lost_helper_is_replaced(own_driver: Driver) -> None:
    box = busy(own_driver)
    helpers = [pid for pid in family(own_driver) if name_of(pid) == "tbench-sandbox"]
    for pid in helpers:
        os.kill(pid, signal.SIGKILL)
    assert until(lambda: not alive(set(helpers)))
    assert box.out("pgrep -c sleep") == "2"  # a running sandbox does not need it
    box.call("kill_processes")
    assert box.out("pgrep -c -r R,S,D,T sleep || true") == "0"
    other = own_driver.box()
    assert other.out("echo new") == "new"
    for one in (box, other):
        one.call("stop", True)
    assert leftovers(own_driver) == []


def test_a_lost_porter_is_not_missed(own_driver: Driver) -> None:
    box = own_driver.box()
    porters = {pid for pid in family(own_driver) if name_of(pid) == "tbench-porter"}
    assert porters
    for pid in porters:
        os.kill(pid, signal.SIGKILL)
    assert until(lambda: not alive(porters))
    assert box.out("echo still") == "still"
    box.call("stop", True)
    assert leftovers(own_driver) == []


@pytest.mark.both_users
def test_a_sandbox_whose_first_process_ends_says_so(own_driver: Driver) -> None:
    """The host's kernel may do that for want of memory; it must read as an error, never as a result."""
    box = own_driver.box()
    first = [pid for pid in family(own_driver) if name_of(pid) == "bwrap" and name_of(_parent(pid)) == "bwrap"]
    assert len(first) == 1
    os.kill(first[0], signal.SIGKILL)
    assert until(lambda: not alive(set(first)))
    with pytest.raises(Raised, match="SandboxError"):
        box.run("echo x")
    box.call("stop", True)
    assert until(lambda: leftovers(own_driver) == [])


def test_the_caller_may_end_without_stopping(driver: Driver) -> None:
    """A script that forgets `stop` leaves nothing either."""
    code = (
        "import asyncio\n"
        "from terminalbench.sandbox import helper\n"
        "from terminalbench.sandbox.root_filesystem import open_base\n"
        "from terminalbench.sandbox.plan import limits_for\n"
        "from terminalbench.sandbox.plan import SandboxPlan\n"
        "from terminalbench.sandbox.session import Sandbox\n"
        "async def main():\n"
        "    plan = SandboxPlan(open_base('host', helper.helper().ids), limits_for(100, 10, 1, scratch='memory'))\n"
        "    box = await Sandbox.start(plan)\n"
        "    print((await box.run(['sh', '-c', 'setsid sleep SECONDS >/dev/null 2>&1 & echo done'], env={})).stdout)\n"
        "asyncio.run(main())\n"
    )
    seconds = 7_000_000 + os.getpid()  # no other test's
    command = driver.command(sys.executable, "-c", code.replace("SECONDS", str(seconds)))
    done = subprocess.run(command, env=driver.environment(), capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "done"
    assert until(lambda: not holders(f"sleep\0{seconds}"))
    assert until(lambda: leftovers(driver) == [])


def test_many_at_once(driver: Driver) -> None:
    boxes = [driver.box() for _ in range(6)]
    assert [box.out("hostname; ls /proc | grep -c '^[0-9]'").split()[0] for box in boxes] == ["sandbox"] * 6
    for box in boxes:
        box.call("stop", True)
    assert leftovers(driver) == []
