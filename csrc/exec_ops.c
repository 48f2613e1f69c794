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
        int64_t at = op->flags & EDGE_FLAG_POSITION ? step->positions[r] : step->batch->tokens[r];
        if (at >= w->n_out) at = w->n_out - 1;
        const uint8_t *row = (const uint8_t *)w->data + (size_t)at * w->row_bytes;
        step->exec->kernels->dequantize[w->type](row, out + r * op->width, op->width);
    }
}

static const float *vector(const edge_model *m, int32_t weight) {
    return weight < 0 ? NULL : m->weights[weight].data;
}

/* With few rows, memory is what products wait for: begin with the next one's weights before the barrier. */
enum { FETCH_ROWS = 32, FETCH_BYTES = 1 << 15, FEW_TILES = 2 };

/* Where this thread begins in the product of few rows that follows after op `index`; NULL where nobody knows yet. */
static const uint8_t *next_weights(const edge_exec *e, int index, int thread, int n) {
    for (int i = index + 1; i < e->model.n_ops; i++) {
        const edge_op *op = &e->model.ops[i];
        if (op->kind == EDGE_OP_GATHER) return NULL;
        if (op->kind != EDGE_OP_MATMUL) continue;
        const edge_weight *w = &e->model.weights[op->weight];
        int64_t tiles = (w->n_out + 15) / 16, from, to;
        edge_share((tiles + FEW_TILES - 1) / FEW_TILES, 1, thread, n, &from, &to);
        return (const uint8_t *)w->data + (size_t)(from * FEW_TILES * 16) * w->row_bytes;
    }
    return NULL;
}

static void matmul(edge_step *step, int index, int rows, int thread, int n) {
    edge_exec *e = step->exec;
    const edge_op *op = &e->model.ops[index];
    const edge_weight *w = &e->model.weights[op->weight];
    edge_matrix matrix = {w->data, w->row_bytes, (int)w->n_in, (int)w->n_out, vector(&e->model, op->scale),
                          vector(&e->model, op->bias), NULL};
    edge_act act = e->act;
    act.n_block = (int)(w->n_in / 32);
    const float *a = edge_value(step, op->a);
    float *out = edge_value(step, op->out);
    void *scratch = edge_thread_scratch(e, thread);
    int tiles = (int)((w->n_out + 15) / 16), group = rows <= FETCH_ROWS ? FEW_TILES : 1;
    const uint8_t *then = rows == 1 ? next_weights(e, index, thread, n) : NULL;
    for (edge_turn turn = {0}; edge_take(e, index, (tiles + group - 1) / group, thread, n, &turn);) {
        int from = turn.unit * group, to = from + group < tiles ? from + group : tiles;
        if (rows == 1) {
            int end = turn.end * group;
            matrix.n_out = 16 * end < w->n_out ? 16 * end : (int)w->n_out;
            matrix.then = turn.next >= 0 ? matrix.data + (size_t)(turn.next * group * 16) * w->row_bytes : then;
        }
        e->kernels->matmul[w->type](&matrix, a, &act, rows, out, from, to, scratch);
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
    case EDGE_OP_MUL: k->mul(a, edge_value(step, op->b) + from, out, count); break;
    case EDGE_OP_GLU:
        edge_glu(k, op, a, edge_value(step, op->b) + from, out, count);
        break;
    case EDGE_OP_SCALE:
        if (op->f1 == 0.0f) k->scale(a, out, count, op->f0);
        else k->scale_by(a, &op->f0, out, count, count, op->f1);
        break;
    case EDGE_OP_SOFTCAP: (op->size ? k->clamp : k->softcap)(a, out, count, op->f0); break;
    case EDGE_OP_ACTIVATE: k->activate(a, out, count, op->activation); break;
    default: break;
    }
}

/* A weight longer than a run has a part for each run of its own. */
static void rms_norm(edge_step *step, const edge_op *op, int64_t row) {
    const edge_model *m = &step->exec->model;
    const float *x = edge_value(step, op->a) + row * op->width, *weight = vector(m, op->weight);
    float *out = edge_value(step, op->out) + row * op->width;
    int of_runs = weight && m->weights[op->weight].n_in != op->size, n = of_runs ? op->size : op->width;
    for (int at = 0; at < op->width; at += n)
        step->exec->kernels->rms_norm(x + at, of_runs ? weight + at : weight, out + at, n, op->size, op->f0);
}

