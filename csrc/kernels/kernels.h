/* The kernels of one instruction set, as a table of functions.
 *
 * Lengths are in elements, rows are contiguous unless a stride is named.  No function allocates,
 * fails or reads past the sizes it is given; buffers of the executor are 64-byte aligned.
 */
#ifndef EDGE_KERNELS_H
#define EDGE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* GGML's type numbers, as files have them. */
enum {
    EDGE_F32 = 0, EDGE_F16 = 1, EDGE_Q4_0 = 2, EDGE_Q4_1 = 3, EDGE_Q5_0 = 6, EDGE_Q5_1 = 7, EDGE_Q8_0 = 8,
    EDGE_Q2_K = 10, EDGE_Q3_K = 11, EDGE_Q4_K = 12, EDGE_Q5_K = 13, EDGE_Q6_K = 14, EDGE_IQ2_XXS = 16,
    EDGE_IQ2_XS = 17, EDGE_IQ3_XXS = 18, EDGE_IQ1_S = 19, EDGE_IQ4_NL = 20, EDGE_IQ3_S = 21, EDGE_IQ2_S = 22,
    EDGE_IQ4_XS = 23, EDGE_IQ1_M = 29, EDGE_BF16 = 30, EDGE_TQ1_0 = 34, EDGE_TQ2_0 = 35, EDGE_MXFP4 = 39,
    EDGE_NVFP4 = 40, EDGE_Q1_0 = 41, EDGE_Q2_0 = 42,
    EDGE_N_TYPES = 43
};

/* Thirty-two quantized activations, which share a weight scale in most formats; every 16 have one scale
 * d = max|x| / 127 of their own.  The sums correct for offsets (integers) and carry the weights' mins (floats,
 * times d).  All of it lies in one cache line: a product follows one pointer for each row. */
typedef struct {
    int8_t q[32];
    float d[2];
    float sum16[2], sum32; /* of the quantized values of the halves, and of both */
    int32_t isum16[2];     /* the same before d */
    int32_t unused;
} edge_act_block;

_Static_assert(sizeof(edge_act_block) == 64, "a cache line");

/* Rows of activations, each quantized by itself. */
typedef struct {
    edge_act_block *block; /* [rows][n_block] */
    int n_block;
} edge_act;

enum {
    EDGE_SILU = 0, EDGE_GELU = 1, EDGE_SIGMOID = 2, EDGE_GELU_QUICK = 3, EDGE_RELU = 4, EDGE_RELU2 = 5,
    EDGE_SOFTPLUS = 6, EDGE_TANH = 7, EDGE_N_ACTIVATIONS = 8
};

/* How a router's logits become weights. */
enum { EDGE_SOFTMAX = 0, EDGE_EACH_SIGMOID = 1, EDGE_CHOSEN = 2 };

/* One weight matrix of n_out rows of n_in values. */
typedef struct {
    const uint8_t *data;
    size_t row_bytes;
    int n_in, n_out;
    const float *scale; /* one value, or NULL */
    const float *bias;  /* [n_out], or NULL */
    const uint8_t *then; /* what is likely to be read after the last row, worth fetching early; or NULL */
} edge_matrix;

/* Output rows 16*tile0 .. 16*tile1-1 (as far as they exist) for all `rows` inputs; out has stride n_out.
 * Float types read x [rows][n_in], block types read act.  scratch: edge_tile_bytes(n_in). */
typedef void (*edge_matmul_fn)(const edge_matrix *w, const float *x, const edge_act *act, int rows, float *out,
                               int tile0, int tile1, void *scratch);

/* One page table walk: where a layer's keys and values of one sequence are. */
typedef struct {
    const void *k;         /* [page][n_head_kv] records; of floats, [head_dim][16] */
    const void *v;         /* [page][n_head_kv] records; of floats, [16][head_dim_v] */
    const int32_t *pages;  /* physical page of each logical block */
    int n_head_kv, head_dim, head_dim_v;
    int window;            /* 0: all keys */
    float scale, softcap;  /* softcap 0: none */
    int cold;              /* worth prefetching */
    const float *slopes;   /* of each query of a call: by how much its scores fall per position; NULL: none */
    const int *at;         /* the position of each query of a call; read where there are slopes */
    const int32_t *ahead;  /* where it is worth prefetching: n_ahead pages whose keys of head ahead_h come next */
    int ahead_h, n_ahead;
} edge_kv;

