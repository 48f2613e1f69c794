/* Matrix products: block types by integer dot products, float types by 16 lanes over K. */
#include "kernels.h"
#include "quants.h"
#include "quants_codebook.h"
#include "quants_columns.h"
#include "quants_grid.h"
#include "quants_grid_columns.h"
#include "quants_ternary.h"
#include "tables.h"


/* Up to here weights are unpacked a block at a time, in turns with their products: where registers hold a whole
 * block.  Elsewhere a pass of four rows over a tile needs fewer loads. */
#define FEW_ROWS (TILE_ROWS > 4 ? 32 : 1)
/* The last rows of a tile fetch the next one: what comes early has left the cache again when it is wanted. */
#define FETCHING_ROWS 24
/* Into the second-level cache: the first one holds the rows at work. */
#define PREFETCH(p) __builtin_prefetch((p), 0, 2)

INLINE void store_tile(const edge_matrix *w, vf acc, int tile, float *out) {
    int at = 16 * tile, n = w->n_out - at < 16 ? w->n_out - at : 16;
    if (w->scale) acc = vf_mul(acc, vf_set1(*w->scale));
    if (n == 16) {
        if (w->bias) acc = vf_add(acc, vf_load(w->bias + at));
        vf_store(out + at, acc);
    } else {
        if (w->bias) acc = vf_add(acc, vf_load_n(w->bias + at, n));
        vf_store_n(out + at, acc, n);
    }
}

/* Add half 0 or 1 of a block; t carries the first half over to the second where they share a scale. */
INLINE vf add_half(vf acc, vf *t, vi sum, int half, const int SUB, const edge_act_block *x, const float *ws) {
    vf y = vi_to_vf(sum), d = vf_set1(x->d[half]);
    if (SUB == 2) return vf_fma(vf_mul(y, vf_load(ws + half * LANES)), d, acc);
    *t = half ? vf_fma(y, d, *t) : vf_mul(y, d);
    return half ? vf_fma(*t, vf_load(ws), acc) : acc;
}

INLINE vf add_mins(vf acc, const int SUB, const edge_act_block *x, const float *wm) {
    if (SUB == 1) return vf_fma(vf_load(wm), vf_set1(x->sum32), acc);
    acc = vf_fma(vf_load(wm), vf_set1(x->sum16[0]), acc);
    return vf_fma(vf_load(wm + LANES), vf_set1(x->sum16[1]), acc);
}

/* Weights that will be wanted, fetched a step at a time while others are multiplied. */
typedef struct {
    const uint8_t *at;
    size_t step; /* bytes */
} edge_ahead;

INLINE void fetch_ahead(edge_ahead *a) {
    for (size_t line = 0; line < a->step; line += 64) PREFETCH(a->at + line);
    a->at += a->step;
}

/* Sixteen weight rows, unpacked as matmul_tile.h wants them. */
typedef struct {
    uint8_t *bytes;
    float *ws, *wm;
    int offset;
    const uint8_t *next; /* the tile that follows, to be fetched */
    size_t next_bytes;
} edge_tile;

/* What rows a0..a0+R-1 fetch of the next tile. */
INLINE edge_ahead share_ahead(const edge_tile *p, int rows, int a0, int R, int nb) {
    int some = rows < FETCHING_ROWS ? rows : FETCHING_ROWS, at = a0 - (rows - some);
    if (!p->next || at < 0) return (edge_ahead){p->bytes, 0};
    return (edge_ahead){p->next + p->next_bytes * (size_t)at / (size_t)some,
                        p->next_bytes * (size_t)R / (size_t)some / (size_t)nb};
}

/* Types with an offset, with mins and with signed bytes, each with one or two scales a block. */
#define C offset1
#define C_SUB 1
#define C_MIN 0
#define C_SIGNED 0
#include "matmul_tile.h"
#define C offset2
#define C_SUB 2
#define C_MIN 0
#define C_SIGNED 0
#include "matmul_tile.h"
#define C min1
#define C_SUB 1
#define C_MIN 1
#define C_SIGNED 0
#include "matmul_tile.h"
#define C min2
#define C_SUB 2
#define C_MIN 1
#define C_SIGNED 0
#include "matmul_tile.h"
#if !SIGNED_AS_UNSIGNED
#define C signed1
#define C_SUB 1
#define C_MIN 0
#define C_SIGNED 1
#include "matmul_tile.h"
#define C signed2
#define C_SUB 2
#define C_MIN 0
#define C_SIGNED 1
#include "matmul_tile.h"
#else
#define signed1_tile offset1_tile
#define signed2_tile offset2_tile
#endif

