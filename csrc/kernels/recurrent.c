/* Layers that carry a state from row to row.
 *
 * Rows run one after the other, and each value of a state is changed by the same operations in the same order
 * however rows are cut into calls and states among threads.
 */
#include "activations.h"
#include "tables.h"

INLINE float first(vf x) {
    float t[LANES];
    vf_store(t, x);
    return t[0];
}

/* Row r's input `back` rows earlier, which may lie in the window of taps-1 rows before the first. */
INLINE const float *earlier(const edge_conv *v, const float *window, const float *x, int r, int back) {
    int at = r - back;
    return at < 0 ? window + (size_t)(v->taps - 1 + at) * (size_t)v->channels : x + (size_t)at * (size_t)v->channels;
}

static void conv1d(const edge_conv *v, float *window, const float *x, float *out, int rows, int from, int to) {
    for (int r = 0; r < rows; r++, out += v->channels)
        for (int c = from; c < to; c += LANES) {
            int n = to - c < LANES ? to - c : LANES;
            vf sum = v->bias ? load(v->bias + c, 0, n) : vf_zero();
            for (int j = 0; j < v->taps; j++)
                sum = vf_fma(load(v->weight + (size_t)j * (size_t)v->channels + c, 0, n),
                             load(earlier(v, window, x, r, v->taps - 1 - j) + c, 0, n), sum);
            store(out + c, v->silu ? vf_mul(sum, sigmoid(sum)) : sum, 0, n);
        }
    /* The last taps-1 inputs, oldest first: each comes from later than where it goes. */
    for (int j = 0; j < v->taps - 1; j++)
        memcpy(window + (size_t)j * (size_t)v->channels + from, earlier(v, window, x, rows, v->taps - 1 - j) + from,
               (size_t)(to - from) * sizeof(float));
}

/* Sequence rows whose time steps are kept at once, and state rows that run side by side. */
enum { ROWS = EDGE_DELTA_ROWS, SIDE = 2 };

/* What all state rows of one head share, for up to ROWS rows of the sequence. */
typedef struct {
    const float *left, *right; /* b and c, or k and q */
    size_t stride;             /* between their rows */
    size_t wide;               /* between rows of x, v and out */
    int rows, n;               /* n: a state row's values */
    float factor;              /* d, or the scale */
} shared_rows;

/* SIDE state rows of a scan stay in registers while the sequence passes: `nv` vectors each. */
INLINE void scan_side(const shared_rows *p, float *state, const float *x, float *out, const float *step,
                      const float *decay, const int nv) {
    vf s[SIDE][8];
    UNROLL for (int m = 0; m < SIDE; m++)
        UNROLL for (int k = 0; k < nv; k++) s[m][k] = vf_load(state + m * p->n + k * LANES);
    for (int r = 0; r < p->rows; r++) {
        const float *b = p->left + (size_t)r * p->stride, *c = p->right + (size_t)r * p->stride;
        vf keep = vf_set1(decay[r]), sum[SIDE], tx[SIDE];
        UNROLL for (int m = 0; m < SIDE; m++)
            sum[m] = vf_zero(), tx[m] = vf_mul(vf_set1(step[r * LANES]), vf_set1(x[(size_t)r * p->wide + m]));
        UNROLL for (int k = 0; k < nv; k++) {
            vf bk = vf_load(b + k * LANES), ck = vf_load(c + k * LANES);
            UNROLL for (int m = 0; m < SIDE; m++) {
                s[m][k] = vf_fma(bk, tx[m], vf_mul(s[m][k], keep));
                sum[m] = vf_fma(s[m][k], ck, sum[m]);
            }
        }
        UNROLL for (int m = 0; m < SIDE; m++)
            out[(size_t)r * p->wide + m] = fmaf(p->factor, x[(size_t)r * p->wide + m], vf_sum(sum[m]));
    }
    UNROLL for (int m = 0; m < SIDE; m++)
        UNROLL for (int k = 0; k < nv; k++) vf_store(state + m * p->n + k * LANES, s[m][k]);
}

/* One state row of any length; `a` is one decay per value, or NULL. */
static void scan_one(const shared_rows *p, float *s, const float *x, float *out, const float *step, const float *decay,
                     const float *a) {
    for (int r = 0; r < p->rows; r++) {
        const float *b = p->left + (size_t)r * p->stride, *c = p->right + (size_t)r * p->stride;
        float xi = x[(size_t)r * p->wide];
        vf t = vf_set1(step[r * LANES]), tx = vf_mul(t, vf_set1(xi)), sum = vf_zero();
        for (int k = 0; k < p->n; k += LANES) {
            vf keep = a ? vf_exp(vf_mul(t, load(a, k, p->n))) : vf_set1(decay[r]);
            vf h = vf_fma(load(b, k, p->n), tx, vf_mul(load(s, k, p->n), keep));
            store(s, h, k, p->n);
            sum = vf_fma(h, load(c, k, p->n), sum);
        }
        out[(size_t)r * p->wide] = fmaf(p->factor, xi, vf_sum(sum));
    }
}

