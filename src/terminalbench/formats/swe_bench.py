"""SWE-bench: the report of a run, and the report.json of each instance. SWE-Bench Pro: eval_results.json.

A patch that is empty or was not applied is a failure, as the benchmark counts it; an instance whose evaluation broke
(`error_ids`) has no verdict, and one that was not submitted did not run. Predictions with a verdict are a table.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from terminalbench.errors import UserError
from terminalbench.formats.row import RowReader, table_of
from terminalbench.formats.source import SourceFile, parsed

DATASET = "swe-bench"
DATASET_PRO = "swe-bench-pro"
_REPORT = "resolved_ids"
_TRIED = ("unresolved_ids", "empty_patch_ids", "completed_ids", "error_ids")
_OLD = "resolved"
_PREDICTIONS = "all_preds.jsonl"
_OLD_LISTS = ("generated", "with_logs", "applied")
_SIGNS = ("patch_exists", "patch_successfully_applied", "patch_is_None", "tests_status")
_INSTANCE = re.compile(r"^(instance_)?[\w.-]+__[\w.-]+$")


class SweBenchFormat:
    """Reports of SWE-bench's harness, of a run or of its instances."""

    def recognises(self, file: SourceFile) -> bool:
        """Recognise the format by its lists of instances, or by an instance's `resolved` beside what became of its
        patch."""
        found = file.json
        if not isinstance(found, dict):
            return False
        return _is_report(found) or _is_old(found) or bool(_instances(found))

    def read(self, files: Sequence[SourceFile], reader: RowReader) -> None:
        """A report of a run is a profile; reports of instances are of the folder that their model has.

        A folder may hold both: what a whole report of a run tells is not taken twice.
        """
        reader.guessed = True
        told = {kind: [file for file in files if _kind(file.json) is kind] for kind in _ReportKind}
        runs, instances, partial = (told[kind] for kind in _ReportKind)
        if partial and not runs and not instances:
            for file in partial:
                _read_partial(file, reader)
            return
        for file in runs:
            (_read_old if _is_old(file.json) else _read_run)(file, file.json, reader)
        if partial:
            reader.reject("the report lists only the resolved instances", len(partial))
        if runs and instances:
            reader.reject("the report of the instance is next to the report of its run", len(instances))
            return
        for file in instances:
            for name, one in _instances(file.json).items():
                reader.add(name, _model_of(file), DATASET, passed=one["resolved"])


class _ReportKind(Enum):
    RUN = "of a run, with the attempted instances"
    INSTANCE = "of instances"
    PARTIAL = "of a run, with the resolved instances only"


def _kind(found: Mapping[str, Any]) -> _ReportKind:
    if _is_report(found):
        return _ReportKind.RUN if any(_ids(found, name) for name in _TRIED) else _ReportKind.PARTIAL
    if _is_old(found):
        return _ReportKind.RUN if any(_ids(found, name) for name in _OLD_LISTS) else _ReportKind.PARTIAL
    return _ReportKind.INSTANCE


def _read_partial(file: SourceFile, reader: RowReader) -> None:
    """The instances that the predictions of a submission name; those that its report does not list are not resolved."""
    beside = next((one for one in (folder / _PREDICTIONS for folder in file.path.parents[:2]) if one.is_file()), None)
    if beside is None:
        raise UserError(
            "lists only the resolved instances, so the number of attempted ones is unknown",
            where=str(file.path),
            hint=f"name the folder of its report.json files, or put the submission's {_PREDICTIONS} next to it",
        )
    reader.beside.append(beside)
    rows = map(parsed, SourceFile(beside, beside.parent).data.splitlines())
    named = [str(row["instance_id"]) for row in rows if isinstance(row, dict) and "instance_id" in row]
    resolved = {str(name) for which in (_REPORT, _OLD) for name in _ids(file.json, which)}
    for name in dict.fromkeys([*named, *sorted(resolved), *map(str, _ids(file.json, "no_generation"))]):
        reader.add(name, file.label, DATASET, passed=name in resolved)


