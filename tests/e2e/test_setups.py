"""An agent is installed once: later trials start from what its set-up left, the verifier never."""

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from support.tasks import SOLVE, write_task
from terminalbench.json_files import read_json
from terminalbench.records.trial import SETUP_FILE, SetupNote

AGENT = f"""
import asyncio
from pathlib import Path

from harbor.agents.base import BaseAgent
from harbor.agents.options import AgentOptions


class Options(AgentOptions):
    commands: list[str] = []
    side_by_side: bool = False


class Installed(BaseAgent):
    told = ""
    options_model = Options

    @staticmethod
    def name() -> str:
        return "installed"

    def version(self) -> str:
        return self.told

    async def setup(self, environment) -> None:
        file = Path(__file__).with_name("tool.txt")
        await environment.exec("mkdir -p /opt/tool /usr/local/lib", user="root")
        await environment.upload_file(file, "/opt/tool/note")
        calls = [environment.exec(command) for command in self.options.commands]
        done = await asyncio.gather(*calls) if self.options.side_by_side else [await call for call in calls]
        if any(one.return_code for one in done):
            raise RuntimeError("the set-up failed")
        self.told = (await environment.exec("cat /opt/tool/made")).stdout.strip()

    async def run(self, instruction, environment, context) -> None:
        told = "cat /opt/tool/made /opt/tool/note; ls /usr/local/lib/mine; cat /proc/[0-9]*/comm | grep -cx sleep; echo $SETUP_KEY"
        done = await environment.exec(told)
        (self.logs_dir / "seen").write_text(done.stdout)
        await environment.exec("{SOLVE}")
"""
MAKE = "date +%s.%N > /opt/tool/made && touch /usr/local/lib/mine"
TEST = """#!/bin/bash
if [ -e /usr/local/lib/mine ] || [ -e /opt/tool/made ]; then echo 0.5 > /logs/verifier/reward.txt; exit; fi
"""


@pytest.fixture
def run(lab):
    """A lab with an agent that is set up by commands; `run(...)` runs two attempts of each profile, and says what they saw."""
    lab.project.write("own_agents.py", AGENT)
    lab.project.write("tool.txt", "one\n")
    token = secrets.token_hex(8)  # what other tests made does not count
    folder = write_task(lab.root / "tasks" / "t")
    test = (folder / "tests" / "test.sh").read_text()
    (folder / "tests" / "test.sh").write_text(test.replace("#!/bin/bash\n", TEST))
    lab.env["SETUP_KEY"] = "sk-set-up-0123456789"

    def profile(name: str, commands: Sequence[str]) -> str:
        listed = ", ".join(repr(command) for command in (f": {token}", *commands))
        more = ", side_by_side = true" if name == "side" else ""
        options = f"options = {{ commands = [{listed}]{more} }}"
        return f'[profiles.{name}]\nagent = "own_agents:Installed"\n{options}\nenv = ["SETUP_KEY"]\n'

    def ran(profiles: Mapping[str, Sequence[str]], *options: str, code: int = 0) -> dict[str, list[list[str]]]:
        (lab.root / "results").mkdir(exist_ok=True)
        text = "".join(profile(name, commands) for name, commands in profiles.items())
        file = lab.experiment(text, tasks=("t",), run="attempts = 2\nparallel = 1")
        done = lab.tbench("run", file, *options)
        assert done.returncode == code, done.stdout + done.stderr
        seen: dict[str, list[list[str]]] = {name: [] for name in profiles}
        for told in sorted(newest(lab).glob("runs/*/t__*/agent/seen")):
            seen[told.parents[2].name.rpartition("__")[2]].append(told.read_text().split())
        return seen

    return ran


@pytest.fixture
def agent(run):
    """`agent(...)` runs one profile."""
    return lambda *commands, options=(): run({"p": commands}, *options)["p"]


def newest(lab) -> Path:
    return max((lab.root / "results" / "s").iterdir(), key=lambda folder: int(folder.name))


def notes(lab) -> list[SetupNote]:
    return [read_json(file, SetupNote) for file in newest(lab).glob(f"runs/*/t__*/{SETUP_FILE}")]


def test_a_set_up_is_done_once_and_never_shown_to_the_tests(lab, agent) -> None:
    first, second = agent(MAKE)
    assert first == second, "what the set-up made is the same, and so is all that the agent sees"
    assert first[1:] == ["one", "/usr/local/lib/mine", "0", "[redacted]"]
    assert set(lab.outcomes()["p", "t"]) == {"passed"}, "the verifier has the image's system and none of the set-up"
    assert sorted(note.made_here for note in notes(lab)) == [False, True]
    assert len({note.layer for note in notes(lab)}) == 1
    listed = json.loads(lab.tbench("list", lab.batch().folder, "--json").stdout)
    versions = {trial["agent_version"] for trial in listed}
    assert versions == {first[0]}, "the version that was installed is that of every trial"

    said = lab.tbench("show", lab.batch().folder, "p", "t#2").stdout
    assert "image     none: this machine's own system is used instead" in said
    assert "  set-up    " in said
    fresh = agent(MAKE, options=("--fresh-setup",))
    assert fresh[0] == fresh[1] != first
    assert agent(MAKE) == [fresh[0], fresh[0]], "another batch starts from it too, from the newest"
    lab.project.write("tool.txt", "two\n")
    other = agent(MAKE)
    assert (other[0][1], other[0] == other[1]) == ("two", True)
    assert other[0][0] not in (first[0], fresh[0][0]), "other bytes, another set-up"
    assert agent(MAKE, "true")[0][0] not in (first[0], other[0][0])


def test_what_cannot_be_kept_is_done_by_every_trial(lab, run) -> None:
    profiles = {
        "left": (MAKE, "nohup sleep 1000 > /dev/null 2>&1 &"),
        "secret": (MAKE, "echo $SETUP_KEY > /opt/tool/key"),
        "said": (MAKE, "echo $SETUP_KEY"),
        "side": (MAKE, "sleep 0.3"),
        "fails": (MAKE, "[ -e /opt/tool/note2 ]"),
    }
    seen = run(profiles, code=3)
    assert [one[3] for one in seen["left"]] == ["1", "1"], "what it started runs"
    assert seen.pop("fails") == []
    for name, (first, second) in seen.items():
        assert first[0] != second[0], name
    assert {entry["outcome"] for entry in lab.index() if entry["agent_key"] == "fails"} == {"errored"}
    assert notes(lab) == [], "neither a secret nor a set-up that fails is kept"
