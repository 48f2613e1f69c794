/* Mixtures, the norms and products that go with them, and the ops that carry a state. */
#include "harness.h"

static void finish(const char *name, int detail, const float *out, size_t n) {
    absorb_floats(out, n);
    report(name, detail);
}

static void run_elements(int n) {
    size_t count = (size_t)n;
    float *x = floats(count, 8.0f), *y = floats(count, 2.0f), *out = room(count * sizeof *out);
    for (int i = 0; i < n && i < N_ODD && n > 64; i++) x[i] = odd[i];
    for (int act = 0; act < EDGE_N_ACTIVATIONS; act++) {
        kernels.activate(x, out, count, act);
        finish("activate", 1000 * act + n, out, count);
        kernels.glu_limited(x, y, out, count, act, 3.0f, 1.0f);
        finish("glu_limited", 1000 * act + n, out, count);
    }
    kernels.mul(x, y, out, count);
    kernels.clamp(out, out, count, 5.0f);
    finish("mul-clamp", n, out, count);
    kernels.scale_by(x, y, out, count, 1, 0.5f);
    finish("scale_by", n, out, count);
    kernels.l2_norm(y, out, n, n, 1e-6f);
    finish("l2_norm", n, out, count);
    for (int centred = 0; centred < 2; centred++) {
        kernels.layer_norm(y, n & 1 ? NULL : y, centred ? y : NULL, out, n, 1e-5f, centred);
        finish("layer_norm", n, out, count);
    }
    out[0] = kernels.dot(y, y, n);
    finish("dot", n, out, 1);
    free(x), free(y), free(out);
}

static void run_routes(int n) {
    int used = n < 4 ? n : 4, groups = n % 4 == 0 ? 4 : 1;
    float *logits = floats((size_t)n, 3.0f), *bias = floats((size_t)n, 1.0f);
    float *out = room((size_t)(2 * used) * sizeof *out), *scratch = room((size_t)(2 * n + groups) * sizeof *scratch);
    if (n > 8) logits[5] = logits[7]; /* equals: the first is taken */
    for (int scoring = 0; scoring < 3; scoring++)
        for (int grouped = 0; grouped < 2; grouped++) {
            int most = grouped ? groups : 1, some = (most + 1) / 2, chosen = used;
            if (chosen > n / most * some) chosen = n / most * some;
            edge_router r = {n, chosen, most, some, scoring, scoring & 1, 1.5f, grouped ? bias : NULL};
            memset(out, 0, (size_t)(2 * used) * sizeof *out);
            kernels.route(&r, logits, out, scratch);
            finish("route", 10 * n + scoring, out, (size_t)(2 * used));
        }
    free(logits), free(bias), free(out), free(scratch);
}

static void run_choices(int n) {
    float *x = floats((size_t)n, 30.0f);
    int32_t *peak = room((size_t)((n + EDGE_STRETCH - 1) / EDGE_STRETCH) * sizeof *peak);
    for (int with = 0; with < 3; with++) {
        if (with) x[n / 2] = with == 1 ? -INFINITY : NAN;
        int right = kernels.peaks(x, (size_t)n, peak);
        absorb(&right, sizeof right);
        absorb(peak, (size_t)((n + EDGE_STRETCH - 1) / EDGE_STRETCH) * sizeof *peak);
        double all = with == 2 ? 0.0 : kernels.mass(x, (size_t)n, 200.0), one = kernels.weight((double)-n);
        absorb(&all, sizeof all);
        absorb(&one, sizeof one);
    }
    report("choices", n);
    free(x), free(peak);
}

void run_mixtures(int n) {
    enum { IN = 3, OUT = 4 };
    run_elements(n);
    run_routes(n);
    run_choices(n);
    float *x = floats((size_t)(IN * n), 2.0f), *by = floats(IN * OUT, 1.0f), *out = room((size_t)(OUT * n) * sizeof *out);
    kernels.mix(x, by, out, IN, OUT, n);
    finish("mix", n, out, (size_t)(OUT * n));
    edge_part part = {1.5f, 2.0f};
    kernels.sink(&part, x, 2.5f, n);
    absorb_floats(&part.sum, 1);
    finish("sink", n, x, (size_t)n);
    free(x), free(by), free(out);
}

