"""The meaning of `local:FILE.gguf[,num_ctx=N]`. No file is read.

A job names the digest of the file besides, by which a file that was replaced since is refused.
"""

import re
from pathlib import Path
from typing import TypeGuard

from terminalbench.errors import UserError
from terminalbench.frozen import frozen

PREFIX = "local:"
LEAST_WINDOW = 512
_WINDOW = re.compile(r",num_ctx=(.*)$")
_DIGEST = re.compile(r",digest=([0-9a-f]{6,64})$")


@frozen
class LocalSpec:
    """A model file, and the window that is wanted of it; None: as `lease.sizing` says.

    `digest` is how that of the file begins, when no other file will do.
    """

    path: Path
    num_ctx: int | None = None
    digest: str | None = None

    def __str__(self) -> str:
        window = f",num_ctx={self.num_ctx}" if self.num_ctx is not None else ""
        return f"{PREFIX}{self.path}{window}" + (f",digest={self.digest}" if self.digest is not None else "")


def is_local(model: str | None) -> TypeGuard[str]:
    """Return whether a model is named by its file."""
    return model is not None and model.startswith(PREFIX)


def shown_model(model: str | None) -> str | None:
    """A model as results name it: one that is a file without the folder it is in."""
    if model is None or not is_local(model):
        return model
    return f"{PREFIX}{_DIGEST.sub('', model.removeprefix(PREFIX)).rpartition('/')[2]}"


def parse_local(spec: str, root: Path | None = None) -> LocalSpec:
    """The parsed spec; a relative path begins at `root`, else where this process is. Nothing is read."""
    text = spec.removeprefix(PREFIX)
    window = digest = None
    if (found := _DIGEST.search(text)) is not None:
        text, digest = text[: found.start()], found[1]
    if (found := _WINDOW.search(text)) is not None:
        if not found[1].isdecimal() or int(found[1]) < LEAST_WINDOW:
            raise UserError(f'"{spec}": num_ctx must be a number of tokens, at least {LEAST_WINDOW}')
        text, window = text[: found.start()], int(found[1])
    if not text.strip():
        raise UserError(f'"{spec}" does not name a file', hint="write local:FILE.gguf")
    path = Path(text).expanduser()
    return LocalSpec((root or Path.cwd()) / path, window, digest)
