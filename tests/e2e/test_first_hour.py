"""README, tutorial and how-to pages, word by word: what their blocks say is typed into a shell in an empty folder with an empty home.

Two things stand in for what a person has: a clone whose `make setup` finds the packages of these tests, and scripted
servers at the addresses of models.
"""

import json
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from conftest import REPO
from servers.anthropic import AnthropicServer
from servers.base import Turn
from servers.ollama import OllamaServer
from servers.openai import OpenAIServer
from support.claude import claude_binary
from support.pages import shell_blocks, typed
from support.walk import Walked, walk

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
README = (REPO / "README.md").read_text()
TUTORIAL = (REPO / "docs" / "tutorial.md").read_text()
HOW_TO = [block for name in ("report", "watch") for block in shell_blocks((REPO / "docs" / f"{name}.md").read_text())]
"""What is typed in the same folder afterwards."""
SUM = "awk '{ sum += $1 } END { print sum }' numbers.txt > sum.txt"


def act(**fields: object) -> str:
    """One answer in the protocol of Terminus-2."""
    return json.dumps({"analysis": "a", "plan": "p", "commands": [], "task_complete": False, **fields})


OLLAMA = [Turn("", [("bash", {"command": SUM})]), Turn("", [("finish", {})])]
SERVED = [
    Turn(act(commands=[{"keystrokes": f"{SUM}\n", "duration": 1.0}])),
    Turn(act(task_complete=True)),
    Turn(act(task_complete=True)),
]
CLAUDE = [
    Turn("", [("mcp__adder__add_file", {"path": "/app/numbers.txt"})]),
    Turn("", [("Bash", {"command": SUM, "description": "Add them"})]),
    Turn("Done."),
]

# What `make setup` leaves, with the packages of these tests: nothing is downloaded.
PARTS = "requirements-dev.lock pyproject.toml src/terminalbench/version.py requirements-uv.lock scripts/uv.sh scripts/setup.sh"
LENT = (
    f"mkdir .venv && ln -s {sys.prefix}/bin .venv/bin\n"
    f'echo "$(pwd) $(cat {PARTS} | cksum | cut -d " " -f 1)" > .venv/.ready'
)


def passed(walked: Walked, batch: str) -> dict[str, int]:
    """How many trials each profile of a batch passed."""
    runs = json.loads((walked.folder / "lab" / "results" / batch / "runs" / "index.json").read_text())["runs"]
    counted = dict.fromkeys((run["agent_key"] for run in runs), 0)
    for run in runs:
        counted[run["agent_key"]] += run["outcome"] == "passed"
    return counted


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Generator[Walked]:
    root = tmp_path_factory.mktemp("person")
    folder, programs = root / "empty", root / "programs"
    folder.mkdir()
    programs.mkdir()
    (programs / "claude").symlink_to(claude_binary())
    env = {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "OPENAI_API_KEY": "sk-scripted-0123456789",
        "ANTHROPIC_API_KEY": "sk-ant-scripted-0123456789",
    }
    with (
        OllamaServer(OLLAMA, model="qwen3:8b") as ollama,
        OpenAIServer(SERVED) as served,
        AnthropicServer(CLAUDE) as claude,
    ):
        tutorial = TUTORIAL
        for address, stand_in in {
            "http://127.0.0.1:11434": ollama.url,
            "http://127.0.0.1:8000/v1": f"{served.url}/v1",
            "https://api.anthropic.com": claude.url,
        }.items():
            assert address in tutorial
            tutorial = tutorial.replace(address, stand_in)
        readme = README.replace("git clone ADDRESS", f"git clone -q {REPO}").replace(
            "\nmake setup\n", f"\n{LENT}\nmake setup\n"
        )
        yield walk(folder, [*shell_blocks(readme), *shell_blocks(tutorial), *HOW_TO], env)


def test_every_command_works_in_its_order(walked: Walked) -> None:
    assert walked.code == 0, "\n".join(walked.said)[-4000:]
    assert len(walked.said) == len(shell_blocks(README)) + len(shell_blocks(TUTORIAL)) + len(HOW_TO)


def test_the_demo_shows_the_difference_that_the_readme_shows(walked: Walked) -> None:
    (sentence,) = re.findall(r"^    (strong vs weak: .*)$", README, re.MULTILINE)
    assert sentence.endswith(": better")
    assert sentence in " ".join(walked.said[0].split())


def test_what_is_ones_own_has_results(walked: Walked) -> None:
    mine = {"mine": 1, "oracle": 1, "nop": 0, "qwen": 1, "served": 1, "careful": 1}
    assert passed(walked, "mine/0") == mine
    assert passed(walked, "tools/0") == {"plain": 1, "adder": 1}


def test_nothing_is_written_outside_but_the_cache(walked: Walked) -> None:
    home = walked.folder.parent / "home"
    assert {path.name for path in home.iterdir()} <= {".cache", ".local"}
    assert {path.name for path in walked.folder.iterdir()} == {"terminalbench", "lab"}


@pytest.mark.parametrize(
    ("page", "mark", "commands"),
    [
        (README, "first comparison", typed(shell_blocks(README)[:1])),
        (TUTORIAL, "own agent", typed(shell_blocks(TUTORIAL)[:1])),
    ],
)
def test_what_has_to_be_typed_is_what_the_page_says(page: str, mark: str, commands: list[list[str]]) -> None:
    """From `git clone` to the first comparison, and from there to the first result of one's own agent."""
    said = re.search(rf"<!-- counted: {mark} -->\n[^\d]*(\d+) commands, (\d+) words", page)
    assert said is not None
    assert (int(said[1]), int(said[2])) == (len(commands), sum(map(len, commands)))
    assert (commands[0][:2], commands[-1][:2]) in (
        (["git", "clone"], ["tbench", "compare"]),
        (["tbench", "init"], ["tbench", "run"]),
    )
    assert f"{len(commands)} commands, {sum(map(len, commands))} words" in README


def test_the_pictures_of_the_readme_are_small_and_our_own() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert sorted(Path(name).suffix for name in shown) == [".png", ".png", ".svg"]
    assert all((REPO / name).stat().st_size < 150_000 for name in shown)
    assert re.findall(r"https?://[^\s\"']+", (REPO / "docs/pictures/live.svg").read_text()) == [
        "http://www.w3.org/2000/svg"
    ]


def test_the_pictures_can_be_made_anew(walked: Walked, tmp_path: Path) -> None:
    batch = walked.folder / "lab" / "results" / "demo" / "0"
    argv = [sys.executable, REPO / "scripts" / "pictures.py", batch, "-o", tmp_path]
    subprocess.run(argv, check=True, timeout=300, capture_output=True)
    assert {path.name: path.stat().st_size < 150_000 for path in tmp_path.iterdir()} == {
        "live.svg": True, "batch.png": True, "report.png": True,
    }  # fmt: skip
    assert all(word in (tmp_path / "live.svg").read_text() for word in ("weak", "strong", "verifier"))