def _model_of(file: SourceFile) -> str:
    """The folder of a model's instances; of one submission to the leaderboard, they lie in its `logs`."""
    if file.path.name != "report.json":
        return file.label
    folder = file.path.parent.parent
    return folder.parent.name if folder.name == "logs" and folder.parent.name else folder.name


class SweBenchProFormat:
    """The file of SWE-Bench Pro's evaluator: each instance and whether it was resolved."""

    def recognises(self, file: SourceFile) -> bool:
        """Recognise the format by truths alone, under names of instances."""
        found = file.json
        if not isinstance(found, dict) or not found:
            return False
        named = sum(_INSTANCE.match(name) is not None for name in found)
        return named > len(found) / 2 and sum(isinstance(value, bool) for value in found.values()) > len(found) / 2

    def read(self, files: Sequence[SourceFile], reader: RowReader) -> None:
        """Each file is a profile, called as its folder."""
        reader.guessed = True
        for file in files:
            for name, value in file.json.items():
                if isinstance(value, bool):
                    reader.add(name, file.label, DATASET_PRO, passed=value)
                else:
                    reader.reject("the verdict is neither true nor false")


def _instances(found: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The instances of a report that tells of each one whether it was resolved."""
    named = {name: table_of(one) for name, one in found.items()}
    return {
        name: one
        for name, one in named.items()
        if isinstance(one.get("resolved"), bool) and any(sign in one for sign in _SIGNS)
    }


def _ids(found: Mapping[str, Any], name: str) -> list[str]:
    value = found.get(name)
    return [str(one) for one in value if isinstance(one, str | int)] if isinstance(value, list) else []


def _read_run(file: SourceFile, found: Mapping[str, Any], reader: RowReader) -> None:
    resolved = {name for which in (_REPORT, _OLD) for name in _ids(found, which)}
    errors = set(map(str, _ids(found, "error_ids"))) - resolved
    lists = [found[n] for n in found if (n.endswith("_ids") or n == _OLD) and isinstance(found[n], list)]
    if unnamed := sum(not isinstance(one, str | int) for values in lists for one in values):
        reader.reject("no task is told", unnamed)
    failed = [name for which in _TRIED[:-1] for name in _ids(found, which)]
    idle = [*_ids(found, "incomplete_ids"), *_ids(found, "infra_failure_ids"), *_ids(found, "ambiguous_failure_ids")]
    for name in dict.fromkeys([*sorted(resolved), *failed]):
        if name not in errors:
            reader.add(name, file.label, DATASET, passed=name in resolved)
    for name in sorted(errors):
        reader.add(name, file.label, DATASET, error="the evaluation of the instance broke", error_type="error_ids")
    known = {*resolved, *errors, *map(str, failed)}
    for name in dict.fromkeys(map(str, idle)):
        if name not in known:
            reader.add(name, file.label, DATASET, not_run=True)


def _is_report(found: Mapping[str, Any]) -> bool:
    """Multi-SWE-bench calls `resolved` what SWE-bench calls `resolved_ids`."""
    return isinstance(found.get(_REPORT), list) or ("unresolved_ids" in found and isinstance(found.get(_OLD), list))


def _is_old(found: Mapping[str, Any]) -> bool:
    return isinstance(found.get(_OLD), list) and ("no_generation" in found or "no_logs" in found)


def _read_old(file: SourceFile, found: Mapping[str, Any], reader: RowReader) -> None:
    """The lists that older reports have."""
    resolved = set(map(str, _ids(found, _OLD)))
    tried = [name for which in _OLD_LISTS for name in _ids(found, which)]
    broke = {
        str(name) for which in ("install_fail", "reset_failed", "no_logs") for name in _ids(found, which)
    } - resolved
    for name in dict.fromkeys(map(str, [*resolved, *_ids(found, "no_generation"), *tried])):
        if name in broke:
            reader.add(name, file.label, DATASET, error="the evaluation of the instance broke")
        else:
            reader.add(name, file.label, DATASET, passed=name in resolved)
