"""When tests that passed run once more, and what is said where they do not."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from terminalbench.harbor.second_run import FirstRun, Repetition, RepetitionGap, SecondRun

PYTEST = "pytest /tests/test_outputs.py -rA\n"


class Elsewhere:
    """An environment that knows of no second run."""


class Stage(Elsewhere):
    """An environment whose tests fail, one of them though nothing was done to it."""

    def __init__(self, *, restored: bool | None = True) -> None:
        self.restored, self.given = restored, list[dict[str, str] | None]()
        self.seen, self.uploaded = "", ""

    async def work_as_handed(self) -> bool | None:
        return self.restored

    async def exec(self, *_: Any, **__: Any) -> None: ...

    async def upload_dir(self, *, source_dir: Path, target_dir: str) -> None:
        assert target_dir == "/tests"
        self.uploaded = (source_dir / "test_outputs.py").read_text()

    async def run_tests(self, _command: str, env: dict[str, str] | None) -> None:
        self.given.append(env)

    async def download_dir(self, *, source_dir: str, target_dir: Path) -> None:
        assert source_dir == "/logs/verifier"
        failed = "".join(f"FAILED ../tests/test_outputs.py::test_{name} - no\n" for name in "ab")
        (target_dir / "test-stdout.txt").write_text(f"=== test session starts ===\n{failed}=== 2 failed in 1s ===\n")
        (target_dir / "reward.txt").write_text("0")
        if self.seen:
            (target_dir / re.findall(r"'/logs/verifier/([0-9a-f]{16})'", self.uploaded)[0]).write_text(self.seen)


def repeat(
    folder: Path, stage: Elsewhere, *, took_sec: float = 1, limit_sec: float = 900, script: str = PYTEST
) -> Repetition:
    """Run tests that passed once more."""
    (folder / "test.sh").write_text(script)
    (folder / "test_outputs.py").write_text(
        "def test_a():\n    assert f() == 1\n\ndef test_b():\n    assert f() == 1\n"
    )
    output = folder.parent / "test-stdout.txt"
    output.write_text("=== test session starts ===\n=== 2 passed in 1s ===\n")

    async def prepare() -> None: ...

    again = SecondRun(stage, "/tests", "/logs/verifier", "bash /tests/test.sh", {"A": "b"}, limit_sec, prepare)
    return asyncio.run(again.repeat(FirstRun([folder], folder / "test.sh", output, took_sec, took_sec), back=False))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    return tmp_path / "tests"


@pytest.mark.parametrize(
    ("restored", "said"),
    [
        (True, Repetition(passes_anything=False, differs=True)),
        (False, Repetition(passes_anything=False, unrestored=True)),
        (None, Repetition(passes_anything=False)),
    ],
    ids=["put back", "too large for that", "with services"],
)
def test_what_fails_on_other_work_is_told_apart(folder: Path, restored: bool | None, said: Repetition) -> None:
    assert repeat(folder, Stage(restored=restored)) == said


def test_what_the_work_did_to_the_tests_then_is_said(folder: Path) -> None:
    stage = Stage()
    stage.seen = "objects\t'/app/x.py'\nframes\t'/app/x.py'\n"
    assert repeat(folder, stage).looks == ("frames", "objects")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"took_sec": 61, "script": "python3 /tests/test_outputs.py"}, RepetitionGap.TOOK_LONG),
        ({"took_sec": 601, "limit_sec": 9000}, RepetitionGap.TOOK_LONG),
        ({"took_sec": 50, "limit_sec": 120}, RepetitionGap.NO_TIME),
        ({"script": "[ -e /app/x ] && echo 1 > /logs/verifier/reward.txt"}, RepetitionGap.FORM),
        ({"script": ". /app/x; echo 1 | tee /logs/verifier/reward.txt"}, RepetitionGap.FORM),
    ],
)
def test_why_there_was_no_second_run_is_said(folder: Path, more: dict[str, Any], why: RepetitionGap) -> None:
    stage = Stage()
    assert repeat(folder, stage, **more) == Repetition(why=why)
    assert stage.given == []
    assert repeat(folder, Elsewhere()) == Repetition(why=RepetitionGap.ELSEWHERE)


def test_long_tests_of_pytest_stop_where_the_first_fails(folder: Path) -> None:
    short, long = Stage(), Stage()
    repeat(folder, short, took_sec=59)
    repeat(folder, long, took_sec=300)
    assert (short.given, long.given) == ([{"A": "b"}], [{"A": "b", "PYTEST_ADDOPTS": "-x"}])
