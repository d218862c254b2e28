"""Which base stands for which image."""

import pytest

from terminalbench.sandbox.errors import Refused
from terminalbench.sandbox.image.builder import ImageTable, normalized


@pytest.mark.parametrize(
    "image",
    [
        *(
            "debian:bookworm-slim",
            "debian",
            "debian:12",
            "docker.io/library/debian:12",
            "ubuntu:24.04",
            "library/ubuntu",
        ),
        *("python:3.13-slim", "python:3", "index.docker.io/library/python:3.12@sha256:" + "0" * 64),
    ],
)
def test_the_starters_bases_are_the_host(image: str) -> None:
    assert ImageTable({}).base_for(image) == "host"
    assert ImageTable({}, "/my/rootfs").base_for(image) == "/my/rootfs"


@pytest.mark.parametrize(
    "image", ["node:22", "python:2.7", "python", "ghcr.io/x/debian:12", "alpine", "me/ubuntu:1", "scratch"]
)
def test_an_image_nobody_mapped_is_refused(image: str) -> None:
    with pytest.raises(Refused, match='container_env = "docker"'):
        ImageTable({}).base_for(image)


def test_the_users_entries_come_first() -> None:
    table = ImageTable({"node:*": "/node", "debian:11": "/old", "*": "host"}, "/root1")
    assert table.base_for("node:22-slim") == "/node"
    assert table.base_for("debian:11") == "/old"
    assert table.base_for("debian:12") == "/root1"
    assert table.base_for("registry:5000/some/thing") == "/root1"


def test_normal_names() -> None:
    assert normalized("registry:5000/a/b") == "registry:5000/a/b:latest"
    assert normalized("docker.io/library/debian") == "debian:latest"
    assert normalized("a/b:c@sha256:x") == "a/b:c"