/* State rows from..to-1 of one head. */
static void scan_head(const shared_rows *p, float *state, const float *x, float *out, const float *step, const float *a,
                      int a_each, int from, int to) {
    float decay[ROWS];
    int i = from;
    if (!a_each) {
        for (int r = 0; r < p->rows; r++) decay[r] = first(vf_exp(vf_mul(vf_set1(step[r * LANES]), vf_set1(a[0]))));
        for (; i + SIDE <= to && p->n % LANES == 0; i += SIDE) {
            float *s = state + (size_t)i * (size_t)p->n;
            if (p->n == 8 * LANES) scan_side(p, s, x + i, out + i, step, decay, 8);
            else if (p->n == 4 * LANES) scan_side(p, s, x + i, out + i, step, decay, 4);
            else if (p->n == LANES) scan_side(p, s, x + i, out + i, step, decay, 1);
            else break;
        }
    }
    for (; i < to; i++) scan_one(p, state + (size_t)i * (size_t)p->n, x + i, out + i, step, decay, a_each ? a : NULL);
}

static void ssm_scan(const edge_scan *v, float *state, const float *x, const float *dt, const float *b, const float *c,
                     float *out, int rows, int from, int to) {
    float step[ROWS][LANES];
    size_t wide = (size_t)v->n_head * (size_t)v->head_dim, shared = (size_t)v->n_group * (size_t)v->d_state;
    for (int head0 = from / v->head_dim; head0 * v->head_dim < to; head0 += LANES) {
        int n = v->n_head - head0 < LANES ? v->n_head - head0 : LANES;
        vf bias = v->bias ? load(v->bias + head0, 0, n) : vf_zero();
        for (int r0 = 0; r0 < rows; r0 += ROWS) {
            int m = rows - r0 < ROWS ? rows - r0 : ROWS;
            for (int r = 0; r < m; r++)
                vf_store(step[r], softplus(vf_add(load(dt + (size_t)(r0 + r) * (size_t)v->n_head + head0, 0, n), bias)));
            for (int head = head0; head < head0 + n && head * v->head_dim < to; head++) {
                int base = head * v->head_dim, last = base + v->head_dim;
                size_t at = (size_t)r0 * shared + (size_t)(head / (v->n_head / v->n_group)) * (size_t)v->d_state;
                size_t row = (size_t)r0 * wide + (size_t)base;
                shared_rows p = {b + at, c + at, shared, wide, m, v->d_state, v->d[head]};
                scan_head(&p, state + (size_t)base * (size_t)v->d_state, x + row, out + row, &step[0][head - head0],
                          v->a + (v->a_each ? (size_t)head * (size_t)v->d_state : (size_t)head), v->a_each,
                          base < from ? from - base : 0, last > to ? to - base : v->head_dim);
            }
        }
    }
}

/* SIDE state rows of a delta rule stay in registers while the sequence passes: `nv` vectors each. */
INLINE void delta_side(const shared_rows *p, float *state, const float *value, float *out, const float *decay,
                       const float *beta, const int nv) {
    vf s[SIDE][8];
    UNROLL for (int m = 0; m < SIDE; m++)
        UNROLL for (int j = 0; j < nv; j++) s[m][j] = vf_load(state + m * p->n + j * LANES);
    for (int r = 0; r < p->rows; r++) {
        const float *k = p->left + (size_t)r * p->stride, *q = p->right + (size_t)r * p->stride;
        vf keep = vf_set1(decay[r]), found[SIDE], sum[SIDE], error[SIDE];
        UNROLL for (int m = 0; m < SIDE; m++) found[m] = sum[m] = vf_zero();
        UNROLL for (int j = 0; j < nv; j++) {
            vf kj = vf_load(k + j * LANES);
            UNROLL for (int m = 0; m < SIDE; m++) {
                s[m][j] = vf_mul(s[m][j], keep);
                found[m] = vf_fma(s[m][j], kj, found[m]);
            }
        }
        UNROLL for (int m = 0; m < SIDE; m++)
            error[m] = vf_set1(beta[r] * (value[(size_t)r * p->wide + m] - vf_sum(found[m])));
        UNROLL for (int j = 0; j < nv; j++) {
            vf kj = vf_load(k + j * LANES), qj = vf_load(q + j * LANES);
            UNROLL for (int m = 0; m < SIDE; m++) {
                s[m][j] = vf_fma(error[m], kj, s[m][j]);
                sum[m] = vf_fma(s[m][j], qj, sum[m]);
            }
        }
        UNROLL for (int m = 0; m < SIDE; m++) out[(size_t)r * p->wide + m] = p->factor * vf_sum(sum[m]);
    }
    UNROLL for (int m = 0; m < SIDE; m++)
        UNROLL for (int j = 0; j < nv; j++) vf_store(state + m * p->n + j * LANES, s[m][j]);
}

