"""The waits of an agent for its model provider: refusals and retries as its client tells them, whichever client it is.

Evidence for a rule of `outcome`: a trial whose time ran out while its provider gave no answer measures the provider.
Only what the client writes of itself counts, never what a tool of the agent printed.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from terminalbench.decode import NOT_DECODED, decoder
from terminalbench.files import tail_plain
from terminalbench.records.trial import NO_ANSWER, ProviderWait
from terminalbench.records.values import known_total

CODEX = "codex"
_CODEX_FILE = "codex.txt"
_CODEX_BYTES = 16 << 20
_CODEX_STATUS = re.compile(r"\bstatus:? (\d{3})\b")


class Refusals:
    """Counts what one client tells of its provider, in order."""

    def __init__(self) -> None:
        self.count = 0
        self._retries = 0
        self._pauses: list[float | None] = []
        self._by_status: Counter[str] = Counter()
        self._at_end = 0
        self._last: str | None = None

    def refused(self, status: int | None, pause_sec: float | None = None, *, retried: bool = True) -> None:
        """The provider refused, or did not answer; a client that tries again pauses first."""
        self.count += 1
        self._at_end += 1
        self._last = NO_ANSWER if status is None else str(status)
        self._by_status[self._last] += 1
        if retried:
            self.tried_again(pause_sec)

    def tried_again(self, pause_sec: float | None) -> None:
        """The client asked again after a refusal and a pause."""
        self._retries += 1
        self._pauses.append(pause_sec)

    def answered(self) -> None:
        """The provider answered."""
        self._at_end = 0

    def told(self) -> ProviderWait:
        """Return what there is to know."""
        return ProviderWait(
            retries=self._retries,
            backoff_sec=_rounded(known_total(self._pauses)) if self._retries else 0.0,
            refused=dict(sorted(self._by_status.items())),
            at_end=self._at_end,
            last=self._last,
        )


def added(parts: Sequence[ProviderWait]) -> ProviderWait | None:
    """Several runs of an agent as one; the last tells how it ended. None when no client told anything."""
    if not parts:
        return None
    refused = sum((Counter(part.refused) for part in parts), Counter())
    return ProviderWait(
        retries=sum(part.retries for part in parts),
        backoff_sec=_rounded(known_total(part.backoff_sec for part in parts)),
        refused=dict(sorted(refused.items())),
        at_end=parts[-1].at_end,
        last=parts[-1].last,
    )


class _Item(msgspec.Struct):
    id: str | None = None
    type: str | None = None


class _CodexEvent(msgspec.Struct):
    type: str | None = None
    message: str | None = None
    item: _Item | None = None


_codex_event = decoder(_CodexEvent)


def read_codex(folder: Path) -> Refusals | None:
    """Read the events of `codex exec --json`; None when there are none. Codex does not tell how long it pauses."""
    text = tail_plain(f"{folder}/{_CODEX_FILE}", _CODEX_BYTES)
    if text is None:
        return None
    found, running = Refusals(), set[str | None]()
    events = 0
    for line in text.splitlines():
        try:
            event = _codex_event.decode(line)
        except NOT_DECODED:
            continue
        events += event.type is not None
        item = event.item
        if event.type == "item.started" and item is not None:
            running.add(item.id)
            found.answered()
        elif event.type == "item.completed" and item is not None and item.type != "error":
            running.discard(item.id)
            found.answered()
        elif event.type == "error" and (event.message or "").startswith("Reconnecting...") and not running:
            status = _CODEX_STATUS.search(event.message or "")
            found.refused(int(status[1]) if status else None)
    return found if events else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
