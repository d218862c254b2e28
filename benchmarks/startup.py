"""CPU time of our light commands as a ratio to `harbor --help`, measured in one run.

.venv/bin/python benchmarks/startup.py
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 8
EXPERIMENT = """
schema_version = 2
slug = "s"
[tasks]
items = [{ id = "a" }, { id = "git-lost-commit", dataset = "starter" }]
[profiles.plain]
no_mcp = true
[profiles.oracle]
agent = "oracle"
"""


def cpu_sec(argv: list[str]) -> float:
    """Mean user and system time of one process, after one to warm up."""
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(ROUNDS):
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / ROUNDS


def main() -> None:
    """Print a table of CPU seconds and ratios."""
    scripts = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "exp.toml"
        file.write_text(EXPERIMENT)
        commands = {
            "harbor --help": [str(scripts / "harbor"), "--help"],
            "tbench --help": [str(scripts / "tbench"), "--help"],
            "tbench validate": [str(scripts / "tbench"), "validate", str(file)],
            "tbench plan": [str(scripts / "tbench"), "plan", str(file)],
        }
        seconds = {name: cpu_sec(argv) for name, argv in commands.items()}
    floor = seconds["harbor --help"]
    print(f"{'command':<18} {'CPU s':>7} {'ratio':>6}")
    for name, value in seconds.items():
        print(f"{name:<18} {value:>7.3f} {value / floor:>6.2f}")


if __name__ == "__main__":
    main()
