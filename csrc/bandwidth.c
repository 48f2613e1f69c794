/* How fast this machine reads memory: the ceiling of decoding. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "edgellm.h"
#include "pool.h"

typedef struct {
    const uint64_t *data;
    size_t words;
    _Atomic uint64_t sum;
} edge_reading;

static void read_share(void *context, int thread, edge_team *team) {
    edge_reading *r = context;
    size_t n = (size_t)edge_team_size(team), from = r->words / n * (size_t)thread, to = from + r->words / n;
    uint64_t s[8] = {0};
    for (size_t i = from; i + 8 <= to; i += 8)
        for (int j = 0; j < 8; j++) s[j] += r->data[i + (size_t)j];
    uint64_t sum = 0;
    for (int j = 0; j < 8; j++) sum += s[j];
    atomic_fetch_add(&r->sum, sum); /* so that the reads cannot be left out */
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double edge_read_bandwidth(size_t bytes, int threads, int repeats) {
    void *data = malloc(bytes);
    if (!data || bytes < 4096) {
        free(data);
        return 0.0;
    }
    memset(data, 1, bytes);
    edge_reading r = {.data = data, .words = bytes / 8};
    double best = 0.0;
    for (int i = 0; i < repeats; i++) {
        double start = seconds();
        edge_pool_run(threads, read_share, &r);
        double rate = (double)bytes / (seconds() - start) * 1e-9;
        if (rate > best) best = rate;
    }
    free(data);
    return best;
}
