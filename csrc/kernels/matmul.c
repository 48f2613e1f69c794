/* Matrix products: block types by integer dot products, float types by 16 lanes over K. */
#include "kernels.h"
#include "quants.h"
#include "tables.h"


/* Up to here unpacking again for each row is cheaper than a tile. */
#define FEW_ROWS 3
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
        for (int k = 0; k < K; k += LANES) {                                                                          \
            int left = K - k;                                                                                         \
            vf v[FLOAT_ROWS];                                                                                         \
            UNROLL for (int r = 0; r < R; r++) {                                                                      \
                const float *p = xr + (size_t)r * (size_t)K + k;                                                      \
                v[r] = left >= LANES ? vf_load(p) : vf_load_n(p, left);                                               \
            }                                                                                                         \
            UNROLL for (int i = 0; i < N; i++) {                                                                      \
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
}