/* One state row of any length; `decays` is one for each of a row's values, or NULL. */
static void delta_one(const shared_rows *p, float *s, const float *value, float *out, const float *decay,
                      const float *decays, const float *beta) {
    int n = p->n;
    for (int r = 0; r < p->rows; r++) {
        const float *k = p->left + (size_t)r * p->stride, *q = p->right + (size_t)r * p->stride;
        vf found = vf_zero(), sum = vf_zero();
        for (int j = 0; j < n; j += LANES) {
            vf keep = decays ? load(decays + (size_t)r * (size_t)n, j, n) : vf_set1(decay[r]);
            vf h = vf_mul(load(s, j, n), keep);
            store(s, h, j, n);
            found = vf_fma(h, load(k, j, n), found);
        }
        vf error = vf_set1(beta[r] * (value[(size_t)r * p->wide] - vf_sum(found)));
        for (int j = 0; j < n; j += LANES) {
            vf h = vf_fma(error, load(k, j, n), load(s, j, n));
            store(s, h, j, n);
            sum = vf_fma(h, load(q, j, n), sum);
        }
        out[(size_t)r * p->wide] = p->factor * vf_sum(sum);
    }
}

/* exp(a * softplus(g + bias)) of n values, or exp(g) without a bias. */
static void decays_of(const float *g, const float *bias, float a, float *out, int n) {
    for (int j = 0; j < n; j += LANES) {
        vf x = load(g, j, n);
        if (bias) x = vf_mul(vf_set1(a), softplus(vf_add(x, load(bias, j, n))));
        store(out, vf_exp(x), j, n);
    }
}

static void gated_delta(const edge_delta *v, float *state, const float *q, const float *k, const float *value,
                        const float *g, const float *beta, float *out, int rows, int from, int to, float *decays) {
    int n = v->head_dim, m = v->head_dim_v, each = v->g_each ? n : 1;
    size_t keys = (size_t)v->n_head_k * (size_t)n, wide = (size_t)v->n_head * (size_t)m;
    float decay[ROWS], strength[ROWS];
    for (int head = from / m; head * m < to; head++) {
        int base = head * m, key_head = v->grouped ? head / (v->n_head / v->n_head_k) : head % v->n_head_k;
        int i0 = base < from ? from - base : 0, i1 = base + m > to ? to - base : m;
        for (int r0 = 0; r0 < rows; r0 += ROWS) {
            int count = rows - r0 < ROWS ? rows - r0 : ROWS;
            for (int r = 0; r < count; r++) {
                size_t row = (size_t)(r0 + r) * (size_t)v->n_head + (size_t)head;
                strength[r] = first(sigmoid(vf_set1(beta[row])));
                decays_of(g + row * (size_t)each, v->bias ? v->bias + head * each : NULL, v->a ? v->a[head] : 0.0f,
                          v->g_each ? decays + (size_t)r * (size_t)n : &decay[r], each);
            }
            size_t key = (size_t)r0 * keys + (size_t)key_head * (size_t)n, at = (size_t)r0 * wide + (size_t)base;
            shared_rows p = {k + key, q + key, keys, wide, count, n, v->scale};
            for (int i = i0; i < i1;) {
                float *s = state + (size_t)(base + i) * (size_t)n;
                int side = !v->g_each && i + SIDE <= i1;
                if (side && n == 8 * LANES) delta_side(&p, s, value + at + i, out + at + i, decay, strength, 8);
                else if (side && n == 4 * LANES) delta_side(&p, s, value + at + i, out + at + i, decay, strength, 4);
                else {
                    delta_one(&p, s, value + at + i, out + at + i, decay, v->g_each ? decays : NULL, strength);
                    side = 0;
                }
                i += side ? SIDE : 1;
            }
        }
    }
}

/* Each run divided by its length, or by eps where that is larger. */
static void l2_norm(const float *x, float *out, int n, int size, float eps) {
    for (int at = 0; at < n; at += size) {
        vf sum = vf_zero();
        for (int i = 0; i < size; i += LANES) {
            vf v = load(x + at, i, size);
            sum = vf_fma(v, v, sum);
        }
        float length = sqrtf(vf_sum(sum));
        vf r = vf_set1(1.0f / (length < eps ? eps : length));
        for (int i = 0; i < size; i += LANES) store(out + at, vf_mul(load(x + at, i, size), r), i, size);
    }
}

void FN(edge_fill_recurrent)(edge_kernels *t) {
    t->conv1d = conv1d;
    t->ssm_scan = ssm_scan;
    t->gated_delta = gated_delta;
    t->l2_norm = l2_norm;
}
