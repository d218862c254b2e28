"""Builds the small instances of this folder in the shape of SWE-Bench Pro.

    python examples/swe_bench_pro/build_instances.py -o DIR [--all] [NAME...]

    DIR/rows.jsonl    rows as the dataset has them: lists as JSON or Python literals, texts plain or quoted
    DIR/evaluator/    run_scripts/ and dockerfiles/ as a checkout of the official evaluator has them

An instance whose language this machine cannot run is left out by name; --all takes it too.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NAMES = tuple(sorted(path.parent.name for path in HERE.glob("instances/*/instance.toml")))
LANGUAGES = {"js": "javascript", "ts": "typescript"}
PARSERS = {"typescript": "javascript"}
"""Languages whose tests print what those of another one print."""
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin:/usr/lib/go/bin"
"""Where a sandbox over this system finds programs; not in a home folder."""
TYPES = """
const { spawnSync } = require('node:child_process');
const flag = spawnSync(process.execPath, ['--experimental-strip-types', '-e', '0']).status === 0;
if (!process.features.typescript && !flag) require('/usr/share/nodejs/typescript');
"""
PROBES = {
    "python": ["python3", "-c", "pass"],
    "javascript": ["node", "-e", "require('node:test')"],
    "typescript": ["node", "-e", TYPES],
    "go": ["go", "version"],
}


@dataclass(frozen=True)
class Built:
    """What was built: the rows' file, the evaluator's folder, the names, and those left out with the reason."""

    rows: Path
    evaluator: Path
    names: tuple[str, ...]
    skipped: dict[str, str]


def language_of(name: str) -> str:
    """The language of an instance, by its full name."""
    said = _spec(name)["language"]
    return LANGUAGES.get(said, said)


def missing_tool(language: str) -> str | None:
    """Why this machine cannot run a language; None if it can."""
    command = PROBES[language]
    program = shutil.which(command[0], path=SYSTEM_PATH)
    if program is None:
        return f"{command[0]} is not installed"
    ran = subprocess.run([program, *command[1:]], capture_output=True, timeout=60, check=False)
    return f"this {command[0]} cannot run {language}" if ran.returncode else None


def build(output: Path, names: Sequence[str] = NAMES, *, every: bool = False) -> Built:
    """Build instances into `output`; without `every`, only those of languages that this machine can run."""
    reasons = {language: None if every else missing_tool(language) for language in set(map(language_of, names))}
    skipped = {name: reason for name in names if (reason := reasons[language_of(name)]) is not None}
    kept = tuple(name for name in names if name not in skipped)
    evaluator = output / "evaluator"
    shutil.rmtree(evaluator, ignore_errors=True)
    for folder in ("run_scripts", "dockerfiles"):
        (evaluator / folder).mkdir(parents=True)
    rows = [_build(name, NAMES.index(name), evaluator) for name in kept]
    file = output / "rows.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return Built(file, evaluator, kept, skipped)


def _spec(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / "instances" / name / "instance.toml").read_text("utf-8"))


def _build(name: str, number: int, evaluator: Path) -> dict[str, Any]:
    spec, harness = _spec(name), HERE / "harness" / language_of(name)
    with tempfile.TemporaryDirectory() as temporary:
        repo, app = Path(temporary, "repo"), Path(temporary, "app")
        _steps(HERE / "instances" / name, spec, repo)
        subprocess.run(["bash", str(repo / "make.sh"), str(app)], check=True, timeout=120)
        base, fix = _git(app, "rev-parse", "HEAD"), _git(app, "rev-parse", "v1.1")
        outside = [f":(exclude){path}" for path in spec["tests"]]
        golden = _git(app, "diff", "--full-index", base, fix, "--", ".", *outside, strip=False)
        tests = _git(app, "diff", "--full-index", base, fix, "--", *spec["tests"], strip=False)
        row = _row(spec, number, (base, fix), golden, tests)
        instance = row["instance_id"]
        own = evaluator / "dockerfiles" / "instance_dockerfile" / instance
        shutil.copytree(repo, own / "repo")
    base_folder = evaluator / "dockerfiles" / "base_dockerfile" / instance
    base_folder.mkdir(parents=True)
    shutil.copy(harness / "Dockerfile", base_folder / "Dockerfile")
    (own / "Dockerfile").write_text(
        f"FROM base_{spec['repo'].replace('/', '__')}\n"
        'ENV PYTEST_ADDOPTS="--tb=short -v --continue-on-collection-errors --reruns=3"\nENV UV_HTTP_TIMEOUT=60\n'
        "COPY repo/ /build/\nRUN bash /build/make.sh && rm -rf /build\n"
    )
    scripts = evaluator / "run_scripts" / instance
    scripts.mkdir(parents=True)
    shutil.copy(harness / "run_script.sh", scripts / "run_script.sh")
    shutil.copy(
        HERE / "harness" / PARSERS.get(language_of(name), language_of(name)) / "parser.py", scripts / "parser.py"
    )
    (scripts / "instance_info.txt").write_text(
        f"Instance ID: {instance}\nRepository: {spec['repo']}\nBase Commit: {base}\n"
        f"Test Files: {json.dumps(spec['selected'])}\nFAIL_TO_PASS: {json.dumps(spec['fail_to_pass'])}\n"
        f"PASS_TO_PASS: {json.dumps(spec['pass_to_pass'])}\n",
        "utf-8",
    )
    return row


def _steps(source: Path, spec: dict[str, Any], repo: Path) -> None:
    """The commits of a repository: a start without tests, the base, the fix with its tests, and a later one."""
    repo.mkdir()
    shutil.copy(HERE / "harness" / "make.sh", repo / "make.sh")
    tests = {path.split("/")[-1] for path in spec["tests"]}
    trees = {"1-start": "base", "2-base": "base", "3-fix": "fix", "4-later": None}
    messages = ("Start", "Tests", spec["summary"], "Say so")
    for (step, tree), message in zip(trees.items(), messages, strict=True):
        (repo / "steps" / step).mkdir(parents=True)
        (repo / "steps" / step / "message").write_text(f"{message}\n")
        if tree is not None:
            left_out = shutil.ignore_patterns(*tests) if step == "1-start" else None
            shutil.copytree(source / tree, repo / "steps" / step / "tree", ignore=left_out)
    (repo / "steps" / "3-fix" / "removes").write_text("".join(f"{path}\n" for path in spec.get("removes", ())))
    (repo / "steps" / "4-later" / "tree").mkdir()
    (repo / "steps" / "4-later" / "tree" / "CHANGES").write_text(f"{spec['summary']}.\n")


def _row(spec: dict[str, Any], number: int, commits: tuple[str, str], golden: str, tests: str) -> dict[str, Any]:
    """A row. As in the dataset, one has its lists as JSON and its text quoted, the next has Python literals."""
    base, fix = commits
    odd = number % 2 == 1
    listed = repr if odd else json.dumps
    quoted = json.dumps if odd else str
    owner, name = spec["repo"].split("/")
    short = f"{owner}__{name}-{fix}-v{'0' * 40 if odd else 'nan'}"
    return {
        "repo": spec["repo"],
        "instance_id": f"instance_{short}",
        "base_commit": base,
        "patch": golden,
        "test_patch": tests,
        "problem_statement": quoted(spec["problem"].strip()),
        "requirements": quoted(spec["requirements"].strip()),
        "interface": quoted(spec.get("interface", "No new interfaces are introduced.").strip()),
        "repo_language": spec["language"],
        "fail_to_pass": listed(spec["fail_to_pass"]),
        "pass_to_pass": listed(spec["pass_to_pass"]),
        "issue_specificity": None,
        "issue_categories": None,
        "before_repo_set_cmd": f"git reset --hard {base}\ngit clean -fd \ngit checkout {base} \n"
        f"git checkout {fix} -- {' '.join(spec['tests'])}",
        "selected_test_files_to_run": listed(spec["selected"]),
        "dockerhub_tag": f"{owner}.{name}-{short}"[:128] if odd else None,
    }


def _git(folder: Path, *arguments: str, strip: bool = True) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    ran = subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, env=env, timeout=60)
    return ran.stdout.decode().strip() if strip else ran.stdout.decode()


def main() -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description="Build the small instances of SWE-Bench Pro's shape.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(NAMES)}")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--all", action="store_true", help="also those that this machine cannot run")
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"no such instance: {', '.join(sorted(unknown))}")
    built = build(given.output, tuple(given.names) or NAMES, every=given.all)
    print(f"{len(built.names)} instances: {built.rows}, {built.evaluator}")
    for name, reason in built.skipped.items():
        print(f"skipped {name}: {reason}")


if __name__ == "__main__":
    main()
