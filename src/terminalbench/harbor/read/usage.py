"""Tokens and cost of a trial from the best source there is.

1. `claude-code`: the CLI's own `result` event, of an agent that is known to run it (`planned.client_of`). It counts
   every model of the session, subagents included. It counts answers that were cut off too, as far as they had come:
   `claude-code:cut` is without their tokens, which are unknown (the CLI's own cost has them).
2. `harbor`: what the agent reported to Harbor (input includes cached tokens there; here it does not).
3. `trajectory`: the totals of the trajectory.
4. `claude-code:partial`: a session that never came to its end: input as seen so far, output unknown.
5. `workflow`, or `workflow:partial` where it was cut off: the trace of a guarded workflow, which its own process wrote.

A cost the source does not know, or that Claude Code invented for a model it has no price for, is computed from the
tokens with the price that the profile declares (`declared`), else with the recorded price table, and stays unknown when
that has no price either. A profile that declares the price 0 costs 0, whatever its agent says.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files

import msgspec
from msgspec import structs

from terminalbench.decode import decode
from terminalbench.experiments.tables import ProfilePrice
from terminalbench.harbor.read.agent_logs import FinalMetrics
from terminalbench.harbor.read.claude_stream import SOURCE, ClaudeStream, ModelTokens, StreamTokens
from terminalbench.harbor.read.result_file import AgentContext
from terminalbench.records.trial import Usage

_ANTHROPIC = re.compile(r"(?i)claude|sonnet|opus|haiku")
_DECLARED = "declared"
_DATE = re.compile(r"[-@](?:20\d{2}-?\d{2}-?\d{2}|\d{4})$")
_SAME_SELLER = {"google": "gemini", "moonshotai": "moonshot", "x-ai": "xai", "z-ai": "zai", "mistralai": "mistral"}


class ModelPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """USD per million tokens. Cached tokens without a price of their own cost as much as fresh ones."""

    provider: str
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class PriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A price list with its version and where it was taken from."""

    version: str
    origin: str
    unit: str
    models: dict[str, ModelPrice]

    @property
    def source(self) -> str:
        """The `Usage.cost_source` of a cost that is computed from this table."""
        return f"prices:{self.version}"

    def find(self, model: str) -> ModelPrice | None:
        """The price of `model`, given bare or as "provider/model"; never that of another seller's namesake."""
        seller, slash, rest = model.strip().lower().rpartition("/")
        price = self.models.get(rest) or self.models.get(_DATE.sub("", rest))
        if price is None or not slash:
            return price
        maker = seller.rpartition("/")[2]
        return price if _SAME_SELLER.get(maker, maker) == price.provider else None


def cost_of(model: str | None, usage: Usage, declared: ProfilePrice | None = None) -> float | None:
    """Return what `usage` costs at the declared price, else at that of the recorded table; None: price or tokens are
    unknown."""
    price = declared or (price_table().find(model) if model else None)
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    total = (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + (usage.cache_read_tokens or 0) * read
        + (usage.cache_write_tokens or 0) * write
    )
    return total / 1_000_000


@cache
def price_table() -> PriceTable:
    """The table that ships with this version."""
    return decode(files(__package__).joinpath("prices.json").read_bytes(), PriceTable)


def from_stream(stream: ClaudeStream, declared: ProfilePrice | None) -> Usage | None:
    """Return what a finished Claude Code session says it used; None when it never said."""
    result = stream.result
    if result is None or (result.usage is None and not result.model_usage):
        return None
    if result.model_usage:
        whole, was_cut = _without_cut(stream, result.model_usage)
        parts = [_model_usage(name, tokens, declared) for name, tokens in whole.items()]
        return _add(parts, f"{SOURCE}:cut" if was_cut else SOURCE)
    # Nothing was answered, or an old CLI: `usage` is all there is. A total of 0 for no model is not an invention.
    told = structs.asdict(result.usage or StreamTokens())
    basis = None if result.total_cost_usd else "list"
    tokens = ModelTokens(**told, cost_usd=result.total_cost_usd, cost_basis=basis)
    model = stream.init.model if stream.init is not None else None
    return _add([_model_usage(model or "", tokens, declared)], SOURCE)


_MOST = 1e15
"""Of tokens and dollars of a trial. The index holds no number past 64 bits, nor a sum of such."""
_SENT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _without_cut(stream: ClaudeStream, told: dict[str, ModelTokens]) -> tuple[dict[str, ModelTokens], bool]:
    """Return what a session tells without the answers that were cut off, and whether there were any.

    A cut answer that the CLI has counted is more than all answers that came, by what its repetition sent.
    """
    found, was_cut = dict(told), False
    for model, tokens in stream.cut:
        if (known := found.get(model)) is None:
            continue
        came = stream.messages.values()
        more = {name: _sum(found.values(), name) - _sum(came, name) for name in _SENT}
        sent = {name: getattr(tokens, name) or 0 for name in _SENT}
        if any(sent.values()) and all(more[name] >= sent[name] for name in _SENT):
            found[model] = structs.replace(
                known, **{name: (getattr(known, name) or 0) - sent[name] for name in _SENT if sent[name]}
            )
            was_cut = True
    return found, was_cut


def _sum(tokens: Iterable[StreamTokens | ModelTokens], name: str) -> int:
    return sum(_sane(getattr(one, name)) or 0 for one in tokens)


