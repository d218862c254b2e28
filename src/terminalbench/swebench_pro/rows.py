"""The rows of `results.jsonl`: one a planned (instance, arm) pair. Written by projections, read by everything else.

Rows are read leniently: older ones, those of AtomicGuard, half-written lines. What cannot be read is counted, never
guessed, and never an error. Results of other tools are read by `terminalbench.formats`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import NOT_DECODED, convert, decode, decoder
from terminalbench.errors import UserError
from terminalbench.records.trial import Outcome

RESULTS = "results.jsonl"
BASELINE = "singleshot"
"""The arm that others are compared with, where it is among them; else the first."""


class RunVerdict(StrEnum):
    """What a run came to, each run one of these."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    """It left a patch, and the tests failed it."""
    GAVE_UP = "gave up"
    """Its workflow was given up at a step, or left no patch and no verdict."""
    ERROR = "error"
    """It ended without a verdict, by an error."""
    PENDING = "not evaluated"
    """It left a patch that was not tested."""
    NOT_RUN = "not run"


class ResultRow(msgspec.Struct, frozen=True, kw_only=True):
    """One planned run of an arm on an instance. None is unknown; every field is written.

    `resolved` is the verdict of the tests, None without one. `failed_step` and `failed_guard` are where the workflow
    was given up; `best_submitted`: its best patch was handed in all the same. `patch_file`: the patch is so large that
    it stands only there, in the predictions. `retry_count` counts attempts that were
    not the first of their step (of imported rows, as their study did: the failed attempts of the step that was given
    up), `failed_attempts` those that were rejected. `total_tokens` and `cost_usd` are of all attempts of the trial that
    counts, `spent_tokens` and `spent_usd` also of the tries it superseded. `trial` is `<batch>/<job>/<name>`.
    """

    instance_id: str
    arm: str
    attempt: int = 1
    patch_content: str = ""
    patch_file: str | None = None
    total_tokens: int | None = None
    per_step_tokens: dict[str, int | None] = {}
    wall_time_seconds: float | None = None
    init_time_seconds: float | None = None
    workflow_time_seconds: float | None = None
    error: str | None = None
    error_class: str | None = None
    resolved: bool | None = None
    failed_step: str | None = None
    failed_guard: str | None = None
    failure: str | None = None
    retry_count: int | None = None
    failed_attempts: int | None = None
    escalation_count: int | None = None
    cost_usd: float | None = None
    per_step_cost_usd: dict[str, float | None] = {}
    superseded: int = 0
    spent_usd: float | None = None
    spent_tokens: int | None = None
    outcome: str | None = None
    ending: str | None = None
    agent_status: str | None = None
    agent: str | None = None
    model: str | None = None
    workflow: str | None = None
    workflow_digest: str | None = None
    context_digest: str | None = None
    profile_id: str | None = None
    task_digest: str | None = None
    oracle: bool = False
    best_submitted: bool = False
    simulated: bool = False
    suspect: list[str] = []
    started_at: str | None = None
    finished_at: str | None = None
    batch: str | None = None
    trial: str | None = None
    workflow_status: str | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """Return which planned run it is."""
        return (self.instance_id, self.arm, self.attempt)

    @property
    def is_legacy(self) -> bool:
        """Return whether it is a row of AtomicGuard that was not imported: its failures may be called a success."""
        return self.outcome is None and self.workflow is None and self.workflow_status is not None

    @property
    def place(self) -> str:
        """Return where its files are below `traces/` and `artifact_dags/`."""
        return place(self.instance_id, self.arm, self.attempt)

    @property
    def _broke(self) -> bool:
        return self.outcome not in (None, Outcome.PASSED, Outcome.FAILED)

    @property
    def standing(self) -> RunVerdict:
        """Return what it came to: a verdict that resolves counts first, then where it was given up, then its patch."""
        if self.outcome == Outcome.NOT_RUN:
            return RunVerdict.NOT_RUN
        if self.resolved:
            return RunVerdict.RESOLVED
        if self.resolved is None and (self.error or self._broke):
            return RunVerdict.ERROR
        if self.failed_step or self.failed_guard or self.workflow_status == "failed":
            return RunVerdict.GAVE_UP
        if self.resolved is None:
            return RunVerdict.PENDING if self.patch_content or self.patch_file else RunVerdict.GAVE_UP
        return RunVerdict.UNRESOLVED


def place(instance: str, arm: str, attempt: int = 1) -> str:
    """The folder of a run below `traces/` and `artifact_dags/`: further attempts lie inside that of the first."""
    inside = f"{file_name(instance)}/{file_name(arm)}"
    return inside if attempt == 1 else f"{inside}/attempt-{attempt}"


def file_name(name: str) -> str:
    """A name as one part of a path; one that is no such part is written so that it is."""
    safe = "".join("_" if character in "/\\\0" or ord(character) < 32 else character for character in name)
    return "_" if safe in ("", ".", "..") else safe


@dataclass
class ResultRows:
    """What a results file holds: its runs, each once (the last line of one counts), and how many lines are none."""

    rows: list[ResultRow] = field(default_factory=list)
    bad_lines: int = 0
    repeated: int = 0
    notes: list[str] = field(default_factory=list)


def read_arms(paths: Sequence[Path]) -> ResultRows:
    """Return the rows of several results, ours or of any format that `compare` reads, each with arms of its own."""
    found = ResultRows()
    sources: dict[str, Path] = {}
    for path in paths:
        file = path / RESULTS if (path / RESULTS).is_file() else path
        own = read_results(file) if file.suffix == ".jsonl" or not file.exists() else ResultRows()
        one = own if own.rows else _foreign(file)
        for arm in dict.fromkeys(row.arm for row in one.rows):
            if sources.setdefault(arm, path) != path:
                hint = "copy one of them into a folder with another name"
                raise UserError(f'has an arm "{arm}", but so does {sources[arm]}', where=str(path), hint=hint)
        found.rows += one.rows
        found.bad_lines += one.bad_lines
        found.notes += one.notes
    return found


def _foreign(path: Path) -> ResultRows:
    """The rows of another tool's results: each of its profiles is an arm."""
    from terminalbench.formats.source import read_results as read_foreign
    from terminalbench.harbor.read.foreign_row import trial_of

    results = read_foreign(path)
    made = ResultRows(notes=[f"{path}: {note}" for note in results.notes])
    made.notes += [f"{path}: {count:,} not used: {cause}" for cause, count in results.rejected.items()]
    for row in results.rows:
        trial = trial_of(row, "", "", "")
        made.rows.append(
            ResultRow(
                instance_id=row.task,
                arm=row.profile,
                attempt=row.attempt or 1,
                total_tokens=trial.usage.total_tokens,
                wall_time_seconds=row.seconds,
                workflow_time_seconds=row.seconds,
                error=trial.error_message if trial.outcome is Outcome.ERRORED else None,
                error_class=trial.error_class,
                resolved=trial.outcome is Outcome.PASSED if trial.outcome.measured else None,
                cost_usd=row.cost_usd,
                outcome=trial.outcome,
                agent=row.agent,
                model=row.model,
                started_at=row.started_at,
                finished_at=row.finished_at,
            )
        )
    return made


