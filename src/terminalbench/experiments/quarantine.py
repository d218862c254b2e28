"""Tasks left out of an experiment's runs, with a reason: a small TOML file beside the experiment."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from terminalbench.errors import InvalidFile
from terminalbench.strict import Problems, key, read, read_toml, table


@table
class QuarantinedTask:
    """One task that is left out."""

    id: str = key("The task's id.", non_empty=True, required=True)
    dataset: str = key("Its dataset, as named in the experiment.", non_empty=True, required=True)
    reason: str = key("Reason for leaving it out.", non_empty=True, required=True)
    since: str | None = key("Day on which it was left out.")


@table
class Quarantine:
    """The file's tables."""

    task: list[QuarantinedTask] = key("The tasks.", factory=list)


HEADER = """\
# Tasks left out of the runs of {name}, and why. They count as planned, but not run.
# Written by `tbench check --quarantine`; `tbench check --release` removes tasks that pass again.
"""


def quarantine_file(experiment: Path) -> Path:
    """Return where the quarantine of an experiment is: <stem>.quarantine.toml beside it."""
    return experiment.with_name(f"{experiment.stem}.quarantine.toml")


def read_quarantine(experiment: Path) -> dict[tuple[str, str], str]:
    """The reason of each quarantined (dataset, id); empty without a file. A wrong file is a user error."""
    file = quarantine_file(experiment)
    return read_quarantine_file(file) if file.exists() else {}


def is_quarantine_file(file: Path) -> bool:
    """Return whether a file is the quarantine of an experiment, by its name."""
    return file.name.endswith(".quarantine.toml")


def read_quarantine_file(file: Path) -> dict[tuple[str, str], str]:
    """The same from the quarantine file itself, which must be there."""
    problems = Problems()
    table: Quarantine = read(Quarantine, read_toml(file), "", problems)
    if problems.found:
        raise InvalidFile(str(file), problems.found)
    return {(task.dataset, task.id): task.reason for task in table.task}


def write_quarantine(experiment: Path, tasks: list[QuarantinedTask]) -> Path:
    """Add tasks to the quarantine of an experiment; those in it already keep their reason."""
    import tomlkit

    from terminalbench.files import write_project_file

    file = quarantine_file(experiment)
    known = read_quarantine(experiment)
    text = file.read_text(encoding="utf-8") if file.exists() else HEADER.format(name=experiment.name)
    for task in (task for task in tasks if (task.dataset, task.id) not in known):
        text += f"\n[[task]]\n{tomlkit.dumps({k: v for k, v in asdict(task).items() if v})}"
    write_project_file(file, text)
    return file


def release(experiment: Path, tasks: list[tuple[str, str]]) -> Path:
    """Take (dataset, id) tasks out of the quarantine of an experiment; everything else in the file stays."""
    import tomlkit

    from terminalbench.files import write_project_file

    file = quarantine_file(experiment)
    document = tomlkit.parse(file.read_text(encoding="utf-8"))
    entries: Any = document["task"]
    for index in reversed(range(len(entries))):
        if (entries[index]["dataset"], entries[index]["id"]) in tasks:
            del entries[index]
    if not entries:
        del document["task"]
    write_project_file(file, tomlkit.dumps(document))
    return file
