/* The many-row product of one unpacked tile: 16 weight rows times activation rows.
 *
 * Include with C a class name and C_SUB, C_MIN, C_SIGNED defined as for the types in quants.h: types that agree
 * in these share this code.  The order is that of matmul_quant.h.  Byte 4*r+k of vector j of a block is
 * weight 4*j+k of row r; ws and wm hold C_SUB vectors a block.
 */
#define C_(name) EDGE_PASTE(C, name)

INLINE void C_(pass)(const edge_matrix *w, const edge_act *act, int a0, const int R, float *out, int tile,
                     const edge_tile *p, int rows) {
    edge_ahead ahead = share_ahead(p, rows, a0, R, act->n_block);
    size_t pitch = (size_t)act->n_block;
    vf acc[TILE_ROWS];
    UNROLL for (int r = 0; r < R; r++) acc[r] = vf_zero();
    for (int b = 0; b < act->n_block; b++) {
        const edge_act_block *x = act->block + (size_t)a0 * pitch + (size_t)b;
        const uint8_t *v = p->bytes + (size_t)b * 512;
        const float *s = p->ws + b * C_SUB * LANES, *m = p->wm + b * C_SUB * LANES;
        vi sum[TILE_ROWS];
        vf t[TILE_ROWS];
        fetch_ahead(&ahead);
        UNROLL for (int half = 0; half < 2; half++) {
            UNROLL for (int r = 0; r < R; r++)
                sum[r] = C_MIN || C_SIGNED ? vi_zero() : vi_set1(-p->offset * x[(size_t)r * pitch].isum16[half]);
            UNROLL for (int k = 4 * half; k < 4 * half + 4; k++)
                UNROLL for (int r = 0; r < R; r++)
                    sum[r] = vi_dot4(sum[r], v + 64 * k, x[(size_t)r * pitch].q + 4 * k, C_SIGNED);
            UNROLL for (int r = 0; r < R; r++)
                acc[r] = add_half(acc[r], &t[r], sum[r], half, C_SUB, x + (size_t)r * pitch, s);
        }
        if (C_MIN) UNROLL for (int r = 0; r < R; r++) acc[r] = add_mins(acc[r], C_SUB, x + (size_t)r * pitch, m);
    }
    UNROLL for (int r = 0; r < R; r++) store_tile(w, acc[r], tile, out + (size_t)(a0 + r) * (size_t)w->n_out);
}

static void C_(tile)(const edge_matrix *w, const edge_act *act, int rows, float *out, int tile, const edge_tile *p) {
    int a = 0;
    for (; a + TILE_ROWS <= rows; a += TILE_ROWS) C_(pass)(w, act, a, TILE_ROWS, out, tile, p, rows);
    if (TILE_ROWS > 4 && a + 4 <= rows) {
        C_(pass)(w, act, a, 4, out, tile, p, rows);
        a += 4;
    }
    if (a + 2 <= rows) {
        C_(pass)(w, act, a, 2, out, tile, p, rows);
        a += 2;
    }
    for (; a < rows; a++) C_(pass)(w, act, a, 1, out, tile, p, rows);
}
#undef C_
#undef C
#undef C_SUB
#undef C_MIN
#undef C_SIGNED
