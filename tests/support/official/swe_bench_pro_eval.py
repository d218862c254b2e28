"""A stand-in for the official evaluator: its options, its steps and its files, for tests without a checkout of it."""

import argparse
import ast
import json
import re
from pathlib import Path

import docker  # ty: ignore[import-not-found]  the stub beside it


def entry_script(row):
    lines = []
    for kind in ("base", "instance"):
        for line in Path("dockerfiles", f"{kind}_dockerfile", row["instance_id"], "Dockerfile").read_text().split("\n"):
            if line.strip().startswith("ENV"):
                lines.append("export" + line.strip()[3:])
    selected = ",".join(ast.literal_eval(row["selected_test_files_to_run"]))
    lines += [
        "cd /app",
        f"git reset --hard {row['base_commit']}",
        f"git checkout {row['base_commit']}",
        "git apply -v /workspace/patch.diff",
        row["before_repo_set_cmd"].strip().split("\n")[-1],
        f"bash /workspace/run_script.sh {selected} > /workspace/stdout.log 2> /workspace/stderr.log",
        "python /workspace/parser.py /workspace/stdout.log /workspace/stderr.log /workspace/output.json",
    ]
    return "\n".join(lines) + "\n"


def without_binary(patch):
    parts = re.split(r"(?m)^(?=diff --git )", patch)
    return "".join(
        p for p in parts if p.strip() and not re.search(r"(?m)^(GIT binary patch|Binary files .* differ)$", p)
    )


def judge(given, entry, row):
    name, prefix = row["instance_id"], entry.get("prefix", "")
    kept = Path(given.output_dir, name, f"{prefix}_output.json")
    if not kept.exists():
        work = Path(given.output_dir, name, "workspace")
        work.mkdir(parents=True, exist_ok=True)
        for file in ("run_script.sh", "parser.py"):
            (work / file).write_text(Path(given.scripts_dir, name, file).read_text())
        (work / "patch.diff").write_text(without_binary(entry.get("model_patch", entry.get("patch", ""))))
        (work / "entryscript.sh").write_text(entry_script(row))
        owner, repo = row["repo"].lower().split("/")
        tag = f"{owner}.{repo}-{name.replace('instance_', '').removesuffix('-vnan')}"[:128]
        container = docker.from_env().containers.run(
            f"{given.dockerhub_username}/sweap-images:{tag}",
            volumes={str(work.absolute()): {"bind": "/workspace", "mode": "rw"}},
            detach=True,
            remove=True,
            entrypoint="/bin/bash",
            command=["-c", "bash /workspace/entryscript.sh"],
        )
        container.wait()
        if not (work / "output.json").exists():
            return False
        kept.write_text((work / "output.json").read_text())
    passed = {test["name"] for test in json.loads(kept.read_text())["tests"] if test["status"] == "PASSED"}
    return {*ast.literal_eval(row["fail_to_pass"]), *ast.literal_eval(row["pass_to_pass"])} <= passed


def main():
    parser = argparse.ArgumentParser()
    for name in ("raw_sample_path", "patch_path", "output_dir", "dockerhub_username", "scripts_dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--use_local_docker", action="store_true")
    parser.add_argument("--num_workers", type=int, default=50)
    given = parser.parse_args()
    rows = {row["instance_id"]: row for row in map(json.loads, Path(given.raw_sample_path).read_text().splitlines())}
    found = {
        entry["instance_id"]: judge(given, entry, rows[entry["instance_id"]])
        for entry in json.loads(Path(given.patch_path).read_text())
    }
    Path(given.output_dir, "eval_results.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
