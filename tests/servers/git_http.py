"""A git repository over plain HTTP (the "dumb" protocol) that asks for a name and password."""

import base64
import subprocess
from pathlib import Path
from typing import override

from servers.base import Handler, Request, ScriptedServer


class GitServer(ScriptedServer):
    """Serves the bare repository `folder`; with `password` only to who sends `x-access-token:password`."""

    def __init__(self, folder: Path, password: str | None = None) -> None:
        super().__init__()
        self.folder = folder
        self.password = password

    @property
    def sent_credentials(self) -> set[str]:
        """Every `name:password` that was sent."""
        sent = [request.headers.get("authorization", "") for request in self.requests]
        return {base64.b64decode(text.removeprefix("Basic ")).decode() for text in sent if text}

    @override
    def reply(self, to: Handler, request: Request) -> None:
        wanted = base64.b64encode(f"x-access-token:{self.password}".encode()).decode()
        if self.password is not None and request.headers.get("authorization") != f"Basic {wanted}":
            return to.send_bytes(b"who are you?", status=401, headers={"www-authenticate": 'Basic realm="git"'})
        path = (self.folder / request.path.split("?")[0].removeprefix("/repo.git/")).resolve()
        if not path.is_relative_to(self.folder.resolve()) or not path.is_file():
            return to.send_bytes(b"not found", status=404)
        return to.send_bytes(path.read_bytes(), "application/octet-stream")


def git(folder: Path, *args: str) -> str:
    """Run git in `folder` with an identity of its own and none of the user's settings."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder)}
    done = subprocess.run(["git", *identity, *args], cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def publish(work: Path, bare: Path) -> None:
    """Make `bare` a clone of `work` that can be served by `GitServer`."""
    git(work, "clone", "-q", "--bare", ".", str(bare))
    git(bare, "update-server-info")
