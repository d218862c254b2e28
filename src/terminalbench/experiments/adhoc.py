"""An experiment without a file: agents and tasks of a command line become one, so that the run can be repeated."""

import hashlib
import os
import re
import shlex
import tomllib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terminalbench.errors import InvalidFile, Problem, UserError, did_you_mean
from terminalbench.experiments.agents import AgentInfo, agent_info, agent_names
from terminalbench.experiments.command import command_profile, is_interpreter, words_of
from terminalbench.experiments.config import load, load_tables
from terminalbench.experiments.environments import usual_environment
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.project import from_root, marked_root
from terminalbench.experiments.scaffold import MARK
from terminalbench.experiments.tables import SCHEMA_VERSION
from terminalbench.files import write_project_file
from terminalbench.registry import is_import_path
from terminalbench.strict import is_folder

_PLAIN = re.compile(r"[^A-Za-z0-9._]+")
_LONGEST_SLUG = 60


@dataclass(frozen=True)
class AdHoc:
    """A run without a file: `tasks` as `DATASET/ID` or globs; `versus`, more profiles, as `AGENT[:MODEL]` or `:MODEL`.

    `commands` are profiles of agent `command`, each a line of the shell.
    """

    agent: str | None
    model: str | None
    tasks: Sequence[str]
    versus: Sequence[str] = ()
    attempts: int | None = None
    container_env: str | None = None
    commands: Sequence[str] = ()

    @property
    def arguments(self) -> list[str]:
        """The same as arguments of `tbench run`."""
        given = ["--agent", self.agent] if self.agent else []
        given += ["--model", self.model] if self.model else []
        given += [argument for line in self.commands for argument in ("--command", line)]
        given += [argument for spec in self.versus for argument in ("--vs", spec)]
        given += ["--tasks", *self.tasks]
        given += ["--attempts", str(self.attempts)] if self.attempts else []
        return given + (["--container-env", self.container_env] if self.container_env else [])


@dataclass(frozen=True)
class Draft:
    """An experiment without a file, and the text of the file that a batch of it gets."""

    experiment: Experiment
    text: str

    @contextmanager
    def written(self) -> Generator[None]:
        """Its file is there, and the mark of the project's root; both stay when a batch of it was made meanwhile."""
        file, root = self.experiment.file, self.experiment.root
        files = {root / ".tbench": MARK} if marked_root(root) is None else {}
        made = [] if file.exists() else [*files, file]
        for path in made:
            write_project_file(path, {**files, file: self.text}[path])
        try:
            yield
        except UserError as error:
            error.where = error.where if error.where != str(file) or file not in made else None  # it will be gone
            raise
        finally:
            if not (self.experiment.results_root / self.experiment.slug).exists():
                for path in made:
                    path.unlink(missing_ok=True)
                with suppress(OSError):  # others are in it
                    file.parent.rmdir()
                    file.parent.parent.rmdir()


def draft_ad_hoc(asked: AdHoc, here: Path, root: Path | None = None) -> Draft:
    """The experiment, with its place in `experiments/adhoc/` of the project around a folder. Nothing is written."""
    if not (asked.agent or asked.commands) or not asked.tasks:
        hint = "tbench init makes one; or tbench run --agent NAME --tasks 'starter/*'"
        raise UserError("name an experiment file, or --agent and --tasks for a run without one", hint=hint)
    root = root.absolute() if root is not None else marked_root(here) or here
    slug, text = ad_hoc(asked, root)
    file = root / "experiments" / "adhoc" / f"{slug}.toml"
    if file.exists():
        return Draft(load(file, root), text)
    try:
        return Draft(load_tables(tomllib.loads(text), file, root), text)
    except InvalidFile as error:
        raise InvalidFile("", [Problem(_option(p.key), p.what, p.hint) for p in error.problems]) from error


def _option(key: str) -> str:
    """The option of the command line that a key of the file comes from."""
    options = {"tasks": "--tasks", "model": "--model", "agent": "--agent", "container_env": "--container-env"}
    return next((option for name, option in options.items() if name in re.split(r"[.\[]", key)), key)


