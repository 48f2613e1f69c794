/* Attention over pages of keys and values.
 *
 * Keys lie transposed in their page, so that one vector holds one dimension of 16 tokens: scores need no
 * horizontal sums.  The order for each query and head:
 *   score   four running sums over dimensions d%4, each ascending, then (0+1)+(2+3); times scale, softcap
 *   span    keys of 256 consecutive positions: max, exp(score - max), 16 lane sums and the summing tree,
 *           values weighted in ascending position
 *   merge   spans in ascending order
 * Slots no query may see are never used: they may hold anything.
 */
#include "spans.h"

INLINE vf kv_load(const void *p, size_t at, const int is_f32) {
    return is_f32 ? vf_load((const float *)p + at) : vf_from_f16((const uint16_t *)p + at);
}

INLINE vf kv_load_n(const void *p, size_t at, int n, const int is_f32) {
    if (is_f32) return vf_load_n((const float *)p + at, n);
    uint16_t t[LANES] = {0};
    memcpy(t, (const uint16_t *)p + at, (size_t)n * sizeof *t);
    return vf_from_f16(t);
}

/* Products of Q queries and the 16 keys of one page. */
INLINE void scores(const void *k, const int is_f32, size_t at, int dim, const int Q, const float *const *q, vf *out) {
    vf acc[EDGE_QUERIES][4];
    UNROLL for (int i = 0; i < Q; i++) UNROLL for (int j = 0; j < 4; j++) acc[i][j] = vf_zero();
    int d = 0;
    for (; d + 4 <= dim; d += 4) {
        UNROLL for (int j = 0; j < 4; j++) {
            vf key = kv_load(k, at + (size_t)(d + j) * EDGE_PAGE, is_f32);
            UNROLL for (int i = 0; i < Q; i++) acc[i][j] = vf_fma(vf_set1(q[i][d + j]), key, acc[i][j]);
        }
    }
    for (int j = 0; d + j < dim; j++) {
        vf key = kv_load(k, at + (size_t)(d + j) * EDGE_PAGE, is_f32);
        for (int i = 0; i < Q; i++) acc[i][j] = vf_fma(vf_set1(q[i][d + j]), key, acc[i][j]);
    }
    UNROLL for (int i = 0; i < Q; i++) out[i] = vf_add(vf_add(acc[i][0], acc[i][1]), vf_add(acc[i][2], acc[i][3]));
}

/* sum[i] += p[i][t] * v[t] for tokens t0..t1-1 of one page; sum has dim floats a query. */
INLINE void values(const void *v, const int is_f32, size_t at, int dim, const int Q, const float *const *p, int t0,
                   int t1, float *const *sum) {
    int d = 0;
    for (; d + 4 * LANES <= dim; d += 4 * LANES) {
        vf acc[EDGE_QUERIES][4];
        UNROLL for (int i = 0; i < Q; i++) UNROLL for (int j = 0; j < 4; j++) acc[i][j] = vf_load(sum[i] + d + j * LANES);
        for (int t = t0; t < t1; t++) {
            UNROLL for (int j = 0; j < 4; j++) {
                vf x = kv_load(v, at + (size_t)t * (size_t)dim + (size_t)(d + j * LANES), is_f32);
                UNROLL for (int i = 0; i < Q; i++) acc[i][j] = vf_fma(vf_set1(p[i][t]), x, acc[i][j]);
            }
        }
        UNROLL for (int i = 0; i < Q; i++) UNROLL for (int j = 0; j < 4; j++) vf_store(sum[i] + d + j * LANES, acc[i][j]);
    }
    for (; d < dim; d += LANES) {
        int n = dim - d < LANES ? dim - d : LANES;
        for (int i = 0; i < Q; i++) {
            vf acc = n == LANES ? vf_load(sum[i] + d) : vf_load_n(sum[i] + d, n);
            for (int t = t0; t < t1; t++) {
                size_t from = at + (size_t)t * (size_t)dim + (size_t)d;
                vf x = n == LANES ? kv_load(v, from, is_f32) : kv_load_n(v, from, n, is_f32);
                acc = vf_fma(vf_set1(p[i][t]), x, acc);
            }
            if (n == LANES) vf_store(sum[i] + d, acc);
            else vf_store_n(sum[i] + d, acc, n);
        }
    }
}

static void merge(edge_part *into, float *acc, const edge_part *part, const float *other, int n) {
    merge_parts(into, acc, part, other, n);
}

