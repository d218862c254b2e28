"""The process that Harbor's processes are forked from in tests lives through clients that are killed."""

import array
import json
import os
import select
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from support import warm

VERSION = ["harbor", "--version"]


@pytest.mark.parametrize("moment", ["the head is sent", "half is sent", "the answer is not read"])
def test_a_client_that_is_killed_while_it_asks_ends_nothing_but_itself(moment: str) -> None:
    data = json.dumps({"argv": VERSION, "env": dict(os.environ), "cwd": "/", "signal": 9, "channel": []}).encode()
    with Path(os.devnull).open("r+") as null, warm._connect(warm._ENV[warm.FOLDER], warm.HARBOR) as client:
        places = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("user", "mnt")]
        rights = array.array("i", [*[null.fileno()] * 3, *places, null.fileno()])
        client.sendmsg([struct.pack("!I", len(data))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        client.sendall({"the head is sent": b"", "half is sent": data[:7]}.get(moment, data))
        if moment == "the answer is not read":
            assert select.select([client], [], [], 60)[0]
        for place in places:
            os.close(place)
    another, pipe = warm.Warm(), subprocess.PIPE
    run = another(VERSION, os.environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT)
    assert run.communicate()[0].strip()


def test_a_loaded_process_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "ANSWER_SEC", 0.05)
    (tmp_path / "log-deaf").write_text("out of memory")
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        deaf.listen(1)
        asks = warm.Warm(f"{os.getpid()}:{tmp_path}", "deaf")
        with pytest.raises(TimeoutError, match="the loaded process deaf forked nothing in .* s: out of memory"):
            asks(VERSION, {}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
