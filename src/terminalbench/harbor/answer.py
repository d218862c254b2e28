"""One answer of a function that needs Harbor, or another large library, to a process of ours that has not loaded it.

`python -m terminalbench.harbor.answer MODULE:FUNCTION` reads a question from standard input, as JSON of the type that
the function takes, and writes what it returns. What else is printed goes to standard error.
"""

import importlib
import os
import sys
from typing import get_type_hints

import msgspec

from terminalbench.decode import decode


def main() -> int:
    """Answer one question."""
    out = os.dup(1)
    os.dup2(2, 1)
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    kind = next(iter(get_type_hints(function).values()))
    found = function(decode(sys.stdin.buffer.read(), kind))
    with os.fdopen(out, "wb") as stream:
        stream.write(msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
