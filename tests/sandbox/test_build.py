"""Dockerfiles built in the sandbox: what each instruction leaves behind, once per content."""

import base64
import io
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sandbox.driving import Box, Driver, Raised
from support.tools import SYSTEM
from terminalbench.sandbox.builds.step_runner import _last_lines

pytestmark = pytest.mark.any_user

EVERYTHING = r"""
ARG VERSION=12
FROM debian:${VERSION} AS base
ARG VERSION
ARG NAME=world UNSET
ENV GREETING="hello $NAME" PLAIN=a\ b
ENV OLD the rest of the line
ENV PATH=/opt/tool/bin:$PATH
LABEL ignored=yes
WORKDIR /app
WORKDIR sub
RUN pwd > /where && echo "$GREETING $VERSION $NAME [$UNSET]" > /greeting
RUN ["/bin/sh", "-c", "echo exec form > /exec"]
RUN <<EOF
set -e
x=heredoc
echo $x > /heredoc
EOF
RUN <<SCRIPT
#!/usr/bin/env python3
open("/script", "w").write("python")
SCRIPT
RUN cat <<A > /both && cat <<'B' >> /both
one $NAME
A
two $NAME
B
COPY a.txt /one
COPY a.txt /folder/
COPY a.txt b.txt many/
COPY tree /tree
COPY *.txt /glob/
COPY --chmod=600 a.txt /secret
COPY <<FILE /doc
to $NAME
FILE
COPY ["b.txt", "/with space"]
ADD packed.tar.gz /unpacked/
SHELL ["/bin/bash", "-c"]
RUN [[ a == a ]] && echo bash > /shell
RUN --mount=type=cache,target=/cache echo cached > /cached
RUN --network=none true
USER root
VOLUME /data
EXPOSE 80
CMD ["ignored"]
"""


def packed() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("inner/file")
        member.size, member.uid, member.mode = 4, 0, 0o755
        archive.addfile(member, io.BytesIO(b"tar\n"))
    return buffer.getvalue()


@pytest.fixture
def folder(driver: Driver, work: Path) -> Path:
    """An environment folder with files that need more than text."""
    (work / "packed.tar.gz").write_bytes(packed())
    return work


@pytest.mark.both_users
def test_every_instruction(driver: Driver, folder: Path) -> None:
    files = {
        "Dockerfile": EVERYTHING,
        "a.txt": "a\n",
        "b.txt": "b\n",
        "tree/x/y": "y\n",
        "tree/ignored.log": "no",
        ".dockerignore": "**/*.log\n",
    }
    box = driver.box(files=files, start=False)
    environment = Path(_folder_of(box))
    (environment / "packed.tar.gz").write_bytes((folder / "packed.tar.gz").read_bytes())
    box.call("start", False)
    assert box.out('pwd; echo $GREETING; echo "$PLAIN"; echo $OLD; echo [$NAME]').splitlines() == [
        *("/app/sub", "hello world", "a b", "the rest of the line", "[]"),
    ]
    cat = "cat /where /greeting /exec /heredoc /script; echo; cat /both /one /folder/a.txt many/a.txt many/b.txt /tree/x/y"
    assert box.out(cat).splitlines() == [
        *("/app/sub", "hello world 12 world []", "exec form", "heredoc", "python", "one world", "two $NAME"),
        *("a", "a", "a", "b", "y"),
    ]
    assert box.out(
        "ls /tree /glob; stat -c %a /secret; cat /doc '/with space' /unpacked/inner/file /shell /cached"
    ).split() == [
        *("/glob:", "a.txt", "b.txt", "/tree:", "x", "600", "to", "world", "b", "tar", "bash", "cached"),
    ]
    assert box.out("ls -d /data; id -u").split() == ["/data", "0"]
    assert box.out("echo $PATH").startswith("/opt/tool/bin:/usr/local/sbin:/usr/")
    box.call("stop", True)


def _folder_of(box: Box) -> str:
    return str(max((box.driver.folder / "work").glob("*/environment"), key=lambda path: path.stat().st_ctime_ns))


