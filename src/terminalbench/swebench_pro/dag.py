"""The artifacts of a run as a graph: one node an attempt; edges for retries, dependencies and escalations. Pure.

`index` and `objects` are its files, `page` shows it in HTML: a picture and a list, no script, nothing from outside.
On disk it is as AtomicGuard writes it (index.json, objects/<2>/<id>.json), with the edges it lacks. Artifacts are named
by their content, so an answer that comes twice is one artifact; here each attempt is a node of its own.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from terminalbench.report.charts.svg import esc, num, tip
from terminalbench.text.foreign import cut, flat, visible
from terminalbench.text.numbers import UNKNOWN, dollars, duration, plural, tokens
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
    """One attempt with the artifact that it made, where there is one."""

    id: str
    attempt: StepAttempt
    status: ArtifactStatus
    artifact: Artifact | None

    @property
    def content(self) -> str:
        """The content of the artifact."""
        return self.artifact.content if self.artifact is not None else ""


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
        name = f"{run}\n{attempt.step}\n{attempt.cycle}\n{attempt.attempt}\n{attempt.number}"
        node = Node(hashlib.sha256(name.encode()).hexdigest()[:32], attempt, _status(attempt, history), artifact)
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
        "kind": node.artifact.kind if node.artifact is not None else None,
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
    letters = (node.artifact.letters if node.artifact is not None else None) or len(node.content)
    found |= {"content_letters": letters} if letters > LARGE else {}
    return found | ({"generator_error": attempt.reason or ""} if attempt.artifact is None else {})


_WIDE, _HIGH, _GAP_X, _GAP_Y, _TOP, _LEFT = 168.0, 46.0, 60.0, 26.0, 40.0, 16.0
_CONTENT = 20_000
_CSS = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#59636e;--line:#8c959f;
--ok:#1a7f37;--no:#b42318;--old:#8a5a00;--dep:#6e7781;--esc:#7a3ec8}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--line:#6e7681;
--ok:#3fb950;--no:#ff7b72;--old:#d29922;--dep:#8b949e;--esc:#bc8cff}}
body{font:15px/1.5 system-ui,sans-serif;max-width:1200px;margin:1.5rem auto;padding:0 1rem;color:var(--ink)}
.scroll{overflow-x:auto}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .soft{fill:var(--soft)}
svg .b{font-weight:600}rect{fill:none;stroke-width:1.5}.accepted{stroke:var(--ok)}
.rejected{stroke:var(--no);stroke-dasharray:5 3}
.superseded{stroke:var(--old)}.pending{stroke:var(--line);stroke-dasharray:2 3}path.edge{fill:none;stroke-width:1.5}
.retry{stroke:var(--no)}.dependency{stroke:var(--dep);stroke-dasharray:2 3}
.escalation{stroke:var(--esc);stroke-width:2.2}
pre{overflow:auto;max-height:30rem;padding:.6rem;border:1px solid var(--line);
white-space:pre-wrap;overflow-wrap:anywhere}
td,th{text-align:left;padding:.1rem .8rem .1rem 0;vertical-align:top}details{margin:.3rem 0}summary{cursor:pointer}
"""
_WORDS = {
    ArtifactStatus.ACCEPTED: "accepted",
    ArtifactStatus.REJECTED: "rejected",
    ArtifactStatus.PENDING: "no verdict",
    ArtifactStatus.SUPERSEDED: "accepted, then redone",
}


def page(dag: Dag, title: str) -> str:
    """The whole page."""
    history = dag.history
    facts = [
        ("workflow", f"{history.workflow or UNKNOWN}{' (oracle)' if history.oracle else ''}"),
        ("model", history.model or UNKNOWN),
        ("ended", f"{history.ending or 'cut off'}{f': {history.reason}' if history.reason else ''}"),
        ("given up at", f"{history.failed_step} by {history.failed_guard or UNKNOWN}" if history.failed_step else "-"),
        ("attempts", f"{len(dag.nodes)}, {plural(history.retries, 'retry', 'retries')}"),
        ("escalations", str(len(history.escalations))),
        ("tokens", tokens(history.tokens)),
        ("cost", dollars(history.cost_usd)),
    ]
    table = "".join(f"<tr><th>{esc(name)}</th><td>{esc(flat(value, 400))}</td></tr>" for name, value in facts)
    details = "".join(_details(node) for node in dag.nodes)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{esc(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_CSS}</style></head><body>'
        f"<h1>{esc(title)}</h1><table>{table}</table>"
        f"<p>Columns are steps, rows are attempts in order. A red line leads to a retry, a dotted line to a step "
        f"that uses an artifact, a violet line to a step that an escalation runs again.</p>"
        f'<div class="scroll">{picture(dag)}</div><h2>Attempts</h2>{details}</body></html>\n'
    )


