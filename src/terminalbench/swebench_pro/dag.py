"""The artifacts of a run as a graph: one node an attempt; edges for retries, dependencies and escalations. Pure.

On disk it is as AtomicGuard writes it (index.json, objects/<2>/<id>.json), with the edges it lacks. Artifacts are named
by their content, so an answer that comes twice is one artifact; here each attempt is a node of its own.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from terminalbench.workflow.history import History, StepAttempt
from terminalbench.workflow.model import Artifact
from terminalbench.workflow.trace import LARGE, WorkflowEnding

VERSION = "1.0"


class EdgeKind(StrEnum):
    """What leads from one attempt to another."""

    RETRY = "retry"
    DEPENDENCY = "dependency"
    ESCALATION = "escalation"


class ArtifactStatus(StrEnum):
    """What became of an artifact."""

    PENDING = "pending"
    REJECTED = "rejected"
    ACCEPTED = "accepted"
    SUPERSEDED = "superseded"
    """It was accepted, and an escalation made its step run again."""


class Edge(msgspec.Struct, frozen=True):
    """From the attempt that was there first to the one that came of it."""

    kind: EdgeKind
    source: str
    target: str


class Node(msgspec.Struct, frozen=True):
    """One attempt with what it made. `letters` is how long the content was; a large one is kept elsewhere, once."""

    id: str
    attempt: StepAttempt
    status: ArtifactStatus
    content: str
    kind: str | None
    letters: int = 0


class Dag(msgspec.Struct, frozen=True):
    """The graph of a run, its nodes in the order in which they were made."""

    run: str
    history: History
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def build(run: str, history: History, artifacts: Mapping[str, Artifact]) -> Dag:
    """The graph of a run from its history and the artifacts that are there; an edge to a missing one is left out."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    latest: dict[tuple[str, str], str] = {}
    before: dict[tuple[str, int], str] = {}
    last_of: dict[str, str] = {}
    waiting = sorted(history.escalations, key=lambda one: one.number)
    due: dict[str, str] = {}
    for attempt in history.attempts:
        while waiting and waiting[0].number < attempt.number:
            escalation = waiting.pop(0)
            source = last_of.get(escalation.step)
            due |= dict.fromkeys(escalation.invalidated or escalation.targets, source) if source else {}
        artifact = artifacts.get(attempt.artifact or "")
        node = _node(run, attempt, artifact, _status(attempt, history))
        nodes.append(node)
        previous = before.get((attempt.step, attempt.cycle))
        if previous is not None:
            edges.append(Edge(EdgeKind.RETRY, previous, node.id))
        else:
            source = due.pop(attempt.step, None)
            edges += [Edge(EdgeKind.ESCALATION, source, node.id)] if source is not None else []
        for step, used in (attempt.uses or (artifact.uses if artifact is not None else {})).items():
            source = latest.get((step, used))
            edges += [Edge(EdgeKind.DEPENDENCY, source, node.id)] if source is not None else []
        before[attempt.step, attempt.cycle] = last_of[attempt.step] = node.id
        if attempt.artifact is not None:
            latest[attempt.step, attempt.artifact] = node.id
    return Dag(run, history, tuple(nodes), tuple(edges))


def _node(run: str, attempt: StepAttempt, artifact: Artifact | None, status: ArtifactStatus) -> Node:
    named = f"{run}\n{attempt.step}\n{attempt.cycle}\n{attempt.attempt}\n{attempt.number}"
    return Node(
        hashlib.sha256(named.encode()).hexdigest()[:32],
        attempt,
        status,
        artifact.content if artifact is not None else "",
        str(artifact.kind) if artifact is not None else None,
        (artifact.letters or len(artifact.content)) if artifact is not None else 0,
    )


def _status(attempt: StepAttempt, history: History) -> ArtifactStatus:
    """Return what became of an attempt. One that the run was ended at, before its step had passed, has no verdict."""
    if attempt.rejected_by is not None:
        return ArtifactStatus.REJECTED
    if (
        attempt is history.attempts[-1]
        and history.ending is not WorkflowEnding.DONE
        and attempt.step not in history.passed_steps
    ):
        return ArtifactStatus.PENDING
    later = (one for one in history.escalations if one.number > attempt.number)
    again = any(attempt.step in (one.invalidated or one.targets) for one in later)
    return ArtifactStatus.SUPERSEDED if again else ArtifactStatus.ACCEPTED


