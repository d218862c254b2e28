"""Variants: a profile with a parent and a reason. A change says what is different; a change of nothing is refused.

So is one that holds parts of the tasks that it is measured on, of their verification, or of the split. Every text of a
change is compared with every task of the environment, the held-out ones too: that is no look, for what is told is only
what the change itself says, never which task it was found in.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

import msgspec

from terminalbench.archivist.checks import task_texts
from terminalbench.archivist.leaks import LeakKind, TaskTexts, find_leaks
from terminalbench.archivist.tables import words
from terminalbench.errors import InvalidFile, Problem, UserError
from terminalbench.experiments.champions import PROFILES
from terminalbench.experiments.experiment import Task
from terminalbench.experiments.profile_changes import differences, summaries
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.tables import LessonsTable
from terminalbench.experiments.write import profile_table
from terminalbench.files import write_text
from terminalbench.strict import key, table
from terminalbench.trainer.environments import Environment

LONGEST = 8_000
"""Characters of a prompt: beyond that more text has only made agents worse and dearer."""
_HEAD = re.compile(r"^## +(\S.*?) *$", re.MULTILINE)


def sections_of(text: str) -> dict[str, str]:
    """The sections of a prompt, in order. Two of one title are joined."""
    found: dict[str, str] = {}
    marks = [*_HEAD.finditer(text)]
    starts = [("", 0), *((mark[1], mark.end()) for mark in marks)]
    ends = [*(mark.start() for mark in marks), len(text)]
    for (title, start), end in zip(starts, ends, strict=True):
        part = text[start:end].strip()
        if title in found:
            part = "\n\n".join(filter(None, (found[title], part)))
        if part or title:
            found[title] = part
    return found


def text_of(sections: Mapping[str, str]) -> str:
    """The prompt with these sections."""
    ordered = sorted(sections.items(), key=lambda item: item[0] != "")  # what has no title stands first
    parts = [f"## {title}\n\n{text.strip()}" if title else text.strip() for title, text in ordered]
    return "\n\n".join(part.rstrip() for part in parts if part.strip()) + "\n"


def edited(text: str, changes: Mapping[str, str]) -> str:
    """A prompt with sections added, replaced, or, with an empty text, removed."""
    sections = sections_of(text)
    for title, part in changes.items():
        if part.strip():
            sections[title.strip()] = part
        else:
            sections.pop(title.strip(), None)
    return text_of(sections)


_NAME = "variant"
_POLICY = {"allow": "allowed_tools", "deny": "disallowed_tools"}
"""The options by which an agent is told which tools it has."""


@table
class ToolsTable:
    """`tools` of a change: which tools the agent has."""

    allow: list[str] | None = key("The only tools that it may use; an empty list removes the limit.")
    deny: list[str] | None = key("Tools that it must not use; an empty list removes the ban.")
    servers: list[str] | None = key("Its MCP servers; an empty list: none.")


@table
class Change:
    """What makes a variant another profile than its parent. What is not given stays as it is."""

    reason: str = key("One sentence on why it may be better.", non_empty=True, required=True)
    sections: dict[str, str] = key(
        "Sections of the prompt by title: added or replaced; an empty text removes one.",
        factory=dict,
        example='{ "Before you finish" = "Run the tests." }',
    )
    options: dict[str, Any] = key("Options of the agent to set.", factory=dict)
    without_options: list[str] = key("Options of the agent to remove.", factory=list)
    tools: ToolsTable | None = key("Which tools it has.")
    workflow: str | None = key("Another workflow, of agent `guarded`.", non_empty=True)
    reasoning: str | None = key("Another reasoning effort.", non_empty=True)
    lessons: Literal["masked", "off"] | LessonsTable | None = key(
        "Which lessons it gets: `masked`, `off`, or a table with `k`, `budget` and `withhold`; `recall` is not "
        "allowed.",
    )


@dataclass(frozen=True)
class ResolvedProfile:
    """A profile that was made and checked: its table, complete, and what it resolves to."""

    table: dict[str, Any]
    profile: Profile


def resolved(environment: Environment, table: Mapping[str, Any], at: str) -> ResolvedProfile:
    """A profile's table, checked as that of an experiment; the text of its prompt is kept with the project.

    Raises InvalidFile, its problems at `at`.
    """
    try:
        made = environment.experiment({_NAME: table}, environment.tasks, {})
    except InvalidFile as error:
        problems = [Problem(_renamed(p.key, at), p.what, p.hint) for p in error.problems]
        raise InvalidFile(error.where or "", problems) from None
    profile = made.profiles[0]
    whole = profile_table(profile, environment.root)
    whole.pop("description", None)
    if profile.prompt is not None:
        whole["prompt"] = keep_text(environment, profile.prompt.text)
    return ResolvedProfile(whole, profile)


def _renamed(name: str, at: str) -> str:
    return at + name.removeprefix(f"profiles.{_NAME}") if name.startswith(f"profiles.{_NAME}") else name


def keep_text(environment: Environment, text: str) -> str:
    """Keep a text by its content, for ever; the path that a profile names it by."""
    name = (environment.scratch or PROFILES / "texts") / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.md"
    if not (environment.root / name).is_file():
        write_text(environment.root / name, text)
    return str(name)


def changed(environment: Environment, parent: ResolvedProfile, change: Change, at: str) -> ResolvedProfile:
    """The parent with a change. Raises UserError or InvalidFile for one that cannot be made, holds what is not for an
    agent to know, or changes nothing.
    """
    refuse_leaks(environment, change, at)
    table = dict(parent.table)
    if change.sections:
        before = parent.profile.prompt.text if parent.profile.prompt is not None else ""
        text = edited(before, change.sections)
        if len(text) > LONGEST:
            raise UserError(f"the prompt would have {len(text)} characters, but the limit is {LONGEST}", where=at)
        table["prompt"] = keep_text(environment, text)
    table["options"] = _options(parent, change, at)
    if change.tools is not None and change.tools.servers is not None:
        table.pop("no_mcp", None)
        table["mcp_servers"] = change.tools.servers
        if not change.tools.servers:
            table["no_mcp"] = True
    if change.lessons is not None:
        table["lessons"] = _lessons(change.lessons, f"{at}.lessons")
    for name in ("workflow", "reasoning"):
        if (value := getattr(change, name)) is not None:
            table[name] = value
    made = resolved(environment, {name: value for name, value in table.items() if value not in ({}, [])}, at)
    if made.profile.oracle:
        raise UserError("its workflow sees the hidden verdict, so its gain would prove nothing", where=f"{at}.workflow")
    if made.profile.id == parent.profile.id:
        raise UserError("changes nothing: the profile is the same as its parent", where=at)
    return made


def _options(parent: ResolvedProfile, change: Change, at: str) -> dict[str, Any]:
    options = {**parent.table.get("options", {}), **change.options}
    for name in change.without_options:
        if name not in options:
            raise UserError(f'its parent sets no option "{name}"', where=f"{at}.without_options")
        del options[name]
    for name, option in _POLICY.items():
        tools = getattr(change.tools, name) if change.tools is not None else None
        if tools is None:
            continue
        info = parent.profile.agent
        if option not in info.options and not info.any_options:
            what = f"the tools of agent {info.name} cannot be set"
            raise UserError(what, where=f"{at}.tools.{name}", hint="claude-code can")
        options.pop(option, None)
        if tools:
            options[option] = ",".join(tools)
    return options


def _lessons(policy: str | LessonsTable, at: str) -> str | dict[str, Any]:
    if isinstance(policy, str):
        return policy
    if policy.mode == "recall":
        what = "recall shows lessons from the tasks that a variant is measured on, so its gain would prove nothing"
        raise UserError(what, where=f"{at}.mode", hint="use masked")
    return asdict(policy)


def said(parent: Profile, variant: Profile) -> list[str]:
    """Return what makes a variant another profile than its parent, a line each."""
    return summaries(differences(parent.content, variant.content))


_WHY = {  # without the name of the task; an order to a model has none
    LeakKind.TASK: "the id of a task",
    LeakKind.TEST: "a part of a task's tests",
    LeakKind.VALUE: "a value that a task's tests expect",
    LeakKind.SOLUTION: "a part of a task's solution",
    LeakKind.VERIFIER: "a part of the verification",
    LeakKind.INSTRUCTION: "a copy of a task's instruction",
    LeakKind.COPIED: "a copy of what an agent read",
}
_KEPT_APART = re.compile(
    r"\.terminalbench\b|\bsplits\.jsonl\b|\blooks\.jsonl\b|\bhold-?out\b|\bheld[- ]out (?:tasks?|part|set|split)\b"
    r"|\b(?:is|are|be|was|were) held[- ]out\b|\b(?:dev|train) (?:part|tasks?)\b|\bdev (?:set|split)\b",
    re.IGNORECASE,
)
_ROW = 7
"""So many words in a row of a task's instruction are a copy, common words counted, where `_SAYING` of them are not."""
_SAYING = 4
_WORD = re.compile(r"[\w'-]+")


