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
#include "tables.h"



INLINE vf kv_load_f16(const void *p, size_t at) { return vf_from_f16((const uint16_t *)p + at); }
INLINE vf kv_load_f32(const void *p, size_t at) { return vf_load((const float *)p + at); }

INLINE vf load_tail(const void *p, size_t at, int n, int f32) {
    if (f32) return vf_load_n((const float *)p + at, n);
    uint16_t t[LANES] = {0};
    memcpy(t, (const uint16_t *)p + at, (size_t)n * sizeof *t);
    return vf_from_f16(t);
}

/* Scores of Q queries against the 16 keys of one page. */
#define SCORES(name, load)                                                                                     \
    INLINE void name(const void *k, size_t at, int dim, const int Q, const float *const *q, vf *out) {         \
        vf acc[EDGE_QUERIES][4];                                                                               \
        UNROLL for (int i = 0; i < Q; i++) UNROLL for (int j = 0; j < 4; j++) acc[i][j] = vf_zero();           \
        int d = 0;                                                                                             \
        for (; d + 4 <= dim; d += 4) {                                                                         \
            UNROLL for (int j = 0; j < 4; j++) {                                                               \
                vf key = load(k, at + (size_t)(d + j) * EDGE_PAGE);                                            \
                UNROLL for (int i = 0; i < Q; i++) acc[i][j] = vf_fma(vf_set1(q[i][d + j]), key, acc[i][j]);   \
            }                                                                                                  \
        }                                                                                                      \
        for (int j = 0; d + j < dim; j++) {                                                                    \
            vf key = load(k, at + (size_t)(d + j) * EDGE_PAGE);                                                \
            for (int i = 0; i < Q; i++) acc[i][j] = vf_fma(vf_set1(q[i][d + j]), key, acc[i][j]);              \
        }                                                                                                      \
        UNROLL for (int i = 0; i < Q; i++)                                                                     \
            out[i] = vf_add(vf_add(acc[i][0], acc[i][1]), vf_add(acc[i][2], acc[i][3]));                       \
    }

/* sum[i] += p[i][t] * v[t] for tokens t0..t1-1 of one page; sum has dim floats a query. */
#define VALUES(name, load, is_f32)                                                                             \
    INLINE void name(const void *v, size_t at, int dim, const int Q, const float *const *p, int t0, int t1,    \
                     float *const *sum) {                                                                      \
        int d = 0;                                                                                             \
        for (; d + 4 * LANES <= dim; d += 4 * LANES) {                                                         \
            vf acc[EDGE_QUERIES][4];                                                                           \
            UNROLL for (int i = 0; i < Q; i++) UNROLL for (int j = 0; j < 4; j++)                              \
                acc[i][j] = vf_load(sum[i] + d + j * LANES);                                                   \
            for (int t = t0; t < t1; t++) {                                                                    \
                UNROLL for (int j = 0; j < 4; j++) {                                                           \
                    vf x = load(v, at + (size_t)t * (size_t)dim + (size_t)(d + j * LANES));                    \
                    UNROLL for (int i = 0; i < Q; i++) acc[i][j] = vf_fma(vf_set1(p[i][t]), x, acc[i][j]);     \
                }                                                                                              \
            }                                                                                                  \
            UNROLL for (int i = 0; i < Q; i++) UNROLL for (int j = 0; j < 4; j++)                              \
                vf_store(sum[i] + d + j * LANES, acc[i][j]);                                                   \
        }                                                                                                      \
        for (; d < dim; d += LANES) {                                                                          \
            int n = dim - d < LANES ? dim - d : LANES;                                                         \
            for (int i = 0; i < Q; i++) {                                                                      \
                vf acc = n == LANES ? vf_load(sum[i] + d) : vf_load_n(sum[i] + d, n);                          \
                for (int t = t0; t < t1; t++) {                                                                \
                    size_t from = at + (size_t)t * (size_t)dim + (size_t)d;                                    \
                    vf x = n == LANES ? load(v, from) : load_tail(v, from, n, is_f32);                         \
                    acc = vf_fma(vf_set1(p[i][t]), x, acc);                                                    \
                }                                                                                              \
                if (n == LANES) vf_store(sum[i] + d, acc);                                                     \
                else vf_store_n(sum[i] + d, acc, n);                                                           \
            }                                                                                                  \
        }                                                                                                      \
    }

SCORES(scores_f16, kv_load_f16)
SCORES(scores_f32, kv_load_f32)
VALUES(values_f16, kv_load_f16, 0)
VALUES(values_f32, kv_load_f32, 1)

