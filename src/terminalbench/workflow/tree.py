"""The work tree of a workspace: the shell scripts to run beside it, what they are given and what they leave.

Everything is a pure function; who runs a script, in a trial's environment or in a folder of a test, is another matter.
A tree has a git folder of our own outside of it, whose base commit is the tree as it was found: a repository's own git
folder is neither needed nor changed, and ignored files (dependencies, build output) are never touched by a reset.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

REGULAR = frozenset({"100644", "100755"})
"""The modes of plain files in git; the others are links and submodules."""
_BASE, _ATTEMPT = "refs/base", "refs/attempt"
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "base",
    "GIT_AUTHOR_EMAIL": "base@localhost",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "base",
    "GIT_COMMITTER_EMAIL": "base@localhost",
    "GIT_COMMITTER_DATE": "2000-01-01T00:00:00Z",
    "LC_ALL": "C",
}
_CONFIG = """[core]
	bare = false
	autocrlf = false
	safecrlf = false
	excludesFile = /dev/null
	attributesFile = /dev/null
	hooksPath = /dev/null
	fsmonitor = false
[gc]
	auto = 0
"""
_PLAIN = "* -text -eol -filter -ident -working-tree-encoding -export-ignore -export-subst !diff !merge"
"""Bytes are bytes, whatever the attributes in the tree say."""
_FOREIGN = ("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_EXTERNAL_DIFF")
_CLEAN = (
    "git ls-files --others --exclude-standard -z > {untracked}\n"
    'xargs -0 sh -c \'for f do rm -rf -- "$f"; d=${{f%/*}}; [ "$d" = "$f" ] || rmdir -p -- "$d" 2>/dev/null || :;'
    " done' sh < {untracked}\n"
)


class BadPath(ValueError):
    """A path that leads out of the repository, or into git's own folder."""


@dataclass(frozen=True)
class Tree:
    """Absolute paths inside the environment: the work tree, and a folder of ours outside of it.

    The folder of ours holds `git/`, and the files that scripts read (`given`) and write (`made`).
    """

    root: str
    keep: str

    @property
    def git_dir(self) -> str:
        """The git folder of ours."""
        return f"{self.keep}/git"

    @property
    def given(self) -> str:
        """Return where the bytes for the next script are put."""
        return f"{self.keep}/given"

    @property
    def made(self) -> str:
        """Return where a script leaves its bytes."""
        return f"{self.keep}/made"


def begin(tree: Tree) -> str:
    """Make the folder of ours, with a base commit of the tree as it is: everything that git does not ignore."""
    where = shlex.quote(tree.root)
    return (
        "set -eu\n"
        f"rm -rf -- {shlex.quote(tree.keep)}\n"
        f"mkdir -p -- {shlex.quote(tree.keep)}\n"
        f"chmod 700 -- {shlex.quote(tree.keep)}\n"
        f"cd -- {where}\n"
        # Files that the repository tracks although it ignores them are no dependencies.
        f"git -c safe.directory='*' ls-files -ci --exclude-standard -z > {shlex.quote(tree.made)}"
        " 2>/dev/null || :\n" + _git(tree) + "git -c init.defaultBranch=main init -q --template= >/dev/null\n"
        f"cat > {shlex.quote(tree.git_dir)}/config <<'END'\n{_CONFIG}END\n"
        f"mkdir -p -- {shlex.quote(tree.git_dir)}/info\n"
        f"if [ -f .git/info/exclude ]; then cat .git/info/exclude > {shlex.quote(tree.git_dir)}/info/exclude; fi\n"
        f"echo '{_PLAIN}' > {_attributes(tree)}\n"
        # A repository without a commit inside of this one is what git cannot add.
        "git add -A >/dev/null 2>&1 || git add -A --ignore-errors >/dev/null 2>&1 || :\n"
        f"git update-index --add --remove -z --stdin < {shlex.quote(tree.made)}\n"
        f'git update-ref {_BASE} "$(git commit-tree -m base "$(git write-tree)")"\n'
    )


def listing(tree: Tree) -> str:
    """Leave the names of all files of the base commit in `made`, for `read_listing`."""
    return _start(tree) + f"git ls-tree -r -z --full-tree {_BASE} > {shlex.quote(tree.made)}\n"


