"""The graph of a run as one HTML page: a picture and a list, no script, nothing from outside."""

from terminalbench.report.charts.svg import esc, num, tip
from terminalbench.swebench_pro.dag import ArtifactStatus, Dag, EdgeKind, Node
from terminalbench.text.foreign import cut, flat, visible
from terminalbench.text.numbers import UNKNOWN, dollars, duration, plural, tokens

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


_WORDS = {
    ArtifactStatus.ACCEPTED: "accepted",
    ArtifactStatus.REJECTED: "rejected",
    ArtifactStatus.PENDING: "no verdict",
    ArtifactStatus.SUPERSEDED: "accepted, then redone",
}


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