static void sink(edge_part *part, float *acc, float score, int n) {
    float pair[LANES] = {0}, max = part->max > score ? part->max : score;
    pair[0] = part->max - max;
    pair[1] = score - max;
    vf_store(pair, vf_exp(vf_load(pair)));
    *part = (edge_part){max, part->sum * pair[0] + pair[1]};
    for (int d = 0; d < n; d++) acc[d] *= pair[0];
}

static void finish(const edge_part *part, const float *acc, float *out, int n) {
    float inverse = 1.0f / part->sum;
    for (int d = 0; d < n; d++) out[d] = acc[d] * inverse;
}

INLINE void attend(const edge_kv *kv, const int is_f32, int h, const int Q, const float *const *q, const int *first,
                   const int *last, int span, edge_part *part, float *const *acc, float *scratch) {
    edge_sight see = sight_of(Q, first, last, span);
    if (see.lo >= see.hi) return;
    float *p[EDGE_QUERIES], *sum[EDGE_QUERIES];
    for (int i = 0; i < Q; i++) {
        p[i] = scratch + i * EDGE_SPAN;
        sum[i] = scratch + Q * EDGE_SPAN + i * kv->head_dim_v;
    }
    int begin = span * EDGE_SPAN, page0 = see.lo / EDGE_PAGE, page1 = (see.hi + EDGE_PAGE - 1) / EDGE_PAGE;
    const int32_t *pages = kv->pages + begin / EDGE_PAGE;
    size_t kh = (size_t)kv->head_dim * EDGE_PAGE, vh = (size_t)kv->head_dim_v * EDGE_PAGE, size = is_f32 ? 4 : 2;
    vf max[EDGE_QUERIES];
    UNROLL for (int i = 0; i < Q; i++) max[i] = vf_set1(-INFINITY);
    for (int g = page0; g < page1; g++) {
        vf s[EDGE_QUERIES];
        if (kv->cold) {
            int next = g + 2 < page1 ? g + 2 : page1 - 1;
            fetch((const char *)kv->k + ((size_t)pages[next] * (size_t)kv->n_head_kv + (size_t)h) * kh * size, kh * size);
            fetch((const char *)kv->v + ((size_t)pages[g] * (size_t)kv->n_head_kv + (size_t)h) * vh * size, vh * size);
        }
        scores(kv->k, is_f32, ((size_t)pages[g] * (size_t)kv->n_head_kv + (size_t)h) * kh, kv->head_dim, Q, q, s);
        UNROLL for (int i = 0; i < Q; i++) {
            vf x = visible(score(kv, s[i], i, begin + g * EDGE_PAGE), &see, i, g, -INFINITY);
            max[i] = vf_max(max[i], x);
            vf_store(p[i] + g * EDGE_PAGE, x);
        }
    }
    edge_part now[EDGE_QUERIES];
    for (int i = 0; i < Q; i++) {
        now[i] = (edge_part){0.0f, -1.0f};
        memset(sum[i], 0, (size_t)kv->head_dim_v * sizeof(float));
        if (see.a[i] < see.b[i]) now[i] = soften(p[i], max[i], page0, page1);
    }
    for (int g = page0; g < page1; g++) {
        size_t at = ((size_t)pages[g] * (size_t)kv->n_head_kv + (size_t)h) * vh;
        int whole = 1;
        const float *w[EDGE_QUERIES];
        for (int i = 0; i < Q; i++) {
            whole &= see.a[i] <= g * EDGE_PAGE && see.b[i] >= (g + 1) * EDGE_PAGE;
            w[i] = p[i] + g * EDGE_PAGE;
        }
        if (whole) {
            values(kv->v, is_f32, at, kv->head_dim_v, Q, w, 0, EDGE_PAGE, sum);
            continue;
        }
        for (int i = 0; i < Q; i++) {
            int t0 = see.a[i] - g * EDGE_PAGE, t1 = see.b[i] - g * EDGE_PAGE;
            t0 = t0 > 0 ? t0 : 0;
            t1 = t1 < EDGE_PAGE ? t1 : EDGE_PAGE;
            if (t0 < t1) values(kv->v, is_f32, at, kv->head_dim_v, 1, w + i, t0, t1, sum + i);
        }
    }
    for (int i = 0; i < Q; i++) merge_parts(part + i, acc[i], now + i, sum[i], kv->head_dim_v);
}

