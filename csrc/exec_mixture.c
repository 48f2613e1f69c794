/* A mixture's usual ops as one: gather, gate, up, glu, gather, down.  What experts make of gate and up never leaves the
 * cache of the thread that makes it, but as the quantized input of down; it lies sorted already.
 */
#include "exec_experts.h"

/* The ops by their place after the first. */
enum { FIRST = 1, SECOND = 2, GLU = 3, DOWN = 5 };

/* A unit of gate and up for all the pairs that chose the expert, down to the input of down; or all of them read the
 * one row there is. */
static void inner(const edge_step *step, const edge_op *ops, const edge_sorted *s, const edge_part_of_expert *first,
                  const edge_part_of_expert *second, int one, int thread) {
    edge_exec *e = step->exec;
    const edge_op *glu = &ops[GLU];
    int n_in = ops->width, n_ff = ops[FIRST].width / ops->n_head, columns = 16 * (first->to - first->from);
    int32_t from = s->first[first->at], count = s->first[first->at + 1] - from;
    uint8_t *scratch = edge_thread_scratch(e, thread);
    float *a = (float *)(void *)(scratch + e->tile_bytes);
    for (int32_t done = 0, some; done < count; done += some) {
        some = one ? 1 : count - done < e->model.max_rows ? count - done : e->model.max_rows;
        size_t at = (size_t)(from + done);
        edge_act act = edge_act_at(one ? &e->act : &e->pairs, n_in / 32, one ? 0 : at * (size_t)(n_in / 32));
        float *b = a + (some == 1 ? n_ff : some * columns);
        edge_multiply_expert(e, &ops[FIRST], first, NULL, &act, some, a, scratch);
        edge_multiply_expert(e, &ops[SECOND], second, NULL, &act, some, b, scratch);
        float *x = some == 1 ? a + 16 * first->from : a, *y = some == 1 ? b + 16 * first->from : b;
        float *gate = glu->a == ops[FIRST].out ? x : y, *up = gate == x ? y : x;
        size_t n = (size_t)some * (size_t)columns;
        edge_glu(e->kernels, glu, gate, up, x, n);
        for (int32_t i = 0; i < some; i++) {
            edge_act to = edge_act_at(&e->inner, n_ff / 32, (at + (size_t)i) * (size_t)(n_ff / 32) + (size_t)first->from / 2);
            e->kernels->quantize(x + i * columns, 0, 0, columns / 32, &to);
        }
    }
}

/* What this thread reads first of `op`. */
static const uint8_t *begin_of(const edge_exec *e, const edge_op *op, const edge_sorted *s, const edge_units *u,
                               int thread, int n) {
    int64_t from, to;
    edge_share(u->count, 1, thread, n, &from, &to);
    edge_turn turn = {.unit = (int)from, .end = (int)to};
    edge_part_of_expert p = edge_part_at(e, op, s, u, &turn, NULL);
    return edge_expert_rows(e, op, p.expert, p.from);
}

void edge_run_mixture(edge_step *step, int index, int rows, int thread, edge_team *team) {
    edge_exec *e = step->exec;
    const edge_op *ops = &e->model.ops[index];
    int n = edge_team_size(team), one = rows == 1 && ops->flags & EDGE_FLAG_SHARED;
    edge_sorted s = e->sorted;
    if (one) { /* every thread for itself: quicker than to wait for one of them */
        s.pair = (int32_t *)(void *)(edge_thread_scratch(e, thread) + e->tile_bytes + e->wide_bytes);
        s.active = s.pair + ops->n_head;
        s.first = s.active + ops->n_head;
        edge_sort_row(step, ops, &s);
    } else {
        edge_run_gather(step, ops, rows, thread, team);
        edge_team_barrier(team);
        s = e->sorted;
    }
    if (!s.n_active) return;
    const edge_op *down = &ops[DOWN];
    edge_units u = edge_units_of(&ops[FIRST], &s, 2, EDGE_WIDE_TILES / 2, n), v = edge_units_of(down, &s, 2, EDGE_WIDE_TILES, n);
    const uint8_t *then = begin_of(e, down, &s, &v, thread, n);
    for (edge_turn turn = {0}; edge_take(e, index + FIRST, u.count, thread, n, &turn);) {
        edge_part_of_expert p = edge_part_at(e, &ops[FIRST], &s, &u, &turn, then);
        edge_part_of_expert q = edge_part_at(e, &ops[SECOND], &s, &u, &turn, NULL);
        inner(step, ops, &s, &p, &q, one, thread);
    }
    edge_team_barrier(team);
    for (edge_turn turn = {0}; edge_take(e, index + DOWN, v.count, thread, n, &turn);) {
        edge_part_of_expert p = edge_part_at(e, down, &s, &v, &turn, NULL);
        edge_multiply_pairs(step, down, &s, &p, &e->inner, NULL, thread);
    }
}
