"""A served model: started once for each user of this machine, shared by all who use it, gone with the last of them.

    /tmp/tbench-models-<uid>/<digest>-<window>/
        start.lock      held by the process that looks for the server, or starts it
        users           each user holds a shared lock on it; the server ends when it gets an exclusive one
        server.json     where the server is, and the token it asks for; for this user's eyes
        server.log      what it said

The kernel gives up the lock of a user that dies, however it dies: a lease cannot be left behind. A server that ends
removes its folder, and that of a server that was killed is removed when the next model is served.
"""

import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from io import FileIO
from pathlib import Path

import msgspec

from terminalbench.files import tail_plain, write_bytes
from terminalbench.json_files import decode_plain
from terminalbench.llm.local.gguf import ModelFile, file_digest, read_model_file
from terminalbench.llm.local.spec import LocalSpec
from terminalbench.llm.model import ModelError, ModelFault
from terminalbench.llm.ollama import WINDOW
from terminalbench.locks import start_ticks
from terminalbench.modes import make_own_folder
from terminalbench.records.values import copied
from terminalbench.text.numbers import duration

MOST_SLOTS = 8
_BESIDES = 256 << 20
"""Memory of a server besides weights and windows."""


def window_of(model: ModelFile, wanted: int | None) -> int:
    """The window: as wanted, else the model's own up to 32768. Raises `ModelError` for one that it was not made for."""
    if wanted is None:
        return min(model.context_tokens, WINDOW)
    if wanted > model.context_tokens:
        what = f"num_ctx is {wanted}, but the window of {Path(model.path).name} is {model.context_tokens}"
        raise ModelError(ModelFault.MISSING, what, hint=f"set num_ctx={model.context_tokens} or less")
    return wanted


