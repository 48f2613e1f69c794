/* Mixtures of experts: pairs of a row and a slot, sorted by expert, so that each expert's matrix is unpacked once a
 * step for all rows that chose it, and matrices nobody chose are never touched.
 */
#include "exec_experts.h"

#include <string.h>

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
void edge_sort_pairs(const edge_step *step, const edge_op *op, int32_t pairs, edge_sorted *s) {
    int32_t *at = s->places;
    memset(at, 0, (size_t)op->size * sizeof *at);
    for (int32_t i = 0; i < pairs; i++) at[expert_of(step, op, i)]++;
    s->n_active = 0;
    for (int32_t e = 0, first = 0; e < op->size; e++) {
        int32_t count = at[e];
        at[e] = first;
        if (!count) continue;
        s->active[s->n_active] = e;
        s->first[s->n_active++] = first;
        first += count;
    }
    s->first[s->n_active] = pairs;
    for (int32_t i = 0; i < pairs; i++) s->pair[at[expert_of(step, op, i)]++] = i;
}

/* The same for the few pairs of one row, without a look at every expert. */
void edge_sort_row(const edge_step *step, const edge_op *op, edge_sorted *s) {
    for (int32_t i = 0; i < op->n_head; i++) {
        int32_t at = i, expert = expert_of(step, op, i);
        for (; at > 0 && expert_of(step, op, s->pair[at - 1]) > expert; at--) s->pair[at] = s->pair[at - 1];
        s->pair[at] = i;
    }
    s->n_active = 0;
    for (int32_t i = 0; i < op->n_head; i++) {
        int32_t expert = expert_of(step, op, s->pair[i]);
        if (s->n_active && s->active[s->n_active - 1] == expert) continue;
        s->active[s->n_active] = expert;
        s->first[s->n_active++] = i;
    }
    s->first[s->n_active] = op->n_head;
}

edge_act edge_act_at(const edge_act *act, int n_block, size_t block) {
    return (edge_act){act->block + block, n_block};
}

static void copy_row(const edge_act *from, size_t row, const edge_act *to, size_t pair, int n_block) {
    size_t n = (size_t)n_block;
    memcpy(to->block + pair * n, from->block + row * n, n * sizeof *to->block);
}

void edge_run_gather(edge_step *step, const edge_op *op, int rows, int thread, edge_team *team) {
    edge_exec *e = step->exec;
    int32_t pairs = rows * op->n_head;
    if (thread == 0) edge_sort_pairs(step, op, pairs, &e->sorted);
    edge_team_barrier(team);
    int shared = op->flags & EDGE_FLAG_SHARED, n_block = op->width / 32;
    edge_act act = edge_act_at(&e->pairs, n_block, 0);
    int64_t from, to;
    edge_share(pairs, 1, thread, edge_team_size(team), &from, &to);
    const float *x = edge_value(step, op->a);
    for (int64_t i = from; i < to; i++) {
        int32_t pair = e->sorted.pair[i];
        const float *row = x + (int64_t)(shared ? pair / op->n_head : pair) * op->width;
        if (op->activation) memcpy(e->gathered + i * op->width, row, (size_t)op->width * sizeof *row);
        else if (shared) copy_row(&e->act, (size_t)(pair / op->n_head), &e->pairs, (size_t)i, n_block);
        else e->kernels->quantize(row, (int)i, 0, n_block, &act);
    }
}

edge_units edge_units_of(const edge_op *op, const edge_sorted *s, int few, int many, int n) {
    int tiles = (op->width / op->n_head + 15) / 16, group = few;
    while (s->first[s->n_active] >= EDGE_FEW_PAIRS * s->n_active && 2 * group <= many &&
           (int64_t)tiles * s->n_active >= (int64_t)8 * group * n)
        group *= 2;
    int groups = (tiles + group - 1) / group;
    return (edge_units){tiles, group, groups, groups * s->n_active};
}

const uint8_t *edge_expert_rows(const edge_exec *e, const edge_op *op, int32_t expert, int tile) {
    const edge_weight *w = &e->model.weights[op->weight];
    return (const uint8_t *)w->data + (size_t)((int64_t)expert * op->size + op->d + 16 * tile) * w->row_bytes;
}

