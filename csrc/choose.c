/* The most likely tokens by a heap over the peaks of stretches; then the filters, each a cut of the ranked list, and the
 * draw.  The arithmetic is float64, as in edgellm/sampling. */
#include "choose.h"

#include <stdlib.h>
#include <string.h>

/* A key above the complement of the id: larger is more likely, the lower id first on ties. */
static int64_t entry(int32_t key, int32_t id) { return (int64_t)(((uint64_t)(uint32_t)key << 32) | (uint32_t)~id); }

static int32_t entry_id(int64_t e) { return (int32_t)~(uint32_t)e; }

static int32_t key_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t size = (int32_t)(bits & 0x7FFFFFFF);
    return (int32_t)bits < 0 ? -size : size;
}

static const int32_t IMPOSSIBLE = -0x7F800000; /* the key of -inf */

/* The largest entries, the smallest of them first. */
typedef struct {
    int64_t *at;
    int32_t n, most;
} heap;

static void sink(heap *h, int64_t e) {
    int32_t i = 0, child;
    for (; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->at[child + 1] < h->at[child]) child++;
        if (h->at[child] >= e) break;
        h->at[i] = h->at[child];
    }
    h->at[i] = e;
}

static void offer(heap *h, int64_t e) {
    if (h->n == h->most) {
        if (e > h->at[0]) sink(h, e);
        return;
    }
    int32_t i = h->n++;
    for (; i && h->at[(i - 1) / 2] > e; i = (i - 1) / 2) h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = e;
}

/* Largest first. */
static void rank(heap *h) {
    int32_t n = h->n;
    while (h->n > 1) {
        int64_t least = h->at[0];
        h->n--;
        sink(h, h->at[h->n]);
        h->at[h->n] = least;
    }
    h->n = n;
}

static int edited(const edge_choice *c, int32_t id) {
    int32_t from = 0, to = c->n_edits;
    while (from < to) {
        int32_t middle = (from + to) / 2;
        if (c->ids[middle] < id) from = middle + 1;
        else to = middle;
    }
    return from < c->n_edits && c->ids[from] == id;
}

/* The k most likely tokens into `top`.  As many stretches as there are peaks to be sure of hold at least one each, less
 * those whose peak is edited away. */
static void most_likely(const edge_choice *c, int32_t k, const int32_t *peak, int32_t stretches, heap *top) {
    heap bound = {top->at, 0, k + c->n_edits};
    for (int32_t i = 0; i < stretches; i++) offer(&bound, entry(peak[i], i));
    int32_t least = bound.n == bound.most ? (int32_t)(bound.at[0] >> 32) : IMPOSSIBLE;
    if (least <= IMPOSSIBLE) least = IMPOSSIBLE + 1;
    top->n = 0;
    top->most = k;
    for (int32_t i = 0; i < stretches; i++) {
        if (peak[i] < least) continue;
        int32_t end = c->n - i * EDGE_STRETCH < EDGE_STRETCH ? c->n : (i + 1) * EDGE_STRETCH;
        for (int32_t id = i * EDGE_STRETCH; id < end; id++) {
            int32_t key = key_of(c->logits[id]);
            if (key >= least && !(c->n_edits && edited(c, id))) offer(top, entry(key, id));
        }
    }
    for (int32_t i = 0; i < c->n_edits; i++) {
        int32_t key = key_of(c->values[i]);
        if (key > IMPOSSIBLE) offer(top, entry(key, c->ids[i]));
    }
    rank(top);
}

/* The weight of all tokens, relative to the largest logit. */
static double whole_mass(const edge_kernels *kernels, const edge_choice *c, double max) {
    double sum = 0.0;
    int32_t from = 0;
    for (int32_t i = 0; i <= c->n_edits; i++) {
        int32_t to = i < c->n_edits ? c->ids[i] : c->n;
        sum += kernels->mass(c->logits + from, (size_t)(to - from), max);
        if (i < c->n_edits) sum += kernels->weight((double)c->values[i] - max);
        from = to + 1;
    }
    return sum;
}