/* A router: how many experts there are, how many a row uses, from how many of how many equal groups. */
typedef struct {
    int n_expert, n_used, n_groups, n_groups_used;
    int scoring, normalised;
    float scale;
    const float *bias; /* [n_expert], or NULL */
} edge_router;

/* A running softmax over some keys, of one query: the largest score, sum and weighted values. */
typedef struct {
    float max, sum;
} edge_part;

/* A short causal convolution: out = bias + sum over j of weight[j] times the input taps-1-j rows earlier. */
typedef struct {
    const float *weight; /* [taps][channels] */
    const float *bias;   /* [channels], or NULL */
    int taps, channels, silu;
} edge_conv;

/* A selective state space; state [n_head][head_dim][d_state]. */
typedef struct {
    int n_head, head_dim, d_state, n_group;
    int a_each; /* a is [n_head][d_state], else [n_head] */
    const float *a, *d, *bias; /* d, bias: [n_head]; bias may be NULL */
} edge_scan;

/* A gated delta rule; state [n_head][head_dim_v][head_dim]. */
typedef struct {
    int n_head, head_dim_v, head_dim, n_head_k;
    int grouped; /* head h uses key head h / (n_head / n_head_k), else h % n_head_k */
    int g_each;  /* g and bias are [n_head][head_dim], else [n_head] */
    float scale;
    const float *a, *bias; /* a: [n_head]; NULL both where g is the logarithm of the decay */
} edge_delta;

enum { EDGE_DELTA_ROWS = 32 };

enum { EDGE_STRETCH = 64 }; /* logits that have a peak in common */

enum { EDGE_PAGE = 16, EDGE_SPAN = 256, EDGE_QUERIES = 12 };

/* How keys and values are kept. */
enum { EDGE_KV_F16 = 0, EDGE_KV_F32 = 1, EDGE_KV_Q8_0 = 2, EDGE_N_KV = 3 };

/* Bytes of one head's keys, or values, in one page.  Q8_0: blocks of 32 dimensions, the last one padded, each of
 * 32 * 16 bytes; then their 16 scales as f16. */
static inline size_t edge_kv_bytes(int kind, int dim) {
    if (kind != EDGE_KV_Q8_0) return (size_t)dim * EDGE_PAGE * (kind == EDGE_KV_F32 ? 4 : 2);
    return ((size_t)(dim + 31) / 32 * (512 + 32) + 63) & ~(size_t)63;
}

