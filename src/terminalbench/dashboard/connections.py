"""How long a connection may take its time, and how many there are: a slow or silent one holds up no other."""

import asyncio
import fcntl
import termios
from array import array
from typing import override

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 256
"""Of one more, the one that has asked for nothing for the longest time makes room."""
ASK_SEC = 15.0
"""What a client has to send a whole request: the first, or the next after an answer."""
READ_SEC = 60.0
"""How long a client may take nothing of an answer."""
LOOK_SEC = 1.0


class Connection(H11Protocol):
    """A connection that is closed when its client neither asks nor reads."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client is here; one that holds a connection for nothing may have to leave for it."""
        super().connection_made(transport)
        self._since = self._read_at = self.loop.time()
        self._unread = 0
        self._look_later(self._since)
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        here = [one for one in others if not one.transport.is_closing()]
        if len(here) >= MOST_CONNECTIONS:
            idle = [one for one in here if one.waits]
            (min(idle, key=lambda one: one._since) if idle else self).transport.abort()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._look.cancel()
        super().connection_lost(exc)

    @override
    def on_response_complete(self) -> None:
        """Let the client ask again."""
        self._since = self.loop.time()
        super().on_response_complete()

    @override
    def resume_writing(self) -> None:
        """The client has read on."""
        self._read_at = self.loop.time()
        super().resume_writing()

    @property
    def waits(self) -> bool:
        """Return whether no request is being answered: none was sent whole, or the last answer is complete."""
        return self.cycle is None or self.cycle.response_complete

    def _in_kernel(self) -> int:
        """Return what the kernel still holds of the answer: it asks for more only when a good part of it was taken."""
        held = array("i", [0])
        try:
            fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, held)
        except OSError:  # it is being closed
            return 0
        return held[0]

    def _look_later(self, now: float) -> None:
        self._due = now + LOOK_SEC
        self._look = self.loop.call_at(self._due, self._judge)

    def _judge(self) -> None:
        now, unread = self.loop.time(), self.transport.get_write_buffer_size() + self._in_kernel()
        self._read_at = min(
            now, self._read_at + now - self._due
        )  # the server was held up: that is not the client's time
        if not unread or unread < self._unread:
            self._read_at = now
        self._unread = unread
        if (self.waits and not unread and now - self._since > ASK_SEC) or now - self._read_at > READ_SEC:
            self.transport.abort()
        else:
            self._look_later(now)