static void layer_norm(edge_step *step, const edge_op *op, int64_t row) {
    const edge_model *m = &step->exec->model;
    const float *x = edge_value(step, op->a) + row * op->width, *weight = vector(m, op->weight), *bias = vector(m, op->bias);
    float *out = edge_value(step, op->out) + row * op->width;
    int of_runs = weight && m->weights[op->weight].n_in != op->size;
    for (int at = 0; at < op->width; at += op->size)
        step->exec->kernels->layer_norm(x + at, weight ? weight + (of_runs ? at : 0) : NULL,
                                        bias ? bias + (of_runs ? at : 0) : NULL, out + at, op->size, op->f0,
                                        op->activation);
}

/* Each value of the narrow side multiplies `size` neighbours. */
static void spread(edge_step *step, const edge_op *op, int64_t row, int thread) {
    const edge_kernels *k = step->exec->kernels;
    const float *x = edge_value(step, op->kind == EDGE_OP_GLU ? op->b : op->a) + row * op->width, *by;
    if (op->kind == EDGE_OP_SCALE) {
        by = vector(&step->exec->model, op->weight);
    } else {
        int n = op->width / op->size;
        by = edge_value(step, op->kind == EDGE_OP_GLU ? op->a : op->b) + row * n;
        if (op->kind == EDGE_OP_GLU) {
            float *active = (float *)(void *)edge_thread_scratch(step->exec, thread);
            k->activate(by, active, (size_t)n, op->activation);
            by = active;
        }
    }
    k->scale_by(x, by, edge_value(step, op->out) + row * op->width, (size_t)op->width, op->size > 1 ? (size_t)op->size : 1,
                op->kind == EDGE_OP_SCALE ? op->f1 : 0.0f);
}

static void concat(edge_step *step, const edge_op *op, int64_t row) {
    int runs = op->width / (op->size + op->n_head);
    const float *a = edge_value(step, op->a) + row * runs * op->size;
    const float *b = edge_value(step, op->b) + row * (op->activation ? 1 : runs) * op->n_head;
    float *to = edge_value(step, op->out) + row * op->width;
    for (int i = 0; i < runs; i++, a += op->size, to += op->size + op->n_head) {
        memcpy(to, a, (size_t)op->size * sizeof *to);
        memcpy(to + op->size, b, (size_t)op->n_head * sizeof *to);
        if (!op->activation) b += op->n_head;
    }
}

static void dots(edge_step *step, const edge_op *op, int64_t row) {
    const float *a = edge_value(step, op->a) + row * op->width * op->size;
    const float *b = edge_value(step, op->b) + row * op->width * op->size;
    float *out = edge_value(step, op->out) + row * op->width;
    for (int i = 0; i < op->width; i++, a += op->size, b += op->size)
        out[i] = step->exec->kernels->dot(a, b, op->size);
}

static void mix(edge_step *step, const edge_op *op, int64_t row) {
    int n_out = op->width / op->size;
    step->exec->kernels->mix(edge_value(step, op->a) + row * op->n_head * op->size,
                             edge_value(step, op->b) + row * n_out * op->n_head,
                             edge_value(step, op->out) + row * op->width, op->n_head, n_out, op->size);
}

static void rope(edge_step *step, const edge_op *op, int64_t row) {
    const edge_rope *rope = &step->exec->model.ropes[op->rope];
    const float *x = edge_value(step, op->a) + row * op->width;
    float *out = edge_value(step, op->out) + row * op->width;
    if (op->d && out != x) { /* the kernel copies only what follows the part that turns */
        memcpy(out, x, (size_t)op->width * sizeof *out);
        x = out;
    }
    step->exec->kernels->rope(x + op->d, step->exec->angles[op->rope] + row * rope->n_rot, out + op->d,
                              op->width / op->size, op->size, rope->n_rot, rope->neox);
}

static void slice(edge_step *step, const edge_op *op, int64_t row) {
    int32_t runs = op->width / op->n_head;
    const float *from = edge_value(step, op->a) + row * runs * op->size + op->activation;
    float *to = edge_value(step, op->out) + row * op->width;
    for (int32_t i = 0; i < runs; i++, from += op->size, to += op->n_head)
        memcpy(to, from, (size_t)op->n_head * sizeof *to);
}

