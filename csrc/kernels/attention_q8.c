/* Attention over keys and values of 8 bits: blocks of 32 dimensions with one scale, as in Q8_0.
 *
 * A page's record of one head, for keys     [block][dimension / 4][16 tokens][4 dimensions]
 *                         and for values    [block][token / 2][32 dimensions][2 tokens]
 * then the scales, f16 [block][16 tokens].  The order for each query and head:
 *   query   quantized in blocks of 32, as keys are but with float scales
 *   score   exact integer sums of a block, times the query's scale, fma with the key's, blocks ascending
 *   span    max, exp and sum as for floats; then for each block of dimensions the weights exp * (scale * unit)
 *           become integers, unit = 32767 / the largest scale seen, whose products with the values are summed exactly
 *   merge   spans in ascending order
 */
#include "spans.h"

enum { BLOCK = 32, BLOCK_BYTES = BLOCK * EDGE_PAGE };

INLINE int blocks_of(int dim) { return (dim + BLOCK - 1) / BLOCK; }

INLINE void load_block(const float *x, int n, vf *lo, vf *hi) {
    *lo = n >= LANES ? vf_load(x) : vf_load_n(x, n);
    *hi = n >= BLOCK ? vf_load(x + LANES) : n > LANES ? vf_load_n(x + LANES, n - LANES) : vf_zero();
}

INLINE float largest(vf lo, vf hi) { return vf_hmax(vf_max(vf_abs(lo), vf_abs(hi))); }

/* Zero, or NaN where a value is NaN or infinite: it must not vanish in the rounding. */
INLINE float poison(vf lo, vf hi) { return vf_sum(vf_add(vf_mul(lo, vf_zero()), vf_mul(hi, vf_zero()))); }

INLINE void store_block(vf lo, vf hi, float inverse, int8_t *q) {
    vi_store_i8(q, vf_to_vi(vf_mul(lo, vf_set1(inverse))));
    vi_store_i8(q + LANES, vf_to_vi(vf_mul(hi, vf_set1(inverse))));
}

/* Quantize up to 32 values; the scale is what f16 holds of it. */
INLINE uint16_t quantize_block(const float *x, int n, int8_t *q) {
    vf lo, hi;
    load_block(x, n, &lo, &hi);
    float d = largest(lo, hi) / 127.0f;
    uint16_t scale[LANES];
    /* What is not finite makes the scale infinite, and with it whatever comes of the block infinite or NaN. */
    vf_to_f16(scale, vf_set1(poison(lo, hi) == 0.0f ? (d < 65504.0f ? d : 65504.0f) : INFINITY));
    d = f32_from_f16(scale[0]);
    store_block(lo, hi, d > 0.0f ? 1.0f / d : 0.0f, q);
    return scale[0];
}

static void store_key(uint8_t *record, int slot, const float *x, int dim) {
    int n = blocks_of(dim);
    uint16_t *scale = (uint16_t *)(void *)(record + (size_t)n * BLOCK_BYTES);
    for (int b = 0; b < n; b++) {
        int8_t q[BLOCK];
        scale[b * EDGE_PAGE + slot] = quantize_block(x + b * BLOCK, dim - b * BLOCK, q);
        for (int i = 0; i < BLOCK; i += 4) {
            uint8_t four[4];
            for (int j = 0; j < 4; j++) four[j] = (uint8_t)q[i + j] ^ (SIGNED_AS_UNSIGNED ? 0x80 : 0);
            memcpy(record + b * BLOCK_BYTES + i * EDGE_PAGE + 4 * slot, four, 4);
        }
    }
}

static void store_value(uint8_t *record, int slot, const float *x, int dim) {
    int n = blocks_of(dim);
    uint16_t *scale = (uint16_t *)(void *)(record + (size_t)n * BLOCK_BYTES);
    for (int b = 0; b < n; b++) {
        int8_t q[BLOCK];
        scale[b * EDGE_PAGE + slot] = quantize_block(x + b * BLOCK, dim - b * BLOCK, q);
        uint8_t *to = record + b * BLOCK_BYTES + slot / 2 * 2 * BLOCK + slot % 2;
        for (int i = 0; i < BLOCK; i++) to[2 * i] = (uint8_t)q[i];
    }
}