typedef void (*tile_fn)(const edge_matrix *w, const edge_act *act, int rows, float *out, int tile,
                        const edge_tile *p);

INLINE tile_fn tile_class(int sub, int min, int is_signed) {
    if (is_signed) return sub == 1 ? signed1_tile : signed2_tile;
    if (min) return sub == 1 ? min1_tile : min2_tile;
    return sub == 1 ? offset1_tile : offset2_tile;
}

#define T q4_0
#include "matmul_quant.h"
#define T q4_1
#include "matmul_quant.h"
#define T q5_0
#include "matmul_quant.h"
#define T q5_1
#include "matmul_quant.h"
#define T q8_0
#include "matmul_quant.h"
#define T q2_k
#include "matmul_quant.h"
#define T q3_k
#include "matmul_quant.h"
#define T q4_k
#include "matmul_quant.h"
#define T q5_k
#include "matmul_quant.h"
#define T q6_k
#include "matmul_quant.h"
#define T iq4_nl
#include "matmul_quant.h"
#define T iq4_xs
#include "matmul_quant.h"
#define T mxfp4
#include "matmul_quant.h"
#define T nvfp4
#include "matmul_quant.h"
#define T iq2_xxs
#include "matmul_quant.h"
#define T iq2_xs
#include "matmul_quant.h"
#define T iq2_s
#include "matmul_quant.h"
#define T iq3_xxs
#include "matmul_quant.h"
#define T iq3_s
#include "matmul_quant.h"
#define T iq1_s
#include "matmul_quant.h"
#define T iq1_m
#include "matmul_quant.h"
#define T tq1_0
#include "matmul_quant.h"
#define T tq2_0
#include "matmul_quant.h"
#define T q1_0
#include "matmul_quant.h"
#define T q2_0
#include "matmul_quant.h"

/* Float types.  acc lane k%16 = fma(w[k], x[k], acc), then the summing tree; a row's end is padded with zeros. */
enum { FLOAT_OUT = 4 };