def ad_hoc(asked: AdHoc, root: Path, environment: Mapping[str, str] | None = None) -> tuple[str, str]:
    """The slug and the text of the experiment. The same is asked for, the same comes out: a further batch of it."""
    import tomlkit

    sides = [(asked.agent, asked.model)] if asked.agent else []
    sides += [_side(spec, asked) for spec in asked.versus]
    profiles: dict[str, dict[str, Any]] = {}
    for agent, model in sides:
        table = _profile(agent, model, os.environ if environment is None else environment)
        if table in profiles.values():
            raise UserError(
                f"{' '.join(filter(None, (agent, model)))} is given twice",
                hint="to run each task more than once, give --attempts K",
            )
        alone = sum(agent == other for other, _ in sides) == 1 or not model
        profiles[_key(agent if alone else f"{agent}-{(model or '').rpartition('/')[2]}", profiles)] = table
    for line in asked.commands:
        words = words_of(line)
        table = command_profile(words, root) | ({"model": asked.model} if asked.model else {})
        name = next((word for word in words if not word.startswith("-") and not is_interpreter(word)), words[0])
        profiles[_key(Path(name).stem, profiles)] = table
    items = [_item(task, root) for task in asked.tasks]
    anywhere = all(item["dataset"] == "starter" for item in items)
    usual = "local" if anywhere else usual_environment()
    document = {
        "schema_version": SCHEMA_VERSION,
        "slug": "",
        "name": f"tbench run {shlex.join(asked.arguments)}",
        "run": {"attempts": asked.attempts or 1, "container_env": asked.container_env or usual},
        "tasks": {"items": items},
        "profiles": profiles,
    }
    digest = hashlib.sha256(tomlkit.dumps(document).encode()).hexdigest()[:6]
    slug = f"{'__'.join(profiles)[:_LONGEST_SLUG]}__{digest}"
    return slug, tomlkit.dumps({**document, "slug": slug})


def _side(spec: str, asked: AdHoc) -> tuple[str, str | None]:
    """Agent and model of `--vs`: what is left out is that of the first."""
    if is_import_path(spec):
        return spec, asked.model
    agent, _, model = spec.partition(":")
    info = agent_info(agent) if agent else None
    if agent and info is not None and not info.model and not model:
        return agent, None
    return agent or asked.agent or "", model or asked.model


def _profile(agent: str, model: str | None, environment: Mapping[str, str]) -> dict[str, Any]:
    info = agent_info(agent)
    if info is None and not is_import_path(agent):
        raise UserError(f'no agent is called "{agent}"', hint=did_you_mean(agent, agent_names()))
    if info is not None and not info.model and model:
        raise UserError(f"{agent} takes no model, so {model} would not be used", hint="leave out the model")
    variables = _variables(info, model, environment)
    return {
        "agent": agent,
        **({"model": model} if model else {}),
        **({"no_mcp": True} if info is not None and info.mcp else {}),
        **({"env": variables} if variables else {}),
    }


def _variables(info: AgentInfo | None, model: str | None, environment: Mapping[str, str]) -> list[str]:
    """The variable with the key: of the model's provider, else as the agent names it."""
    provider, slash, _ = (model or "").partition("/")
    of_provider = f"{_PLAIN.sub('_', provider).upper()}_API_KEY" if slash else None
    if of_provider is not None and of_provider in environment:
        return [of_provider]
    return [info.key_env] if info is not None and info.key_env else []


def _key(name: str, taken: Mapping[str, object]) -> str:
    key = _PLAIN.sub("-", name.rpartition(":")[2] or name).strip("-.")[:40]
    return next(k for k in (key, *(f"{key}-{n}" for n in range(2, 1000))) if k not in taken)


def _item(task: str, root: Path) -> dict[str, str]:
    """An item of `[tasks]`; a folder is meant from where the command is given, the file names it from its root."""
    dataset, slash, task_id = task.rpartition("/")
    if not slash or not dataset or not task_id:
        hint = "as in 'starter/*', 'terminal-bench@2.0/fix-git' or 'path/of/a/folder/my-task'"
        raise UserError(f'--tasks: "{task}" names no dataset', hint=f"write DATASET/ID, {hint}")
    folder = Path(dataset).expanduser()
    return {"id": task_id, "dataset": from_root(folder.resolve(), root) if is_folder(folder) else dataset}