INLINE uint8_t *record_of(const void *base, const edge_kv *kv, int32_t page, int h, int dim) {
    return (uint8_t *)base + ((size_t)page * (size_t)kv->n_head_kv + (size_t)h) * edge_kv_bytes(EDGE_KV_Q8_0, dim);
}

static void store(const float *k, const float *v, const edge_kv *kv, int32_t page, int slot) {
    for (int h = 0; h < kv->n_head_kv; h++) {
        store_key(record_of(kv->k, kv, page, h, kv->head_dim), slot, k + (size_t)h * (size_t)kv->head_dim, kv->head_dim);
        store_value(record_of(kv->v, kv, page, h, kv->head_dim_v), slot, v + (size_t)h * (size_t)kv->head_dim_v,
                    kv->head_dim_v);
    }
}

static void rotate(const edge_kv *kv, int32_t page, const float *cs, int offset, int n_rot, int neox, float *x) {
    int n = blocks_of(kv->head_dim), half = n_rot / 2, step = neox ? 1 : 2, apart = neox ? half : 1;
    for (int h = 0; h < kv->n_head_kv; h++) {
        uint8_t *record = record_of(kv->k, kv, page, h, kv->head_dim);
        const uint16_t *scale = (const uint16_t *)(const void *)(record + (size_t)n * BLOCK_BYTES);
        for (int slot = 0; slot < EDGE_PAGE; slot++) {
            for (int d = 0; d < kv->head_dim; d++) {
                int b = d / BLOCK, i = d % BLOCK;
                uint8_t q = record[b * BLOCK_BYTES + i / 4 * 4 * EDGE_PAGE + 4 * slot + i % 4];
                x[d] = f32_from_f16(scale[b * EDGE_PAGE + slot]) * (float)(int8_t)(q ^ (SIGNED_AS_UNSIGNED ? 0x80 : 0));
            }
            for (int i = 0; i < half; i++) {
                float *p = x + offset + step * i, a = p[0], b = p[apart], c = cs[2 * i], s = cs[2 * i + 1];
                p[0] = a * c - b * s;
                p[apart] = a * s + b * c;
            }
            store_key(record, slot, x, kv->head_dim);
        }
    }
}

/* A query: for each block its scale and what its sums begin with, then the bytes. */
typedef struct {
    const float *d;
    const int32_t *start;
    const int8_t *q;
} edge_query;

INLINE edge_query query_of(const void *record, int n_blocks) {
    const float *d = record;
    return (edge_query){d, (const int32_t *)(const void *)(d + n_blocks), (const int8_t *)(d + 2 * n_blocks)};
}

static void prepare_query(const float *x, int dim, float *record) {
    int n = blocks_of(dim);
    int32_t *start = (int32_t *)(void *)(record + n);
    int8_t *q = (int8_t *)(record + 2 * n);
    for (int b = 0; b < n; b++) {
        vf lo, hi;
        load_block(x + b * BLOCK, dim - b * BLOCK, &lo, &hi);
        float max = largest(lo, hi), d = max / 127.0f, inverse = max > 0.0f ? 127.0f / max : 0.0f;
        if (!(inverse <= 3.4e38f)) inverse = 0.0f, d = 0.0f; /* of a subnormal maximum */
        store_block(lo, hi, inverse, q + b * BLOCK);
        record[b] = d + poison(lo, hi);
        int32_t sum = 0;
        for (int i = 0; i < BLOCK; i++) sum += q[b * BLOCK + i];
        start[b] = SIGNED_AS_UNSIGNED ? -128 * sum : 0;
    }
}