#define FLOAT_TYPE(name, elem, load)                                                                                  \
    INLINE vf name##_at(const uint8_t *row, int k, int n) {                                                           \
        const elem *p = (const elem *)(const void *)row + k;                                                          \
        if (n >= LANES) return load(p);                                                                               \
        elem t[LANES] = {0};                                                                                          \
        memcpy(t, p, (size_t)n * sizeof *t);                                                                          \
        return load(t);                                                                                               \
    }                                                                                                                 \
    INLINE void name##_block(const edge_matrix *w, const float *x, int n0, const int N, int a0, const int R,          \
                             float *out) {                                                                            \
        int K = w->n_in;                                                                                              \
        vf acc[FLOAT_OUT][FLOAT_ROWS];                                                                                \
        UNROLL for (int i = 0; i < N; i++) UNROLL for (int r = 0; r < R; r++) acc[i][r] = vf_zero();                  \
        const uint8_t *row[FLOAT_OUT];                                                                                \
        UNROLL for (int i = 0; i < N; i++) row[i] = w->data + w->row_bytes * (size_t)(n0 + i);                        \
        const float *xr = x + (size_t)a0 * (size_t)K;                                                                 \
        /* One row of inputs: weights come from memory, those of the next rows should be on their way. */             \
        size_t ahead = R == 1 && n0 + 2 * N <= w->n_out ? (size_t)N * w->row_bytes : 0;                               \
        for (int k = 0; k < K; k += LANES) {                                                                          \
            int left = K - k;                                                                                         \
            vf v[FLOAT_ROWS];                                                                                         \
            UNROLL for (int r = 0; r < R; r++) {                                                                      \
                const float *p = xr + (size_t)r * (size_t)K + k;                                                      \
                v[r] = left >= LANES ? vf_load(p) : vf_load_n(p, left);                                               \
            }                                                                                                         \
            UNROLL for (int i = 0; i < N; i++) {                                                                      \
                PREFETCH(row[i] + ahead + (size_t)k * sizeof(elem));                                                  \
                vf u = name##_at(row[i], k, left);                                                                    \
                UNROLL for (int r = 0; r < R; r++) acc[i][r] = vf_fma(u, v[r], acc[i][r]);                            \
            }                                                                                                         \
        }                                                                                                             \
        UNROLL for (int i = 0; i < N; i++) UNROLL for (int r = 0; r < R; r++) {                                       \
            float y = vf_sum(acc[i][r]);                                                                              \
            if (w->scale) y *= *w->scale;                                                                             \
            if (w->bias) y += w->bias[n0 + i];                                                                        \
            out[(size_t)(a0 + r) * (size_t)w->n_out + (size_t)(n0 + i)] = y;                                          \
        }                                                                                                             \
    }                                                                                                                 \
    static void name##_matmul(const edge_matrix *w, const float *x, const edge_act *act, int rows, float *out,        \
                              int tile0, int tile1, void *scratch) {                                                  \
        (void)act;                                                                                                    \
        (void)scratch;                                                                                                \
        int end = 16 * tile1 < w->n_out ? 16 * tile1 : w->n_out, n = 16 * tile0;                                      \
        for (; n + FLOAT_OUT <= end; n += FLOAT_OUT) {                                                                \
            int a = 0;                                                                                                \
            for (; a + FLOAT_ROWS <= rows; a += FLOAT_ROWS) name##_block(w, x, n, FLOAT_OUT, a, FLOAT_ROWS, out);     \
            for (; a < rows; a++) name##_block(w, x, n, FLOAT_OUT, a, 1, out);                                        \
        }                                                                                                             \
        for (; n < end; n++)                                                                                          \
            for (int a = 0; a < rows; a++) name##_block(w, x, n, 1, a, 1, out);                                       \
    }                                                                                                                 \
    static void name##_dequantize(const uint8_t *row, float *out, int n) {                                            \
        for (int k = 0; k < n; k += LANES) {                                                                          \
            vf v = name##_at(row, k, n - k);                                                                          \
            if (n - k >= LANES) vf_store(out + k, v);                                                                 \
            else vf_store_n(out + k, v, n - k);                                                                       \
        }                                                                                                             \
    }

FLOAT_TYPE(f32, float, vf_load)
FLOAT_TYPE(f16, uint16_t, vf_from_f16)
FLOAT_TYPE(bf16, uint16_t, vf_from_bf16)

void FN(edge_fill_matmul)(edge_kernels *t) {
    widen_grids();
    split_grids();
#define SET(id, name) t->matmul[id] = EDGE_PASTE(name, matmul), t->dequantize[id] = EDGE_PASTE(name, dequantize)
    SET(EDGE_F32, f32);
    SET(EDGE_F16, f16);
    SET(EDGE_BF16, bf16);
    SET(EDGE_Q4_0, q4_0);
    SET(EDGE_Q4_1, q4_1);
    SET(EDGE_Q5_0, q5_0);
    SET(EDGE_Q5_1, q5_1);
    SET(EDGE_Q8_0, q8_0);
    SET(EDGE_Q2_K, q2_k);
    SET(EDGE_Q3_K, q3_k);
    SET(EDGE_Q4_K, q4_k);
    SET(EDGE_Q5_K, q5_k);
    SET(EDGE_Q6_K, q6_k);
    SET(EDGE_IQ4_NL, iq4_nl);
    SET(EDGE_IQ4_XS, iq4_xs);
    SET(EDGE_MXFP4, mxfp4);
    SET(EDGE_NVFP4, nvfp4);
    SET(EDGE_IQ2_XXS, iq2_xxs);
    SET(EDGE_IQ2_XS, iq2_xs);
    SET(EDGE_IQ2_S, iq2_s);
    SET(EDGE_IQ3_XXS, iq3_xxs);
    SET(EDGE_IQ3_S, iq3_s);
    SET(EDGE_IQ1_S, iq1_s);
    SET(EDGE_IQ1_M, iq1_m);
    SET(EDGE_TQ1_0, tq1_0);
    SET(EDGE_TQ2_0, tq2_0);
    SET(EDGE_Q1_0, q1_0);
    SET(EDGE_Q2_0, q2_0);
}
