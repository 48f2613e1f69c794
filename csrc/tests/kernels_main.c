/* Runs every kernel of one instruction set on pseudo-random inputs and prints a hash of each result.
 *
 * Built once per instruction set with EDGE_ISA_NAME; equal output means equal bits.  Any NaN counts as the
 * same NaN: which one comes out is the processor's business.  Buffers have exactly the size that kernels.h
 * allows, so that a memory checker sees every step beyond.
 */
#include "harness.h"

#include "../trig.h"

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
void PASTE(edge_kernels, EDGE_ISA_NAME)(edge_kernels *table);

static const struct {
    int type, block, bytes, halves[2];
} types[] = {{EDGE_F32, 1, 4, {-1, -1}},       {EDGE_F16, 1, 2, {-1, -1}},      {EDGE_BF16, 1, 2, {-1, -1}},
             {EDGE_Q4_0, 32, 18, {0, -1}},     {EDGE_Q4_1, 32, 20, {0, 2}},     {EDGE_Q5_0, 32, 22, {0, -1}},
             {EDGE_Q5_1, 32, 24, {0, 2}},      {EDGE_Q8_0, 32, 34, {0, -1}},    {EDGE_Q2_K, 256, 84, {80, 82}},
             {EDGE_Q3_K, 256, 110, {108, -1}}, {EDGE_Q4_K, 256, 144, {0, 2}},   {EDGE_Q5_K, 256, 176, {0, 2}},
             {EDGE_Q6_K, 256, 210, {208, -1}}, {EDGE_IQ2_XXS, 256, 66, {0, -1}}, {EDGE_IQ2_XS, 256, 74, {0, -1}},
             {EDGE_IQ2_S, 256, 82, {0, -1}},   {EDGE_IQ3_XXS, 256, 98, {0, -1}}, {EDGE_IQ3_S, 256, 110, {0, -1}},
             {EDGE_IQ1_S, 256, 50, {0, -1}},   {EDGE_IQ1_M, 256, 56, {-1, -1}},  {EDGE_IQ4_NL, 32, 18, {0, -1}},
             {EDGE_IQ4_XS, 256, 136, {0, -1}}, {EDGE_TQ1_0, 256, 54, {52, -1}},  {EDGE_TQ2_0, 256, 66, {64, -1}},
             {EDGE_MXFP4, 32, 17, {-1, -1}},   {EDGE_NVFP4, 64, 36, {-1, -1}},   {EDGE_Q1_0, 128, 18, {0, -1}},
             {EDGE_Q2_0, 64, 18, {0, -1}}};
enum { N_TYPES = sizeof types / sizeof *types };

/* Random bytes; scales are halves between 2^-6 and 2^-2, unless `wild`. */
static uint8_t *weights(int t, size_t rows, size_t n_in, int wild) {
    size_t blocks = rows * n_in / (size_t)types[t].block, bytes = blocks * (size_t)types[t].bytes;
    uint8_t *p = room(bytes);
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)next();
    for (size_t b = 0; b < blocks && !wild; b++) {
        uint8_t *at = p + b * (size_t)types[t].bytes;
        if (types[t].type == EDGE_F32) {
            float x = (float)(next() & 0xFFFF) / 65536.0f - 0.5f;
            memcpy(at, &x, sizeof x);
        } else if (types[t].block == 1) { /* an exponent around that of one */
            at[1] = (uint8_t)((at[1] & 0x83) | (types[t].type == EDGE_F16 ? 0x30 : 0x3C));
        }
        if (types[t].type == EDGE_MXFP4) at[0] = (uint8_t)(120 + (at[0] & 7));
        if (types[t].type == EDGE_IQ1_M) at[55] = (uint8_t)(0x20 | (at[55] & 0x0F)); /* the exponent's top bits */
        for (int i = 0; i < 2; i++) {
            uint32_t bits = next();
            if (types[t].halves[i] >= 0) at[types[t].halves[i] + 1] = (uint8_t)((0x24 + (bits & 15)) | (bits & 0x80));
        }
    }
    return p;
}

static edge_act activations(const float *x, int rows, int n_in) {
    size_t r = (size_t)rows, nb = (size_t)n_in / 32;
    edge_act act = {room(r * nb * sizeof *act.block), (int)nb};
    for (int i = 0; i < rows; i++) kernels.quantize(x + (size_t)i * (size_t)n_in, i, 0, (int)nb, &act);
    return act;
}

static void run_quantize(void) {
    enum { ROWS = 40, N = 256 };
    float *x = floats(ROWS * N, 1.0f);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < N; i++) x[r * N + i] = ldexpf(x[r * N + i], r * 6 - 130);
    edge_act act = activations(x, ROWS, N);
    for (int i = 0; i < ROWS * N / 32; i++) {
        absorb(act.block[i].q, sizeof act.block[i].q);
        absorb(act.block[i].isum16, sizeof act.block[i].isum16);
        absorb_floats(act.block[i].d, 2);
        absorb_floats(act.block[i].sum16, 2);
        absorb_floats(&act.block[i].sum32, 1);
    }
    report("quantize", N);
    free(act.block);
    for (int r = 0; r < ROWS; r++) x[r * N + (r * 37) % N] = odd[r % N_ODD];
    act = activations(x, ROWS, N);
    for (int i = 0; i < ROWS * N / 32; i++) absorb_floats(act.block[i].d, 2); /* bytes of a run with a NaN scale are free */
    report("quantize-odd", N);
    free(act.block);
    free(x);
}

