"""A workflow by its shipped name or its file, checked strictly: all its mistakes at once, each with its key.

A workflow is a TOML file and the prompts that it names beside it. Its texts travel together (`Texts`): they are what a
profile's id is made of and what an agent is handed, so that nothing is read again when a trial starts.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from terminalbench import registry
from terminalbench.errors import InvalidFile, UserError, did_you_mean
from terminalbench.strict import Problems, join, key, read, read_toml, shown
from terminalbench.workflow.model import GUARD_SEC, Step, Workflow
from terminalbench.workflow.rules import check_steps, in_order

SHIPPED = Path(__file__).parent / "shipped"
FILE = "file"
_PROMPT = "prompt."
_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
_NAME_DOC = "a letter, then letters, digits, - and _"

Texts = Mapping[str, str]
"""The text of a workflow file at "file", and that of each prompt file at "prompt.<step>"."""


@dataclass(frozen=True)
class StepTable:
    """`[steps.<name>]`: one step. It asks the model for an artifact, which its guards check in their order."""

    generator: Literal["analysis", "localisation", "plan", "test", "patch", "review"] = key(
        "What the step makes.", required=True
    )
    prompt: str | None = key("What the model is told to do. The renderer adds task, context, inputs and feedback.")
    prompt_file: str | None = key("File with the prompt, next to the workflow file.", non_empty=True)
    guards: list[str] = key(
        "Guards in order: a name, or `pkg.mod:Class`. The first that rejects ends the attempt.", factory=list
    )
    requires: list[str] = key("Steps whose artifacts the step gets.", factory=list)
    rmax: int = key("Retries after a rejected attempt, in each cycle.", default=3, minimum=0, maximum=50)
    patience: int | None = key("How many equal errors of one guard in a cycle count as stagnation.", minimum=1)
    e_max: int = key("How often the step may send the run back.", default=0, minimum=0, maximum=20)
    escalate: list[str] = key("Steps above it that run again when it stagnates.", factory=list)
    escalate_by_guard: dict[str, list[str]] = key(
        "Targets for the errors of one guard, instead of `escalate`.", factory=dict
    )
    budgets: dict[str, int] = key(
        "How often the step may send the run back to each target; the run then goes to the first target of the list "
        "that has some left. Without it, all targets run again together.",
        factory=dict,
    )
    temperature: float = key("Temperature of first attempts.", default=0.0, minimum=0, maximum=2)
    retry_temperature: float | None = key("Temperature of retries; higher than `temperature`.", minimum=0, maximum=2)
    options: dict[str, Any] = key("Options of each guard, a table by the guard's name.", factory=dict)
    guard_timeout_sec: float = key(
        "Time limit of each of its guards, in seconds. Exceeding it is an error of the guard, not a failed attempt.",
        default=GUARD_SEC,
        above=0,
    )


@dataclass(frozen=True)
class WorkflowTable:
    """The top of a workflow file."""

    name: str = key("Name of the workflow.", pattern=_NAME, pattern_doc=_NAME_DOC, required=True)
    steps: dict[str, StepTable] = key("The steps.", pattern=_NAME, pattern_doc=_NAME_DOC, required=True)
    description: str = key("Description, for people.", default="")
    oracle: bool = key(
        "The workflow sees the hidden verdict: its results are marked and left out of comparisons.", default=False
    )
    submit_best: bool = key(
        "A run that gives up submits the patch that passed most guards, if there is one; results mark it.",
        default=False,
    )


def shipped() -> list[str]:
    """The names of the workflows that come with the package."""
    return sorted(file.stem for file in SHIPPED.glob("*.toml"))


def place(spec: str, root: Path | None = None) -> Path:
    """The file that a shipped name or a path means; a path starts from `root`. Raises UserError when there is none."""
    if spec in shipped():
        return SHIPPED / f"{spec}.toml"
    try:
        file = (root or Path()) / Path(spec).expanduser()
        if file.is_file():
            return file
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"cannot be used as a path: {error}", where="workflow") from None
    if "/" in spec or spec.endswith(".toml"):
        raise UserError(f"no file at {file}", hint=f"or name a shipped workflow: {', '.join(shipped())}")
    raise UserError(f'no workflow is called "{spec}"', hint=did_you_mean(spec, shipped()) or "name a file")


def read_texts(file: Path) -> Texts:
    """The texts of a workflow file and of the prompts that it names; problems with files are user errors."""
    tables = read_toml(file)
    texts = {FILE: file.read_bytes().decode("utf-8-sig")}
    steps = tables.get("steps")
    problems = Problems()
    for name, table in steps.items() if isinstance(steps, Mapping) else ():
        named = table.get("prompt_file") if isinstance(table, Mapping) else None
        if not isinstance(named, str) or not named.strip():
            continue
        at = join(join("steps", name), "prompt_file")
        if Path(named).is_absolute() or ".." in Path(named).parts:
            problems.add(at, "must be beside the workflow file", "a relative path, without ..")
            continue
        try:
            texts[f"{_PROMPT}{name}"] = (file.parent / named).read_text(encoding="utf-8")
        except FileNotFoundError:
            problems.add(at, f"no file at {file.parent / named}")
        except (OSError, ValueError) as error:
            problems.add(at, f"cannot read {file.parent / named}: {error}")
    if problems.found:
        raise InvalidFile(str(file), problems.found)
    return texts


def load(spec: str, root: Path | None = None) -> Workflow:
    """The workflow called `spec`: a shipped name, or a file. Raises UserError, InvalidFile with every problem."""
    file = place(spec, root)
    return from_texts(read_texts(file), str(file))


def from_texts(texts: Texts, where: str = "workflow") -> Workflow:
    """The workflow that its texts describe. Raises InvalidFile with every problem in them."""
    try:
        raw = tomllib.loads(texts[FILE])
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not valid TOML: {error or 'nested too deep'}", where=where) from None
    problems = Problems()
    table: WorkflowTable = read(WorkflowTable, raw, "", problems)
    steps = {name: _step(name, step, texts, problems) for name, step in (table.steps or {}).items()}
    if problems.found:
        raise InvalidFile(where, problems.found)
    order = in_order(steps, problems)
    if not problems.found:
        steps = {name: steps[name] for name in order}
        check_steps(steps, problems)
    if problems.found:
        raise InvalidFile(where, problems.found)
    return Workflow(
        name=table.name,
        steps=steps,
        description=table.description,
        oracle=table.oracle,
        submit_best=table.submit_best,
        digest=digest(texts),
    )


def digest(texts: Texts) -> str:
    """The hash of everything a workflow says."""
    total = hashlib.sha256()
    for name, text in sorted(texts.items()):
        total.update(f"{name}\0{len(text.encode())}\0".encode() + text.encode())
    return total.hexdigest()


def foreign_guards(workflow: Workflow) -> list[str]:
    """The import paths of guards that are not ours."""
    ours = registry.BUILTIN["guards"]
    named = [guard for step in workflow.steps.values() for guard in step.guards if guard not in ours]
    return list(dict.fromkeys(filter(None, (registry.import_path("guards", guard) for guard in named))))


def imports(texts: Texts) -> list[str]:
    """The guards that a workflow names as `pkg.mod:Class`, which may be modules of the project."""
    steps = _tables(texts).get("steps")
    tables = [table for table in steps.values() if isinstance(table, dict)] if isinstance(steps, dict) else []
    named = [str(guard) for table in tables for guard in table.get("guards") or ()]
    return [guard for guard in named if registry.is_import_path(guard)]


def is_oracle(texts: Texts) -> bool:
    """Return whether a workflow says that it sees the hidden verdict."""
    return _tables(texts).get("oracle") is True


def _tables(texts: Texts) -> dict[str, Any]:
    """The tables of texts that were recorded; none when they cannot be read."""
    try:
        return tomllib.loads(texts[FILE])
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _step(name: str, table: StepTable, texts: Texts, problems: Problems) -> Step:
    at = join("steps", name)
    filed = texts.get(f"{_PROMPT}{name}")
    if table.prompt is not None and table.prompt_file is not None:
        problems.add(f"{at}.prompt_file", "prompt is given too", "keep one of the two")
    if table.prompt_file is not None and filed is None and not problems.at(f"{at}.prompt_file"):
        problems.add(f"{at}.prompt_file", "its text is missing")
    prompt = table.prompt if table.prompt is not None else filed or ""
    if not prompt.strip() and not (problems.at(f"{at}.prompt") or problems.at(f"{at}.prompt_file")):
        problems.add(f"{at}.prompt", "every step needs a prompt", "write `prompt`, or name a `prompt_file`")
    for guard, options in table.options.items():
        if not isinstance(options, Mapping):
            problems.add(join(f"{at}.options", guard), f"must be a table, not {shown(options)}")
    return Step(
        generator=table.generator or "",
        prompt=prompt.strip(),
        guards=tuple(table.guards),
        requires=tuple(table.requires),
        rmax=table.rmax,
        patience=table.patience,
        e_max=table.e_max,
        escalate=tuple(table.escalate),
        escalate_by_guard={guard: tuple(targets) for guard, targets in table.escalate_by_guard.items()},
        temperature=table.temperature,
        retry_temperature=table.retry_temperature,
        budgets=dict(table.budgets),
        guard_timeout_sec=table.guard_timeout_sec,
        options={guard: dict(options) for guard, options in table.options.items() if isinstance(options, Mapping)},
    )
