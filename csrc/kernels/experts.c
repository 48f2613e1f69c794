/* Mixtures: routers, values mixed with coefficients, and the norms and products that go with them. */
#include "activations.h"
#include "tables.h"

/* Mean and square's mean run over 16 lanes and the summing tree; the end of a run is padded with zeros. */
static void layer_norm(const float *x, const float *weight, const float *bias, float *out, int size, float eps,
                       int centred) {
    vf sum = vf_zero(), squares = vf_zero();
    for (int i = 0; centred && i < size; i += LANES) sum = vf_add(sum, load(x, i, size));
    float mean = centred ? vf_sum(sum) / (float)size : 0.0f;
    for (int i = 0; i < size; i += LANES) {
        vf d = vf_sub(load(x, i, size), vf_set1(mean));
        if (size - i < LANES) {
            float t[LANES] = {0};
            vf_store_n(t, d, size - i);
            d = vf_load(t);
        }
        squares = vf_fma(d, d, squares);
    }
    float r = 1.0f / sqrtf(vf_sum(squares) / (float)size + eps);
    for (int i = 0; i < size; i++) {
        float y = (x[i] - mean) * r;
        if (weight) y *= weight[i];
        out[i] = bias ? y + bias[i] : y;
    }
}

static void mix(const float *x, const float *by, float *out, int n_in, int n_out, int size) {
    for (int o = 0; o < n_out; o++, by += n_in, out += size)
        for (int i = 0; i < size; i += LANES) {
            vf sum = vf_mul(vf_set1(by[0]), load(x, i, size));
            for (int j = 1; j < n_in; j++)
                sum = vf_fma(vf_set1(by[j]), load(x + (size_t)j * (size_t)size, i, size), sum);
            store(out, sum, i, size);
        }
}

static float dot(const float *a, const float *b, int n) {
    vf sum = vf_zero();
    for (int i = 0; i < n; i += LANES) sum = vf_fma(load(a, i, n), load(b, i, n), sum);
    return vf_sum(sum);
}

/* Powers of e less the largest, divided by their sum. */
static void softmax(const float *x, float *out, int n) {
    float max = x[0];
    for (int i = 1; i < n; i++)
        if (x[i] > max) max = x[i];
    for (int i = 0; i < n; i++) out[i] = x[i] - max;
    vf sum = vf_zero();
    for (int i = 0; i < n; i += LANES) {
        vf e = vf_exp(load(out, i, n));
        store(out, e, i, n);
        sum = vf_add(sum, load(out, i, n));
    }
    float total = vf_sum(sum);
    for (int i = 0; i < n; i++) out[i] /= total;
}

/* Each of n lines of n values, `step` apart, divided by its sum plus eps; lines are `line` apart. */
static void share_out(float *x, int n, int line, int step, float eps) {
    for (int i = 0; i < n; i++, x += line) {
        float sum = eps;
        for (int j = 0; j < n; j++) sum += x[j * step];
        for (int j = 0; j < n; j++) x[j * step] /= sum;
    }
}

static void sinkhorn(const float *x, float *out, int n, int rounds, float eps) {
    for (int i = 0; i < n; i++) {
        softmax(x + i * n, out + i * n, n);
        for (int j = 0; j < n; j++) out[i * n + j] += eps;
    }
    share_out(out, n, 1, n, eps);
    for (int k = 1; k < rounds; k++) {
        share_out(out, n, n, 1, eps);
        share_out(out, n, 1, n, eps);
    }
}

/* The place of the largest of n; the lowest among equals and where there is nothing to compare. */
static int best(const float *x, int n) {
    int at = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[at]) at = i;
    return at;
}

/* Leave only the groups whose two best sum highest: the others become minus infinity. */
static void keep_groups(const edge_router *r, float *wanted, float *two) {
    int size = r->n_expert / r->n_groups;
    for (int g = 0; g < r->n_groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = g * size; i < (g + 1) * size; i++) {
            if (wanted[i] > first) second = first, first = wanted[i];
            else if (wanted[i] > second) second = wanted[i];
        }
        two[g] = size > 1 ? first + second : first;
    }
    /* The worst of the groups left goes, the highest place among equals. */
    for (int left = r->n_groups; left > r->n_groups_used; left--) {
        int worst = -1;
        for (int g = 0; g < r->n_groups; g++)
            if (two[g] < INFINITY && (worst < 0 || !(two[g] > two[worst]))) worst = g;
        if (worst < 0) return;
        for (int i = worst * size; i < (worst + 1) * size; i++) wanted[i] = -INFINITY;
        two[worst] = INFINITY;
    }
}

static void route(const edge_router *r, const float *logits, float *out, float *scratch) {
    int n = r->n_expert, used = r->n_used;
    float *score = scratch, *wanted = scratch + n, *weight = out + used;
    if (r->scoring == EDGE_SOFTMAX) softmax(logits, score, n);
    else
        for (int i = 0; i < n; i += LANES) {
            vf x = load(logits, i, n);
            store(score, r->scoring == EDGE_EACH_SIGMOID ? sigmoid(x) : x, i, n);
        }
    for (int i = 0; i < n; i++) wanted[i] = r->bias ? score[i] + r->bias[i] : score[i];
    if (r->n_groups > 1) keep_groups(r, wanted, wanted + n);
    for (int i = 0; i < used; i++) {
        int e = best(wanted, n);
        out[i] = (float)e;
        weight[i] = score[e];
        wanted[e] = -INFINITY;
    }
    if (r->scoring == EDGE_CHOSEN) softmax(weight, weight, used);
    if (r->normalised) {
        float sum = 0.0f;
        for (int i = 0; i < used; i++) sum += weight[i];
        if (sum < 0x1p-14f) sum = 0x1p-14f;
        for (int i = 0; i < used; i++) weight[i] /= sum;
    }
    for (int i = 0; i < used; i++) weight[i] *= r->scale;
}

void FN(edge_fill_experts)(edge_kernels *t) {
    t->layer_norm = layer_norm;
    t->mix = mix;
    t->dot = dot;
    t->softmax = softmax;
    t->sinkhorn = sinkhorn;
    t->route = route;
}