/* Products of Q queries and the 16 keys of one page. */
INLINE void scores(const uint8_t *record, int n_blocks, const int Q, const edge_query *q, vf *out) {
    const uint16_t *scale = (const uint16_t *)(const void *)(record + (size_t)n_blocks * BLOCK_BYTES);
    UNROLL for (int i = 0; i < Q; i++) out[i] = vf_zero();
    for (int b = 0; b < n_blocks; b++) {
        vi sum[EDGE_QUERIES];
        UNROLL for (int i = 0; i < Q; i++) sum[i] = vi_set1(q[i].start[b]);
        UNROLL for (int k = 0; k < BLOCK / 4; k++) {
            UNROLL for (int i = 0; i < Q; i++)
                sum[i] = vi_dot4(sum[i], record + b * BLOCK_BYTES + 64 * k, q[i].q + b * BLOCK + 4 * k,
                                 !SIGNED_AS_UNSIGNED);
        }
        vf d = vf_from_f16(scale + b * EDGE_PAGE);
        UNROLL for (int i = 0; i < Q; i++) out[i] = vf_fma(vf_mul(vi_to_vf(sum[i]), vf_set1(q[i].d[b])), d, out[i]);
    }
}

/* Weighted values of one block of dimensions over the pages of a span. */
INLINE void values(const edge_kv *kv, const int32_t *pages, int h, int b, const int Q, const edge_sight *see, int page0,
                   int page1, float *const *p, int16_t *const *w, float *const *out) {
    size_t tail = (size_t)blocks_of(kv->head_dim_v) * BLOCK_BYTES + (size_t)b * EDGE_PAGE * 2;
    vf most[EDGE_QUERIES], common = vf_zero(), up[EDGE_QUERIES];
    UNROLL for (int i = 0; i < Q; i++) most[i] = vf_zero();
    for (int g = page0; g < page1; g++) {
        vf d = vf_from_f16((const uint16_t *)(const void *)(record_of(kv->v, kv, pages[g], h, kv->head_dim_v) + tail));
        if (see->whole0 <= g && g < see->whole1) common = vf_max(common, d);
        else UNROLL for (int i = 0; i < Q; i++) most[i] = vf_max(most[i], visible(d, see, i, g, 0.0f));
    }
    float unit[EDGE_QUERIES];
    UNROLL for (int i = 0; i < Q; i++) {
        float m = vf_hmax(vf_max(most[i], common));
        unit[i] = m / 32767.0f; /* if infinite, times zero */
        up[i] = vf_set1(m > 0.0f ? 32767.0f / m : 0.0f);
    }
    vi sum[EDGE_QUERIES][2];
    UNROLL for (int i = 0; i < Q; i++) sum[i][0] = sum[i][1] = vi_zero();
    for (int g = page0; g < page1; g++) {
        const uint8_t *record = record_of(kv->v, kv, pages[g], h, kv->head_dim_v);
        vf d = vf_from_f16((const uint16_t *)(const void *)(record + tail)), x[EDGE_QUERIES];
        UNROLL for (int i = 0; i < Q; i++) x[i] = vf_mul(vf_load(p[i] + g * EDGE_PAGE), vf_mul(d, up[i]));
        if (see->whole0 > g || g >= see->whole1) UNROLL for (int i = 0; i < Q; i++) x[i] = visible(x[i], see, i, g, 0.0f);
        UNROLL for (int i = 0; i < Q; i++) vi_store_i16(w[i] + g * EDGE_PAGE, vf_to_vi(x[i]));
        const int8_t *v = (const int8_t *)record + b * BLOCK_BYTES;
        UNROLL for (int t = 0; t < EDGE_PAGE; t += 2) {
            vw lo = vw_load(v + t * BLOCK), hi = vw_load(v + t * BLOCK + BLOCK);
            UNROLL for (int i = 0; i < Q; i++) {
                sum[i][0] = vi_dot2(sum[i][0], lo, w[i] + g * EDGE_PAGE + t);
                sum[i][1] = vi_dot2(sum[i][1], hi, w[i] + g * EDGE_PAGE + t);
            }
        }
    }
    UNROLL for (int i = 0; i < Q; i++) UNROLL for (int j = 0; j < 2; j++)
        vf_store(out[i] + b * BLOCK + j * LANES, vf_mul(vi_to_vf(sum[i][j]), vf_set1(unit[i])));
}

