"""What Harbor's set-ups need, compared with their own commands; and when the check before a run refuses an agent."""

import asyncio
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from harbor_table import SETUPS
from support.tasks import write_task
from terminalbench.experiments.agents import AgentInfo, agent_info
from terminalbench.harbor.agents import needs
from terminalbench.sandbox.network import client

LOCAL = {"import_path": needs.LOCAL_SANDBOX}
MIRRORED = {"registry.npmjs.org", "pypi.org", "nodejs.org", "deb.debian.org", "cdn.agentclientprotocol.com"}
"""Hosts that a set-up can be told to go past."""
FALLBACKS = {"github.com", "releases.astral.sh", "bun.sh"}
"""Hosts that a set-up asks, or names, only after another."""
NOT_MADE = {"acp", "deerflow", "eve", "fx-dev", "langgraph", "strands"}
"""Agents whose set-up wants more than a sandbox that lacks all: a project of one's own, or what it has installed."""


def record(name: str) -> AgentInfo:
    found = agent_info(name)
    assert found is not None
    return found


def agent_class(name: str) -> Any:
    from harbor.agents.factory import AgentFactory  # loads every agent of Harbor's
    from harbor.models.agent.name import AgentName

    return AgentFactory.get_agent_class(AgentName(name))


def commands(kind: Any, folder: Path) -> list[str]:
    """What the set-up of an agent runs in a sandbox that has nothing of what it looks for."""
    said: list[str] = []

    async def does(_environment: Any, command: str, **_more: Any) -> SimpleNamespace:
        said.append(command)
        return SimpleNamespace(return_code=0, stdout="0", stderr="")

    async def lacks(command: str, **_more: Any) -> SimpleNamespace:
        said.append(command)
        return SimpleNamespace(return_code=1, stdout="", stderr="")

    agent = kind(logs_dir=folder, model_name="openai/scripted")
    environment = mock.MagicMock(default_user=None, exec=lacks)
    environment.upload_file = environment.upload_dir = mock.AsyncMock()
    with (
        mock.patch.object(agent, "exec_as_agent", does),
        mock.patch.object(agent, "exec_as_root", does),
        mock.patch.object(agent, "ensure_system_dependencies", mock.AsyncMock()),
    ):
        asyncio.run(agent.install(environment))
    return said


@pytest.mark.parametrize("name", sorted({*SETUPS} - NOT_MADE))
def test_a_set_up_asks_the_hosts_that_are_recorded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVIN_API_KEY", "scripted")
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    said = "\n".join(commands(agent_class(name), tmp_path))
    asked = set(re.findall(r"https?://([\w.-]+)", said)) - MIRRORED
    recorded = {host for need in record(name).needs for host in need["hosts"]}
    assert recorded - FALLBACKS <= asked
    assert asked - FALLBACKS <= recorded
    looked_for = {thing for need in record(name).needs for thing in need["unless"]}
    for thing in looked_for:
        if not thing.startswith(("$", "option:")):
            assert thing.partition(">=")[0] in said or thing == "apk", thing


