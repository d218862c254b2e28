"""A first experiment to start from: small, commented, valid."""

import os
from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.agents import AgentInfo, agent_info, agent_names
from terminalbench.experiments.config import marked_root
from terminalbench.experiments.datasets import DatasetPlaces
from terminalbench.experiments.strict import Problems

SHOWN_TASKS = 5
_KNOWN_TASKS = {"terminal-bench@2.0": ["fix-git", "sanitize-git-repo", "build-cython-ext"]}

PROMPT = """\
Before you finish, run the project's own checks or reproduce the reported problem,
and say in one line what you saw.
"""


MARK = "# Relative paths in the experiment files of this folder start here. Not needed once there is a .git.\n"


@dataclass(frozen=True)
class Choices:
    """What the user said on the command line."""

    agent: str
    model: str | None
    dataset: str
    slug: str


def scaffold(folder: Path, choices: Choices) -> dict[Path, str]:
    """The files of a first experiment, by path. Nothing is written."""
    info = agent_info(choices.agent)
    if info is None:
        raise UserError(f'no agent is called "{choices.agent}"', hint=did_you_mean(choices.agent, agent_names()))
    experiment = folder / "experiments" / f"{choices.slug}.toml"
    prompt = experiment.parent / "prompts" / "check-your-work.md"
    project = marked_root(folder.resolve())
    root = project or folder.resolve()
    place = Path(os.path.relpath(prompt.resolve(), root)).as_posix()
    files = {experiment: _toml(root, choices, info, place)}
    if info.model:
        files[prompt] = PROMPT
    if project is None:
        files[folder / ".tbench"] = MARK
    return files


def _task_ids(root: Path, dataset: str) -> list[str]:
    problems = Problems()
    found = DatasetPlaces(root, {}, None).find(dataset, "--dataset", problems)
    if found is None:
        problem = problems.found[0]
        raise UserError(f"--dataset: {problem.what}", hint=problem.hint)
    known = found.known_tasks()
    if known == []:
        raise UserError(f"--dataset: {dataset} holds no tasks (a task is a folder with task.toml)")
    return (known or _KNOWN_TASKS.get(dataset) or ["CHANGE-ME"])[:SHOWN_TASKS]


def _toml(root: Path, choices: Choices, info: AgentInfo, prompt: str) -> str:
    tasks = _task_ids(root, choices.dataset)
    environment = "local" if choices.dataset == "starter" else "docker"
    items = "\n".join(f'  {{ id = "{task}" }},' for task in tasks)
    change_me = "  # CHANGE-ME: this dataset's task ids are not known here\n" if tasks == ["CHANGE-ME"] else ""
    return f"""\
# An experiment: every profile attempts every task, `attempts` times. All keys: docs/experiment-toml.md
schema_version = 2
slug = "{choices.slug}" # results land in results/{choices.slug}/<batch>/
name = "{choices.agent}: does a closing check help?"

[run]
attempts = 3 # trials of each task by each profile: one is an anecdote
parallel = 2 # trials at once within a profile
container_env = "{environment}" # "docker", "local" (no daemon), or any Harbor environment
# budget_usd = 5.0 # no trial starts beyond this spend

[tasks]
default_dataset = "{choices.dataset}"
items = [
{change_me}{items}
]

{_defaults(choices, info)}{_profiles(choices, info, prompt)}
[analysis]
baseline = "{_baseline(info)}" # the others are compared with this one
"""


def _baseline(info: AgentInfo) -> str:
    return "plain" if info.model else info.name


def _defaults(choices: Choices, info: AgentInfo) -> str:
    if not info.model:
        return ""
    model = choices.model or info.example_model
    lines = ["[defaults] # what every profile starts from", f'agent = "{choices.agent}"']
    lines.append(f'model = "{model}"' if model else '# model = "provider/name"')
    if info.reasoning:
        lines.append(f'# reasoning = "{(info.reasoning_levels or ("low",))[0]}"')
    lines.append(
        f'env = ["{info.key_env}"] # its value: from experiments/.env'
        if info.key_env
        else '# env = ["MY_API_KEY"] # names only, never values'
    )
    return "\n".join(lines) + "\n\n"


def _profiles(choices: Choices, info: AgentInfo, prompt: str) -> str:
    if not info.model:
        other = "nop" if choices.agent != "nop" else "oracle"
        return f'[profiles.{choices.agent}]\nagent = "{choices.agent}"\n\n[profiles.{other}]\nagent = "{other}"\n'
    no_mcp = "no_mcp = true\n" if info.mcp else ""
    with_server = (
        '\n# [profiles.with-server] # needs my-server/.mcp.json\n# mcp_servers = ["my-server"]\n' if info.mcp else ""
    )
    return f"""\
[profiles.plain]
{no_mcp}
[profiles.checks-its-work]
description = "the same, asked to check its work"
{no_mcp}prompt = "{prompt}"
{with_server}"""
