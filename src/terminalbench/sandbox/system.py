"""Which folders are the system: the verifier has them as the image made them, whatever the agent did to them.

Everything else is the agent's work and goes to the verifier as it is: `/app`, `/home`, `/root`, `/srv`, `/opt`, `/tmp`,
`/var` (but for the books of package managers, which must agree with the installed files), and every folder of its own.
"""

from collections.abc import Iterable, Mapping

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "boot", "dev", "proc", "sys", "run")
BOOKS = (
    *("var/lib/dpkg", "var/lib/apt", "var/lib/rpm", "var/lib/pacman", "var/cache/apt", "var/cache/debconf"),
    *("var/cache/ldconfig", "var/run", "var/lock"),
)
PATHS = (
    *("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "NODE_PATH", "PERL5LIB"),
    *("RUBYLIB", "GEM_PATH", "GEM_HOME", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "JAVA_HOME"),
)
"""Variables of an image that say where programs and their libraries are."""
_PROGRAMS = ("bin", "sbin")


def is_system(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is in one of these folders."""
    return any(_within(path.strip("/"), folder) for folder in folders)


def system_folders(env: Mapping[str, str], workdir: str, *own: str) -> list[str]:
    """The folders that come from the image alone, without their leading slash; `own` are the verifier's.

    Where a variable of the image leads to programs outside the system's folders, what it leads to belongs to it too: of
    `/opt/venv/bin` all of `/opt/venv`. Not so the working folder and what is in it, nor a whole home.
    """
    found = [*SYSTEM, *BOOKS, *(folder.strip("/") for folder in own)]
    for name in PATHS:
        for entry in env.get(name, "").split(":"):
            folder = _of_entry(entry)
            if folder and not _within(folder, workdir.strip("/")) and not any(_within(folder, one) for one in found):
                found.append(folder)
    return found


def _of_entry(entry: str) -> str | None:
    parts = [part for part in entry.split("/") if part]
    if not entry.startswith("/") or ".." in parts or "." in parts:
        return None
    if parts and parts[-1] in _PROGRAMS and not _is_home(parts[:-1]):
        parts = parts[:-1]
    return "/".join(parts) if parts and not _is_home(parts) else None


def _is_home(parts: list[str]) -> bool:
    return len(parts) < 2 or (len(parts) == 2 and parts[0] == "home")


def _within(folder: str, outer: str) -> bool:
    return bool(outer) and f"{folder}/".startswith(f"{outer}/")