def layers(driver: Driver) -> dict[str, int]:
    root = driver.folder / "cache" / "terminalbench" / f"sandbox-{driver.uid}" / "layers"
    return {path.parent.name: path.stat().st_mtime_ns for path in root.glob("*/meta.json")}


def test_a_layer_is_built_once_per_content(driver: Driver) -> None:
    files = {"Dockerfile": "FROM debian:12\nRUN date +%N > /built\nCOPY f /f\n", "f": "1"}
    before = layers(driver)
    one, two = driver.box(files=files), driver.box(files=files)
    assert one.out("cat /built") == two.out("cat /built")
    assert len(layers(driver)) == len(before) + 2
    other = driver.box(files={**files, "f": "2"})
    assert other.out("cat /built; cat /f").split() == [one.out("cat /built"), "2"], "what comes before is shared"
    forced = driver.box(files=files, force=True)
    assert forced.out("cat /built") != one.out("cat /built")
    again = driver.box(files=files)
    assert again.out("cat /built") == forced.out("cat /built")
    assert one.out("cat /built; echo x > /built; cat /f").split()[1] == "1"  # a replaced layer still serves its sandbox
    for box in (one, two, other, forced, again):
        box.call("stop", True)
    driver("collect")
    assert len(layers(driver)) == len(before) + 3


def test_what_a_sandbox_writes_does_not_reach_its_layer(driver: Driver) -> None:
    files = {"Dockerfile": "FROM debian:12\nRUN mkdir /d && echo one > /d/f && echo tool > /usr/local/bin/tool\n"}
    first = driver.box(files=files)
    first.out("rm -rf /d /usr/local/bin/tool; echo changed > /etc/hostname; echo new > /new")
    first.call("stop", True)
    second = driver.box(files=files)
    assert second.out("cat /d/f /usr/local/bin/tool; ls /new 2>/dev/null || true").split() == ["one", "tool"]
    second.call("stop", True)


def test_deletions_and_replacements_in_a_layer_hold(driver: Driver) -> None:
    """Also across the host's system folders, and for a folder that was removed and made again."""
    text = "FROM debian:12\nRUN rm -rf /usr/share/perl5 /etc/skel && mkdir /usr/share/perl5 && touch /usr/share/perl5/mine\n"
    box = driver.box(files={"Dockerfile": text})
    assert box.out("ls /usr/share/perl5; ls -d /etc/skel 2>/dev/null || true").split() == ["mine"]
    box.call("stop", True)