static void run_matmul(int t) {
    static const int rows_of[] = {1, 2, 5, 17, 37};
    int n_out = 39, n_in = types[t].block == 1 ? 100 : 2 * 256 + (types[t].block == 32 ? 96 : 0);
    for (int i = 0; i < 5; i++) {
        int rows = rows_of[i], act_in = types[t].block == 1 ? 0 : n_in;
        uint8_t *data = weights(t, (size_t)n_out, (size_t)n_in, 0);
        float *x = floats((size_t)(rows * n_in), 3.0f), *bias = floats((size_t)n_out, 1.0f), scale = 0.7f;
        float *out = room((size_t)(rows * n_out) * sizeof *out);
        edge_act act = activations(x, rows, act_in);
        void *scratch = room(edge_tile_bytes(act_in));
        edge_matrix w = {data, (size_t)(n_in / types[t].block * types[t].bytes), n_in, n_out, i & 1 ? &scale : NULL,
                         i & 2 ? bias : NULL, NULL};
        kernels.matmul[types[t].type](&w, x, &act, rows, out, 1, 3, scratch);
        kernels.matmul[types[t].type](&w, x, &act, rows, out, 0, 1, scratch);
        absorb_floats(out, (size_t)(rows * n_out));
        report("matmul", 100 * types[t].type + rows);
        free(act.block);
        free(data), free(x), free(bias), free(out), free(scratch);
    }
}

static void run_dequantize(int t) {
    for (int wild = 0; wild < 2; wild++) {
        int n = types[t].block == 1 ? 1000 : 256 * 9;
        uint8_t *row = weights(t, 1, (size_t)n, wild);
        float *out = room((size_t)n * sizeof *out);
        kernels.dequantize[types[t].type](row, out, n);
        absorb_floats(out, (size_t)n);
        report(wild ? "dequantize-wild" : "dequantize", types[t].type);
        free(row), free(out);
    }
}

static void run_rows(int n) {
    size_t count = (size_t)n;
    float *x = floats(count, 8.0f), *y = floats(count, 2.0f), *cs = floats(count, 1.0f), *out = room(count * sizeof *out);
    for (int i = 0; i < n && i < N_ODD && n > 64; i++) x[i] = odd[i];
    for (int gelu = 0; gelu < 2; gelu++) {
        kernels.glu(x, y, out, count, gelu);
        absorb_floats(out, count);
        report(gelu ? "gelu" : "silu", n);
    }
    kernels.softcap(x, out, count, 30.0f);
    absorb_floats(out, count);
    report("softcap", n);
    kernels.add(x, y, out, count);
    kernels.scale(out, out, count, 0.3f);
    absorb_floats(out, count);
    report("add-scale", n);
    kernels.rms_norm(y, n & 1 ? NULL : cs, out, n, n, 1e-6f);
    absorb_floats(out, count);
    report("rms_norm", n);
    for (int neox = 0; neox < 2 && n > 3; neox++) {
        memcpy(out, y, count * sizeof *out);
        kernels.rope(y, cs, out, 1, n, n / 2 / 2 * 2, neox);
        absorb_floats(out, count);
        report(neox ? "rope-neox" : "rope", n);
    }
    free(x), free(y), free(cs), free(out);
}

