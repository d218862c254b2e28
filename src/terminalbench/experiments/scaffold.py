"""A first experiment to start from: small, commented, valid."""

import contextlib
import os
import re
import sys
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.agents import AgentInfo, agent_info, agent_names
from terminalbench.experiments.command import command_profile
from terminalbench.experiments.datasets import DatasetPlaces
from terminalbench.experiments.environments import usual_environment
from terminalbench.experiments.project import marked_root
from terminalbench.strict import Problems
from terminalbench.text.names import typed

TASKS = "tasks"
"""The folder of a project's own tasks, which is a dataset."""
SHOWN_TASKS = 5
_KNOWN_TASKS = {"terminal-bench@2.0": ["fix-git", "sanitize-git-repo", "build-cython-ext"]}

_TEMPLATES = Path(__file__).parent / "templates"
GITIGNORE = ".gitignore"
SHARED = (GITIGNORE, ".tbench", "check-your-work.md")
"""Files that several experiments of a project have in common: where one is there, it stays."""
IGNORED = (".env", "results/")
"""Lines of a .gitignore: keys, and what trials leave."""
_NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
_STARTER = """\
default_dataset = "starter" # or a folder of tasks of your own: tbench init --task NAME
items = "all\""""
_COMPANIONS = ("oracle", "nop")
"""Profiles that every experiment of one's own has."""
MARK = "# Relative paths in the experiment files of this folder start here. Not needed once there is a .git.\n"


def _template(file: str, /, **words: str) -> str:
    """Return a file of the templates, with a word in the place of each `{name}`; other braces stay."""
    text = (_TEMPLATES / file).read_text(encoding="utf-8")
    for key, value in words.items():
        text = text.replace(f"{{{key}}}", value)
    return text


def task_files(folder: Path, name: str) -> dict[Path, str]:
    """Return the files of a new task, by path."""
    files = (path for path in sorted((_TEMPLATES / "task").rglob("*")) if path.is_file())
    return {
        folder / TASKS / name / path.relative_to(_TEMPLATES / "task"): _template(str(path), name=name) for path in files
    }


def module_of(name: str) -> str:
    """Return the module of an agent of one's own: in the project's root, from where it is imported."""
    return name.replace("-", "_").replace(".", "_")


def agent_class(name: str) -> str:
    """Return the class of an agent of one's own."""
    return "".join(part.capitalize() for part in module_of(name).split("_") if part) or "Agent"


def agent_module(name: str) -> str:
    """Return the text of the module of a new agent."""
    return _template("agent.py.txt", name=name, cls=agent_class(name))


def scaffold(folder: Path, agent: str, model: str | None, dataset: str, slug: str) -> dict[Path, str]:
    """The files of a first experiment, by path. Nothing is written."""
    info = agent_info(agent)
    if info is None:
        raise UserError(f'no agent is called "{agent}"', hint=did_you_mean(agent, agent_names()))
    experiment = experiment_file(folder, slug)
    prompt = experiment.parent / "prompts" / "check-your-work.md"
    project = marked_root(folder.resolve())
    root = project or folder.resolve()
    tasks = _task_ids(root, dataset)
    environment = "local" if dataset == "starter" else usual_environment()
    items = "\n".join(f'  {{ id = "{task}" }},' for task in tasks)
    if tasks == ["CHANGE-ME"]:
        items = f"  # CHANGE-ME: this dataset's task ids are not known here\n{items}"
    files = {}
    if info.model:
        place = Path(os.path.relpath(prompt.resolve(), root)).as_posix()
        baseline, profiles = "plain", _with_model(info, model or info.example_model, place)
        files[prompt] = _template(prompt.name)
    else:
        other = "nop" if agent != "nop" else "oracle"
        baseline = agent
        profiles = f'[profiles.{agent}]\nagent = "{agent}"\n\n[profiles.{other}]\nagent = "{other}"\n'
    words = {"slug": slug, "agent": agent, "dataset": dataset, "environment": environment, "baseline": baseline}
    text = _template("first.toml", **words, items=items, profiles=profiles)
    return {experiment: text, **files, **project_files(folder, project)}


def demo(folder: Path) -> dict[Path, str]:
    """The files of an experiment without a key, with a difference to be seen."""
    return {
        experiment_file(folder, "demo"): _template("demo.toml"),
        **project_files(folder, marked_root(folder.resolve())),
    }


def own(
    folder: Path, agent: str | None, task: str | None, words: Sequence[str] = (), slug: str | None = None
) -> dict[Path, str]:
    """The files of a task or an agent of one's own, or of both, and of an experiment that runs them.

    With `words` the agent is that program. Without a `slug` the experiment is called as the agent, else as the task.
    """
    name = slug or agent or task or ""
    _check_names(agent, task)
    if agent in _COMPANIONS:
        raise UserError(
            f'every new experiment has a profile "{agent}" already', hint=f"choose another name: my-{agent}"
        )
    if agent is not None and not words and (taken := _taken_module(module_of(agent), folder)) is not None:
        hint = f"choose another name: --agent my-{agent}"
        raise UserError(f"--agent: {module_of(agent)}.py would hide {taken} of the same name", hint=hint)
    root = marked_root(folder.resolve())
    if agent is not None and not words and root not in (None, folder.resolve()):
        raise UserError(
            f"your own agent is imported from the root of the project, {root}",
            where=str(folder),
            hint=f"create it there: tbench init {typed(root)} --agent {agent}" if root else None,
        )
    place = os.path.relpath((folder / TASKS).resolve(), root or folder.resolve())
    if task:
        items = f'default_dataset = "{place}"\nitems = [{{ id = "{task}" }}]'
    elif any((folder / TASKS).glob("*/task.toml")):
        items = f'default_dataset = "{place}"\nitems = "all"'
    else:
        items = _STARTER
    mine = f'[profiles.{agent}]\nagent = "{module_of(agent)}:{agent_class(agent)}"\n\n' if agent else ""
    if agent and words:
        mine = f"{_command_profile(agent, words, root or folder.resolve())}\n"
    made = {experiment_file(folder, name): _template("own.toml", slug=name, items=items, mine=mine)}
    made |= task_files(folder, task) if task else {}
    made |= {folder / f"{module_of(agent)}.py": agent_module(agent)} if agent and not words else {}
    return made | project_files(folder, root)


