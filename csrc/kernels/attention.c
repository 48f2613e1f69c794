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

enum { MAX_WIDE = 4 };

/* Sums that each of Q queries keeps in registers. */
INLINE int wide(const int Q) { return ATTEND_SUMS >= 4 * Q ? 4 : ATTEND_SUMS >= 2 * Q ? 2 : 1; }

/* Products of Q queries and the 16 keys of one page: as many of the four sums at a time as registers hold. */
INLINE void scores(const void *k, const int is_f32, int dim, const int Q, const float *const *q, float *const *out) {
    const int S = wide(Q);
    float held[TILE_QUERIES * LANES];
    for (int from = 0; from < 4; from += S) {
        vf acc[TILE_QUERIES][MAX_WIDE];
        UNROLL for (int i = 0; i < Q; i++) UNROLL for (int j = 0; j < S; j++) acc[i][j] = vf_zero();
        int d = from;
        for (; d + S <= dim; d += 4) {
            UNROLL for (int j = 0; j < S; j++) {
                vf key = kv_load(k, (size_t)(d + j) * EDGE_PAGE, is_f32);
                UNROLL for (int i = 0; i < Q; i++) acc[i][j] = vf_fma(vf_set1(q[i][d + j]), key, acc[i][j]);
            }
        }
        UNROLL for (int j = 0; j < S - 1; j++) {
            if (d + j >= dim) break;
            vf key = kv_load(k, (size_t)(d + j) * EDGE_PAGE, is_f32);
            UNROLL for (int i = 0; i < Q; i++) acc[i][j] = vf_fma(vf_set1(q[i][d + j]), key, acc[i][j]);
        }
        UNROLL for (int i = 0; i < Q; i++) {
            vf *s = acc[i];
            if (S == 4) vf_store(out[i], vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
            else if (S == 2) vf_store(out[i], from ? vf_add(vf_load(out[i]), vf_add(s[0], s[1])) : vf_add(s[0], s[1]));
            else if (from == 0) vf_store(out[i], s[0]);
            else if (from == 1) vf_store(out[i], vf_add(vf_load(out[i]), s[0]));
            else if (from == 2) vf_store(held + i * LANES, s[0]);
            else vf_store(out[i], vf_add(vf_load(out[i]), vf_add(vf_load(held + i * LANES), s[0])));
        }
    }
}

/* Where the values of token t of a span begin. */
INLINE size_t value_at(const edge_kv *kv, const int32_t *pages, int h, int t) {
    size_t record = (size_t)pages[t / EDGE_PAGE] * (size_t)kv->n_head_kv + (size_t)h;
    return (record * EDGE_PAGE + (size_t)(t % EDGE_PAGE)) * (size_t)kv->head_dim_v;
}

/* sum[i] += p[i][t] * v[t] for tokens t0..t1-1 of a span: V vectors of dimensions from d on. */
INLINE void values(const edge_kv *kv, const int is_f32, const int32_t *pages, int h, int d, int t0, int t1, const int Q,
                   const int V, float *const *p, float *const *sum) {
    vf acc[TILE_QUERIES][MAX_WIDE];
    UNROLL for (int i = 0; i < Q; i++) UNROLL for (int j = 0; j < V; j++) acc[i][j] = vf_load(sum[i] + d + j * LANES);
    while (t0 < t1) {
        int next = (t0 / EDGE_PAGE + 1) * EDGE_PAGE, end = next < t1 ? next : t1;
        size_t at = value_at(kv, pages, h, t0) + (size_t)d;
        if (d == 0) fetch_ahead(kv, t0 / EDGE_PAGE, (size_t)kv->head_dim * EDGE_PAGE * (is_f32 ? 4 : 2));
        for (; t0 < end; t0++, at += (size_t)kv->head_dim_v) {
            vf x[MAX_WIDE];
            UNROLL for (int j = 0; j < V; j++) x[j] = kv_load(kv->v, at + (size_t)(j * LANES), is_f32);
            UNROLL for (int i = 0; i < Q; i++) {
                vf w = vf_set1(p[i][t0]);
                UNROLL for (int j = 0; j < V; j++) acc[i][j] = vf_fma(w, x[j], acc[i][j]);
            }
        }
    }
    UNROLL for (int i = 0; i < Q; i++) UNROLL for (int j = 0; j < V; j++) vf_store(sum[i] + d + j * LANES, acc[i][j]);
}

/* The same for all dimensions. */
INLINE void all_values(const edge_kv *kv, const int is_f32, const int32_t *pages, int h, int t0, int t1, const int Q,
                         float *const *p, float *const *sum) {
    const int W = wide(Q);
    int d = 0;
    for (; d + W * LANES <= kv->head_dim_v; d += W * LANES) values(kv, is_f32, pages, h, d, t0, t1, Q, W, p, sum);
    for (; d + LANES <= kv->head_dim_v; d += LANES) values(kv, is_f32, pages, h, d, t0, t1, Q, 1, p, sum);
    int left = kv->head_dim_v - d;
    if (!left) return;
    for (int i = 0; i < Q; i++) {
        vf acc = vf_load_n(sum[i] + d, left);
        for (int t = t0; t < t1; t++) {
            vf x = kv_load_n(kv->v, value_at(kv, pages, h, t) + (size_t)d, left, is_f32);
            acc = vf_fma(vf_set1(p[i][t]), x, acc);
        }
        vf_store_n(sum[i] + d, acc, left);
    }
}

typedef void values_fn(const edge_kv *, const int32_t *, int, int, int, int, float *const *, float *const *);
#define PASSES(scores_name, values_name, is_f32)                                                                   \
    static void scores_name(const void *k, int dim, int n, const float *const *q, float *const *out) {             \
        EACH_COUNT(n, scores(k, is_f32, dim, Q, q, out))                                                           \
    }                                                                                                              \
    static void values_name(const edge_kv *kv, const int32_t *pages, int h, int t0, int t1, int n,                 \
                            float *const *p, float *const *sum) {                                                  \
        if (t0 < t1) EACH_COUNT(n, all_values(kv, is_f32, pages, h, t0, t1, Q, p, sum))                            \
    }
PASSES(scores_f16, values_f16, 0)
PASSES(scores_f32, values_f32, 1)

static void merge(edge_part *into, float *acc, const edge_part *part, const float *other, int n) {
    float *to = acc, *from = (float *)(uintptr_t)other;
    merge_parts(1, into, &to, part, &from, n);
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

/* Products of n queries and the keys of pages page0..page1-1 of a span. */
INLINE void score_pages(const edge_kv *kv, const int is_f32, const int32_t *pages, int h, int page0, int page1, int n,
                        const float *const *q, float *const *p) {
    size_t record = (size_t)kv->head_dim * EDGE_PAGE * (is_f32 ? 4 : 2);
    size_t record_v = (size_t)kv->head_dim_v * EDGE_PAGE * (is_f32 ? 4 : 2);
    for (int g = page0; g < page1; g++) {
        const char *k = (const char *)kv->k + ((size_t)pages[g] * (size_t)kv->n_head_kv + (size_t)h) * record;
        if (kv->cold) {
            int next = g + 2 < page1 ? g + 2 : page1 - 1;
            fetch((const char *)kv->k + ((size_t)pages[next] * (size_t)kv->n_head_kv + (size_t)h) * record, record);
            fetch((const char *)kv->v + ((size_t)pages[g] * (size_t)kv->n_head_kv + (size_t)h) * record_v, record_v);
        }
        for (int i = 0; i < n; i += TILE_QUERIES) {
            float *to[TILE_QUERIES];
            int m = n - i < TILE_QUERIES ? n - i : TILE_QUERIES;
            for (int j = 0; j < m; j++) to[j] = p[i + j] + g * EDGE_PAGE;
            (is_f32 ? scores_f32 : scores_f16)(k, kv->head_dim, m, q + i, to);
        }
    }
}

/* Weighted values of what each of n queries sees, in passes over what those of a pass see together, with what only
 * some see before and after it. */
static void weighted_values(const edge_kv *kv, values_fn *add, const int32_t *pages, int h, int n,
                            const edge_sight *see, float *const *p, float *const *sum) {
    for (int i0 = 0, i1; i0 < n; i0 = i1) {
        int lo = 0, hi = EDGE_SPAN;
        for (i1 = i0; i1 < n && i1 < i0 + TILE_QUERIES && see->a[i1] < see->b[i1]; i1++) {
            lo = see->a[i1] > lo ? see->a[i1] : lo;
            hi = see->b[i1] < hi ? see->b[i1] : hi;
        }
        if (i1 == i0) {
            i1++; /* it sees nothing */
            continue;
        }
        int apart = lo >= hi;
        for (int i = i0; i < i1; i++) add(kv, pages, h, see->a[i], apart ? see->b[i] : lo, 1, p + i, sum + i);
        if (apart) continue;
        add(kv, pages, h, lo, hi, i1 - i0, p + i0, sum + i0);
        for (int i = i0; i < i1; i++) add(kv, pages, h, hi, see->b[i], 1, p + i, sum + i);
    }
}

INLINE void attend(const edge_kv *kv, const int is_f32, int h, int n, const float *const *q, const int *first,
                   const int *last, int span, edge_part *part, float *const *acc, float *scratch) {
    edge_sight see = sight_of(n, first, last, span);
    if (see.lo >= see.hi) return;
    float *p[EDGE_QUERIES], *sum[EDGE_QUERIES];
    for (int i = 0; i < n; i++) {
        p[i] = scratch + i * EDGE_SPAN;
        sum[i] = scratch + n * EDGE_SPAN + i * kv->head_dim_v;
    }
    const int32_t *pages = kv->pages + span * (EDGE_SPAN / EDGE_PAGE);
    score_pages(kv, is_f32, pages, h, see.lo / EDGE_PAGE, (see.hi + EDGE_PAGE - 1) / EDGE_PAGE, n, q, p);

    edge_part now[EDGE_QUERIES];
    weigh(kv, &see, n, span * EDGE_SPAN, p, now);
    for (int i = 0; i < n; i++) memset(sum[i], 0, (size_t)kv->head_dim_v * sizeof(float));
    weighted_values(kv, is_f32 ? values_f32 : values_f16, pages, h, n, &see, p, sum);
    for (int i = 0; i < n; i += MERGED)
        merge_parts(n - i < MERGED ? n - i : MERGED, part + i, acc + i, now + i, sum + i, kv->head_dim_v);
}

#define ATTEND(name, is_f32)                                                                                     \
    static void name(const edge_kv *kv, int h, int n, const float *const *q, const int *first, const int *last,  \
                     int span, edge_part *part, float *const *acc, float *scratch) {                             \
        attend(kv, is_f32, h, n, q, first, last, span, part, acc, scratch);                                      \
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
