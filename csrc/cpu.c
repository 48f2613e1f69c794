#include "cpu.h"

#include <string.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

static edge_kernels storage[4];
static const edge_kernels *available[4];
static int count;
static char features[160];

static void offer(void (*fill)(edge_kernels *)) {
    fill(&storage[count]);
    available[count] = &storage[count];
    count++;
}

static int feature(int has, const char *name) {
    if (has) {
        if (features[0]) strcat(features, " ");
        strcat(features, name);
    }
    return has;
}

/* Called once, when the module is imported, under the interpreter's lock. */
static void detect(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    int avx2 = feature(__builtin_cpu_supports("avx2") != 0, "avx2");
    avx2 &= feature(__builtin_cpu_supports("fma") != 0, "fma");
    avx2 &= feature(__builtin_cpu_supports("f16c") != 0, "f16c");
    int avx512 = feature(__builtin_cpu_supports("avx512f") != 0, "avx512f");
    avx512 &= feature(__builtin_cpu_supports("avx512bw") != 0, "avx512bw");
    avx512 &= feature(__builtin_cpu_supports("avx512dq") != 0, "avx512dq");
    avx512 &= feature(__builtin_cpu_supports("avx512vl") != 0, "avx512vl");
    avx512 &= feature(__builtin_cpu_supports("avx512vnni") != 0, "avx512vnni");
    avx512 &= feature(__builtin_cpu_supports("avx512vbmi") != 0, "avx512vbmi");
    if (avx512 && avx2) offer(edge_kernels_avx512);
    if (avx2) offer(edge_kernels_avx2);
#elif defined(__aarch64__)
#if defined(__linux__)
    int dot = (getauxval(AT_HWCAP) & (1UL << 20)) != 0;
#else
    int dot = 1; /* every Apple processor of this kind */
#endif
    if (feature(dot, "dotprod")) offer(edge_kernels_neon);
#endif
    offer(edge_kernels_generic);
}

int edge_cpu_tables(const edge_kernels *const **tables) {
    if (!count) detect();
    *tables = available;
    return count;
}

const edge_kernels *edge_cpu_table(const char *name) {
    const edge_kernels *const *tables;
    int n = edge_cpu_tables(&tables);
    for (int i = 0; i < n; i++)
        if (!strcmp(tables[i]->name, name)) return tables[i];
    return NULL;
}

const char *edge_cpu_features(void) {
    const edge_kernels *const *tables;
    edge_cpu_tables(&tables);
    return features;
}
