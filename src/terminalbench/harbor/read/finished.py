"""Which trials of a Harbor job folder are finished: those whose result.json can be read and was not cancelled.

One that we cancelled because it hung is finished too: it would hang again. So is one that somebody cancelled, even
before it started.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.harbor.limits.hangs import HELD, HUNG
from terminalbench.harbor.read.result_file import TaskConfig


class _Config(msgspec.Struct):
    task: TaskConfig


class _Held(msgspec.Struct):
    cancelled: bool = False


class _Exception(msgspec.Struct):
    exception_type: str = ""


class _Result(msgspec.Struct):
    config: _Config
    finished_at: str | None = None
    exception_info: _Exception | None = None
    verifier_result: Any = None
    step_results: Any = None

    @property
    def done(self) -> bool:
        """Whether it ran to its end. A cancelled trial did not; it may have neither an error nor a verdict."""
        if self.exception_info is not None:
            return self.finished_at is not None and self.exception_info.exception_type != "CancelledError"
        return self.finished_at is not None and bool(self.verifier_result or self.step_results)


def finished_trials(job_folder: Path) -> Counter[tuple[str, str]]:
    """How many finished trials the folder holds of each (dataset label, task id). A torn file counts for none."""
    counts: Counter[tuple[str, str]] = Counter()
    decoder = msgspec.json.Decoder(_Result)
    for file in sorted(job_folder.glob("*/result.json")):
        try:
            result = decoder.decode(file.read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue
        task = result.config.task
        if result.done or (file.parent / HUNG).is_file():
            counts[_cell(task)] += 1
    for file in job_folder.glob(f"*/{HELD}"):
        try:
            held = msgspec.json.decode(file.read_bytes(), type=_Held)
            config = msgspec.json.decode((file.parent / "config.json").read_bytes(), type=_Config)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue
        counts[_cell(config.task)] += held.cancelled
    return +counts


def _cell(task: TaskConfig) -> tuple[str, str]:
    return task.dataset or "", str(task)
