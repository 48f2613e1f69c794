/* Ops that see one row at a time: quantization, norms, rope and elementwise ones. */
#include "activations.h"
#include "tables.h"

/* Sixteen values: scale, bytes and sum. */
INLINE int32_t quantize16(vf x, int8_t *q, float *scale) {
    float max = vf_hmax(vf_abs(x));
    /* A NaN or an infinity makes the scale NaN: it must not vanish in the rounding. */
    float poison = vf_sum(vf_mul(x, vf_zero()));
    float d = max / 127.0f, inverse = max > 0.0f ? 127.0f / max : 0.0f;
    /* The inverse of a subnormal may overflow: such values are zero. */
    if (!(inverse <= 3.4e38f)) inverse = 0.0f, d = 0.0f;
    vi_store_i8(q, vf_to_vi(vf_mul(x, vf_set1(inverse))));
    *scale = d + poison;
    int32_t sum = 0;
    for (int i = 0; i < LANES; i++) sum += q[i];
    return sum;
}

static void quantize(const float *x, int row, int b0, int b1, const edge_act *act) {
    for (int b = b0; b < b1; b++) {
        size_t at = (size_t)row * (size_t)act->n_block + (size_t)b;
        for (size_t half = 2 * at; half < 2 * at + 2; half++) {
            int32_t sum = quantize16(vf_load(x + 32 * b + 16 * (half & 1)), act->q + 16 * half, &act->d[half]);
            act->isum16[half] = sum;
            act->sum16[half] = act->d[half] * (float)sum;
        }
        act->sum32[at] = act->sum16[2 * at] + act->sum16[2 * at + 1];
    }
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
