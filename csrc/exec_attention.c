/* The attention op: store keys and values, then share heads, rows and, where those are few, spans.
 *
 * Whoever computes a span, spans are merged in ascending order, so sharing does not change a bit.
 */
#include "exec.h"

size_t edge_attend_scratch(const edge_exec *e) {
    size_t query = (size_t)e->max_head_dim_v + edge_query_floats(e->max_head_dim), q = (size_t)e->max_queries;
    return sizeof(float) * (q * query + edge_attend_floats(e->max_head_dim_v)) + q * sizeof(edge_part) + 256;
}

typedef struct {
    edge_step *step;
    const edge_op *op;
    const edge_state *state;
    edge_kv kv;
    const float *q, *sinks, *slopes;
    float *out;
    float *queries; /* of one job, as the kernels want them */
    int group; /* query heads per key head */
    int q_width;
} edge_view;

static int span_of(int position) { return position / EDGE_SPAN; }

static edge_view view(edge_step *step, const edge_op *op) {
    edge_exec *e = step->exec;
    const edge_state *s = &e->model.states[op->state];
    edge_view v = {.step = step, .op = op, .state = s, .q = edge_value(step, op->a), .out = edge_value(step, op->out)};
    if (op->weight >= 0) v.sinks = e->model.weights[op->weight].data;
    if (op->bias >= 0) v.slopes = e->model.weights[op->bias].data;
    v.group = op->n_head / s->n_head_kv;
    v.q_width = op->n_head * s->head_dim;
    v.kv = (edge_kv){.k = e->keys[op->state], .v = e->values[op->state], .n_head_kv = s->n_head_kv,
                     .head_dim = s->head_dim, .head_dim_v = s->head_dim_v, .window = s->window, .scale = op->f0,
                     .softcap = op->f1};
    return v;
}

static void store(edge_view *v, int thread, int n) {
    edge_step *step = v->step;
    const edge_state *s = v->state;
    const float *k = edge_value(step, v->op->b), *val = edge_value(step, v->op->c);
    int64_t from, to, kw = s->n_head_kv * s->head_dim, vw = s->n_head_kv * s->head_dim_v;
    edge_share(step->batch->n_rows, 1, thread, n, &from, &to);
    for (int64_t r = from; r < to; r++) {
        int32_t at = step->positions[r], page = edge_table(step, step->owner[r], s->group)[at / EDGE_PAGE];
        step->exec->kernels->kv_store[step->exec->model.kv_type](k + r * kw, val + r * vw, &v->kv, page,
                                                                at % EDGE_PAGE);
    }
}

/* The first position a query sees. */
static int first_visible(const edge_view *v, int position) {
    int window = v->kv.window;
    if (v->state->both) return window && position > window / 2 ? position - window / 2 : 0;
    if (window && v->state->chunked) return position / window * window;
    return window && position >= window ? position - window + 1 : 0;
}

/* The last position that the query of a row sees. */
static int last_visible(const edge_view *v, int row) {
    int position = v->step->positions[row], window = v->kv.window;
    if (!v->state->both) return position;
    const edge_segment *g = &v->step->batch->segments[v->step->owner[row]];
    int end = g->start + g->n_rows - 1;
    return window && end - position > window / 2 ? position + window / 2 : end;
}

/* Query i of a job: rows from row0 on, of each the heads that share key head h. */
static const float *query(const edge_view *v, int row0, int h, int i) {
    int row = row0 + i / v->group, head = h * v->group + i % v->group;
    return v->q + (int64_t)row * v->q_width + head * v->state->head_dim;
}

/* Rows of one segment, a key head and the spans they attend to. */
typedef struct {
    int row0, row1, h, span0, span1;
} edge_work;

