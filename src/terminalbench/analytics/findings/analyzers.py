"""Analyzers: what they are, which there are, and running them so that none can end an analysis.

An analyzer has `name`, `version` and `analyze(trial, trajectory) -> findings` (`TrialFiles`, `Trajectory | None`). It
may have `targets`, names of artifact folders it reads: then it also runs again when those change. Another package adds
one with `[analysis] analyzers = ["pkg.mod:Object"]`; the object is a class without arguments or a ready instance.
"""

import hashlib
import inspect
import math
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from terminalbench.analytics import atif
from terminalbench.analytics.atif import Trajectory
from terminalbench.analytics.findings.shell import TABLES
from terminalbench.analytics.findings.trial_files import TrialFiles
from terminalbench.errors import UserError
from terminalbench.index.database import transaction
from terminalbench.records.trial import Finding
from terminalbench.registry import BUILTIN, resolve
from terminalbench.secrets.values import Secrets

_LARGEST = 2**63 - 1
ERROR = "analyzer_error"
"""Name of the finding that says an analyzer raised."""


class Analyzer(Protocol):
    """What an analyzer offers."""

    name: str
    version: str

    def analyze(self, trial: TrialFiles, trajectory: Trajectory | None, /) -> Iterable[Finding]:
        """Return what it says about one trial."""
        ...


@dataclass(frozen=True)
class LoadedAnalyzer:
    """An analyzer ready to run, with the artifact folders it reads."""

    analyzer: Analyzer
    name: str
    version: str
    targets: tuple[str, ...] = ()


def load_analyzers(further: Sequence[str] = ()) -> list[LoadedAnalyzer]:
    """The built-in analyzers, then those named. One that is not an analyzer is a clear error."""
    found: dict[str, LoadedAnalyzer] = {}
    for spec in (*BUILTIN["analyzers"], *further):
        loaded = _load(spec)
        if loaded.name in found:
            raise UserError(f'two analyzers are called "{loaded.name}"', where="analysis.analyzers", hint=f"see {spec}")
        found[loaded.name] = loaded
    return list(found.values())


def _load(spec: str) -> LoadedAnalyzer:
    part: Any = resolve("analyzers", spec)
    if inspect.isclass(part):
        try:
            part = part()
        except TypeError as error:
            raise UserError(f'analyzer "{spec}" cannot be made without arguments: {error}') from error
    missing = [name for name in ("name", "version", "analyze") if not hasattr(part, name)]
    if missing:
        raise UserError(f'"{spec}" is not an analyzer: it has no {", no ".join(missing)}', where="analysis.analyzers")
    return LoadedAnalyzer(part, str(part.name), str(part.version), tuple(getattr(part, "targets", ())))


def without_secrets(text: str, secrets: Secrets) -> str:
    """`text` fit to be kept and shown: no secrets, no halves of characters that no file can hold."""
    return secrets.redact(text.encode(errors="replace").decode())


def run_analyzer(
    loaded: LoadedAnalyzer, trial: TrialFiles, trajectory: Trajectory | None, hide: Callable[[str], str] | None = None
) -> list[Finding]:
    """Its findings, without secrets; when it raises, or returns what is no finding, one finding that says so."""
    hide = hide or partial(without_secrets, secrets=trial.secrets)
    try:
        found = list(loaded.analyzer.analyze(trial, trajectory))
        wrong = next((item for item in found if not isinstance(item, Finding)), None)
        if wrong is not None:
            raise TypeError(f"returned a {type(wrong).__name__}, not a Finding")
    except Exception as error:  # noqa: BLE001  a user's code; its failure is a finding
        reason = hide(f"{type(error).__name__}: {error}"[:500])
        return [Finding(trial.key, loaded.name, loaded.version, ERROR, True, reason)]
    return [
        Finding(
            trial=trial.key,
            analyzer=loaded.name,
            version=loaded.version,
            name=hide(f.name),
            value=_value(f.value, hide),
            reason=hide(f.reason) if f.reason else None,
            steps=[step for step in f.steps if -_LARGEST <= step <= _LARGEST],
        )
        for f in found
    ]