def test_many_builders_of_one_layer_build_it_once(driver: Driver, work: Path) -> None:
    """In different processes: they wait for each other, and all get the same."""
    (work / "environment").mkdir()
    (work / "environment" / "Dockerfile").write_text("FROM debian:12\nRUN sleep 0.5; date +%N > /built\n")
    code = f"""
import asyncio
from pathlib import Path
from terminalbench.sandbox.builds.layers import BuildSettings, build, define
from terminalbench.sandbox.builds.recipe import BuildSource
from terminalbench.sandbox.builds.needs import ImageTable
from terminalbench.sandbox.plan import limits_for
async def main():
    definition = define(BuildSource(Path({str(work / "environment")!r})), ImageTable(host=True))
    built = await build(definition, BuildSettings(limits_for(None, None, None, scratch="disk")))
    print((built.layers[0] / "0" / "built").read_text().strip())
asyncio.run(main())
"""
    command = driver.command(sys.executable, "-c", code)
    running = [
        subprocess.Popen(command, env=driver.environment(), stdout=subprocess.PIPE, text=True, start_new_session=True)
        for _ in range(3)
    ]
    answers = [process.communicate(timeout=600)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert answers[0]
    assert len(set(answers)) == 1


def test_a_build_that_is_cancelled_while_its_layer_is_published_leaves_a_whole_one(driver: Driver, work: Path) -> None:
    """No other test may build this layer: they share one cache, and what is there is not published again."""
    (work / "environment").mkdir()
    (work / "environment" / "Dockerfile").write_text("FROM debian:12\nRUN date +%N > /cancelled\n")
    code = f"""
import asyncio, threading
from pathlib import Path
from terminalbench.sandbox.builds import layers as building
from terminalbench.sandbox.builds.recipe import BuildSource
from terminalbench.sandbox.builds.needs import ImageTable
from terminalbench.sandbox.plan import limits_for
publish, began, go_on = building.publish_layer, [], threading.Event()
def slowly(*args):
    began.append(1)
    go_on.wait()
    return publish(*args)
building.publish_layer = slowly
async def main():
    definition = building.define(BuildSource(Path({str(work / "environment")!r})), ImageTable(host=True))
    limits = limits_for(None, None, None, scratch="disk")
    first = asyncio.create_task(building.build(definition, building.BuildSettings(limits)))
    while not began and not first.done():
        await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.wait([first], timeout=0.5)
    go_on.set()
    await asyncio.wait([first])
    built = await building.build(definition, building.BuildSettings(limits))
    print(len(began), first.cancelled(), (built.layers[0] / "0" / "cancelled").read_text().strip().isdigit())
asyncio.run(main())
"""
    command = driver.command(sys.executable, "-c", code)
    ran = subprocess.run(command, env=driver.environment(), capture_output=True, text=True, timeout=600)
    assert ran.stdout.split() == ["1", "True", "True"], ran.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "FROM debian:12\nRUN echo out; echo oops >&2; exit 3\n",
            r"Dockerfile:2: RUN echo out.*exit code 3\nout\noops",
        ),
        ("FROM debian:12\nRUN <<X\n#!/bin/sh\nexit 4\nX\n", "exit code 4"),
        ("FROM debian:12\nCOPY nothing /x\n", "no such file"),
        ("FROM debian:12\nUSER nobody-here\nRUN true\n", "no user nobody-here"),
        ("FROM debian:12\nRUN apt-get install -y no-such-package-at-all\n", "exit code"),
    ],
)
def test_a_failed_build_says_which_line_and_why(driver: Driver, text: str, message: str) -> None:
    before = layers(driver)
    with pytest.raises(Raised, match=f"(?s){message}"):
        driver.box(files={"Dockerfile": text})
    assert layers(driver) == before
    root = driver.folder / "cache" / "terminalbench" / f"sandbox-{driver.uid}"
    assert list((root / "building").iterdir()) == []


