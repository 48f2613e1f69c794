"""Small programs that show what one op, or one decoder, does with weights of any type."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm import dtypes
from edgellm.backends.base import PAGE, Backend, Batch, CompileOptions, Executable, KVType, Segment, Weight
from edgellm.program import KVState, Program, ProgramBuilder, RopeSpec
from edgellm.program.program import Value

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
Make = Callable[[ProgramBuilder, list[Value]], Value]

UNIT = 2.0**-24
"""Half the distance from 1 to the next float32: the most that one rounding changes, relatively."""

HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ1_S": (0,),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "Q1_0": (0,),
    "Q2_0": (0,),
}
"""Where a block of each type keeps its half-precision scales."""

FLOATS = ("F32", "F16", "BF16")
BLOCKS = (*HALVES, "IQ1_M", "MXFP4", "NVFP4")
TYPES = (*FLOATS, *BLOCKS)

NOT_IN_GGUF_PY = ("Q1_0", "Q2_0")
"""Types that gguf-py does not dequantize, and so the reference backend neither."""


def available() -> list[str]:
    """Return the instruction sets that work here; none where the native core is not built."""
    try:
        from edgellm import _native
    except ImportError:
        return []
    return list(_native.cpu_info()["available"])


def random_rows(name: str, n_in: int, n_out: int, seed: int, spread: float = 0.06) -> npt.NDArray[np.uint8]:
    """Return rows of random bytes ``[n_out, row_bytes]`` that hold values of standard deviation `spread`."""
    rng = np.random.default_rng(seed)
    if name in FLOATS:
        values = (spread * rng.standard_normal((n_out, n_in))).astype(np.float32)
        if name == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.astype(np.float16 if name == "F16" else np.float32).view(np.uint8)
    return _random_blocks(name, n_in, n_out, rng, spread / _spread(name))


def _random_blocks(name: str, n_in: int, n_out: int, rng: np.random.Generator, scale: float) -> npt.NDArray[np.uint8]:
    kind = dtypes.by_name(name)
    blocks = rng.integers(0, 256, (n_out, n_in // kind.block, kind.nbytes), np.uint8)
    power = math.log2(scale)
    if name == "MXFP4":  # exponents
        blocks[..., 0] = np.clip(np.rint(power) + rng.integers(126, 129, blocks.shape[:2]), 0, 254)
    elif name == "NVFP4":  # four bits of exponent, three of mantissa
        blocks[..., :4] = np.clip(np.rint(8 * power) + rng.integers(48, 65, (*blocks.shape[:2], 4)), 1, 126)
    elif name == "IQ1_M":  # a half spread over the top bits of four words
        halves = (scale * rng.standard_normal(blocks.shape[:2])).astype(np.float16).view(np.uint16)
        for i in range(4):
            top = blocks[..., 49 + 2 * i]
            top[:] = (top & 15) | ((halves >> (4 * i)) << 4).astype(np.uint8)
    for at in HALVES.get(name, ()):
        halves = (scale * rng.standard_normal(blocks.shape[:2])).astype(np.float16)
        blocks[..., at : at + 2] = halves[..., None].view(np.uint8)
    return blocks.reshape(n_out, -1)


@cache
def _spread(name: str) -> float:
    """Return the standard deviation of the values of random blocks whose scales are around one."""
    return float(np.std(dequantize(name, _random_blocks(name, 256, 200, np.random.default_rng(0), 1.0))))


def dequantize(name: str, rows: npt.NDArray[np.uint8]) -> Floats:
    """Return what gguf-py makes of rows of bytes; ggml, for the types that gguf-py lacks."""
    from gguf import GGMLQuantizationType, quants

    if name in NOT_IN_GGUF_PY:
        return _few_bits(name, rows)
    return np.asarray(quants.dequantize(rows, GGMLQuantizationType[name]), np.float32)


def _few_bits(name: str, rows: npt.NDArray[np.uint8]) -> Floats:
    """Return the values of Q1_0 and Q2_0: a scale, then codes from the lowest bits up.

    As ggml's dequantize_row_q1_0 and dequantize_row_q2_0 have it: a bit is -d or d, two bits are (code - 1) * d.
    """
    kind = dtypes.by_name(name)
    blocks = rows.reshape(-1, kind.nbytes)
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").reshape(len(blocks), kind.block, -1).astype(np.int32)
    codes = 2 * bits[..., 0] - 1 if name == "Q1_0" else bits[..., 0] + 2 * bits[..., 1] - 1
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    return np.asarray(scales * codes.astype(np.float32), np.float32).reshape(len(rows), -1)


def weight(name: str, n_in: int, n_out: int, seed: int) -> Weight:
    """Return a matrix of `random_rows`."""
    return Weight(dtypes.by_name(name), (n_in, n_out), memoryview(random_rows(name, n_in, n_out, seed).ravel()))


def vector(values: npt.ArrayLike) -> Weight:
    """Return a float32 vector or matrix as a weight, slowest axis first."""
    data = np.ascontiguousarray(values, np.float32)
    return Weight(dtypes.by_name("F32"), data.shape[::-1], memoryview(data).cast("B"))


def values_of(matrix: Weight) -> npt.NDArray[np.float64]:
    """Return the exact values ``[n_out, n_in]`` of a matrix."""
    rows = np.frombuffer(matrix.data, np.uint8).reshape(matrix.shape[1], -1)
    return dequantize(matrix.dtype.name, rows).astype(np.float64)


@dataclass(frozen=True)
class Probe:
    """A program whose inputs are rows of tables, by token, and whose logits are what `make` makes of them."""

    program: Program
    weights: dict[str, Weight]
    width: int
    n_rows: int

    @staticmethod
    def of(tables: Sequence[Floats], make: Make, weights: dict[str, Weight] | None = None) -> Probe:
        """Build one: each table ``[n_rows, width]`` becomes a value, token i reads row i of each."""
        n = len(tables[0])
        all_weights = dict(weights or {})
        shapes = {name: w.shape for name, w in all_weights.items()}

        def begin(n_vocab: int) -> tuple[ProgramBuilder, Value]:
            builder = ProgramBuilder("probe", shapes)
            inputs = [builder.embed(f"table{i}", t.shape[1], n_vocab) for i, t in enumerate(tables)]
            return builder, make(builder, inputs)

        width = begin(n)[1].width
        n_vocab = max(n, width)
        builder, out = begin(n_vocab)
        logits = builder.select_rows(out)
        if width < n:
            # There is a logit for every token: an exact copy of the result, then zeros.
            logits = builder.matmul(logits, "spread", n)
            all_weights["spread.weight"] = vector(np.eye(n, width))
        for i, table in enumerate(tables):
            all_weights[f"table{i}"] = vector(np.pad(table, ((0, n_vocab - n), (0, 0))))
        program = builder.build(logits, n_embd=tables[0].shape[1], n_ctx_train=1 << 20)
        return Probe(program, all_weights, width, n)

    def compile(self, backend: Backend, **options: Any) -> Executable:
        """Compile it; options are those of `room`."""
        return backend.compile(self.program, self.weights, room(self.program, **options))

    def run(self, backend: Backend, tokens: npt.ArrayLike | None = None, **options: Any) -> Floats:
        """Return the result ``[rows, width]`` for tokens in one segment (all rows in order, if not given)."""
        ids = np.arange(self.n_rows, dtype=np.int32) if tokens is None else np.asarray(tokens, np.int32)
        executable = self.compile(backend, n_tokens=len(ids), **options)
        (found,) = feed(executable, self.program, [ids])
        executable.close()
        return found[:, : self.width]


def room(
    program: Program, *, n_tokens: int, kv_type: KVType = "f32", threads: int = 1, n_pages: int | None = None
) -> CompileOptions:
    """Return options for steps of up to `n_tokens` rows and as many pages, or `n_pages`."""
    pages = n_pages or -(-n_tokens // PAGE)
    return CompileOptions((pages,) * len(program.windows), n_tokens, kv_type, threads)


def tables_of(program: Program, pages: npt.ArrayLike) -> list[Ids]:
    """Return one page table per group, all the same."""
    return [np.asarray(pages, np.int32)] * len(program.windows)


def feed(
    executable: Executable,
    program: Program,
    sequences: Sequence[Ids],
    *,
    chunk: int | None = None,
    pages: Sequence[npt.ArrayLike] | None = None,
    start: int = 0,
) -> list[Floats]:
    """Run sequences side by side and return the logits of every row of each.

    Each step takes the next `chunk` tokens (None: all) of every sequence.  `pages` names each one's
    pages; without it they follow one another.  `start` is the position of the first tokens.
    """
    if pages is None:
        counts = [-(-(start + len(ids)) // PAGE) for ids in sequences]
        ends = np.cumsum(counts)
        pages = [np.arange(end - n, end) for n, end in zip(counts, ends, strict=True)]
    tables = [tables_of(program, p) for p in pages]
    parts: list[list[Floats]] = [[] for _ in sequences]
    step = chunk or max(map(len, sequences))
    for at in range(0, max(map(len, sequences)), step):
        rows = [ids[at : at + step] for ids in sequences]
        segments = [Segment(start + at, len(r), t) for r, t in zip(rows, tables, strict=True) if len(r)]
        tokens = np.concatenate(rows).astype(np.int32)
        logits = executable.step(Batch(tokens, segments, np.arange(len(tokens), dtype=np.int32)))
        for part, piece in zip(parts, np.split(logits, np.cumsum([len(r) for r in rows])[:-1]), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


N_VOCAB, N_EMBD, N_FF = 99, 256, 256


@cache
def decoder(kind: str, seed: int = 1) -> tuple[Program, dict[str, Weight]]:
    """Return two layers of a model with all matrices of one type; the second has a window of 20 and a score cap."""
    n_head, n_head_kv, head_dim, head_dim_v = 4, 2, 32, 64
    spec = RopeSpec(tuple(10000.0 ** (-i / 16) for i in range(16)), "neox")
    builder = ProgramBuilder("decoder", {"layer0.q.bias": (n_head * head_dim,)})
    x = builder.embed("embed", N_EMBD, N_VOCAB)
    for i in range(2):
        h = builder.rms_norm(x, f"norm{i}a", 1e-5)
        q = builder.rope(builder.matmul(h, f"layer{i}.q", n_head * head_dim), head_dim, spec)
        k = builder.rope(builder.matmul(h, f"layer{i}.k", n_head_kv * head_dim), head_dim, spec)
        v = builder.matmul(h, f"layer{i}.v", n_head_kv * head_dim_v)
        state = KVState(f"kv{i}", n_head_kv, head_dim, head_dim_v, 20 if i else None, spec)
        a = builder.attention(q, k, v, state, n_head, 0.125, 30.0 if i else None)
        x = builder.add(x, builder.matmul(a, f"layer{i}.out", N_EMBD))
        h = builder.rms_norm(x, f"norm{i}b", 1e-5)
        gate, up = builder.matmul(h, f"layer{i}.gate", N_FF), builder.matmul(h, f"layer{i}.up", N_FF)
        x = builder.add(x, builder.matmul(builder.glu(gate, up, "gelu" if i else "silu"), f"layer{i}.down", N_EMBD))
    logits = builder.matmul(builder.select_rows(builder.rms_norm(x, "norm", 1e-5)), "head", N_VOCAB)
    program = builder.build(logits, n_embd=N_EMBD, n_ctx_train=4096)
    rng = np.random.default_rng(seed)
    weights: dict[str, Weight] = {}
    for number, (name, shape) in enumerate(program.weights.items()):
        if len(shape) == 1:
            weights[name] = vector(rng.standard_normal(shape) + (0.0 if "bias" in name else 1.0))
        else:
            weights[name] = weight(kind, shape[0], shape[1], 1000 * seed + number)
    return program, weights
