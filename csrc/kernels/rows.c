/* Ops that see one row at a time: quantization, norms, rope and elementwise ones. */
#include "activations.h"
#include "tables.h"

enum { RUNS = 16 }; /* of sixteen values, quantized together: one in each lane */

/* x: RUNS * 16 values, of which the first n blocks count. */
INLINE void quantize_runs(const float *x, edge_act_block *to, int n) {
    vi bits[RUNS], q[RUNS];
    /* Magnitudes are ordered as their bits are, with infinities and NaN above all numbers. */
    UNROLL for (int i = 0; i < RUNS; i++) bits[i] = vi_and(vf_bits(vf_load(x + LANES * i)), vi_set1(0x7FFFFFFF));
    vf max = vf_of_bits(vi_most16(bits)), zero = vf_zero(), most = vf_set1(127.0f), limit = vf_set1(3.4e38f);
    vf d = vf_div(max, most), inverse = vf_if_lt(zero, max, vf_div(most, max), zero);
    /* The inverse of a subnormal may overflow: such values are zero. */
    d = vf_if_lt(limit, inverse, zero, d);
    inverse = vf_if_lt(limit, inverse, zero, inverse);
    /* A NaN or an infinity makes the scale NaN: it must not vanish in the rounding. */
    d = vf_add(d, vf_mul(max, zero));
    float by[RUNS], scale[RUNS], weighted[RUNS];
    int32_t sums[RUNS];
    vf_store(by, inverse);
    UNROLL for (int i = 0; i < RUNS; i++) /* NaN becomes a number */
        q[i] = vf_to_vi(vf_min(vf_mul(vf_load(x + LANES * i), vf_set1(by[i])), most));
    vi sum = vi_sum16(q);
    vi_store(sums, sum);
    vf_store(scale, d);
    vf_store(weighted, vf_mul(d, vi_to_vf(sum)));
    UNROLL for (int i = 0; i < RUNS / 2; i++) {
        if (i >= n) break;
        for (int half = 0; half < 2; half++) {
            int run = 2 * i + half;
            vi_store_i8(to[i].q + LANES * half, q[run]);
            to[i].d[half] = scale[run];
            to[i].sum16[half] = weighted[run];
            to[i].isum16[half] = sums[run];
        }
        to[i].sum32 = weighted[2 * i] + weighted[2 * i + 1];
    }
}

static void quantize(const float *x, int row, int b0, int b1, const edge_act *act) {
    edge_act_block *to = act->block + (size_t)row * (size_t)act->n_block + (size_t)b0;
    int n = b1 - b0;
    for (x += 32 * b0; n >= RUNS / 2; n -= RUNS / 2, x += 16 * RUNS, to += RUNS / 2) quantize_runs(x, to, RUNS / 2);
    if (!n) return;
    float padded[16 * RUNS] = {0};
    memcpy(padded, x, 32 * (size_t)n * sizeof *x);
    quantize_runs(padded, to, n);
}

/* The sum of squares runs over 16 lanes and the summing tree; the end of a run is padded with zeros. */
static void rms_norm(const float *x, const float *weight, float *out, int n, int size, float eps) {
    for (int at = 0; at < n; at += size) {
        const float *p = x + at;
        vf acc = vf_zero();
        int i = 0;
        for (; i + LANES <= size; i += LANES) {
            vf v = vf_load(p + i);
            acc = vf_fma(v, v, acc);
        }
        if (i < size) {
            vf v = vf_load_n(p + i, size - i);
            acc = vf_fma(v, v, acc);
        }
        float r = 1.0f / sqrtf(vf_sum(acc) / (float)size + eps);
        if (weight) for (i = 0; i < size; i++) out[at + i] = p[i] * r * weight[i];
        else for (i = 0; i < size; i++) out[at + i] = p[i] * r;
    }
}

