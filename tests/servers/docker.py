"""A `docker` for machines without an engine: containers of namespaces, as much of compose as Harbor asks for.

It is copied, with the interpreter in its first line, into a folder of PATH, and asked some forty times by a trial: what
not every call needs is imported where it is needed. Beside it lie `calls.jsonl`, the containers
(`containers/<id>.json`), and the roots of images and containers. A container has the host's programs, read from its own
root: mounts, processes and files are its own. A Dockerfile may have
FROM, WORKDIR and COPY.
"""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

HOME = Path(__file__).parent
SHARED = ("usr", "bin", "sbin", "lib", "lib64", "etc", "dev", "opt")
ROOTLESS = ["--user", "--map-root-user"] if os.getuid() else []
ENTER = ["--user", "--preserve-credentials"] if os.getuid() else []
SETUP = """
for d in $SHARED; do [ ! -e "/$d" ] || { mkdir -p "$ROOT/$d"; mount --rbind "/$d" "$ROOT/$d"; }; done
mkdir -p "$ROOT/proc" "$ROOT/tmp" "$ROOT/root" "$ROOT/logs"
mount -t proc proc "$ROOT/proc"
echo "$BINDS" | while IFS='|' read -r source target; do
    [ -n "$source" ] || continue
    if [ -d "$source" ]; then mkdir -p "$ROOT$target"; else mkdir -p "$ROOT$(dirname "$target")"; touch "$ROOT$target"; fi
    mount --bind "$source" "$ROOT$target"
done
touch "$ROOT/.ready"
exec chroot "$ROOT" sleep infinity
"""


def containers() -> dict[str, dict]:
    found = [json.loads(path.read_text()) for path in sorted((HOME / "containers").glob("*.json"))]
    return {one["id"]: one for one in found if Path(f"/proc/{one['init']}").exists()}


