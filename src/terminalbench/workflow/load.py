"""A workflow by its shipped name or its file, checked strictly: all its mistakes at once, each with its key.

A workflow is a TOML file and the prompts that it names beside it. Its texts travel together (`Texts`): they are what a
profile's id is made of and what an agent is handed, so that nothing is read again when a trial starts.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from terminalbench import registry
from terminalbench.errors import InvalidFile, UserError, did_you_mean
from terminalbench.strict import Problems, join, read, read_toml, shown
from terminalbench.workflow.model import Step, Workflow, WorkflowTable
from terminalbench.workflow.rules import check_steps, in_order

SHIPPED = Path(__file__).parent / "shipped"
FILE = "file"
_PROMPT = "prompt."

Texts = Mapping[str, str]
"""The text of a workflow file at "file", and that of each prompt file at "prompt.<step>"."""


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
    tops: dict[str, Any] = vars(table) | {"steps": steps, "digest": digest(texts)}
    return Workflow(**tops)


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


def _step(name: str, step: Step, texts: Texts, problems: Problems) -> Step:
    """Return a step with its prompt, which may stand in a file."""
    at = join("steps", name)
    filed = texts.get(f"{_PROMPT}{name}")
    if step.prompt is not None and step.prompt_file is not None:
        problems.add(f"{at}.prompt_file", "prompt is given too", "keep one of the two")
    if step.prompt_file is not None and filed is None and not problems.at(f"{at}.prompt_file"):
        problems.add(f"{at}.prompt_file", "its text is missing")
    prompt = step.prompt if step.prompt is not None else filed or ""
    if not prompt.strip() and not (problems.at(f"{at}.prompt") or problems.at(f"{at}.prompt_file")):
        problems.add(f"{at}.prompt", "every step needs a prompt", "write `prompt`, or name a `prompt_file`")
    for guard, options in step.options.items():
        if not isinstance(options, Mapping):
            problems.add(join(f"{at}.options", guard), f"must be a table, not {shown(options)}")
    return replace(step, prompt=prompt.strip())
