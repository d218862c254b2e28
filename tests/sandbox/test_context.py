"""The build context: what is copied, what is left out, when it counts as changed."""

import os
from pathlib import Path

import pytest

from terminalbench.sandbox.builds.context import BuildContext
from terminalbench.sandbox.errors import Refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.txt", "b.log", "src/x.py", "src/deep/y.log", "src/deep/keep.log", "docs/read.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def names(folder: Path) -> list[str]:
    return [name for name, path in BuildContext(folder).below(folder) if path.is_file()]


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ("", ["a.txt", "b.log", "docs/read.md", "src/deep/keep.log", "src/deep/y.log", "src/x.py"]),
        ("*.log", ["a.txt", "docs/read.md", "src/deep/keep.log", "src/deep/y.log", "src/x.py"]),
        ("**/*.log\n!src/deep/keep.log\n# no\n", ["a.txt", "docs/read.md", "src/deep/keep.log", "src/x.py"]),
        ("src\n/docs/\n", ["a.txt", "b.log"]),
        ("*\n!a.*\n", ["a.txt"]),
        ("?.txt\n[b].log\nsrc/**\n", ["docs/read.md"]),
    ],
)
def test_ignore_rules(folder: Path, rules: str, left: list[str]) -> None:
    (folder / ".dockerignore").write_text(f"{rules}\n.dockerignore\n")
    assert names(folder) == left


def test_the_digest_follows_what_matters(folder: Path) -> None:
    digests = [BuildContext(folder).digest(".", "here")]
    (folder / "a.txt").write_text("A.txt")
    digests.append(BuildContext(folder).digest(".", "here"))
    (folder / "a.txt").chmod(0o755)
    digests.append(BuildContext(folder).digest(".", "here"))
    (folder / "link").symlink_to("a.txt")
    digests.append(BuildContext(folder).digest(".", "here"))
    (folder / "link").unlink()
    (folder / "link").symlink_to("b.log")
    digests.append(BuildContext(folder).digest(".", "here"))
    (folder / "empty").mkdir()
    digests.append(BuildContext(folder).digest(".", "here"))
    (folder / ".dockerignore").write_text("docs\n")
    digests.append(BuildContext(folder).digest(".", "here"))
    assert len(set(digests)) == len(digests)
    (folder / "docs/read.md").write_text("ignored, so no change")
    os.utime(folder / "a.txt", (1, 1))
    assert BuildContext(folder).digest(".", "here") == digests[-1]


def test_nothing_outside_the_folder_can_be_named(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("secret")
    (folder / "way").symlink_to(outside)
    context = BuildContext(folder)
    for source in ("way", "way/secret", "wa*"):
        with pytest.raises(Refused, match="leads out of"):
            context.find(source, "here")
    with pytest.raises(Refused, match="no such file"):
        context.find("../outside/secret", "here")
    assert context.find("../../a.txt", "here") == [folder / "a.txt"]  # as Docker: the context is the root
    assert [path.name for path in context.find("*.*", "here")] == ["a.txt", "b.log"]
