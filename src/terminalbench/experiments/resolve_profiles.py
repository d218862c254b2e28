"""From the tables of a TOML to resolved profiles: defaults, `extends`, what each agent can take, and files."""

import json
import os
import sys
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from terminalbench.errors import did_you_mean
from terminalbench.experiments.agent_class import class_problem
from terminalbench.experiments.agent_code import agent_code, is_released, option_files
from terminalbench.experiments.agents import (
    NO_MODEL,
    NO_MODEL_HINT,
    RESERVED_OPTIONS,
    AgentInfo,
    agent_info,
    agent_names,
    whole_model,
)
from terminalbench.experiments.command import CommandReader
from terminalbench.experiments.mcp import check_code, check_hooks, held_in, read_mcp
from terminalbench.experiments.profiles import (
    NO_MCP,
    CommandSetup,
    ContentFolder,
    McpSetup,
    Profile,
    TextFile,
    WorkflowTexts,
)
from terminalbench.experiments.tables import DEFAULT_ENV_FILE, FREE, LessonsTable
from terminalbench.experiments.workflow_file import read_workflow
from terminalbench.frozen import frozen
from terminalbench.llm.local.spec import is_local
from terminalbench.secrets.patterns import VARIABLE, has_key, has_login, is_template, looks_secret, secrets_in
from terminalbench.strict import Problems, find_path, is_file, join

if TYPE_CHECKING:
    from terminalbench.experiments.mounts import Mount, MountReader, Program

_SAME_AGENT_ONLY = ("options", "agent_version")
_NEEDS_A_MODEL = ("model", "reasoning", "prompt", "skills", "lessons")
_MCP = ("mcp_servers", "mcp_git_source", "mcp_git_ref", "hooks")