def partial(streams: Iterable[ClaudeStream]) -> Usage | None:
    """Return what unfinished Claude Code sessions had sent when they stopped. Output is not known before the end."""
    sent = [_fresh(tokens) for stream in streams for tokens in stream.messages.values()]
    used = _add(sent, f"{SOURCE}:partial")
    return used and structs.replace(used, output_tokens=None)


def from_contexts(contexts: Iterable[AgentContext]) -> Usage | None:
    """Return what the agent reported to Harbor. All zeros are Harbor's way of saying that it does not know."""
    return _reported(
        [_split(c.n_input_tokens, c.n_cache_tokens, c.n_output_tokens, c.cost_usd) for c in contexts], "harbor"
    )


def from_metrics(metrics: Iterable[FinalMetrics]) -> Usage | None:
    """The totals of a trajectory, or of one for each step."""
    parts = []
    for total in metrics:
        written = (total.extra or {}).get("total_cache_creation_input_tokens")
        part = _split(
            total.total_prompt_tokens, total.total_cached_tokens, total.total_completion_tokens, total.total_cost_usd
        )
        if isinstance(written, int) and part.input_tokens is not None and 0 <= written <= part.input_tokens:
            part = structs.replace(part, input_tokens=part.input_tokens - written, cache_write_tokens=written)
        parts.append(part)
    return _reported(parts, "trajectory")


def best(
    model: str | None,
    contexts: Sequence[AgentContext],
    streams: Sequence[ClaudeStream | None],
    metrics: Sequence[FinalMetrics],
    declared: ProfilePrice | None = None,
    traced: Callable[[], Usage | None] = lambda: None,
) -> Usage:
    """The usage of a trial from the best of its sources; `streams` has one entry for each run of the agent.

    `declared` is the price of the profile, for every model of a trial. `traced`, what a workflow's trace says, is asked
    when nothing else tells.
    """
    sessions = [from_stream(stream, declared) if stream else None for stream in streams]
    finished = [session for session in sessions if session is not None]
    if finished and len(finished) == len(sessions):
        used = _add(finished, max(session.source or SOURCE for session in finished)) or Usage()
    else:
        told = _told(contexts, metrics) or partial(filter(None, streams)) or traced()
        used = _priced(told or Usage(), model, declared)
    if declared is not None and declared.free:
        return structs.replace(used, cost_usd=0.0, cost_source=_DECLARED)
    return used


def _told(contexts: Sequence[AgentContext], metrics: Sequence[FinalMetrics]) -> Usage | None:
    """Return what the agent reported, else its trajectory, which also knows how much was written to the cache."""
    usage, counted = from_contexts(contexts), from_metrics(metrics)
    if usage is None or counted is None or counted.cache_write_tokens is None:
        return usage or counted
    if counted.input_tokens is None or usage.input_tokens != counted.input_tokens + counted.cache_write_tokens:
        return usage
    return structs.replace(usage, input_tokens=counted.input_tokens, cache_write_tokens=counted.cache_write_tokens)


def _priced(usage: Usage, model: str | None, declared: ProfilePrice | None) -> Usage:
    """Return the usage with the cost that its source knows, else with that of its tokens, where there is a price."""
    if usage.cost_usd is not None:
        return structs.replace(usage, cost_source=usage.source)
    cost = cost_of(model, usage, declared)
    source = price_table().source if declared is None else _DECLARED
    return usage if cost is None else structs.replace(usage, cost_usd=cost, cost_source=source)


def _model_usage(name: str, tokens: ModelTokens, declared: ProfilePrice | None) -> Usage:
    """One model's share of a session. Older CLIs do not say on what a cost is based, and price any model they do not
    know like one they do."""
    basis = tokens.cost_basis
    is_real = _ANTHROPIC.search(name) is not None if basis is None else basis != "unknown"
    usage = structs.replace(_fresh(tokens), cost_usd=_sane(tokens.cost_usd) if is_real else None, source=SOURCE)
    return _priced(usage, name, declared)


def _fresh(tokens: StreamTokens | ModelTokens) -> Usage:
    return Usage(
        _sane(tokens.input_tokens),
        _sane(tokens.cache_read_input_tokens),
        _sane(tokens.cache_creation_input_tokens),
        _sane(tokens.output_tokens),
    )


def _sane[N: (int, float)](value: N | None) -> N | None:
    """A number that an agent told; one that cannot be is unknown: one below 0 would fill a budget up again."""
    return value if value is not None and 0 <= value <= _MOST else None


def _split(total_input: int | None, cached: int | None, output: int | None, cost: float | None) -> Usage:
    total_input, cached = _sane(total_input), _sane(cached)
    fresh = total_input if total_input is None or cached is None else max(0, total_input - cached)
    return Usage(input_tokens=fresh, cache_read_tokens=cached, output_tokens=_sane(output), cost_usd=_sane(cost))


def _reported(parts: Sequence[Usage], source: str) -> Usage | None:
    """All parts that say anything; None when they come to nothing."""
    usage = _add([part for part in parts if part.known], source)
    said = usage and any((usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.cost_usd))
    return usage if said else None


def _add(parts: Sequence[Usage], source: str) -> Usage | None:
    if not parts:
        return None
    costs = sorted({part.cost_source for part in parts if part.cost_source})
    every = all(part.cost_usd is not None for part in parts)
    return Usage.added(parts, source, "+".join(costs) if costs and every else None)
