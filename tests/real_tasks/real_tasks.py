"""Public tasks in the local sandbox, on images of a registry: how many are measured, and why the others are not.

    .venv/bin/python tests/real_tasks/real_tasks.py FOLDER [--tasks 200] [--seed 1] [--names a-l] [--work FOLDER]

FOLDER holds tasks in Harbor's format. A registry of this machine (package docker-registry) serves a Debian made by
mmdebstrap, which stands for the base image that the tasks name. Two agents attempt each task: `nop`, and one that writes
a file. Then the same once more: nothing may be built, and a trial is compared with one of a starter task.
Needs the network for Debian's and PyPI's packages. Exit code 1: fewer than 95 % are measured, or something was built
again.
"""

import argparse
import hashlib
import json
import os
import platform
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

TOOLS = {"mmdebstrap": "mmdebstrap", "docker-registry": "docker-registry", "skopeo": "skopeo"}
OCI = "application/vnd.oci.image."
AGENT = '''
"""An agent that writes a file."""

from harbor.agents.base import BaseAgent


class Writer(BaseAgent):
    @staticmethod
    def name() -> str:
        return "writer"

    def version(self) -> str:
        return "1"

    async def setup(self, environment) -> None:
        pass

    async def run(self, instruction, environment, context) -> None:
        done = await environment.exec("mkdir -p /tmp/w && id -un > /tmp/w/me && cat /tmp/w/me")
        assert done.return_code == 0, done.stderr
'''
EXPERIMENT = """
schema_version = 2
slug = "{slug}"
[run]
container_env = "local"
parallel = {parallel}
{more}
[tasks]
default_dataset = "{dataset}"
items = [{items}]
{profiles}
"""
BOTH = '[profiles.nop]\nagent = "nop"\n[profiles.writer]\nagent = "real_agent:Writer"\n'


def layout(archive: Path, folder: Path) -> Path:
    """Write an OCI layout of one layer."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes, kind: str) -> dict:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    data = archive.read_bytes()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}"]}
    about = {"architecture": machine, "os": "linux", "config": {"Cmd": ["bash"]}, "rootfs": rootfs}
    config = blob(json.dumps(about).encode(), f"{OCI}config.v1+json")
    manifest = {"schemaVersion": 2, "config": config, "layers": [blob(data, f"{OCI}layer.v1.tar")]}
    entry = blob(json.dumps(manifest).encode(), f"{OCI}manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "base"}
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return folder


def serve(work: Path, port: int) -> subprocess.Popen[bytes]:
    """Start a registry whose data stay in the work folder."""
    told = (
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {work}/registry}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n"
    )
    (work / "registry.yml").write_text(told)
    with (work / "registry.log").open("ab") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(work / "registry.yml")], stdout=log, stderr=log)
    time.sleep(2)
    return process


def make_base(work: Path, suite: str, image: str) -> None:
    """Make a small Debian, and give it to the registry."""
    archive = work / f"{suite}.tar"
    if not archive.exists():
        print(f"making {suite} with mmdebstrap ...", flush=True)
        command = ["mmdebstrap", "--variant=minbase", "--include=ca-certificates", suite, str(archive)]
        subprocess.run(command, check=True, timeout=1800)
    folder = work / f"{suite}.oci"
    if not folder.exists():
        layout(archive, folder)
    push = ["skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci:{folder}:base", f"docker://{image}"]
    subprocess.run(push, check=True, timeout=600)


def run(work: Path, name: str) -> tuple[list[dict], float]:
    """Run an experiment; its newest batch's trials, and the CPU seconds of all that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    tbench = str(Path(sys.executable).with_name("tbench"))
    env = {**os.environ, "PYTHONPATH": str(work)}
    subprocess.run([tbench, "run", f"{name}.toml"], cwd=work, env=env, check=False, timeout=36000)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    batch = max((work / "results" / name).iterdir(), key=lambda one: int(one.name) if one.name.isdigit() else -1)
    listed = subprocess.run([tbench, "list", str(batch), "--json"], cwd=work, check=True, capture_output=True)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(listed.stdout), cpu