@frozen
class Inheritance:
    """The values that all profiles of a file share, and where their problems and notes go.

    `own` holds the valid keys each profile sets itself, `defaults` those of `[defaults]`. `private` are folders that
    no agent may see, and what they are. `environment` is the import path of the environment, where it has one.
    `complete` are the profiles that take nothing from `[defaults]`. `thorough`: code that is not found is a problem.
    `arguments` are those for Harbor.
    """

    own: dict[str, dict[str, Any]]
    defaults: dict[str, Any]
    aliases: dict[str, str]
    root: Path
    problems: Problems
    notes: list[str]
    private: dict[Path, str]
    environment: str | None = None
    complete: Collection[str] = ()
    thorough: bool = False
    arguments: Sequence[str] = ()

    @cached_property
    def argument_mounts(self) -> "tuple[Mount, ...]":
        """Return what Harbor's own arguments mount into every sandbox."""
        if not any("--mounts" in argument for argument in self.arguments):
            return ()
        from terminalbench.experiments.mounts import mounts_in

        found = mounts_in(self.arguments, self.root)
        for one in found:
            if not one.source.exists():
                self.notes.append(
                    f"run.harbor_args: no file or folder at {one.source}, so the profiles' ids do not include it"
                )
        return tuple(one for one in found if one.source.exists())

    @cached_property
    def mount_reader(self) -> "MountReader":
        """Return what reads the mounts and programs of a profile."""
        from terminalbench.experiments.mounts import MountReader  # only profiles with mounts pay for it

        return MountReader(self.root, self.private, self.problems, self.notes, self.thorough)

    @cached_property
    def environment_code(self) -> dict[str, str]:
        """Digests of the code of an environment of one's own; one whose code cannot be found is noted."""
        return self.code_at(self.environment, f"environment {self.environment}", "run.container_env", "run")

    def code_at(self, path: str | None, what: str, where: str, at: str) -> dict[str, str]:
        """Digests of the code at an import path; empty for what is released, or cannot be found, which is noted."""
        if path is None:
            return {}
        try:
            found = agent_code(path, self.root)
        except OSError as error:
            self.problems.add(where, f"its code cannot be read: {error.filename}: {error.strerror}")
            return {}
        if found is None and self.thorough:
            module = path.partition(":")[0]
            self.problems.add(
                where, f"module {module} is neither in {self.root} nor installed", "check the name and the folder"
            )
        elif found is None:
            self.notes.append(f"{at}: the code of {what} was not found, so the profile's id does not include it")
        return found or {}

    def resolve(self, key: str) -> Profile | None:
        """The profile called `key`, or None when it is too broken to say more about."""
        at = join("profiles", key)
        chain = self._chain(key, at)
        own = self._own(chain, at)
        where = f"{at}.agent" if "agent" in own else "defaults.agent"
        name = own.get("agent") or self.defaults.get("agent") or "claude-code"
        info = agent_info(name, self.root)
        if info is None:
            self.problems.add(where, f'no agent is called "{name}"', did_you_mean(name, agent_names()))
            return None
        own_class = info.import_path if info.import_path and not is_released(info.import_path) else None
        problem = class_problem(own_class, [str(self.root), *sys.path]) if own_class is not None else None
        if problem is not None:
            self.problems.add(where, problem.what, problem.hint)
            return None
        if own_class is not None and self.thorough:
            self.notes.append(
                f"{at}: the class of agent {name} was not checked; a run checks it before the first trial"
            )
        return _Resolver(self, chain, info, own).profile()

    def _chain(self, key: str, at: str) -> list[str]:
        """The profile, then the one it extends, and so on."""
        chain = [key]
        while (parent := self.own[chain[-1]].get("extends")) is not None:
            if parent in chain:
                self.problems.add(f"{at}.extends", f"is circular: {' -> '.join([*chain, parent])}")
                break
            if parent not in self.own:
                where = f"{join('profiles', chain[-1])}.extends"
                if chain[-1] == key:
                    self.problems.add(where, f'no profile is called "{parent}"', did_you_mean(parent, list(self.own)))
                break
            chain.append(parent)
        return chain

    def _own(self, chain: list[str], at: str) -> dict[str, Any]:
        """The keys the profile sets, with those of the profiles it extends."""
        merged: dict[str, Any] = {}
        for name in reversed(chain):
            inherited = {k: v for k, v in self.own[name].items() if k != "description" or name == chain[0]}
            if inherited.get("mcp_servers") and "no_mcp" not in inherited:
                merged.pop("no_mcp", None)
            if inherited.get("no_mcp"):
                merged = {k: v for k, v in merged.items() if k not in ("mcp_servers", "hooks")}
            if "model" in inherited:  # another one costs something else
                merged = {k: v for k, v in merged.items() if k not in ("price", "likely_cost_usd")}
            merged = _merge(self._for_agent(merged, inherited, at if name == chain[0] else None), inherited)
        merged.pop("extends", None)
        return merged

    def _for_agent(self, extended: dict[str, Any], own: dict[str, Any], at: str | None) -> dict[str, Any]:
        """Return what a profile with another agent takes of those it extends; the rest is noted for profile `at`."""
        before = extended.get("agent") or self.defaults.get("agent") or "claude-code"
        agent = own.get("agent") or before
        info = agent_info(agent, self.root)
        if not extended or agent == before or info is None:
            return extended
        return self.taken(info, extended, at, "of what it extends", _MCP if info.mcp is False else ())

    def taken(
        self, info: AgentInfo, values: dict[str, Any], at: str | None, what: str, also: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return what an agent takes of values that were meant for another; the rest is noted for the profile `at`."""
        names = (*_SAME_AGENT_ONLY, *also) if info.model else (*_SAME_AGENT_ONLY, *_NEEDS_A_MODEL, *_MCP)
        names = names if info.workflow else (*names, "workflow")
        names = names if info.command else (*names, "command")
        dropped = [name for name in names if name in values]
        if dropped and at is not None:
            self.notes.append(f"{at}: agent {info.name} does not support these {what}: {', '.join(dropped)}")
        return {k: v for k, v in values.items() if k not in dropped}


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` wins key by key; `options` and `env` are merged one level down."""
    merged = {**base, **over}
    if base.get("options") and over.get("options"):
        merged["options"] = {**base["options"], **over["options"]}
    if base.get("env") and over.get("env"):
        merged["env"] = {**_env_table(base["env"]), **_env_table(over["env"])}
    return merged


def _env_table(env: list[str] | dict[str, str]) -> dict[str, str]:
    return {name: f"${{{name}}}" for name in env} if isinstance(env, list) else dict(env)


class _Resolver:
    """Resolves one profile; each method decides one thing."""

    def __init__(self, shared: Inheritance, chain: list[str], info: AgentInfo, own: dict[str, Any]) -> None:
        self.shared, self.key, self.info, self.own = shared, chain[0], info, own
        self.at = join("profiles", self.key)
        self.setters = {name: key for key in reversed(chain) for name in shared.own[key]}
        self.problems, self.root = shared.problems, shared.root
        defaults = shared.defaults if self.key not in shared.complete else {}
        same = (own.get("agent") or defaults.get("agent")) == defaults.get("agent")
        self.inherited = defaults if same and info.model else shared.taken(info, defaults, self.at, "defaults")
        self.values = _merge(self.inherited, own)

    def profile(self) -> Profile:
        """The resolved profile; what is wrong is noted and left out."""
        if "hooks" not in self.own and (self.values.get("no_mcp") or self.info.mcp is False):
            self.values.pop("hooks", None)
        self._refuse_what_the_agent_lacks()
        mcp = self._mcp()
        hooks = self._hooks()
        workflow = self._workflow()
        model = whole_model(self._text("model"), self.info, self.root, self._where("model"), self.problems)
        if self.shared.thorough and self.info.needs_model and not model and not self.problems.at(self._where("model")):
            self._wrong("model", f"agent {self.info.name} {NO_MODEL}", NO_MODEL_HINT)
        usage = tuple(t for path in mcp.usage if (t := self._read(path, "mcp_servers")) is not None)
        git_source = self._text("mcp_git_source") if mcp.servers or hooks else None
        if hooks is not None and git_source is None:
            check_hooks(hooks, mcp, self.root, self._where("hooks"), self.problems)
        return Profile(
            key=self.key,
            agent=self.info,
            model=model,
            reasoning=self._reasoning(),
            agent_version=self._text("agent_version"),
            options=self._options(),
            prompt=self._file("prompt"),
            usage=usage,
            skills=self._skills(),
            mcp=mcp,
            mcp_git_source=self._git_source(git_source),
            mcp_git_ref=self._text("mcp_git_ref") if git_source else None,
            hooks=hooks,
            env=self._env(),
            env_file=self._env_file(),
            workflow=workflow,
            command=self._command(),
            mounts=self._mounts(),
            programs=self._programs(),
            lessons=self._lessons(),
            code=self._code(workflow),
            environment_code=self.shared.environment_code,
            option_files=self._option_files(model),
            description=self._text("description"),
            price=FREE if self.values.get("price", 0 if is_local(model) else None) == 0 else self.values.get("price"),
            likely_cost_usd=self.values.get("likely_cost_usd"),
            parallel=self.values.get("parallel"),
        )

    def _workflow(self) -> WorkflowTexts | None:
        options = self.values.get("options")
        fixed = isinstance(options, dict) and options.get("temperature") is not None
        model = None if fixed else self._text("model")
        named, where = self._text("workflow"), self._where("workflow")
        return read_workflow(named, self.info, self.root, where, self.problems, model)

    def _command(self) -> CommandSetup | None:
        if not self.info.command:
            return None
        reader = CommandReader(self.root, self.shared.private, self._where("command"), self.problems)
        servers = self._where("mcp_servers") if self.values.get("mcp_servers") else None
        return reader.read(self.values.get("command"), servers)

    def _mounts(self) -> "tuple[Mount, ...]":
        given, shared = self.values.get("mounts"), self.shared.argument_mounts
        if shared and (given or self.values.get("programs")):
            what, hint = "its --mounts would replace the mounts of the profiles", "set mounts in the profiles instead"
            self.problems.add("run.harbor_args", what, hint)
        return self.shared.mount_reader.mounts(given, self._where("mounts")) if given else shared

    def _programs(self) -> "tuple[Program, ...]":
        given = self.values.get("programs")
        return self.shared.mount_reader.programs(given, self._where("programs")) if given else ()

    def _lessons(self) -> LessonsTable | None:
        given = self.values.get("lessons")
        found = LessonsTable(mode=given) if isinstance(given, str) else given
        return None if found is None or found.mode == "off" else found

    def _where(self, name: str) -> str:
        """The key to blame: the profile's own, else that of the profile it extends, else the default it came from."""
        if name in self.own:
            return f"{join('profiles', self.setters[name])}.{name}"
        return f"{self.at}.{name}" if name not in self.inherited else f"defaults.{name}"

    def _wrong(self, name: str, what: str, hint: str | None = None) -> None:
        self.problems.add(self._where(name), what, hint)

    def _refuse_what_the_agent_lacks(self) -> None:
        """Take out the keys that this agent has no use for, each with a word; and note what is set in two ways."""
        info = self.info
        for name, has, lacks in (
            ("model", info.model, "calls no model"),
            ("reasoning", info.reasoning, "has no option for reasoning effort"),
            ("agent_version", info.version, "is not installed in a chosen version"),
            ("prompt", info.model, "takes no prompt"),
            ("skills", info.skills, "takes no skills"),
            ("hooks", info.hooks, "has no hooks; claude-code has"),
            ("workflow", info.workflow, "runs no workflow; guarded does"),
            ("command", info.command, 'runs no command; agent = "command" does'),
            ("lessons", info.model or self._lessons() is None, "calls no model that could read lessons"),
        ):
            if self.values.get(name) and not has:
                self._refuse(name, f"agent {info.name} {lacks}")
                del self.values[name]
        for name, knob in (("reasoning", info.reasoning), ("prompt", info.system_prompt)):
            if self.values.get(name) and knob in (self.values.get("options") or {}):
                self._wrong(name, f"options.{knob} sets the same thing", "keep one of the two")

    def _refuse(self, name: str, why: str) -> None:
        if self.setters.get(name) == self.key:
            own = name in _NEEDS_A_MODEL and ":" in str(self.values.get("agent", ""))
            self._wrong(name, why, 'if it calls a model, its class says AGENT_INFO = {"model": True}' if own else None)
            return
        empty = {"skills": "[]", "lessons": '"off"'}.get(name, '""')
        hint = f"clear it for this profile with {name} = {empty}"
        self._wrong(name, f'{why} (profile "{self.key}" inherits it)', hint)

    def _text(self, name: str) -> str | None:
        """A string key; an empty string clears an inherited value."""
        return self.values.get(name) or None

    def _file(self, name: str) -> TextFile | None:
        value = self._text(name)
        path = find_path(value, self.root, self._where(name), self.problems) if value else None
        return self._read(path, name) if path is not None else None

    def _read(self, path: Path, name: str) -> TextFile | None:
        try:
            return TextFile(path, path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self._wrong(name, f"no file at {path}")
        except (OSError, UnicodeDecodeError) as error:
            self._wrong(name, f"cannot read {path}: {error}")
        return None

    def _reasoning(self) -> str | None:
        level, levels = self._text("reasoning"), self.info.reasoning_levels
        if level is not None and levels is not None and level not in levels:
            self._wrong("reasoning", f'agent {self.info.name} has the levels {", ".join(levels)}, not "{level}"')
        return level

    def _options(self) -> dict[str, Any]:
        options = dict(self.values.get("options") or {})
        at = self._where("options")
        known = self.info.options
        for name, value in options.items():
            if name in RESERVED_OPTIONS and self.info.hooks:
                self.problems.add(
                    join(at, name), "must be set by the keys of the profile", "use mcp_servers, mcp_git_source or hooks"
                )
            elif (name == "workflow" and self.info.workflow) or (name == "command" and self.info.command):
                self.problems.add(join(at, name), "must be set by the key of the profile", f"use {name}")
            elif name not in known and not self.info.any_options:
                hint = did_you_mean(name, sorted(known), limit=30)
                self.problems.add(join(at, name), f"agent {self.info.name} does not have this option", hint)
            elif (choices := known.get(name)) and isinstance(value, str) and value not in choices:
                self.problems.add(join(at, name), f"must be one of {', '.join(choices)}")
            elif (wrong := self.info.wrong_kind(name, value)) is not None:
                self.problems.add(join(at, name), wrong)
        for secret in secrets_in(options, at):
            self.problems.add(secret, "looks like a secret", "put it in the env file and name the variable in env")
        return options

    def _code(self, workflow: WorkflowTexts | None) -> dict[str, str]:
        """Digests of the code of an agent and of guards of one's own."""
        found = self.shared.code_at(self.info.import_path, f"agent {self.info.name}", self._where("agent"), self.at)
        for path in workflow.guards if workflow is not None else ():
            found = {**found, **self.shared.code_at(path, f"guard {path}", self._where("workflow"), self.at)}
        return found

    def _option_files(self, model: str | None) -> dict[str, str]:
        """Digests of the project's files and folders that options name by their path, given or by default."""
        try:
            return option_files(self.info.defaults | (self.values.get("options") or {}), self.root, model)
        except OSError as error:
            self._wrong("options", f"cannot read {error.filename}: {error.strerror}")
            return {}

    def _skills(self) -> tuple[ContentFolder, ...]:
        folders: list[ContentFolder] = []
        for index, name in enumerate(self.values.get("skills") or []):
            at = f"{self._where('skills')}[{index}]"
            path = find_path(name, self.root, at, self.problems)
            if path is None:
                continue
            if not path.is_dir():
                self.problems.add(at, f"no folder at {path}")
            elif not (path / "SKILL.md").is_file():
                self.problems.add(at, f"{path} contains no SKILL.md")
            elif any(path.samefile(folder.path) for folder in folders):
                self.problems.add(at, f"{path} is named twice", "remove one")
            elif (held := held_in(path, self.shared.private)) is not None:
                what = f"{path} holds {held}, which the agent would see"
                self.problems.add(at, what, "give the skill a separate folder")
            else:
                folders.append(ContentFolder(path, every=True))
        return tuple(folders)

    def _mcp(self) -> McpSetup:
        names = self.values.get("mcp_servers") or []
        at = f"{self.at}.mcp_servers"
        if self.info.mcp is False or self.values.get("no_mcp"):
            if "mcp_servers" in self.own and names and self.info.mcp is False:
                self.problems.add(at, f"agent {self.info.name} does not support MCP", "remove it")
            elif "mcp_servers" in self.own and names:
                self.problems.add(at, "contradicts no_mcp = true", "keep one of the two")
                self.problems.add(self._where("no_mcp"), "contradicts mcp_servers", "keep one of the two")
            return NO_MCP
        if not names:
            known = any(self.problems.at(f"{self.at}.{name}") for name in ("mcp_servers", "no_mcp", "extends"))
            if self.info.mcp and not known:
                self.problems.add(at, "is empty", "name at least one, or set no_mcp = true")
            return NO_MCP
        setup = read_mcp(names, self.shared.aliases, self.root, self._where("mcp_servers"), self.problems)
        self._check_servers(setup)
        if not self._text("mcp_git_source"):
            check_code(setup, self.info, self.shared.private, self._where("mcp_servers"), self.problems)
        return setup

    def _check_servers(self, setup: McpSetup) -> None:
        for server, entry in setup.servers.items():
            if entry.get("headers") and not self.info.hooks:
                what = f'server "{server}" has headers, which agent {self.info.name} cannot receive'
                self._wrong("mcp_servers", what)
        for server, folder in setup.folders.items():
            if (folder / "hooks.json").is_file() and not self.values.get("hooks"):
                self.shared.notes.append(
                    f'{self.at}: {folder / "hooks.json"} of server "{server}" is not used; name it in hooks'
                )

    def _hooks(self) -> TextFile | None:
        hooks = self._file("hooks")
        if hooks is None:
            return None
        try:
            data = json.loads(hooks.text)
        except ValueError as error:
            self._wrong("hooks", f"{hooks.path} is not readable as JSON: {error}")
            return None
        if not isinstance(data, dict) or not isinstance(data.get("hooks", data), dict):
            self._wrong("hooks", f'{hooks.path} must hold {{"hooks": {{"<event>": [...]}}}}')
            return None
        for secret in secrets_in(data, hooks.path.name):
            self._wrong("hooks", f"{secret} looks like a secret", "read it from a variable")
        return hooks

    def _git_source(self, source: str | None) -> str | None:
        if source is None:
            cleared = "mcp_git_source" in self.values  # and with it the ref that was inherited beside it
            if self._text("mcp_git_ref") and not self._text("mcp_git_source") and not cleared:
                self._wrong("mcp_git_ref", "can be set only together with mcp_git_source")
            return None
        if not self.info.hooks:
            self._refuse("mcp_git_source", f"agent {self.info.name} cannot install servers; claude-code can")
            return None
        if has_login(source):
            self._wrong("mcp_git_source", "carries a login", "remove it and put GITHUB_TOKEN in the env file")
            return None
        if not self._text("mcp_git_ref"):
            self.shared.notes.append(f"{self.at}: mcp_git_ref is not set; a run pins and records the newest commit")
        return source

    def _env(self) -> dict[str, str]:
        env = _env_table(self.values.get("env") or {})
        at = self._where("env")
        for name, value in env.items():
            if not VARIABLE.fullmatch(name) or has_key(name):
                hint = 'write it as NAME = "${VAR}" in a table' if "=" in name else None
                self.problems.add(at, "an entry is not a variable name", hint)
            elif "${" in value and not is_template(value):
                self.problems.add(join(at, name), "must be either exactly one ${VAR} or contain no reference")
            elif looks_secret(name, value):
                hint = f'write {name} = "${{{name}}}" and put the value in the env file'
                self.problems.add(join(at, name), "looks like a secret", hint)
        return env

    def _env_file(self) -> Path | None:
        named = self._text("env_file")
        path = find_path(named or DEFAULT_ENV_FILE, self.root, self._where("env_file"), self.problems)
        if path is None or is_file(path):
            return path
        if not named:
            return None
        if os.path.lexists(path):
            self._wrong("env_file", f"is not a file: {path}")
        else:
            self.shared.notes.append(
                f"{self._where('env_file')}: no file at {path}; a run needs it for all variables that are not exported"
            )
        return path
