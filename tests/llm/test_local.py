"""`local:FILE.gguf`: a real server of llama.cpp with a tiny model of random weights."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from support.pace import seconds
from support.tiny_gguf import tiny_gguf
from terminalbench.errors import UserError
from terminalbench.llm.local import lease as leases
from terminalbench.llm.local.gguf import file_digest, read_model_file, served_name
from terminalbench.llm.local.lease import slots_of, speed, window_of
from terminalbench.llm.local.model import LocalModel
from terminalbench.llm.local.server import LlamaProxy
from terminalbench.llm.local.spec import LocalSpec, parse_local, shown_model
from terminalbench.llm.model import Message, ModelError, ModelFault, Options, chat_model, schema_of
from terminalbench.locks import start_ticks

WINDOW = 1024
ASKED = [Message("user", "Well?")]


class Verdict(msgspec.Struct):
    """The form of an answer."""

    good: bool


@pytest.fixture(scope="module", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers and digests of this test alone."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "models_folder", lambda: folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf(tmp_path_factory.mktemp("models") / "tiny random.gguf")


@pytest.fixture(scope="module")
def model(file: Path, _own_folders: None) -> Iterator[LocalModel]:
    """One server for all tests that only ask."""
    found = chat_model(f"local:{file},num_ctx={WINDOW}", Options(output_tokens=8))
    assert isinstance(found, LocalModel)
    found.ready()
    yield found
    found.close()


def refused(call: Callable[[], object]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        call()
    return caught.value


def fetched(url: str, body: Any = None, token: str = "") -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data=data, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(asked, timeout=600) as answer:
        return json.loads(answer.read())


def code_of(call: Callable[[], object]) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        call()
    return caught.value.code


def listening(pid: int) -> list[int]:
    """The ports of this machine that a process listens on."""
    own = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def open_files() -> list[Path]:
    """The files that this process has open."""
    return [link for link in Path("/proc/self/fd").iterdir() if link.exists()]


def wait_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + seconds(120)
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class TestTheFile:
    def test_its_header_tells_what_is_needed_to_serve_it(self, file: Path) -> None:
        found = read_model_file(file)
        assert (found.name, found.architecture, found.context_tokens) == ("tiny-random", "llama", 4096)
        assert found.kv_bytes == 2 * 1 * 2 * (32 + 32)  # two bytes; one layer; two heads; a key and a value of 32
        assert not found.tools

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (None, "there is no model file"),
            (b"PK..", "does not start with GGUF"),
            (b"GGUF\3\0\0\0", "ends in its header"),
        ],
    )
    def test_what_is_no_model_is_said_with_the_next_step(
        self, tmp_path: Path, content: bytes | None, said: str
    ) -> None:
        path = tmp_path / "x.gguf"
        if content is not None:
            path.write_bytes(content)
        error = refused(chat_model(f"local:{path}").ready)
        assert said in error.what
        assert error.hint
        assert error.exit_code == 2

    def test_one_that_is_cut_off_is_refused_before_it_is_loaded(self, tmp_path: Path, file: Path) -> None:
        path = tmp_path / "cut.gguf"
        path.write_bytes(file.read_bytes()[:-20_000])
        error = refused(chat_model(f"local:{path}").ready)
        assert "its last 20,000 bytes are missing" in error.what
        assert "again" in (error.hint or "")

    def test_a_folder_is_said_to_be_one(self, tmp_path: Path) -> None:
        error = refused(chat_model(f"local:{tmp_path}").ready)
        assert (error.what, error.hint) == (f"{tmp_path} is a folder", "name the .gguf file in it")

    def test_a_path_may_have_blanks_and_any_letters_and_be_a_link(self, tmp_path: Path) -> None:
        path = tiny_gguf(tmp_path / "ein möd el.gguf", seed=3)
        link = tmp_path / "link.gguf"
        link.symlink_to(path)
        held = leases.lease(LocalSpec(path, 512))
        again = leases.lease(LocalSpec(link, 512))
        assert held.served.pid == again.served.pid, "the same bytes"
        held.close()
        again.close()

    def test_one_that_was_replaced_since_the_run_began_is_refused(self, tmp_path: Path) -> None:
        path = tiny_gguf(tmp_path / "m.gguf", seed=4)
        spec = parse_local(f"local:{path},num_ctx=512,digest={file_digest(path)[:12]}")
        assert shown_model(str(spec)) == "local:m.gguf,num_ctx=512"
        tiny_gguf(path, seed=5)
        error = refused(lambda: leases.lease(spec))
        assert "m.gguf has changed: its digest is" in error.what
        assert "restore the old file" in (error.hint or "")

    def test_a_full_disk_is_said_with_its_folder(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: Any, **__: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(leases, "write_bytes", full)
        error = refused(lambda: leases.lease(LocalSpec(file, 2048)))
        assert "No space left on device" in error.what
        assert "TMPDIR" in (error.hint or "")

    def test_a_server_that_was_killed_while_it_loaded_ran_out_of_memory(self, file: Path) -> None:
        error = leases._failed(read_model_file(file), -9, "load_tensors: loading model tensors")
        assert "was killed while it loaded" in error.what
        assert "free some memory" in (error.hint or "")

    def test_without_the_extra_it_says_what_to_install(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(leases, "ENGINE", "no_such_engine")
        error = refused(chat_model(f"local:{file}").ready)
        assert 'pip install "terminalbench[local-model]"' in str(error.hint)

    def test_its_digest_is_read_again_only_when_it_has_changed(self, tmp_path: Path) -> None:
        path = tmp_path / "a.gguf"
        path.write_bytes(b"one")
        about, first = path.stat(), file_digest(path)
        with path.open("r+b") as stream:
            stream.write(b"two")
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
        assert file_digest(path) == first, "as many bytes, of the same time: it was not read"
        os.utime(path)
        assert file_digest(path) != first

    def test_a_spec_is_a_path_and_perhaps_a_window(self, tmp_path: Path) -> None:
        assert parse_local("local:a,b.gguf,num_ctx=2048", tmp_path) == LocalSpec(tmp_path / "a,b.gguf", 2048)
        assert str(parse_local("local:/m/a.gguf,num_ctx=2048")) == "local:/m/a.gguf,num_ctx=2048"
        assert shown_model("local:/m/a.gguf,num_ctx=2048") == "local:a.gguf,num_ctx=2048"
        assert shown_model("openai/a") == "openai/a"
        assert served_name(Path("/m/a b:c.Q4.gguf")) == "a-b-c.Q4"
        for wrong in ("local:", "local:a.gguf,num_ctx=x", "local:a.gguf,num_ctx=1"):
            with pytest.raises(UserError):
                parse_local(wrong)


class TestSizing:
    @pytest.mark.parametrize(("cores", "slots"), [(1, 1), (2, 1), (4, 2), (64, 8)])
    def test_two_cores_answer_one_question(self, file: Path, cores: int, slots: int) -> None:
        assert slots_of(read_model_file(file), 4096, cores, None) == slots

    def test_memory_takes_slots_and_never_a_part_of_the_window(self, file: Path) -> None:
        model = read_model_file(file)
        one = model.kv_bytes * 4096
        free = model.size + (256 << 20)
        assert slots_of(model, 4096, 16, free + 3 * one) == 3
        error = refused(lambda: slots_of(model, 4096, 16, free + one - 1))
        assert error.hint == "set num_ctx=3072"
        error = refused(lambda: slots_of(model, 4096, 16, model.size // 2))
        assert "are free" in error.what
        assert "smaller or more quantized" in (error.hint or "")

    def test_a_window_it_was_not_made_for_is_refused(self, file: Path) -> None:
        model = read_model_file(file)
        assert window_of(model, None) == 4096
        assert "is 4096" in refused(lambda: window_of(model, 8192)).what


class TestTheServer:
    def test_it_answers_free_of_charge(self, model: LocalModel) -> None:
        reply = model.ask(ASKED)
        assert reply.usage.cost_usd == 0
        assert reply.usage.input_tokens
        assert reply.usage.output_tokens == 8
        assert reply.cut_off
        assert (price := model.price()).input_usd == price.output_usd == 0

    def test_an_answer_without_an_end_is_cut_at_a_quarter_of_the_window(
        self, model: LocalModel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unlimited = chat_model(model.name)
        assert isinstance(unlimited, LocalModel)
        unlimited.ready()
        asked: list[Any] = []
        monkeypatch.setattr(unlimited.server, "ask", lambda path, body: asked.append(body) or {})
        unlimited.ask(ASKED)
        unlimited.close()
        assert asked[0]["options"]["num_predict"] == WINDOW // 4

    def test_an_answer_has_the_form_that_is_asked_for(self, model: LocalModel) -> None:
        long = chat_model(model.name, Options(output_tokens=200))
        reply = long.ask(ASKED, schema_of(Verdict, "verdict"))
        assert set(json.loads(reply.text)) == {"good"}

    def test_what_does_not_fit_is_refused_and_not_cut(self, model: LocalModel) -> None:
        error = refused(lambda: model.ask([Message("user", "x" * 3000)]))
        assert error.fault is ModelFault.TOO_LONG
        assert f"({WINDOW} tokens)" in error.what
        assert "num_ctx" in (error.hint or "")

    def test_it_speaks_openai_and_ollama(self, model: LocalModel) -> None:
        url, name, get = model.lease.url, model.lease.name, partial(fetched, token=model.lease.token)
        said = {"model": name, "messages": [{"role": "user", "content": "Well?"}], "max_tokens": 4}
        assert get(f"{url}/v1/chat/completions", said)["usage"]["completion_tokens"] == 4
        assert get(f"{url}/v1/models")["data"][0]["id"] == name
        [listed] = get(f"{url}/api/tags")["models"]
        assert listed["digest"] == file_digest(model.spec.path)
        assert get(f"{url}/api/ps")["models"][0]["context_length"] == WINDOW
        assert get(f"{url}/api/show", {"model": name})["model_info"]["llama.context_length"] == WINDOW
        options = {"num_predict": 4}
        whole = get(f"{url}/api/chat", {**said, "stream": False, "options": options})
        assert (whole["done"], whole["done_reason"], whole["eval_count"]) == (True, "length", 4)
        for wrong, code in (({**said, "model": "other"}, 404), ({**said, "options": {"num_ctx": 9999}}, 400)):
            assert code_of(lambda wrong=wrong: get(f"{url}/api/chat", wrong)) == code

    def test_who_has_not_its_token_is_not_answered(self, model: LocalModel) -> None:
        held = model.lease
        said = {"model": held.name, "messages": [{"role": "user", "content": "Well?"}], "max_tokens": 1}
        ports = listening(held.served.pid)
        assert len(ports) == 2, "llama.cpp's own, and what stands in front of it"
        for url in (f"http://127.0.0.1:{port}" for port in ports):
            for token in ("", "wrong"):
                assert code_of(lambda url=url, token=token: fetched(f"{url}/v1/chat/completions", said, token)) == 401
            assert fetched(f"{url}/health")["status"] == "ok"
        assert code_of(lambda: fetched(f"{held.url}/api/tags")) == 401
        folder = next(leases.models_folder().glob(f"*-{WINDOW}"))
        assert (folder / "server.json").stat().st_mode & 0o077 == 0
        assert held.token not in repr(held) + (folder / "server.log").read_text()

    def test_it_tells_how_fast_it_is(self, model: LocalModel) -> None:
        model.ask(ASKED)
        told = speed(model.lease.url, model.lease.token)
        assert told is not None
        assert told.written >= 8
        assert told.written_per_sec
        assert "a second" in str(told)
        assert speed("http://127.0.0.1:9", "") is None

    def test_a_question_whose_asker_has_gone_is_given_up(self, model: LocalModel) -> None:
        with socket.create_server(("127.0.0.1", 0)) as engine:
            front = LlamaProxy(model.lease.served.order, f"http://127.0.0.1:{engine.getsockname()[1]}", "secret")
            Thread(target=front.serve_forever, daemon=True).start()
            asker = socket.create_connection(("127.0.0.1", front.server_port))
            asker.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Length: 2\r\n\r\n{}"
            )
            asked, _ = engine.accept()
            asked.settimeout(60)
            assert asked.recv(10_000).startswith(b"POST /v1/chat/completions")
            asker.close()
            with suppress(ConnectionResetError):
                while asked.recv(10_000):
                    pass
            asked.close()
            front.shutdown()
            front.server_close()

    def test_another_window_is_another_server(self, model: LocalModel) -> None:
        other = leases.lease(LocalSpec(model.spec.path, 512))
        assert other.served.pid != model.lease.served.pid
        assert other.served.order.window == 512
        other.close()

    def test_one_that_is_stopped_is_named_with_the_way_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = LocalSpec(tiny_gguf(tmp_path / "stopped.gguf", seed=6), 512)
        held = leases.lease(spec)
        monkeypatch.setattr(leases, "_HEALTH_SEC", 0.5)
        os.kill(held.served.pid, signal.SIGSTOP)
        try:
            error = refused(lambda: leases.lease(spec))
        finally:
            os.kill(held.served.pid, signal.SIGCONT)
        assert f"process {held.served.pid}) does not answer" in error.what
        assert error.hint == f"kill {held.served.pid}, and try again"
        held.close()

    def test_all_processes_share_it_and_it_ends_with_the_last_also_when_that_is_killed(self, tmp_path: Path) -> None:
        path = tiny_gguf(tmp_path / "shared.gguf", seed=2)
        program = (
            "import sys; from pathlib import Path; from terminalbench.llm.local import lease as l;"
            f"l.models_folder = lambda: Path({str(leases.models_folder())!r});"
            f"held = l.lease(l.LocalSpec(Path({str(path)!r}), 512));"
            "print(held.served.pid, held.url, flush=True); sys.stdin.read()"
        )
        argv = [sys.executable, "-c", program]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        users = [subprocess.Popen(argv, **pipes) for _ in range(3)]  # at once: only one of them starts it
        told = {user.stdout.readline() for user in users if user.stdout is not None}
        assert len(told) == 1
        pid = int(told.pop().split()[0])
        ticks = start_ticks(pid)
        for user in users[:2]:
            user.communicate("")
        time.sleep(1.5)
        assert not gone(pid), "one still uses it"
        users[2].send_signal(signal.SIGKILL)
        users[2].wait()
        wait_for(lambda: gone(pid) or start_ticks(pid) != ticks, "it is left behind")
        users[2].communicate()
        assert not list(leases.models_folder().glob(f"{file_digest(path)[:16]}-*")), "nor is its folder"

    def test_the_folder_of_a_killed_one_is_removed_unless_it_is_used(self, tmp_path: Path) -> None:
        folder = tmp_path / "0123-512"
        folder.mkdir()
        for name in ("server.log", "start.lock", "users"):
            (folder / name).touch()
        for name, kind in (("users", fcntl.LOCK_SH), ("start.lock", fcntl.LOCK_EX)):
            with (folder / name).open("ab") as held:
                fcntl.flock(held, kind)
                leases.remove_unused(folder)
                assert (folder / "server.log").exists()
        leases.remove_unused(folder)
        assert not folder.exists()

    def test_a_server_whose_folder_was_removed_leaves_that_of_the_next_one_alone(self, tmp_path: Path) -> None:
        """Each run removes the folders of other models that are not used, also of one whose server is just ending."""
        spec = LocalSpec(tiny_gguf(tmp_path / "own.gguf", note="removed"), WINDOW)
        before = leases.lease(spec)
        before.close()
        (folder,) = leases.models_folder().glob(f"{file_digest(spec.path)[:16]}-*")
        leases.remove_unused(folder)
        after = leases.lease(spec)
        assert after.served.pid != before.served.pid
        wait_for(lambda: start_ticks(before.served.pid) != before.served.ticks, "it does not end")
        assert leases.running(folder) == after.served
        assert leases.is_there(after.users, folder / "users")
        after.close()

    def test_who_waits_for_a_folder_that_is_removed_makes_it_anew(self, tmp_path: Path) -> None:
        folder, taken = tmp_path / "0123-512", []
        spec, until = LocalSpec(tmp_path / "m.gguf"), time.monotonic() + 60
        with leases._lock(folder, until, spec) as first:
            waiting = Thread(target=lambda: taken.append(leases._lock(folder, until, spec)))
            waiting.start()
            wait_for(lambda: sum(link.samefile(folder / "start.lock") for link in open_files()) == 2, "nobody waits")
            (folder / "start.lock").unlink()
            folder.rmdir()
        waiting.join(60)
        [second] = taken
        with second:
            assert os.path.samestat(os.fstat(second.fileno()), (folder / "start.lock").stat())
        assert first.closed
