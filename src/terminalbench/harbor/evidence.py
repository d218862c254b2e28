"""Keeping what Harbor would delete: before a retry the folder of the failed try is set aside, as hard links."""

import os
import shutil
from pathlib import Path
from typing import Any

from terminalbench.files import special_files
from terminalbench.harbor.read.result_file import HarborResult

FOLDER = "superseded"


def set_aside(trial_dir: Path, superseded: Path, number: int) -> Path:
    """Keep `trial_dir` as `<superseded>/<job>/<trial>-try<number>`; return the copy."""
    kept = superseded / trial_dir.parent.name / f"{trial_dir.name}-try{number}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_name(f".{kept.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    # Links stay links, and pipes or devices an agent left are passed over: they are no evidence and could block.
    shutil.copytree(trial_dir, partial, symlinks=True, copy_function=_link, ignore=special_files)
    partial.rename(kept)
    return kept


def will_retry(rule: Any, tries: int, result: HarborResult) -> bool:
    """Whether Harbor is going to try a trial again, by its own rule (`RetryConfig`)."""
    if result.exception_info is None or rule is None or tries > rule.max_retries:
        return False
    kind = result.exception_info.exception_type
    if kind in (rule.exclude_exceptions or ()) or kind == "CancelledError":
        return False
    return not rule.include_exceptions or kind in rule.include_exceptions


def _link(source: str, destination: str) -> str:
    os.link(source, destination, follow_symlinks=False)
    return destination
