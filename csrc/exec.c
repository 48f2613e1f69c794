/* The executor's life: allocate once, run steps, give everything back. */
#include "exec_experts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trig.h"

/* Zeroed, 64-byte aligned memory that goes with the executor.  Large blocks come from the system untouched,
 * so that pages nobody uses cost nothing. */
static void *hold(edge_exec *e, size_t count, size_t bytes) {
    if (bytes && count > (SIZE_MAX - 64) / bytes) return NULL;
    if (e->n_blocks == e->block_room) {
        int room = e->block_room ? 2 * e->block_room : 64;
        void **more = realloc(e->blocks, (size_t)room * sizeof *more);
        if (!more) return NULL;
        e->blocks = more;
        e->block_room = room;
    }
    void *block = calloc(1, count * bytes + 64);
    if (!block) return NULL;
    e->blocks[e->n_blocks++] = block;
    e->own_bytes += count * bytes;
    return (void *)(((uintptr_t)block + 63) & ~(uintptr_t)63);
}

static void *copy(edge_exec *e, const void *from, int32_t n, size_t bytes) {
    void *to = hold(e, (size_t)n, bytes);
    if (to && n) memcpy(to, from, (size_t)n * bytes);
    return to;
}

static int copy_model(edge_exec *e, const edge_model *m) {
    edge_model *c = &e->model;
    *c = *m;
    edge_rope *ropes = copy(e, m->ropes, m->n_ropes, sizeof *ropes);
    c->ops = copy(e, m->ops, m->n_ops, sizeof *m->ops);
    c->weights = copy(e, m->weights, m->n_weights, sizeof *m->weights);
    c->slot_width = copy(e, m->slot_width, m->n_slots, sizeof *m->slot_width);
    c->states = copy(e, m->states, m->n_states, sizeof *m->states);
    c->recurrent = copy(e, m->recurrent, m->n_recurrent, sizeof *m->recurrent);
    c->calls = copy(e, m->calls, m->n_calls, sizeof *m->calls);
    c->pages = copy(e, m->pages, m->n_groups, sizeof *m->pages);
    c->ropes = ropes;
    if (!c->ops || !c->weights || !c->slot_width || !c->states || !c->recurrent || !c->calls || !c->pages || !ropes)
        return 0;
    for (int i = 0; i < m->n_ropes; i++)
        if (!(ropes[i].inv_freq = copy(e, m->ropes[i].inv_freq, m->ropes[i].n_rot / 2, sizeof(double)))) return 0;
    return 1;
}

/* What the ops of a model need at most. */
typedef struct {
    int32_t tile_in, head_dim; /* head_dim: of the delta rule */
    int32_t n_expert, n_slots, router;
    int32_t n_ff;                /* what an expert makes within a mixture that runs as one */
    size_t act, pairs, inner;    /* values quantized at once */
    size_t gathered;             /* floats of experts' inputs */
} edge_needs;

static edge_needs needs_of(edge_exec *e) {
    const edge_model *m = &e->model;
    edge_needs n = {0};
    for (int i = 0; i < m->n_ops; i++) {
        const edge_op *op = &m->ops[i];
        size_t rows = (size_t)m->max_rows * (size_t)(op->kind == EDGE_OP_GATHER ? op->n_head : 1);
        if ((op->kind == EDGE_OP_MATMUL || op->kind == EDGE_OP_EXPERTS) && m->weights[op->weight].type != EDGE_F32) {
            int32_t n_in = (int32_t)m->weights[op->weight].n_in;
            if (n_in > n.tile_in) n.tile_in = n_in;
        }
        size_t values = rows * (size_t)op->width;
        if (op->kind == EDGE_OP_QUANTIZE && values > n.act) n.act = values;
        if (op->kind == EDGE_OP_GATHER && op->flags & EDGE_FLAG_FUSED) {
            size_t inner = rows * (size_t)op[4].width;
            if (inner > n.inner) n.inner = inner;
            if (op[4].width > n.n_ff) n.n_ff = op[4].width;
        }
        if (op->kind == EDGE_OP_GATHER && !op->activation && values > n.pairs) n.pairs = values;
        if (op->kind == EDGE_OP_GATHER) {
            if (op->size > n.n_expert) n.n_expert = op->size;
            if (op->n_head > n.n_slots) n.n_slots = op->n_head;
            if (op->activation && values > n.gathered) n.gathered = values;
        }
        if (op->kind == EDGE_OP_ROUTE && op->size > n.router) n.router = op->size;
        if (op->kind == EDGE_OP_GLU && op->size > 1 && op->width > n.router) n.router = op->width;
        if (op->kind == EDGE_OP_GATED_DELTA && m->recurrent[op->state].d[2] > n.head_dim)
            n.head_dim = m->recurrent[op->state].d[2];
        if (op->kind == EDGE_OP_ATTENTION) {
            const edge_state *s = &m->states[op->state];
            int32_t group = op->n_head / s->n_head_kv;
            if (s->head_dim > e->max_head_dim) e->max_head_dim = s->head_dim;
            if (s->head_dim_v > e->max_head_dim_v) e->max_head_dim_v = s->head_dim_v;
            if (group > e->max_queries) e->max_queries = group;
        }
    }
    if (e->max_queries < EDGE_JOB_QUERIES) e->max_queries = EDGE_JOB_QUERIES;
    return n;
}