INLINE void attend(const edge_kv *kv, int h, const int Q, const float *const *q, const int *first, const int *last,
                   int span, edge_part *part, float *const *acc, float *scratch) {
    edge_sight see = sight_of(Q, first, last, span);
    if (see.lo >= see.hi) return;
    int nk = blocks_of(kv->head_dim), nv = blocks_of(kv->head_dim_v);
    float *p[EDGE_QUERIES], *sum[EDGE_QUERIES];
    int16_t *w[EDGE_QUERIES];
    edge_query query[EDGE_QUERIES];
    for (int i = 0; i < Q; i++) {
        p[i] = scratch;
        w[i] = (int16_t *)(void *)(p[i] + EDGE_SPAN);
        sum[i] = p[i] + EDGE_SPAN + EDGE_SPAN / 2;
        scratch = sum[i] + nv * BLOCK;
        query[i] = query_of(q[i], nk);
    }
    int begin = span * EDGE_SPAN, page0 = see.lo / EDGE_PAGE, page1 = (see.hi + EDGE_PAGE - 1) / EDGE_PAGE;
    const int32_t *pages = kv->pages + begin / EDGE_PAGE;
    vf max[EDGE_QUERIES];
    UNROLL for (int i = 0; i < Q; i++) max[i] = vf_set1(-INFINITY);
    for (int g = page0; g < page1; g++) {
        if (kv->cold) {
            int next = g + 2 < page1 ? g + 2 : page1 - 1;
            fetch(record_of(kv->k, kv, pages[next], h, kv->head_dim), edge_kv_bytes(EDGE_KV_Q8_0, kv->head_dim));
            fetch(record_of(kv->v, kv, pages[g], h, kv->head_dim_v), edge_kv_bytes(EDGE_KV_Q8_0, kv->head_dim_v));
        }
        vf s[EDGE_QUERIES];
        scores(record_of(kv->k, kv, pages[g], h, kv->head_dim), nk, Q, query, s);
        UNROLL for (int i = 0; i < Q; i++) {
            vf x = score(kv, s[i], i, begin + g * EDGE_PAGE);
            if (see.whole0 > g || g >= see.whole1) x = visible(x, &see, i, g, -INFINITY);
            max[i] = vf_max(max[i], x);
            vf_store(p[i] + g * EDGE_PAGE, x);
        }
    }
    edge_part now[EDGE_QUERIES];
    for (int i = 0; i < Q; i++) {
        now[i] = (edge_part){0.0f, -1.0f};
        if (see.a[i] < see.b[i]) now[i] = soften(p[i], max[i], page0, page1);
    }
    for (int b = 0; b < nv; b++) values(kv, pages, h, b, Q, &see, page0, page1, p, w, sum);
    for (int i = 0; i < Q; i++) merge_parts(part + i, acc[i], now + i, sum[i], kv->head_dim_v);
}

static void attend_any(const edge_kv *kv, int h, int n, const float *const *q, const int *first, const int *last, int span,
                       edge_part *part, float *const *acc, float *scratch) {
    if (n == 1) attend(kv, h, 1, q, first, last, span, part, acc, scratch);
    else if (n == 2) attend(kv, h, 2, q, first, last, span, part, acc, scratch);
    else if (n == 3) attend(kv, h, 3, q, first, last, span, part, acc, scratch);
    else attend(kv, h, 4, q, first, last, span, part, acc, scratch);
}

void FN(edge_fill_attention_q8)(edge_kernels *t) {
    t->attend[EDGE_KV_Q8_0] = attend_any;
    t->kv_query[EDGE_KV_Q8_0] = prepare_query;
    t->kv_store[EDGE_KV_Q8_0] = store;
    t->kv_rotate[EDGE_KV_Q8_0] = rotate;
}
