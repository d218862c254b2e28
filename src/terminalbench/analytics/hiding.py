"""Words of an agent made fit to be kept and shown: no secrets, no broken text."""

from dataclasses import dataclass

from terminalbench.harbor.redact import redact


@dataclass(frozen=True)
class Hider:
    """Takes out the secrets this process knows, and what looks like a key."""

    def __call__(self, text: str) -> str:
        """`text` without secrets, and without halves of characters that no file can hold."""
        return redact(text.encode(errors="replace").decode())
