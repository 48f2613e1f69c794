/* Matmul kernels of one block type; include with T defined to its name in quants.h.
 *
 * The order of every output element, whichever kernel computes it: blocks of 32 in ascending order; the
 * integer sums i0, i1 of a block's halves are exact; d0, d1 are the activations' scales of the halves.
 *     one weight scale:  acc = fma(fma(i1, d1, i0 * d0), ws, acc)
 *                        acc = fma(wm, sum32, acc)                     where the type has mins
 *     two:               acc = fma(i0 * ws0, d0, acc); acc = fma(i1 * ws1, d1, acc)
 *                        acc = fma(wm0, sum16[0], acc); acc = fma(wm1, sum16[1], acc)
 */
#define T_(name) EDGE_PASTE(T, name)
enum {
    T_(U8_OFF) = T_(SIGNED) && SIGNED_AS_UNSIGNED ? 128 : T_(OFF),
};

INLINE void T_(row_pointers)(const edge_matrix *w, int tile, const uint8_t *row[16]) {
    for (int r = 0; r < 16; r++) {
        int n = 16 * tile + r;
        row[r] = w->data + w->row_bytes * (size_t)(n < w->n_out ? n : w->n_out - 1);
    }
}

/* What offset weights add too much to an integer sum. */
INLINE vi T_(start)(const edge_act_block *x, int half) {
    return T_(U8_OFF) ? vi_set1(-T_(U8_OFF) * x->isum16[half]) : vi_zero();
}

/* The end of a block: its sums join the accumulator. */
INLINE vf T_(join)(vf acc, vi lo, vi hi, const edge_act_block *x, const float *ws, const float *wm) {
    vf t;
    acc = add_half(acc, &t, lo, 0, T_(SUB), x, ws);
    acc = add_half(acc, &t, hi, 1, T_(SUB), x, ws);
    return T_(MIN) ? add_mins(acc, T_(SUB), x, wm) : acc;
}

/* What the tile after the next one will want, a step for each block, in memory's order. */
INLINE edge_ahead T_(ahead)(const edge_matrix *w, const uint8_t *first, int tile, int nb) {
    size_t bytes = 16 * w->row_bytes, step = bytes / (size_t)nb;
    if (16 * (tile + 3) <= w->n_out) return (edge_ahead){first + 2 * bytes, step};
    if (!w->then) return (edge_ahead){first, 0};
    return (edge_ahead){w->then + bytes * (size_t)(tile + 2 - w->n_out / 16), step};
}

/* The bytes of block b with their signs. */
INLINE vb T_(signed)(const uint8_t *row, int b, const uint32_t *minus) {
    return T_(SIGNS) ? vb_negate(T_(load)(row, b), *minus) : T_(load)(row, b);
}

/* One row: the weights are unpacked in registers, 16 rows at a time. */
INLINE void T_(one)(const edge_matrix *w, const edge_act *act, float *out, int tile) {
    const uint8_t *row[16];
    T_(row_pointers)(w, tile, row);
    int nb = act->n_block;
    edge_ahead ahead = T_(ahead)(w, row[0], tile, nb);
    ahead.step *= T_(STEP) ? T_(STEP) : 1;
    vf acc = vf_zero();
    for (int b0 = 0; b0 < nb; b0 += 8) {
        float ws[8 * 2 * LANES], wm[8 * 2 * LANES];
        int n = nb - b0 < 8 ? nb - b0 : 8;
        T_(scales)(row, b0, n, ws, wm);
        _Alignas(64) edge_signs minus;
        T_(signs)(row, b0, n, minus);
        for (int i = 0; i < n; i += T_(STEP) ? T_(STEP) : 1) {
            const edge_act_block *x = act->block + b0 + i;
            fetch_ahead(&ahead);
            if (T_(STEP)) {
                edge_sink to = {.x = x, .keep = 0, .flip = T_(SIGNED) && SIGNED_AS_UNSIGNED, .is_signed = T_(SIGNED)};
                UNROLL for (int s = 0; s < T_(STEP); s++) /* signs that are put on the activations leave no offset */
                    UNROLL for (int half = 0; half < 2; half++)
                        to.sum[s][half] = T_(SIGNS) ? vi_zero() : T_(start)(x + s, half);
                T_(columns)(row, b0 + i, &to);
                UNROLL for (int s = 0; s < T_(STEP); s++)
                    acc = T_(join)(acc, to.sum[s][0], to.sum[s][1], x + s, ws + (i + s) * T_(SUB) * LANES,
                                   wm + (i + s) * T_(SUB) * LANES);
                continue;
            }
            vb q = vb_load((const uint8_t *)x->q);
            vp p[16];
            UNROLL for (int r = 0; r < 16; r++) {
                vb u = T_(load)(row[r], b0 + i);
                p[r] = T_(SIGNS) ? vb_dot_minus(u, q, minus[i][r]) : vb_dot(u, q, T_(SIGNED));
            }
            vi lo, hi;
            vp_reduce(p, &lo, &hi);
            if (T_(U8_OFF) && !T_(SIGNS)) {
                lo = vi_add(lo, T_(start)(x, 0));
                hi = vi_add(hi, T_(start)(x, 1));
            }
            acc = T_(join)(acc, lo, hi, x, ws + i * T_(SUB) * LANES, wm + i * T_(SUB) * LANES);
        }
    }
    store_tile(w, acc, tile, out);
}

