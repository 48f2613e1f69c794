/* Ops that see one row at a time: quantization, norms, rope and elementwise ones. */
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

static void scale(const float *x, float *out, size_t n, float factor) {
    for (size_t i = 0; i < n; i++) out[i] = x[i] * factor;
}

INLINE vf silu(vf x) {
    return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), x))));
}
INLINE vf gelu(vf x) {
    vf inner = vf_mul(vf_mul(x, vf_set1(0.79788456080286535587989211986876f)),
                      vf_fma(vf_mul(x, x), vf_set1(0.044715f), vf_set1(1.0f)));
    return vf_mul(vf_mul(x, vf_set1(0.5f)), vf_add(vf_set1(1.0f), vf_tanh(inner)));
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

static void glu(const float *gate, const float *up, float *out, size_t n, int is_gelu) {
    if (is_gelu)
        EACH_VECTOR(n, out, vf_mul(gelu(vf_load(gate + i)), vf_load(up + i)),
                    vf_mul(gelu(vf_load_n(gate + i, m)), vf_load_n(up + i, m)));
    else
        EACH_VECTOR(n, out, vf_mul(silu(vf_load(gate + i)), vf_load(up + i)),
                    vf_mul(silu(vf_load_n(gate + i, m)), vf_load_n(up + i, m)));
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
    t->scale = scale;
    t->glu = glu;
    t->softcap = softcap;
}