def cause(reason: str) -> str:
    """Why a build failed, in the words of whatever failed."""
    for pattern in (r"E: .*", r"ERROR: .*", r"error: .*", r"fatal: .*", r"\w*: cannot stat.*", r".*[Nn]ot [Ff]ound.*"):
        if (found := re.search(pattern, reason)) is not None:
            return found[0].strip()[:100]
    return reason.strip()[-100:]


def report(trials: list[dict], names: list[str]) -> dict:
    """How many tasks were measured by both agents, what became of the trials, and the causes of the rest."""
    measured = Counter(t["task"] for t in trials if t["outcome"] in ("passed", "failed"))
    whole = [name for name in names if measured[name] == 2]
    causes: dict[str, list[str]] = {}
    for trial in trials:
        if trial["task"] not in whole and trial["profile"] == "nop":
            causes.setdefault(cause(trial.get("reason") or ""), []).append(trial["task"])
    outcomes = Counter(f"{t['profile']} {t['outcome']}" for t in trials)
    return {"tasks": len(names), "measured": len(whole), "outcomes": dict(sorted(outcomes.items())), "others": causes}


def main() -> int:
    """Run it, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--names", default="a-l", help="first letters of the tasks that are chosen from")
    parser.add_argument("--base", default="ghcr.io/laude-institute/*", help="images that the Debian stands for")
    parser.add_argument("--suite", default="trixie")
    parser.add_argument("--parallel", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--port", type=int, default=5056)
    parser.add_argument("--work", type=Path, help="folder that is kept; default: one that is removed")
    options = parser.parse_args()
    if missing := [package for tool, package in TOOLS.items() if shutil.which(tool) is None]:
        print(f"needed: {' '.join(missing)} (as root: apt-get install {' '.join(missing)})", file=sys.stderr)
        return 2
    known = sorted(task.parent.name for task in options.folder.glob("*/task.toml"))
    known = [name for name in known if re.match(f"[{options.names}]", name, re.IGNORECASE)]
    names = sorted(random.Random(options.seed).sample(known, min(options.tasks, len(known))))
    work = (options.work or Path(tempfile.mkdtemp(prefix="tbench-real-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    (work / ".tbench").touch()
    (work / "real_agent.py").write_text(AGENT)
    image = f"127.0.0.1:{options.port}/{options.suite}:base"
    items = ", ".join(f'{{ id = "{name}" }}' for name in names)
    more = f'ca = "host"\n[run.images]\n"{options.base}" = "{image}"'
    settings = {"parallel": options.parallel, "profiles": BOTH}
    folder = str(options.folder.resolve())
    (work / "real.toml").write_text(EXPERIMENT.format(slug="real", more=more, dataset=folder, items=items, **settings))
    starter = ", ".join(f'{{ id = "{name}" }}' for name in ("csv-clean", "json-sessions"))
    times = f"attempts = {max(1, len(names) // 2)}"
    (work / "starter.toml").write_text(
        EXPERIMENT.format(slug="starter", more=times, dataset="starter", items=starter, **settings)
    )
    registry = serve(work, options.port)
    try:
        make_base(work, options.suite, image)
        began = time.monotonic()
        first, _cpu = run(work, "real")
        took = time.monotonic() - began
        found = report(first, names)
        bases = [json.loads((work / f"results/real/{n}/plan.json").read_text())["images"]["bases"] for n in (0,)]
        again, cpu = run(work, "real")
        bases.append(json.loads((work / "results/real/1/plan.json").read_text())["images"]["bases"])
        same, base_cpu = run(work, "starter")
    finally:
        registry.terminate()
        registry.wait()
        if options.work is None:
            shutil.rmtree(work, ignore_errors=True)
    rebuilt = [name for name, base in bases[1].items() if bases[0].get(name) != base]
    ours, theirs = 1000 * cpu / len(again), 1000 * base_cpu / len(same)
    print(json.dumps(found, indent=1))
    where = f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {os.cpu_count()} processors"
    print(
        f"{where}: {found['measured']} of {found['tasks']} tasks measured by both agents, {took / 60:.0f} min with builds"
    )
    print(f"second run: {len(rebuilt)} built again; CPU a trial {ours:.0f} ms, of a starter task {theirs:.0f} ms")
    return 0 if found["measured"] >= 0.95 * found["tasks"] and not rebuilt else 1


if __name__ == "__main__":
    sys.exit(main())
