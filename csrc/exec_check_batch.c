/* A step's batch comes from outside, too: no token, row, segment, slot or page of it is used unchecked. */
#include "exec_check.h"

int edge_check_batch(const edge_exec *e, const edge_batch *b, char *message, size_t size) {
    const edge_model *m = &e->model;
    checker checking = {m, e->kernels, message, size}, *c = &checking;
    NEED(b->n_rows > 0 && b->n_rows <= m->max_rows, "a step has %d rows, at most %d are possible", b->n_rows,
         m->max_rows);
    NEED(!b->embed || m->embedding >= 0, "the model makes no embeddings");
    NEED(b->threads > 0 && b->threads <= EDGE_MAX_THREADS, "threads is %d", b->threads);
    NEED(b->n_wanted >= 0 && b->n_wanted <= b->n_rows, "%d rows are wanted of %d", b->n_wanted, b->n_rows);
    for (int i = 0; i < b->n_rows; i++)
        NEED(in(b->tokens[i], m->n_vocab), "token %d is outside of 0..%d", b->tokens[i], m->n_vocab - 1);
    for (int i = 0; i < b->n_wanted; i++)
        NEED(in(b->wanted[i], b->n_rows) && (!i || b->wanted[i] > b->wanted[i - 1]), "wanted row %d is out of order",
             b->wanted[i]);
    int64_t rows = 0;
    for (int s = 0; s < b->n_segments; s++) {
        const edge_segment *g = &b->segments[s];
        NEED(g->n_rows > 0 && g->start >= 0 && g->n_rows <= MOST - g->start, "segment %d is %d rows from %d", s,
             g->n_rows, g->start);
        rows += g->n_rows;
    }
    NEED(rows == b->n_rows, "the segments have %lld rows, the step %d", (long long)rows, b->n_rows);
    NEED(!m->n_recurrent || b->slots, "the segments have no slots for their recurrent states");
    for (int s = 0; m->n_recurrent && s < b->n_segments; s++) {
        int32_t slot = b->slots[s];
        NEED(in(slot, m->n_sequences), "segment %d has slot %d, which is outside of 0..%d", s, slot, m->n_sequences - 1);
        for (int i = 0; i < s; i++) NEED(b->slots[i] != slot, "two segments have the slot %d", slot);
    }
    for (int s = 0; s < b->n_segments; s++) {
        const edge_segment *g = &b->segments[s];
        int32_t last = (g->start + g->n_rows - 1) / EDGE_PAGE;
        for (int i = 0; i < m->n_groups; i++) {
            int64_t at = (int64_t)s * m->n_groups + i, from = b->table_starts[at], to = b->table_starts[at + 1];
            NEED(from >= 0 && from <= to && to <= b->n_tables && to - from > last,
                 "the page table of segment %d, group %d is too short", s, i);
        }
        for (int i = 0; i < m->n_states; i++) {
            const edge_state *st = &m->states[i];
            const int32_t *table = b->tables + b->table_starts[(int64_t)s * m->n_groups + st->group];
            int32_t first = st->window && g->start >= st->window ? (g->start - st->window + 1) / EDGE_PAGE : 0;
            for (int32_t p = first; p <= last; p++)
                NEED(in(table[p], m->pages[st->group]), "segment %d sees page %d of group %d, which is not there", s,
                     table[p], st->group);
        }
    }
    return EDGE_OK;
}
