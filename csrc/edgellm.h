/* The native core: a Program lowered to an array of ops, run a step at a time.
 *
 * Plain C11, no Python.  Nothing here aborts, prints or trusts a number: edge_exec_new checks the whole
 * description and edge_exec_step the whole batch before anything runs.  Errors are a negative code and a
 * message.  The caller owns all memory it passes in, and keeps weights alive as long as the executor.
 */
#ifndef EDGELLM_H
#define EDGELLM_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum {
    EDGE_OK = 0,
    EDGE_CANCELLED = 1,
    EDGE_INVALID = -1, /* a description or batch that makes no sense */
    EDGE_NO_MEMORY = -2,
};

enum {
    EDGE_OP_EMBED = 0,     /* out = weight row of each token */
    EDGE_OP_QUANTIZE = 1,  /* the activation buffer = a, for the matmuls that follow */
    EDGE_OP_MATMUL = 2,    /* out = (weight a) * scale + bias */
    EDGE_OP_RMS_NORM = 3,  /* runs of `size`; f0 = eps */
    EDGE_OP_ROPE = 4,      /* heads of `size` */
    EDGE_OP_ATTENTION = 5, /* q = a, k = b, v = c; n_head; f0 = scale, f1 = softcap */
    EDGE_OP_ADD = 6,       /* a + b */
    EDGE_OP_SCALE = 7,     /* a * f0 */
    EDGE_OP_GLU = 8,       /* act(a) * b; activation */
    EDGE_OP_SOFTCAP = 9,   /* f0 * tanh(a / f0) */
    EDGE_OP_SELECT = 10,   /* the wanted rows of a */
    EDGE_OP_POSITION_SCALE = 11, /* a * (1 + f0 * ln(1 + floor(position / size))) */
    EDGE_OP_COUNT = 12,
};

enum {
    EDGE_FLAG_WANTED = 1,  /* the rows are the wanted ones */
    EDGE_FLAG_NO_WAIT = 2, /* the next op does not depend on this one */
};

enum { EDGE_LOGITS = -1 }; /* as `out` or `a`: the caller's logits instead of a slot */

/* Fields that an op kind does not name are ignored; absent weights are -1. */
typedef struct {
    int32_t kind, flags, out, a, b, c;
    int32_t width; /* of out */
    int32_t size, n_head, activation;
    int32_t weight, scale, bias, state, rope;
    float f0, f1;
} edge_op;

typedef struct {
    const void *data;
    size_t n_bytes;
    int32_t type;       /* GGML type number */
    int64_t n_in, n_out; /* a vector has n_out = 1 */
    size_t row_bytes;
} edge_weight;

typedef struct {
    int32_t n_head_kv, head_dim, head_dim_v;
    int32_t group, window; /* window 0: all */
    int32_t rope;          /* how stored keys were rotated, or -1 */
} edge_state;

typedef struct {
    const double *inv_freq; /* [n_rot / 2] */
    int32_t n_rot, neox;
    float magnitude;
} edge_rope;

typedef struct {
    const edge_op *ops;
    const edge_weight *weights;
    const int32_t *slot_width; /* [n_slots] floats a row */
    const edge_state *states;
    const edge_rope *ropes;
    const int32_t *pages; /* [n_groups] pages of each state of the group */
    int32_t n_ops, n_weights, n_slots, n_states, n_ropes, n_groups;
    int32_t max_rows, n_vocab, kv_f32;
} edge_model;

typedef struct {
    int32_t start, n_rows;
} edge_segment;

typedef struct {
    const int32_t *tokens; /* [n_rows] */
    const edge_segment *segments;
    const int32_t *tables;       /* all page tables one after the other: segment-major, then group */
    const int64_t *table_starts; /* [n_segments * n_groups + 1] */
    const int32_t *wanted;       /* [n_wanted] ascending rows */
    float *logits;               /* [n_wanted][n_vocab] */
    int64_t n_tables;
    int32_t n_rows, n_segments, n_wanted;
    int32_t threads;
} edge_batch;

typedef struct edge_exec edge_exec;

/* Make an executor; copies the description but not the weights.  On failure *out is NULL and message
 * (size bytes) says why. */
int edge_exec_new(const edge_model *model, const edge_kernels *kernels, edge_exec **out, char *message, size_t size);

/* Run one step.  Keys and values land in the pages of the tables.  Not to be called twice at once. */
int edge_exec_step(edge_exec *exec, const edge_batch *batch, char *message, size_t size);

/* Make the running step end within one op, with EDGE_CANCELLED; safe from any thread. */
void edge_exec_cancel(edge_exec *exec);

/* Copy page pairs[2*i] to pages[2*i+1] in every state of a group. */
int edge_exec_copy_pages(edge_exec *exec, int group, const int32_t *pairs, int n, char *message, size_t size);

/* Rotate the stored keys of pages by `delta` positions in every state of a group that has a rope. */
int edge_exec_rotate_keys(edge_exec *exec, int group, const int32_t *pages, int n, int delta, char *message,
                          size_t size);

/* Check that a weight's bytes hold its rows and that there are kernels for its type. */
int edge_check_weight(const edge_weight *weight, const edge_kernels *kernels, char *message, size_t size);

/* Bytes held for keys and values, and for everything else. */
void edge_exec_memory(const edge_exec *exec, size_t *kv, size_t *scratch);

void edge_exec_free(edge_exec *exec);

/* Gigabytes a second that `threads` threads read from `bytes` of memory, best of `repeats`; 0 on failure. */
double edge_read_bandwidth(size_t bytes, int threads, int repeats);

#endif