def picture(dag: Dag) -> str:
    """The graph as SVG: a column a step, a row an attempt."""
    columns = {step: place for place, step in enumerate(dag.history.steps)}
    places = {
        node.id: (_LEFT + columns[node.attempt.step] * (_WIDE + _GAP_X), _TOP + row * (_HIGH + _GAP_Y))
        for row, node in enumerate(dag.nodes)
    }
    width = 2 * _LEFT + len(columns) * (_WIDE + _GAP_X) - _GAP_X
    height = _TOP + max(1, len(dag.nodes)) * (_HIGH + _GAP_Y)
    parts = [
        f'<text class="b" x="{num(_LEFT + place * (_WIDE + _GAP_X))}" y="22">{esc(cut(step, 24))}</text>'
        for step, place in columns.items()
    ]
    for edge in dag.edges:
        parts.append(_edge(edge.kind, places[edge.source], places[edge.target]))
    parts += [_box(node, *places[node.id]) for node in dag.nodes]
    size = f'viewBox="0 0 {num(width)} {num(height)}" width="{num(width)}" height="{num(height)}"'
    told = f"{plural(len(dag.nodes), 'attempt')} in {plural(len(columns), 'step')}"
    return f'<svg role="img" {size} xmlns="http://www.w3.org/2000/svg"><title>{told}</title>{"".join(parts)}</svg>'


def _edge(kind: EdgeKind, source: tuple[float, float], target: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = source, target
    if kind is EdgeKind.RETRY:
        x = x1 + _WIDE / 2
        drawn = f"M{num(x)} {num(y1 + _HIGH)}L{num(x)} {num(y2)}"
    elif x2 > x1:
        a, b, c, d = x1 + _WIDE, y1 + _HIGH / 2, x2, y2 + _HIGH / 2
        drawn = f"M{num(a)} {num(b)}C{num(a + 40)} {num(b)} {num(c - 40)} {num(d)} {num(c)} {num(d)}"
    else:
        a, b, c, d = x1 + 12, y1 + _HIGH, x2 + _WIDE - 12, y2
        drawn = f"M{num(a)} {num(b)}C{num(a)} {num(b + 30)} {num(c)} {num(d - 30)} {num(c)} {num(d)}"
    return f'<path class="edge {kind}" d="{drawn}">{tip(kind)}</path>'


def _box(node: Node, x: float, y: float) -> str:
    attempt, by = node.attempt, node.attempt.rejected_by
    head = f"cycle {attempt.cycle}, attempt {attempt.attempt}"
    said = f"rejected by {by.guard}" if by is not None else _WORDS[node.status]
    text = tip(f"{attempt.step}, {head}: {said}{f': {flat(by.feedback, 300)}' if by is not None else ''}")
    return (
        f'<a href="#n{node.id}"><g>{text}<rect class="{node.status}" x="{num(x)}" y="{num(y)}" width="{num(_WIDE)}" '
        f'height="{num(_HIGH)}" rx="6"/><text x="{num(x + 10)}" y="{num(y + 19)}">{head}</text>'
        f'<text class="soft" x="{num(x + 10)}" y="{num(y + 36)}">{esc(cut(said, 26))}</text></g></a>'
    )


def _details(node: Node) -> str:
    attempt = node.attempt
    head = f"{attempt.step}, cycle {attempt.cycle}, attempt {attempt.attempt}: {_WORDS[node.status]}"
    told = [duration(attempt.duration_sec), f"{tokens(attempt.usage.total_tokens)} tokens"]
    cost = attempt.usage.cost_usd
    told += [dollars(cost) if cost is not None else "cost unknown"]
    rows = "".join(
        f"<tr><th>{esc(check.guard)}</th><td>{'passed' if check.passed else 'rejected'}"
        f"{' (fatal)' if check.fatal else ''}</td><td>{esc(flat(check.feedback, 600))}</td></tr>"
        for check in attempt.checks
    )
    reason = f"<p>The answer was unusable: {esc(flat(attempt.reason or '', 600))}</p>" if not attempt.artifact else ""
    content = f"<pre>{esc(visible(cut(node.content, _CONTENT)))}</pre>" if node.content else ""
    return (
        f'<details id="n{node.id}"><summary>{esc(head)} ({esc(", ".join(told))})</summary>'
        f"{reason}<table>{rows}</table>{content}</details>"
    )
