"""Rows from Hugging Face, of which a small server plays the part."""

import hashlib
import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from swebench_pro.instances import ID, row
from terminalbench.errors import TbenchError, UserError
from terminalbench.swebench_pro.dataset import read_rows

COMMIT = "7ab5114912baf22bb098818e604c02fe7ad2c11f"
NAME = "data/test-00000-of-00001.parquet"


class Hub(BaseHTTPRequestHandler):
    """The two questions that a download asks: what a revision is, and a file of it."""

    content = b""
    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        if self.path.startswith(f"/api/datasets/ScaleAI/SWE-bench_Pro/revision/{COMMIT[:7]}"):
            names = [NAME, "data/train-00000-of-00001.parquet", "README.md"]
            info = {"id": "ScaleAI/SWE-bench_Pro", "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
            self.answer(json.dumps(info).encode(), "application/json")
        elif self.path == f"/datasets/ScaleAI/SWE-bench_Pro/resolve/{COMMIT}/{NAME}":
            self.answer(self.content, "application/octet-stream")
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RevisionNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[type[Hub]]:
    pytest.importorskip("huggingface_hub")
    pyarrow = pytest.importorskip("pyarrow")
    from huggingface_hub import constants
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist([row()]), tmp_path / "rows.parquet")
    Hub.content, Hub.asked = (tmp_path / "rows.parquet").read_bytes(), []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield Hub
    server.shutdown()
    server.server_close()


def test_the_rows_of_a_revision_are_read_and_its_commit_is_known(hub: type[Hub]) -> None:
    read = read_rows(f"hf:{COMMIT[:7]}")
    assert (read.instances[0].instance_id, read.revision) == (ID, COMMIT)
    files = [line for line in hub.asked if "resolve" in line and line.startswith("GET")]
    assert files == [f"GET /datasets/ScaleAI/SWE-bench_Pro/resolve/{COMMIT}/{NAME}"]
    read_rows(f"hf:{COMMIT[:7]}")
    assert len([line for line in hub.asked if "resolve" in line and line.startswith("GET")]) == 1  # it is in the cache


def test_what_hugging_face_does_not_have_is_one_message(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="hf:other: ScaleAI/SWE-bench_Pro has no such revision"):
        read_rows("hf:other")
    with pytest.raises(UserError, match='no split "dev"'):
        read_rows(f"hf:{COMMIT[:7]}", "dev")
    with pytest.raises(UserError, match="hf: needs a revision"):
        read_rows("hf:")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(TbenchError, match="Hugging Face cannot be reached: .*download the parquet file elsewhere"):
        read_rows(f"hf:{COMMIT[:7]}")
