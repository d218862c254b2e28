"""A model file with random weights: small enough to be made and served within a second, real for llama.cpp."""

import struct
from pathlib import Path
from typing import Any

import numpy as np

_WIDTH, _HIDDEN, _HEADS = 64, 128, 2
_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
_TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256))]
_UNKNOWN, _CONTROL, _BYTE = 2, 3, 6
_ALIGNED = 32


def tiny_gguf(path: Path, *, context: int = 4096, seed: int = 1, note: str = "") -> Path:
    """Write the model to `path`: one layer, a token for each byte, a window of `context`. It answers nonsense.

    Two with the same seed answer alike; with another `note` they are two files.
    """
    facts: dict[str, Any] = {
        "general.architecture": "llama",
        "general.description": note,
        "llama.context_length": context,
        "llama.embedding_length": _WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": _HIDDEN,
        "llama.attention.head_count": _HEADS,
        "llama.attention.head_count_kv": _HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": _WIDTH // _HEADS,
        "llama.vocab_size": len(_TOKENS),
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": _TOKENS,
        "tokenizer.ggml.scores": [0.0] * len(_TOKENS),
        "tokenizer.ggml.token_type": [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": _TEMPLATE,
    }
    chance = np.random.default_rng(seed)
    tensors = {name: chance.normal(0, 0.5, shape).astype(np.float32) for name, shape in _shapes().items()}
    tensors |= {
        f"{name}.weight": np.ones(_WIDTH, np.float32) for name in ("output_norm", *_blocks("attn_norm ffn_norm"))
    }
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts))
    head += b"".join(_text(name) + _value(value) for name, value in facts.items())
    data = b""
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += _padded(tensor.tobytes())
    path.write_bytes(_padded(head) + data)
    return path


def _blocks(names: str) -> list[str]:
    return [f"blk.0.{name}" for name in names.split()]


def _shapes() -> dict[str, tuple[int, int]]:
    found = {"token_embd": (len(_TOKENS), _WIDTH), "output": (len(_TOKENS), _WIDTH)}
    found |= dict.fromkeys(_blocks("attn_q attn_k attn_v attn_output"), (_WIDTH, _WIDTH))
    found |= dict.fromkeys(_blocks("ffn_gate ffn_up"), (_HIDDEN, _WIDTH))
    found["blk.0.ffn_down"] = (_WIDTH, _HIDDEN)
    return {f"{name}.weight": shape for name, shape in found.items()}


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNED)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        kind, form = {str: (8, ""), float: (6, "f"), int: (5, "i")}[type(value[0])]
        items = b"".join(map(_text, value)) if kind == 8 else struct.pack(f"<{len(value)}{form}", *value)
        return struct.pack("<IIQ", 9, kind, len(value)) + items
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)
