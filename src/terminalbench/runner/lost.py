"""Trials that a resume runs again although they had ended with a verdict: their folders are gone, or cannot be read.

The events of a batch still tell of them. One who deletes what failed and runs it again passes more often, so the plan
keeps it as a departure. The event of the resume names them, so that a later one does not tell of them again.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.departures import Departure, DepartureKind
from terminalbench.experiments.plan import Plan
from terminalbench.index.queries import BatchView
from terminalbench.json_files import BadLine, each_jsonl
from terminalbench.records.event import EventKind
from terminalbench.records.trial import Outcome
from terminalbench.runner.waves import Cell
from terminalbench.text.numbers import noun, plural, some

LOST = "lost_verdicts"
"""The key in the detail of a `resumed` event: `<job>/<trial>` of each."""


class _EndEvent(msgspec.Struct):
    """The part of an event that matters here."""

    kind: str
    job: str = ""
    trial: str | None = None
    profile: str | None = None
    dataset: str | None = None
    task: str | None = None
    outcome: str | None = None
    detail: dict[str, Any] = {}


def lost_verdicts(batch: Batch, view: BatchView, missing: Mapping[str, Counter[Cell]]) -> dict[str, str]:
    """Return of the cells that are to run `<job>/<trial>` of each trial with a verdict that is not there any more, in
    words.

    Not those that were run again on request: their plan tells of them. Reads the events only where something is to run.
    """
    if not missing or not batch.events_jsonl.exists():
        return {}
    there = {row.key for row in view.rows() if row.trial is not None} | set(view.plan.superseded)
    found: dict[str, str] = {}
    told: set[str] = set()
    for event in each_jsonl(batch.events_jsonl, _EndEvent):
        if isinstance(event, BadLine):
            continue
        if event.kind == EventKind.RESUMED:
            told.update(event.detail.get(LOST) or ())
        if event.kind != EventKind.TRIAL_ENDED or event.detail.get("retried"):
            continue
        if event.outcome not in (Outcome.PASSED, Outcome.FAILED):
            continue
        key, cell = f"{event.job}/{event.trial}", (event.dataset or "", event.task or "")
        if key not in there and missing.get(event.profile or "", {}).get(cell):
            found[key] = f"{event.profile} {event.task} ({event.outcome})"
    return {key: text for key, text in found.items() if key not in told}


def with_lost(plan: Plan, lost: Mapping[str, str]) -> Plan:
    """The plan with these as a departure."""
    if not lost:
        return plan
    departure = Departure(DepartureKind.LOST_VERDICTS, said(lost))
    return msgspec.structs.replace(plan, departures=(*plan.departures, departure))


def said(lost: Mapping[str, str]) -> str:
    """The sentence, with the first of them."""
    count = len(lost)
    gone = f"{noun(count, 'was', 'were')} gone or unreadable and {noun(count, 'is', 'are')} run again"
    return f"{plural(count, 'trial')} that had ended with a verdict {gone}: {some(list(lost.values()), 10)}"