static void call(edge_step *step, const edge_op *op, int64_t from, int64_t to) {
    const edge_model *m = &step->exec->model;
    const float *a = edge_value(step, op->a) + from * op->size;
    const float *b = op->n_head ? edge_value(step, op->b) + from * op->n_head : NULL;
    float *out = edge_value(step, op->out) + from * op->width;
    const edge_call *function = &m->calls[op->d];
    const float *params = function->n_params ? vector(m, op->weight) : NULL;
    if (from < to) function->run(params, a, b, out, to - from, op->size, op->n_head, op->width);
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
        for (int64_t r = from; r < to; r++) rms_norm(step, op, r);
        break;
    case EDGE_OP_ROPE:
        for (int64_t r = from; r < to; r++) rope(step, op, r);
        break;
    case EDGE_OP_POSITION_SCALE:
        for (int64_t r = from; r < to; r++) {
            double times = 1.0 + (double)op->f0 * log(1.0 + (double)((step->positions[r] + op->n_head) / op->size));
            e->kernels->scale(edge_value(step, op->a) + r * op->width, edge_value(step, op->out) + r * op->width,
                              (size_t)op->width, (float)times);
        }
        break;
    case EDGE_OP_L2_NORM:
        for (int64_t r = from; r < to; r++)
            e->kernels->l2_norm(edge_value(step, op->a) + r * op->width, edge_value(step, op->out) + r * op->width,
                                op->width, op->size, op->f0);
        break;
    case EDGE_OP_SOFTMAX:
        for (int64_t r = from; r < to; r++)
            for (int at = 0; at < op->width; at += op->size)
                e->kernels->softmax(edge_value(step, op->a) + r * op->width + at,
                                    edge_value(step, op->out) + r * op->width + at, op->size);
        break;
    case EDGE_OP_SINKHORN:
        for (int64_t r = from; r < to; r++)
            for (int at = 0; at < op->width; at += op->size * op->size)
                e->kernels->sinkhorn(edge_value(step, op->a) + r * op->width + at,
                                     edge_value(step, op->out) + r * op->width + at, op->size, op->n_head, op->f0);
        break;
    case EDGE_OP_SLICE:
        for (int64_t r = from; r < to; r++) slice(step, op, r);
        break;
    case EDGE_OP_CONV1D:
    case EDGE_OP_SSM_SCAN:
    case EDGE_OP_GATED_DELTA: edge_run_recurrent(step, op, thread, n); break;
    case EDGE_OP_ATTENTION: edge_run_attention(step, index, thread, team); break;
    case EDGE_OP_SELECT:
        for (int64_t r = from; r < to; r++)
            memcpy(edge_value(step, op->out) + r * op->width,
                   edge_value(step, op->a) + (int64_t)step->batch->wanted[r] * op->width,
                   (size_t)op->width * sizeof(float));
        break;
    case EDGE_OP_LAYER_NORM:
        for (int64_t r = from; r < to; r++) layer_norm(step, op, r);
        break;
    case EDGE_OP_CONCAT:
        for (int64_t r = from; r < to; r++) concat(step, op, r);
        break;
    case EDGE_OP_DOT:
        for (int64_t r = from; r < to; r++) dots(step, op, r);
        break;
    case EDGE_OP_MIX:
        for (int64_t r = from; r < to; r++) mix(step, op, r);
        break;
    case EDGE_OP_ROUTE: edge_run_route(step, op, from, to, thread); break;
    case EDGE_OP_CALL: call(step, op, from, to); break;
    case EDGE_OP_GATHER:
        if (op->flags & EDGE_FLAG_FUSED) edge_run_mixture(step, index, rows, thread, team);
        else edge_run_gather(step, op, rows, thread, team);
        break;
    case EDGE_OP_EXPERTS: edge_run_experts(step, index, thread, n); break;
    default:
        if (op->kind == EDGE_OP_SCALE ? op->weight >= 0 : (op->kind == EDGE_OP_MUL || op->kind == EDGE_OP_GLU) && op->size > 1) {
            for (int64_t r = from; r < to; r++) spread(step, op, r, thread);
        } else {
            elementwise(step, op, rows, thread, n);
        }
        break;
    }
}
