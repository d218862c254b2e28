"""Make the lab MCP server an installable package that needs no index: its build backend is in its own tree."""

import shutil
from pathlib import Path

from servers.git_http import git, publish

LAB = Path(__file__).with_name("mcp_lab")
PYPROJECT = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "tbench-lab"
version = "1.2.3"

[project.optional-dependencies]
fancy = []
"""
BACKEND = '''"""A PEP 517 backend in the standard library: one package, one extra."""

import zipfile
from pathlib import Path

NAME = "tbench_lab-1.2.3"
METADATA = "Metadata-Version: 2.1\\nName: tbench-lab\\nVersion: 1.2.3\\nProvides-Extra: fancy\\n"
WHEEL = "Wheel-Version: 1.0\\nGenerator: backend\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    wheel = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w") as archive:
        archive.write("tbench_lab/__init__.py")
        archive.write("tbench_lab/server.py")
        archive.writestr(f"{NAME}.dist-info/METADATA", METADATA)
        archive.writestr(f"{NAME}.dist-info/WHEEL", WHEEL)
        archive.writestr(f"{NAME}.dist-info/RECORD", "")
    return wheel
'''


def write_package(folder: Path) -> Path:
    """Write the package's source tree to `folder`."""
    package = folder / "tbench_lab"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    shutil.copy(LAB / "server.py", package / "server.py")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    return folder


def write_repository(folder: Path) -> tuple[Path, str]:
    """A bare repository whose first commit is the working package, tagged v1, and whose tip is broken.

    Returns the repository and the first commit: who installs anything else cannot get a working server.
    """
    work = write_package(folder / "work")
    git(work, "init", "-q")
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", "works")
    git(work, "tag", "v1")
    commit = git(work, "rev-parse", "HEAD")
    (work / "tbench_lab" / "server.py").write_text("raise SystemExit('the tip is broken')\n")
    git(work, "commit", "-q", "-a", "-m", "breaks")
    bare = folder / "repo.git"
    publish(work, bare)
    return bare, commit
