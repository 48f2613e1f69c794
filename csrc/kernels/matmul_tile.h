/* The many-row product of one unpacked tile: 16 weight rows times activation rows.
 *
 * Include with C a class name and C_SUB, C_MIN, C_SIGNED defined as for the types in quants.h: types that agree
 * in these share this code.  The order is that of matmul_quant.h.  Byte 4*r+k of vector j of a block is
 * weight 4*j+k of row r; ws and wm hold C_SUB vectors a block.
 */
#define C_(name) EDGE_PASTE(C, name)

INLINE void C_(pass)(const edge_matrix *w, const edge_act *act, int a0, const int R, float *out, int tile,
                     const uint8_t *bytes, const float *ws, const float *wm, int offset) {
    int nb = act->n_block;
    vf acc[TILE_ROWS];
    UNROLL for (int r = 0; r < R; r++) acc[r] = vf_zero();
    for (int b = 0; b < nb; b++) {
        size_t at = (size_t)a0 * (size_t)nb + (size_t)b;
        const int8_t *q = act->q + 32 * at;
        const uint8_t *v = bytes + (size_t)b * 512;
        const float *s = ws + b * C_SUB * LANES, *m = wm + b * C_SUB * LANES;
        vi sum[TILE_ROWS];
        vf t[TILE_ROWS];
        UNROLL for (int half = 0; half < 2; half++) {
            UNROLL for (int r = 0; r < R; r++)
                sum[r] = C_MIN || C_SIGNED
                             ? vi_zero()
                             : vi_set1(-offset * act->isum16[2 * (at + (size_t)r * (size_t)nb) + (size_t)half]);
            UNROLL for (int k = 4 * half; k < 4 * half + 4; k++)
                UNROLL for (int r = 0; r < R; r++)
                    sum[r] = vi_dot4(sum[r], v + 64 * k, q + (size_t)r * (size_t)nb * 32 + 4 * k, C_SIGNED);
            UNROLL for (int r = 0; r < R; r++)
                acc[r] = add_half(acc[r], &t[r], sum[r], half, C_SUB, act, at + (size_t)r * (size_t)nb, s);
        }
        if (C_MIN)
            UNROLL for (int r = 0; r < R; r++) acc[r] = add_mins(acc[r], C_SUB, act, at + (size_t)r * (size_t)nb, m);
    }
    UNROLL for (int r = 0; r < R; r++) store_tile(w, acc[r], tile, out + (size_t)(a0 + r) * (size_t)w->n_out);
}

static void C_(tile)(const edge_matrix *w, const edge_act *act, int rows, float *out, int tile, const uint8_t *bytes,
                     const float *ws, const float *wm, int offset) {
    int a = 0;
    for (; a + TILE_ROWS <= rows; a += TILE_ROWS)
        C_(pass)(w, act, a, TILE_ROWS, out, tile, bytes, ws, wm, offset);
    if (TILE_ROWS > 4 && a + 4 <= rows) {
        C_(pass)(w, act, a, 4, out, tile, bytes, ws, wm, offset);
        a += 4;
    }
    if (a + 2 <= rows) {
        C_(pass)(w, act, a, 2, out, tile, bytes, ws, wm, offset);
        a += 2;
    }
    for (; a < rows; a++) C_(pass)(w, act, a, 1, out, tile, bytes, ws, wm, offset);
}
#undef C_
#undef C
#undef C_SUB
#undef C_MIN
#undef C_SIGNED
