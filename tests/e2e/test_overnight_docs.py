"""Every command of the pages on nights runs, in their order, as a person would type it."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from support.pace import seconds
from terminalbench.overnight.folder import NightFolder
from terminalbench.runner.executors.local import OWN_PROCESSES

DOCS = Path(__file__).parents[2] / "docs" / "tbench"


def commands(page: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.long
@pytest.mark.parametrize("pages", [("README.md", "learning-roadmap.md"), ("overnight-runs.md",)], ids=" ".join)
def test_every_command_of_a_page_runs(pages: tuple[str, ...], lab) -> None:
    lab.env[OWN_PROCESSES] = "1"
    found = {page: commands(page) for page in pages}
    assert all(found.values()), found
    for line in [line for lines in found.values() for line in lines]:
        program, *arguments = shlex.split(line)
        assert program == "tbench"
        process = lab.start(*arguments)
        out, err = process.communicate(timeout=seconds(240))
        assert process.returncode == 0, f"{line}\n{out}\n{err}"


@pytest.mark.parametrize(
    ("moment", "evening"),
    [
        ("2026-11-19 22:00", "2026-11-19"),
        ("2026-11-20 03:00", "2026-11-19"),
        ("2026-11-20 20:59", "2026-11-19"),
        ("2026-03-29 22:00", "2026-03-29"),  # a day of 23 hours
        ("2026-10-25 22:00", "2026-10-25"),  # and of 25
        ("2026-10-26 03:00", "2026-10-25"),
    ],
)
def test_after_a_reboot_the_line_of_the_crontab_names_the_folder_of_the_evening(moment: str, evening: str) -> None:
    (ago,) = re.findall(r"results/\$\(date -d '(.*)' \+\\%F\)", (DOCS / "overnight-runs.md").read_text())
    date = ["date", "-d", f"{moment} {ago}", "+%F"]
    env = {**os.environ, "TZ": "CET-1CEST,M3.5.0,M10.5.0/3"}
    assert subprocess.run(date, env=env, capture_output=True, text=True, check=True).stdout.strip() == evening


def test_the_table_of_a_folder_names_the_paths_there_are() -> None:
    page, folder = (DOCS / "overnight-runs.md").read_text(), NightFolder(Path("x"))
    for path in (
        folder.config_json,
        folder.state_json,
        folder.events_jsonl,
        folder.gate_json,
        folder.base_toml,
        folder.summary_json,
    ):
        assert f"    {path.name}" in page or f"  {path.name}" in page, path
