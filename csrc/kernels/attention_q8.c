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

/* A query: for each block its scale, then for each block what its sums begin with, then the bytes. */
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
INLINE void scores(const uint8_t *record, int n_blocks, const int Q, const float *const *q, float *const *out) {
    const uint16_t *scale = (const uint16_t *)(const void *)(record + (size_t)n_blocks * BLOCK_BYTES);
    vf total[TILE_QUERIES];
    UNROLL for (int i = 0; i < Q; i++) total[i] = vf_zero();
    for (int b = 0; b < n_blocks; b++) {
        vi sum[TILE_QUERIES];
        UNROLL for (int i = 0; i < Q; i++) sum[i] = vi_set1(((const int32_t *)(const void *)q[i])[n_blocks + b]);
        UNROLL for (int k = 0; k < BLOCK / 4; k++) {
            vi key = vi_from_tile(record + b * BLOCK_BYTES + 64 * k);
            UNROLL for (int i = 0; i < Q; i++)
                sum[i] = vi_dot_column(sum[i], key, (const int8_t *)(q[i] + 2 * n_blocks) + b * BLOCK + 4 * k,
                                       !SIGNED_AS_UNSIGNED);
        }
        vf d = vf_from_f16(scale + b * EDGE_PAGE);
        UNROLL for (int i = 0; i < Q; i++) total[i] = vf_fma(vf_mul(vi_to_vf(sum[i]), vf_set1(q[i][b])), d, total[i]);
    }
    UNROLL for (int i = 0; i < Q; i++) vf_store(out[i], total[i]);
}

static void scores_of(const uint8_t *record, int n_blocks, int n, const float *const *q, float *const *out) {
    EACH_COUNT(n, scores(record, n_blocks, Q, q, out))
}

/* The scales of one block of dimensions in pages page0..page1-1 of a span's values. */
INLINE void load_scales(const edge_kv *kv, const int32_t *pages, int h, int b, int page0, int page1, float *scale) {
    size_t tail = (size_t)blocks_of(kv->head_dim_v) * BLOCK_BYTES + (size_t)b * EDGE_PAGE * 2;
    for (int g = page0; g < page1; g++) {
        const uint8_t *from = record_of(kv->v, kv, pages[g], h, kv->head_dim_v) + tail;
        vf_store(scale + g * EDGE_PAGE, vf_from_f16((const uint16_t *)(const void *)from));
    }
}

/* The largest scale that query i sees; `common`: of the pages that every query sees whole. */
INLINE float largest_scale(const edge_sight *see, int i, float common, const float *scale) {
    int page0 = see->a[i] / EDGE_PAGE, page1 = (see->b[i] + EDGE_PAGE - 1) / EDGE_PAGE;
    if (page0 >= see->whole0 && page1 <= see->whole1) return common;
    vf most = vf_set1(common);
    for (int g = page0; g < page1; g++)
        if (g < see->whole0 || g >= see->whole1)
            most = vf_max(most, visible(vf_load(scale + g * EDGE_PAGE), see, i, g, 0.0f));
    return vf_hmax(most);
}

/* Weights of query i times `scale`, as integers; zero where it sees nothing. */
INLINE void round_weights(const edge_sight *see, int i, int page0, int page1, const float *scale, const float *p,
                          int16_t *w) {
    if (page0 >= see->whole0 && page1 <= see->whole1) {
        for (int t = page0 * EDGE_PAGE; t < page1 * EDGE_PAGE; t += EDGE_PAGE)
            vi_store_i16(w + t, vf_to_vi(vf_mul(vf_load(p + t), vf_load(scale + t))));
        return;
    }
    for (int g = page0; g < page1; g++) {
        vf x = vf_mul(vf_load(p + g * EDGE_PAGE), vf_load(scale + g * EDGE_PAGE));
        vi_store_i16(w + g * EDGE_PAGE, vf_to_vi(visible(x, see, i, g, 0.0f)));
    }
}

/* The integer weights of n queries for values whose scales are given, and their units.  up: room for a span. */
INLINE void integer_weights(const edge_sight *see, int n, int page0, int page1, const float *scale, float *up,
                            float *const *p, int16_t *const *w, float *unit) {
    vf most = vf_zero();
    for (int g = see->whole0; g < see->whole1; g++) most = vf_max(most, vf_load(scale + g * EDGE_PAGE));
    float common = vf_hmax(most), above = -1.0f;
    for (int i = 0; i < n; i++) {
        float m = largest_scale(see, i, common, scale);
        if (m != above) {
            vf x = vf_set1(m > 0.0f ? 32767.0f / m : 0.0f);
            for (int t = page0 * EDGE_PAGE; t < page1 * EDGE_PAGE; t += EDGE_PAGE)
                vf_store(up + t, vf_mul(vf_load(scale + t), x));
            above = m;
        }
        unit[i] = m / 32767.0f; /* if infinite, times zero */
        round_weights(see, i, page0, page1, up, p[i], w[i]);
    }
}

