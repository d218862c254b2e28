"""Harbor's agents in the local sandbox, each against a scripted server of its API: a task, tokens, and what fails.

Ordinarily those whose programs the tests have. `make agents` (TBENCH_AGENTS=all, or names) installs the others too,
for minutes, and writes the tables of docs/agents.md.
"""

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest
from real_agents import (
    AGENTS,
    BY_NAME,
    CASES,
    DOWN,
    PAGE,
    SERVED,
    RealAgent,
    behaviour,
    nowhere,
    profiles,
    usage_script,
)

from servers.base import Tokens
from support.tasks import write_task
from support.tools import CLAUDE, TMUX
from terminalbench.experiments.agents import AgentInfo, agent_info, agent_names
from terminalbench.harbor.read.results import read_job
from terminalbench.records.trial import Trial

ASKED = os.environ.get("TBENCH_AGENTS", "")
ALL = ASKED == "all"
HERE = {"claude-code": CLAUDE, "terminus-2": TMUX}
"""The agents that the tests have anyway, with the tool that each needs."""
SHORT = {"terminus-2": ("works", "401"), "claude-code": ("works", "down")}
"""What is tried ordinarily where the rest takes minutes of waiting, or is shown elsewhere: of Claude Code by test_outage.py."""
EXPECTED = {"401": {"auth"}, "429": {"rate_limit"}, "down": {"network", "provider"}}
INSTALL_SEC = 1500


def wanted(agent: RealAgent) -> bool:
    return ALL or agent.name in (ASKED.split(",") if ASKED else HERE)


@pytest.mark.long
@pytest.mark.timeout(2 * INSTALL_SEC if ASKED else 600)
@pytest.mark.parametrize("name", [agent.name for agent in AGENTS if wanted(agent)])
def test_an_agent_passes_a_task_and_its_errors_are_the_providers(name: str, lab, tmp_path: Path) -> None:
    agent = BY_NAME[name]
    if name in HERE:
        HERE[name].path()
    trials, served = run_agent(agent, CASES if ASKED else SHORT.get(name, CASES), lab, tmp_path)
    if ASKED:
        write_row(Row.of(agent, trials, served))
    assert trials["works"].outcome == "passed", trials["works"]
    assert told_tokens(trials["works"]) == billed_tokens(served)
    for case, told in agent.gaps.items():
        assert trials[case].error_class == told, "mend the page, and its gaps"
    for case in trials.keys() & EXPECTED.keys() - agent.gaps.keys():
        assert trials[case].outcome == "errored", trials[case]
        assert trials[case].error_class in EXPECTED[case], trials[case]


def told_tokens(trial: Trial) -> tuple[int | None, int | None]:
    """The input tokens of a trial, with those of the cache, and its output tokens, as the record has them."""
    used = trial.usage
    fresh = used.input_tokens
    return fresh + (used.cache_read_tokens or 0) if fresh is not None else None, used.output_tokens


def billed_tokens(served: list[Tokens]) -> tuple[int, int]:
    return sum(one.input + one.cache_read for one in served), sum(one.output for one in served)


def run_agent(agent: RealAgent, cases: Sequence[str], lab, folder: Path) -> tuple[dict[str, Trial], list[Tokens]]:
    """Run one batch with a task for each case; return the trial of each, and what the server billed."""
    for case in cases:
        task = write_task(lab.root / "tasks" / case, agent_sec=agent.limit_sec)
        text = (task / "instruction.md").read_text()
        (task / "instruction.md").write_text(f"{text}{behaviour(case)}\n")
    (lab.root / "usage.py").write_text(usage_script())
    lab.env |= {agent.key: "sk-scripted-0123456789", "PATH": f"{program_folder(agent, folder)}:{lab.env['PATH']}"}
    trials: dict[str, Trial] = {}
    with agent.serve() as server:
        for tasks, url in ((SERVED, server.url), ((DOWN,), nowhere())):
            wanted_tasks = tuple(case for case in tasks if case in cases)
            run = "parallel = 3\non_auth_failure = 'continue'\non_setup_failure = 'continue'\nca = 'host'"
            file = lab.experiment(agent.profile("p", url), tasks=wanted_tasks, run=run)
            number = int(bool(trials))
            ran = lab.tbench("run", file) if wanted_tasks else None
            for job in lab.batch(number).runs.iterdir() if ran else ():
                found = [read.trial for read in read_job(job)] if job.is_dir() else []
                trials |= {one.task: one for one in found if one is not None}
            assert set(wanted_tasks) <= trials.keys(), f"{ran.stdout}{ran.stderr}" if ran else ""
    return trials, server.billed


