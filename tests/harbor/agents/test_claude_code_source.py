"""Fetching a server's source: the real checkout script, real git, a real HTTP server that wants a token."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest
from pydantic import ValidationError

from servers.git_http import GitServer, git, publish
from terminalbench.harbor.agents.claude_source import McpSource, checkout_script, folder_digest

TOKEN = "ghp_do_not_show_this"


@dataclass(frozen=True)
class Repository:
    """A bare repository with two commits; the first one is tagged v1."""

    bare: Path
    first: str
    second: str


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "-q")
    (work / "server.py").write_text("one")
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", "one")
    git(work, "tag", "-a", "v1", "-m", "version 1")
    first = git(work, "rev-parse", "HEAD")
    (work / "server.py").write_text("two")
    git(work, "commit", "-q", "-a", "-m", "two")
    second = git(work, "rev-parse", "HEAD")
    bare = tmp_path / "repo.git"
    publish(work, bare)
    return Repository(bare, first, second)


@dataclass(frozen=True)
class Checkout:
    """What a run of the checkout script left."""

    code: int
    commit: str
    log: str
    folder: Path


def check_out(tmp_path: Path, url: str, ref: str, env: Mapping[str, str] | None = None) -> Checkout:
    root = tmp_path / "opt"
    root.mkdir()
    script = checkout_script(PurePosixPath(root), url, ref)
    done = subprocess.run(
        ["bash", "-c", f"set -e; exec 3>'{tmp_path}/commit'; {script}"],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1", **(env or {})},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return Checkout(done.returncode, (tmp_path / "commit").read_text().strip(), done.stdout + done.stderr, root / "src")


def test_a_tag_is_checked_out(tmp_path: Path, repository: Repository) -> None:
    done = check_out(tmp_path, f"file://{repository.bare}", "v1")
    assert (done.code, done.commit) == (0, repository.first), done.log
    assert (done.folder / "server.py").read_text() == "one"


@pytest.mark.parametrize("length", [40, 10])
def test_a_commit_that_is_no_tip_is_checked_out(tmp_path: Path, repository: Repository, length: int) -> None:
    done = check_out(tmp_path, f"file://{repository.bare}", repository.first[:length])
    assert (done.code, done.commit) == (0, repository.first), done.log
    assert (done.folder / "server.py").read_text() == "one"


@pytest.mark.parametrize("ref", ["main", "v2", "0" * 40])
def test_what_is_neither_commit_nor_tag_fails(tmp_path: Path, repository: Repository, ref: str) -> None:
    done = check_out(tmp_path, f"file://{repository.bare}", ref)
    assert done.code != 0
    assert done.commit == ""
    assert ref in done.log


def test_an_address_that_does_not_answer_fails(tmp_path: Path) -> None:
    done = check_out(tmp_path, f"file://{tmp_path}/nothing", "v1")
    assert done.code != 0
    assert "nothing" in done.log


def test_the_token_is_sent_to_the_named_host_and_left_nowhere(tmp_path: Path, repository: Repository) -> None:
    with GitServer(repository.bare, TOKEN) as server:
        host = server.url.removeprefix("http://")
        done = check_out(
            tmp_path, f"{server.url}/repo.git", repository.second, {"GITHUB_TOKEN": TOKEN, "GH_HOST": host}
        )
    assert (done.code, done.commit) == (0, repository.second), done.log
    assert server.sent_credentials == {f"x-access-token:{TOKEN}"}
    assert TOKEN not in done.log
    left = [path for path in (tmp_path / "opt").rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert left == []
    assert not (tmp_path / "opt" / "askpass").exists()


@pytest.mark.parametrize("gh_host", [{}, {"GH_HOST": "ghe.example.org"}])
def test_the_token_is_not_sent_to_another_host(
    tmp_path: Path, repository: Repository, gh_host: Mapping[str, str]
) -> None:
    with GitServer(repository.bare, TOKEN) as server:
        done = check_out(tmp_path, f"{server.url}/repo.git", "v1", {"GITHUB_TOKEN": TOKEN, **gh_host})
    assert done.code != 0
    assert not any(TOKEN in sent for sent in server.sent_credentials)
    assert TOKEN not in done.log


def test_without_a_token_a_private_repository_fails_at_once(tmp_path: Path, repository: Repository) -> None:
    with GitServer(repository.bare, TOKEN) as server:
        done = check_out(tmp_path, f"{server.url}/repo.git", "v1")
    assert done.code != 0
    assert "terminal prompts disabled" in done.log


def test_submodules_come_along(tmp_path: Path, repository: Repository) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repository.bare), "inner")
    git(outer, "commit", "-q", "-m", "with a submodule")
    git(outer, "tag", "v3")
    allow = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
    done = check_out(tmp_path, f"file://{outer}", "v3", allow)
    assert done.code == 0, done.log
    assert (done.folder / "inner" / "server.py").read_text() == "two"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, "give one of"),
        ({"git": "https://github.com/a/b", "ref": "v1", "path": "x"}, "give one of"),
        ({"git": "https://github.com/a/b"}, "needs ref"),
        ({"path": "x", "ref": "v1"}, "ref can be set only with git"),
        ({"paths": {"a": "x"}, "path": "x"}, "give one of"),
        ({"paths": {}}, "give one of"),
        ({"git": "https://github.com/a/b", "ref": "-x"}, "neither a commit nor a tag"),
        ({"git": "https://github.com/a/b", "ref": "v1; rm -rf /"}, "neither a commit nor a tag"),
        ({"git": "--upload-pack=evil", "ref": "v1"}, "not the address"),
        ({"git": f"https://{TOKEN}@github.com/a/b", "ref": "v1"}, "GITHUB_TOKEN"),
        ({"git": f"https://me:{TOKEN}@github.com/a/b", "ref": "v1"}, "GITHUB_TOKEN"),
        ({"git": "https://github.com/a/b", "ref": "v1", "branch": "main"}, "branch"),
    ],
)
def test_a_wrong_source_is_refused(source: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        McpSource.model_validate(source)


def test_ssh_addresses_keep_their_user() -> None:
    assert McpSource.model_validate({"git": "ssh://git@github.com/a/b", "ref": "v1"}).git == "ssh://git@github.com/a/b"
    assert McpSource.model_validate({"git": "git@github.com:a/b.git", "ref": "v1"}).git == "git@github.com:a/b.git"


def test_a_folder_digest_sees_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    before = folder_digest(tmp_path)
    assert before == folder_digest(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    renamed = folder_digest(tmp_path)
    (tmp_path / "b.py").write_text("2")
    assert len({before, renamed, folder_digest(tmp_path)}) == 3