/* Scores of the 16 positions of a page, less the slope times their distance to the query; `ahead` is the first's. */
INLINE vf fall(vf x, float slope, int ahead) {
    static const float each[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return vf_fma(vf_set1(slope), vf_add(vf_load(each), vf_set1((float)ahead)), x);
}

/* Merge another part into a running one; a part with a negative sum is empty. */
static void merge(edge_part *into, float *acc, const edge_part *part, const float *other, int n) {
    if (part->sum < 0.0f) return;
    if (into->sum < 0.0f) {
        *into = *part;
        memcpy(acc, other, (size_t)n * sizeof *acc);
        return;
    }
    float pair[LANES] = {0}, max = into->max > part->max ? into->max : part->max;
    pair[0] = into->max - max;
    pair[1] = part->max - max;
    vf_store(pair, vf_exp(vf_load(pair)));
    into->max = max;
    into->sum = into->sum * pair[0] + part->sum * pair[1];
    for (int d = 0; d < n; d++) acc[d] = acc[d] * pair[0] + other[d] * pair[1];
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

#define ATTEND_Q(name, Q, scores, values)                                                                            \
    static void name##Q(const edge_kv *kv, int h, const float *const *q, const int *first, const int *last, int span, \
                        edge_part *part, float *const *acc, float *scratch) {                                        \
        int begin = span * EDGE_SPAN, a[Q], b[Q], lo = EDGE_SPAN, hi = 0;                                            \
        float *p[Q], *sum[Q];                                                                                        \
        for (int i = 0; i < Q; i++) { /* visible slots a..b-1 of the span */                                         \
            a[i] = first[i] > begin ? first[i] - begin : 0;                                                          \
            b[i] = last[i] + 1 - begin < EDGE_SPAN ? last[i] + 1 - begin : EDGE_SPAN;                                \
            if (a[i] < b[i]) {                                                                                       \
                if (a[i] < lo) lo = a[i];                                                                            \
                if (b[i] > hi) hi = b[i];                                                                            \
            }                                                                                                        \
            p[i] = scratch + i * EDGE_SPAN;                                                                          \
            sum[i] = scratch + Q * EDGE_SPAN + i * kv->head_dim_v;                                                   \
        }                                                                                                            \
        if (lo >= hi) return;                                                                                        \
        int page0 = lo / EDGE_PAGE, page1 = (hi + EDGE_PAGE - 1) / EDGE_PAGE;                                        \
        const int32_t *pages = kv->pages + begin / EDGE_PAGE;                                                        \
        size_t kh = (size_t)kv->head_dim * EDGE_PAGE, vh = (size_t)kv->head_dim_v * EDGE_PAGE;                       \
        vf max[Q];                                                                                                   \
        UNROLL for (int i = 0; i < Q; i++) max[i] = vf_set1(-INFINITY);                                              \
        for (int g = page0; g < page1; g++) {                                                                        \
            vf s[Q];                                                                                                 \
            scores(kv->k, ((size_t)pages[g] * (size_t)kv->n_head_kv + (size_t)h) * kh, kv->head_dim, Q, q, s);       \
            UNROLL for (int i = 0; i < Q; i++) {                                                                     \
                vf x = vf_mul(s[i], vf_set1(kv->scale));                                                             \
                if (kv->softcap > 0.0f) {                                                                            \
                    vf c = vf_set1(kv->softcap);                                                                     \
                    x = vf_mul(c, vf_tanh(vf_div(x, c)));                                                            \
                }                                                                                                    \
                if (kv->slopes) x = fall(x, kv->slopes[i], begin + g * EDGE_PAGE - last[i]);                          \
                int from = a[i] - g * EDGE_PAGE, to = b[i] - g * EDGE_PAGE;                                          \
                if (from > 0 || to < EDGE_PAGE) {                                                                    \
                    if (from >= EDGE_PAGE || to <= 0 || from >= to) x = vf_set1(-INFINITY);                          \
                    else x = vf_keep(x, from > 0 ? from : 0, to < EDGE_PAGE ? to : EDGE_PAGE, -INFINITY);            \
                }                                                                                                    \
                max[i] = vf_max(max[i], x);                                                                          \
                vf_store(p[i] + g * EDGE_PAGE, x);                                                                   \
            }                                                                                                        \
        }                                                                                                            \
        edge_part now[Q];                                                                                            \
        for (int i = 0; i < Q; i++) {                                                                                \
            now[i] = (edge_part){0.0f, -1.0f};                                                                       \
            memset(sum[i], 0, (size_t)kv->head_dim_v * sizeof(float));                                               \
            if (a[i] >= b[i]) continue;                                                                              \
            float m = vf_hmax(max[i]);                                                                               \
            vf total = vf_zero();                                                                                    \
            for (int g = page0; g < page1; g++) {                                                                    \
                vf e = vf_exp(vf_sub(vf_load(p[i] + g * EDGE_PAGE), vf_set1(m)));                                    \
                total = vf_add(total, e);                                                                            \
                vf_store(p[i] + g * EDGE_PAGE, e);                                                                   \
            }                                                                                                        \
            now[i] = (edge_part){m, vf_sum(total)};                                                                  \
        }                                                                                                            \
        for (int g = page0; g < page1; g++) {                                                                        \
            size_t at = ((size_t)pages[g] * (size_t)kv->n_head_kv + (size_t)h) * vh;                                 \
            int whole = 1;                                                                                           \
            const float *w[Q];                                                                                       \
            for (int i = 0; i < Q; i++) {                                                                            \
                whole &= a[i] <= g * EDGE_PAGE && b[i] >= (g + 1) * EDGE_PAGE;                                       \
                w[i] = p[i] + g * EDGE_PAGE;                                                                         \
            }                                                                                                        \
            if (whole) {                                                                                             \
                values(kv->v, at, kv->head_dim_v, Q, w, 0, EDGE_PAGE, sum);                                          \
                continue;                                                                                            \
            }                                                                                                        \
            for (int i = 0; i < Q; i++) {                                                                            \
                int t0 = a[i] - g * EDGE_PAGE, t1 = b[i] - g * EDGE_PAGE;                                            \
                t0 = t0 > 0 ? t0 : 0;                                                                                \
                t1 = t1 < EDGE_PAGE ? t1 : EDGE_PAGE;                                                                \
                if (t0 < t1) values(kv->v, at, kv->head_dim_v, 1, w + i, t0, t1, sum + i);                           \
            }                                                                                                        \
        }                                                                                                            \
        for (int i = 0; i < Q; i++) merge(part + i, acc[i], now + i, sum[i], kv->head_dim_v);                        \
    }

#define ATTEND(name, scores, values)                                                                              \
    ATTEND_Q(name, 1, scores, values)                                                                             \
    ATTEND_Q(name, 2, scores, values)                                                                             \
    ATTEND_Q(name, 3, scores, values)                                                                             \
    ATTEND_Q(name, 4, scores, values)                                                                             \
    static void name(const edge_kv *kv, int h, int n, const float *const *q, const int *first, const int *last,  \
                     int span, edge_part *part, float *const *acc, float *scratch) {                              \
        if (n == 1) name##1(kv, h, q, first, last, span, part, acc, scratch);                                     \
        else if (n == 2) name##2(kv, h, q, first, last, span, part, acc, scratch);                                \
        else if (n == 3) name##3(kv, h, q, first, last, span, part, acc, scratch);                                \
        else name##4(kv, h, q, first, last, span, part, acc, scratch);                                            \
    }
ATTEND(attend_f16_, scores_f16, values_f16)
ATTEND(attend_f32_, scores_f32, values_f32)

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
#define ROTATE(name, load, store, elem)                                                                         \
    static void name(const edge_kv *kv, int32_t page, const float *cs, int n_rot, int neox) {                   \
        int half = n_rot / 2, step = neox ? 1 : 2, apart = neox ? half : 1;                                     \
        for (int h = 0; h < kv->n_head_kv; h++) {                                                               \
            elem *k = (elem *)kv->k + ((size_t)page * (size_t)kv->n_head_kv + (size_t)h) *                      \
                                          (size_t)kv->head_dim * EDGE_PAGE;                                     \
            for (int i = 0; i < half; i++) {                                                                    \
                elem *x = k + (size_t)(step * i) * EDGE_PAGE, *y = x + (size_t)apart * EDGE_PAGE;               \
                vf c = vf_set1(cs[2 * i]), s = vf_set1(cs[2 * i + 1]), a = load(x, 0), b = load(y, 0);          \
                store(x, vf_sub(vf_mul(a, c), vf_mul(b, s)));                                                   \
                store(y, vf_add(vf_mul(a, s), vf_mul(b, c)));                                                   \
            }                                                                                                   \
        }                                                                                                       \
    }
ROTATE(rotate_f16, kv_load_f16, vf_to_f16, uint16_t)
ROTATE(rotate_f32, kv_load_f32, vf_store, float)

void FN(edge_fill_attention)(edge_kernels *t) {
    t->attend[0] = attend_f16_;
    t->attend[1] = attend_f32_;
    t->kv_store[0] = store_f16;
    t->kv_store[1] = store_f32;
    t->kv_rotate[0] = rotate_f16;
    t->kv_rotate[1] = rotate_f32;
    t->merge = merge;
    t->sink = sink;
    t->finish = finish;
}
