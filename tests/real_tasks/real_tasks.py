"""Public tasks in the local sandbox, on images of a registry: how many are measured, and whether verdicts hold.

    .venv/bin/python tests/real_tasks/real_tasks.py FOLDER [--tasks 200] [--seed 1] [--names a-l] [--work FOLDER]
    .venv/bin/python tests/real_tasks/real_tasks.py FOLDER --tasks 300 --batch 60
    .venv/bin/python tests/real_tasks/real_tasks.py FOLDER --verdicts [--attackers 'uv-*'] [--one-layer]

FOLDER holds tasks in Harbor's format. A registry of this machine (package docker-registry) serves a Debian made by
mmdebstrap, which stands for the base image that the tasks name. Two agents attempt each task: `nop`, and one that writes
a file. Then the same once more: nothing may be built, and a trial is compared with one of a starter task. With `--batch`
the images of one batch are removed before the next is built, in a cache of its own, and nothing is run again; the same
command with the same `--work` goes on with the first batch that was not measured (`--pieces 1`: one batch, and the
figures of those that were).

`--verdicts` takes the tasks for which `solutions/` has a script. That script must pass, `nop` must fail, and no script of
`attackers/`, which knows nothing of the task, may pass without being flagged. `--one-layer` takes the tasks whose
packages are in a layer that they share (`one_layer.py`). Started by an ordinary user, sandboxes are that user's.

Needs the network for Debian's and PyPI's packages. Exit code 1: fewer than 95 % are measured, `nop` passed, something
was built again, or a verdict is wrong.
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
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from one_layer import on_one_layer

TOOLS = {"mmdebstrap": "mmdebstrap", "docker-registry": "docker-registry", "skopeo": "skopeo"}
HERE = Path(__file__).resolve().parent
STARTERS = ("csv-clean", "json-sessions")
OCI = "application/vnd.oci.image."
AGENT = '''
"""An agent that writes a file, and one that runs a script."""

from pathlib import Path

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


class Script(Writer):
    """Runs a script as root: one for all tasks, or of a folder the one that is called as the task is."""

    def __init__(self, *args, path: str, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._path = Path(path)

    @staticmethod
    def name() -> str:
        return "script"

    async def run(self, instruction, environment, context) -> None:
        path = self._path / f"{environment.environment_name}.sh" if self._path.is_dir() else self._path
        await environment.upload_dir(path.parent, "/tmp/scripts")
        command = f"bash /tmp/scripts/{path.name} 2>&1; code=$?; rm -rf /tmp/scripts; exit $code"
        done = await environment.exec(command, user="root", env={"INSTRUCTION": instruction}, timeout_sec=600)
        (self.logs_dir / "script.txt").write_text(f"{done.stdout}\\nexit {done.return_code}\\n")
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
    trivial = sorted(t["task"] for t in trials if t["profile"] == "nop" and t["outcome"] == "passed")
    counted = {"tasks": len(names), "measured": len(whole), "outcomes": dict(sorted(outcomes.items()))}
    return {**counted, "others": causes, "passed_by_nop": trivial}


def judged(trials: list[dict]) -> dict:
    """Return for each script the counts of outcomes, flagged ones apart, and the verdicts that are wrong."""
    counts: dict[str, Counter[str]] = {}
    wrong = []
    for trial in trials:
        outcome, flagged = trial["outcome"], bool(trial.get("suspect"))
        counts.setdefault(trial["profile"], Counter())[outcome + (" flagged" if flagged else "")] += 1
        honest = trial["profile"] == "solver"
        expected = (outcome == "passed" and not flagged) if honest else (outcome != "passed" or flagged)
        if not expected or outcome not in ("passed", "failed"):
            wrong.append(f"{trial['profile']} on {trial['task']}: {outcome} {trial.get('suspect') or ''}".rstrip())
    return {"scripts": {name: dict(sorted(count.items())) for name, count in counts.items()}, "wrong": sorted(wrong)}


def with_script(folder: Path, names: Iterable[str], script: Path, target: Path) -> Path:
    """Copy tasks to `target`, with another script in the place of the one that runs their tests."""
    shutil.rmtree(target, ignore_errors=True)
    for name in names:
        shutil.copytree(folder / name, target / name)
        shutil.copy(script, target / name / "tests" / "test.sh")
    return target


def script_profile(name: str, path: Path) -> str:
    """Return the profile of an agent that runs the script at `path`, or that of the task's name in it."""
    return f'[profiles.{name}]\nagent = "real_agent:Script"\noptions = {{ path = {json.dumps(str(path))} }}\n'


