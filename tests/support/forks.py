"""The loaded processes that `support.warm` asks: each forks a process that is ready to run, for everyone who asks.

`python forks.py LISTENER OWNER:FOLDER DOOR`, where the door says what is loaded.
"""

# ruff: noqa: PTH100, PTH116, PTH120  what is loaded here is copied by every fork

import array
import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

LOADED = (
    "terminalbench.overnight.worker", "terminalbench.runner.executors.death_signal", "terminalbench.harbor.agents.needs",
    "typer._click.decorators", "_sha2",
)  # fmt: skip
"""What Harbor's processes load besides what they load for users."""
LARGE = (
    "litellm", "litellm.litellm_core_utils.default_encoding", "litellm.proxy._types", "httpcore",
    "litellm._service_logger", "litellm.integrations.generic_api.generic_api_callback", "litellm.llms.fal_ai.chat",
    "litellm.llms.openai_like.dynamic_config", "litellm.proxy.guardrails.exception_utils", "litellm.llms.ollama.chat.transformation",
    "litellm.llms.edenai.chat.transformation", "litellm.llms.litellm_proxy.chat.transformation",
    "litellm.llms.openai.chat.gpt_audio_transformation", "litellm.proxy.openai_files_endpoints.common_utils",
    "litellm.llms.vertex_ai.vertex_ai_partner_models.anthropic.transformation", "openai.resources", "openai.resources.beta",
    "openai.resources.admin", "openai.lib.streaming.chat", "terminalbench.llm.litellm_model",
    "terminalbench.workflow.guards.patch", "terminalbench.workflow.guards.patch", "terminalbench.workflow.guards.claims",
    "harbor.agents.terminus_2", "harbor.trial.sync_trajectory", "terminalbench.harbor.agents.claude_code",
    "terminalbench.harbor.agents.guarded",
)  # fmt: skip
"""What only some Harbor processes load, which takes seconds: in a process of its own, where many tests run."""
COMMANDS = (
    "support.warm", "email.iterators", "email.message", "email.parser", "encodings.ascii", "html", "importlib.metadata._adapters",
    "importlib.resources.readers", "sqlite3", "tomllib", "uuid", "zipfile",
    "terminalbench.cli.app", "terminalbench.cli.run", "terminalbench.cli.run",
    "terminalbench.cli.overnight", "terminalbench.cli.trials", "terminalbench.lab.run", "terminalbench.cli.progress",
    "terminalbench.report.run_end", "terminalbench.runner.growth", "terminalbench.live.forecast",
)  # fmt: skip
"""What `tbench` loads to run something."""
ATTENDANTS = {"relay": "terminalbench.sandbox.network.relay", "helper": "terminalbench.sandbox.engine.serve"}
"""What the processes that attend sandboxes load. Their pages are copied by every fork: these two load nothing else."""
REAL: Any = None
AT_HOME: "list[tuple[Any, str, Path]]" = []
WHERE = DOOR = ""
"""The folder of this session, as it was told, and what is loaded here."""
_HEAD = struct.Struct("!I")
_NAMESPACES = ("user", "mnt")


class _Child(NamedTuple):
    """A forked process: where its end is told, who asked for it, the signal it gets when that one ends, the worker of tests."""

    status: int
    asked: socket.socket
    signal: int
    worker: str