def read_listing(data: bytes) -> dict[str, str]:
    """Return the modes of what the base commit holds, by path, sorted.

    A name that is not UTF-8 keeps its bytes as surrogates.
    """
    found: dict[str, str] = {}
    for line in data.split(b"\0"):
        facts, tab, name = line.partition(b"\t")
        if tab:
            found[name.decode(errors="surrogateescape")] = facts.decode().partition(" ")[0]
    return dict(sorted(found.items()))


def archive(tree: Tree) -> str:
    """Leave all files of the base commit in `made`, as a tar file."""
    return _start(tree) + f"git archive --format=tar -o {shlex.quote(tree.made)} {_BASE}\n"


def attempt(files: Mapping[str, bytes | None], base: Mapping[str, str]) -> bytes:
    """The base commit with `files` written (None: deleted), in the form that `checkout` and `diff` take.

    A file keeps its mode. The tree itself is not needed for it. Raises `BadPath`.
    """
    for path in files:
        check_path(path)
    parts = [f"commit {_ATTEMPT}\ncommitter base <base@localhost> 0 +0000\ndata 0\n\nfrom {_BASE}^0\n".encode()]
    parts += [b"D " + _quoted(path) + b"\n" for path, content in files.items() if content is None]
    for path, content in files.items():
        if content is not None:
            mode = base.get(path, "")
            mode = mode if mode in REGULAR else "100644"
            parts += [f"M {mode} inline ".encode(), _quoted(path), f"\ndata {len(content)}\n".encode(), content, b"\n"]
    return b"".join(parts)


def checkout(tree: Tree) -> str:
    """Make the work tree the attempt in `given`: everything else is as in the base commit, or ignored."""
    return _start(tree) + _import(tree) + _set(tree, _ATTEMPT)


def reset(tree: Tree) -> str:
    """Make the work tree the base commit again. Ignored files stay."""
    return _start(tree) + _set(tree, _BASE)


def diff(tree: Tree, *, binary: bool = False) -> str:
    """Leave what the attempt in `given` changes in `made`, as a patch. The work tree is not touched.

    With `binary` its bytes are ASCII whatever the files hold: no reader can spoil it.
    """
    attributes = _attributes(tree)
    as_binary = f"echo '* -diff' >> {attributes}\n" if binary else ""
    return (
        _start(tree)
        + _import(tree)
        + as_binary
        + "git diff --binary --full-index --no-color --no-ext-diff --no-textconv --no-renames --src-prefix=a/ "
        f"--dst-prefix=b/ {_BASE} {_ATTEMPT} > {shlex.quote(tree.made)}\n"
        + (f"echo '{_PLAIN}' > {attributes}\n" if binary else "")
    )


def apply(tree: Tree) -> str:
    """Make the work tree the base commit with the patch in `given`. When it does not apply: git's words on stderr."""
    return reset(tree) + f"git apply --whitespace=nowarn {shlex.quote(tree.given)}\n"


def inside(tree: Tree, command: Sequence[str]) -> str:
    """Run a command in the work tree. Python writes no byte code, which could outlive the source it is of."""
    return f"cd -- {shlex.quote(tree.root)} && exec env PYTHONDONTWRITEBYTECODE=1 {shlex.join(command)}\n"


def check_path(path: str) -> None:
    """Refuse a path that is not one of a file in the repository. Raises `BadPath`."""
    parts = PurePosixPath(path).parts
    wrong = not parts or path != "/".join(parts) or "\0" in path or path.startswith("/")
    if wrong or ".." in parts or any(part.lower() == ".git" for part in parts):
        raise BadPath(f"{path!r} is not the path of a file in the repository")


def _attributes(tree: Tree) -> str:
    return f"{shlex.quote(tree.git_dir)}/info/attributes"


def _start(tree: Tree) -> str:
    return f"set -eu\ncd -- {shlex.quote(tree.root)}\n" + _git(tree)


def _git(tree: Tree) -> str:
    given = {"GIT_DIR": tree.git_dir, "GIT_WORK_TREE": tree.root, **_ENVIRONMENT}
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in given.items())
    return f"unset {' '.join(_FOREIGN)} || :\nexport {words}\n"


def _import(tree: Tree) -> str:
    return f"git fast-import --quiet --force < {shlex.quote(tree.given)}\n"


def _set(tree: Tree, commit: str) -> str:
    return f"git read-tree -u --reset {commit}\n" + _CLEAN.format(untracked=shlex.quote(f"{tree.keep}/untracked"))


def _quoted(path: str) -> bytes:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return b'"' + escaped.encode(errors="surrogateescape") + b'"'
