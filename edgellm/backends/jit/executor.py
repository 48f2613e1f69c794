"""A whole step of a lowered program, run by every thread of a team side by side.

Threads meet at barriers between ops and take their shares of the work from counters, so who computes what never
changes a bit.  Numba's own threading layers are not used: they abort the process when two threads use them at once.
"""

from __future__ import annotations

import math
from typing import Any

from edgellm.backends.jit import frame as at
from edgellm.backends.jit.attention import PAGE
from edgellm.backends.jit.compiling import entry, inner
from edgellm.backends.jit.intrinsics import (
    call_attend,
    call_dequantize,
    call_matmul,
    call_rows,
    call_store,
    fetch_add,
    give_way,
    int32_at,
    int_at,
    int_now,
    set_int,
)
from edgellm.backends.jit.lib import float32
from edgellm.backends.jit.matmul import ACT_BYTES
from edgellm.backends.jit.rows import copy, elementwise, quantize, rms_norm, rope, scale

EMBED, QUANTIZE, MATMUL, RMS_NORM, ROPE, ATTENTION, SELECT, POSITION_SCALE, CALL = 0, 1, 2, 3, 4, 5, 10, 11, 28
"""Kinds of ops; all others are elementwise."""
WANTED, NO_WAIT = 1, 2
"""Flags of ops."""

SPINS = 2000
"""Looks at a barrier before the processor is offered to others."""


@inner
def _barrier(shared: int, passed: int, n: int) -> int:
    """Wait for all n threads at barrier number `passed`; return the number of the next one."""
    fetch_add(shared, at.ARRIVED, 1)
    spins = 0
    while int_now(shared, at.ARRIVED) < n * (passed + 1):
        spins += 1
        if spins > SPINS:
            give_way()
    return passed + 1


@inner
def _value(frame: int, slot: int) -> Any:
    """Return the address of a value's rows; slot -1 is the caller's logits."""
    return int_at(int_at(frame, at.VALUES), slot + 1)


@inner
def _vector(frame: int, weight: int) -> int:
    """Return the address of a vector, or 0 where there is none."""
    return int_at(int_at(frame, at.WEIGHTS), at.WEIGHT_SIZE * weight) if weight >= 0 else 0


