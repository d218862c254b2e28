"""The size of a model's server on this machine: its window, its slots, its threads. Pure."""

from dataclasses import dataclass

from terminalbench.llm.local.gguf import ModelFile
from terminalbench.llm.model import ModelError, ModelFault
from terminalbench.llm.ollama_server import WINDOW

MOST_SLOTS = 8
_BESIDES = 256 << 20
"""Memory of a server besides weights and windows."""


@dataclass(frozen=True)
class Sizing:
    """`window` is in tokens, and each of the `slots` has its own."""

    window: int
    slots: int
    threads: int


def window_of(model: ModelFile, wanted: int | None) -> int:
    """The window: as wanted, else the model's own up to 32768. Raises `ModelError` for one that it was not made for."""
    if wanted is None:
        return min(model.context_tokens, WINDOW)
    if wanted > model.context_tokens:
        what = f"num_ctx is {wanted}, but the window of {model.path.name} is {model.context_tokens}"
        raise ModelError(ModelFault.MISSING, what, hint=f"set num_ctx={model.context_tokens} or less")
    return wanted


def sizing(model: ModelFile, window: int, cores: int, free_bytes: int | None) -> Sizing:
    """One slot for two cores, as far as memory holds their windows. Raises `ModelError` when it does not hold one."""
    slots = max(1, min(MOST_SLOTS, cores // 2))
    if free_bytes is None:
        return Sizing(window, slots, cores)
    left = free_bytes - model.size - _BESIDES
    each = max(1, model.kv_bytes * window)
    if left < each:
        needed = (model.size + _BESIDES + each) >> 20
        fits = max(0, left) // max(1, model.kv_bytes) // 1024 * 1024
        hint = f"set num_ctx={fits}" if fits >= 1024 else "use a smaller or more quantized model, or free some memory"
        what = (
            f"{model.path.name} with a window of {window} tokens needs {needed} MB, but only {free_bytes >> 20} "
            "MB are free"
        )
        raise ModelError(ModelFault.MISSING, what, hint=hint)
    return Sizing(window, min(slots, left // each), cores)
