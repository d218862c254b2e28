"""The process that takes requests for a sandbox: out of reach, with few rights, and nothing of one request in another."""

import json
import os
import select
import signal
from pathlib import Path

from sandbox.driving import PATIENCE_SEC, Driver
from sandbox.test_attacks import DOCKER_DEFAULT_CAPABILITIES
from sandbox.test_life import alive, family, name_of, until

WAKE_ALARM = 1 << 35
_TRANSFERS = 100
"""So many are looked at until one is seen at work."""


def porters(driver: Driver) -> set[int]:
    """The porters of a driver's sandboxes, without the processes that they start."""
    found = {pid for pid in family(driver) if name_of(pid) == "tbench-porter"}
    return {pid for pid in alive(found) if _stat(pid)[1] not in found}


def carriers(driver: Driver) -> set[int]:
    """The processes that do the transfers of a driver's sandboxes."""
    return {pid for pid in family(driver) if name_of(pid) == "tbench-carrier"}


def _stat(pid: int) -> list[int]:
    """State (as 0), parent, group, session of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [0, *map(int, fields[1:4])]


def test_it_has_no_rights_beyond_those_of_commands_and_no_process_inside_sees_it(own_driver: Driver) -> None:
    box = own_driver.box()
    box.out("true")
    (porter,) = porters(own_driver)
    status = dict(
        line.split(":\t") for line in Path(f"/proc/{porter}/status").read_text().splitlines() if ":\t" in line
    )
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        extra = WAKE_ALARM if name in ("CapPrm", "CapEff") else 0
        assert int(status[name], 16) & ~DOCKER_DEFAULT_CAPABILITIES == extra, name
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    first = next(pid for pid in family(own_driver) if name_of(pid) == "bwrap" and name_of(_stat(pid)[1]) == "bwrap")
    for space in ("user", "mnt", "net", "ipc", "uts", "pid_for_children"):
        assert _space(porter, space) == _space(first, space), space
    assert _space(porter, "pid") != _space(first, "pid")
    assert len(box.out("echo /proc/[0-9]*").split()) == 2  # the first, and the shell


def _space(pid: int, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def test_what_runs_when_a_sandbox_starts_anew_is_told_its_end_and_a_new_porter_serves(own_driver: Driver) -> None:
    box = own_driver.box()
    before = porters(own_driver)
    done = box.do("renew_while", "touch /tmp/runs; sleep 1000", "test -e /tmp/runs")
    assert done["return_code"] == 128 + signal.SIGKILL
    after = porters(own_driver)
    assert len(before) == len(after) == 1
    assert before != after
    assert box.out("echo new") == "new"


def test_what_a_lost_porter_left_running_is_ended_too(own_driver: Driver) -> None:
    """It is alone in the group then, as the porter is where nothing runs."""
    box = own_driver.box()
    box.out("setsid sleep 1000 >/dev/null 2>&1 &")
    box.until("pgrep -c sleep", "1")
    (porter,) = porters(own_driver)
    os.kill(porter, signal.SIGKILL)
    assert until(lambda: not alive({porter}))
    box.call("kill_processes")
    assert box.out("pgrep -c -r R,S,D,T sleep || true") == "0"


def test_who_answers_one_request_holds_nothing_of_another(own_driver: Driver, work: Path) -> None:
    box = own_driver.box()
    (work / "large").write_bytes(bytes(64 << 20))
    stdin, stdout = own_driver.process.stdin, own_driver.process.stdout
    assert stdin is not None
    assert stdout is not None
    args = [box.number, "sleep 1000", str(work / "large"), "/tmp/large"]
    box.out("true")
    (carrier,) = carriers(own_driver)
    held = list[str]()
    for _ in range(_TRANSFERS):  # one may be over before we look
        stdin.write(json.dumps({"do": "upload_beside", "args": args, "options": {}}) + "\n")
        stdin.flush()
        while not held and not select.select([stdout], [], [], 0)[0]:
            held = _files_of_transfer(carrier)
        assert json.loads(stdout.readline()) == {"value": None}
        if held:
            break
    assert sum(name.startswith("socket:") for name in held) == 2, held  # the one to answer by, and its door
    assert not [name for name in held if "pidfd" in name or name.startswith("/proc")], held


def test_a_transfer_that_hangs_or_dies_harms_no_other(own_driver: Driver, work: Path) -> None:
    box = own_driver.box()
    (work / "file").write_text("content")
    (carrier,) = carriers(own_driver)
    os.kill(carrier, signal.SIGSTOP)
    assert not box.do("upload_within", 0.3, str(work / "file"), "/tmp/first")
    assert box.do("upload_within", PATIENCE_SEC, str(work / "file"), "/tmp/second")
    os.kill(carrier, signal.SIGCONT)
    assert until(lambda: not alive({carrier}))  # who asked it has let go
    box.call("kill_processes")
    assert box.out("ls /tmp; cat /tmp/second").split() == ["second", "content"]


def _files_of_transfer(carrier: int) -> list[str]:
    """What the process that does transfers has open; nothing if none is going on, once it has read what is asked."""
    os.kill(carrier, signal.SIGSTOP)
    try:
        held = [str(path.readlink()) for path in Path(f"/proc/{carrier}/fd").iterdir()]
    finally:
        os.kill(carrier, signal.SIGCONT)
    begun = not any("memfd:data" in name for name in held)
    return held if begun and any(name.startswith("pipe:") for name in held) else []