static int hold_act(edge_exec *e, edge_act *act, size_t values) {
    size_t nb = (values + 31) / 32;
    return (act->block = hold(e, nb, sizeof *act->block)) != NULL;
}

static int hold_experts(edge_exec *e, const edge_needs *n) {
    if (!n->n_slots) return 1;
    if (n->gathered && !(e->gathered = hold(e, n->gathered, sizeof *e->gathered))) return 0;
    size_t experts = (size_t)n->n_expert, ints = sizeof *e->sorted.pair;
    return hold_act(e, &e->pairs, n->pairs) && hold_act(e, &e->inner, n->inner) &&
           (e->sorted.pair = hold(e, (size_t)e->model.max_rows, (size_t)n->n_slots * ints)) &&
           (e->sorted.active = hold(e, experts, ints)) && (e->sorted.first = hold(e, experts + 1, ints)) &&
           (e->sorted.places = hold(e, experts, ints));
}

static void size_scratch(edge_exec *e, const edge_needs *n) {
    size_t most[] = {edge_attend_scratch(e), (size_t)n->head_dim * 4,
                     (size_t)n->router * 3 * sizeof(float), 0};
    e->tile_bytes = edge_tile_bytes(n->tile_in);
    if (n->n_slots) {
        e->wide_bytes = (size_t)e->model.max_rows * EDGE_WIDE_TILES * 16 * sizeof(float);
        if ((size_t)n->n_ff * 2 * sizeof(float) > e->wide_bytes) e->wide_bytes = (size_t)n->n_ff * 2 * sizeof(float);
    }
    most[3] = e->tile_bytes + e->wide_bytes + ((size_t)n->n_slots * 3 + 1) * sizeof(int32_t);
    for (size_t i = 0; i < sizeof most / sizeof *most; i++)
        if (most[i] > e->scratch_bytes) e->scratch_bytes = most[i];
    e->scratch_bytes = (e->scratch_bytes + 4095) & ~(size_t)4095;
}

