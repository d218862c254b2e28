"""Copies of public tasks whose packages are all in one layer: it is built once, and a task in seconds.

A task is taken if its image is the one that most have, and if all that its Dockerfile installs is in that layer, in the
version that it asks for; its other lines stay. So its tests run as they do elsewhere, with more programs beside them.
"""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

IMAGE = "ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624"
SYSTEM = frozenset(
    [
        "bash",
        "bc",
        "binutils",
        "build-essential",
        "bzip2",
        "ca-certificates",
        "cmake",
        "coreutils",
        "cron",
        "curl",
        "file",
        "findutils",
        "g++",
        "gawk",
        "gcc",
        "gdb",
        "git",
        "grep",
        "gzip",
        "jq",
        "libc6-dev",
        "libsqlite3-dev",
        "make",
        "netcat-openbsd",
        "nodejs",
        "perl",
        "pkg-config",
        "postgresql-client",
        "procps",
        "python3",
        "python3-dev",
        "python3-pip",
        "python3-yaml",
        "sed",
        "sqlite3",
        "sudo",
        "tar",
        "unzip",
        "wget",
        "xz-utils",
        "zip",
    ]
)
PYTHON = {
    **dict.fromkeys(
        [
            "flask",
            "numpy",
            "pyyaml",
            "scikit-learn",
            "requests",
            "bcrypt",
            "python-dateutil",
            "pillow",
            "pycryptodome",
            "pyjwt",
            "psycopg2-binary",
            "joblib",
            "pytz",
            "networkx",
            "statsmodels",
        ],
        "",
    ),
    "pandas": "==2.3.2",
    "scipy": "==1.16.1",
    "pytest": "==8.4.1",
}
_PIP = " ".join(sorted(name + pin for name, pin in PYTHON.items()))
LAYER = f"""FROM {IMAGE}
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends {" ".join(sorted(SYSTEM))} && ln -s /usr/bin/python3 /usr/bin/python && rm -rf /var/lib/apt/lists/*
RUN pip3 install --no-cache-dir --break-system-packages {_PIP}
"""
_CONTINUED, _COMMENT = re.compile(r"\\\n"), re.compile(r"(?m)^\s*#.*\n")
_APT = re.compile(r"(?:DEBIAN_FRONTEND=\S+ )?apt(?:-get)? (?:-\S+ )*install (.*)")
_PIP_INSTALL = re.compile(r"(?:python3 -m )?pip3? install (.*)")
_DONE = re.compile(
    r"(?:DEBIAN_FRONTEND=\S+ )?apt(?:-get)? (?:-\S+ )*update|apt-get (?:clean|autoremove)|rm -rf /var/lib/apt"
    r"|ln -sf? /usr/bin/python3 /usr/bin/python"
)
_PACKAGE = re.compile(r"[\"']?([A-Za-z0-9_.-]+)((?:==|>=).*?)?[\"']?$")


def on_one_layer(folder: Path, names: Iterable[str], target: Path) -> list[str]:
    """Copy those tasks that can begin with the layer to `target`; their names."""
    shutil.rmtree(target, ignore_errors=True)
    found = []
    for name in names:
        rest = rest_of((folder / name / "environment" / "Dockerfile").read_text())
        if rest is None:
            continue
        copy = shutil.copytree(folder / name, target / name, symlinks=True)
        (copy / "environment" / "Dockerfile").write_text(LAYER + rest)
        told = (copy / "task.toml").read_text()  # the first of them builds the layer
        (copy / "task.toml").write_text(re.sub(r"(?m)^build_timeout_sec.*", "build_timeout_sec = 3600.0", told))
        found.append(name)
    return found


def rest_of(dockerfile: str) -> str | None:
    """Return what a Dockerfile says besides what the layer has; None where it asks for something else."""
    rest = []
    for line in _CONTINUED.sub(" ", _COMMENT.sub("", dockerfile)).splitlines():
        if line.startswith("FROM"):
            if IMAGE not in line:
                return None
        elif line.startswith("RUN"):
            commands = [one.strip() for one in re.split(r"(?<!\|)&&", line[4:])]
            if not all(map(_is_possible, commands)):
                return None
            kept = [one for one in commands if not (_DONE.match(one) or _APT.match(one) or _PIP_INSTALL.match(one))]
            rest += [f"RUN {' && '.join(kept)}"] if kept else []
        elif line.strip() != "ENV DEBIAN_FRONTEND=noninteractive":
            rest.append(line)
    return "\n".join(rest) + "\n"


def _is_possible(command: str) -> bool:
    """Return whether a command installs nothing that the layer lacks."""
    found = (apt := _APT.match(command)) or _PIP_INSTALL.match(command)
    wanted = [word for word in found[1].split() if not word.startswith("-")] if found else []
    return set(wanted) <= SYSTEM if apt else all(map(_is_of_layer, wanted))


def _is_of_layer(package: str) -> bool:
    asked = _PACKAGE.match(package)
    pin = PYTHON.get(asked[1].lower()) if asked else None
    return asked is not None and pin is not None and (asked[2] in (None, pin) or asked[2].startswith(">="))
