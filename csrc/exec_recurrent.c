/* The ops that carry a state: which thread keeps which part of it, segment by segment. */
#include <stdio.h>
#include <string.h>

#include "exec.h"

static const float *vector(const edge_model *m, int32_t weight) {
    return weight < 0 ? NULL : m->weights[weight].data;
}

/* The state of segment i, of which the values from..to-1 begin as zeros where the sequence begins. */
static float *begin(const edge_step *step, const edge_op *op, int i, size_t from, size_t to) {
    const edge_recurrent *s = &step->exec->model.recurrent[op->state];
    float *state = step->exec->recurrent[op->state] + (size_t)step->batch->slots[i] * edge_state_size(s);
    if (step->batch->segments[i].start == 0) memset(state + from, 0, (to - from) * sizeof(float));
    return state;
}

static void conv1d(const edge_step *step, const edge_op *op, int thread, int n) {
    const edge_model *m = &step->exec->model;
    const edge_recurrent *s = &m->recurrent[op->state];
    edge_conv v = {vector(m, op->weight), vector(m, op->bias), s->d[0] + 1, s->d[1], op->size};
    int64_t from, to;
    edge_share(v.channels, 16, thread, n, &from, &to);
    if (from >= to) return;
    const float *x = edge_value(step, op->a);
    float *out = edge_value(step, op->out);
    for (int i = 0; i < step->batch->n_segments; i++) {
        const edge_segment *g = &step->batch->segments[i];
        float *window = begin(step, op, i, 0, 0);
        for (int j = 0; g->start == 0 && j < s->d[0]; j++)
            memset(window + (size_t)j * (size_t)v.channels + from, 0, (size_t)(to - from) * sizeof(float));
        step->exec->kernels->conv1d(&v, window, x, out, g->n_rows, (int)from, (int)to);
        x += (size_t)g->n_rows * (size_t)v.channels;
        out += (size_t)g->n_rows * (size_t)v.channels;
    }
}

static void ssm_scan(const edge_step *step, const edge_op *op, int thread, int n) {
    const edge_model *m = &step->exec->model;
    const edge_recurrent *s = &m->recurrent[op->state];
    edge_scan v = {.n_head = s->d[0], .head_dim = s->d[1], .d_state = s->d[2], .n_group = op->n_head,
                   .a_each = m->weights[op->weight].n_in != s->d[0],
                   .a = vector(m, op->weight), .d = vector(m, op->scale), .bias = vector(m, op->bias)};
    int64_t from, to;
    edge_share((int64_t)v.n_head * v.head_dim, 16, thread, n, &from, &to);
    if (from >= to) return;
    size_t row = 0, wide = (size_t)v.n_head * (size_t)v.head_dim, shared = (size_t)v.n_group * (size_t)v.d_state;
    for (int i = 0; i < step->batch->n_segments; i++) {
        const edge_segment *g = &step->batch->segments[i];
        float *state = begin(step, op, i, (size_t)from * (size_t)v.d_state, (size_t)to * (size_t)v.d_state);
        step->exec->kernels->ssm_scan(&v, state, edge_value(step, op->a) + row * wide,
                                      edge_value(step, op->b) + row * (size_t)v.n_head,
                                      edge_value(step, op->c) + row * shared, edge_value(step, op->d) + row * shared,
                                      edge_value(step, op->out) + row * wide, g->n_rows, (int)from, (int)to);
        row += (size_t)g->n_rows;
    }
}

static void gated_delta(const edge_step *step, const edge_op *op, int thread, int n) {
    const edge_model *m = &step->exec->model;
    const edge_recurrent *s = &m->recurrent[op->state];
    edge_delta v = {.n_head = s->d[0], .head_dim_v = s->d[1], .head_dim = s->d[2], .n_head_k = op->n_head,
                    .grouped = op->size, .g_each = op->activation,
                    .scale = op->f0, .a = vector(m, op->weight), .bias = vector(m, op->bias)};
    int64_t from, to;
    edge_share((int64_t)v.n_head * v.head_dim_v, 16, thread, n, &from, &to);
    if (from >= to) return;
    size_t row = 0, keys = (size_t)v.n_head_k * (size_t)v.head_dim, values = (size_t)v.n_head * (size_t)v.head_dim_v;
    size_t rates = (size_t)v.n_head * (size_t)(v.g_each ? v.head_dim : 1);
    for (int i = 0; i < step->batch->n_segments; i++) {
        const edge_segment *g = &step->batch->segments[i];
        float *state = begin(step, op, i, (size_t)from * (size_t)v.head_dim, (size_t)to * (size_t)v.head_dim);
        step->exec->kernels->gated_delta(&v, state, edge_value(step, op->a) + row * keys,
                                         edge_value(step, op->b) + row * keys, edge_value(step, op->c) + row * values,
                                         edge_value(step, op->d) + row * rates,
                                         edge_value(step, op->e) + row * (size_t)v.n_head,
                                         edge_value(step, op->out) + row * values, g->n_rows, (int)from, (int)to,
                                         (float *)(void *)edge_thread_scratch(step->exec, thread));
        row += (size_t)g->n_rows;
    }
}

void edge_run_recurrent(const edge_step *step, const edge_op *op, int thread, int n) {
    switch (op->kind) {
    case EDGE_OP_CONV1D: conv1d(step, op, thread, n); break;
    case EDGE_OP_SSM_SCAN: ssm_scan(step, op, thread, n); break;
    default: gated_delta(step, op, thread, n); break;
    }
}

int edge_exec_copy_states(edge_exec *e, const int32_t *pairs, int n, char *message, size_t size) {
    for (int i = 0; i < 2 * n; i++)
        if (pairs[i] < 0 || pairs[i] >= e->model.n_sequences) {
            snprintf(message, size, "slot %d is outside of 0..%d", pairs[i], e->model.n_sequences - 1);
            return EDGE_INVALID;
        }
    for (int i = 0; i < n; i++)
        for (int s = 0; s < e->model.n_recurrent && pairs[2 * i] != pairs[2 * i + 1]; s++) {
            size_t values = edge_state_size(&e->model.recurrent[s]);
            float *all = e->recurrent[s];
            memcpy(all + (size_t)pairs[2 * i + 1] * values, all + (size_t)pairs[2 * i] * values, values * sizeof *all);
        }
    return EDGE_OK;
}