class Bench:
    """The work folder, the tasks and the base image: what every experiment here has in common."""

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        """Write what the experiments need to the work folder."""
        self.options, self.work = options, work
        self.image = f"127.0.0.1:{options.port}/{options.suite}:base"
        work.mkdir(parents=True, exist_ok=True)
        (work / ".tbench").touch()
        (work / "real_agent.py").write_text(AGENT)

    def write(self, slug: str, names: Iterable[str], profiles: str, dataset: str = "", more: str = "") -> str:
        """Write an experiment; without a dataset, on the public tasks."""
        more = more or f'ca = "host"\n[run.images]\n"{self.options.base}" = "{self.image}"'
        items = ", ".join(f'{{ id = "{name}" }}' for name in names)
        dataset = dataset or str(self.options.folder.resolve())
        settings = {"parallel": self.options.parallel, "profiles": profiles, "dataset": dataset, "items": items}
        (self.work / f"{slug}.toml").write_text(EXPERIMENT.format(slug=slug, more=more, **settings))
        return slug

    def twice(self, names: list[str]) -> int:
        """Measure all tasks, twice: the second time nothing is built."""
        slug = self.write("real", names, BOTH)
        began = time.monotonic()
        first, _cpu = run(self.work, slug)
        took = time.monotonic() - began
        again, cpu = run(self.work, slug)
        plans = [json.loads((self.work / f"results/real/{n}/plan.json").read_text()) for n in (0, 1)]
        bases = [plan["images"]["bases"] for plan in plans]
        times = f"attempts = {max(1, len(names) // 2)}"
        same, base_cpu = run(self.work, self.write("starter", STARTERS, BOTH, "starter", times))
        rebuilt = [name for name, base in bases[1].items() if bases[0].get(name) != base]
        ours, theirs = 1000 * cpu / len(again), 1000 * base_cpu / len(same)
        code = self.tell(report(first, names), took)
        print(f"second run: {len(rebuilt)} built again; CPU a trial {ours:.0f} ms, of a starter task {theirs:.0f} ms")
        return 1 if rebuilt else code

    def in_batches(self, names: list[str]) -> int:
        """Measure all tasks, so many at a time, each with an image store that ends with it; what is measured stays."""
        os.environ["XDG_CACHE_HOME"] = str(self.work / "cache")
        trials, done, took, fresh = [], [], 0.0, 0
        size = self.options.batch
        for number, start in enumerate(range(0, len(names), size)):
            batch, kept = names[start : start + size], self.work / f"measured-{number}.json"
            if not kept.exists():
                if fresh == self.options.pieces:
                    break
                fresh, began = fresh + 1, time.monotonic()
                found, _cpu = run(self.work, self.write(f"real-{number}", batch, BOTH))
                shutil.rmtree(self.work / "cache", ignore_errors=True)
                kept.write_text(json.dumps({"names": batch, "trials": found, "seconds": time.monotonic() - began}))
            measured = json.loads(kept.read_text())
            if measured["names"] != batch:
                print(f"{kept} is of other tasks: take another --work", file=sys.stderr)
                return 2
            trials, done, took = trials + measured["trials"], done + batch, took + measured["seconds"]
            print(json.dumps(report(trials, done)), flush=True)
        return self.tell(report(trials, done if fresh == self.options.pieces else names), took)

    def verdicts(self, known: list[str]) -> int:
        """Run the tasks' solutions, `nop` and the attackers, and say which verdicts are wrong."""
        names = [name for name in known if (HERE / "solutions" / f"{name}.sh").exists()][: self.options.most]
        if self.options.one_layer:
            names = self.one_layer(names)
        if self.options.script is not None:
            self.options.folder = with_script(self.options.folder, names, self.options.script, self.work / "tasks")
        attackers = sorted((HERE / "attackers").glob(f"{self.options.attackers}.sh"))
        profiles = [script_profile("solver", HERE / "solutions"), '[profiles.nop]\nagent = "nop"\n']
        profiles += [script_profile(path.stem, path) for path in attackers]
        trials, _cpu = run(self.work, self.write("verdicts", names, "".join(profiles)))
        found = judged(trials)
        print(json.dumps(found, indent=1))
        print(f"{where()}: {len(names)} tasks, {len(attackers)} attackers: {len(found['wrong'])} verdicts are wrong")
        return 1 if found["wrong"] or not names else 0

    def one_layer(self, names: list[str]) -> list[str]:
        """Go on with copies of the tasks that are on one layer; their names."""
        target = self.work / "one-layer"
        taken = on_one_layer(self.options.folder, names, target)
        print(f"{len(taken)} of {len(names)} tasks are on one layer", flush=True)
        self.options.folder = target
        return taken

    def tell(self, found: dict, took_sec: float) -> int:
        """Print what was found; the exit code."""
        print(json.dumps(found, indent=1))
        told = f"{found['measured']} of {found['tasks']} tasks measured by both agents"
        print(f"{where()}: {told}, {took_sec / 60:.0f} min with builds")
        return 0 if found["measured"] >= 0.95 * found["tasks"] and not found["passed_by_nop"] else 1