@inner
def _matmul(frame: int, op: Any, counter: int, rows: int, n: int, scratch: int) -> None:
    weight = int_at(frame, at.WEIGHTS) + 8 * at.WEIGHT_SIZE * op.weight
    w = scratch  # The matrix as this op uses it: other ops may scale it differently.
    for i in range(4):
        set_int(w, i, int_at(weight, i))
    set_int(w, at.SCALE_OF, _vector(frame, op.scale))
    set_int(w, at.BIAS_OF, _vector(frame, op.bias))
    tiles = (int_at(w, 3) + 15) // 16
    chunk = max(1, tiles // (4 * n))
    while True:
        first = fetch_add(int_at(frame, at.SHARED), counter, chunk)
        if first >= tiles:
            return
        x, out = _value(frame, op.a), _value(frame, op.out)
        last = min(first + chunk, tiles)
        call_matmul(int_at(weight, at.MATMUL), w, x, int_at(frame, at.INPUTS), rows, out, first, last, scratch + 64)


@inner
def _quantize(frame: int, op: Any, rows: int, thread: int, n: int) -> None:
    blocks = op.width // 32
    x, inputs = _value(frame, op.a), int_at(frame, at.INPUTS)
    for i in range(rows * blocks * thread // n, rows * blocks * (thread + 1) // n):
        row, block = i // blocks, i % blocks
        quantize(x + 4 * (row * op.width + 32 * block), inputs + ACT_BYTES * (block * rows + row))


@inner
def _call(frame: int, op: Any, rows: int, thread: int, n: int) -> None:
    first, last = rows * thread // n, rows * (thread + 1) // n
    if first < last:
        function, params = int_at(int_at(frame, at.CALLS), op.d), _vector(frame, op.weight)
        a, b = _value(frame, op.a) + 4 * op.size * first, _value(frame, op.b) + 4 * op.n_head * first
        out = _value(frame, op.out) + 4 * op.width * first
        call_rows(function, params, a, b, out, last - first, op.size, op.n_head, op.width)


@inner
def _store(frame: int, op: Any, thread: int, n: int) -> None:
    layer = int_at(frame, at.LAYERS) + 8 * at.LAYER_SIZE * op.state
    rows, heads = int_at(frame, at.N_ROWS), int_at(layer, 2)
    k_bytes, v_bytes = 4 * heads * int_at(layer, 3), 4 * heads * int_at(layer, 4)
    for r in range(rows * thread // n, rows * (thread + 1) // n):
        position = int32_at(int_at(frame, at.POSITIONS), r)
        page = int32_at(_pages(frame, layer, r), position // PAGE)
        k, v = _value(frame, op.b) + k_bytes * r, _value(frame, op.c) + v_bytes * r
        call_store(int_at(frame, at.STORE), layer, k, v, page, position % PAGE)


@inner
def _pages(frame: int, layer: int, row: int) -> Any:
    """Return the address of the page table that a row's sequence has in a layer."""
    segment = int32_at(int_at(frame, at.OWNERS), row)
    return int_at(int_at(frame, at.TABLES), segment * int_at(frame, at.N_GROUPS) + int_at(layer, at.GROUP))


@inner
def _attend(frame: int, op: Any, counter: int, scratch: int) -> None:
    layer = int_at(frame, at.LAYERS) + 8 * at.LAYER_SIZE * op.state
    rows, dim, dim_v = int_at(frame, at.N_ROWS), int_at(layer, 3), int_at(layer, 4)
    group = op.n_head // int_at(layer, 2)
    while True:
        job = fetch_add(int_at(frame, at.SHARED), counter, 1)
        if job >= rows * op.n_head:
            return
        r, head = job // op.n_head, job % op.n_head
        position = int32_at(int_at(frame, at.POSITIONS), r)
        q, out = _value(frame, op.a) + 4 * dim * job, _value(frame, op.out) + 4 * dim_v * job
        pages = _pages(frame, layer, r)
        kernel = int_at(frame, at.ATTEND)
        call_attend(kernel, layer, q, position, head // group, pages, out, scratch, op.f0, op.f1)


@inner
def _row(frame: int, op: Any, r: int, scratch: int) -> None:
    """Run an op on one row."""
    a, out = _value(frame, op.a) + 4 * op.width * r, _value(frame, op.out) + 4 * op.width * r
    if op.kind == RMS_NORM:
        rms_norm(a, _vector(frame, op.weight), out, op.width, op.size, op.f0)
    elif op.kind == ROPE:
        shape = int_at(frame, at.ROPES) + 16 * op.rope
        n_rot = int_at(shape, 0)
        angles = int_at(int_at(frame, at.ANGLES), op.rope) + 4 * n_rot * r
        rope(a, angles, out, op.width // op.size, op.size, n_rot, int_at(shape, 1))
    elif op.kind == EMBED:
        weight = int_at(frame, at.WEIGHTS) + 8 * at.WEIGHT_SIZE * op.weight
        row = int_at(weight, 0) + int_at(weight, 1) * int32_at(int_at(frame, at.TOKENS), r)
        call_dequantize(int_at(weight, at.ROW), row, out, op.width, scratch)
    elif op.kind == SELECT:
        copy(_value(frame, op.a) + 4 * op.width * int32_at(int_at(frame, at.WANTED), r), out, op.width)
    elif op.kind == POSITION_SCALE:
        steps = int32_at(int_at(frame, at.POSITIONS), r) // op.size
        scale(a, out, op.width, float32(1.0 + float(op.f0) * math.log(1.0 + float(steps))))
    else:
        elementwise(op.kind, a, _value(frame, op.b) + 4 * op.width * r, out, op.width, op.f0, op.activation)


@entry
def run(frame: int, ops: Any, thread: int, n: int) -> None:
    """Run all ops as number `thread` of n threads; `ops` is a lowered program's array."""
    shared = int_at(frame, at.SHARED)
    scratch = int_at(frame, at.SCRATCH) + int_at(frame, at.SCRATCH_BYTES) * thread
    passed = 0
    for i in range(len(ops)):
        op = ops[i]
        rows = int_at(frame, at.N_WANTED) if op.flags & WANTED else int_at(frame, at.N_ROWS)
        if op.kind == MATMUL:
            if rows > 0:
                _matmul(frame, op, at.COUNTERS + i, rows, n, scratch)
        elif op.kind == QUANTIZE:
            _quantize(frame, op, rows, thread, n)
        elif op.kind == CALL:
            _call(frame, op, rows, thread, n)
        elif op.kind == ATTENTION:
            _store(frame, op, thread, n)
            passed = _barrier(shared, passed, n)
            _attend(frame, op, at.COUNTERS + i, scratch)
        else:
            for r in range(rows * thread // n, rows * (thread + 1) // n):
                _row(frame, op, r, scratch)
        if op.flags & NO_WAIT:
            continue
        # One thread decides, and names the op: a thread that is late at an earlier barrier must not leave there.
        if thread == 0 and int_now(shared, at.CANCELLED) != 0:
            set_int(shared, at.STOP_AT, i)
        passed = _barrier(shared, passed, n)
        if int_now(shared, at.STOP_AT) <= i:
            return
