"""Terminal-Bench 1: the folder of a run, of several, or of a leaderboard: results.json of a run and of each trial.

A trial is told twice, in the file of its run and in its own, and again in a copy of its run; it counts once. One
without a verdict (`is_resolved` is null: its tests or its harness broke) is errored. A run that counts no tokens at all
writes 0: they are unknown.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from terminalbench.files import read_plain
from terminalbench.formats.row import RowReader, identifier, moment_of, table_of
from terminalbench.formats.source import SourceFile, parsed
from terminalbench.records.values import elapsed_sec

DATASET = "terminal-bench"
_ENTRY = re.compile(r"^\d{8}_.+")
"""How the leaderboard names the folder of an agent: day, agent, model."""
_ATTEMPT = re.compile(r"\.(\d+)-of-\d+")
_FINE = ("unset", "none", None)
_SMALL = 1 << 24


class TerminalBenchFormat:
    """Results of `tb run`."""

    def recognises(self, file: SourceFile) -> bool:
        """Recognise the format by `is_resolved` of its trials, or of the one trial that it is."""
        found = file.json
        if not isinstance(found, dict):
            return False
        trials = found.get("results")
        if isinstance(trials, list):
            return any(_is_trial(one) for one in trials[:50]) or (not trials and "n_resolved" in found)
        return _is_trial(found)

    def read(self, files: Sequence[SourceFile], reader: RowReader) -> None:
        """Each trial once: that of its own file goes before what the file of its run says."""
        runs: dict[Path, dict[str, tuple[SourceFile, Mapping[str, Any]]]] = defaultdict(dict)
        whole = [file for file in files if isinstance(file.json.get("results"), list)]
        folders = {file.path.parent for file in whole}
        for file in whole:
            for one in file.json["results"]:
                if not _is_trial(one):
                    reader.reject("is not a Terminal-Bench trial")
                    continue
                run = file.path if file.path.name != "results.json" else file.path.parent
                runs[run].setdefault(_name(one), (file, one))
        for file in files:
            if file not in whole:
                alone = file.path.parents[2]  # run/task/trial/results.json of a run that left no file of its own
                run = next((folder for folder in file.path.parents if folder in folders), alone)
                runs[run][_name(file.json)] = (file, file.json)
        several = len(runs) > 1
        told: set[str] = set()
        for run, trials in runs.items():
            metadata = _metadata(run)
            for file, one in trials.values():
                identity = identifier(one.get("id"))
                if identity in told:
                    reader.reject("the trial is in a copy of its run")
                    continue
                if identity is not None:
                    told.add(identity)
                _add(file, one, run, metadata, reader, several=several)


def _is_trial(value: Any) -> bool:
    return isinstance(value, dict) and "task_id" in value and "is_resolved" in value


def _name(trial: Mapping[str, Any]) -> str:
    return str(trial.get("trial_name") or trial.get("task_id"))


def _metadata(run: Path) -> Mapping[str, Any]:
    if run.is_file():
        return {}
    return table_of(parsed(read_plain(run / "run_metadata.json", _SMALL) or b""))


def _add(
    file: SourceFile,
    trial: Mapping[str, Any],
    run: Path,
    metadata: Mapping[str, Any],
    reader: RowReader,
    *,
    several: bool,
) -> None:
    resolved, mode = trial.get("is_resolved"), trial.get("failure_mode")
    if resolved is not None and not isinstance(resolved, bool):
        reader.reject("is_resolved is neither true, false nor null")
        return
    sent, answered = (reader.count(trial.get(f"total_{way}_tokens"), "tokens") for way in ("input", "output"))
    if not sent and not answered:
        sent = answered = None
    number = _ATTEMPT.search(_name(trial))
    agent, model = identifier(metadata.get("agent_name")), identifier(metadata.get("model_name"))
    version = metadata.get("dataset_version")
    dataset = identifier(metadata.get("dataset_name")) or DATASET
    broke = f"no verdict: {mode}" if resolved is None else None
    reader.add(
        trial.get("task_id"),
        _profile(file, run, agent, model),
        f"{dataset}@{version}" if version else _dataset(file) or dataset,
        passed=resolved,
        attempt=int(number.group(1)) if number is not None and not several else None,
        agent=agent,
        model=model,
        input_tokens=sent,
        output_tokens=answered,
        seconds=elapsed_sec(moment_of(trial.get("agent_started_at")), moment_of(trial.get("agent_ended_at"))),
        started_at=trial.get("trial_started_at"),
        finished_at=trial.get("trial_ended_at"),
        error=broke,
        error_type=identifier(mode) if mode not in _FINE else None,
    )


def _profile(file: SourceFile, run: Path, agent: str | None, model: str | None) -> str:
    """The folder of the agent on a leaderboard; else agent and model of the run; else the folder of the run."""
    places = [run, *run.parents]
    inside = [place.name for place in places if place == file.root or file.root in place.parents or place == run]
    entry = next((name for name in inside if _ENTRY.match(name) and not re.match(r"^\d{4}-", name)), None)
    if entry is not None:
        return entry
    if agent and model:
        return f"{agent}/{model.rpartition('/')[2]}"
    return inside[1] if len(inside) > 1 and not agent else agent or run.stem


def _dataset(file: SourceFile) -> str | None:
    """Return what the folder above the agents of a leaderboard is called: `terminal-bench-core@0.1.1`."""
    for place in file.path.parents:
        if re.match(r"^[\w.-]+[@:]\d[\w.]*$", place.name):
            return place.name.replace(":", "@")
    return None
