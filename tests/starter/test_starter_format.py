"""The starter dataset as files: complete, uniform, small, and readable without Harbor."""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkMode, TaskConfig
from harbor.models.task.task import Task

from terminalbench.starter import TASKS_DIR, families, task_ids

FILES = (
    "task.toml",
    "instruction.md",
    "environment/Dockerfile",
    "solution/solve.sh",
    "tests/test.sh",
    "tests/checks.py",
)
INSTRUCTIONS = {"FROM", "RUN", "WORKDIR", "COPY"}
COPIES = {
    "fix-failing-test": {"environment/app/test_durations.py": "tests/visible_tests.py"},
    "log-investigation": {"environment/make_logs.py": "tests/make_logs.py"},
    "makefile-repair": {"environment/app/tools/render.sh": "tests/render.sh"},
    "slow-query-index": {
        "environment/make_db.py": "tests/make_db.py",
        "environment/app/query.sql": "tests/query.sql",
    },
    "sqlite-report": {"environment/make_db.py": "tests/make_db.py"},
}


@pytest.fixture(params=task_ids())
def task(request: pytest.FixtureRequest) -> Path:
    return TASKS_DIR / request.param


def test_there_are_enough_tasks_and_each_family_has_several() -> None:
    assert len(task_ids()) >= 14
    assert task_ids() == sorted(path.name for path in TASKS_DIR.iterdir())
    assert list(families()) == task_ids()
    assert min(Counter(families().values()).values()) >= 2
    assert len(set(families().values())) >= 5


def test_reading_the_dataset_loads_nothing_heavy() -> None:
    code = "import sys, terminalbench.starter as s; s.families(); print(*sys.modules, sep='\\n')"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout.split()
    assert not {"harbor", "pydantic", "litellm", "msgspec"} & set(loaded)


def test_it_is_complete_and_harbor_accepts_it(task: Path) -> None:
    for name in FILES:
        assert (task / name).is_file(), name
    assert Task.is_valid_dir(task)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", task.name)
    assert len((task / "instruction.md").read_text()) > 300


def test_its_settings(task: Path) -> None:
    text = (task / "task.toml").read_text()
    config = TaskConfig.model_validate_toml(text)
    assert config.task is not None
    assert config.task.name == f"starter/{task.name}"
    assert config.task.description
    assert config.environment.network_mode == NetworkMode.PUBLIC  # an agent inside must reach its model
    assert config.environment.cpus == 1
    assert (config.environment.memory_mb or 0) <= 1024
    assert config.environment.storage_mb is not None
    assert (config.agent.timeout_sec or 0) >= 300
    assert 60 <= config.verifier.timeout_sec <= 300
    assert set(tomllib.loads(text)["metadata"]) == {"host_base", "family", "difficulty", "expert_time_min"}


def test_its_dockerfile_is_plain_and_installs_only_what_is_missing(task: Path) -> None:
    text = re.sub(r"\\\n\s*", "", (task / "environment" / "Dockerfile").read_text())
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line]
    assert {word for word, _ in lines} <= INSTRUCTIONS
    assert lines[0] == ["FROM", "debian:bookworm-slim"]
    for word, value in lines:
        if word == "RUN" and "apt-get" in value:
            assert re.match(
                r"(\(command -v [a-z0-9]+( && command -v [a-z0-9]+)*\)|command -v [a-z0-9]+) > /dev/null \|\| ", value
            )
            packages = set(re.findall(r"command -v ([a-z0-9]+)", value))
            assert packages <= {"python3", "git", "make"}
            assert f"--no-install-recommends {' '.join(sorted(packages))} " in value


def test_its_verifier_script_is_the_common_one(task: Path) -> None:
    common = (TASKS_DIR / task_ids()[0] / "tests" / "test.sh").read_bytes()
    assert (task / "tests" / "test.sh").read_bytes() == common


def test_files_that_appear_twice_are_the_same(task: Path) -> None:
    for source, copy in COPIES.get(task.name, {}).items():
        assert (task / source).read_bytes() == (task / copy).read_bytes()


def test_it_is_small_and_clean(task: Path) -> None:
    files = [path for path in task.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 60_000
    assert not [path for path in task.rglob("*") if path.name == "__pycache__" or path.suffix == ".pyc"]
    assert not [path for path in files if path.is_symlink()]
