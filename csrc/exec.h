/* What the parts of the executor share: description, buffers and one step's view of them. */
#ifndef EDGE_EXEC_H
#define EDGE_EXEC_H

#include <stdatomic.h>

#include "edgellm.h"
#include "pool.h"

/* Queries of one attention job, and the partial results kept when spans go to several threads. */
enum { EDGE_JOB_QUERIES = 48, EDGE_PARTS = 8192 };

/* Pairs of a row and a slot, sorted by the expert they chose. */
typedef struct {
    int32_t *pair;   /* row * n_slots + slot */
    int32_t *active; /* experts that were chosen */
    int32_t *first;  /* [n_active + 1] the first pair of each of them */
    int32_t *places; /* [n_expert] while they are sorted */
    int32_t n_active;
} edge_sorted;

struct edge_exec {
    const edge_kernels *kernels;
    edge_model model; /* its arrays are copies, owned by `blocks` */
    float **slots;    /* [n_slots] each [max_rows][width] */
    float **angles;   /* [n_ropes] cosine and sine of each row's position */
    void **keys, **values; /* [n_states] */
    float **recurrent;     /* [n_recurrent] each [n_sequences] states */
    edge_act act;          /* rows */
    edge_act pairs, inner; /* sorted pairs: the inputs of experts, and those of down where a mixture runs as one */
    edge_sorted sorted; /* what was gathered last */
    float *gathered;    /* the inputs of these pairs where a matrix is of a float type, else NULL */
    edge_part *parts;  /* [EDGE_PARTS] */
    float *part_values; /* [EDGE_PARTS][max_head_dim_v] */
    uint8_t *scratch;  /* [EDGE_MAX_THREADS] of scratch_bytes, touched only by threads that run */
    size_t tile_bytes, wide_bytes; /* of scratch, for one matmul, and for results of experts */
    size_t scratch_bytes, kv_bytes, own_bytes; /* kv_bytes: recurrent states, too */
    int32_t max_head_dim, max_head_dim_v;
    int32_t max_queries; /* of one attention job */
    atomic_int *next;  /* [2 * n_ops] work counters of a step */
    atomic_uint_least64_t *gone; /* [EDGE_MAX_THREADS][n_ops] of each thread's part, see edge_take */
    atomic_int cancelled;
    void **blocks; /* everything allocated */
    int n_blocks, block_room;
};

/* One step as the threads see it. */
typedef struct {
    edge_exec *exec;
    const edge_batch *batch;
    const int32_t *positions; /* of each row */
    const int32_t *owner;     /* segment of each row */
    atomic_int stop_at;       /* op after which every thread leaves */
} edge_step;

/* Share number `thread` of `n` shares of total, aligned to `unit`. */
static inline void edge_share(int64_t total, int64_t unit, int thread, int n, int64_t *from, int64_t *to) {
    int64_t units = (total + unit - 1) / unit;
    *from = units * thread / n * unit;
    *to = units * (thread + 1) / n * unit;
    if (*from > total) *from = total;
    if (*to > total) *to = total;
}

/* Floats of one sequence's state. */
static inline size_t edge_state_size(const edge_recurrent *s) {
    return (size_t)s->d[0] * (size_t)s->d[1] * (size_t)s->d[2];
}

/* A value's rows: a slot, or the caller's logits. */
static inline float *edge_value(const edge_step *step, int32_t slot) {
    return slot == EDGE_LOGITS ? step->batch->logits : step->exec->slots[slot];
}

static inline const int32_t *edge_table(const edge_step *step, int segment, int group) {
    const edge_batch *b = step->batch;
    return b->tables + b->table_starts[(int64_t)segment * step->exec->model.n_groups + group];
}

static inline uint8_t *edge_thread_scratch(const edge_exec *e, int thread) {
    return e->scratch + (size_t)thread * e->scratch_bytes;
}

/* The product of n gates, activated, and what they let pass, with the limits of the op if it has any. */
static inline void edge_glu(const edge_kernels *k, const edge_op *op, const float *gate, const float *up, float *out,
                            size_t n) {
    if (op->f0 == 0.0f && op->f1 == 0.0f) k->glu(gate, up, out, n, op->activation);
    else k->glu_limited(gate, up, out, n, op->activation, op->f0, op->f1);
}

/* Whose units a thread takes, and which one it took last. */
typedef struct {
    int passed;    /* threads whose units are all taken, from the thread itself on */
    int unit, end; /* units up to end-1 are likely to be the same thread's */
    int next;      /* what is likely to follow after these, or -1 */
} edge_turn;

/* exec_take.c: take the next of `count` units of op `index`: first those of the thread's own part in order, then from the
 * ends of the others' parts, so that nearly all is read in memory's order and a slow core holds nobody up.  0: all are
 * taken. */
int edge_take(edge_exec *e, int index, int count, int thread, int n, edge_turn *turn);

/* exec_ops.c: run one op, or the mixture that begins with it, on this thread; attention.c: the op with barriers inside. */
void edge_run_op(edge_step *step, int index, int thread, edge_team *team);
void edge_run_attention(edge_step *step, int index, int thread, edge_team *team);
void edge_run_angles(edge_step *step, int thread, int n);
void edge_run_gather(edge_step *step, const edge_op *op, int rows, int thread, edge_team *team);
void edge_run_experts(edge_step *step, int index, int thread, int n);
void edge_run_mixture(edge_step *step, int index, int rows, int thread, edge_team *team);
void edge_run_route(edge_step *step, const edge_op *op, int64_t from, int64_t to, int thread);
void edge_run_recurrent(const edge_step *step, const edge_op *op, int thread, int n);

/* exec_check.c, exec_check_batch.c: EDGE_OK or an error with its message. */
int edge_check_model(const edge_model *m, const edge_kernels *k, char *message, size_t size);
int edge_check_batch(const edge_exec *e, const edge_batch *b, char *message, size_t size);

size_t edge_attend_scratch(const edge_exec *e);

#endif
