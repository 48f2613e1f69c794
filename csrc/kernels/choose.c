/* What choosing a token asks of the whole vocabulary.
 *
 * Written plainly, for compilers to turn into vectors: integers are exact, and the sum has lanes of its own.
 */
#include "tables.h"

/* peaks[i]: the largest key among the 64 logits from 64 i on.  Keys order as the numbers do, zeros alike.  Returns
 * whether all are below infinity and none is NaN. */
static int peaks(const float *x, size_t n, int32_t *out) {
    uint32_t nan = 0;
    int32_t most = INT32_MIN;
    for (size_t at = 0; at < n; at += EDGE_STRETCH) {
        int32_t peak = INT32_MIN;
        uint32_t widest = 0;
        size_t end = n - at < EDGE_STRETCH ? n - at : EDGE_STRETCH;
        for (size_t i = 0; i < end; i++) {
            uint32_t bits, size;
            memcpy(&bits, x + at + i, sizeof bits);
            size = bits & 0x7FFFFFFF;
            int32_t key = (int32_t)bits < 0 ? -(int32_t)size : (int32_t)size;
            peak = key > peak ? key : peak;
            widest = size > widest ? size : widest;
        }
        *out++ = peak;
        most = peak > most ? peak : most;
        nan = widest > nan ? widest : nan;
    }
    return nan <= 0x7F800000 && most < 0x7F800000;
}

/* e^x for x <= 0: below -708 it is 0. */
INLINE double falling_exp(double x) {
    double y = x > -708.0 ? x : -708.0, magic = 0x1.8p52, t = y * 1.4426950408889634 + magic, n = t - magic;
    double r = (y - n * 0x1.62e42fep-1) - n * 0x1.efa39ef35793cp-33;
    static const double c[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                               1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5,         1.0,        1.0};
    double p = 1.0 / 479001600;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) p = p * r + c[i];
    int64_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (int64_t)((uint64_t)(bits + 1023) << 52); /* the low bits of t are n */
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return x > -708.0 ? p * scale : 0.0;
}

enum { SUMS = 16 };

static double mass(const float *x, size_t n, double max) {
    double sum[SUMS] = {0};
    size_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++) sum[j] += falling_exp((double)x[i + (size_t)j] - max);
    for (int j = 0; i < n; i++, j++) sum[j] += falling_exp((double)x[i] - max);
    for (int half = SUMS / 2; half; half /= 2)
        for (int j = 0; j < half; j++) sum[j] += sum[j + half];
    return sum[0];
}

static double weight(double x) { return falling_exp(x); }

void FN(edge_fill_choose)(edge_kernels *t) {
    t->peaks = peaks;
    t->mass = mass;
    t->weight = weight;
}