def program_folder(agent: RealAgent, folder: Path) -> str:
    """Where the program of an agent is that its profile takes from this machine."""
    programs = tomllib.loads(profiles()[agent.name])["profiles"][agent.name].get("programs", ())
    if not programs:
        return ""
    if agent.name in HERE:
        return str(HERE[agent.name].path().parent)
    if (found := shutil.which(programs[0])) is not None:
        return str(Path(found).parent)
    assert agent.get is not None
    subprocess.run(["sh", "-c", agent.get.format(folder / "agent")], check=True, timeout=INSTALL_SEC)
    return f"{folder / 'agent' / 'node_modules' / '.bin'}:{folder / 'agent' / 'bin'}"


@dataclass(frozen=True)
class Row:
    """A row of the table of what ran."""

    agent: str
    how: str
    task: str
    tokens: str
    cost: str
    refused: str
    limited: str
    down: str

    @classmethod
    def of(cls, agent: RealAgent, trials: dict[str, Trial], served: list[Tokens]) -> Self:
        """Of the trials of the cases."""
        cost, told, billed = trials["works"].usage.cost_usd, told_tokens(trials["works"]), billed_tokens(served)
        tokens = "unknown" if told == (None, None) else "as served" if told == billed else f"{told}, not {billed}"
        ends = [str(trials[case].error_class or trials[case].outcome) for case in CASES[1:]]
        money = "unknown" if cost is None else f"${cost:.4f}"
        return cls(agent.name, way_in(agent.name), str(trials["works"].outcome), tokens, money, *ends)


def way_in(name: str) -> str:
    """How an agent gets into the sandbox by its profile."""
    profile = tomllib.loads(profiles()[name])["profiles"][name]
    if "programs" in profile:
        return f"`{profile['programs'][0]}` of this machine"
    installs = [line for line in profile.get("command", {}).get("install", ()) if " install " in line]
    return (
        f"`{installs[0].removeprefix('/opt/').partition('/bin/')[2] or installs[0]}`"
        if installs
        else "nothing to install"
    )


HEAD_RAN = (
    "| agent | how it gets in | task | tokens | cost | 401 | 429 | no server |\n|---|---|---|---|---|---|---|---|\n"
)
HEAD_NEEDS = "| agent | needs | unless it finds | its program from npm or PyPI |\n|---|---|---|---|\n"


def between(name: str) -> str:
    """What the page has between the marks of a table."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def write_table(name: str, text: str) -> None:
    PAGE.write_text(PAGE.read_text().replace(f"<!-- {name} -->\n{between(name)}", f"<!-- {name} -->\n{text}"))


def written_rows() -> dict[str, str]:
    return {line.split("|")[1].strip(): line for line in between("ran").splitlines()[2:]}


def write_row(row: Row) -> None:
    rows = {**written_rows(), row.agent: f"| {' | '.join(vars(row).values())} |"}
    write_table("ran", HEAD_RAN + "".join(f"{rows[agent.name]}\n" for agent in AGENTS if agent.name in rows))


def needs_table() -> str:
    """The table of what the set-ups need, as the records have it."""
    found = [info for name in agent_names() if (info := agent_info(name)) is not None and info.needs]
    return HEAD_NEEDS + "".join(f"{_needs_row(info)}\n" for info in found)


def _needs_row(info: AgentInfo) -> str:
    hosts = ", ".join(" or ".join(need["hosts"]) for need in info.needs)
    unless = ", ".join(f"`{thing}`" for need in info.needs for thing in need["unless"])
    return f"| {info.name} | {hosts} | {unless} | {f'`{info.package}`' if info.package else ''} |"


def test_the_page_has_every_agent_that_was_tried_and_what_each_set_up_needs() -> None:
    if ASKED:
        write_table("needs", needs_table())
    assert between("needs") == needs_table(), "run: make agents"
    assert list(written_rows()) == [agent.name for agent in AGENTS], "run: make agents"
    for name, line in written_rows().items():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == HEAD_RAN.splitlines()[0].count("|") - 1
        assert all(cells), line
        assert cells[1] == way_in(name)


def test_the_profiles_of_the_page_are_valid(lab) -> None:
    programs = lab.root.parent / "programs"
    programs.mkdir()
    for name in ("claude", "codex", "mini"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    (lab.root / "usage.py").write_text(usage_script())
    lab.env |= {"PATH": f"{programs}:{lab.env['PATH']}", **{agent.key: "sk-scripted-0123456789" for agent in AGENTS}}
    told = lab.tbench("validate", lab.experiment("\n".join(profiles().values())))
    assert told.returncode == 0, told.stderr
    assert set(profiles()) == set(BY_NAME) <= set(agent_names())
