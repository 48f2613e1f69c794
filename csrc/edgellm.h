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
    EDGE_OP_ROPE = 4,      /* heads of `size`, of which d values come before those that turn */
    EDGE_OP_ATTENTION = 5, /* q = a, k = b, v = c; n_head; f0 = scale, f1 = softcap; weight = sinks, bias = slopes */
    EDGE_OP_ADD = 6,       /* a + b */
    EDGE_OP_SCALE = 7,     /* a * f0 + f1, or a * weight + f1, each weight for `size` neighbours */
    EDGE_OP_GLU = 8,       /* act(a) * (b + f1), a and b bounded by f0 if that is not 0; each a for `size` neighbours */
    EDGE_OP_SOFTCAP = 9,   /* f0 * tanh(a / f0), or a within f0 if size */
    EDGE_OP_SELECT = 10,   /* the wanted rows of a */
    EDGE_OP_POSITION_SCALE = 11, /* a * (1 + f0 * ln(1 + floor((position + n_head) / size))) */
    EDGE_OP_L2_NORM = 12,  /* runs of `size`; f0 = eps */
    EDGE_OP_CONV1D = 13,   /* a; weight [taps][channels], bias; silu if size */
    EDGE_OP_SSM_SCAN = 14, /* x = a, dt = b, b = c, c = d; weight a, scale d, bias; n_head groups */
    EDGE_OP_GATED_DELTA = 15, /* q = a, k = b, v = c, g = d, beta = e; weight a, bias, or neither where g is the
                               * logarithm of the decay; n_head key heads, which lie grouped if size; g has a value for
                               * each key if activation; f0 = scale */
    EDGE_OP_MUL = 16,      /* a * b, each b for `size` neighbours */
    EDGE_OP_SLICE = 17,    /* from every run of `size` of a, n_head values from number `activation` on */
    EDGE_OP_LAYER_NORM = 18, /* runs of `size`; weight, bias; f0 = eps, centred if activation */
    EDGE_OP_ACTIVATE = 19, /* act(a) */
    EDGE_OP_CONCAT = 20,   /* runs of `size` of a, each followed by one of n_head of b, always the first if activation */
    EDGE_OP_DOT = 21,      /* sums of a * b over runs of `size` */
    EDGE_OP_MIX = 22,      /* runs of `size` of a mixed by b; n_head runs in a */
    EDGE_OP_ROUTE = 23,    /* logits a of `size` experts; n_head used, of d groups e; activation = scoring + 4 if the
                            * weights are to sum to 1; weight = biases; f0 = scale */
    EDGE_OP_GATHER = 24,   /* the experts' inputs = rows of a sorted by expert: n_head slots, routes = b, `size`
                            * experts; width of a slot's input; floats if activation; a was quantized if all slots
                            * have the same input and floats are not wanted */
    EDGE_OP_EXPERTS = 25,  /* (weight of the slot's expert) a * scale + bias over what was gathered last: n_head slots,
                            * `size` rows an expert has, from number d on */
    EDGE_OP_SOFTMAX = 26,  /* over runs of `size` */
    EDGE_OP_SINKHORN = 27, /* matrices of `size` rows; n_head rounds, f0 = eps */
    EDGE_OP_CALL = 28,     /* function d of the calls, from rows of `size` of a and of n_head of b, which may be 0;
                            * weight = its parameters */
    EDGE_OP_COUNT = 29,
};

enum {
    EDGE_FLAG_WANTED = 1,  /* the rows are the wanted ones */
    EDGE_FLAG_NO_WAIT = 2, /* the next op does not depend on this one */
    EDGE_FLAG_FIXED = 4,   /* gather: slot s uses expert s, without routes */
    EDGE_FLAG_SHARED = 8,  /* gather: all slots of a row have the same input */
    EDGE_FLAG_POSITION = 16, /* embed: rows of positions instead of tokens, the last one for those beyond */
    EDGE_FLAG_BORROW = 32, /* attention: over what another op has stored, without keys and values */
    EDGE_FLAG_FUSED = 64,  /* gather: the first of EDGE_MIXTURE_OPS that run as one; only the last one's out is made */
};

/* A mixture that runs as one: gather, experts, experts, glu of these two, gather, experts. */
enum { EDGE_MIXTURE_OPS = 6 };

enum { EDGE_LOGITS = -1 }; /* as `out` or `a`: the caller's logits instead of a slot */

/* Fields that an op kind does not name are ignored; absent weights are -1. */
typedef struct {
    int32_t kind, flags, out, a, b, c, d, e;
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
    int32_t offset;        /* values of a head before those that the rope turns */
    int32_t chunked;       /* windows begin anew at multiples of their size */
    int32_t both;          /* queries see what follows in their step, too; window / 2 to both sides */
} edge_state;

/* What an op remembers of a sequence: float32 [d0][d1][d2]. */
typedef struct {
    int32_t d[3];
} edge_recurrent;

typedef struct {
    const double *inv_freq; /* [n_rot / 2] */
    int32_t n_rot, neox;
    float magnitude;
} edge_rope;

/* A kernel from outside: makes n_rows rows of n_out floats from rows of n_a and of n_b floats, which lie one after the
 * other; b is NULL where n_b is 0.  Several threads call it at once, each for rows of its own, without Python's lock.
 * It must stay within what it is given, whatever the widths, and give a row the same bits whatever its neighbours;
 * out may be a where the op's out is. */
typedef void (*edge_rows_fn)(const float *params, const float *a, const float *b, float *out, int64_t n_rows,
                             int64_t n_a, int64_t n_b, int64_t n_out);

/* The address is the one thing that cannot be checked: it must come from the caller's own code, never from a file. */
typedef struct {
    edge_rows_fn run;
    int64_t n_params; /* floats it reads of its parameters */
} edge_call;

typedef struct {
    const edge_op *ops;
    const edge_weight *weights;
    const int32_t *slot_width; /* [n_slots] floats a row */
    const edge_state *states;
    const edge_recurrent *recurrent;
    const edge_rope *ropes;
    const edge_call *calls;
    const int32_t *pages; /* [n_groups] pages of each state of the group */
    int32_t n_ops, n_weights, n_slots, n_states, n_ropes, n_calls, n_groups;
    int32_t n_recurrent, n_sequences; /* sequences whose recurrent states there is room for */
    int32_t max_rows, n_vocab, kv_type;
    int32_t embedding; /* the op that makes the wanted rows' embeddings, or -1 */
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
    const int32_t *slots;        /* [n_segments] of the recurrent states; NULL where there are none */
    float *logits;               /* [n_wanted][n_vocab], or the embeddings */
    int64_t n_tables;
    int32_t n_rows, n_segments, n_wanted;
    int32_t threads;
    int32_t embed; /* stop after the op that makes the embeddings, and return them */
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

/* Copy the recurrent states of slot pairs[2*i] to slot pairs[2*i+1], one pair after the other. */
int edge_exec_copy_states(edge_exec *exec, const int32_t *pairs, int n, char *message, size_t size);

/* Check that a weight's bytes hold its rows and that there are kernels for its type. */
int edge_check_weight(const edge_weight *weight, const edge_kernels *kernels, char *message, size_t size);

/* Bytes held for keys, values and recurrent states, and for everything else. */
void edge_exec_memory(const edge_exec *exec, size_t *kv, size_t *scratch);

void edge_exec_free(edge_exec *exec);

/* Gigabytes a second that `threads` threads read from `bytes` of memory, best of `repeats`; 0 on failure. */
double edge_read_bandwidth(size_t bytes, int threads, int repeats);

#endif
