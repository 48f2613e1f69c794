#include "harness.h"

edge_kernels kernels;
static uint64_t state = 88172645463325252u, hash = 14695981039346656037u;
static size_t n_nan; /* in this report: a result made of them would prove nothing */

uint32_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

void *room(size_t bytes) {
    void *p;
    if (posix_memalign(&p, 64, bytes ? bytes : 1)) exit(2);
    memset(p, 0, bytes ? bytes : 1);
    return p;
}

void absorb(const void *data, size_t n) {
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * 1099511628211u;
}

void absorb_floats(const float *x, size_t n) {
    static const float nan_bits = NAN;
    for (size_t i = 0; i < n; i++) {
        n_nan += isnan(x[i]) != 0;
        absorb(isnan(x[i]) ? &nan_bits : &x[i], sizeof *x);
    }
}

void report(const char *name, int detail) {
    printf("%s %d %016llx", name, detail, (unsigned long long)hash);
    if (n_nan) printf(" with %zu NaN", n_nan);
    printf("\n");
    n_nan = 0;
    hash = 14695981039346656037u;
}

/* About normal, with a size that differs from run to run. */
static float value(void) {
    float x = 0.0f;
    for (int i = 0; i < 4; i++) x += (float)(next() & 0xFFFF) / 65536.0f - 0.5f;
    return x;
}

float *floats(size_t n, float size) {
    float *p = room(n * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = value() * size;
    return p;
}

const float odd[N_ODD] = {
    0.0f, -0.0f, 1e-45f, -1e-40f, 1e-38f, 3e-37f, 0.5f, 1.5f, 2.5f, -2.5f, 0.34999f, 0.35f, 19.9f, 20.1f,
    88.7f, -87.3f, -87.31f, 104.0f, -200.0f, 6.1e-5f, 5.9e-8f, 65504.0f, 65520.0f, 3.4e38f, INFINITY,
    -INFINITY, NAN, 127.5f, -1.0f, 1.0f,
};
