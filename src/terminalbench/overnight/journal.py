"""The state and the events of a night on disk. Only the supervisor writes them.

A disk that is full for a while costs nothing: what could not be written is written as soon as it can be.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from terminalbench.files import write_bytes
from terminalbench.json_files import append_jsonl, encode_json
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import IterationWork, NightEvent, NightEventKind, NightState
from terminalbench.records.values import stamp


@dataclass
class Journal:
    """Writes what changes, and tells of what happens."""

    folder: NightFolder
    state: NightState
    told: Callable[[NightEvent], None] = lambda _event: None
    _written: bytes = b""
    _waiting: list[NightEvent] = field(default_factory=list)

    def tell(self, kind: NightEventKind, said: str, work: IterationWork | None = None, **about: Any) -> None:
        """Write down that something happened."""
        number, role = (work.number, work.role) if work is not None else (None, None)
        event = NightEvent(stamp(datetime.now(UTC)), kind, said, iteration=number, role=role, **about)
        self._waiting.append(event)
        self.told(event)
        self.save()

    def save(self) -> bool:
        """Bring what is on disk up to date; False when the disk takes nothing."""
        try:
            while self._waiting:
                append_jsonl(self.folder.events_jsonl, self._waiting[0])
                self._waiting.pop(0)
            data = encode_json(self.state)
            if data != self._written:
                write_bytes(self.folder.state_json, data)
                self._written = data
        except OSError:
            return False
        return True