class _TaskPlace(NamedTuple):
    """A task, the folder of its files, and its family."""

    id: str
    folder: str | None
    family: str | None


def refuse_leaks(environment: Environment, change: Any, at: str) -> None:
    """Raise UserError for a change that holds what it must not, with what that is."""
    places = _places(environment.tasks)
    held = msgspec.to_builtins(change)
    held.pop("reason", None)  # no agent reads it; `refuse_reason` checks it
    for name, value in held.items():
        for where, text in _strings(value, f"{at}.{name}"):
            if found := _found(text, str(environment.root), places):
                hint = "write it so that it fits any task, or leave it out"
                raise UserError(f"contains {found}", where=where, hint=hint)


def refuse_reason(environment: Environment, train: Sequence[Task], change: Any, at: str) -> None:
    """Raise UserError for a change whose reason names a task that nothing may be made from: one that is not on train.

    An evolver reads the reasons of earlier changes.
    """
    open_tasks = {(task.dataset, task.id) for task in train}
    others = [TaskTexts(task.id) for task in environment.tasks if (task.dataset, task.id) not in open_tasks]
    leak = next((leak for leak in find_leaks(change.reason, others) if leak.kind is LeakKind.TASK), None)
    if leak is not None:
        what = f'names a task that is not a train task: "{leak.found}"'
        raise UserError(what, where=f"{at}.reason", hint="write it so that it fits any task")