typedef struct edge_kernels {
    const char *name;
    edge_matmul_fn matmul[EDGE_N_TYPES]; /* NULL: no kernel */
    void (*dequantize[EDGE_N_TYPES])(const uint8_t *row, float *out, int n);
    /* Blocks b0..b1-1 of one row of activations. */
    void (*quantize)(const float *x, int row, int b0, int b1, const edge_act *act);
    void (*rms_norm)(const float *x, const float *weight, float *out, int n, int size, float eps);
    void (*rope)(const float *x, const float *cs, float *out, int n_head, int head_dim, int n_rot, int neox);
    void (*add)(const float *a, const float *b, float *out, size_t n);
    void (*mul)(const float *a, const float *b, float *out, size_t n);
    void (*scale)(const float *x, float *out, size_t n, float factor);
    void (*glu)(const float *gate, const float *up, float *out, size_t n, int activation);
    void (*softcap)(const float *x, float *out, size_t n, float cap);
    void (*clamp)(const float *x, float *out, size_t n, float cap);
    void (*activate)(const float *x, float *out, size_t n, int activation);
    /* act(min(gate, limit)) * (clamp(up, limit) + offset); a limit of 0 is none. */
    void (*glu_limited)(const float *gate, const float *up, float *out, size_t n, int activation, float limit,
                        float offset);
    /* x * w + shift, each w for `run` neighbours. */
    void (*scale_by)(const float *x, const float *w, float *out, size_t n, size_t run, float shift);
    /* Runs of `size`; weight and bias [size] or NULL.  Without `centred` the mean stays and the square's mean divides. */
    void (*layer_norm)(const float *x, const float *weight, const float *bias, float *out, int size, float eps,
                       int centred);
    /* out[i] = sum over j of by[i][j] * x[j], ascending; runs of `size`. */
    void (*mix)(const float *x, const float *by, float *out, int n_in, int n_out, int size);
    float (*dot)(const float *a, const float *b, int n);
    void (*softmax)(const float *x, float *out, int n);
    /* A matrix of n rows: softmax of the rows, plus eps; columns by their sums, then rows and columns rounds - 1 times. */
    void (*sinkhorn)(const float *x, float *out, int n, int rounds, float eps);
    /* One row: the chosen experts' numbers, then their weights; scratch: 2 * n_expert + n_groups floats. */
    void (*route)(const edge_router *router, const float *logits, float *out, float *scratch);
    /* Store one row's keys and values (all heads) at `slot` of a page. */
    void (*kv_store[EDGE_N_KV])(const float *k, const float *v, const edge_kv *kv, int32_t page, int slot);
    /* Turn the keys of one page: cs as for rope, from dimension `offset` on.  scratch: head_dim + 32 floats. */
    void (*kv_rotate[EDGE_N_KV])(const edge_kv *kv, int32_t page, const float *cs, int offset, int n_rot, int neox,
                                 float *scratch);
    /* What attend wants of a query, edge_query_floats; NULL: the query as it is. */
    void (*kv_query[EDGE_N_KV])(const float *q, int dim, float *out);
    /* Attend with n <= EDGE_QUERIES queries of key head h to the keys of one span, from position
     * first[i] to last[i] inclusive (first > last: none).  acc[i] and part[i] are merged into:
     * part.sum < 0 marks an empty one.  scratch: edge_attend_floats. */
    void (*attend[EDGE_N_KV])(const edge_kv *kv, int h, int n, const float *const *q, const int *first, const int *last,
                      int span, edge_part *part, float *const *acc, float *scratch);
    void (*l2_norm)(const float *x, float *out, int n, int size, float eps);
    /* Rows of one sequence, one after the other; window is [taps-1][channels], oldest first.  Channels from..to-1. */
    void (*conv1d)(const edge_conv *conv, float *window, const float *x, float *out, int rows, int from, int to);
    /* The same; from..to-1 of the n_head * head_dim rows of the state. */
    void (*ssm_scan)(const edge_scan *scan, float *state, const float *x, const float *dt, const float *b,
                     const float *c, float *out, int rows, int from, int to);
    /* The same; from..to-1 of the n_head * head_dim_v rows of the state.  scratch: EDGE_DELTA_ROWS * head_dim floats. */
    void (*gated_delta)(const edge_delta *delta, float *state, const float *q, const float *k, const float *v,
                        const float *g, const float *beta, float *out, int rows, int from, int to, float *scratch);
    void (*merge)(edge_part *into, float *acc, const edge_part *part, const float *other, int n);
    /* Let a score of value zero take part. */
    void (*sink)(edge_part *part, float *acc, float score, int n);
    void (*finish)(const edge_part *part, const float *acc, float *out, int n);
    /* The key of the largest logit of each EDGE_STRETCH, ordered as the logits; 0 if any is NaN or infinite, -inf aside. */
    int (*peaks)(const float *logits, size_t n, int32_t *out);
    /* The sum of e^(x - max), and e^x; nothing may be above the maximum, or 0. */
    double (*mass)(const float *x, size_t n, double max);
    double (*weight)(double x);
} edge_kernels;

/* Scratch floats that attending needs. */
static inline size_t edge_attend_floats(int head_dim_v) {
    return (size_t)EDGE_QUERIES * (EDGE_SPAN + EDGE_SPAN / 2 + (size_t)head_dim_v + 32) + 2 * EDGE_SPAN;
}

/* Floats of one query as attending wants it: at most the query, or a block's bytes, scale and sum. */
static inline size_t edge_query_floats(int head_dim) { return (size_t)(head_dim + 31) / 32 * 10; }

/* Scratch bytes that a matmul over n_in inputs needs per thread. */
static inline size_t edge_tile_bytes(int n_in) { return (size_t)(n_in / 32) * (512 + 4 * 64) + 64; }

/* Fill the table of one instruction set; only those of the machine built for are linked in. */
void edge_kernels_generic(edge_kernels *table);
void edge_kernels_avx2(edge_kernels *table);
void edge_kernels_avx512(edge_kernels *table);
void edge_kernels_neon(edge_kernels *table);

#endif
