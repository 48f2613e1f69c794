/* What attention over any format of keys and values shares: spans, the softmax within one, and how they merge. */
#ifndef EDGE_SPANS_H
#define EDGE_SPANS_H

#include "tables.h"

/* Queries of one pass over keys or values, and those whose parts merge together: two exponentials each. */
enum { TILE_QUERIES = 6, MERGED = LANES / 2 };

/* A function for every number of queries, so that sums stay in registers. */
#define EACH_COUNT(n, call)                   \
    switch (n) {                              \
    case 1: { enum { Q = 1 }; call; break; }  \
    case 2: { enum { Q = 2 }; call; break; }  \
    case 3: { enum { Q = 3 }; call; break; }  \
    case 4: { enum { Q = 4 }; call; break; }  \
    case 5: { enum { Q = 5 }; call; break; }  \
    default: { enum { Q = 6 }; call; break; } \
    }

/* What the queries of a call see of a span: slots a..b-1 of each, lo..hi-1 of any. */
typedef struct {
    int a[EDGE_QUERIES], b[EDGE_QUERIES], lo, hi;
    int whole0, whole1; /* pages that every query sees whole */
} edge_sight;

INLINE edge_sight sight_of(int n, const int *first, const int *last, int span) {
    edge_sight s = {.lo = EDGE_SPAN, .hi = 0};
    int begin = span * EDGE_SPAN, all0 = 0, all1 = EDGE_SPAN;
    for (int i = 0; i < n; i++) {
        s.a[i] = first[i] > begin ? first[i] - begin : 0;
        s.b[i] = last[i] + 1 - begin < EDGE_SPAN ? last[i] + 1 - begin : EDGE_SPAN;
        if (s.a[i] < s.b[i]) {
            if (s.a[i] < s.lo) s.lo = s.a[i];
            if (s.b[i] > s.hi) s.hi = s.b[i];
        }
        if (s.a[i] > all0) all0 = s.a[i];
        if (s.b[i] < all1) all1 = s.b[i];
    }
    s.whole0 = (all0 + EDGE_PAGE - 1) / EDGE_PAGE;
    s.whole1 = all1 > 0 ? all1 / EDGE_PAGE : 0;
    return s;
}

/* Lanes of page g that query i sees keep x, the others become `hidden`. */
INLINE vf visible(vf x, const edge_sight *s, int i, int g, float hidden) {
    int from = s->a[i] - g * EDGE_PAGE, to = s->b[i] - g * EDGE_PAGE;
    if (from <= 0 && to >= EDGE_PAGE) return x;
    if (from >= EDGE_PAGE || to <= 0 || from >= to) return vf_set1(hidden);
    return vf_keep(x, from > 0 ? from : 0, to < EDGE_PAGE ? to : EDGE_PAGE, hidden);
}

/* Products of query and 16 keys, of which the first is at `position`, become scores. */
INLINE vf score(const edge_kv *kv, vf x, int i, int position) {
    static const float each[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    x = vf_mul(x, vf_set1(kv->scale));
    if (kv->softcap > 0.0f) {
        vf c = vf_set1(kv->softcap);
        x = vf_mul(c, vf_tanh(vf_div(x, c)));
    }
    if (kv->slopes) {
        vf distance = vf_abs(vf_add(vf_load(each), vf_set1((float)(position - kv->at[i]))));
        x = vf_fma(vf_set1(-kv->slopes[i]), distance, x);
    }
    return x;
}

/* All lines of a record, into the second-level cache. */
INLINE void fetch(const void *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)p + i, 0, 2);
}

/* Products of query i with the keys of a span, the first of which is at position `begin`, become scores; those it
 * does not see are hidden.  Returns the largest. */
INLINE float score_span(const edge_kv *kv, const edge_sight *see, int i, int begin, float *p) {
    int page0 = see->a[i] / EDGE_PAGE, page1 = (see->b[i] + EDGE_PAGE - 1) / EDGE_PAGE;
    vf scale = vf_set1(kv->scale), max = vf_set1(-INFINITY);
    if (see->a[i] % EDGE_PAGE == 0 && see->b[i] % EDGE_PAGE == 0 && kv->softcap <= 0.0f && !kv->slopes) {
        for (int g = page0; g < page1; g++) {
            vf x = vf_mul(vf_load(p + g * EDGE_PAGE), scale);
            max = vf_max(max, x);
            vf_store(p + g * EDGE_PAGE, x);
        }
        return vf_hmax(max);
    }
    for (int g = page0; g < page1; g++) {
        vf x = visible(score(kv, vf_load(p + g * EDGE_PAGE), i, begin + g * EDGE_PAGE), see, i, g, -INFINITY);
        max = vf_max(max, x);
        vf_store(p + g * EDGE_PAGE, x);
    }
    return vf_hmax(max);
}

/* Products of n queries with the keys of a span become the exponentials of their scores below the largest; those of
 * what a query does not see, in a page of which it sees some, become zero. */
INLINE void weigh(const edge_kv *kv, const edge_sight *see, int n, int begin, float *const *p, edge_part *now) {
    for (int i = 0; i < n; i++) {
        now[i] = (edge_part){0.0f, -1.0f};
        if (see->a[i] < see->b[i]) now[i].max = score_span(kv, see, i, begin, p[i]);
    }
    for (int i = 0; i < n; i++) {
        if (see->a[i] >= see->b[i]) continue;
        vf total = vf_zero();
        for (int g = see->a[i] / EDGE_PAGE; g * EDGE_PAGE < see->b[i]; g++) {
            vf e = vf_exp(vf_sub(vf_load(p[i] + g * EDGE_PAGE), vf_set1(now[i].max)));
            total = vf_add(total, e);
            vf_store(p[i] + g * EDGE_PAGE, e);
        }
        now[i].sum = vf_sum(total);
    }
}

/* Fetch what is next while page number i of a span's values is read, where it is worth it. */
INLINE void fetch_ahead(const edge_kv *kv, int i, size_t record) {
    if (!kv->cold || i >= kv->n_ahead) return;
    fetch((const char *)kv->k + ((size_t)kv->ahead[i] * (size_t)kv->n_head_kv + (size_t)kv->ahead_h) * record, record);
}

/* Merge other parts into n <= MERGED running ones; a part with a negative sum is empty. */
INLINE void merge_parts(int n, edge_part *into, float *const *acc, const edge_part *part, float *const *other,
                        int dim) {
    float pair[LANES] = {0};
    for (int i = 0; i < n; i++) {
        float max = into[i].max > part[i].max ? into[i].max : part[i].max;
        pair[2 * i] = into[i].max - max;
        pair[2 * i + 1] = part[i].max - max;
    }
    vf_store(pair, vf_exp(vf_load(pair)));
    for (int i = 0; i < n; i++) {
        if (part[i].sum < 0.0f) continue;
        if (into[i].sum < 0.0f) {
            into[i] = part[i];
            memcpy(acc[i], other[i], (size_t)dim * sizeof(float));
            continue;
        }
        float x = pair[2 * i], y = pair[2 * i + 1], *to = acc[i];
        const float *from = other[i];
        into[i].max = into[i].max > part[i].max ? into[i].max : part[i].max;
        into[i].sum = into[i].sum * x + part[i].sum * y;
        int d = 0;
        for (; d + LANES <= dim; d += LANES)
            vf_store(to + d, vf_add(vf_mul(vf_load(to + d), vf_set1(x)), vf_mul(vf_load(from + d), vf_set1(y))));
        for (; d < dim; d++) to[d] = to[d] * x + from[d] * y;
    }
}

#endif
