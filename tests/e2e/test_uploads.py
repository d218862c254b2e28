"""What an agent class of one's own brings into its trials is known by its content, from the first trial on."""

import json

AGENT = """
from pathlib import Path
from tempfile import NamedTemporaryFile

from harbor.agents.base import BaseAgent

HERE = Path(__file__).parent


class Mine(BaseAgent):
    AGENT_INFO = {"model": False}

    @staticmethod
    def name():
        return "mine"

    def version(self):
        return "1"

    async def setup(self, environment):
        await environment.upload_file(Path("tools") / "cli.sh", "/opt/cli.sh")
        await environment.upload_dir(Path("tools") / "more", "/opt/more")

    async def run(self, instruction, environment, context):
        with NamedTemporaryFile("w") as made:
            made.write(instruction)
            made.flush()
            await environment.upload_file(made.name, "/tmp/instruction.md")
        await environment.exec("sh /opt/cli.sh")
"""
PROFILE = '[profiles.mine]\nagent = "mine_agent:Mine"\n'


def digests(lab, number: int = 0) -> dict[str, str]:
    return json.loads(lab.batch(number).plan_json.read_text())["profiles"][0].get("uploads", {})


def test_a_file_that_its_class_brings_is_part_of_what_a_profile_is(lab) -> None:
    lab.project.write("mine_agent.py", AGENT)
    lab.project.write("tools/cli.sh", "echo forty-two > /app/answer.txt\n")
    lab.project.write("tools/more/notes.txt", "one")
    file = lab.experiment(PROFILE, tasks=("a",))
    assert lab.tbench("run", file).returncode == 0
    assert set(digests(lab)) == {"tools/cli.sh", "tools/more"}, "nothing that it made for the trial"
    assert lab.tbench("resume", file, "--attempts", "2").returncode == 0
    assert "changed-profiles" not in lab.tbench("compare", lab.batch().folder, "--json").stdout

    lab.project.write("tools/cli.sh", "echo 43 > /app/answer.txt\n")
    refused = lab.tbench("resume", file, "--attempts", "3")
    assert refused.returncode == 2, refused.stdout
    assert 'profile "mine" has changed: tools/cli.sh' in refused.stderr
    assert lab.tbench("run", file).returncode == 0
    compared = lab.tbench("compare", lab.batch(0).folder, lab.batch(1).folder)
    assert "mine had a different tools/cli.sh in s/1 than in s/0" in " ".join(
        (compared.stdout + compared.stderr).split()
    )

    accepted = lab.tbench("resume", lab.batch(0).folder, "--attempts", "3", "--accept-changed")
    assert accepted.returncode == 0, accepted.stderr
    assert digests(lab, 0)["tools/cli.sh"] == digests(lab, 1)["tools/cli.sh"]
    assert lab.tbench("report", lab.batch(0).folder, "-o", lab.root / "report").returncode == 0
    (page,) = (lab.root / "report").rglob("comparison_report.md")
    assert 'profile "mine" has changed: tools/cli.sh' in " ".join(page.read_text().split())


ONCE = """        if (new := HERE / "tools" / "new.sh").exists():
            new.rename(HERE / "tools" / "cli.sh")
        await environment.upload_dir"""
CHANGING = AGENT.replace("        await environment.upload_dir", ONCE)


def test_a_file_that_changes_during_a_run_is_a_departure(lab) -> None:
    lab.project.write("mine_agent.py", CHANGING)
    lab.project.write("tools/cli.sh", "echo forty-two > /app/answer.txt\n")
    lab.project.write("tools/new.sh", "echo forty-two > /app/answer.txt # another\n")
    lab.project.write("tools/more/notes.txt", "one")
    ran = lab.tbench("run", lab.experiment(PROFILE, run="parallel = 1"))
    assert 'trials of profile "mine" had a different tools/cli.sh' in ran.stdout + ran.stderr
    compared = lab.tbench("compare", lab.batch().folder)
    assert 'trials of profile "mine" had a different tools/cli.sh' in " ".join(
        (compared.stdout + compared.stderr).split()
    )
