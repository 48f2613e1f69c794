/* One op on one thread: which share of the work is whose, and which kernel does it. */
#include <math.h>
#include <string.h>

#include "exec.h"
#include "trig.h"

/* Cosine and sine of every row's position, once a step for each rope of the model. */
void edge_run_angles(edge_step *step, int thread, int n) {
    const edge_model *m = &step->exec->model;
    int64_t from, to;
    edge_share(step->batch->n_rows, 1, thread, n, &from, &to);
    for (int k = 0; k < m->n_ropes; k++) {
        const edge_rope *rope = &m->ropes[k];
        for (int64_t r = from; r < to; r++) {
            float *cs = step->exec->angles[k] + r * rope->n_rot;
            for (int i = 0; i < rope->n_rot / 2; i++) {
                double sine, cosine;
                edge_sincos(step->positions[r] * rope->inv_freq[i], &sine, &cosine);
                cs[2 * i] = (float)cosine * rope->magnitude;
                cs[2 * i + 1] = (float)sine * rope->magnitude;
            }
        }
    }
}

static void embed(edge_step *step, const edge_op *op, int64_t from, int64_t to) {
    const edge_weight *w = &step->exec->model.weights[op->weight];
    float *out = edge_value(step, op->out);
    for (int64_t r = from; r < to; r++) {
        const uint8_t *row = (const uint8_t *)w->data + (size_t)step->batch->tokens[r] * w->row_bytes;
        step->exec->kernels->dequantize[w->type](row, out + r * op->width, op->width);
    }
}

static const float *vector(const edge_model *m, int32_t weight) {
    return weight < 0 ? NULL : m->weights[weight].data;
}

static void matmul(edge_step *step, int index, int rows, int thread, int n) {
    edge_exec *e = step->exec;
    const edge_op *op = &e->model.ops[index];
    const edge_weight *w = &e->model.weights[op->weight];
    edge_matrix matrix = {w->data, w->row_bytes, (int)w->n_in, (int)w->n_out, vector(&e->model, op->scale),
                          vector(&e->model, op->bias)};
    int tiles = (int)((w->n_out + 15) / 16), chunk = tiles / (4 * n);
    if (chunk < 1) chunk = 1;
    edge_act act = e->act;
    act.n_block = (int)(w->n_in / 32);
    for (;;) {
        int from = atomic_fetch_add_explicit(&e->next[2 * index], chunk, memory_order_relaxed);
        if (from >= tiles) return;
        int to = from + chunk < tiles ? from + chunk : tiles;
        e->kernels->matmul[w->type](&matrix, edge_value(step, op->a), &act, rows, edge_value(step, op->out), from, to,
                                    edge_thread_scratch(e, thread));
    }
}

static void quantize(edge_step *step, const edge_op *op, int rows, int thread, int n) {
    edge_exec *e = step->exec;
    edge_act act = e->act;
    act.n_block = op->width / 32;
    int64_t from, to;
    edge_share((int64_t)rows * act.n_block, 1, thread, n, &from, &to);
    const float *x = edge_value(step, op->a);
    while (from < to) {
        int64_t row = from / act.n_block, b0 = from % act.n_block, b1 = act.n_block;
        if (to - row * act.n_block < b1) b1 = to - row * act.n_block;
        e->kernels->quantize(x + row * op->width, (int)row, (int)b0, (int)b1, &act);
        from = row * act.n_block + b1;
    }
}

static void elementwise(edge_step *step, const edge_op *op, int rows, int thread, int n) {
    const edge_kernels *k = step->exec->kernels;
    int64_t from, to;
    edge_share((int64_t)rows * op->width, 64, thread, n, &from, &to);
    if (from >= to) return;
    size_t count = (size_t)(to - from);
    float *out = edge_value(step, op->out) + from;
    const float *a = edge_value(step, op->a) + from;
    switch (op->kind) {
    case EDGE_OP_ADD: k->add(a, edge_value(step, op->b) + from, out, count); break;
    case EDGE_OP_GLU: k->glu(a, edge_value(step, op->b) + from, out, count, op->activation); break;
    case EDGE_OP_SCALE: k->scale(a, out, count, op->f0); break;
    case EDGE_OP_SOFTCAP: k->softcap(a, out, count, op->f0); break;
    default: break;
    }
}

void edge_run_op(edge_step *step, int index, int thread, edge_team *team) {
    edge_exec *e = step->exec;
    const edge_op *op = &e->model.ops[index];
    int n = edge_team_size(team), rows = op->flags & EDGE_FLAG_WANTED ? step->batch->n_wanted : step->batch->n_rows;
    int64_t from, to;
    edge_share(rows, 1, thread, n, &from, &to);
    switch (op->kind) {
    case EDGE_OP_EMBED: embed(step, op, from, to); break;
    case EDGE_OP_QUANTIZE: quantize(step, op, rows, thread, n); break;
    case EDGE_OP_MATMUL:
        if (rows) matmul(step, index, rows, thread, n);
        break;
    case EDGE_OP_RMS_NORM:
        for (int64_t r = from; r < to; r++)
            e->kernels->rms_norm(edge_value(step, op->a) + r * op->width, vector(&e->model, op->weight),
                                 edge_value(step, op->out) + r * op->width, op->width, op->size, op->f0);
        break;
    case EDGE_OP_ROPE: {
        const edge_rope *rope = &e->model.ropes[op->rope];
        for (int64_t r = from; r < to; r++)
            e->kernels->rope(edge_value(step, op->a) + r * op->width, e->angles[op->rope] + r * rope->n_rot,
                             edge_value(step, op->out) + r * op->width, op->width / op->size, op->size, rope->n_rot,
                             rope->neox);
        break;
    }
    case EDGE_OP_POSITION_SCALE:
        for (int64_t r = from; r < to; r++) {
            double times = 1.0 + (double)op->f0 * log(1.0 + (double)(step->positions[r] / op->size));
            e->kernels->scale(edge_value(step, op->a) + r * op->width, edge_value(step, op->out) + r * op->width,
                              (size_t)op->width, (float)times);
        }
        break;
    case EDGE_OP_ATTENTION: edge_run_attention(step, index, thread, team); break;
    case EDGE_OP_SELECT:
        for (int64_t r = from; r < to; r++)
            memcpy(edge_value(step, op->out) + r * op->width,
                   edge_value(step, op->a) + (int64_t)step->batch->wanted[r] * op->width,
                   (size_t)op->width * sizeof(float));
        break;
    default: elementwise(step, op, rows, thread, n); break;
    }
}
