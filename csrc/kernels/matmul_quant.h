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

/* What offset weights add too much to an integer sum; signs that are put on the activations leave no offset. */
INLINE vi T_(start)(const edge_act *act, size_t half) {
    return T_(U8_OFF) && !T_(SIGNS) ? vi_set1(-T_(U8_OFF) * act->isum16[half]) : vi_zero();
}

/* The end of a block: its sums join the accumulator. */
INLINE vf T_(join)(vf acc, vi lo, vi hi, const edge_act *act, size_t at, const float *ws, const float *wm) {
    vf t;
    acc = add_half(acc, &t, lo, 0, T_(SUB), act, at, ws);
    acc = add_half(acc, &t, hi, 1, T_(SUB), act, at, ws);
    return T_(MIN) ? add_mins(acc, T_(SUB), act, at, wm) : acc;
}

/* The bytes of block b with their signs. */
INLINE vb T_(signed)(const uint8_t *row, int b, const uint32_t *minus) {
    return T_(SIGNS) ? vb_negate(T_(load)(row, b), *minus) : T_(load)(row, b);
}

/* One row: the weights are unpacked in registers, 16 rows at a time. */
INLINE void T_(one)(const edge_matrix *w, const edge_act *act, size_t a, float *out, int tile) {
    const uint8_t *row[16];
    T_(row_pointers)(w, tile, row);
    int nb = act->n_block;
    const uint8_t *ahead = row[0];
    size_t step = 0, base = a * (size_t)nb;
    int inside = 16 * (tile + 3) <= w->n_out;
    if (inside || w->then) { /* rows that the tile after the next one will want, in memory's order */
        ahead = inside ? ahead + 32 * w->row_bytes : w->then + 16 * w->row_bytes * (size_t)(tile + 2 - w->n_out / 16);
        step = 16 * w->row_bytes / (size_t)nb * (T_(STEP) ? T_(STEP) : 1);
    }
    vf acc = vf_zero();
    for (int b0 = 0; b0 < nb; b0 += 8) {
        float ws[8 * 2 * LANES], wm[8 * 2 * LANES];
        int n = nb - b0 < 8 ? nb - b0 : 8;
        T_(scales)(row, b0, n, ws, wm);
        _Alignas(64) edge_signs minus;
        T_(signs)(row, b0, n, minus);
        for (int i = 0; i < n; i += T_(STEP) ? T_(STEP) : 1) {
            size_t at = base + (size_t)(b0 + i);
            for (size_t line = 0; line < step; line += 64) PREFETCH(ahead + line);
            ahead += step;
            if (T_(STEP)) {
                edge_sink to = {.q = act->q + 32 * at, .keep = 0, .flip = T_(SIGNED) && SIGNED_AS_UNSIGNED,
                                .is_signed = T_(SIGNED)};
                UNROLL for (int s = 0; s < T_(STEP); s++) {
                    to.sum[s][0] = T_(start)(act, 2 * (at + (size_t)s));
                    to.sum[s][1] = T_(start)(act, 2 * (at + (size_t)s) + 1);
                }
                T_(columns)(row, b0 + i, &to);
                UNROLL for (int s = 0; s < T_(STEP); s++)
                    acc = T_(join)(acc, to.sum[s][0], to.sum[s][1], act, at + (size_t)s,
                                   ws + (i + s) * T_(SUB) * LANES, wm + (i + s) * T_(SUB) * LANES);
                continue;
            }
            vb x = vb_load((const uint8_t *)act->q + 32 * at);
            vp p[16];
            UNROLL for (int r = 0; r < 16; r++) {
                vb u = T_(load)(row[r], b0 + i);
                p[r] = T_(SIGNS) ? vb_dot_minus(u, x, minus[i][r]) : vb_dot(u, x, T_(SIGNED));
            }
            vi lo, hi;
            vp_reduce(p, &lo, &hi);
            if (T_(U8_OFF) && !T_(SIGNS)) {
                lo = vi_add(lo, T_(start)(act, 2 * at));
                hi = vi_add(hi, T_(start)(act, 2 * at + 1));
            }
            acc = T_(join)(acc, lo, hi, act, at, ws + i * T_(SUB) * LANES, wm + i * T_(SUB) * LANES);
        }
    }
    store_tile(w, acc, tile, out + a * (size_t)w->n_out);
}

/* Many rows: unpack 16 weight rows once, as matmul_tile.h wants them. */
INLINE void T_(unpack)(const edge_matrix *w, int nb, int tile, uint8_t *bytes, float *ws, float *wm) {
    const uint8_t *row[16];
    T_(row_pointers)(w, tile, row);
    const uint8_t *ahead = 16 * (tile + 2) <= w->n_out ? row[0] + 16 * w->row_bytes : w->then;
    if (ahead)
        for (size_t line = 0; line < 16 * w->row_bytes; line += 64) PREFETCH(ahead + line);
    for (int b = 0; b < nb; b += 8) {
        int n = nb - b < 8 ? nb - b : 8;
        T_(scales)(row, b, n, ws + b * T_(SUB) * LANES, wm + b * T_(SUB) * LANES);
    }
    edge_sink to = {.keep = 1, .flip = T_(SIGNED) && SIGNED_AS_UNSIGNED};
    if (T_(STEP)) {
        for (int b = 0; b < nb; b += T_(STEP) ? T_(STEP) : 1) {
            to.tile = bytes + (size_t)b * 512;
            T_(columns)(row, b, &to);
        }
        return;
    }
    uint8_t loaded[16][32];
    const uint8_t *from[16];
    _Alignas(64) edge_signs minus;
    for (int r = 0; r < 16; r++) from[r] = loaded[r];
    for (int b = 0; b < nb; b++) {
        to.tile = bytes + (size_t)b * 512;
        if (b % 8 == 0) T_(signs)(row, b, nb - b < 8 ? nb - b : 8, minus);
        for (int r = 0; r < 16; r++) vb_store(loaded[r], T_(signed)(row[r], b, &minus[b % 8][r]));
        vi x[8];
        columns32(from, 0, x);
        UNROLL for (int k = 0; k < 8; k++) emit(&to, 0, k, x[k]);
    }
}

static void T_(matmul)(const edge_matrix *w, const float *x, const edge_act *act, int rows, float *out, int tile0,
                       int tile1, void *scratch) {
    (void)x;
    uint8_t *bytes = scratch;
    float *ws = (float *)(void *)(bytes + (size_t)act->n_block * 512);
    float *wm = ws + (size_t)act->n_block * T_(SUB) * LANES;
    for (int tile = tile0; tile < tile1; tile++) {
        if (rows <= FEW_ROWS) {
            for (int a = 0; a < rows; a++) T_(one)(w, act, (size_t)a, out, tile);
            continue;
        }
        T_(unpack)(w, act->n_block, tile, bytes, ws, wm);
        tile_class(T_(SUB), T_(MIN), T_(SIGNED) && !SIGNED_AS_UNSIGNED)(w, act, rows, out, tile, bytes, ws, wm,
                                                                        T_(U8_OFF));
    }
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
