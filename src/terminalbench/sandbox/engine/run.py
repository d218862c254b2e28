"""Running a command in a sandbox, and ending processes there."""

# ruff: noqa: S606, PTH102, PTH103

import contextlib
import os
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

from terminalbench.sandbox.engine import DEFAULT_PATH, ids, inside, notices, overseer, proc, wire

CANNOT_RUN = 126
NOT_FOUND = 127


def run(request: dict[str, Any], reply: socket.socket, streams: list[int], sandbox: dict[str, Any]) -> None:
    """Say which process this is, already inside the sandbox, and turn it into the command `argv`. Does not return.

    Descriptors: standard output, standard error. If it is to be overseen, the listener of its calls is handed out.
    """
    code = CANNOT_RUN
    try:
        for number, handle in enumerate((os.open("/dev/null", os.O_RDONLY), *streams)):
            os.dup2(handle, number)
        wire.send(reply, {"root": os.getpid()})
        os.setsid()
        inside.default_signals()
        account = ids.find_account(request["user"])
        for handle in (1, 2) if account.uid else ():  # so that the command may open /dev/stdout, as under Docker
            with contextlib.suppress(OSError):  # not a pipe of ours: the command can write to it, only not reopen it
                os.fchown(handle, account.uid, account.gid)
        folders = overseer.CACHES if request["oversee"] else ()
        home = _new_home(request["homes"], account, folders) if request["homes"] else account.home
        # A working folder such as /proc/self/fd/9 must not lead back out: no descriptor may be left.
        inside.close_others(*((reply.fileno(),) if request["oversee"] else ()))
        inside.become(account, sandbox)
        os.chdir(request["cwd"])
        if request["oversee"]:
            _hand_out_listener(reply, {"own_home": home, "home": account.home})
        environment = {"PATH": DEFAULT_PATH, "HOME": home, **request["env"]}
        code = NOT_FOUND
        _execute(request["argv"], environment)
    except BaseException as error:  # noqa: BLE001 - nothing may unwind into the porter from inside a sandbox
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        name = getattr(error, "filename", None)
        os.write(2, f"sandbox: {text}{f': {name}' if name else ''}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _hand_out_listener(reply: socket.socket, homes: dict[str, str]) -> None:
    """Have some calls of this process wait for who is told of it; where that cannot be, they are made as ever."""
    with contextlib.suppress(OSError):
        listener = notices.listen(overseer.watched())
        wire.send(reply, {"root": os.getpid(), "homes": homes}, (listener,))
        os.close(listener)


def _new_home(homes: str, account: ids.UserAccount, folders: Sequence[str]) -> str:
    """A home of this user that no agent has written to, with these folders."""
    os.makedirs(homes, 0o755, exist_ok=True)
    home = f"{homes}/{account.uid}"
    for path in (home, *(f"{home}/{name}" for name in folders)):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            os.chown(path, account.uid, account.gid)
    return home


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    name = argv[0]
    folders = [""] if "/" in name else [f"{folder}/" for folder in environment["PATH"].split(":")]
    error: OSError = FileNotFoundError(2, "not found", name)
    for folder in folders:
        try:
            os.execve(f"{folder}{name}", argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as problem:
            error = problem
    raise error


def kill(pidfd: int, which: str, root: int) -> int:
    """End processes of the sandbox: "all" but the first, one "tree", or the "networked" ones; how many would not go."""
    works = {"all": inside.kill_all, "networked": _kill_networked, "tree": lambda: inside.kill_tree(root)}
    left = -1
    for _ in range(10):
        left = inside.visit(pidfd, works[which])
        if left >= 0:  # else we were killed ourselves, by a limit that was reached
            break
    return left


def _kill_networked() -> int:
    own, ourselves = proc.namespace("self", "net"), {1, os.getpid()}
    victims: set[int] = set()
    for _ in range(500):
        victims = {pid for pid in proc.processes().keys() - ourselves if proc.namespace(pid, "net") != own}
        if not victims:
            break
        inside.send(victims, signal.SIGKILL)
        time.sleep(0.01)  # we may go before them, and they have to run to end
    return len(victims)