def test_every_agent_that_is_installed_has_a_record() -> None:
    from harbor.agents.factory import AgentFactory
    from harbor.agents.installed.base import BaseInstalledAgent

    names = AgentFactory.registered_names()
    assert {name for name in names if issubclass(agent_class(name), BaseInstalledAgent)} == set(SETUPS)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No host answers, and no program is on this machine but those of the folder that is returned."""
    monkeypatch.setattr(needs, "reached", lambda _hosts: {})
    monkeypatch.setattr(needs, "SYSTEM_PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def mounted(*targets: str) -> dict[str, Any]:
    return {**LOCAL, "mounts": [{"type": "bind", "source": "/x", "target": target} for target in targets]}


def program(folder: Path, name: str, says: str = "") -> None:
    (folder / name).write_text(f"#!/bin/sh\necho {says}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("name", ["gemini-cli", "opencode", "qwen-coder", "aider", "goose"])
def test_a_mounted_program_does_not_help_an_agent_that_does_not_look_for_it(name: str, offline: Path) -> None:
    info = record(name)
    program(offline, str(info.program))
    told = needs.not_installable(info, mounted(f"/usr/local/bin/{info.program}"), ())
    assert told is not None
    assert f"{info.needs[0]['hosts'][0]} cannot be reached" in told
    assert "even if its program exists" in told
    assert (f"`{info.package}`: docs/agents.md" in told) == (info.package is not None)


def test_what_a_set_up_looks_for_is_found_where_it_would_be(offline: Path) -> None:
    codex, cline, sdk, mini = (record(name) for name in ("codex", "cline-cli", "openhands-sdk", "mini-swe-agent"))
    assert "the sandbox has no codex (mount it" in (needs.not_installable(codex, LOCAL, ()) or "")
    assert needs.not_installable(codex, mounted("/usr/local/bin/codex"), ()) is None
    assert needs.not_installable(sdk, mounted("/opt/openhands-sdk-venv"), ()) is None
    assert needs.not_installable(sdk, LOCAL, ("--mounts", '["/x:/opt/openhands-sdk-venv:ro"]')) is None
    assert needs.not_installable(sdk, mounted("/opt/other"), ()) is not None
    program(offline, "node", "v20.1.0")
    assert "no node of at least 22" in (needs.not_installable(cline, LOCAL, ()) or "")
    program(offline, "node", "v22.1.0")
    assert needs.not_installable(cline, LOCAL, ()) is None
    told = needs.not_installable(mini, mounted("/usr/local/bin/uv"), ())
    assert told is not None
    assert "github.com cannot be reached and releases.astral.sh cannot be reached" in told
    assert needs.not_installable(mini, mounted("/usr/local/bin/uv"), (), (), {"UV_PYTHON_INSTALL_MIRROR"}) is None
    assert needs.not_installable(record("antigravity-cli"), LOCAL, (), (), {"option:binary_path"}) is None


def test_the_images_of_the_tasks_may_have_what_it_looks_for(offline: Path, tmp_path: Path) -> None:
    task, root, codex = write_task(tmp_path / "t"), tmp_path / "root", record("codex")
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "usr" / "bin" / "sh").touch()
    folder = {"kwargs": {"images": {"debian:*": str(root)}}}
    tasks = [{"path": str(task)}]
    program(offline, "codex")
    assert needs.not_installable(codex, LOCAL, (), tasks) is None, "the task runs on this machine's system"
    on_image = {**LOCAL, **folder}
    assert needs.not_installable(codex, on_image, (), tasks) is not None, "this machine's is not in the image"
    inside = Path(f"{root}{offline}")
    inside.mkdir(parents=True)
    program(inside, "apk")
    assert needs.not_installable(codex, on_image, (), tasks) is None, "Alpine has packages of Node"
    assert needs.not_installable(record("gemini-cli"), on_image, (), tasks) is not None
    (inside / "apk").unlink()
    dockerfile = task / "environment" / "Dockerfile"
    dockerfile.write_text(f"{dockerfile.read_text()}RUN npm install -g @openai/codex\n")
    assert needs.not_installable(codex, on_image, (), tasks) is None, "its Dockerfile may install it"
    assert needs.not_installable(codex, on_image, (), [{"git_url": "x"}]) is None, "it is not known"


def test_the_policy_of_the_set_up_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "reached", lambda hosts: dict.fromkeys(hosts, "10.0.0.7"))
    gemini = record("gemini-cli")

    def told(network: Any) -> str | None:
        return needs.not_installable(gemini, {**LOCAL, "kwargs": {"network": network}}, ())

    assert "is not allowed by run.network.setup" in (told({"setup": ["pypi.org"]}) or "")
    assert "is not allowed by run.network.setup" in (told({"setup": "none"}) or "")
    assert "is in a private network" in (told({}) or "")
    assert told({"setup": ["raw.githubusercontent.com"]}) is None
    assert told("host") is None
    monkeypatch.setattr(needs, "reached", lambda hosts: dict.fromkeys(hosts, "192.0.2.7"))
    assert told({"agent": "none"}) is None


def test_what_a_class_of_ones_own_declares(offline: Path) -> None:
    own = AgentInfo(name="own", program="prog", installer="install.example.org")
    assert "install.example.org cannot be reached" in (needs.not_installable(own, LOCAL, ()) or "")
    program(offline, "prog")
    assert needs.not_installable(own, LOCAL, ()) is None


@contextmanager
def listening(answer: bytes | None, certificate: Path | None = None) -> Generator[int]:
    """A port at which a gateway answers the first bytes so, and then speaks TLS or hangs up."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                made, _ = server.accept()
            except OSError:
                return
            with closing(made):
                if answer is not None:
                    made.recv(4096)
                    made.sendall(answer)
                if certificate is not None:
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.load_cert_chain(certificate)
                    with suppress(OSError):
                        context.wrap_socket(made, server_side=True).close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl, to make a certificate")
    file = tmp_path / "both.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    new = ["openssl", "req", "-x509", *curve, "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    subprocess.run([*new, "-keyout", str(file), "-out", str(tmp_path / "c")], check=True, capture_output=True)
    file.write_text(file.read_text() + (tmp_path / "c").read_text())
    return file


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(client, "_known", {})


def test_a_host_is_reached_when_it_greets(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(None, certificate) as port:
        monkeypatch.setattr(client, "_PORT", port)
        assert client.reached(["localhost", "no-such-host.invalid"]) == {"localhost": "127.0.0.1"}
    assert client.reached(["localhost"]) == {"localhost": "127.0.0.1"}, "it is tried once in a process"
    monkeypatch.setattr(client, "_known", {})
    assert client.reached(["localhost"]) == {}


def test_a_gateway_that_takes_the_connection_and_hangs_up_is_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(None) as port:
        monkeypatch.setattr(client, "_PORT", port)
        assert client.reached(["localhost"]) == {}


def test_a_proxy_decides_by_its_answer(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        listening(b"HTTP/1.1 403 Forbidden\r\n\r\n") as refuses,
        listening(b"HTTP/1.1 200 OK\r\n\r\n", certificate) as takes,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{refuses}")
        assert client.reached(["host.example"]) == {}
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{takes}")
        assert client.reached(["host.example"]) == {"host.example": client.PROXY}


def test_a_name_server_that_does_not_answer_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setattr(client, "PATIENCE_SEC", 0.1)
    monkeypatch.setattr(client, "_try", lambda *_: free.wait(30))
    assert client.reached(["host.example", "other.example"]) == {}
    free.set()