def object_path(node: str) -> str:
    """Return where the file of a node is, below the folder of its graph."""
    return f"objects/{node[:2]}/{node}.json"


def index(dag: Dag) -> dict[str, Any]:
    """The index file of a graph."""
    pairs: dict[str, list[str]] = {}
    for node in dag.nodes:
        pairs.setdefault(node.attempt.step, []).append(node.id)
    return {
        "version": VERSION,
        "artifacts": {
            node.id: {
                "path": object_path(node.id),
                "workflow_id": dag.run,
                "action_pair_id": node.attempt.step,
                "parent_action_pair_id": None,
                "status": node.status,
                "created_at": node.attempt.at,
            }
            for node in dag.nodes
        },
        "action_pairs": pairs,
        "workflows": {dag.run: [node.id for node in dag.nodes]},
        "edges": [msgspec.structs.asdict(edge) for edge in dag.edges],
        "workflow": dag.history.workflow,
        "config_ref": dag.history.config,
        "model": dag.history.model,
        "ending": dag.history.ending,
    }


def objects(dag: Dag) -> Iterable[tuple[str, dict[str, Any]]]:
    """The file of each node: its path and what is in it."""
    into: dict[str, list[Edge]] = {}
    for edge in dag.edges:
        into.setdefault(edge.target, []).append(edge)
    by_id = {node.id: node for node in dag.nodes}
    for node in dag.nodes:
        yield object_path(node.id), _object(dag, node, into.get(node.id, []), by_id)


def _object(dag: Dag, node: Node, into: Sequence[Edge], by_id: Mapping[str, Node]) -> dict[str, Any]:
    attempt, by = node.attempt, node.attempt.rejected_by
    retried = next((edge.source for edge in into if edge.kind is EdgeKind.RETRY), None)
    escalated = next((edge.source for edge in into if edge.kind is EdgeKind.ESCALATION), None)
    sources = [by_id[edge.source] for edge in into if edge.kind is EdgeKind.DEPENDENCY]
    earlier = [
        one
        for one in dag.nodes
        if (one.attempt.step, one.attempt.cycle) == (attempt.step, attempt.cycle)
        and one.attempt.number < attempt.number
    ]
    return {
        "artifact_id": node.id,
        "workflow_id": dag.run,
        "content": node.content[:LARGE],
        "previous_attempt_id": retried,
        "parent_action_pair_id": None,
        "action_pair_id": attempt.step,
        "created_at": attempt.at,
        "attempt_number": attempt.attempt,
        "status": node.status,
        "guard_result": {
            "passed": by is None,
            "feedback": by.feedback if by is not None else "",
            "fatal": by.fatal if by is not None else False,
            "guard_name": by.guard if by is not None else None,
            "sub_results": [
                {
                    "guard_name": check.guard,
                    "passed": check.passed,
                    "feedback": check.feedback,
                    "execution_time_ms": None if check.duration_sec is None else round(check.duration_sec * 1000, 3),
                }
                for check in attempt.checks
            ],
        },
        "context": {
            "workflow_id": dag.run,
            "specification_digest": dag.history.context,
            "feedback_history": [
                {"artifact_id": one.id, "feedback": said.feedback if said is not None else ""}
                for one in earlier
                for said in (one.attempt.rejected_by,)
            ],
            "dependency_artifacts": {one.attempt.step: one.id for one in sources},
            "escalated_from": escalated,
        },
        "metadata": _metadata(node),
    }


def _metadata(node: Node) -> dict[str, Any]:
    attempt, usage = node.attempt, node.attempt.usage
    asked = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    known = [count for count in asked if count is not None]
    found = {
        "kind": node.kind,
        "content_id": attempt.artifact,
        "cycle": attempt.cycle,
        "prompt_tokens": sum(known) if known else None,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "cost_usd": usage.cost_usd,
        "requests": attempt.tries,
        "temperature": attempt.temperature,
        "duration_sec": attempt.duration_sec,
    }
    found |= {"content_letters": node.letters} if node.letters > LARGE else {}
    return found | ({"generator_error": attempt.reason or ""} if attempt.artifact is None else {})
