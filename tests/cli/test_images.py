"""`tbench images` against a registry of the tests' own."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.registry import RegistryServer, layer_of

LAYER = layer_of({"etc/a": "1"})


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    for name in ("XDG_CACHE_HOME", "HOME", "DOCKER_CONFIG", "XDG_CONFIG_HOME"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with RegistryServer() as found:
        found.images.image("box:1", [LAYER], Env=["A=1"], WorkingDir="/w")
        yield found


def test_images_are_pulled_listed_shown_and_removed(server: RegistryServer, tbench: Callable[..., Any]) -> None:
    name, digest = f"{server.host}/box:1", server.images.tags["box:1"]
    assert "no images on this machine; tbench images pull NAME" in tbench("images", "list").out
    missing = tbench("images", "show", name)
    assert (missing.code, missing.err) == (1, f"error: {name} is not on this machine (tbench images pull {name})\n")
    pulled = tbench("images", "pull", name, f"{server.host}/none:1")
    assert pulled.code == 1, "one of them is not there"
    assert f"{name}: {digest}, 1 layer, " in pulled.out
    assert f"{server.host} has no {server.host}/none:1" in pulled.err
    (listed,) = json.loads(tbench("images", "list", "--json").out)
    assert (listed["digest"], [one["name"] for one in listed["names"]]) == (digest, [name])
    assert name in tbench("images", "list").out
    shown = tbench("images", "show", name).out
    assert digest in shown
    assert "working folder  /w" in shown
    assert json.loads(tbench("images", "show", name, "--json").out)["settings"]["env"] == {"A": "1"}
    assert "would remove: 0 images" in tbench("images", "prune").out
    assert "would remove: 1 image and 1 layer" in tbench("images", "prune", name).out
    assert tbench("images", "prune", name, "--yes").out.startswith(name)
    assert json.loads(tbench("images", "list", "--json").out) == []


def test_an_archive_is_taken_in_and_a_wrong_name_is_one_error(
    server: RegistryServer, tbench: Callable[..., Any], tmp_path: Path
) -> None:
    layout = server.images.write_layout(tmp_path / "layout", "box:1")
    assert tbench("images", "import", layout, "mine:1", "--tag", "1").code == 0
    assert "mine:1" in tbench("images", "list").out
    for arguments, message in (
        (("import", layout, "Mine"), "is not the name of an image"),
        (("import", layout, "mine:2", "--tag", "7"), "has no image called 7"),
        (("import", tmp_path / "nothing", "mine:2"), "does not exist"),
        (("pull", "a b"), "is not the name of an image"),
    ):
        ran = tbench("images", *arguments)
        assert ran.code in (1, 2)
        assert message in ran.err
        assert len(ran.err.strip().splitlines()) == 1


def test_a_login_is_asked_for_by_name_and_never_shown(
    server: RegistryServer, tbench: Callable[..., Any], tmp_path: Path
) -> None:
    server.login = ("me", "hidden-word")
    ran = tbench("images", "pull", f"{server.host}/box:1")
    assert ran.code == 1
    assert f"docker login {server.host}" in ran.err
    Path(os.environ["DOCKER_CONFIG"], "config.json").write_text(
        json.dumps({"auths": {server.host: {"username": "me", "password": "wrong-word"}}})
    )
    ran = tbench("images", "pull", f"{server.host}/box:1")
    assert ran.code == 1
    assert "wrong-word" not in ran.out + ran.err
