"""The start of the helper process: it enters its namespaces, then is executed anew there and serves.

It runs in a mount namespace of its own in which its program and bwrap are read-only. Otherwise a command
named `#!/proc/self/exe` in a sandbox would hand the agent a way to write to them. The first step loads next to nothing.
"""

# ruff: noqa: S606, PTH115

import os
import sys
from importlib import import_module

from terminalbench.sandbox.engine import kernel

_ENTERED = "--entered="
_NOT_NEEDED = ("bz2", "grp", "lzma", "pwd", "zlib")  # by `shutil` and `tarfile`, which take them if they are there


def main() -> None:
    """`helper CONTROL BWRAP [--entered=IDS]`: enter the namespaces, execute ourselves anew, serve."""
    control, bwrap = int(sys.argv[1]), sys.argv[2]
    os.umask(0o022)  # what it makes is a sandbox's own, and its users are several
    try:
        if len(sys.argv) < 4:
            _enter(control, bwrap)
        for name in (*_NOT_NEEDED, *_openssl()):  # every fork would copy their pages
            sys.modules[name] = None  # ty: ignore[invalid-assignment]
        from terminalbench.sandbox.engine.serve import serve

        serve(control, sys.argv[3].removeprefix(_ENTERED))
    except BaseException as error:
        from terminalbench.sandbox.engine.wire import complain

        complain(control, error)
        raise


def _openssl() -> tuple[str, ...]:
    """Return what loads OpenSSL for digests that Python has by itself; nothing where it was built without them."""
    try:
        for name in ("_md5", "_sha2"):
            import_module(name)
    except ImportError:
        return ()
    return ("_hashlib",)


def _enter(control: int, bwrap: str) -> None:
    if kernel.is_privileged():
        os.unshare(os.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
        kind = "all"
    else:
        from terminalbench.sandbox.engine.ids import enter_user_namespace

        kind = enter_user_namespace()
    program = os.readlink("/proc/self/exe")
    for path in {program, os.path.realpath(bwrap)}:
        kernel.bind_read_only(path)
    os.set_inheritable(control, True)
    os.execv(sys.orig_argv[0] if "/" in sys.orig_argv[0] else program, [*sys.orig_argv, f"{_ENTERED}{kind}"])