static void run_attention(int kind, int dim, int dim_v, int window, float softcap) {
    enum { TOKENS = 600, HEADS = 2, PAGES = (TOKENS + 15) / 16 };
    size_t k_bytes = PAGES * HEADS * edge_kv_bytes(kind, dim), v_bytes = PAGES * HEADS * edge_kv_bytes(kind, dim_v);
    void *keys = room(k_bytes), *values = room(v_bytes);
    memset(keys, 0xFF, k_bytes); /* what is not stored is NaN */
    memset(values, 0xFF, v_bytes);
    int32_t pages[PAGES];
    for (int i = 0; i < PAGES; i++) pages[i] = (i * 11 + 5) % PAGES;
    edge_kv kv = {.k = keys, .v = values, .pages = pages, .n_head_kv = HEADS, .head_dim = dim, .head_dim_v = dim_v,
                  .window = window, .scale = 0.2f, .softcap = softcap, .cold = kind == EDGE_KV_F16, .ahead = pages,
                  .n_ahead = 3};
    for (int t = 0; t < TOKENS - 3; t++) {
        float *k = floats((size_t)(HEADS * dim), 2.0f), *v = floats((size_t)(HEADS * dim_v), 2.0f);
        kernels.kv_store[kind](k, v, &kv, pages[t / 16], t % 16);
        free(k), free(v);
    }
    float *cs = floats((size_t)dim, 1.0f);
    float *scratch = room(((size_t)dim + 32) * sizeof *scratch);
    for (int i = 0; i < 4; i++)
        kernels.kv_rotate[kind](&kv, pages[8 + i], cs, dim % 4, dim / 4 * 2, i & 1, scratch);
    free(scratch);
    scratch = room(edge_attend_floats(dim_v) * sizeof *scratch);
    for (int n = 1; n <= EDGE_QUERIES; n++) {
        float *q = floats((size_t)(n * dim), 1.0f), *acc = room((size_t)(n * dim_v) * sizeof *acc);
        float *out = room((size_t)dim_v * sizeof *out);
        const float *query[EDGE_QUERIES];
        float *to[EDGE_QUERIES];
        int first[EDGE_QUERIES], last[EDGE_QUERIES];
        edge_part part[EDGE_QUERIES];
        for (int i = 0; i < n; i++) {
            query[i] = q + i * dim;
            if (kernels.kv_query[kind]) {
                float *prepared = room(edge_query_floats(dim) * sizeof *prepared);
                kernels.kv_query[kind](query[i], dim, prepared);
                query[i] = prepared;
            }
            to[i] = acc + i * dim_v;
            last[i] = TOKENS - 4 - 13 * i;
            first[i] = window && last[i] >= window ? last[i] - window + 1 : 0;
            part[i] = (edge_part){0.0f, -1.0f};
        }
        for (int span = 0; span * EDGE_SPAN < TOKENS; span++)
            kernels.attend[kind](&kv, n & 1, n, query, first, last, span, part, to, scratch);
        for (int i = 0; i < n; i++) {
            kernels.finish(&part[i], to[i], out, dim_v);
            absorb_floats(out, (size_t)dim_v);
            if (kernels.kv_query[kind]) free((void *)(uintptr_t)query[i]);
        }
        free(q), free(acc), free(out);
    }
    static const char *const names[] = {"attend-f16", "attend-f32", "attend-q8_0"};
    report(names[kind], 1000 * dim + dim_v);
    free(keys), free(values), free(cs), free(scratch);
}

/* Which half a float becomes, and what a turn makes of it. */
static void run_store(void) {
    enum { DIM = 40 };
    uint16_t keys[DIM * EDGE_PAGE], values[DIM * EDGE_PAGE];
    memset(keys, 0, sizeof keys);
    memset(values, 0, sizeof values);
    edge_kv kv = {.k = keys, .v = values, .n_head_kv = 1, .head_dim = DIM, .head_dim_v = DIM, .scale = 1.0f};
    for (int t = 0; t < EDGE_PAGE; t++) {
        float *k = floats(DIM, ldexpf(1.0f, 2 * t - 26)), *v = floats(DIM, ldexpf(1.0f, 1 - t));
        for (int i = 0; i < DIM; i++) v[i] = t == 3 ? odd[i % N_ODD] : v[i];
        kernels.kv_store[0](k, v, &kv, 0, t);
        free(k), free(v);
    }
    absorb(values, sizeof values);
    report("store", DIM);
    float *cs = floats(DIM, 1.0f);
    for (int neox = 0; neox < 2; neox++) kernels.kv_rotate[0](&kv, 0, cs, 3, DIM - 6, neox, NULL);
    absorb(keys, sizeof keys);
    report("turn", DIM);
    free(cs);
}

static void run_trig(void) {
    for (int i = 0; i < 4000; i++) {
        double sc[2], x = (double)next();
        x = i < 2000 ? i * 0.37 : ldexp(x, (int)(next() % 24) - 26);
        edge_sincos(x, &sc[0], &sc[1]);
        absorb(sc, sizeof sc);
    }
    report("sincos", 4000);
}

int main(void) {
    PASTE(edge_kernels, EDGE_ISA_NAME)(&kernels);
    run_quantize();
    run_store();
    for (int t = 0; t < N_TYPES; t++) run_dequantize(t);
    for (int t = 0; t < N_TYPES; t++) run_matmul(t);
    static const int widths[] = {1, 2, 6, 15, 16, 17, 20, 64, 80, 100, 256, 1000};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        run_rows(widths[i]);
        run_mixtures(widths[i]);
    }
    for (int dim = 1; dim < 130; dim += dim < 40 ? 13 : 44) run_recurrences(dim);
    static const int dims[][2] = {{1, 1}, {4, 4}, {6, 20}, {64, 64}, {80, 33}, {128, 128}, {192, 128}, {256, 256}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int kind = 0; kind < EDGE_N_KV; kind++) {
            run_attention(kind, dims[i][0], dims[i][1], 0, i & 1 ? 20.0f : 0.0f);
            run_attention(kind, dims[i][0], dims[i][1], 40, 0.0f);
        }
    run_trig();
    return 0;
}
