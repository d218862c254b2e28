"""The folder of a project: where relative paths start from."""

from pathlib import Path

from terminalbench.errors import UserError

ROOT_MARKS = (".git", "pyproject.toml", ".tbench")


def project_root(file: Path, root: Path | None) -> Path:
    """The folder relative paths start from: `root`, else the nearest with a mark of a project, else the file's own.

    Without a mark, a file in `experiments/` belongs to the folder above it.
    """
    if root is not None:
        if not root.is_dir():
            raise UserError("--root is not a folder", where=str(root))
        return root.resolve()
    folder = file.resolve().parent
    return marked_root(folder) or (folder.parent if folder.name == "experiments" else folder)


def current_project(root: Path | None = None) -> Path:
    """Return the folder of the project that the current folder belongs to, or `root`."""
    return project_root(Path.cwd() / "any.toml", root)


def marked_root(folder: Path) -> Path | None:
    """The nearest folder from `folder` upwards with `.git`, `pyproject.toml`, or the `.tbench` of `tbench init`."""
    for candidate in (folder, *folder.parents):
        if any((candidate / mark).exists() for mark in ROOT_MARKS):
            return candidate
    return None


def from_root(path: Path, root: Path) -> str:
    """A path as the files of a project name it: from its root, where it lies inside."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
