/* What attention over any format of keys and values shares: spans, the softmax within one, and how they merge. */
#ifndef EDGE_SPANS_H
#define EDGE_SPANS_H

#include "tables.h"

/* What the queries of a call see of a span: slots a..b-1 of each, lo..hi-1 of any. */
typedef struct {
    int a[EDGE_QUERIES], b[EDGE_QUERIES], lo, hi;
    int whole0, whole1; /* pages that every query sees whole */
} edge_sight;

INLINE edge_sight sight_of(const int Q, const int *first, const int *last, int span) {
    edge_sight s = {.lo = EDGE_SPAN, .hi = 0};
    int begin = span * EDGE_SPAN, all0 = 0, all1 = EDGE_SPAN;
    for (int i = 0; i < Q; i++) {
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

/* Scores of pages page0..page1-1 become their exponentials below the maximum. */
INLINE edge_part soften(float *p, vf max, int page0, int page1) {
    float m = vf_hmax(max);
    vf total = vf_zero();
    for (int g = page0; g < page1; g++) {
        vf e = vf_exp(vf_sub(vf_load(p + g * EDGE_PAGE), vf_set1(m)));
        total = vf_add(total, e);
        vf_store(p + g * EDGE_PAGE, e);
    }
    return (edge_part){m, vf_sum(total)};
}

/* Merge another part into a running one; a part with a negative sum is empty. */
INLINE void merge_parts(edge_part *into, float *acc, const edge_part *part, const float *other, int n) {
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

#endif
