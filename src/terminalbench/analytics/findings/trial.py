"""The analyzer `trial`: what the result says. Success, reward, verifier tests, tokens, cost, times."""

import json
from collections.abc import Iterable, Iterator

import msgspec

from terminalbench.analytics.atif import Trajectory
from terminalbench.analytics.findings.trial_files import TrialFiles, Value
from terminalbench.decode import NOT_DECODED, decode
from terminalbench.files import read_plain
from terminalbench.records.trial import Finding, Outcome, Phases, Usage

_CTRF_LIMIT = 64 << 20


class CtrfTest(msgspec.Struct, frozen=True):
    """One test of the verifier's report."""

    name: str = "?"
    status: str = "other"


class _VerifierTests(msgspec.Struct):
    tests: list[CtrfTest] = []


class _Ctrf(msgspec.Struct):
    results: _VerifierTests


class TrialAnalyzer:
    """Findings from `result.json` and the verifier's own report."""

    name = "trial"
    version = "1"

    def analyze(self, trial: TrialFiles, trajectory: Trajectory | None) -> Iterable[Finding]:  # noqa: ARG002
        """Every measure of the result; None with a reason where it is not known."""
        me = (self.name, self.version)
        values = {**_ending(trial), **dict(_tests(trial)), **_usage(trial.usage), **_times(trial)}
        return [trial.finding(me, name, value, reason) for name, (value, reason) in values.items()]


def read_ctrf(trial: TrialFiles) -> list[CtrfTest] | str | None:
    """The verifier's tests; None when it wrote no report; the reason when that cannot be read."""
    found: list[CtrfTest] = []
    folder = trial.folder
    paths = [folder / "verifier" / "ctrf.json", *sorted(folder.glob("steps/*/verifier/ctrf.json"))]
    paths = [path for path in paths if path.is_file()]
    for path in paths:
        data = read_plain(path, _CTRF_LIMIT)
        try:
            found += decode(data or b"", _Ctrf).results.tests
        except NOT_DECODED as error:
            return f"ctrf.json cannot be read: {error}"
    return found if paths else None


def _ending(trial: TrialFiles) -> dict[str, tuple[Value, str | None]]:
    record = trial.record
    if record is None:
        reason = trial.reason or "the trial has no result"
        return {"success": (None, reason), "reward": (None, reason)}
    success = record.outcome is Outcome.PASSED if record.measured else None
    why = None if record.measured else f"{record.outcome}: {record.error_message or 'no verdict'}"
    return {"success": (success, why), "reward": (record.reward, why if record.reward is None else None)}


def _tests(trial: TrialFiles) -> Iterator[tuple[str, tuple[Value, str | None]]]:
    names = ("tests_passed", "tests_failed", "tests_total", "tests_passed_ratio")
    tests = read_ctrf(trial)
    if tests is None or isinstance(tests, str):
        yield from ((name, (None, tests or "the verifier wrote no ctrf.json")) for name in names)
        return
    passed = sum(test.status == "passed" for test in tests)
    failing = [test.name for test in tests if test.status == "failed"]
    yield "tests_passed", (passed, None)
    yield "tests_failed", (len(failing), ", ".join(failing[:20]) or None)
    yield "tests_total", (len(tests), None)
    yield "tests_passed_ratio", (passed / len(tests), None) if tests else (None, "no tests in ctrf.json")


def _usage(usage: Usage) -> dict[str, tuple[Value, str | None]]:
    values: dict[str, Value] = {"tokens": usage.total_tokens, **msgspec.structs.asdict(usage)}
    values["usage_source"] = values.pop("source")
    del values["all_tokens"]  # a total that an import told is `tokens`
    return {name: (value, "it was not recorded" if value is None else None) for name, value in values.items()}


def _times(trial: TrialFiles) -> dict[str, tuple[Value, str | None]]:
    record = trial.record
    try:
        wall_sec = record.wall_sec if record is not None else None
    except (ValueError, TypeError):
        wall_sec = None
    phases = record.phases if record is not None else Phases()
    values: dict[str, Value] = {"wall_sec": wall_sec, **msgspec.structs.asdict(phases)}
    reason = "the trial did not get that far, or did not record it"
    return {name: (value, reason if value is None else None) for name, value in values.items()}


def as_table(counts: dict[str, int]) -> str:
    """Counts as JSON text, the largest first."""
    return json.dumps(dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))), ensure_ascii=False)