/* A function for every number of queries, so that sums stay in registers. */
#define ATTEND(name, is_f32)                                                                                     \
    static void name(const edge_kv *kv, int h, int n, const float *const *q, const int *first, const int *last,  \
                     int span, edge_part *part, float *const *acc, float *scratch) {                             \
        if (n == 1) attend(kv, is_f32, h, 1, q, first, last, span, part, acc, scratch);                          \
        else if (n == 2) attend(kv, is_f32, h, 2, q, first, last, span, part, acc, scratch);                     \
        else if (n == 3) attend(kv, is_f32, h, 3, q, first, last, span, part, acc, scratch);                     \
        else attend(kv, is_f32, h, 4, q, first, last, span, part, acc, scratch);                                 \
    }
ATTEND(attend_f16, 0)
ATTEND(attend_f32, 1)

static void store_f16(const float *k, const float *v, const edge_kv *kv, int32_t page, int slot) {
    size_t kd = (size_t)kv->head_dim, vd = (size_t)kv->head_dim_v;
    for (int h = 0; h < kv->n_head_kv; h++) {
        size_t block = ((size_t)page * (size_t)kv->n_head_kv + (size_t)h) * EDGE_PAGE;
        uint16_t *to = (uint16_t *)kv->k + block * kd + slot, t[LANES];
        for (size_t d = 0; d < kd; d += LANES) {
            int n = kd - d < LANES ? (int)(kd - d) : LANES;
            vf_to_f16(t, vf_load_n(k + (size_t)h * kd + d, n));
            for (int i = 0; i < n; i++) to[(d + (size_t)i) * EDGE_PAGE] = t[i];
        }
        to = (uint16_t *)kv->v + (block + (size_t)slot) * vd;
        for (size_t d = 0; d < vd; d += LANES) {
            int n = vd - d < LANES ? (int)(vd - d) : LANES;
            vf_to_f16(t, vf_load_n(v + (size_t)h * vd + d, n));
            memcpy(to + d, t, (size_t)n * sizeof *t);
        }
    }
}

static void store_f32(const float *k, const float *v, const edge_kv *kv, int32_t page, int slot) {
    size_t kd = (size_t)kv->head_dim, vd = (size_t)kv->head_dim_v;
    for (int h = 0; h < kv->n_head_kv; h++) {
        size_t block = ((size_t)page * (size_t)kv->n_head_kv + (size_t)h) * EDGE_PAGE;
        float *to = (float *)kv->k + block * kd + slot;
        for (size_t d = 0; d < kd; d++) to[d * EDGE_PAGE] = k[(size_t)h * kd + d];
        memcpy((float *)kv->v + (block + (size_t)slot) * vd, v + (size_t)h * vd, vd * sizeof(float));
    }
}

/* Every slot of the page turns by the same angle; 16 tokens lie beside each other. */
#define ROTATE(name, is_f32, store, elem)                                                                         \
    static void name(const edge_kv *kv, int32_t page, const float *cs, int offset, int n_rot, int neox,         \
                     float *scratch) {                                                                          \
        (void)scratch;                                                                                          \
        int half = n_rot / 2, step = neox ? 1 : 2, apart = neox ? half : 1;                                     \
        for (int h = 0; h < kv->n_head_kv; h++) {                                                               \
            size_t row = ((size_t)page * (size_t)kv->n_head_kv + (size_t)h) * (size_t)kv->head_dim;             \
            elem *k = (elem *)kv->k + (row + (size_t)offset) * EDGE_PAGE;                                       \
            for (int i = 0; i < half; i++) {                                                                    \
                elem *x = k + (size_t)(step * i) * EDGE_PAGE, *y = x + (size_t)apart * EDGE_PAGE;               \
                vf c = vf_set1(cs[2 * i]), s = vf_set1(cs[2 * i + 1]), a = kv_load(x, 0, is_f32);             \
                vf b = kv_load(y, 0, is_f32);                                                                   \
                store(x, vf_sub(vf_mul(a, c), vf_mul(b, s)));                                                   \
                store(y, vf_add(vf_mul(a, s), vf_mul(b, c)));                                                   \
            }                                                                                                   \
        }                                                                                                       \
    }
ROTATE(rotate_f16, 0, vf_to_f16, uint16_t)
ROTATE(rotate_f32, 1, vf_store, float)

void FN(edge_fill_attention)(edge_kernels *t) {
    t->attend[0] = attend_f16;
    t->attend[1] = attend_f32;
    t->kv_store[0] = store_f16;
    t->kv_store[1] = store_f32;
    t->kv_rotate[0] = rotate_f16;
    t->kv_rotate[1] = rotate_f32;
    t->merge = merge;
    t->sink = sink;
    t->finish = finish;
}