def _value(value: Any, hide: Callable[[str], str]) -> bool | int | float | str | None:
    """A value that any file can hold: no infinities, no integers beyond 64 bits, no broken text."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -_LARGEST <= value <= _LARGEST else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return hide(str(value))


_CHUNK = 200
_INSERT = (
    "INSERT OR REPLACE INTO findings (batch, job, trial, analyzer, version, stamp, found) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_decoder = msgspec.msgpack.Decoder(list[tuple[str, Any, str | None, list[int]]])


@dataclass(frozen=True, slots=True)
class CachedFindings:
    """What the cache holds of one trial and one analyzer."""

    version: str
    stamp: str
    found: bytes


@dataclass
class FindingsCache:
    """The findings of one batch in an open index."""

    connection: sqlite3.Connection
    batch: str
    waiting: list[tuple[Any, ...]] = field(default_factory=list)

    def kept(self, job: str, trial: str) -> dict[str, CachedFindings]:
        """Return what is kept of a trial, by analyzer."""
        query = "SELECT analyzer, version, stamp, found FROM findings WHERE batch = ? AND job = ? AND trial = ?"
        rows = self.connection.execute(query, (self.batch, job, trial))
        return {row["analyzer"]: CachedFindings(row["version"], row["stamp"], row["found"]) for row in rows}

    def read(self, job: str, trial: str, analyzers: Iterable[str]) -> list[Finding]:
        """The findings of a trial, in the order of the analyzers."""
        self.flush()
        kept = self.kept(job, trial)
        found = [(name, kept[name].version, _decoder.decode(kept[name].found)) for name in analyzers if name in kept]
        return [Finding(f"{job}/{trial}", name, version, *item) for name, version, items in found for item in items]

    def put(self, job: str, trial: str, analyzer: str, version: str, stamp: str, found: list[Finding]) -> None:
        """Keep the findings of one analyzer about one trial."""
        data = msgspec.msgpack.encode([(f.name, f.value, f.reason, f.steps) for f in found])
        self.waiting.append((self.batch, job, trial, analyzer, version, stamp, data))
        if len(self.waiting) >= _CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self.waiting:
            with transaction(self.connection):
                self.connection.executemany(_INSERT, self.waiting)
            self.waiting.clear()

    def forget_gone(self) -> None:
        """Drop what is kept of trials that the index no longer has."""
        with transaction(self.connection):
            self.connection.execute(
                "DELETE FROM findings WHERE batch = ? AND NOT EXISTS "
                "(SELECT 1 FROM trials AS t WHERE t.batch = findings.batch AND t.job = findings.job "
                "AND t.trial = findings.trial)",
                (self.batch,),
            )


@cache
def rules_digest() -> str:
    """Changes when a taxonomy or a module of the rules does: what was found by other rules is found again."""
    rules = (Path(atif.__file__), *sorted(TABLES.parent.rglob("*.py")), *sorted(TABLES.glob("*.toml")))
    data = b"".join(path.read_bytes() for path in rules)
    return hashlib.blake2b(data, digest_size=8).hexdigest()


type Kind = Literal["yes_no", "count", "number", "label", "table"]


@dataclass(frozen=True)
class FindingMeasure:
    """One thing found about a trial. `table` values are JSON text."""

    name: str
    kind: Kind
    meaning: str


MEASURES: tuple[FindingMeasure, ...] = (
    FindingMeasure("success", "yes_no", "passed; unknown if not measured"),
    FindingMeasure("reward", "number", "the verifier's primary reward"),
    FindingMeasure("tests_passed", "count", "verifier tests that passed (CTRF)"),
    FindingMeasure("tests_failed", "count", "verifier tests that failed (CTRF)"),
    FindingMeasure("tests_total", "count", "verifier tests in all (CTRF)"),
    FindingMeasure("tests_passed_ratio", "number", "tests_passed / tests_total"),
    FindingMeasure("tokens", "count", "all tokens, cached ones included"),
    FindingMeasure("input_tokens", "count", "tokens sent that touched no cache"),
    FindingMeasure("cache_read_tokens", "count", "tokens read from the cache"),
    FindingMeasure("cache_write_tokens", "count", "tokens written to the cache"),
    FindingMeasure("output_tokens", "count", "tokens received"),
    FindingMeasure("usage_source", "label", "where the tokens come from"),
    FindingMeasure("cost_usd", "number", "what the trial cost"),
    FindingMeasure("cost_source", "label", "where the cost comes from"),
    FindingMeasure("wall_sec", "number", "the whole trial, start to end"),
    FindingMeasure("environment_sec", "number", "building and starting the environment"),
    FindingMeasure("agent_setup_sec", "number", "installing and preparing the agent"),
    FindingMeasure("agent_sec", "number", "the agent at work"),
    FindingMeasure("verifier_sec", "number", "the verifier at work"),
    FindingMeasure("steps", "count", "steps of the trajectory"),
    FindingMeasure("agent_steps", "count", "steps in which the agent spoke"),
    FindingMeasure("tool_calls", "count", "tool calls, subagents included"),
    FindingMeasure("distinct_tools", "count", "different tools called"),
    FindingMeasure("calls_per_step", "number", "tool calls per agent step"),
    FindingMeasure("steps_per_minute", "number", "agent steps per minute"),
    FindingMeasure("tools", "table", "calls by tool name"),
    FindingMeasure(
        "tool_mix",
        "table",
        "calls by kind: read, search, edit, test, run, ...; as findings `tool_mix.read`, `tool_mix.search`, ...",
    ),
    FindingMeasure("tool_errors", "count", "calls that failed, by the protocol's flag or an exit code"),
    FindingMeasure("tool_success_rate", "number", "calls that did not fail, of those whose ending is known"),
    FindingMeasure("mcp_tools", "label", "the MCP tools called"),
    FindingMeasure("mcp_calls", "count", "calls of `mcp__*` tools"),
    FindingMeasure("native_calls", "count", "all other calls"),
    FindingMeasure("subagents", "count", "embedded subagents"),
    FindingMeasure("files_read", "count", "different files read"),
    FindingMeasure("files_edited", "count", "different files changed in place"),
    FindingMeasure("files_written", "count", "different files written whole"),
    FindingMeasure("places_explored", "count", "different places read, listed or searched"),
    FindingMeasure("searched_before_edit", "yes_no", "searched before the first edit"),
    FindingMeasure("looks_before_edit", "count", "calls that read or searched before the first edit"),
    FindingMeasure("first_edit_step", "count", "step of the first edit"),
    FindingMeasure("first_edit_sec", "number", "seconds until the first edit"),
    FindingMeasure("loops", "count", "calls identical to one of the 5 before, with no edit in between"),
    FindingMeasure("backtracks", "count", "edits of a file that one of the 3 edits before changed too"),
    FindingMeasure("test_runs", "count", "calls that ran tests"),
    FindingMeasure("tested_before_finish", "yes_no", "ran tests after the last edit"),
    FindingMeasure("own_tests_passed", "yes_no", "its last test run whose ending is known passed"),
    FindingMeasure(
        "lost_passing_state", "yes_no", "own tests passed, then edits, no passing run since, and the trial did not pass"
    ),
    FindingMeasure("truncated_outputs", "count", "results of which the agent saw only a part"),
    FindingMeasure("context_first_tokens", "count", "prompt tokens of the first step"),
    FindingMeasure("context_peak_tokens", "count", "prompt tokens of the largest step"),
    FindingMeasure("context_growth", "number", "context_peak_tokens / context_first_tokens"),
    FindingMeasure("context_resets", "count", "times the prompt shrank to less than half"),
    FindingMeasure("trajectory_problems", "count", "oddities in the trajectory file"),
    FindingMeasure("edited_tests", "count", "calls that changed test files (tripwire)"),
    FindingMeasure("touched_reward", "count", "calls that name reward or verifier files (tripwire)"),
    FindingMeasure("touched_solution", "count", "calls that name the task's solution folder (tripwire)"),
    FindingMeasure("tampering", "label", "what the safe verifier found and removed (tripwire)"),
    FindingMeasure("failure_class", "label", "why it did not pass (below)"),
    FindingMeasure("failure_signature", "label", "the signature (below)"),
)

MIX = "tool_mix"
"""Column of the calls by kind; the findings are `tool_mix.<kind>`."""
NAMES: tuple[str, ...] = tuple(measure.name for measure in MEASURES)
RECORDED: tuple[str, ...] = NAMES[: NAMES.index("steps")]
"""What the trial's result says: outcome, reward, tests, tokens, cost, times. Other pages read them there."""
BEHAVIOUR: tuple[str, ...] = NAMES[NAMES.index("steps") : NAMES.index("edited_tests")]
TRIPWIRES: tuple[str, ...] = NAMES[NAMES.index("edited_tests") : NAMES.index("failure_class")]