/* Let the keys of a job's first span be fetched while the values of the one before are read. */
static void look_ahead(edge_view *v, const edge_work *next) {
    int begin = next->span0 * EDGE_SPAN, from = first_visible(v, v->step->positions[next->row0]) - begin;
    int to = last_visible(v, next->row1 - 1) + 1 - begin;
    from = from > 0 ? from / EDGE_PAGE : 0;
    to = to < EDGE_SPAN ? (to + EDGE_PAGE - 1) / EDGE_PAGE : EDGE_SPAN / EDGE_PAGE;
    v->kv.n_ahead = 0;
    if (to <= from) return;
    v->kv.ahead = edge_table(v->step, v->step->owner[next->row0], v->state->group) + begin / EDGE_PAGE + from;
    v->kv.ahead_h = next->h;
    v->kv.n_ahead = to - from;
}

/* Attend, merging into part and acc of each query.  next: the job that this thread has after this one, or NULL. */
static void attend(edge_view *v, const edge_work *job, const edge_work *next, edge_part *part, float *acc,
                   float *scratch) {
    edge_step *step = v->step;
    int row0 = job->row0, h = job->h, dv = v->state->head_dim_v, total = (job->row1 - row0) * v->group;
    v->kv.pages = edge_table(step, step->owner[row0], v->state->group);
    void (*prepare)(const float *, int, float *) = step->exec->kernels->kv_query[step->exec->model.kv_type];
    size_t wide = edge_query_floats(v->state->head_dim);
    for (int i = 0; i < total; i++) {
        part[i] = (edge_part){0.0f, -1.0f};
        if (prepare) prepare(query(v, row0, h, i), v->state->head_dim, v->queries + (size_t)i * wide);
    }
    for (int span = job->span0; span < job->span1; span++) {
        v->kv.n_ahead = 0;
        if (span + 1 < job->span1) look_ahead(v, &(edge_work){row0, job->row1, h, span + 1, job->span1});
        else if (next) look_ahead(v, next);
        for (int i = 0; i < total; i += EDGE_QUERIES) {
            const float *q[EDGE_QUERIES];
            float slopes[EDGE_QUERIES];
            int first[EDGE_QUERIES], last[EDGE_QUERIES], at[EDGE_QUERIES];
            int n = total - i < EDGE_QUERIES ? total - i : EDGE_QUERIES;
            float *to[EDGE_QUERIES];
            for (int j = 0; j < n; j++) {
                q[j] = prepare ? v->queries + (size_t)(i + j) * wide : query(v, row0, h, i + j);
                int row = row0 + (i + j) / v->group;
                at[j] = step->positions[row];
                first[j] = first_visible(v, at[j]);
                last[j] = last_visible(v, row);
                to[j] = acc + (int64_t)(i + j) * dv;
                if (v->slopes) slopes[j] = v->slopes[h * v->group + (i + j) % v->group];
            }
            v->kv.slopes = v->slopes ? slopes : NULL;
            v->kv.at = at;
            v->kv.cold = i == 0;
            step->exec->kernels->attend[step->exec->model.kv_type](&v->kv, h, n, q, first, last, span, part + i, to,
                                                                  scratch);
        }
    }
}

static void write(const edge_view *v, int row0, int query, int h, edge_part *part, float *acc) {
    int row = row0 + query / v->group, head = h * v->group + query % v->group, dv = v->state->head_dim_v;
    if (v->sinks) v->step->exec->kernels->sink(part, acc, v->sinks[head], dv);
    v->step->exec->kernels->finish(part, acc, v->out + ((int64_t)row * v->op->n_head + head) * dv, dv);
}

static int block_rows(const edge_view *v) {
    int rows = EDGE_JOB_QUERIES / v->group;
    return rows < 1 ? 1 : rows;
}

/* Jobs take whole blocks of rows, counted from each segment's first one. */
static edge_work find_job(const edge_view *v, int block, int h) {
    const edge_batch *b = v->step->batch;
    int per = block_rows(v), row = 0;
    for (int s = 0; s < b->n_segments; s++) {
        int blocks = (b->segments[s].n_rows + per - 1) / per;
        if (block < blocks) {
            int end = row + b->segments[s].n_rows, row0 = row + block * per, row1 = row0 + per < end ? row0 + per : end;
            return (edge_work){row0, row1, h, span_of(first_visible(v, v->step->positions[row0])),
                               span_of(last_visible(v, row1 - 1)) + 1};
        }
        block -= blocks;
        row += b->segments[s].n_rows;
    }
    return (edge_work){0, 0, 0, 0, 0};
}

