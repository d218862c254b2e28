"""The commands of `tbench swebench-pro`, on the small instances of this folder where no others are named.

    python -m examples.swe_bench_pro.demo experiment --provider ollama --model qwen3:4b --arms singleshot,s1_tdd
    python -m examples.swe_bench_pro.demo evaluate --predictions-dir output/swe_bench_pro/predictions
    python -m examples.swe_bench_pro.demo visualize | analyze-errors | list-instances | ...

Without --tasks, the instances that this machine can run are built once (output/swe_bench_pro_instances/), and trials
run in the local sandbox: no Docker, no download. The key of a provider comes from LLM_API_KEY, never from an argument.
"""

import sys
from pathlib import Path

from examples.swe_bench_pro.build_instances import build

from terminalbench.cli.main import main

BUILT = Path("output/swe_bench_pro_instances")
_WITH_TASKS = ("experiment", "evaluate", "list-instances")
_RUN = ("experiment", "evaluate")


def shipped() -> Path:
    """The folder of tasks of the shipped instances, built when it is not there yet."""
    tasks = BUILT / "tasks"
    if not (BUILT / "rows.jsonl").is_file() or not tasks.is_dir():
        print("building the small instances ...", file=sys.stderr)
        built = build(BUILT)
        for name, reason in built.skipped.items():
            print(f"left out: {name}: {reason}", file=sys.stderr)
        code = main(
            [
                "swebench-pro",
                "tasks",
                str(built.rows),
                "-o",
                str(tasks),
                "--evaluator",
                str(built.evaluator),
                "--build",
                "--host-base",
            ]
        )
        if code != 0:
            raise SystemExit(code)
    return tasks


def arguments(given: list[str]) -> list[str]:
    """The arguments of tbench: the same, on the shipped instances where none are named."""
    command = next((word for word in given if word in _WITH_TASKS), None)
    asks = any(word in ("-h", "--help") for word in given)
    if command is None or asks or _has(given, "--tasks"):
        return given
    if command == "list-instances" and any(not word.startswith("-") for word in given[given.index(command) + 1 :]):
        return given  # a file of rows, or an option with a value: as it says
    more = ["--tasks", str(shipped())]
    if command in _RUN and not _has(given, "--container-env"):
        more += ["--container-env", "local"]
    return [*given, *more]


def _has(given: list[str], option: str) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in given)


if __name__ == "__main__":
    if _has(sys.argv, "--api-key"):
        print("error: a key in the arguments is seen by everybody on this machine: export LLM_API_KEY", file=sys.stderr)
        raise SystemExit(2)
    raise SystemExit(main(["swebench-pro", *arguments(sys.argv[1:])]))
