"""Run a command as an ordinary user, from root: `python ordinary.py COMMAND...`.

Drops to a user that owns nothing. In a mount namespace of its own (gone with the process) it first makes this
Python and these sources reachable for that user, wherever they are: a folder closed to others is covered by an
open one that shows only what is needed.
"""

import ctypes
import os
import sys
import sysconfig
from pathlib import Path

UID = 65534
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [text.encode() if text is not None else None for text in (source, target, kind, options)]
    if _libc.mount(encoded[0], encoded[1], encoded[2], flags, encoded[3]) != 0:
        raise OSError(ctypes.get_errno(), f"mount on {target}")


def needed() -> list[Path]:
    paths = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent.parent, Path(__file__)]
    paths += [Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib")]
    paths += [Path(entry) for entry in sys.path if entry and Path(entry).exists()]
    return list(dict.fromkeys(path.resolve() for path in paths))


def closed_parents(path: Path) -> list[Path]:
    return [parent for parent in reversed(path.parents) if not parent.stat().st_mode & 0o001]


def reveal(paths: list[Path]) -> None:
    covered: dict[Path, list[Path]] = {}
    for path in paths:
        for parent in closed_parents(path)[:1]:
            covered.setdefault(parent, []).append(path)
    for parent, inner in covered.items():
        handles = {path: os.open(path, os.O_PATH) for path in inner}
        mount("tmpfs", str(parent), "tmpfs", 0, "mode=755")
        for path, handle in handles.items():
            if path.is_relative_to(parent) and not path.exists():
                if Path(f"/proc/self/fd/{handle}").is_dir():
                    path.mkdir(parents=True)
                else:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.touch()
                mount(f"/proc/self/fd/{handle}", str(path), None, _MS_BIND | _MS_REC)


if __name__ == "__main__":
    os.unshare(os.CLONE_NEWNS)
    mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    reveal(needed())
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    os.execv(sys.argv[1], sys.argv[1:])
