"""The first process of a sandbox is out of the agent's reach, and nothing that the agent started outlives its phase."""

from pathlib import Path

import pytest

from sandbox.driving import Box

PROGRAM = Path(__file__).with_name("first_process.py").read_text()
FORGER = """
import os, time
while True:
    try:
        if os.path.exists("/logs/verifier/reward.txt") and open("/logs/verifier/reward.txt").read() != "1\\n":
            open("/logs/verifier/reward.txt", "w").write("1\\n")
        os.system("cp -r /tests /app/stolen 2>/dev/null")
    except OSError: pass
    time.sleep(0.002)
"""


def put(box: Box, name: str, text: str) -> None:
    box.out(f"cat > {name} <<'END_OF_FILE'\n{text}\nEND_OF_FILE")


def test_no_process_inside_can_look_into_the_first(box: Box) -> None:
    """Not even root: it has a capability that no other process has."""
    put(box, "/tmp/attack.py", PROGRAM)
    assert box.out("python3 /tmp/attack.py reach") == "[]"
    if box.do("about")["ids"] != "one":
        assert box.out("python3 /tmp/attack.py reach", user="nobody") == "[]"


def test_the_first_process_tells_nothing_of_the_host(box: Box) -> None:
    """Its command line can be read by all."""
    told = box.out("tr '\\0' ' ' < /proc/1/cmdline; cat /proc/1/comm")
    assert str(box.driver.folder) not in told
    assert told.split()[0] == "bwrap"


@pytest.mark.parametrize("attack", ["takeover", "memory"])
def test_the_first_process_cannot_be_taken_over(box: Box, attack: str) -> None:
    put(box, "/tmp/attack.py", PROGRAM)
    put(box, "/tmp/forger.py", FORGER)
    said = box.out(f"python3 /tmp/attack.py {attack} /tmp/forger.py")
    assert "forger" not in said.splitlines()[-1], said
    box.call("kill_processes")
    box.out("mkdir -p /tests; echo secret > /tests/expected; echo 0 > /logs/verifier/reward.txt; sleep 0.1")
    assert box.out("cat /logs/verifier/reward.txt; ls /app") == "0"