/* Number `job` of those that take one span each. */
static edge_work find_part(const edge_view *v, int job, int heads, int spans) {
    edge_work w = find_job(v, job / spans / heads, job / spans % heads);
    w.span0 += job % spans;
    w.span1 = w.span0 + 1;
    return w;
}

void edge_run_attention(edge_step *step, int index, int thread, edge_team *team) {
    edge_exec *e = step->exec;
    edge_view v = view(step, &e->model.ops[index]);
    int n = edge_team_size(team), heads = v.state->n_head_kv, dv = v.state->head_dim_v;
    if (!(v.op->flags & EDGE_FLAG_BORROW)) {
        store(&v, thread, n);
        edge_team_barrier(team);
    }

    int blocks = 0, spans = 1, per = block_rows(&v);
    for (int s = 0; s < step->batch->n_segments; s++) {
        const edge_segment *g = &step->batch->segments[s];
        int last = g->start + g->n_rows - 1, span = span_of(last) - span_of(first_visible(&v, g->start)) + 1;
        blocks += (g->n_rows + per - 1) / per;
        if (span > spans) spans = span;
    }
    float *acc = (float *)(void *)edge_thread_scratch(e, thread);
    float *scratch = acc + (size_t)e->max_queries * (size_t)dv;
    edge_part *part = (edge_part *)(void *)(scratch + edge_attend_floats(dv));
    v.queries = (float *)(void *)(part + e->max_queries);
    int jobs = blocks * heads;
    int queries = per * v.group; /* of one whole job: the stride of what is kept */
    int split = jobs < 4 * n && spans > 1 && n > 1 && (int64_t)jobs * queries * spans <= EDGE_PARTS;
    atomic_int *next = &e->next[2 * index];
    if (!split) {
        for (int job; (job = atomic_fetch_add_explicit(next, 1, memory_order_relaxed)) < jobs;) {
            /* The last rows see most: begin with them, so that no thread is left with the longest job. */
            edge_work w = find_job(&v, blocks - 1 - job / heads, job % heads);
            attend(&v, &w, NULL, part, acc, scratch);
            for (int i = 0; i < (w.row1 - w.row0) * v.group; i++)
                write(&v, w.row0, i, w.h, part + i, acc + (size_t)i * (size_t)dv);
        }
        return;
    }
    /* Each thread knows its next job, so that its keys can be fetched. */
    int total = jobs * spans, then;
    for (int job = atomic_fetch_add_explicit(next, 1, memory_order_relaxed); job < total; job = then) {
        then = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
        edge_work w = find_part(&v, job, heads, spans), after = find_part(&v, then, heads, spans);
        size_t keep = (size_t)job * (size_t)queries;
        attend(&v, &w, then < total ? &after : NULL, e->parts + keep, e->part_values + keep * (size_t)dv, scratch);
    }
    edge_team_barrier(team);
    for (int which; (which = atomic_fetch_add_explicit(next + 1, 1, memory_order_relaxed)) < jobs;) {
        edge_work w = find_job(&v, which / heads, which % heads);
        for (int i = 0; i < (w.row1 - w.row0) * v.group; i++) {
            part[0] = (edge_part){0.0f, -1.0f};
            for (int span = 0; span < spans; span++) {
                size_t from = ((size_t)which * (size_t)spans + (size_t)span) * (size_t)queries + (size_t)i;
                e->kernels->merge(part, acc, e->parts + from, e->part_values + from * (size_t)dv, dv);
            }
            write(&v, w.row0, i, w.h, part, acc);
        }
    }
}