enum { ROWS = 9 };

static void run_conv(int channels) {
    for (int taps = 2; taps < 6; taps++) {
        size_t wide = (size_t)channels, kept = (size_t)(taps - 1) * wide;
        float *weight = floats((size_t)taps * wide, 1.0f), *bias = floats(wide, 1.0f), *window = floats(kept, 1.0f);
        float *x = floats(ROWS * wide, 2.0f), *out = room(ROWS * wide * sizeof *out);
        edge_conv conv = {weight, taps & 1 ? bias : NULL, taps, channels, taps & 2};
        int half = channels / 32 * 16;
        kernels.conv1d(&conv, window, x, out, ROWS, half, channels);
        if (half) kernels.conv1d(&conv, window, x, out, ROWS, 0, half);
        absorb_floats(window, kept);
        finish("conv1d", 10 * channels + taps, out, ROWS * wide);
        free(weight), free(bias), free(window), free(x), free(out);
    }
}

static float *decays(size_t n) {
    float *a = floats(n, 1.0f);
    for (size_t i = 0; i < n; i++) a[i] = -fabsf(a[i]);
    return a;
}

static void run_scan(int d_state) {
    enum { HEADS = 6, DIM = 11, GROUPS = 2 };
    size_t n = (size_t)d_state;
    for (int each = 0; each < 2; each++) {
        float *a = decays(each ? HEADS * n : HEADS), *d = floats(HEADS, 1.0f), *bias = floats(HEADS, 1.0f);
        float *state = floats(HEADS * DIM * n, 1.0f), *x = floats(ROWS * HEADS * DIM, 1.0f);
        float *dt = floats(ROWS * HEADS, 1.0f);
        float *b = floats(ROWS * GROUPS * n, 1.0f), *c = floats(ROWS * GROUPS * n, 1.0f);
        float *out = room(ROWS * HEADS * DIM * sizeof *out);
        edge_scan scan = {HEADS, DIM, d_state, GROUPS, each, a, d, each ? bias : NULL};
        kernels.ssm_scan(&scan, state, x, dt, b, c, out, ROWS, 16, HEADS * DIM);
        kernels.ssm_scan(&scan, state, x, dt, b, c, out, ROWS, 0, 16);
        absorb_floats(state, HEADS * DIM * n);
        finish("ssm_scan", 10 * d_state + each, out, ROWS * HEADS * DIM);
        free(a), free(d), free(bias), free(state), free(x), free(dt), free(b), free(c), free(out);
    }
}

static void run_delta(int head_dim) {
    enum { HEADS = 4, KEYS = 2, DIM = 9 };
    size_t n = (size_t)head_dim;
    for (int each = 0; each < 2; each++) {
        size_t rates = each ? HEADS * n : HEADS;
        float *a = decays(HEADS), *bias = floats(rates, 1.0f), *state = floats(HEADS * DIM * n, 1.0f);
        float *q = floats(ROWS * KEYS * n, 0.3f), *k = floats(ROWS * KEYS * n, 0.3f);
        float *v = floats(ROWS * HEADS * DIM, 1.0f), *g = floats(ROWS * rates, 1.0f), *beta = floats(ROWS * HEADS, 1.0f);
        float *out = room(ROWS * HEADS * DIM * sizeof *out), *scratch = room(EDGE_DELTA_ROWS * n * sizeof *scratch);
        edge_delta delta = {HEADS, DIM, head_dim, KEYS, each, each, 0.5f, a, bias};
        kernels.gated_delta(&delta, state, q, k, v, g, beta, out, ROWS, 16, HEADS * DIM, scratch);
        kernels.gated_delta(&delta, state, q, k, v, g, beta, out, ROWS, 0, 16, scratch);
        absorb_floats(state, HEADS * DIM * n);
        finish("gated_delta", 10 * head_dim + each, out, ROWS * HEADS * DIM);
        free(a), free(bias), free(state), free(q), free(k), free(v), free(g), free(beta), free(out), free(scratch);
    }
}

void run_recurrences(int dim) {
    run_conv(dim);
    run_scan(dim);
    run_delta(dim);
}