def _places(tasks: Sequence[Task]) -> tuple[_TaskPlace, ...]:
    return tuple(
        _TaskPlace(task.id, str(task.source.folder) if task.source.folder else None, task.family) for task in tasks
    )


def _strings(value: Any, at: str) -> Iterator[tuple[str, str]]:
    """Every text in a part of a change, with its place; what a person or a model may name is a text too."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for name, held in value.items():
            yield f"{at}.{name}", name
            yield from _strings(held, f"{at}.{name}")
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from _strings(held, f"{at}[{index}]")


@lru_cache(maxsize=1024)
def _found(text: str, root: str, places: tuple[_TaskPlace, ...]) -> str | None:
    """Return what of a text is a leak, and why; None where it is clean."""
    if match := _KEPT_APART.search(text):
        return f'a detail of how tasks are split: "{match.group()}"'
    if match := _paths(root, places).search(text):
        return f'a path to the tasks or the project: "{match.group()}"'
    if (families := _families(places)) is not None and (match := families.search(text)):
        return f'the name of a task family: "{match.group()}"'
    if leak := next(iter(find_leaks(text, _texts(places))), None):
        return f'{_WHY.get(leak.kind, leak.why)}: "{leak.found}"'
    row = next((row for row in _rows(text) if row in _instruction_rows(places)), None)
    return f'{_WHY[LeakKind.INSTRUCTION]}: "{" ".join(row)}"' if row is not None else None


@lru_cache(maxsize=4)
def _texts(places: tuple[_TaskPlace, ...]) -> tuple[TaskTexts, ...]:
    return tuple(task_texts(place.folder, place.id) for place in places)


@lru_cache(maxsize=4)
def _paths(root: str, places: tuple[_TaskPlace, ...]) -> re.Pattern[str]:
    """Paths of the project, of the folders that hold tasks, and ways to a task relative to those folders."""
    folders = {PurePath(place.folder).parent for place in places if place.folder is not None}
    whole = {str(folder) for folder in (PurePath(root), *folders) if len(folder.parts) > 2}
    begins = sorted({re.escape(re.split(r"[\W_]", place.id)[0]) for place in places})
    ways = [rf"(?<![\w-]){re.escape(folder.name)}/(?:{'|'.join(begins)})" for folder in folders if folder.name]
    return re.compile("|".join([*(rf"{re.escape(one)}(?![\w-])" for one in sorted(whole)), *sorted(ways)]) or r"(?!)")


@lru_cache(maxsize=4)
def _families(places: tuple[_TaskPlace, ...]) -> re.Pattern[str] | None:
    """The families by name, where they are named as such: a family may be called by a word of every day."""
    names = {r"[\W_]".join(map(re.escape, re.findall(r"[^\W_]+", place.family))) for place in places if place.family}
    if not names:
        return None
    one = f"(?:{'|'.join(sorted(names))})"
    return re.compile(rf"\b{one} (?:tasks?|family)\b|\bfamily:? {one}\b", re.IGNORECASE)


@lru_cache(maxsize=4)
def _instruction_rows(places: tuple[_TaskPlace, ...]) -> frozenset[tuple[str, ...]]:
    return frozenset(row for task in _texts(places) for row in _rows(task.instruction))


def _rows(text: str) -> Iterator[tuple[str, ...]]:
    """Each `_ROW` words in a row of a text that say something."""
    found = [word.lower() for word in _WORD.findall(text)]
    for at in range(len(found) - _ROW + 1):
        row = tuple(found[at : at + _ROW])
        if len(words(" ".join(row))) >= _SAYING:
            yield row
