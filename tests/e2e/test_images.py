"""Tasks on images of a registry: fetched and built before the first trial, pinned, and what cannot run is said first."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from test_run import LIMIT_SEC, wait_for

from support.registry import RegistryServer, layer_of, small_system
from support.tasks import BOTH, write_task
from terminalbench.experiments.plan import Plan
from terminalbench.json_files import read_json

ORACLE = '[profiles.oracle]\nagent = "oracle"\n'
PROGRAMS = ("/bin/chmod", "/bin/rm", "/bin/cp", "/bin/date", "/bin/sleep")


@pytest.fixture
def registry(lab) -> Generator[RegistryServer]:
    with RegistryServer() as server:
        push(server, "tiny:1", "one")
        yield server
        assert lab.tbench("images", "prune", f"{server.host}/tiny:1", "--yes").returncode == 0


def push(registry: RegistryServer, name: str, mark: str) -> str:
    layer = layer_of({**small_system(*PROGRAMS), "etc/mark": mark, "etc/place": registry.host})  # built anew each time
    return registry.images.image(name, [layer], Env=["PATH=/bin:/usr/bin", "MARK=image"], WorkingDir="/app")


def image_task(lab, name: str, dockerfile: str) -> Path:
    """A task on real images."""
    folder = write_task(lab.root / "tasks" / name)
    toml = folder / "task.toml"
    toml.write_text(toml.read_text().replace("host_base = true\n", ""))
    (folder / "environment" / "Dockerfile").write_text(dockerfile)
    return folder


def test_what_is_written_in_vain_or_wrong_about_images_is_said(lab) -> None:
    copies = image_task(lab, "copies", "FROM debian:12\nRUN true\nCOPY --from=nostage /x /x\n")
    image_task(lab, "itself", "FROM debian:12 AS one\nRUN true\nCOPY --from=one /x /x\n")
    images = '[run.images]\n"debian:*" = "host"\n"node:*" = "host"\n'
    file = lab.experiment(images + BOTH, tasks=("copies", "itself", "a"))
    told = " ".join(lab.tbench("plan", file).stdout.split())
    assert f"{copies}/environment/Dockerfile:3: the image nostage is not on this machine" in told
    assert "itself/environment/Dockerfile:3: the stage one is used before it is made" in told
    assert 'run.images: no image of these tasks fits "node:*"' in told
    strict = lab.tbench("run", file, "--strict")
    assert strict.returncode == 2
    assert "building" not in strict.stderr
    wrong = lab.experiment(images.replace("host", "hsot", 1) + BOTH, tasks=("a",), name="wrong.toml")
    assert '"hsot" looks like "host"' in lab.tbench("validate", wrong).stderr
    folder = lab.experiment(images.replace("host", "/etc", 1) + BOTH, tasks=("itself", "a"), name="folder.toml")
    (lab.root / "tasks" / "itself" / "environment" / "Dockerfile").write_text("FROM debian:12\n")
    assert "the rootfs /etc has no /bin/sh" in " ".join(lab.tbench("validate", folder).stderr.split())


def test_tasks_run_on_the_images_that_they_name(lab, registry: RegistryServer) -> None:
    tiny = f"{registry.host}/tiny:1"
    build = f"FROM {tiny} AS make\nRUN echo made > /made; date +%N > /when\n"
    image_task(lab, "one", f"{build}FROM {tiny}\nCOPY --from=make /made /when /app/\n")
    image_task(lab, "two", f"{build}RUN mkdir -p /app && cat /made > /app/made\n")
    own = image_task(lab, "own", "")
    (own / "environment" / "Dockerfile").unlink()
    (own / "environment" / "readme").write_text("no Dockerfile: the image is the task's\n")
    (own / "task.toml").write_text((own / "task.toml").read_text() + f'docker_image = "{tiny}"\n')
    names = ("one", "two", "own", "a")
    for name in names[:-1]:
        check = '#!/bin/bash\n[ "$(cat /etc/mark)$MARK" = oneimage ] && ! command -v git || exit 1\n'
        test = lab.root / "tasks" / name / "tests" / "test.sh"
        test.write_text(test.read_text().replace("#!/bin/bash\n", check))
    file = lab.experiment(BOTH, tasks=names)
    digest = registry.images.tags["tiny:1"]

    planned = lab.tbench("plan", file)
    assert f"{tiny}: {digest[:19]}, will be fetched when a run starts" in " ".join(planned.stdout.split())
    assert "3 tasks" in planned.stdout
    assert "replaces the images of 1 task" in " ".join(planned.stdout.split())
    assert not any("blobs" in asked for asked in registry.asked if asked.endswith(digest)), "plan fetches nothing"
    ran = lab.tbench("run", file)
    assert ran.returncode == 0, ran.stderr
    assert f"fetching {tiny}" in ran.stderr
    assert " of 3" in ran.stderr.partition("building ")[2]
    assert lab.outcomes() == {
        (p, t): [outcome] for p, outcome in (("oracle", "passed"), ("nop", "failed")) for t in names
    }
    plan = read_json(lab.batch().plan_json, Plan)
    assert plan.images is not None
    assert plan.images.pins == {tiny: digest}
    assert {name.rpartition("/")[2]: base.partition("; built")[0] for name, base in plan.images.bases.items()} == {
        "one": f"{tiny}@{digest[:19]}", "two": f"{tiny}@{digest[:19]}", "own": f"{tiny}@{digest[:19]}", "a": "host",
    }  # fmt: skip

    shown = json.loads(lab.tbench("show", lab.batch().folder, "oracle", "two", "--json").stdout)
    assert shown["base"] == plan.images.bases["tasks/two"]
    listed = json.loads(lab.tbench("images", "list", "--builds", "--json").stdout)
    built = [one for one in listed if one["base"] == f"image:{digest}"]
    assert {one["text"].split()[0] for one in built} >= {"RUN", "COPY"}
    assert all(one["size"] > 0 for one in built if one["text"].startswith("COPY"))
    assert f"built on it     {len(built)} layers" in lab.tbench("images", "show", tiny).stdout

    moved = push(registry, "tiny:1", "two")
    before = registry.asked.total()
    ran = lab.tbench("run", file, "--profiles", "oracle", "--tasks", "one", "two")
    assert (ran.returncode, registry.asked.total()) == (0, before), "what is here is not asked for"
    again = read_json(lab.batch(1).plan_json, Plan).images
    assert again is not None
    assert again.bases == {name: plan.images.bases[name] for name in ("tasks/one", "tasks/two")}, "and not built again"
    assert lab.tbench("images", "pull", tiny).returncode == 0
    told = f"{tiny} is {moved[:19]} now, but was {digest[:19]} in batch 1"
    assert told in " ".join(lab.tbench("plan", file).stdout.split())
    ran = lab.tbench("resume", lab.batch().folder, "--attempts", "2", "--profiles", "oracle")
    assert ran.returncode == 3, "what is missing of the other is missing"
    assert f"{tiny} is now {moved[:19]} on this machine; the batch keeps {digest[:19]}" in " ".join(ran.stderr.split())
    assert lab.outcomes()["oracle", "one"] == ["passed", "passed"]
    assert lab.tbench("run", file, "--profiles", "oracle", "--tasks", "one").returncode == 0
    assert lab.outcomes(2)["oracle", "one"] == ["failed"], "a new batch has the image that the name means now"
    found = json.loads(lab.tbench("compare", lab.batch(1).folder, lab.batch(2).folder, "--json").stdout)
    departed = [one for one in found["departures"] if "ran on different images" in one]
    assert len(departed) == 1, found["departures"]
    assert digest[:19] in departed[0]
    told = lab.tbench("images", "prune", f"{registry.host}/tiny@{digest}", "--yes").stdout
    assert f"built for tasks: {len(built)} layers" in told


def test_what_cannot_run_is_said_before_anything_runs(lab, registry: RegistryServer) -> None:
    tiny = f"{registry.host}/tiny:1"
    image_task(lab, "gone", f"FROM {registry.host}/nothing:1\n")
    image_task(lab, "secret", f"FROM {tiny}\nWORKDIR /app\nRUN --mount=type=secret,id=x true\n")
    image_task(lab, "breaks", f"FROM {tiny}\nRUN echo about to break; exit 7\n")
    image_task(lab, "good", f"FROM {tiny}\n")
    late = image_task(lab, "late", f"FROM {tiny}\nRUN sleep 600\n") / "task.toml"
    late.write_text(late.read_text().replace("build_timeout_sec = 120.0", "build_timeout_sec = 3.0"))
    bare = image_task(lab, "bare", "") / "environment" / "Dockerfile"
    bare.unlink()
    file = lab.experiment(BOTH, tasks=("gone", "secret"))
    ran = lab.tbench("validate", file)
    assert ran.returncode == 2
    assert "none of 2 tasks can run here" in ran.stderr
    assert f"tbench images pull {registry.host}/nothing:1" in ran.stderr
    assert "Dockerfile:3: RUN --mount=type=secret" in ran.stderr
    assert lab.tbench("run", file).returncode == 2
    assert not (lab.root / "results" / "s").exists()

    file = lab.experiment(ORACLE, tasks=("gone", "secret", "breaks", "good", "late", "bare"))
    ran = lab.tbench("validate", file)
    assert (ran.returncode, ran.stdout.count("a run leaves out")) == (0, 3)
    assert "has no Dockerfile, and task.toml no docker_image" in ran.stdout
    assert "Left out\n  gone: the image" in lab.tbench("plan", file).stdout
    ran = lab.tbench("run", file)
    assert ran.returncode == 3
    assert "cannot be built; their trials show why: tasks/breaks, tasks/late" in ran.stderr
    left_out = {("oracle", task): ["not_run"] for task in ("gone", "secret", "bare")}
    broken = {("oracle", task): ["errored"] for task in ("breaks", "late")}
    assert lab.outcomes() == {**left_out, **broken, ("oracle", "good"): ["passed"]}
    listed = lab.tbench("list", lab.batch().folder, "--json").stdout
    errors = {trial["task"]: trial for trial in json.loads(listed) if trial["outcome"] == "errored"}
    assert {trial["error_class"] for trial in errors.values()} == {"environment"}, errors
    assert "Dockerfile:2: RUN echo about to break; exit 7 failed with exit code 7" in errors["breaks"]["reason"]
    assert ".log" in errors["breaks"]["reason"], "the file with all of it is named"
    assert "the build took longer than the task allows" in errors["late"]["reason"]

    (lab.root / "tasks" / "breaks" / "environment" / "Dockerfile").write_text(f"FROM {tiny}\n")
    ran = lab.tbench("resume", lab.batch().folder, "--retry-errors", "--accept-changed")
    assert lab.outcomes()["oracle", "breaks"] == ["passed"]


def test_a_build_that_is_killed_leaves_nothing_that_counts(lab, registry: RegistryServer) -> None:
    cache = lab.root.parent / "cache"
    lab.env["XDG_CACHE_HOME"] = str(cache)
    run = "RUN echo begun; for i in 1 2 3 4 5 6 7 8; do sleep 0.25; done; echo made > /app/made"
    image_task(lab, "slow", f"FROM {registry.host}/tiny:1\n{run}\n")
    file = lab.experiment(ORACLE, tasks=("slow",))

    def begun() -> bool:
        logs = cache.glob("terminalbench/sandbox-*/logs/*.log")
        return any("begun" in log.read_text().splitlines() for log in logs)

    killed = lab.start("run", file)
    wait_for(begun, killed)
    killed.kill()
    killed.communicate()
    assert not (lab.root / "results" / "s").exists(), "no batch is taken before its images are there"
    assert not list(cache.glob("terminalbench/sandbox-*/layers/*/meta.json"))
    again = lab.start("run", file)
    _out, err = again.communicate(timeout=LIMIT_SEC)
    assert again.returncode == 0, err
    assert lab.outcomes() == {("oracle", "slow"): ["passed"]}
    left = [path for path in cache.glob("terminalbench/sandbox-*/building/*") if path.is_dir()]
    assert left == [], "what the killed one began is cleared away"