def read_results(path: Path) -> ResultRows:
    """The rows of a results file; a file that is not there is an error that names the way to one."""
    try:
        stream = path.open("rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        hint = "tbench swebench-pro project DIR writes it from the batches of an experiment"
        raise UserError("there is no such results file", where=str(path), hint=hint) from None
    found = ResultRows()
    by_key: dict[tuple[str, str, int], ResultRow] = {}
    with stream:
        for line in stream:
            if not line.strip():
                continue
            row = parse_row(line)
            if row is None:
                found.bad_lines += 1
                continue
            found.repeated += row.key in by_key
            by_key[row.key] = row
    found.rows = list(by_key.values())
    return found


def parse_row(line: bytes) -> ResultRow | None:
    """One line; None when it is no row. A field of an unexpected kind is unknown."""
    try:
        row = _decode(line)
    except NOT_DECODED:
        return _lenient(line)
    return row if row.instance_id and row.arm else None


def _lenient(line: bytes) -> ResultRow | None:
    """Return a row with the fields that have a value of their kind."""
    try:
        raw = decode(line)
    except NOT_DECODED:
        return None
    if not isinstance(raw, dict) or not text_of(raw.get("instance_id")) or not text_of(raw.get("arm")):
        return None
    known = {}
    for declared in msgspec.structs.fields(ResultRow):
        with suppress(KeyError, msgspec.ValidationError):
            known[declared.name] = convert(raw[declared.name], declared.type)
    return ResultRow(**known)


_decode = decoder(ResultRow).decode


def text_of(value: Any) -> str | None:
    """Return a value that is text; None for any other."""
    return value if isinstance(value, str) else None