def serve(listener: socket.socket, owner: int) -> Callable[[], int | None]:
    """Fork a process for each request; returns in each forked process, with what it has to do. Ends with `owner`."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, _Child] = {}
    ready = selectors.DefaultSelector()
    for file, name in ((listener, "listener"), (woken, "woken"), (os.pidfd_open(owner), "owner")):
        ready.register(file, selectors.EVENT_READ, name)
    while True:
        for key, _ in ready.select():
            if key.data == "owner":
                sys.exit(0)
            elif key.data == "woken":
                os.read(woken, 4096)
                _report(running)
            elif key.data == "listener":
                ready.register(listener.accept()[0], selectors.EVENT_READ, "client")
            elif program := _answer(key.fileobj, running, ready):
                return program


def _answer(client: Any, running: dict[int, _Child], ready: selectors.BaseSelector) -> Callable[[], int | None] | None:
    """Start what the client asks for, or end it when the client has ended; a program in the forked process."""
    descriptors: list[int] = []
    try:
        head, rights, _, _ = client.recvmsg(4, socket.CMSG_LEN(64))
        descriptors = [number for right in rights for number in array.array("i", right[2])]
        request = json.loads(_exactly(client, _HEAD.unpack(head)[0])) if head else None
    except (OSError, EOFError):  # killed while it asked, or before it had read its answer
        request = None
    if request is None:
        for descriptor in descriptors:
            os.close(descriptor)
        ready.unregister(client)
        client.close()
        for pid in [pid for pid, child in running.items() if child.asked is client]:
            os.kill(pid, running[pid].signal)
        return None
    asked_by = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    pid = os.fork()
    if pid == 0:
        for key in ready.get_map().values():
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.detach()  # closed below; the object must not close the number again
        ready.close()
        return _become(request, descriptors, asked_by)
    running[pid] = _Child(descriptors.pop(), client, request["signal"], request.get("worker", ""))
    for descriptor in descriptors:
        os.close(descriptor)
    with contextlib.suppress(OSError):  # its end is seen at the next turn
        client.sendall(_HEAD.pack(pid))
    return None


def _report(running: dict[int, _Child]) -> None:
    while running:
        pid, status, took = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        child = running.pop(pid)
        with open(f"{WHERE.partition(':')[2]}/cpu-{child.worker}", "a") as notes:  # noqa: PTH123  see support.cpu
            notes.write(f"{took.ru_utime + took.ru_stime:.3f}\n")
        with contextlib.suppress(BrokenPipeError):  # the one that asked has ended
            os.write(child.status, _HEAD.pack(status))
        os.close(child.status)


def _become(request: dict[str, Any], descriptors: list[int], asked_by: int) -> Callable[[], int | None]:
    """Make the forked process what a fresh one would be; returns its program."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.setsid()
    _follow(asked_by)
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    if os.isatty(0):
        with contextlib.suppress(PermissionError):  # it is the terminal of another session
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for kind, descriptor in zip(_NAMESPACES, descriptors[3:5], strict=True):
        if os.fstat(descriptor).st_ino != os.stat(f"/proc/self/ns/{kind}").st_ino:
            os.setns(descriptor)
    top = min(1024, os.sysconf("SC_OPEN_MAX") - 64)  # of an ordinary user it is 1024
    kept = [fcntl.fcntl(descriptors[5 + place], fcntl.F_DUPFD, top) for place in range(len(request["channel"]))]
    os.closerange(3, top)
    for number, handle in zip(request["channel"], kept, strict=True):
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(request["cwd"])
    if request["channel"]:
        os.environ.clear()
        return lambda: _attend(request["argv"])
    return _become_tbench(request) if DOOR == "tbench" else _become_harbor(request, asked_by)


def _follow(pid: int) -> None:
    """Join the account of the processor time of the process that asked, where there are accounts (support.cpu)."""
    try:
        with open(f"/proc/{pid}/cgroup") as file:  # noqa: PTH123
            group = next(line.partition(":cpuacct:")[2].strip() for line in file if ":cpuacct:" in line)
        with open(f"/sys/fs/cgroup/cpuacct{group}/cgroup.procs", "w") as file:  # noqa: PTH123
            file.write("0")
    except (OSError, StopIteration):
        return