static int hold_buffers(edge_exec *e) {
    const edge_model *m = &e->model;
    size_t rows = (size_t)m->max_rows;
    edge_needs needs = needs_of(e);
    size_scratch(e, &needs);

    e->slots = hold(e, (size_t)m->n_slots, sizeof *e->slots);
    e->angles = hold(e, (size_t)m->n_ropes, sizeof *e->angles);
    e->keys = hold(e, (size_t)m->n_states, sizeof *e->keys);
    e->values = hold(e, (size_t)m->n_states, sizeof *e->values);
    e->recurrent = hold(e, (size_t)m->n_recurrent, sizeof *e->recurrent);
    e->next = hold(e, 2 * (size_t)m->n_ops, sizeof *e->next);
    e->gone = hold(e, (size_t)EDGE_MAX_THREADS * (size_t)m->n_ops, sizeof *e->gone);
    e->parts = hold(e, EDGE_PARTS, sizeof *e->parts);
    e->part_values = hold(e, EDGE_PARTS, (size_t)e->max_head_dim_v * 4);
    e->scratch = hold(e, EDGE_MAX_THREADS, e->scratch_bytes);
    if (!e->slots || !e->angles || !e->keys || !e->values || !e->recurrent || !e->next || !e->gone || !e->parts || !e->part_values || !e->scratch)
        return 0;
    if (!hold_act(e, &e->act, needs.act) || !hold_experts(e, &needs)) return 0;
    for (int i = 0; i < m->n_slots; i++)
        if (!(e->slots[i] = hold(e, rows, (size_t)m->slot_width[i] * 4))) return 0;
    for (int i = 0; i < m->n_ropes; i++)
        if (!(e->angles[i] = hold(e, rows, (size_t)m->ropes[i].n_rot * 4))) return 0;
    for (int i = 0; i < m->n_states; i++) {
        const edge_state *s = &m->states[i];
        size_t heads = (size_t)m->pages[s->group] * (size_t)s->n_head_kv;
        size_t before = e->own_bytes;
        if (!(e->keys[i] = hold(e, heads, edge_kv_bytes(m->kv_type, s->head_dim)))) return 0;
        if (!(e->values[i] = hold(e, heads, edge_kv_bytes(m->kv_type, s->head_dim_v)))) return 0;
        e->kv_bytes += e->own_bytes - before;
    }
    for (int i = 0; i < m->n_recurrent; i++) {
        size_t bytes = edge_state_size(&m->recurrent[i]) * sizeof(float);
        if (!(e->recurrent[i] = hold(e, (size_t)m->n_sequences, bytes))) return 0;
        e->kv_bytes += (size_t)m->n_sequences * bytes;
    }
    return 1;
}

int edge_exec_new(const edge_model *model, const edge_kernels *kernels, edge_exec **out, char *message, size_t size) {
    *out = NULL;
    int rc = edge_check_model(model, kernels, message, size);
    if (rc) return rc;
    edge_exec *e = calloc(1, sizeof *e);
    if (e) {
        e->kernels = kernels;
        if (copy_model(e, model) && hold_buffers(e)) {
            *out = e;
            return EDGE_OK;
        }
        edge_exec_free(e);
    }
    snprintf(message, size, "out of memory for the key/value cache and work space");
    return EDGE_NO_MEMORY;
}

void edge_exec_free(edge_exec *e) {
    if (!e) return;
    for (int i = 0; i < e->n_blocks; i++) free(e->blocks[i]);
    free(e->blocks);
    free(e);
}

void edge_exec_memory(const edge_exec *e, size_t *kv, size_t *scratch) {
    *kv = e->kv_bytes;
    *scratch = e->own_bytes - e->kv_bytes;
}

void edge_exec_cancel(edge_exec *e) { atomic_store(&e->cancelled, 1); }

static void run(void *context, int thread, edge_team *team) {
    edge_step *step = context;
    edge_exec *e = step->exec;
    edge_run_angles(step, thread, edge_team_size(team));
    edge_team_barrier(team);
    int end = step->batch->embed ? e->model.embedding + 1 : e->model.n_ops;
    for (int i = 0; i < end; i++) {
        edge_run_op(step, i, thread, team);
        if (e->model.ops[i].flags & EDGE_FLAG_FUSED) i += EDGE_MIXTURE_OPS - 1;
        if (e->model.ops[i].flags & EDGE_FLAG_NO_WAIT) continue;
        /* One thread decides, and names the op: a thread that is late at an earlier barrier must not leave there. */
        if (thread == 0 && atomic_load_explicit(&e->cancelled, memory_order_relaxed))
            atomic_store_explicit(&step->stop_at, i, memory_order_relaxed);
        edge_team_barrier(team);
        if (atomic_load_explicit(&step->stop_at, memory_order_relaxed) <= i) return;
    }
}

