"""The link to an agent on the host while it runs: it tells where in its work it is, and is told its time limit."""

from collections.abc import Callable

from terminalbench.records.event import Progress


class TellsProgress:
    """An agent that can say where it is. The plugin, where there is one, sets both before the agent runs."""

    limit_sec: float | None = None
    """How long it may run; None: not known."""
    tell: Callable[[Progress], None] | None = None
    """Hears of each change."""
