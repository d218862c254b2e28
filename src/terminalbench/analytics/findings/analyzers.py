"""Analyzers: what they are, which there are, and running them so that none can end an analysis.

An analyzer has `name`, `version` and `analyze(trial, trajectory) -> findings` (`TrialFiles`, `Trajectory | None`). It
may have `targets`, names of artifact folders it reads: then it also runs again when those change. Another package adds
one with `[analysis] analyzers = ["pkg.mod:Object"]`; the object is a class without arguments or a ready instance.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from terminalbench.analytics.atif import Trajectory
from terminalbench.analytics.findings.trial_files import TrialFiles
from terminalbench.errors import UserError
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