@pytest.mark.both_users
def test_a_build_is_limited_too(driver: Driver) -> None:
    text = "FROM debian:12\nRUN for i in $(seq 400); do head -c 20000000 /dev/urandom > /fill$i || exit 9; done\n"
    with pytest.raises(Raised, match="exit code (137|9)"):
        driver.box(files={"Dockerfile": text}, config={"storage_mb": 50})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"files": {"Dockerfile": "FROM alpine:3\n"}}, "the image alpine:3 is not on this machine"),
        (
            {"files": {"Dockerfile": "FROM a AS b\nFROM debian:12\nCOPY --from=b / /\n"}},
            "the image a is not on this machine",
        ),
        (
            {
                "files": {
                    "docker-compose.yaml": "services: {a: {image: b, pid: host}}\n",
                    "Dockerfile": "FROM debian:12\n",
                }
            },
            '"pid" of the service a is not supported',
        ),
        ({"config": {"gpus": 1}}, "needs 1 GPU"),
        (
            {"config": {"docker_image": "org/image:1"}, "files": {"readme": ""}},
            "the image org/image:1 is not on this machine",
        ),
        ({"mounts": [{"type": "volume", "source": "v", "target": "/v"}]}, "a mount of type volume"),
        (
            {
                "config": {"docker_image": "debian:12"},
                "kwargs": {"enable_environment_dir_upload": False},
                "files": {"t": ""},
            },
            "own tests",
        ),
        ({"files": {"Dockerfile": "FROM --platform=linux/s390x debian:12\n"}}, "--platform=linux/s390x"),
    ],
)
def test_what_it_cannot_honour_is_refused_before_anything_starts(
    driver: Driver, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(Raised, match=message) as caught:
        driver.box(**options, start=False)
    assert caught.value.kind == "Refused"
    assert 'container_env = "docker"' in caught.value.message


def test_options_are_checked(driver: Driver) -> None:
    with pytest.raises(Raised, match='no option "imagse".*did you mean "images"'):
        driver.box(kwargs={"imagse": {}}, start=False)
    with pytest.raises(Raised, match='use "memory" or "disk"'):
        driver.box(kwargs={"scratch": "tape"}, start=False)
    with pytest.raises(Raised, match='"/" would show the whole machine'):
        driver.box(kwargs={"images": {"*": "/"}})
    with pytest.raises(Raised, match="is not a folder"):
        driver.box(kwargs={"images": {"debian:*": "/no/such/folder"}})


def test_a_prebuilt_image_without_dockerfile_gets_the_folders_files(driver: Driver) -> None:
    box = driver.box(config={"docker_image": "debian:12", "workdir": "/work"}, files={"data.txt": "x"})
    assert box.out("pwd; cat data.txt").split() == ["/work", "x"]
    box.call("stop", True)


def test_a_python_image_has_python(driver: Driver) -> None:
    box = driver.box(files={"Dockerfile": "FROM python:3.13-slim\nRUN python -c 'print(1)'\n"})
    assert box.out("python -c 'import sys; print(sys.version_info[0])'") == "3"
    box.call("stop", True)


@pytest.mark.both_users
def test_a_rootfs_folder_is_the_whole_system(driver: Driver, work: Path) -> None:
    rootfs = work / "rootfs"
    libraries = subprocess.run(
        ["ldd", "/bin/bash", "/bin/cat"], capture_output=True, text=True, check=True, timeout=20
    ).stdout
    needed = {word for word in libraries.split() if word.startswith("/")} | {"/bin/bash", "/bin/cat", "/bin/sh"}
    for name in sorted(needed):
        source = Path(name.rstrip(":"))
        target = rootfs / source.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
        target.chmod(0o755)
    (rootfs / "marker").write_text("rootfs")
    subprocess.run(["chown", "-R", f"{driver.uid}:{driver.gid}", str(rootfs)], check=True, timeout=20)
    box = driver.box(files={"Dockerfile": "FROM debian:12\nENV A=b\n"}, kwargs={"images": {"debian:12": str(rootfs)}})
    made = {"bin", "dev", "etc", "lib", "logs", "marker", "proc", "sys"}  # /lib64 or /usr by the machine's libraries
    assert box.out("echo /*; cat /marker; echo; echo $A").splitlines() == [
        " ".join(f"/{name}" for name in sorted(made | {entry.name for entry in rootfs.iterdir()})),
        "rootfs",
        "b",
    ]
    assert box.run("ls /")["return_code"] == 127  # nothing but what the folder holds
    box.out("echo changed > /marker")
    assert (rootfs / "marker").read_text() == "rootfs"
    box.call("stop", True)


def test_a_layer_says_what_it_was_built_for(driver: Driver) -> None:
    box = driver.box(files={"Dockerfile": "FROM debian:12\nENV A=1\nWORKDIR /w\nRUN echo meta-test > x\n"})
    box.call("stop", True)
    root = driver.folder / "cache" / "terminalbench" / f"sandbox-{driver.uid}" / "layers"
    metas = [json.loads(path.read_text()) for path in root.glob("*/meta.json")]
    assert ("debian:12", "RUN echo meta-test > x") in [(meta["image"], meta["text"]) for meta in metas]


STAGES = """
ARG TOOL=tool
FROM debian:12 AS unused
RUN exit 1
FROM debian:12 AS Build
ARG TOOL
RUN mkdir -p /out/inner && echo made > /out/$TOOL && echo two > /out/inner/b && ln -s tool /out/link
ENV KEPT=1
WORKDIR /out
FROM build AS more
RUN pwd > /out/where; echo $KEPT >> /out/where
FROM debian:12
COPY --from=build /out/tool /opt/one
COPY --from=build /out/tool /out/link /opt/both/
COPY --from=1 --chmod=700 /out/inner/* /opt/globbed/
COPY --from=more /out /opt/all
COPY --from=debian:12 /etc/passwd /opt/accounts
RUN --mount=from=build,source=/out,target=/mnt cat /mnt/tool > /opt/mounted; ! touch /mnt/x 2>/dev/null
RUN --mount=type=bind,source=f,target=/mnt/f cat /mnt/f > /opt/bound
RUN --mount=type=bind,target=/mnt,rw echo changed > /mnt/f && cat /mnt/f >> /opt/bound
RUN --mount=type=tmpfs,target=/scratch touch /scratch/x && ls /scratch > /opt/scratch
RUN --mount=type=cache,id=stages,target=/kept echo x >> /kept/count && wc -l < /kept/count > /opt/count
"""


@pytest.mark.both_users
def test_stages_and_mounts(driver: Driver) -> None:
    box = driver.box(files={"Dockerfile": STAGES, "f": "of the context\n"})
    assert box.out("cd /opt; cat one both/tool both/link globbed/b all/where mounted bound scratch count").split() == [
        *("made", "made", "made", "two", "/out", "1", "made", "of", "the", "context", "changed", "x", "1"),
    ]
    assert box.out("readlink /opt/all/link; stat -c %a /opt/globbed/b; ls /scratch /kept; head -c4 /opt/accounts") == (
        "tool\n700\n/kept:\n\n/scratch:\nroot"
    )
    box.call("stop", True)
    other = driver.box(files={"Dockerfile": STAGES + "RUN --mount=type=cache,id=stages,target=/kept wc -l < /kept/count\n",
                              "f": "of the context\n"})  # fmt: skip
    other.call("stop", True)


def test_what_an_address_holds_is_added(driver: Driver, work: Path) -> None:
    with pytest.raises(Raised, match="not a public address"):
        driver.box(files={"Dockerfile": "FROM debian:12\nADD http://127.0.0.1:9/x /x\n"})
    with pytest.raises(Raised, match="it cannot be fetched"):
        driver.box(files={"Dockerfile": "FROM debian:12\nADD http://no-such-host.invalid/x /x\n"})


def test_pip_installs_where_the_hosts_python_stands_for_an_image_of_python(driver: Driver) -> None:
    """The host's package manager may keep pip out of its Python (PEP 668), which an image of Python does not."""
    if not shutil.which("pip3", path=SYSTEM):
        pytest.skip("missing tool pip3: the package python3-pip")
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("added.py", "word = 'installed'\n")
        archive.writestr("added-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: added\nVersion: 1\n")
        archive.writestr("added-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("added-1.dist-info/RECORD", "")
    steps = [
        "FROM python:3.12-slim",
        f"RUN echo {base64.b64encode(wheel.getvalue()).decode()} | base64 -d > /tmp/added-1-py3-none-any.whl",
        "RUN pip3 install --no-index /tmp/added-1-py3-none-any.whl",
    ]
    box = driver.box(files={"Dockerfile": "\n".join(steps)})
    assert box.out(
        "python3 -c 'import added; print(added.word)'; pip3 uninstall -yq added 2>/dev/null && echo gone"
    ) == ("installed\ngone")


def test_the_words_of_a_failed_step_begin_where_their_lines_do() -> None:
    long = "error: this environment is managed by another " + "word " * 2000
    [first, last] = _last_lines(f"\n{long}\n\nhint: look there\n")
    assert first.startswith("error: this environment is managed by another word")
    assert first.endswith("word ...")
    assert last == "hint: look there"


def test_a_failed_build_keeps_its_log_and_is_not_tried_again_by_those_that_waited(driver: Driver, work: Path) -> None:
    files = {"Dockerfile": "FROM debian:12\nRUN seq 3000; date +%N; exit 7\n"}
    with pytest.raises(Raised, match="exit code 7") as first:
        driver.box(files=files)
    log = Path(first.value.message.rpartition("its whole output: ")[2].partition(";")[0].rstrip(")"))
    assert log.read_text().splitlines()[1:4] == ["1", "2", "3"]
    with pytest.raises(Raised, match="exit code 7") as same:
        driver.box(files=files, kwargs={"prepared_at": 1.0})
    assert same.value.message == first.value.message
    with pytest.raises(Raised, match="exit code 7") as again:
        driver.box(files=files)
    assert again.value.message != first.value.message
