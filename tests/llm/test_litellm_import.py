"""LiteLLM is imported once, whoever asks first."""

import importlib.machinery
import subprocess
import sys
import types

import pytest

from terminalbench.harbor.agent_watch import follow_models

PROGRAM = """
import sys, threading, time, types, builtins
from terminalbench.llm import litellm_model
usual, inside, most = builtins.__import__, [], [0]
def slow(name, *args, **more):
    if name != "litellm":
        return usual(name, *args, **more)
    inside.append(1)
    most[0] = max(most[0], len(inside))
    time.sleep(0.05)
    inside.pop()
    return types.SimpleNamespace()
builtins.__import__ = slow
threads = [threading.Thread(target=litellm_model.load) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(most[0])
"""


def test_threads_that_ask_at_once_do_not_import_it_at_once() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600, check=False)
    assert (ran.stdout.strip(), ran.returncode) == ("1", 0), ran.stderr


def test_one_that_is_only_half_loaded_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thread of another trial: to touch it now is an error, or a deadlock."""
    half = types.ModuleType("litellm")
    half.__spec__ = importlib.machinery.ModuleSpec("litellm", None)
    monkeypatch.setattr(half.__spec__, "_initializing", True, raising=False)
    monkeypatch.setitem(sys.modules, "litellm", half)
    follow_models()
    assert not hasattr(half, "callbacks")
