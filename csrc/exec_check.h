/* What checks of descriptions and of batches share: a condition that does not hold becomes a message and an error. */
#ifndef EDGE_EXEC_CHECK_H
#define EDGE_EXEC_CHECK_H

#include <stdarg.h>
#include <stdio.h>

#include "exec.h"

typedef struct {
    const edge_model *m;
    const edge_kernels *k;
    char *message;
    size_t size;
} checker;

static inline int fail(const checker *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(c->message, c->size, format, args);
    va_end(args);
    return EDGE_INVALID;
}

#define NEED(condition, ...) \
    do {                     \
        if (!(condition)) return fail(c, __VA_ARGS__); \
    } while (0)

enum { MOST = 1 << 30 }; /* a width, count or length above this is nonsense, and its products fit in 64 bits */

static inline int in(int32_t i, int32_t n) { return i >= 0 && i < n; }

#endif