edge_part_of_expert edge_part_at(const edge_exec *e, const edge_op *op, const edge_sorted *s, const edge_units *u,
                                 const edge_turn *turn, const uint8_t *then) {
    int a = turn->unit / u->groups, from = turn->unit % u->groups * u->group, to = from + u->group;
    int after = (a + 1) * u->groups < turn->end ? (a + 1) * u->groups : turn->end, next = after;
    if (after == turn->end) next = turn->next;
    if (next >= 0) then = edge_expert_rows(e, op, s->active[next / u->groups], next % u->groups * u->group);
    int end = after - a * u->groups == u->groups ? u->tiles : (after - a * u->groups) * u->group;
    return (edge_part_of_expert){a, s->active[a], from, to < u->tiles ? to : u->tiles, end, then};
}

void edge_multiply_expert(const edge_exec *e, const edge_op *op, const edge_part_of_expert *p, const float *x,
                          const edge_act *act, int rows, float *out, void *scratch) {
    const edge_weight *w = &e->model.weights[op->weight];
    int n_out = op->width / op->n_head, first = rows == 1 ? 0 : p->from, last = rows == 1 ? p->end : p->to;
    int64_t at = (int64_t)p->expert * op->size + op->d + 16 * first;
    const float *scale = vector(&e->model, op->scale), *bias = vector(&e->model, op->bias);
    edge_matrix m = {edge_expert_rows(e, op, p->expert, first), w->row_bytes, (int)w->n_in,
                     16 * last < n_out ? 16 * (last - first) : n_out - 16 * first, scale ? scale + p->expert : NULL,
                     bias ? bias + at : NULL, last < p->end ? edge_expert_rows(e, op, p->expert, last) : p->then};
    e->kernels->matmul[w->type](&m, x, act, rows, out, p->from - first, p->to - first, scratch);
}

void edge_multiply_pairs(edge_step *step, const edge_op *op, const edge_sorted *s, const edge_part_of_expert *p,
                         const edge_act *all, const float *gathered, int thread) {
    edge_exec *e = step->exec;
    int32_t n_in = (int32_t)e->model.weights[op->weight].n_in, n_out = op->width / op->n_head;
    int32_t first = s->first[p->at], count = s->first[p->at + 1] - first;
    size_t columns = (size_t)(16 * p->to < n_out ? 16 * p->to : n_out) - 16 * (size_t)p->from;
    uint8_t *scratch = edge_thread_scratch(e, thread);
    float *wide = (float *)(void *)(scratch + e->tile_bytes), *out = edge_value(step, op->out);
    /* Rows of nonsense may choose an expert more than once: there may be more pairs than rows. */
    for (int32_t done = 0, some; done < count; done += some) {
        some = count - done < e->model.max_rows ? count - done : e->model.max_rows;
        size_t at = (size_t)(first + done);
        edge_act act = edge_act_at(all, n_in / 32, at * (size_t)(n_in / 32));
        const float *x = gathered ? gathered + at * (size_t)n_in : NULL;
        const int32_t *pair = s->pair + at;
        float *to = out + (int64_t)*pair * n_out;
        edge_multiply_expert(e, op, p, x, &act, some, some == 1 ? to : wide, scratch);
        for (int32_t i = 0; some > 1 && i < some; i++)
            memcpy(out + (int64_t)pair[i] * n_out + 16 * p->from, wide + (size_t)i * columns, columns * sizeof *out);
    }
}

void edge_run_experts(edge_step *step, int index, int thread, int n) {
    edge_exec *e = step->exec;
    const edge_op *op = &e->model.ops[index];
    edge_units u = edge_units_of(op, &e->sorted, 2, EDGE_WIDE_TILES, n);
    for (edge_turn turn = {0}; edge_take(e, index, u.count, thread, n, &turn);) {
        edge_part_of_expert p = edge_part_at(e, op, &e->sorted, &u, &turn, NULL);
        edge_multiply_pairs(step, op, &e->sorted, &p, &e->pairs, e->gathered, thread);
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
