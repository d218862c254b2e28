"""A checkout of the official evaluator: it alone holds run scripts, parsers and Dockerfiles of instances."""

import hashlib
import json
import re
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.swebench_pro.literals import CellError, names

PROGRAM = "swe_bench_pro_eval.py"
REPOSITORY = "scaleapi/SWE-bench_Pro-os"
SCRIPTS, DOCKERFILES = "run_scripts", "dockerfiles"
_GIT_SEC = 120
_KINDS = ("base", "instance")
_INFO = {
    "FAIL_TO_PASS": "fail_to_pass",
    "PASS_TO_PASS": "pass_to_pass",
    "Test Files": "selected",
}


class NotInCheckout(ValueError):
    """The checkout lacks a file of an instance."""


@dataclass(frozen=True)
class Scripts:
    """What the evaluator runs for one instance: run script, parser, and the lines of both Dockerfiles."""

    run_script: str
    parser: str
    exports: tuple[str, ...]


@dataclass(frozen=True)
class Checkout:
    """A folder with `run_scripts/<id>/` and `dockerfiles/{base,instance}_dockerfile/<id>/`."""

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "Checkout":
        """The checkout in a folder; refused with the next step when it is none."""
        missing = [name for name in (SCRIPTS, DOCKERFILES) if not (folder / name).is_dir()]
        if missing:
            hint = f"name a checkout of {REPOSITORY}, made by git clone"
            raise UserError(f"is no checkout of the evaluator: it has no {missing[0]}/", where=str(folder), hint=hint)
        return cls(folder)

    @cached_property
    def commit(self) -> str:
        """Which version it is: its commit, with `-dirty` when files of it were changed; else a digest of its files."""
        top = self._git("rev-parse", "--show-toplevel")
        if top is None or Path(top).resolve() != self.folder.resolve():
            return f"sha256:{self._digest()}"
        changed = self._git("status", "--porcelain", "--", SCRIPTS, DOCKERFILES)
        return f"{self._git('rev-parse', 'HEAD')}{'-dirty' if changed else ''}"

    def scripts(self, instance_id: str) -> Scripts:
        """The files of one instance, as the evaluator reads them."""
        run_script = self._read(f"{SCRIPTS}/{instance_id}/run_script.sh")
        parser = self._read(f"{SCRIPTS}/{instance_id}/parser.py")
        lines = [line.strip() for kind in _KINDS for line in self.dockerfile(kind, instance_id).split("\n")]
        # As there: every line that begins so, one inside a here-document too.
        exports = tuple(f"export{line[3:]}" for line in lines if line.startswith("ENV"))
        return Scripts(run_script, parser, exports)

    def dockerfile(self, kind: str, instance_id: str) -> str:
        """The Dockerfile of an instance, `base` or `instance`."""
        return self._read(f"{DOCKERFILES}/{kind}_dockerfile/{instance_id}/Dockerfile")

    def build_files(self, instance_id: str) -> dict[str, bytes]:
        """The files beside the Dockerfiles of an instance, by their path in the context of a build."""
        found: dict[str, bytes] = {}
        for kind in _KINDS:
            root = self.folder / DOCKERFILES / f"{kind}_dockerfile" / instance_id
            for path in sorted(root.rglob("*")):
                if path.is_file() and path != root / "Dockerfile":
                    found[path.relative_to(root).as_posix()] = path.read_bytes()
        return found

    def build_dockerfile(self, instance_id: str) -> str:
        """Both Dockerfiles as one: the second starts from the image of the first."""
        base, own = (self.dockerfile(kind, instance_id) for kind in _KINDS)
        rest = re.sub(r"(?mi)^FROM .*\n?", "", own, count=1)
        return f"{base.rstrip()}\n{rest.rstrip()}\n"

    def differences(self, instance_id: str, lists: dict[str, tuple[str, ...]]) -> list[str]:
        """Which lists of an instance its `instance_info.txt` has otherwise; without that file, none."""
        try:
            text = (self.folder / SCRIPTS / instance_id / "instance_info.txt").read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return []
        said = dict(line.split(": ", 1) for line in text.split("\n") if ": " in line)
        found = []
        for key, name in _INFO.items():
            try:
                if key in said and set(names(said[key])) != set(lists[name]):
                    found.append(name)
            except CellError:
                found.append(name)
        return found

    def _read(self, path: str) -> str:
        try:
            return (self.folder / path).read_text("utf-8")  # as there: lines end as on this system
        except FileNotFoundError as error:
            raise NotInCheckout(f"the evaluator has no {path}") from error
        except UnicodeDecodeError as error:
            raise NotInCheckout(f"{path} of the evaluator is no UTF-8") from error

    def _digest(self) -> str:
        parts = [path for name in (SCRIPTS, DOCKERFILES) for path in sorted((self.folder / name).rglob("*"))]
        files = [path for path in parts if path.is_file()]
        listed = [[str(path.relative_to(self.folder)), hashlib.sha256(path.read_bytes()).hexdigest()] for path in files]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:40]

    def _git(self, *arguments: str) -> str | None:
        command = ["git", "-C", str(self.folder), "--no-optional-locks", *arguments]
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=_GIT_SEC, check=False, start_new_session=True
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return ran.stdout.strip() if ran.returncode == 0 else None
