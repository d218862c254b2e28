"""What went out of a trial, in a few lines."""

from terminalbench.records.trial import Egress
from terminalbench.text.numbers import plural, size

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