/* Block b, or STEP blocks from b on, as matmul_tile.h wants them; minus: the signs of block b. */
INLINE void T_(put)(const uint8_t *const *row, int b, const uint32_t *minus, uint8_t *bytes) {
    edge_sink to = {.keep = 1, .tile = bytes, .flip = T_(SIGNED) && SIGNED_AS_UNSIGNED};
    if (T_(STEP)) {
        T_(columns)(row, b, &to);
        return;
    }
    uint8_t loaded[16][32];
    const uint8_t *from[16];
    for (int r = 0; r < 16; r++) {
        from[r] = loaded[r];
        vb_store(loaded[r], T_(signed)(row[r], b, minus + r));
    }
    vi x[8];
    columns32(from, 0, x);
    UNROLL for (int k = 0; k < 8; k++) emit(&to, 0, k, x[k]);
}

/* R rows and a block: their sums grow. */
INLINE void T_(block)(const int R, const vi v[8], const edge_act_block *x, size_t pitch, float *sums, const float *ws,
                      const float *wm) {
    vi lo[2], hi[2];
    UNROLL for (int r = 0; r < R; r++) {
        lo[r] = T_(start)(x + (size_t)r * pitch, 0);
        hi[r] = T_(start)(x + (size_t)r * pitch, 1);
    }
    UNROLL for (int k = 0; k < 4; k++) UNROLL for (int r = 0; r < R; r++) {
        const int8_t *q = x[(size_t)r * pitch].q + 4 * k;
        lo[r] = vi_dot_column(lo[r], v[k], q, T_(SIGNED) && !SIGNED_AS_UNSIGNED);
        hi[r] = vi_dot_column(hi[r], v[4 + k], q + 16, T_(SIGNED) && !SIGNED_AS_UNSIGNED);
    }
    UNROLL for (int r = 0; r < R; r++) {
        vf acc = vf_load(sums + r * LANES);
        vf_store(sums + r * LANES, T_(join)(acc, lo[r], hi[r], x + (size_t)r * pitch, ws, wm));
    }
}

/* Rows from..to-1. */
INLINE void T_(rows)(int from, int to, const vi v[8], const edge_act_block *x, size_t pitch, float *sums,
                     const float *ws, const float *wm) {
    for (; from + 2 <= to; from += 2)
        T_(block)(2, v, x + (size_t)from * pitch, pitch, sums + from * LANES, ws, wm);
    if (from < to) T_(block)(1, v, x + (size_t)from * pitch, pitch, sums + from * LANES, ws, wm);
}

/* Few rows: half of them, then what the next block needs is unpacked, which hides behind the products, then the
 * other half.  Unpacked blocks and scales stay in the first-level cache. */
