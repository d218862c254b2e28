"""What a command writes while it runs: kept within bounds, handed on as it comes."""

import asyncio
import codecs
import os
from collections.abc import Awaitable, Callable

from terminalbench.sandbox import helper

OnOutput = Callable[[str, str], Awaitable[None]]
_HALF_OUTPUT_BYTES = 16 << 20


class OutputStream:
    """One output of a command: kept up to a limit (its start and its end), handed on as it comes."""

    def __init__(self, handle: int, name: str, on_output: OnOutput | None) -> None:
        os.set_blocking(handle, False)
        self.handle, self.ended = handle, False
        self._name, self._on_output = name, on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head, self._tail, self._dropped = bytearray(), bytearray(), 0
        self._finished, self._wake = False, asyncio.Event()

    def finish(self) -> None:
        """The command is over: read what it has written, wait for nothing more."""
        self._finished = True
        self._wake.set()

    async def pump(self) -> None:
        """Read until the end, or until there is nothing more after `finish`."""
        while True:
            try:
                chunk = os.read(self.handle, 1 << 16)
            except BlockingIOError:
                if self._finished:
                    return
                self._wake.clear()
                await helper.readable(self.handle, self._wake)
                continue
            if not chunk:
                self.ended = True
                return
            self._keep(chunk)
            if self._on_output is not None:
                await self._on_output(self._decoder.decode(chunk), self._name)
            else:
                await asyncio.sleep(0)

    def _keep(self, chunk: bytes) -> None:
        room = _HALF_OUTPUT_BYTES - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room < len(chunk) else b""
        if len(self._tail) > 2 * _HALF_OUTPUT_BYTES:
            extra = len(self._tail) - _HALF_OUTPUT_BYTES
            self._dropped += extra
            del self._tail[:extra]

    def text(self) -> str:
        """Return what was written; of very much output, the first and the last 16 MB."""
        tail = self._tail[-_HALF_OUTPUT_BYTES:]
        dropped = self._dropped + len(self._tail) - len(tail)
        note = f"\n[sandbox: {dropped} bytes of output left out]\n".encode() if dropped else b""
        return (bytes(self._head) + note + bytes(tail)).decode("utf-8", "replace")
