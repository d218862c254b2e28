"""How a trial ended, as people read it: a word, a mark of one letter, a colour; and what went out of it. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from terminalbench.records.trial import Egress, Outcome
from terminalbench.text.numbers import plural, size

MARKS = {
    Outcome.PASSED: "+",
    Outcome.FAILED: "x",
    Outcome.TIMED_OUT: "T",
    Outcome.ERRORED: "E",
    Outcome.CANCELLED: "C",
    Outcome.NOT_RUN: ".",
}
COLOURS = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.TIMED_OUT: "yellow",
    Outcome.ERRORED: "yellow",
    Outcome.CANCELLED: "dim",
    Outcome.NOT_RUN: "dim",
}
"""In a terminal; a page has its own shades of the same colours, for light and dark."""
RUNNING = "running"
"""The state of a trial that has not ended: no outcome."""
STATES = (*(outcome.value for outcome in Outcome if outcome is not Outcome.NOT_RUN), RUNNING, Outcome.NOT_RUN.value)
"""Every state of a planned trial, as tables and pages list them."""
LOST = tuple(outcome for outcome in Outcome if not outcome.measured)


def word(outcome: str) -> str:
    """An outcome as a word: `timed out`."""
    return str(outcome).replace("_", " ")


def mark(outcome: str) -> str:
    """An outcome as one letter: `T`; a trial that runs is `~`, what is no outcome is `?`."""
    return MARKS[Outcome(outcome)] if outcome in MARKS else "~" if outcome == RUNNING else "?"


def colour(outcome: str) -> str:
    """The colour of an outcome in a terminal; "" for what is no outcome."""
    return COLOURS[Outcome(outcome)] if outcome in COLOURS else ""


def ending(outcome: str) -> str:
    """An outcome by its mark and its word: `T timed out`."""
    return f"{mark(outcome)} {word(outcome)}"


def legend(outcomes: Iterable[Outcome] = tuple(Outcome)) -> str:
    """Return what the marks mean, in one line."""
    return "   ".join(map(ending, outcomes))


def marks(outcomes: Iterable[str]) -> str:
    """Attempts as marks, one each: `++x`."""
    return "".join(map(mark, outcomes))


def fractions(outcomes: Sequence[str]) -> str:
    """Attempts as counts: passed of measured, then what was not measured, or runs, by its mark: `3/5 2T 1E 1~`."""
    counts = Counter(outcomes)
    measured = counts[Outcome.PASSED] + counts[Outcome.FAILED]
    rest = [f"{counts[lost]}{mark(lost)}" for lost in (*LOST, RUNNING) if counts[lost]]
    return " ".join([f"{counts[Outcome.PASSED]}/{measured}", *rest]) if outcomes else ""


_SHOWN = 6


def egress_lines(egress: Egress | None) -> list[str]:
    """Return how much, where to, and what was refused; nothing where it is unknown."""
    if egress is None:
        return []
    if egress.host_network:
        return ["the network of the machine itself, shared with other trials: its connections are unknown"]
    if egress.pasta:
        return ["UDP and TCP through pasta: its connections are unknown", *_told(egress)[1:]]
    return _told(egress)


def _told(egress: Egress) -> list[str]:
    reached = [one for one in egress.hosts if one.connections]
    told = "" if not reached else f" to {plural(len(reached), 'host')}, {size(egress.up)} up, {size(egress.down)} down"
    refused = f"; {egress.refused:,} refused" if egress.refused else ""
    lines = [f"{plural(egress.connections, 'connection')}{told}{refused}"]
    lines += [f"{one.host} {one.connections:,} x, {size(one.down)} down" for one in reached[:_SHOWN]]
    if len(reached) > _SHOWN:
        lines.append(f"and {plural(len(reached) - _SHOWN, 'host')} more")
    for one in [one for one in egress.hosts if one.refused][:_SHOWN]:
        often = f" ({one.refused:,} times)" if one.refused > 1 else ""
        lines.append(f"refused {one.host}: {', '.join(one.why)}{often}")
    return lines
