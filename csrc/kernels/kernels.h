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
    EDGE_Q2_K = 10, EDGE_Q3_K = 11, EDGE_Q4_K = 12, EDGE_Q5_K = 13, EDGE_Q6_K = 14, EDGE_BF16 = 30,
    EDGE_N_TYPES = 42
};

/* Activations quantized row by row: every 16 values share one scale d = max|x| / 127.
 * A block is the 32 values that share a weight scale in most formats.  The sums correct for offsets
 * (integers) and carry the weights' mins (floats, times d). */
typedef struct {
    int8_t *q;       /* [rows][n_block * 32] */
    float *d;        /* [rows][2 * n_block] */
    float *sum32;    /* [rows][n_block]      the quantized block's sum */
    float *sum16;    /* [rows][2 * n_block]  the sums of its halves */
    int32_t *isum16; /* [rows][2 * n_block]  the same before d */
    int n_block;
} edge_act;

/* One weight matrix of n_out rows of n_in values. */
typedef struct {
    const uint8_t *data;
    size_t row_bytes;
    int n_in, n_out;
    const float *scale; /* one value, or NULL */
    const float *bias;  /* [n_out], or NULL */
} edge_matrix;

/* Output rows 16*tile0 .. 16*tile1-1 (as far as they exist) for all `rows` inputs; out has stride n_out.
 * Float types read x [rows][n_in], block types read act.  scratch: edge_tile_bytes(n_in). */
typedef void (*edge_matmul_fn)(const edge_matrix *w, const float *x, const edge_act *act, int rows, float *out,
                               int tile0, int tile1, void *scratch);

/* One page table walk: where a layer's keys and values of one sequence are. */
typedef struct {
    const void *k;         /* [page][n_head_kv][head_dim][16] */
    const void *v;         /* [page][n_head_kv][16][head_dim_v] */
    const int32_t *pages;  /* physical page of each logical block */
    int n_head_kv, head_dim, head_dim_v;
    int window;            /* 0: all keys */
    float scale, softcap;  /* softcap 0: none */
} edge_kv;

/* A running softmax over some keys, of one query: the largest score, sum and weighted values. */
typedef struct {
    float max, sum;
} edge_part;

enum { EDGE_PAGE = 16, EDGE_SPAN = 256, EDGE_QUERIES = 4 };

typedef struct edge_kernels {
    const char *name;
    edge_matmul_fn matmul[EDGE_N_TYPES]; /* NULL: no kernel */
    void (*dequantize[EDGE_N_TYPES])(const uint8_t *row, float *out, int n);
    /* Blocks b0..b1-1 of one row of activations. */
    void (*quantize)(const float *x, int row, int b0, int b1, const edge_act *act);
    void (*rms_norm)(const float *x, const float *weight, float *out, int n, int size, float eps);
    void (*rope)(const float *x, const float *cs, float *out, int n_head, int head_dim, int n_rot, int neox);
    void (*add)(const float *a, const float *b, float *out, size_t n);
    void (*scale)(const float *x, float *out, size_t n, float factor);
    void (*glu)(const float *gate, const float *up, float *out, size_t n, int gelu);
    void (*softcap)(const float *x, float *out, size_t n, float cap);
    /* Store one row's keys and values (all heads) at `slot` of a page. */
    void (*kv_store[2])(const float *k, const float *v, const edge_kv *kv, int32_t page, int slot);
    /* Turn the keys of one page: cs as for rope. */
    void (*kv_rotate[2])(const edge_kv *kv, int32_t page, const float *cs, int n_rot, int neox);
    /* Attend with n <= EDGE_QUERIES queries of key head h to the keys of one span, from position
     * first[i] to last[i] inclusive (first > last: none).  acc[i] and part[i] are merged into:
     * part.sum < 0 marks an empty one.  scratch: EDGE_QUERIES * (EDGE_SPAN + head_dim_v) floats. */
    void (*attend[2])(const edge_kv *kv, int h, int n, const float *const *q, const int *first, const int *last,
                      int span, edge_part *part, float *const *acc, float *scratch);
    void (*merge)(edge_part *into, float *acc, const edge_part *part, const float *other, int n);
    void (*finish)(const edge_part *part, const float *acc, float *out, int n);
} edge_kernels;

/* Scratch bytes that a matmul over n_in inputs needs per thread. */
static inline size_t edge_tile_bytes(int n_in) { return (size_t)(n_in / 32) * (512 + 4 * 64) + 64; }

/* Fill the table of one instruction set; only those of the machine built for are linked in. */
void edge_kernels_generic(edge_kernels *table);
void edge_kernels_avx2(edge_kernels *table);
void edge_kernels_avx512(edge_kernels *table);
void edge_kernels_neon(edge_kernels *table);

#endif