/* How many of the ranked logits together reach `share` of `total`, or of their own sum where that is 0; 0: all do not. */
static int32_t reach(const edge_kernels *kernels, const double *logit, int32_t n, double share, double total) {
    double sum = 0.0;
    if (total == 0.0)
        for (int32_t i = 0; i < n; i++) total += kernels->weight(logit[i] - logit[0]);
    for (int32_t i = 0; i < n; i++)
        if ((sum += kernels->weight(logit[i] - logit[0])) >= share * total) return i + 1;
    return 0;
}

static int by_id(const void *a, const void *b) {
    int32_t x = entry_id(*(const int64_t *)a), y = entry_id(*(const int64_t *)b);
    return x < y ? -1 : x > y;
}

static double logit_of(int64_t e) {
    int32_t key = (int32_t)(e >> 32);
    uint32_t bits = key < 0 ? 0x80000000u | (uint32_t)-key : (uint32_t)key;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* Apply the cuts to the n most likely tokens and draw. */
static int32_t draw(const edge_kernels *kernels, const edge_choice *c, int64_t *top, int32_t n, int ranked, double *logit) {
    int single = 1; /* logits are still float32, and so are bounds */
    double divide = 1.0, max = logit[0];
    for (int32_t i = 0; i < c->n_cuts; i++) {
        const edge_cut *cut = &c->cuts[i];
        int32_t some = 1;
        if (cut->kind == EDGE_CUT_TOP_P) {
            some = reach(kernels, logit, n, cut->value, 0.0);
        } else if (cut->kind == EDGE_CUT_MIN_P) {
            double bound = logit[0] + cut->value;
            if (single) bound = (float)bound;
            while (some < n && logit[some] >= bound) some++;
        } else {
            for (int32_t j = n; j-- > 0;) logit[j] = (logit[j] - logit[0]) / cut->value;
            divide = cut->value;
            single = some = 0;
        }
        if (some) n = some;
    }
    if (!ranked) { /* many tokens are drawn in the order of their ids, as they are in Python */
        qsort(top, (size_t)n, sizeof *top, by_id);
        for (int32_t i = 0; i < n; i++) logit[i] = single ? logit_of(top[i]) : (logit_of(top[i]) - max) / divide;
    }
    double peak = single ? max : 0.0, total = 0.0, sum = 0.0;
    for (int32_t i = 0; i < n; i++) total += kernels->weight(logit[i] - peak);
    for (int32_t i = 0; i < n; i++)
        if ((sum += kernels->weight(logit[i] - peak)) > c->uniform * total) return entry_id(top[i]);
    return -1;
}

static int32_t choose_of(const edge_kernels *kernels, const edge_choice *c, int32_t k, const int32_t *peak, int64_t *top,
                         double *logit) {
    heap found = {top, 0, k};
    most_likely(c, k, peak, (c->n - 1) / EDGE_STRETCH + 1, &found);
    if (!found.n) return -1;
    for (int32_t i = 0; i < found.n; i++) logit[i] = logit_of(top[i]);
    int32_t n = found.n;
    if (c->whole != 0.0) {
        n = reach(kernels, logit, n, c->whole, whole_mass(kernels, c, logit[0]));
        if (!n) return -1;
    }
    return draw(kernels, c, top, n, k == c->k, logit);
}

int32_t edge_choose(const edge_kernels *kernels, const edge_choice *c) {
    int32_t stretches = (c->n - 1) / EDGE_STRETCH + 1, most = c->whole != 0.0 ? EDGE_MAX_CHOICES : c->k, chosen = -1;
    size_t entries = (size_t)(most + c->n_edits) * sizeof(int64_t), logits = (size_t)most * sizeof(double);
    uint8_t *memory = malloc(entries + logits + (size_t)stretches * sizeof(int32_t));
    if (!memory) return -2;
    int64_t *top = (int64_t *)(void *)memory;
    double *logit = (double *)(void *)(memory + entries);
    int32_t *peak = (int32_t *)(void *)(memory + entries + logits);
    if (kernels->peaks(c->logits, (size_t)c->n, peak)) {
        chosen = choose_of(kernels, c, c->k, peak, top, logit);
        if (chosen < 0 && most > c->k) chosen = choose_of(kernels, c, most, peak, top, logit);
    }
    free(memory);
    return chosen;
}
