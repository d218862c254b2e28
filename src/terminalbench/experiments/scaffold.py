"""A first experiment to start from: small, commented, valid."""

import os
from pathlib import Path

from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.agents import AgentInfo, agent_info, agent_names
from terminalbench.experiments.config import marked_root
from terminalbench.experiments.datasets import DatasetPlaces
from terminalbench.strict import Problems

SHOWN_TASKS = 5
_KNOWN_TASKS = {"terminal-bench@2.0": ["fix-git", "sanitize-git-repo", "build-cython-ext"]}

PROMPT = """\
Before you finish, run the project's own checks or reproduce the reported problem,
and say in one line what you saw.
"""
MARK = "# Relative paths in the experiment files of this folder start here. Not needed once there is a .git.\n"


def scaffold(folder: Path, agent: str, model: str | None, dataset: str, slug: str) -> dict[Path, str]:
    """The files of a first experiment, by path. Nothing is written."""
    info = agent_info(agent)
    if info is None:
        raise UserError(f'no agent is called "{agent}"', hint=did_you_mean(agent, agent_names()))
    experiment = folder / "experiments" / f"{slug}.toml"
    prompt = experiment.parent / "prompts" / "check-your-work.md"
    project = marked_root(folder.resolve())
    root = project or folder.resolve()
    tasks = _task_ids(root, dataset)
    environment = "local" if dataset == "starter" else "docker"
    items = "\n".join(f'  {{ id = "{task}" }},' for task in tasks)
    change_me = "  # CHANGE-ME: this dataset's task ids are not known here\n" if tasks == ["CHANGE-ME"] else ""
    files = {}
    if info.model:
        place = Path(os.path.relpath(prompt.resolve(), root)).as_posix()
        baseline, profiles = "plain", _with_model(info, model or info.example_model, place)
        files[prompt] = PROMPT
    else:
        other = "nop" if agent != "nop" else "oracle"
        baseline = agent
        profiles = f'[profiles.{agent}]\nagent = "{agent}"\n\n[profiles.{other}]\nagent = "{other}"\n'
    if project is None:
        files[folder / ".tbench"] = MARK
    text = f"""\
# An experiment: every profile attempts every task, `attempts` times. All keys: docs/experiment-toml.md
schema_version = 2
slug = "{slug}" # results land in results/{slug}/<batch>/
name = "{agent}: does a closing check help?"

[run]
attempts = 3 # trials of each task by each profile: one is an anecdote
parallel = 2 # trials at once within a profile
container_env = "{environment}" # "docker", "local" (no daemon), or any Harbor environment
# budget_usd = 5.0 # no trial starts beyond this spend

[tasks]
default_dataset = "{dataset}"
items = [
{change_me}{items}
]

{profiles}
[analysis]
baseline = "{baseline}" # the others are compared with this one
"""
    return {experiment: text, **files}


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


def _with_model(info: AgentInfo, model: str | None, prompt: str) -> str:
    """`[defaults]` and the profiles of an agent that calls a model."""
    no_mcp = ["no_mcp = true"] if info.mcp else []
    key = f'env = ["{info.key_env}"] # its value: from experiments/.env'
    lines = [
        "[defaults] # what every profile starts from",
        f'agent = "{info.name}"',
        f'model = "{model}"' if model else '# model = "provider/name"',
        *([f'# reasoning = "{(info.reasoning_levels or ("low",))[0]}"'] if info.reasoning else []),
        key if info.key_env else '# env = ["MY_API_KEY"] # names only, never values',
        "",
        "[profiles.plain]",
        *no_mcp,
        "",
        "[profiles.checks-its-work]",
        'description = "the same, asked to check its work"',
        *no_mcp,
        f'prompt = "{prompt}"',
        "",
    ]
    if info.mcp:
        lines += ["# [profiles.with-server] # needs my-server/.mcp.json", '# mcp_servers = ["my-server"]', ""]
    return "\n".join(lines)