int edge_exec_step(edge_exec *e, const edge_batch *batch, char *message, size_t size) {
    int rc = edge_check_batch(e, batch, message, size);
    if (rc) return rc;
    int32_t *rows = malloc(2 * (size_t)batch->n_rows * sizeof *rows);
    if (!rows) {
        snprintf(message, size, "out of memory for a step of %d rows", batch->n_rows);
        return EDGE_NO_MEMORY;
    }
    int32_t *positions = rows, *owner = rows + batch->n_rows;
    for (int s = 0, r = 0; s < batch->n_segments; s++)
        for (int i = 0; i < batch->segments[s].n_rows; i++, r++) {
            positions[r] = batch->segments[s].start + i;
            owner[r] = s;
        }
    for (int i = 0; i < 2 * e->model.n_ops; i++) atomic_store_explicit(&e->next[i], 0, memory_order_relaxed);
    for (int64_t i = 0; i < (int64_t)batch->threads * e->model.n_ops; i++)
        atomic_store_explicit(&e->gone[i], 0, memory_order_relaxed);
    edge_step step = {.exec = e, .batch = batch, .positions = positions, .owner = owner};
    atomic_store(&e->cancelled, 0);
    atomic_store(&step.stop_at, INT32_MAX);
    edge_pool_run(batch->threads, run, &step);
    free(rows);
    if (batch->embed) {
        const edge_op *op = &e->model.ops[e->model.embedding];
        memcpy(batch->logits, e->slots[op->out], (size_t)batch->n_wanted * (size_t)op->width * sizeof(float));
    }
    /* A cancel counts for the step that runs, also when it came too late to cut it short. */
    return atomic_exchange(&e->cancelled, 0) ? EDGE_CANCELLED : EDGE_OK;
}

static int check_pages(const edge_exec *e, int group, const int32_t *pages, int n, char *message, size_t size) {
    if (group < 0 || group >= e->model.n_groups) {
        snprintf(message, size, "there is no page group %d", group);
        return EDGE_INVALID;
    }
    for (int i = 0; i < n; i++)
        if (pages[i] < 0 || pages[i] >= e->model.pages[group]) {
            snprintf(message, size, "page %d is outside of 0..%d", pages[i], e->model.pages[group] - 1);
            return EDGE_INVALID;
        }
    return EDGE_OK;
}

int edge_exec_copy_pages(edge_exec *e, int group, const int32_t *pairs, int n, char *message, size_t size) {
    int rc = check_pages(e, group, pairs, 2 * n, message, size);
    if (rc) return rc;
    for (int s = 0; s < e->model.n_states; s++) {
        const edge_state *st = &e->model.states[s];
        if (st->group != group) continue;
        size_t k = (size_t)st->n_head_kv * edge_kv_bytes(e->model.kv_type, st->head_dim);
        size_t v = (size_t)st->n_head_kv * edge_kv_bytes(e->model.kv_type, st->head_dim_v);
        for (int i = 0; i < n; i++) {
            size_t from = (size_t)pairs[2 * i], to = (size_t)pairs[2 * i + 1];
            if (from == to) continue;
            memcpy((char *)e->keys[s] + to * k, (char *)e->keys[s] + from * k, k);
            memcpy((char *)e->values[s] + to * v, (char *)e->values[s] + from * v, v);
        }
    }
    return EDGE_OK;
}

int edge_exec_rotate_keys(edge_exec *e, int group, const int32_t *pages, int n, int delta, char *message,
                          size_t size) {
    int rc = check_pages(e, group, pages, n, message, size);
    if (rc) return rc;
    for (int s = 0; s < e->model.n_states; s++) {
        const edge_state *st = &e->model.states[s];
        if (st->group != group || st->rope < 0) continue;
        const edge_rope *rope = &e->model.ropes[st->rope];
        float *cs = malloc(((size_t)rope->n_rot + (size_t)st->head_dim + 32) * sizeof *cs);
        if (!cs) {
            snprintf(message, size, "out of memory");
            return EDGE_NO_MEMORY;
        }
        for (int i = 0; i < rope->n_rot / 2; i++) { /* the keys carry the magnitude already */
            double sine, cosine;
            edge_sincos(delta * rope->inv_freq[i], &sine, &cosine);
            cs[2 * i] = (float)cosine;
            cs[2 * i + 1] = (float)sine;
        }
        edge_kv kv = {.k = e->keys[s], .v = e->values[s], .n_head_kv = st->n_head_kv, .head_dim = st->head_dim,
                      .head_dim_v = st->head_dim_v};
        for (int i = 0; i < n; i++)
            e->kernels->kv_rotate[e->model.kv_type](&kv, pages[i], cs, st->offset, rope->n_rot, rope->neox,
                                                    cs + rope->n_rot);
        free(cs);
    }
    return EDGE_OK;
}
