/* Mixtures of experts: pairs of a row and a slot, sorted by expert, so that each expert's matrix is unpacked once a
 * step for all rows that chose it, and matrices nobody chose are never touched.
 */
#include <string.h>

#include "exec.h"

enum { WIDE_TILES = 8 }; /* of one call with several rows: their results lie in scratch before they are put in place */

size_t edge_experts_scratch(int32_t max_rows) { return (size_t)max_rows * WIDE_TILES * 16 * sizeof(float); }

static const float *vector(const edge_model *m, int32_t weight) {
    return weight < 0 ? NULL : m->weights[weight].data;
}

/* The expert of a pair: what the router wrote, or number 0 where that is nonsense. */
static int32_t expert_of(const edge_step *step, const edge_op *op, int32_t pair) {
    if (op->flags & EDGE_FLAG_FIXED) return pair % op->n_head;
    float e = edge_value(step, op->b)[(int64_t)(pair / op->n_head) * 2 * op->n_head + pair % op->n_head];
    return e >= 0.0f && e < (float)op->size ? (int32_t)e : 0;
}

/* Sort the pairs by expert, those of one expert by row. */
static void sort(const edge_step *step, const edge_op *op, int32_t pairs) {
    edge_sorted *s = &step->exec->sorted;
    memset(s->start, 0, ((size_t)op->size + 1) * sizeof *s->start);
    for (int32_t i = 0; i < pairs; i++) s->start[expert_of(step, op, i) + 1]++;
    s->n_active = 0;
    for (int32_t e = 0; e < op->size; e++) {
        if (s->start[e + 1]) s->active[s->n_active++] = e;
        s->start[e + 1] += s->start[e];
    }
    for (int32_t i = 0; i < pairs; i++) s->pair[s->start[expert_of(step, op, i)]++] = i;
    memmove(s->start + 1, s->start, (size_t)op->size * sizeof *s->start);
    s->start[0] = 0;
}

void edge_run_gather(edge_step *step, const edge_op *op, int rows, int thread, edge_team *team) {
    edge_exec *e = step->exec;
    int32_t pairs = rows * op->n_head;
    if (thread == 0) sort(step, op, pairs);
    edge_team_barrier(team);
    edge_act act = e->act;
    act.n_block = op->width / 32;
    int64_t from, to;
    edge_share(pairs, 1, thread, edge_team_size(team), &from, &to);
    const float *x = edge_value(step, op->a);
    for (int64_t i = from; i < to; i++) {
        int32_t pair = e->sorted.pair[i];
        const float *row = x + (int64_t)(op->flags & EDGE_FLAG_SHARED ? pair / op->n_head : pair) * op->width;
        if (op->activation) memcpy(e->gathered + i * op->width, row, (size_t)op->width * sizeof *row);
        else e->kernels->quantize(row, (int)i, 0, act.n_block, &act);
    }
}

/* The activations of the sorted pairs from number `at` on. */
static edge_act from_pair(const edge_exec *e, int n_block, size_t at) {
    size_t blocks = at * (size_t)n_block;
    return (edge_act){e->act.q + blocks * 32, e->act.d + blocks * 2, e->act.sum32 + blocks, e->act.sum16 + blocks * 2,
                      e->act.isum16 + blocks * 2, n_block};
}

/* Output tiles tile0..tile1-1 of one expert, for all the pairs that chose it. */
static void run_tiles(edge_step *step, const edge_op *op, int32_t expert, int tile0, int tile1, int thread) {
    edge_exec *e = step->exec;
    const edge_weight *w = &e->model.weights[op->weight];
    const edge_sorted *s = &e->sorted;
    int32_t n_out = op->width / op->n_head, first = s->start[expert], count = s->start[expert + 1] - first;
    int64_t at = (int64_t)expert * op->size + op->d + 16 * tile0;
    const float *scale = vector(&e->model, op->scale), *bias = vector(&e->model, op->bias);
    int columns = 16 * tile1 < n_out ? 16 * (tile1 - tile0) : n_out - 16 * tile0;
    edge_matrix m = {(const uint8_t *)w->data + (size_t)at * w->row_bytes, w->row_bytes, (int)w->n_in, columns,
                     scale ? scale + expert : NULL, bias ? bias + at : NULL};
    edge_act act = from_pair(e, (int)(w->n_in / 32), (size_t)first);
    const float *x = e->gathered ? e->gathered + (size_t)first * (size_t)w->n_in : NULL;
    uint8_t *scratch = edge_thread_scratch(e, thread);
    float *wide = (float *)(void *)(scratch + e->tile_bytes), *out = edge_value(step, op->out) + 16 * tile0;
    if (count == 1) { /* in place */
        e->kernels->matmul[w->type](&m, x, &act, 1, out + (int64_t)s->pair[first] * n_out, 0, tile1 - tile0, scratch);
        return;
    }
    /* Rows of nonsense may choose an expert more than once: there may be more pairs than rows. */
    for (int32_t done = 0, some; done < count; done += some) {
        some = count - done < e->model.max_rows ? count - done : e->model.max_rows;
        act = from_pair(e, (int)(w->n_in / 32), (size_t)(first + done));
        e->kernels->matmul[w->type](&m, x ? x + (size_t)done * (size_t)w->n_in : NULL, &act, some, wide, 0,
                                    tile1 - tile0, scratch);
        for (int32_t i = 0; i < some; i++)
            memcpy(out + (int64_t)s->pair[first + done + i] * n_out, wide + (size_t)i * (size_t)columns,
                   (size_t)columns * sizeof *out);
    }
}

void edge_run_experts(edge_step *step, int index, int thread, int n) {
    edge_exec *e = step->exec;
    const edge_op *op = &e->model.ops[index];
    const edge_sorted *s = &e->sorted;
    int tiles = (op->width / op->n_head + 15) / 16;
    int64_t per = (int64_t)tiles * s->n_active / (4 * n);
    int chunk = per < 1 ? 1 : per > WIDE_TILES ? WIDE_TILES : (int)per;
    int chunks = (tiles + chunk - 1) / chunk;
    for (int job; (job = atomic_fetch_add_explicit(&e->next[2 * index], 1, memory_order_relaxed)) < chunks * s->n_active;) {
        int from = job % chunks * chunk, to = from + chunk < tiles ? from + chunk : tiles;
        run_tiles(step, op, s->active[job / chunks], from, to, thread);
    }
}

void edge_run_route(edge_step *step, const edge_op *op, int64_t from, int64_t to, int thread) {
    edge_exec *e = step->exec;
    edge_router router = {op->size, op->n_head, op->d, op->e, op->activation & 3, op->activation >> 2, op->f0,
                          vector(&e->model, op->weight)};
    float *scratch = (float *)(void *)edge_thread_scratch(e, thread);
    for (int64_t r = from; r < to; r++)
        e->kernels->route(&router, edge_value(step, op->a) + r * op->size, edge_value(step, op->out) + r * op->width,
                          scratch);
}