def started(project: str, name: str, service: dict) -> None:
    import shutil
    import subprocess

    identifier = f"{project}-{name}-1"
    root = HOME / "roots" / identifier
    shutil.rmtree(root, ignore_errors=True)
    image = HOME / "images" / image_name(project, name, service)
    root.parent.mkdir(exist_ok=True)
    shutil.copytree(image, root, symlinks=True) if image.is_dir() else root.mkdir()
    binds = [f"{one['source']}|{one['target']}" for one in service.get("volumes", []) if isinstance(one, dict)]
    env = {**os.environ, "ROOT": str(root), "SHARED": " ".join(SHARED), "BINDS": "\n".join(binds)}
    holder = subprocess.Popen(
        ["unshare", *ROOTLESS, "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", SETUP],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(HOME / "engine.log").open("ab"), start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (root / ".ready").exists():
        if holder.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"{identifier} does not start: {(HOME / 'engine.log').read_text()}")
        time.sleep(0.005)
    init = int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text())
    made = {"id": identifier, "project": project, "service": name, "holder": holder.pid, "init": init}
    made["env"] = environment_of(service) | {"HOME": "/root", "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
    workdir = image / ".workdir"
    made["workdir"] = workdir.read_text() if workdir.is_file() else "/"
    (HOME / "containers").mkdir(exist_ok=True)
    (HOME / "containers" / f"{identifier}.json").write_text(json.dumps(made))


def ended(one: dict) -> None:
    for pid in (one["init"], one["holder"]):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    while (
        Path(f"/proc/{one['init']}").exists() and "\nState:\tZ" not in Path(f"/proc/{one['init']}/status").read_text()
    ):
        time.sleep(0.005)
    (HOME / "containers" / f"{one['id']}.json").unlink(missing_ok=True)


def environment_of(service: dict) -> dict[str, str]:
    given = service.get("environment") or {}
    return (
        dict(one.split("=", 1) for one in given) if isinstance(given, list) else {k: str(v) for k, v in given.items()}
    )


def image_name(project: str, name: str, service: dict) -> str:
    return re.sub(r"\W", "_", service.get("image") or f"{project}-{name}")


def build(project: str, name: str, service: dict) -> None:
    import shutil

    given = service["build"]
    context = Path(given if isinstance(given, str) else given["context"])
    image = HOME / "images" / image_name(project, name, service)
    shutil.rmtree(image, ignore_errors=True)
    image.mkdir(parents=True)
    workdir = "/"
    for line in (context / "Dockerfile").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "WORKDIR":
            workdir = rest
            (image / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            source, target = rest.split()
            place = image / (Path(workdir) / target).as_posix().lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(context / source, place)
        elif word not in ("FROM", "", "#"):
            sys.exit(f"not known here: {line}")
    (image / ".workdir").write_text(workdir)


def services_of(files: list[str]) -> dict[str, dict]:
    import site

    site.main()
    import yaml

    merged: dict[str, dict] = {}
    for file in files:
        text = re.sub(r"\$\{(\w+)(?::?-([^}]*))?\}", lambda m: os.environ.get(m[1], m[2] or ""), Path(file).read_text())
        for name, service in (yaml.safe_load(text) or {}).get("services", {}).items():
            into = merged.setdefault(name, {})
            into |= {**service, "volumes": [*into.get("volumes", []), *service.get("volumes", [])]}
    return merged


def entered(one: dict, command: list[str], workdir: str | None, env: dict[str, str]) -> NoReturn:
    pairs = [f"{key}={value}" for key, value in (one["env"] | env).items()]
    place = ["sh", "-c", 'cd "$0" && exec "$@"', workdir or one["workdir"]]
    inside = [
        "nsenter",
        "--target",
        str(one["init"]),
        *ENTER,
        "--mount",
        "--pid",
        "--root",
        "--wd=/",
        "env",
        "-i",
        *pairs,
    ]
    os.execvp("nsenter", [*inside, *place, *command])


def copied(project: str, source: str, target: str) -> None:
    import shutil

    def place(text: str) -> Path:
        name, colon, path = text.partition(":")
        if not colon or "/" in name:
            return Path(text)
        return Path(f"/proc/{containers()[f'{project}-{name}-1']['init']}/root") / path.lstrip("/")

    contents = source.endswith("/.")
    start, end = place(source.removesuffix("/.")), place(target)
    if not start.exists():
        sys.exit(f"no such path: {source}")
    if start.is_dir():
        shutil.copytree(
            start, end if contents or not end.is_dir() else end / start.name, symlinks=True, dirs_exist_ok=True
        )
    else:
        shutil.copy(start, end / start.name if end.is_dir() else end)


def compose(arguments: list[str]) -> int:
    project, files = "", []
    while arguments[0].startswith("-"):
        option, value = arguments.pop(0), arguments.pop(0)
        project = value if option == "--project-name" else project
        files += [value] if option == "-f" else []
    command, *rest = arguments
    ours = {one["service"]: one for one in containers().values() if one["project"] == project}
    if command == "build":
        for name, service in services_of(files).items():
            if "build" in service:
                build(project, name, service)
    elif command == "up":
        for name, service in services_of(files).items():
            started(project, name, service)
    elif command in ("down", "stop"):
        for one in ours.values():
            ended(one)
    elif command == "cp":
        copied(project, *rest)
    elif command == "exec":
        workdir, env = None, {}
        while rest[0].startswith("-"):
            option = rest.pop(0)
            value = rest.pop(0) if option in ("-w", "-e", "-u") else ""
            workdir = value if option == "-w" else workdir
            env |= dict([value.split("=", 1)]) if option == "-e" else {}
        entered(ours[rest[0]], rest[1:], workdir, env)
    else:
        sys.exit(f"not known here: compose {command}")
    return 0


def main() -> int:
    with (HOME / "calls.jsonl").open("a") as calls:
        print(json.dumps(sys.argv[1:]), file=calls)
    match sys.argv[1:]:
        case ["compose", *rest]:
            return compose(rest)
        case ["ps", *_]:
            print("".join(f"{one['id']}\t{one['project']}\n" for one in containers().values()), end="")
        case ["stop", "--time", _, *names]:
            for name in names:
                ended(containers()[name])
        case ["inspect", *_] | ["info", *_] | ["version", *_]:
            print("linux")
        case other:
            sys.exit(f"not known here: {other}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
