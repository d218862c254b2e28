"""The server name in the first message of a TLS client."""

HANDSHAKE = 0x16
_MOST_BYTES = 1 << 16


class Hello:
    """Takes the first bytes of a client until its hello is complete."""

    def __init__(self) -> None:
        self.data = b""

    def add(self, chunk: bytes) -> bool:
        """Take more; True when the hello is there, or will not come: it is no TLS, or too long."""
        self.data += chunk
        if not self.data:
            return False
        if self.data[0] != HANDSHAKE or len(self.data) > _MOST_BYTES:
            return True
        message = self._message()
        return len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4])

    def _message(self) -> bytes:
        """The handshake message, out of as many records as it came in."""
        found, at = b"", 0
        while at + 5 <= len(self.data) and self.data[at] == HANDSHAKE:
            length = int.from_bytes(self.data[at + 3 : at + 5])
            found += self.data[at + 5 : at + 5 + length]
            at += 5 + length
        return found

    def server_name(self) -> str | None:
        """The name that the client asks for; None without one, or if this is no TLS hello."""
        message = self._message() if self.data[:1] == bytes([HANDSHAKE]) else b""
        if message[:1] != b"\x01":
            return None
        try:
            at = 4 + 2 + 32
            at += 1 + message[at]
            at += 2 + int.from_bytes(message[at : at + 2])
            at += 1 + message[at]
            end = at + 2 + int.from_bytes(message[at : at + 2])
            at += 2
            while at + 4 <= end:
                kind, length = int.from_bytes(message[at : at + 2]), int.from_bytes(message[at + 2 : at + 4])
                if kind == 0:  # a list with one entry: its length, its kind, the name's length, the name
                    return message[at + 9 : at + 4 + length].decode("ascii").lower().rstrip(".")
                at += 4 + length
        except (IndexError, UnicodeDecodeError):
            return ""
        return None
