"""`[run.network]` of an experiment, kept in each phase of a real run and told afterwards."""

import json
from pathlib import Path
from typing import Any

from terminalbench.index.sql import ask

TRY = "python3 -c \"import socket; socket.create_connection(('{host}', 80), 3)\" 2>/dev/null; "


def test_each_phase_has_its_own_policy_and_the_log_tells(lab: Any) -> None:
    """The agent's `none` is no network at all; the verifier's list is that list; both leave a line of what was refused."""
    task = lab.root / "tasks" / "a"
    for file, host in ((task / "solution" / "solve.sh", "agent.test"), (task / "tests" / "test.sh", "verifier.test")):
        head, _, rest = file.read_text().partition("\n")
        file.write_text(f"{head}\n{TRY.format(host=host)}\n{rest}")
    table = '[run.network]\nagent = "none"\nverifier = ["pypi.org"]\n'
    file = lab.experiment('[profiles.oracle]\nagent = "oracle"\n', tasks=("a",), run=table)
    assert "network: agent none; verifier pypi.org" in lab.tbench("plan", file).stdout
    ran = lab.tbench("run", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    [log] = Path(lab.root / "results").rglob("egress.jsonl")
    note, *lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert note == {"upstreams": []}
    assert {(line["phase"], line["host"], line["refused"]) for line in lines} == {
        ("agent", "agent.test", "no_network"),
        ("verifier", "verifier.test", "not_listed"),
    }
    assert log.parent.name not in ("agent", "verifier", "artifacts")
    shown = lab.tbench("show", log.parent).stdout
    assert "  network   0 connections; " in shown
    assert "refused agent.test: no_network" in shown
    assert ask(lab.root / "results", "SELECT connections, refused > 1, hosts FROM trials").rows == [(0, 1, "[]")]
