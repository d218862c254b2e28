"""Keeping what Harbor would delete: before a retry the folder of the failed try is set aside, as hard links."""

import os
import shutil
from pathlib import Path

from terminalbench.files import special_files
from terminalbench.modes import make_folder

FOLDER = "superseded"


def set_aside(trial_dir: Path, superseded: Path, number: int) -> Path:
    """Keep `trial_dir` as `<superseded>/<job>/<trial>-try<number>`; return the copy."""
    kept = superseded / trial_dir.parent.name / f"{trial_dir.name}-try{number}"
    make_folder(kept.parent)
    partial = kept.with_name(f".{kept.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    # Links stay links, and pipes or devices an agent left are passed over: they are no evidence and could block.
    shutil.copytree(trial_dir, partial, symlinks=True, copy_function=_link, ignore=special_files)
    partial.rename(kept)
    return kept


def _link(source: str, destination: str) -> str:
    os.link(source, destination, follow_symlinks=False)
    return destination
