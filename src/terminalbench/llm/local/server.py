"""The process that serves a model file: llama.cpp, and in front of it what speaks OpenAI's and Ollama's protocols.

    python -m terminalbench.llm.local.server FOLDER

It ends when the last process that holds a lease of it has ended (`lease`).
"""

import fcntl
import os
import secrets
import sys
import time
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from terminalbench.json_files import read_json, write_json
from terminalbench.llm.local.http_proxy import LlamaProxy
from terminalbench.llm.local.lease import ENGINE, ServerAccess, ServerOrder, is_there, remove_unused
from terminalbench.locks import start_ticks

_LOOK_SEC = 0.5
_UNUSED_LOOKS = 5
"""How often in a row nobody used it before it ends: a check and the run after it share it."""
_WARNINGS = 2
"""What llama.cpp writes to its log: no line for each question."""


def main(folder: Path) -> None:
    """Serve until nobody uses it any more."""
    order: ServerOrder = read_json(folder / "order.json", ServerOrder)
    Thread(target=_end_with_users, args=(folder,), daemon=True).start()
    token = secrets.token_urlsafe(32)
    engine = _engine(order, token)
    front = LlamaProxy(order, engine.listening_address, token)
    write_json(folder / "server.json", ServerAccess(front.url, os.getpid(), start_ticks(os.getpid()), order, token))
    front.serve_forever()


def _end_with_users(folder: Path) -> None:
    """End this process when it was not used for a while; a folder that was made anew meanwhile is another server's."""
    unused = 0
    with (folder / "users").open("ab", buffering=0) as users:
        while True:
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                unused = 0
            else:
                unused += 1
                if not is_there(users, folder / "users"):
                    os._exit(0)
                if unused >= _UNUSED_LOOKS:
                    (folder / "server.json").unlink(missing_ok=True)
                    remove_unused(folder, users)
                    os._exit(0)  # with it goes the lock, for which the next user may wait
                fcntl.flock(users, fcntl.LOCK_UN)
            time.sleep(_LOOK_SEC)


def _engine(order: ServerOrder, token: str) -> Any:
    xllamacpp: Any = import_module(ENGINE)
    wanted = xllamacpp.CommonParams()
    wanted.model.path = order.path
    wanted.model_alias = [order.name]
    wanted.hostnames, wanted.port, wanted.api_keys = ["127.0.0.1"], 0, [token]
    wanted.n_parallel, wanted.n_ctx = order.slots, order.window * order.slots
    wanted.cpuparams.n_threads = order.threads
    wanted.use_jinja, wanted.ctx_shift = True, False  # a prompt that is too long is refused, and never cut
    wanted.warmup, wanted.endpoint_metrics, wanted.verbosity = False, True, _WARNINGS
    return xllamacpp.Server(wanted)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
