"""GGUF files byte by byte, so that any field can lie."""

import struct
from collections.abc import Sequence

from edgellm.gguf import ValueType


def string(text: str | bytes, length: int | None = None) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def pair(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + payload


def u32(key: str | bytes, value: int) -> bytes:
    return pair(key, ValueType.UINT32, struct.pack("<I", value))


def text(key: str | bytes, value: str | bytes) -> bytes:
    return pair(key, ValueType.STRING, string(value))


def array(key: str | bytes, kind: int, count: int, payload: bytes) -> bytes:
    return pair(key, ValueType.ARRAY, struct.pack("<IQ", kind, count) + payload)


def strings(key: str | bytes, values: Sequence[str | bytes]) -> bytes:
    return array(key, ValueType.STRING, len(values), b"".join(map(string, values)))


def tensor(name: str | bytes, dims: Sequence[int], kind: int = 0, offset: int = 0, n_dims: int | None = None) -> bytes:
    count = len(dims) if n_dims is None else n_dims
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", count, *dims, kind, offset)


def gguf(
    pairs: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_pairs: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A file; ``data`` starts at the next multiple of ``alignment`` if there are tensors."""
    head = magic + struct.pack(
        "<IQQ",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(pairs) if n_pairs is None else n_pairs,
    )
    head += b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data if tensors else head


def small() -> bytes:
    """A valid file with a bit of everything: 2 tensors of 64 and 68 bytes."""
    return gguf(
        [
            text("general.architecture", "llama"),
            u32("general.alignment", 32),
            strings("tokenizer.ggml.tokens", ["<s>", "", "a", "ü", "x" * 300]),
            array("tokenizer.ggml.scores", ValueType.FLOAT32, 3, struct.pack("<3f", 0, -1, -2.5)),
            array("flags", ValueType.BOOL, 2, b"\1\0"),
            pair("big", ValueType.UINT64, struct.pack("<Q", 1 << 63)),
            pair("yes", ValueType.BOOL, b"\1"),
        ],
        [tensor("norm", [16]), tensor("w", [32, 2], 8, 64)],
        bytes(range(64)) + bytes(68),
    )
