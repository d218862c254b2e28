"""A checkout of the official evaluator, which alone holds scripts, parsers and Dockerfiles; its program, driven.

The program runs as it is, from its own folder, with one output folder for each arm.

Its traps are kept away from: results of one arm never reach another (a folder for each), a result is used again only
for the same patch (the prefix of its files is the patch's hash), and what a container left behind (`workspace/`) is
removed before it runs again. Its `false` is a verdict, as in every figure made of it. When no test had told anything,
the reason of the verdict says that.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from terminalbench.errors import TbenchError, UserError
from terminalbench.files import write_bytes
from terminalbench.harbor.tampering import flags
from terminalbench.json_files import encode_json, encode_line
from terminalbench.swebench_pro.dataset import IMAGES, CellError, names
from terminalbench.swebench_pro.predictions import OFFICIAL, PatchVerdict, Predictions, VerdictState

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
            raise UserError(
                f"is not a checkout of the evaluator: it has no {missing[0]}/", where=str(folder), hint=hint
            )
        return cls(folder)

    @cached_property
    def commit(self) -> str:
        """Return which version it is: its commit, with `-dirty` when files of it were changed; else a digest of its
        files."""
        top = self._git("rev-parse", "--show-toplevel")
        if top is None or Path(top).resolve() != self.folder.resolve():
            return f"sha256:{digest_of(self.folder, (SCRIPTS, DOCKERFILES))[:40]}"
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
        """Return which lists of an instance its `instance_info.txt` has otherwise; without that file, none."""
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
            raise NotInCheckout(f"{path} of the evaluator is not UTF-8") from error

    def _git(self, *arguments: str) -> str | None:
        command = ["git", "-C", str(self.folder), "--no-optional-locks", *arguments]
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=_GIT_SEC, check=False, start_new_session=True
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return ran.stdout.strip() if ran.returncode == 0 else None


def digest_of(folder: Path, parts: Iterable[str]) -> str:
    """Return the digest of all files in some parts of a folder, each a file or a folder."""
    found = [path for part in parts for path in (folder / part, *sorted((folder / part).rglob("*"))) if path.is_file()]
    listed = [[str(path.relative_to(folder)), hashlib.sha256(path.read_bytes()).hexdigest()] for path in found]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


_GRACE_SEC = 10.0


@dataclass(frozen=True)
class EvaluatorSettings:
    """How the evaluator is run: with which Python, how many at once, for how long in all."""

    python: str
    workers: int = 4
    timeout_sec: float | None = None


def evaluate(
    checkout: Checkout,
    rows: Mapping[str, Mapping[str, str]],
    predictions: Predictions,
    folder: Path,
    drive: EvaluatorSettings,
) -> list[PatchVerdict]:
    """The verdicts of the official evaluator on the patches of one arm; `rows` are those of its instances."""
    if not (checkout.folder / PROGRAM).is_file():
        raise UserError(
            f"has no {PROGRAM}, which evaluates patches",
            where=str(checkout.folder),
            hint="name a full checkout of the evaluator",
        )
    if not predictions.patches:
        return []
    wanted = {name: rows[name] for name in predictions.patches}
    version = hashlib.sha256(json.dumps([checkout.commit, wanted], sort_keys=True).encode()).hexdigest()[:12]
    place = folder / f"{predictions.arm}-{version}"
    output = place / "output"
    hashes = {name: _hash(patch) for name, patch in predictions.patches.items()}
    _clean(output, hashes)
    entries = [
        {"instance_id": name, "patch": patch, "prefix": hashes[name][:16]}
        for name, patch in predictions.patches.items()
    ]
    write_bytes(place / "rows.jsonl", b"".join(map(encode_line, wanted.values())))
    write_bytes(place / "patches.json", encode_json(entries))
    ending = _run(checkout, place, drive)
    results = _results(output)
    return [_verdict(predictions, name, hashes[name], output, results, ending) for name in predictions.patches]


def _hash(patch: str) -> str:
    return hashlib.sha256(patch.encode()).hexdigest()


def _clean(output: Path, hashes: Mapping[str, str]) -> None:
    """Remove what a run must not find: the result of all, half-written results, and what containers left behind."""
    (output / "eval_results.json").unlink(missing_ok=True)
    for name, patch in hashes.items():
        result = output / name / f"{patch[:16]}_output.json"
        if result.exists() and _tests(result) is None:
            result.unlink()
        if not result.exists():
            shutil.rmtree(output / name / "workspace", ignore_errors=True)


def _run(checkout: Checkout, place: Path, drive: EvaluatorSettings) -> str:
    """Run the program to its end; how it ended, in words."""
    owner = IMAGES.partition("/")[0]
    options = {
        "raw_sample_path": place / "rows.jsonl",
        "patch_path": place / "patches.json",
        "output_dir": place / "output",
        "scripts_dir": SCRIPTS,
        "dockerhub_username": owner,
        "num_workers": drive.workers,
    }
    (place / "output").mkdir(parents=True, exist_ok=True)
    command = [drive.python, PROGRAM, *(f"--{name}={_absolute(value)}" for name, value in options.items())]
    command.append("--use_local_docker")
    with (place / "evaluator.log").open("ab") as log:
        try:
            process = subprocess.Popen(
                command,
                cwd=checkout.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise TbenchError(f"cannot start the evaluator: {error}", where=drive.python) from error
        try:
            return f"the evaluator ended with exit code {process.wait(drive.timeout_sec)}"
        except subprocess.TimeoutExpired:
            return "the evaluator did not end within its time limit"
        finally:
            _end(process)


def _absolute(value: object) -> object:
    return value.absolute() if isinstance(value, Path) else value


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the evaluator with all that it started; it is in a process group of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(_GRACE_SEC)
        except subprocess.TimeoutExpired:
            continue


def _results(output: Path) -> dict[str, bool]:
    try:
        found = json.loads((output / "eval_results.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, bool)} if isinstance(found, dict) else {}


def _tests(result: Path) -> list[object] | None:
    """Return what a parser reported, as the evaluator kept it; None when that cannot be read."""
    try:
        found = json.loads(result.read_bytes())["tests"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, list) else None


def _verdict(
    predictions: Predictions, name: str, patch: str, output: Path, results: Mapping[str, bool], ended: str
) -> PatchVerdict:
    tests = _tests(output / name / f"{patch[:16]}_output.json")
    reason = None
    if name not in results:
        reason = ended
    elif not results[name] and not tests:
        reason = f"officially unresolved: {'the parser left no results' if tests is None else 'no test was collected'}"
    resolved = VerdictState.RESOLVED if results.get(name) else VerdictState.UNRESOLVED
    return PatchVerdict(
        instance_id=name,
        arm=predictions.arm,
        state=resolved if name in results else VerdictState.EVAL_ERROR,
        patch=patch,
        empty=name in predictions.empty,
        reason=reason,
        mode=OFFICIAL,
        suspect=tuple(f"test_config:{flag}" for flag in flags(predictions.patches[name].encode())),
    )


def rows_of(folders: Iterable[Path], row_file: str) -> dict[str, dict[str, str]]:
    """The rows of instance tasks as the official evaluator takes them, by id."""
    found = {}
    for folder in folders:
        try:
            found[folder.name] = json.loads((folder / row_file).read_bytes())
        except (OSError, ValueError) as error:
            hint = "tbench swebench-pro tasks writes it"
            raise UserError(f"the row of the instance cannot be read: {error}", where=str(folder), hint=hint) from error
    return found