def _check_names(agent: str | None, task: str | None) -> None:
    for what, given in (("--agent", agent), ("--task", task)):
        if given is not None and not re.fullmatch(_NAME, given):
            raise UserError(f"{what}: a new name may have lower-case letters, digits and dashes only, not {given!r}")


def _command_profile(name: str, words: Sequence[str], root: Path) -> str:
    """The text of a profile whose agent is a program."""
    import tomlkit

    table = command_profile(words, root)
    inner, outer = (
        "".join(f"{key} = {tomlkit.item(value).as_string()}\n" for key, value in part.items())
        for part in (table.pop("command"), table)
    )
    return f"[profiles.{name}]\n{outer}[profiles.{name}.command] # docs/your-agent.md\n{inner}"


def of_own_tasks(folder: Path) -> Path | None:
    """Return the experiment of a project on its own tasks; None where there is none, or several."""
    place, found = os.path.relpath((folder / TASKS).resolve(), marked_root(folder.resolve()) or folder.resolve()), []
    for file in sorted((folder / "experiments").glob("*.toml")):
        with contextlib.suppress(OSError, ValueError):
            tasks = tomllib.loads(file.read_text(encoding="utf-8")).get("tasks")
            found += [file] if isinstance(tasks, dict) and tasks.get("default_dataset") == place else []
    return found[0] if len(found) == 1 else None


def extended(experiment: Path, agent: str | None, task: str | None, words: Sequence[str], folder: Path) -> str:
    """The text of an experiment with one more profile, or one more task."""
    import tomlkit

    _check_names(agent, task)
    document = tomlkit.parse(experiment.read_text(encoding="utf-8"))
    root = marked_root(folder.resolve()) or folder.resolve()
    if task is not None:
        tasks = document.setdefault("tasks", tomlkit.table())
        items = tasks.get("items")
        place = os.path.relpath((folder / TASKS).resolve(), root)
        if not isinstance(items, list) and tasks.get("default_dataset") != place:
            raise UserError(f"tasks.items is {items!r}, not a list", where=str(experiment), hint="add the task by hand")
        if isinstance(items, list):  # else it has all that are there
            item = tomlkit.inline_table()
            item.update({"id": task} if tasks.get("default_dataset") == place else {"id": task, "dataset": place})
            items.append(item)
    text = tomlkit.dumps(document)
    if agent is not None:
        if agent in (document.get("profiles") or {}):
            raise UserError(f'a profile is called "{agent}" already', where=str(experiment), hint="choose another name")
        own = [key for key in document["profiles"] if key not in _COMPANIONS]
        analysis = document.get("analysis") or {}
        if own and analysis.get("baseline") == "nop":
            analysis["baseline"] = own[0]  # its versions are compared with each other
            text = tomlkit.dumps(document)
        text = f"{text.rstrip()}\n\n{_command_profile(agent, words, root)}"
    return text


def _taken_module(name: str, folder: Path) -> str | None:
    """Return what a module of this name would hide from Python: one of its own, or an installed one."""
    from importlib.util import find_spec

    if name in sys.stdlib_module_names:
        return "the standard library module"
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])]
    own = any(Path(place).with_suffix("").resolve() == folder.resolve() / name for place in places)
    return None if own else "the installed module"


def close_to_one(agent: str) -> bool:
    """Return whether a name is so close to that of an agent which exists that it is meant, and mistyped."""
    names = agent_names()
    return bool(get_close_matches(agent, names, n=1, cutoff=0.8)) or any(n.startswith(f"{agent}-") for n in names)


def experiment_file(folder: Path, slug: str) -> Path:
    """Return where the experiment called `slug` of a project goes."""
    return folder / "experiments" / f"{slug}.toml"


def project_files(folder: Path, project: Path | None) -> dict[Path, str]:
    """Return what a project has besides: the mark of its root where nothing else is one; in a repository, a .gitignore.

    One that is there gets the lines that it lacks.
    """
    files = {folder / ".tbench": MARK} if project is None else {}
    if project is not None and (project / ".git").exists():
        ignored = project / GITIGNORE
        text = ignored.read_text(errors="surrogateescape") if ignored.is_file() else ""
        lacking = [line for line in IGNORED if line not in text.splitlines()]
        if lacking:
            ended = text if not text or text.endswith("\n") else f"{text}\n"
            files[ignored] = ended + "".join(f"{line}\n" for line in lacking)
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


def _with_model(info: AgentInfo, model: str | None, prompt: str) -> str:
    """`[defaults]` and the profiles of an agent that calls a model."""
    no_mcp = ["no_mcp = true"] if info.mcp else []
    key = f'env = ["{info.key_env}"] # its value is read from experiments/.env'
    lines = [
        "[defaults] # keys that every profile starts from",
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