def _become_tbench(request: dict[str, Any]) -> Callable[[], None]:
    """The rest, of a command."""
    threading: Any = importlib.import_module("threading")
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[:0] = [request["cwd"], *filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = request["argv"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else usual)

    def command() -> None:
        try:
            COMMAND()
        finally:
            threading._shutdown()  # waits for threads, as the end of Python does

    return command


def _become_harbor(request: dict[str, Any], asked_by: int) -> Callable[[], int | None]:
    """The rest, of a process of Harbor or of Python."""
    from pathlib import Path

    if request["signal"] != signal.SIGKILL:
        importlib.import_module("terminalbench.runner.executors.death_signal").guard(asked_by)
    if request.get("own_attendants"):
        attendant: Any = importlib.import_module("terminalbench.sandbox.helper")
        attendant.spawn = REAL
    os.environ.clear()
    os.environ.update(request["env"])
    from terminalbench.modes import child_umask

    if (mask := child_umask()) >= 0:
        os.umask(mask)
    environment: Any = importlib.import_module("terminalbench.sandbox.environment")
    environment.probe = _once_here(environment.probe)
    for module, name, place in AT_HOME:
        setattr(module, name, Path.home() / place)
    path = [entry for entry in request["env"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:0] = [entry for entry in path if entry not in sys.path]
    _, *arguments = request["argv"]  # of Python or of `harbor`
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        if arguments[1] in (
            "terminalbench.overnight.worker",
            "terminalbench.cli.main",
        ):  # their Harbor processes are forked too
            sys.path.insert(0, request["cwd"])
            local: Any = importlib.import_module("terminalbench.runner.executors.local")
            local.spawn = sys.modules["support.warm"].Warm(WHERE)
        module = importlib.import_module(arguments[1])
        return module.entry if arguments[1] == "terminalbench.cli.main" else module.main
    sys.argv = [Path(request["argv"][0]).name, *arguments]
    return COMMAND


def _once_here(probe: Callable[[], Any]) -> Callable[[], Any]:
    """Whether a sandbox can run is tried once in the same surroundings, not by every process; where none can, by each."""
    places = [os.stat(f"/proc/self/ns/{kind}").st_ino for kind in (*_NAMESPACES, "cgroup")]
    told = [os.environ.get(name) for name in ("PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR")]
    note = f"{WHERE.partition(':')[2]}/probed-{hash((*places, *told, os.geteuid())):x}"

    answer = importlib.import_module("terminalbench.sandbox.probe").Probe

    def noted() -> Any:
        with contextlib.suppress(FileNotFoundError), open(note) as file:  # noqa: PTH123
            lines, notes = json.load(file)
            return answer(True, lines, tuple(notes))
        found = probe()
        if found.works:
            with open(f"{note}.{os.getpid()}", "w") as file:  # noqa: PTH123
                json.dump([found.lines, found.notes], file)
            os.rename(file.name, note)  # noqa: PTH104
        return found

    return noted


def _attend(argv: list[str]) -> None:
    """Do what an attendant does. The helper of sandboxes executes itself anew in its namespaces: it only goes on there."""
    boot = argv.index("-c") + 1

    def anew(_program: str, again: list[str]) -> None:
        _attend(again)
        os._exit(0)

    os.execv = anew  # ty: ignore[invalid-assignment]
    sys.orig_argv = argv
    sys.argv = ["-c", *argv[boot + 1 :]]
    exec(argv[boot], {})


def _at_home() -> "list[tuple[Any, str, Path]]":
    """The places in the home folder that Harbor notes when it is loaded: module, name, and where below it."""
    from pathlib import Path

    named = [
        (module, key, value)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "harbor"
        for key, value in vars(module).items()
    ]
    home = Path.home()
    return [(m, k, v.relative_to(home)) for m, k, v in named if isinstance(v, Path) and v.is_relative_to(home)]


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise EOFError("the other side has ended")
        data += more
    return data


def _load(where: str, door: str) -> Any:
    """Load what the processes that are forked from this one need; the command of Harbor."""
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if door in ATTENDANTS:
        sys.path.insert(0, f"{os.path.dirname(tests)}/src")
        importlib.import_module(ATTENDANTS[door])
        return None
    if door == "tbench":
        sys.path[0] = tests
        for name in COMMANDS:
            importlib.import_module(name)
        sys.path.pop(0)
        local: Any = importlib.import_module("terminalbench.runner.executors.local")
        local.spawn = sys.modules["support.warm"].Warm(where)
        return importlib.import_module("terminalbench.cli.main").entry
    os.environ |= {"HARBOR_TELEMETRY": "off", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = importlib.import_module("terminalbench.harbor.load").load()
    for name in (*LOADED, *(LARGE if door == "harbor-large" else ())):
        importlib.import_module(name)
    sys.path[0] = tests  # instead of the folder of this file, which Python puts there
    warm = importlib.import_module("support.warm")
    sys.path.pop(0)
    for attendants in ATTENDANTS:  # children of this process, and of none that a test counts
        warm.Warm(where, attendants).connect()
    attendant: Any = importlib.import_module("terminalbench.sandbox.helper")
    global REAL
    REAL = attendant.spawn
    AT_HOME[:] = _at_home()
    attendant.spawn = warm.Attendants(where, REAL)
    _use()
    return command


def _use() -> None:
    """Have made here, once, what Harbor and we make at the first use: models, patterns."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        importlib.import_module("rich.console").Console(file=nowhere).print("1 of 1 …")
    importlib.import_module("harbor.models.job.lock")._get_harbor_info()
    pydantic = importlib.import_module("pydantic")
    models = pydantic.BaseModel.__subclasses__()
    while models:
        model = models.pop()
        models += model.__subclasses__()
        if model.__module__.startswith("harbor."):
            model.model_rebuild()
    base: Any = importlib.import_module("terminalbench.sandbox.root_filesystem")
    names = tuple(base._etc_files())  # of a folder that stays as it is while tests run
    base._etc_files = lambda: iter(names)
    starter = importlib.import_module("terminalbench.starter").TASKS_DIR
    importlib.import_module("harbor.publisher.packager").Packager.collect_files(next(starter.iterdir()))


if __name__ == "__main__":
    WHERE, DOOR = sys.argv[2:]
    gc.disable()
    COMMAND = _load(WHERE, DOOR)
    gc.collect()
    gc.freeze()  # a forked process would copy each page that a collection looks at
    gc.enable()
    program = serve(socket.socket(fileno=int(sys.argv[1])), int(WHERE.partition(":")[0]))
    try:
        code = program()
    except SystemExit as error:
        code = error.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
