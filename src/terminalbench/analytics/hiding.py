"""Words of an agent made fit to be kept and shown: no secrets, no broken text."""

from dataclasses import dataclass, field

from terminalbench.harbor.redact import HIDDEN, redact
from terminalbench.llm.scrub import secret_values


@dataclass(frozen=True)
class Hider:
    """Takes out what the environment holds under a secret's name, and what looks like a key. Made once for a run."""

    secrets: tuple[str, ...] = field(default_factory=lambda: tuple(secret_values()))

    def __call__(self, text: str) -> str:
        """`text` without secrets, and without halves of characters that no file can hold."""
        text = text.encode(errors="replace").decode()
        for value in self.secrets:
            text = text.replace(value, HIDDEN)
        return redact(text)