/* cs: cosine and sine of each pair, interleaved.  out may be x. */
static void rope(const float *x, const float *cs, float *out, int n_head, int head_dim, int n_rot, int neox) {
    int half = n_rot / 2, step = neox ? 1 : 2, apart = neox ? half : 1;
    for (int h = 0; h < n_head; h++, x += head_dim, out += head_dim) {
        for (int i = 0; i < half; i++) {
            float c = cs[2 * i], s = cs[2 * i + 1];
            float a = x[step * i], b = x[step * i + apart];
            out[step * i] = a * c - b * s;
            out[step * i + apart] = a * s + b * c;
        }
        if (out != x)
            for (int i = n_rot; i < head_dim; i++) out[i] = x[i];
    }
}

static void add(const float *a, const float *b, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

static void mul(const float *a, const float *b, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = a[i] * b[i];
}

static void scale(const float *x, float *out, size_t n, float factor) {
    for (size_t i = 0; i < n; i++) out[i] = x[i] * factor;
}

#define EACH_VECTOR(n, out, expr_full, expr_part)                 \
    do {                                                          \
        size_t i = 0;                                             \
        for (; i + LANES <= (n); i += LANES) vf_store((out) + i, expr_full); \
        if (i < (n)) {                                            \
            int m = (int)((n) - i);                               \
            vf_store_n((out) + i, expr_part, m);                  \
        }                                                         \
    } while (0)

#define GLU(f)                                                                                     \
    EACH_VECTOR(n, out, vf_mul(f(vf_load(gate + i)), vf_load(up + i)),                             \
                vf_mul(f(vf_load_n(gate + i, m)), vf_load_n(up + i, m)))

static void glu(const float *gate, const float *up, float *out, size_t n, int activation) {
    WITH_ACTIVATION(activation, GLU)
}

#define ACTIVATE(f) EACH_VECTOR(n, out, f(vf_load(x + i)), f(vf_load_n(x + i, m)))

static void activate(const float *x, float *out, size_t n, int activation) {
    WITH_ACTIVATION(activation, ACTIVATE)
}

/* NaN stays NaN: it is the second operand. */
INLINE vf within(vf x, vf cap) { return vf_max(vf_sub(vf_zero(), cap), vf_min(cap, x)); }

#define GLU_LIMITED(f)                                                                                       \
    EACH_VECTOR(n, out, vf_mul(f(vf_min(top, vf_load(gate + i))), vf_add(within(vf_load(up + i), top), add)), \
                vf_mul(f(vf_min(top, vf_load_n(gate + i, m))), vf_add(within(vf_load_n(up + i, m), top), add)))

static void glu_limited(const float *gate, const float *up, float *out, size_t n, int activation, float limit,
                        float offset) {
    vf top = vf_set1(limit > 0.0f ? limit : INFINITY), add = vf_set1(offset);
    WITH_ACTIVATION(activation, GLU_LIMITED)
}

static void clamp(const float *x, float *out, size_t n, float cap) {
    vf c = vf_set1(cap);
    EACH_VECTOR(n, out, within(vf_load(x + i), c), within(vf_load_n(x + i, m), c));
}

static void scale_by(const float *x, const float *w, float *out, size_t n, size_t run, float shift) {
    for (size_t at = 0; at < n; at += run, w++)
        for (size_t i = at; i < at + run; i++) out[i] = x[i] * *w + shift;
}

static void softcap(const float *x, float *out, size_t n, float cap) {
    vf c = vf_set1(cap);
    EACH_VECTOR(n, out, vf_mul(c, vf_tanh(vf_div(vf_load(x + i), c))),
                vf_mul(c, vf_tanh(vf_div(vf_load_n(x + i, m), c))));
}

void FN(edge_fill_rows)(edge_kernels *t) {
    t->quantize = quantize;
    t->rms_norm = rms_norm;
    t->rope = rope;
    t->add = add;
    t->mul = mul;
    t->scale = scale;
    t->glu = glu;
    t->softcap = softcap;
    t->clamp = clamp;
    t->activate = activate;
    t->glu_limited = glu_limited;
    t->scale_by = scale_by;
}