def slots_of(model: ModelFile, window: int, cores: int, free_bytes: int | None) -> int:
    """One slot for two cores, as far as memory holds their windows. Raises `ModelError` when it does not hold one."""
    slots = max(1, min(MOST_SLOTS, cores // 2))
    if free_bytes is None:
        return slots
    left = free_bytes - model.size - _BESIDES
    each = max(1, model.kv_bytes * window)
    if left < each:
        needed = (model.size + _BESIDES + each) >> 20
        fits = max(0, left) // max(1, model.kv_bytes) // 1024 * 1024
        hint = f"set num_ctx={fits}" if fits >= 1024 else "use a smaller or more quantized model, or free some memory"
        what = (
            f"{Path(model.path).name} with a window of {window} tokens needs {needed} MB, but only {free_bytes >> 20} "
            "MB are free"
        )
        raise ModelError(ModelFault.MISSING, what, hint=hint)
    return min(slots, left // each)


ENGINE = "xllamacpp"
START_SEC = 900.0
"""How long a model may take to load: from a slow disk, ten gigabytes."""
_HEALTH_SEC = 20.0
_STEP_SEC = 0.05
_LOG_BYTES = 64 << 10
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_STAMP = re.compile(r"^[\d.]+ [A-Z] ")
"""What llama.cpp writes before a line: a time, and how bad it is."""
_KILLED = {
    -9: ("its server was killed while it loaded", "free some memory, use a smaller model, or set num_ctx=N"),
    -4: (
        "this machine's processor lacks instructions that llama.cpp uses",
        "install a build of xllamacpp for this processor",
    ),
    -7: ("the file was shortened while it was read", "download it again, and let no program write to it"),
}
"""What a signal says of a server that did not come up, and the next step."""
_FAMILIES = ("GGML_", "CUDA_", "OMP_", "LC_")
"""Variables of a server: no key, and no mark of the job whose process happened to be the first."""


class ServerOrder(ModelFile, frozen=True, kw_only=True):
    """The order by which a model file is served. `window` is in tokens; each of the `slots` has its own."""

    digest: str
    window: int
    slots: int
    threads: int


class ServerAccess(msgspec.Struct, frozen=True):
    """A server that answers who has its `token`, which no representation of it holds."""

    url: str
    pid: int
    ticks: int | None
    order: ServerOrder
    token: str

    def __repr__(self) -> str:
        return f"Served({self.url!r}, pid={self.pid})"


@dataclass(frozen=True)
class ServerLease:
    """The right to a server, until it is closed or its process ends."""

    served: ServerAccess
    users: FileIO

    @property
    def url(self) -> str:
        """The address of the server."""
        return self.served.url

    @property
    def token(self) -> str:
        """The token that the server wants of every client, as `Authorization: Bearer`."""
        return self.served.token

    @property
    def name(self) -> str:
        """The name of its model."""
        return self.served.order.name

    def close(self) -> None:
        """Give it up."""
        self.users.close()


def check_engine() -> None:
    """Raises `ModelError` when what runs a model file is not installed. It is not loaded."""
    if find_spec(ENGINE) is None:
        raise ModelError(
            ModelFault.MISSING,
            "local: models need the extra local-model, which is not installed",
            hint='pip install "terminalbench[local-model]"',
        )


def lease(spec: LocalSpec) -> ServerLease:
    """A server of this model: the one that runs, or a new one. Raises `ModelError`."""
    model = read_model_file(spec.path)
    check_engine()
    window = window_of(model, spec.num_ctx)
    try:
        digest = file_digest(spec.path)
        _check_digest(spec, digest)
        return _joined(spec, model, digest, window)
    except OSError as error:
        what = f"{spec.path.name} cannot be served from {tempfile.gettempdir()}: {error.strerror or error}"
        raise ModelError(
            ModelFault.MISSING, what, hint="free some space there, or set TMPDIR to a folder with space"
        ) from None


def _check_digest(spec: LocalSpec, digest: str) -> None:
    if spec.digest is not None and not digest.startswith(spec.digest):
        what = f"{spec.path} has changed: its digest is {digest[:12]}, but the run started with {spec.digest[:12]}"
        raise ModelError(ModelFault.MISSING, what, hint="restore the old file, or start another run")


def _joined(spec: LocalSpec, model: ModelFile, digest: str, window: int) -> ServerLease:
    folder = models_folder() / f"{digest[:16]}-{window}"
    for other in folder.parent.glob("*-*/start.lock"):
        if other.parent != folder:
            remove_unused(other.parent)
    until = time.monotonic() + START_SEC
    with _lock(folder, until, spec):
        users = (folder / "users").open("ab", buffering=0)
        try:
            _take(users, fcntl.LOCK_SH, until, spec)  # a server that is about to end keeps us waiting
            served = running(folder) or _start(folder, model, digest, window, until)
        except BaseException:
            users.close()
            raise
    return ServerLease(served, users)


def _lock(folder: Path, until: float, spec: LocalSpec) -> FileIO:
    """The `start.lock` of a folder, held. Both are made; they are made anew when they were removed while we waited."""
    while True:
        make_own_folder(folder)
        try:
            starting = (folder / "start.lock").open("ab", buffering=0)
        except FileNotFoundError:
            continue
        try:
            _take(starting, fcntl.LOCK_EX, until, spec)
            if is_there(starting, folder / "start.lock"):
                return starting
        except BaseException:
            starting.close()
            raise
        starting.close()


def is_there(file: FileIO, path: Path) -> bool:
    """Return whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def remove_unused(folder: Path, users: FileIO | None = None) -> None:
    """Remove the folder of a server, unless somebody uses or starts one; `users` is locked by who ends that server.

    `start.lock` goes last: who waits for it finds that it is gone, and begins anew.
    """
    with suppress(OSError), (folder / "start.lock").open("r+b", buffering=0) as starting:
        fcntl.flock(starting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with (folder / "users").open("ab", buffering=0) as ours:
            if users is None:
                fcntl.flock(ours, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_there(starting, folder / "start.lock"):
                return
            for file in sorted(folder.iterdir(), key=lambda file: file.name == "start.lock"):
                file.unlink()
            folder.rmdir()


def models_folder() -> Path:
    """Return where the servers of this user are told of."""
    folder = Path(tempfile.gettempdir()) / f"tbench-models-{os.geteuid()}"
    make_own_folder(folder)
    return folder


def running(folder: Path) -> ServerAccess | None:
    """The server of a folder, if there is one. Raises `ModelError` for one that runs and does not answer."""
    served: ServerAccess | None = decode_plain(folder / "server.json", ServerAccess, 1 << 16)
    if served is None or start_ticks(served.pid) != served.ticks or served.ticks is None:
        return None
    until = time.monotonic() + _HEALTH_SEC
    while time.monotonic() < until:
        if answers(served.url):
            return served
        if start_ticks(served.pid) != served.ticks:
            return None
        time.sleep(_STEP_SEC)
    what = f"the server of {served.order.name} (process {served.pid}) does not answer at {served.url}"
    raise ModelError(ModelFault.SERVER, what, hint=f"kill {served.pid}, and try again")


def answers(url: str) -> bool:
    """Return whether a server says that it is well."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with suppress(OSError, ValueError), opener.open(f"{url}/health", timeout=_HEALTH_SEC) as answer:
        return answer.status == 200
    return False


def _take(file: FileIO, kind: int, until: float, spec: LocalSpec) -> None:
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > until:
                what = f"another process has been starting {spec} for {duration(START_SEC)}"
                raise ModelError(ModelFault.TIMEOUT, what) from None
            time.sleep(_STEP_SEC)
        else:
            return


def _start(folder: Path, model: ModelFile, digest: str, window: int, until: float) -> ServerAccess:
    cores = _cores()
    slots = slots_of(model, window, cores, _free_bytes())
    order = copied(ServerOrder, model, digest=digest, window=window, slots=slots, threads=cores)
    told, log = folder / "server.json", folder / "server.log"
    told.unlink(missing_ok=True)
    write_bytes(folder / "order.json", msgspec.json.encode(order), durable=False)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "terminalbench.llm.local.server", str(folder)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd="/", start_new_session=True,
            env=_environment(),
        )  # fmt: skip
    while process.poll() is None:
        if (served := decode_plain(told, ServerAccess, 1 << 16)) is not None:
            return served
        if time.monotonic() > until:
            process.kill()
            process.wait()
            raise ModelError(ModelFault.TIMEOUT, f"{Path(model.path).name} was not loaded within {duration(START_SEC)}")
        time.sleep(_STEP_SEC)
    raise _failed(model, process.returncode, tail_plain(log, _LOG_BYTES) or "")


def _failed(model: ModelFile, code: int, log: str) -> ModelError:
    """Return what a server that did not come up has said last."""
    if code in _KILLED:
        said, hint = _KILLED[code]
        return ModelError(ModelFault.MISSING, f"{model.path} cannot be served: {said}", hint=hint)
    lines = [_STAMP.sub("", line).strip() for line in log.splitlines() if line.strip()]
    told = [line for line in lines if "error" in line.lower() or "fail" in line.lower()] or lines[-1:]
    said = told[0][:300] if told else f"it ended with code {code}"
    return ModelError(
        ModelFault.MISSING,
        f"{model.path} cannot be served: {said}",
        hint="download the file again, or use one that this version of llama.cpp supports",
    )


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in _INHERITED or k.startswith(_FAMILIES)}
    return {"OMP_WAIT_POLICY": "passive", **kept}  # threads that spin take a busy machine's time from each other


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _free_bytes() -> int | None:
    known: list[int] = []
    with suppress(OSError, ValueError, IndexError):
        told = Path("/proc/meminfo").read_text().split("MemAvailable:", 1)[1]
        known.append(int(told.split()[0]) << 10)
    with suppress(OSError, ValueError):  # a container's own limit; "max" is none
        group = Path("/sys/fs/cgroup")
        known.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return min(known, default=None)


_COUNTED = re.compile(r"^llamacpp:(\w+) ([0-9.e+]+)$", re.MULTILINE)
_LOOK_SEC = 5.0


@dataclass(frozen=True)
class Speed:
    """Tokens that were read (without those still in memory) and written, and how many a second; None: none yet."""

    read: int
    written: int
    written_per_sec: float | None

    def __str__(self) -> str:
        rate = f", {self.written_per_sec:.1f} a second while it wrote" if self.written_per_sec is not None else ""
        return f"{self.read} tokens read, {self.written} written{rate}"


def speed(url: str, token: str) -> Speed | None:
    """Return what the server at `url` tells; None when it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    asked = urllib.request.Request(  # noqa: S310  it is http
        f"{url}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with suppress(OSError, ValueError), opener.open(asked, timeout=_LOOK_SEC) as answer:
        found = {name: float(value) for name, value in _COUNTED.findall(answer.read().decode())}
        written, seconds = found.get("tokens_predicted_total", 0.0), found.get("tokens_predicted_seconds_total", 0.0)
        return Speed(int(found.get("prompt_tokens_total", 0)), int(written), written / seconds if seconds else None)
    return None