INLINE void T_(few)(const edge_matrix *w, const edge_act *act, int rows, float *out, int tile) {
    enum { STEP = T_(STEP) ? T_(STEP) : 1, SCALES = T_(SUB) * LANES };
    const uint8_t *row[16];
    T_(row_pointers)(w, tile, row);
    int nb = act->n_block, half = rows / 4 * 2;
    edge_ahead ahead = T_(ahead)(w, row[0], tile, nb);
    size_t pitch = (size_t)nb;
    _Alignas(64) uint8_t bytes[2 * STEP * 512];
    _Alignas(64) float ws[16 * SCALES], wm[16 * SCALES], sums[FEW_ROWS * LANES];
    for (int r = 0; r < rows; r++) vf_store(sums + r * LANES, vf_zero());
    _Alignas(64) edge_signs minus;
    T_(scales)(row, 0, nb < 8 ? nb : 8, ws, wm);
    T_(signs)(row, 0, nb < 8 ? nb : 8, minus);
    T_(put)(row, 0, minus[0], bytes);
    for (int b = 0; b < nb; b++) {
        const edge_act_block *x = act->block + b;
        const float *s = ws + b % 16 * SCALES, *m = wm + b % 16 * SCALES;
        vi v[8];
        UNROLL for (int k = 0; k < 8; k++) v[k] = vi_from_tile(bytes + b % (2 * STEP) * 512 + 64 * k);
        T_(rows)(0, half, v, x, pitch, sums, s, m);
        fetch_ahead(&ahead);
        int next = b + 1, n = nb - next < 8 ? nb - next : 8;
        if (next % 8 == 0 && n) {
            T_(scales)(row, next, n, ws + next % 16 * SCALES, wm + next % 16 * SCALES);
            T_(signs)(row, next, n, minus);
        }
        next = b + STEP;
        if (b % STEP == 0 && next < nb) T_(put)(row, next, minus[next % 8], bytes + next % (2 * STEP) * 512);
        T_(rows)(half, rows, v, x, pitch, sums, s, m);
    }
    for (int r = 0; r < rows; r++) store_tile(w, vf_load(sums + r * LANES), tile, out + (size_t)r * (size_t)w->n_out);
}

/* Many rows: unpack whole weight rows once. */
INLINE void T_(many)(const edge_matrix *w, const edge_act *act, int rows, float *out, int tile, void *scratch) {
    int nb = act->n_block;
    const uint8_t *row[16];
    T_(row_pointers)(w, tile, row);
    edge_tile p = {.bytes = scratch, .offset = T_(U8_OFF)};
    p.ws = (float *)(void *)(p.bytes + (size_t)nb * 512);
    p.wm = p.ws + (size_t)nb * T_(SUB) * LANES;
    p.next = 16 * (tile + 2) <= w->n_out ? row[0] + 16 * w->row_bytes : w->then;
    p.next_bytes = p.next ? 16 * w->row_bytes : 0;
    _Alignas(64) edge_signs minus;
    for (int b = 0; b < nb; b++) {
        int n = nb - b < 8 ? nb - b : 8;
        if (b % 8 == 0) {
            T_(scales)(row, b, n, p.ws + b * T_(SUB) * LANES, p.wm + b * T_(SUB) * LANES);
            T_(signs)(row, b, n, minus);
        }
        if (b % (T_(STEP) ? T_(STEP) : 1) == 0) T_(put)(row, b, minus[b % 8], p.bytes + (size_t)b * 512);
    }
    tile_class(T_(SUB), T_(MIN), T_(SIGNED) && !SIGNED_AS_UNSIGNED)(w, act, rows, out, tile, &p);
}

static void T_(matmul)(const edge_matrix *w, const float *x, const edge_act *act, int rows, float *out, int tile0,
                       int tile1, void *scratch) {
    (void)x;
    for (int tile = tile0; tile < tile1; tile++)
        if (rows > FEW_ROWS) T_(many)(w, act, rows, out, tile, scratch);
        else if (rows > 1) T_(few)(w, act, rows, out, tile);
        else if (rows == 1) T_(one)(w, act, out, tile);
}

static void T_(dequantize)(const uint8_t *row, float *out, int n) {
    const uint8_t *same[16];
    for (int r = 0; r < 16; r++) same[r] = row;
    for (int b0 = 0; b0 < n / 32; b0 += 8) {
        float ws[8 * 2 * LANES], wm[8 * 2 * LANES];
        int count = n / 32 - b0 < 8 ? n / 32 - b0 : 8;
        _Alignas(64) edge_signs minus;
        T_(scales)(same, b0, count, ws, wm);
        T_(signs)(same, b0, count, minus);
        for (int i = 0; i < count; i++) {
            uint8_t u[32];
            vb_store(u, T_(signed)(row, b0 + i, minus[i]));
            for (int k = 0; k < 32; k++) {
                int s = (i * T_(SUB) + (T_(SUB) == 2 ? k / 16 : 0)) * LANES;
                int q = T_(SIGNED) ? (int8_t)u[k] : u[k] - T_(OFF);
                float y = ws[s] * (float)q;
                out[32 * (b0 + i) + k] = T_(MIN) ? y + wm[s] : y;
            }
        }
    }
}
#undef T_
#undef T
