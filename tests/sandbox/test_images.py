"""Images of a registry of the tests' own and of archives: fetched once, checked, unpacked, found again, removed."""

import base64
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.pace import seconds
from support.registry import ARCHITECTURE, Images, RegistryServer, digest_of, layer_of, squeezed
from terminalbench.sandbox import cache
from terminalbench.sandbox.errors import ImageError, ImageFault, Refused
from terminalbench.sandbox.images import registry, store
from terminalbench.sandbox.images.reference import parse_reference
from terminalbench.sandbox.images.registry import endpoints_of
from terminalbench.sandbox.images.store import ImageStore

LOWER, UPPER = layer_of({"etc/a": "1", "etc/b": "1"}), layer_of({"etc/b": "2", "etc/.wh.a": ""})


@pytest.fixture(autouse=True)
def _own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store, a home and a configuration of this test alone; no pause between tries."""
    for name, place in {
        "XDG_CACHE_HOME": "cache",
        "HOME": "home",
        "XDG_CONFIG_HOME": "config",
        "DOCKER_CONFIG": "docker",
    }.items():
        (tmp_path / place).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / place))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(registry, "_FIRST_PAUSE_SEC", 0.0)


@pytest.fixture
def images() -> ImageStore:
    return ImageStore()


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as found:
        found.images.image(
            "box:1",
            [LOWER, UPPER],
            Env=["A=1", "PATH=/bin"],
            WorkingDir="/work",
            User="7",
            Entrypoint=["/e"],
            Shell=["/bin/bash", "-c"],
        )
        yield found


def fault(call: Callable[[], object]) -> ImageError:
    with pytest.raises(ImageError) as caught:
        call()
    return caught.value


def left(images: ImageStore) -> list[str]:
    """What is there that no image needs: blobs, unfinished layers."""
    building = images.root.parent / "building"
    return [
        path.name
        for path in [*(images.root / "blobs").iterdir(), *(building.iterdir() if building.exists() else ())]
        if path.suffix != ".lock"
    ]


def test_an_image_is_pulled_once_and_found_again(images: ImageStore, server: RegistryServer) -> None:
    name, told = f"{server.host}/box:1", []
    assert images.find(name) is None
    found = images.pull(name, lambda progress: told.append((progress.ready, progress.done, progress.bytes)))
    assert found.digest == server.images.tags["box:1"]
    config = found.settings
    assert (config.env, config.workdir, config.user, config.entrypoint, config.shell) == (
        {"A": "1", "PATH": "/bin"},
        "/work",
        "7",
        ["/e"],
        ["/bin/bash", "-c"],
    )
    top, bottom = images.folders(found)
    assert (top / "etc/b").read_text() == "2"
    assert (bottom / "etc/b").read_text() == "1"
    assert told[-1] == (2, found.size, found.size)
    assert left(images) == []
    asked = dict(server.asked)
    assert images.find(name) == images.image(found.digest) == found
    assert dict(server.asked) == asked, "what is here is not asked for"
    images.pull(name)
    assert server.asked["blobs"] == asked["blobs"] + 1, "the configuration alone: its layers are here"
    assert [image.digest for image, _ in images.images()] == [found.digest]


def test_layers_are_shared_and_a_tag_that_moves_is_another_image(images: ImageStore, server: RegistryServer) -> None:
    first = images.pull(f"{server.host}/box:1")
    server.images.image("box:1", [LOWER, layer_of({"new": "3"})])
    asked = server.asked["blobs"]
    second = images.pull(f"{server.host}/box:1")
    assert server.asked["blobs"] == asked + 2, "one layer, one configuration"
    assert second.digest != first.digest
    assert images.find(f"{server.host}/box:1") == second
    assert images.find(f"{server.host}/box@{first.digest}") == first, "what was pinned is what it was"
    assert images.folders(first)[1] == images.folders(second)[1]


@pytest.mark.parametrize("how", ["token", "basic", "anonymous", "helper"])
def test_registries_that_want_a_login_get_it(
    images: ImageStore, server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    server.login = None if how == "anonymous" else ("me", "s3cret:with:colons")
    server.basic, server.anonymous_token = how == "basic", how == "anonymous"
    name = f"{server.host}/box:1"
    if server.login is not None:
        error = fault(lambda: images.pull(name))
        assert error.fault is ImageFault.DENIED
        assert "docker login" in (error.hint or "")
        table = {"auths": {server.host: {"auth": base64.b64encode(b"me:s3cret:with:colons").decode()}}}
        if how == "helper":
            table = {"credHelpers": {server.host: "tests"}}
            program = tmp_path / "bin" / "docker-credential-tests"
            program.parent.mkdir()
            program.write_text('#!/bin/sh\nread host\necho \'{"Username": "me", "Secret": "s3cret:with:colons"}\'\n')
            program.chmod(0o755)
            monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        (tmp_path / "docker" / "config.json").write_text(json.dumps(table))
    assert images.pull(name).layers
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not any(b"s3cret" in path.read_bytes() for path in kept)


def test_podmans_file_of_logins_is_read_too(images: ImageStore, server: RegistryServer, tmp_path: Path) -> None:
    server.login = ("me", "pw")
    (tmp_path / "config/containers").mkdir()
    entry = {"auths": {f"{server.host}/box": {"auth": base64.b64encode(b"me:pw").decode()}}}
    (tmp_path / "config/containers/auth.json").write_text(json.dumps(entry))
    assert images.pull(f"{server.host}/box:1").layers


def test_a_blob_that_is_cut_goes_on_where_it_ended(images: ImageStore) -> None:
    with RegistryServer(cut=[0, 3000, 2000]) as server:
        server.images.image("big:1", [layer_of({"f": os.urandom(20_000)})])
        server.cut[:0] = [10_000]  # the configuration comes first, whole
        found = images.pull(f"{server.host}/big:1")
        assert server.asked["blob from the middle"] >= 2
    assert (images.folders(found)[0] / "f").stat().st_size == 20_000


def test_a_layer_that_a_killed_pull_had_half_unpacked_goes_with_the_next_pull(
    images: ImageStore, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_collected", False)
    half = cache.claim("building")
    (half.folder / "root").mkdir()
    os.close(half.lock)  # as the kernel does at its end
    assert images.pull(f"{server.host}/box:1").layers
    assert left(images) == []


def test_a_registry_that_cannot_go_on_begins_anew(images: ImageStore) -> None:
    with RegistryServer(cut=[10_000, 3000], ranges=False) as server:
        server.images.image("big:1", [layer_of({"f": os.urandom(20_000)})])
        assert images.pull(f"{server.host}/big:1").layers


def test_what_is_damaged_counts_for_nothing(images: ImageStore, server: RegistryServer) -> None:
    name = f"{server.host}/box:1"
    layers = {digest_of(squeezed(LOWER)), digest_of(squeezed(UPPER))}
    server.damage = lambda digest, data: data[:-1] + b"x" if digest in layers else data
    assert fault(lambda: images.pull(name)).fault is ImageFault.DAMAGED
    assert images.find(name) is None
    assert left(images) == []
    server.damage = lambda digest, data: data if digest in layers else data.replace(b"linux", b"linuX")
    assert "does not match its digest sha256:" in str(fault(lambda: images.pull(name)))
    server.damage = lambda _digest, data: data
    assert images.pull(name).layers, "it heals"


def test_a_configuration_that_lies_about_a_layer_is_found(images: ImageStore, server: RegistryServer) -> None:
    server.images.image("lie:1", [LOWER], squeeze=lambda layer: gzip.compress(layer + bytes(512)))
    error = fault(lambda: images.pull(f"{server.host}/lie:1"))
    assert "unpacks to sha256:" in str(error)
    assert images.find(f"{server.host}/lie:1") is None
    assert not list(images._chains.glob("[0-9a-f]*/root"))


@pytest.mark.parametrize("kind", ["gzip", "zstd", "tar", "several"])
def test_layers_are_read_however_they_are_compressed(images: ImageStore, server: RegistryServer, kind: str) -> None:
    def squeeze(layer: bytes) -> bytes:
        if kind == "zstd":
            from backports.zstd import compress

            return compress(layer)
        if kind == "several":
            return gzip.compress(layer[:700]) + gzip.compress(layer[700:])
        return gzip.compress(layer) if kind == "gzip" else layer

    server.images.image("kind:1", [LOWER], squeeze=squeeze, kind=kind)
    found = images.pull(f"{server.host}/kind:1")
    assert (images.folders(found)[0] / "etc/a").read_text() == "1"


def test_the_image_of_this_machine_is_chosen(images: ImageStore, server: RegistryServer) -> None:
    ours = server.images.image("a:1", [LOWER])
    other = server.images.image("b:1", [UPPER], architecture="s390x")
    server.images.index("many:1", {"linux/s390x": other, f"linux/{ARCHITECTURE}": ours, "unknown/unknown": other})
    assert images.pull(f"{server.host}/many:1").digest == ours
    server.images.index("none:1", {"linux/s390x": other, "windows/amd64": other, "unknown/unknown": other})
    for name in ("none:1", "b:1"):
        error = fault(lambda name=name: images.pull(f"{server.host}/{name}"))
        assert error.fault is ImageFault.PLATFORM
        assert f"this machine is linux/{ARCHITECTURE}" in str(error)
    assert "linux/s390x, windows/amd64" in str(fault(lambda: images.pull(f"{server.host}/none:1")))


def test_what_goes_wrong_is_said_by_its_name(images: ImageStore, server: RegistryServer) -> None:
    assert fault(lambda: images.pull(f"{server.host}/box:none")).fault is ImageFault.NOT_FOUND
    server.broken = [(503, {})] * 3
    assert images.pull(f"{server.host}/box:1").layers, "for a while"
    server.broken = [(500, {})] * 9
    error = fault(lambda: images.pull(f"{server.host}/box:1"))
    assert (error.fault, "answers 500" in str(error)) == (ImageFault.REFUSED, True)
    server.broken = [(429, {"Retry-After": "3600"})]
    error = fault(lambda: images.pull(f"{server.host}/box:1"))
    assert (error.fault, "rate limit" in str(error)) == (ImageFault.RATE_LIMITED, True)
    server.broken = []
    error = fault(lambda: images.pull("127.0.0.1:1/box:1"))
    assert error.fault is ImageFault.UNREACHABLE
    assert "127.0.0.1:1 cannot be reached" in str(error)


def test_mirrors_are_asked_first_and_the_registry_itself_where_they_fail(
    images: ImageStore, server: RegistryServer, tmp_path: Path
) -> None:
    (tmp_path / "config/containers").mkdir()
    file = tmp_path / "config/containers/registries.conf"
    with RegistryServer() as mirror:
        mirror.images.image("hub/library/box:1", [LOWER])
        text = f'[[registry]]\nprefix = "docker.io"\nlocation = "{server.host}"\n[[registry.mirror]]\nlocation = "{mirror.host}/hub"\n'
        file.write_text(text)
        server.images.image("library/box:1", [LOWER, UPPER])
        server.images.image("library/own:1", [UPPER])
        assert len(images.pull("box:1").layers) == 1
        assert len(images.pull("docker.io/library/own:1").layers) == 1
    assert len(images.pull("box:1").layers) == 2, "the mirror is gone"
    file.write_text(f'{text}\n[[registry]]\nprefix = "docker.io/library/own"\nblocked = true\n')
    with pytest.raises(Refused, match="blocked"):
        images.pull("own:1")
    file.write_text("[[registry]\n")
    with pytest.raises(Refused, match="cannot be read"):
        images.pull("box:1")


def test_addresses_of_registries() -> None:
    assert [(one.host, one.repository, one.schemes) for one in endpoints_of(parse_reference("ubuntu:24.04"))] == [
        ("registry-1.docker.io", "library/ubuntu", ("https",))
    ]
    assert endpoints_of(parse_reference("localhost:5000/x"))[0].schemes == ("http",)


@pytest.mark.parametrize(
    ("text", "registry", "repository", "wanted"),
    [
        ("ubuntu", "docker.io", "library/ubuntu", "latest"),
        ("docker.io/python:3.12-slim", "docker.io", "library/python", "3.12-slim"),
        ("ghcr.io/owner/name:v1", "ghcr.io", "owner/name", "v1"),
        ("localhost/x", "localhost", "x", "latest"),
        ("host:5000/a/b:c", "host:5000", "a/b", "c"),
        (f"a/b:t@sha256:{'0' * 64}", "docker.io", "a/b", f"sha256:{'0' * 64}"),
    ],
)  # fmt: skip
def test_names_of_images(text: str, registry: str, repository: str, wanted: str) -> None:
    found = parse_reference(text)
    assert (found.registry, found.repository, found.wanted) == (registry, repository, wanted)
    assert parse_reference(str(found)) == found


@pytest.mark.parametrize(
    "text", ["", "UPPER", "a b", "a:", "a@", "a@sha256:12", "../x", "a//b", "a:b:c", "-x", "a:ta/g"]
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is not the name of an image"):
        parse_reference(text)


def test_two_that_want_one_image_fetch_it_once(images: ImageStore, server: RegistryServer) -> None:
    server.wait = threading.Event()
    found: list[str] = []
    asking = [
        threading.Thread(target=lambda: found.append(ImageStore().pull(f"{server.host}/box:1").digest))
        for _ in range(3)
    ]
    for thread in asking:
        thread.start()
    time.sleep(0.2)
    server.wait.set()
    for thread in asking:
        thread.join(seconds(60))
    assert len(set(found)) == 1
    assert len(found) == 3
    assert server.asked["blobs"] == 2 + 3, "two layers once, and the configuration for each"


def test_a_pull_that_is_killed_leaves_nothing_that_counts(images: ImageStore) -> None:
    with RegistryServer() as server:
        server.images.image("big:1", [LOWER, layer_of({f"d/{n}": os.urandom(20_000) for n in range(400)})])
        name = f"{server.host}/big:1"
        code = f"from terminalbench.sandbox.images.store import ImageStore\nImageStore().pull({name!r}, lambda p: print(p.ready, flush=True))"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        for steps in (1, 2, 5, 20, 60):
            process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
            assert process.stdout is not None
            told = [line for _, line in zip(range(steps), process.stdout, strict=False)]
            process.kill()
            process.communicate()
            found = images.find(name)
            assert found is None or told[-1] == b"2\n"
        found = images.pull(name)
        assert len(list((images.folders(found)[0] / "d").iterdir())) == 400


def test_a_full_disk_is_one_error_and_nothing_of_the_image_counts(
    images: ImageStore, server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.cache, "KEEP_FREE_BYTES", 1 << 60)
    with pytest.raises(Exception, match="no space in .* for an image"):
        images.pull(f"{server.host}/box:1")
    assert images.find(f"{server.host}/box:1") is None


def saved(path: Path, images: Images, name: str) -> Path:
    """What `docker save` writes of an image."""
    manifest = json.loads(images.blobs[images.tags[name]])
    config = manifest["config"]["digest"].removeprefix("sha256:")
    layers = [gzip.decompress(images.blobs[layer["digest"]]) for layer in manifest["layers"]]
    about = [{"Config": f"{config}.json", "RepoTags": [name], "Layers": [f"{n}/layer.tar" for n in range(len(layers))]}]
    files = {"manifest.json": json.dumps(about).encode(), f"{config}.json": images.blobs[manifest["config"]["digest"]]}
    files |= {f"{n}/layer.tar": layer for n, layer in enumerate(layers)}
    with tarfile.open(path, "w") as archive:
        for file, data in files.items():
            info = tarfile.TarInfo(file)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("kind", ["layout", "layout.tar", "saved.tar", "folder"])
def test_images_come_from_archives_and_folders_too(
    images: ImageStore, server: RegistryServer, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / kind
    if kind == "saved.tar":
        saved(place, server.images, "box:1")
    elif kind == "folder":
        for name, text in {"bin/sh": "#!", "etc/b": "2"}.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
    else:
        layout = server.images.write_layout(tmp_path / "layout", "box:1")
        if kind == "layout.tar":
            with tarfile.open(place, "w") as archive:
                archive.add(layout, arcname=".")
    found = images.load(place, "mine:1")
    monkeypatch.setattr(store, "_now", lambda: "2031-01-01T00:00:00+00:00")
    assert images.find("mine:1") == images.load(place, "mine:1"), "later it is the same"
    assert (images.folders(found)[0] / "etc/b").read_text() == "2"
    if kind != "folder":
        assert found.settings.env == {"A": "1", "PATH": "/bin"}
    assert server.asked["blobs"] == 0


def test_what_is_no_image_is_refused(images: ImageStore, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").mkdir()
    with tarfile.open(tmp_path / "other.tar", "w"):
        pass
    for name in ("text", "empty", "nothing"):
        with pytest.raises(Refused):
            images.load(tmp_path / name, "mine:1")
    assert fault(lambda: images.load(tmp_path / "other.tar", "mine:1")).fault is ImageFault.UNSUPPORTED


def test_what_is_not_used_is_pruned_with_the_layers_that_nothing_else_has(
    images: ImageStore, server: RegistryServer
) -> None:
    one = images.pull(f"{server.host}/box:1")
    server.images.image("other:1", [LOWER])
    other = images.pull(f"{server.host}/other:1")
    held = images.hold(one.digest)
    assert images.prune([f"{server.host}/box:1"]).images == (), "a process uses it"
    os.close(held)
    assert images.prune(unused_days=1).images == ()
    assert images.prune([f"{server.host}/box:1"], dry=True).layers == 1
    assert images.find(f"{server.host}/box:1") == one
    gone = images.prune([f"{server.host}/box:1"])
    assert (gone.layers, gone.images) == (1, (f"{server.host}/box:1",))
    assert images.find(f"{server.host}/box:1") is None
    assert images.find(f"{server.host}/other:1") == other
    server.images.tags["again:1"] = server.images.tags["other:1"]
    assert images.pull(f"{server.host}/again:1").digest == other.digest
    gone = images.prune([f"{server.host}/again:1"])
    assert (gone.images, gone.digests) == ((f"{server.host}/again:1",), ()), "the image has another name"
    kept = images.find(f"{server.host}/other:1")
    assert kept is not None
    assert kept.digest == other.digest
    assert (images.folders(other)[0] / "etc/a").exists()
    assert images.prune([other.digest]).digests == (other.digest,)