/* Weighted values of one block of dimensions over pages page0..page1-1 of a span. */
INLINE void values(const edge_kv *kv, const int32_t *pages, int h, int b, int page0, int page1, const int Q,
                   int16_t *const *w, const float *unit, float *const *out) {
    vi low[TILE_QUERIES], high[TILE_QUERIES];
    UNROLL for (int i = 0; i < Q; i++) low[i] = high[i] = vi_zero();
    for (int g = page0; g < page1; g++) {
        const int8_t *v = (const int8_t *)record_of(kv->v, kv, pages[g], h, kv->head_dim_v) + b * BLOCK_BYTES;
        if (b == 0) fetch_ahead(kv, g, edge_kv_bytes(EDGE_KV_Q8_0, kv->head_dim));
        UNROLL for (int t = 0; t < EDGE_PAGE; t += 2) {
            vw lo = vw_load(v + t * BLOCK), hi = vw_load(v + t * BLOCK + BLOCK);
            UNROLL for (int i = 0; i < Q; i++) {
                low[i] = vi_dot2(low[i], lo, w[i] + g * EDGE_PAGE + t);
                high[i] = vi_dot2(high[i], hi, w[i] + g * EDGE_PAGE + t);
            }
        }
    }
    UNROLL for (int i = 0; i < Q; i++) {
        vf_store(out[i] + b * BLOCK, vf_mul(vi_to_vf(low[i]), vf_set1(unit[i])));
        vf_store(out[i] + b * BLOCK + LANES, vf_mul(vi_to_vf(high[i]), vf_set1(unit[i])));
    }
}

static void values_of(const edge_kv *kv, const int32_t *pages, int h, int b, int page0, int page1, int n,
                      int16_t *const *w, const float *unit, float *const *out) {
    EACH_COUNT(n, values(kv, pages, h, b, page0, page1, Q, w, unit, out))
}

static void attend(const edge_kv *kv, int h, int n, const float *const *q, const int *first, const int *last, int span,
                   edge_part *part, float *const *acc, float *scratch) {
    edge_sight see = sight_of(n, first, last, span);
    if (see.lo >= see.hi) return;
    int nk = blocks_of(kv->head_dim), nv = blocks_of(kv->head_dim_v);
    float *p[EDGE_QUERIES], *sum[EDGE_QUERIES];
    int16_t *w[EDGE_QUERIES];
    for (int i = 0; i < n; i++) {
        p[i] = scratch;
        w[i] = (int16_t *)(void *)(p[i] + EDGE_SPAN);
        sum[i] = p[i] + EDGE_SPAN + EDGE_SPAN / 2;
        scratch = sum[i] + nv * BLOCK;
    }
    float *scale = scratch, *up = scratch + EDGE_SPAN;
    int page0 = see.lo / EDGE_PAGE, page1 = (see.hi + EDGE_PAGE - 1) / EDGE_PAGE;
    const int32_t *pages = kv->pages + span * (EDGE_SPAN / EDGE_PAGE);
    for (int g = page0; g < page1; g++) {
        if (kv->cold) {
            int next = g + 2 < page1 ? g + 2 : page1 - 1;
            fetch(record_of(kv->k, kv, pages[next], h, kv->head_dim), edge_kv_bytes(EDGE_KV_Q8_0, kv->head_dim));
            fetch(record_of(kv->v, kv, pages[g], h, kv->head_dim_v), edge_kv_bytes(EDGE_KV_Q8_0, kv->head_dim_v));
        }
        for (int i = 0; i < n; i += TILE_QUERIES) {
            float *to[TILE_QUERIES];
            int m = n - i < TILE_QUERIES ? n - i : TILE_QUERIES;
            for (int j = 0; j < m; j++) to[j] = p[i + j] + g * EDGE_PAGE;
            scores_of(record_of(kv->k, kv, pages[g], h, kv->head_dim), nk, m, q + i, to);
        }
    }
    edge_part now[EDGE_QUERIES];
    weigh(kv, &see, n, span * EDGE_SPAN, p, now);
    for (int b = 0; b < nv; b++) {
        float unit[EDGE_QUERIES];
        load_scales(kv, pages, h, b, page0, page1, scale);
        integer_weights(&see, n, page0, page1, scale, up, p, w, unit);
        for (int i = 0; i < n; i += TILE_QUERIES) {
            int m = n - i < TILE_QUERIES ? n - i : TILE_QUERIES;
            values_of(kv, pages, h, b, page0, page1, m, w + i, unit + i, sum + i);
        }
    }
    for (int i = 0; i < n; i += MERGED)
        merge_parts(n - i < MERGED ? n - i : MERGED, part + i, acc + i, now + i, sum + i, kv->head_dim_v);
}

void FN(edge_fill_attention_q8)(edge_kernels *t) {
    t->attend[EDGE_KV_Q8_0] = attend;
    t->kv_query[EDGE_KV_Q8_0] = prepare_query;
    t->kv_store[EDGE_KV_Q8_0] = store;
    t->kv_rotate[EDGE_KV_Q8_0] = rotate;
}
