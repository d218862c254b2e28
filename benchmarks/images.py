"""What images cost: taking one in beside `tar x`, a sandbox on one beside one on the host, a kept set-up of an agent.

    .venv/bin/python benchmarks/images.py [IMAGE] [--rounds 20]

IMAGE is an OCI layout or an archive of `docker save`; by default one is made of this machine's /usr/lib/python3 and
/usr/share. CPU seconds of the machine, which has to be idle, the mean of the rounds; a ratio in each line.
"""

import argparse
import asyncio
import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import statistics
import subprocess
import tarfile
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from terminalbench.sandbox import cache, helper
from terminalbench.sandbox.images.store import ImageStore
from terminalbench.sandbox.plan import SandboxPlan, limits_for
from terminalbench.sandbox.root_filesystem import HOST, IMAGE, open_base
from terminalbench.sandbox.session import Sandbox
from terminalbench.sandbox.setups import AgentSetup, digest_of

OCI = "application/vnd.oci.image."
SOURCES = ("/usr/lib/python3", "/usr/share/perl", "/usr/share/doc", "/usr/share/zoneinfo")
PROGRAMS = ("/bin/bash", "/bin/cat", "/bin/true")


def spent() -> float:
    """CPU seconds of the whole machine: what the helper's children use is counted by no process that can be asked."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _waiting, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def make_layout(folder: Path) -> Path:
    """An OCI layout of one layer, compressed as registries do."""
    data = io.BytesIO()
    told = subprocess.run(["ldd", *PROGRAMS], capture_output=True, text=True, check=True).stdout
    needed = {word.rstrip(":") for word in told.split() if word.startswith("/")} | set(PROGRAMS)
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path in (*sorted(needed), *SOURCES):
            if Path(path).exists():
                archive.add(Path(path).resolve() if path in needed else path, path.removeprefix("/"))
        link = tarfile.TarInfo("bin/sh")
        link.type, link.linkname = tarfile.SYMTYPE, "bash"
        archive.addfile(link)
    layer = data.getvalue()
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes, kind: str) -> dict:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": f"{OCI}{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    about = {"architecture": machine, "os": "linux", "config": {}, "rootfs": rootfs}
    config = blob(json.dumps(about).encode(), "config.v1+json")
    layers = [blob(gzip.compress(layer, 6), "layer.v1.tar+gzip")]
    entry = blob(json.dumps({"schemaVersion": 2, "config": config, "layers": layers}).encode(), "manifest.v1+json")
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return folder


def taking_in(layout: Path, rounds: int) -> None:
    """Print what taking an image in costs beside unpacking its layers."""
    ours, theirs = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=cache.root()) as folder:  # layers are made in the cache, and renamed
            store = ImageStore(Path(folder), helper.helper().ids)
            before = spent()
            image = store.load(layout, "bench:1")
            ours.append(spent() - before)
            subprocess.run(["rm", "-rf", folder], check=True)
            Path(folder).mkdir()
        with tempfile.TemporaryDirectory() as folder:
            before = spent()
            for layer in image.layers:
                blob = layout / "blobs" / "sha256" / layer.digest.removeprefix("sha256:")
                subprocess.run(["tar", "xzf", str(blob), "-C", folder], check=True)
            theirs.append(spent() - before)
    a, b = statistics.fmean(ours), statistics.fmean(theirs)
    print(f"{'taking an image in':34} {a:7.3f} s   tar x {b:7.3f} s   {a / b:5.2f} x")


async def starting(digest: str, rounds: int) -> None:
    """Print what a sandbox on an image costs beside one on the host's folders."""
    ids, medians = helper.helper().ids, []
    for name in (HOST, f"{IMAGE}{digest}"):
        plan = SandboxPlan(open_base(name, ids), limits_for(512, 512, 1, scratch="memory"))

        async def once(plan: SandboxPlan = plan) -> None:
            box = await Sandbox.start(plan)
            await box.run(["/bin/bash", "-c", "echo x > /tmp/x"], env={})
            await box.stop()

        medians.append(await _mean(once, rounds))
    print(f"{'a sandbox on an image':34} {medians[1]:7.3f} s   host  {medians[0]:7.3f} s   "
          f"{medians[1] / medians[0]:5.2f} x")  # fmt: skip


async def _mean(work: Callable[[], Awaitable[None]], rounds: int) -> float:
    await work()
    times = []
    for _ in range(rounds):
        before = spent()
        await work()
        times.append(spent() - before)
    return statistics.fmean(times)


class _Place:
    """A sandbox on the host that set-ups are done to."""

    def __init__(self) -> None:
        self.box: Sandbox | None = None

    async def bring_up(self, setup: Path | None = None, building: Path | None = None, hold: int | None = None) -> None:
        await self.take_down()
        base, limits = open_base(HOST, helper.helper().ids), limits_for(512, 2048, 1, scratch="memory")
        scratch = "disk" if building is not None else "memory"
        holds = (hold,) if hold is not None else ()
        self.box = await Sandbox.start(
            SandboxPlan(base, limits, setup=setup, building=building, scratch=scratch, holds=holds)
        )

    async def take_down(self) -> None:
        box, self.box = self.box, None
        if box is not None:
            await box.stop()

    async def processes(self) -> int:
        return 0

    async def run(self, command: str):
        if self.box is None:
            raise RuntimeError("no sandbox")
        return await self.box.run(["bash", "-c", command], env={})


async def set_up(rounds: int) -> None:
    """Print what a trial costs that starts from a kept set-up of many files, beside one without a set-up."""
    commands = [
        "mkdir -p /opt/agent && cd /opt/agent && for i in $(seq 5000); do echo $i > f$i; done",
        "ls /opt/agent | wc -l",
    ]
    trial, key = Path(tempfile.mkdtemp()), f"bench-{os.getpid()}"

    async def once(calls: list[str]) -> None:
        place = _Place()
        setup = AgentSetup(place, key, trial)
        await setup.start()
        setup.begin({})
        for command in calls:
            await setup.call(digest_of(command), lambda command=command: place.run(command))
        setup.end(failed=False)
        await setup.call("run", lambda: place.run("true"))
        await place.take_down()
        await setup.close()

    await once(commands)
    kept, none = await _mean(lambda: once(commands), rounds), await _mean(lambda: once([]), rounds)
    print(
        f"{'a kept set-up of 5,000 files':34} {kept:7.3f} s   none  {none:7.3f} s   {1000 * (kept - none):5.0f} ms more"
    )
    shutil.rmtree(trial)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("image", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        layout = options.image or make_layout(Path(folder) / "layout")
        taking_in(layout, max(3, options.rounds // 4))
        digest = ImageStore().load(layout, "tbench.local/bench:1").digest
        asyncio.run(starting(digest, options.rounds))
        asyncio.run(set_up(options.rounds))
        ImageStore().prune(["tbench.local/bench:1"])


if __name__ == "__main__":
    main()