def where() -> str:
    """Return the day and the machine of a measurement."""
    return f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {os.cpu_count()} processors"


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--names", default="a-l", help="first letters of the tasks that are chosen from")
    parser.add_argument("--batch", type=int, help="tasks at a time; the images of each batch are removed after it")
    parser.add_argument("--pieces", type=int, help="with --batch: end after so many; the same command goes on")
    parser.add_argument(
        "--verdicts", action="store_true", help="solutions, `nop` and attackers on tasks with a solution"
    )
    parser.add_argument("--one-layer", action="store_true", help="only tasks whose packages are in a layer they share")
    parser.add_argument("--attackers", default="*", help="with --verdicts: those of this name (a glob)")
    parser.add_argument("--most", type=int, help="with --verdicts: at most so many tasks")
    parser.add_argument("--script", type=Path, help="with --verdicts: a test.sh in the place of the tasks' own")
    parser.add_argument("--base", default="ghcr.io/laude-institute/*", help="images that the Debian stands for")
    parser.add_argument("--suite", default="trixie")
    parser.add_argument("--parallel", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--port", type=int, default=5056)
    parser.add_argument("--work", type=Path, help="folder that is kept; default: one that is removed")
    return parser.parse_args()


def main() -> int:
    """Run it, and say what was found."""
    options = parsed()
    if missing := [package for tool, package in TOOLS.items() if shutil.which(tool) is None]:
        print(f"needed: {' '.join(missing)} (as root: apt-get install {' '.join(missing)})", file=sys.stderr)
        return 2
    known = sorted(task.parent.name for task in options.folder.glob("*/task.toml"))
    known = [name for name in known if re.match(f"[{options.names}]", name, re.IGNORECASE)]
    names = sorted(random.Random(options.seed).sample(known, min(options.tasks, len(known))))
    bench = Bench(options, (options.work or Path(tempfile.mkdtemp(prefix="tbench-real-"))).resolve())
    registry = serve(bench.work, options.port)
    try:
        make_base(bench.work, options.suite, bench.image)
        if options.verdicts:
            return bench.verdicts(known)
        names = bench.one_layer(names) if options.one_layer else names
        return bench.in_batches(names) if options.batch else bench.twice(names)
    finally:
        registry.terminate()
        registry.wait()
        if options.work is None:
            shutil.rmtree(bench.work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
