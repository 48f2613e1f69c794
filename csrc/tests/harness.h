/* What the harness's files share: pseudo-random inputs, buffers of exact size, and hashes of results. */
#ifndef EDGE_HARNESS_H
#define EDGE_HARNESS_H

#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/kernels.h"

extern edge_kernels kernels;

uint32_t next(void);

/* Zeroed memory of exactly this size. */
void *room(size_t bytes);

/* About normal, times `size`. */
float *floats(size_t n, float size);

/* Take bytes, or floats of which every NaN counts as the same, into the hash of the report to come. */
void absorb(const void *data, size_t n);
void absorb_floats(const float *x, size_t n);
void report(const char *name, int detail);

/* What rounding and comparing go wrong with. */
enum { N_ODD = 30 };
extern const float odd[N_ODD];

/* kernels_sequence.c: mixtures and recurrences. */
void run_mixtures(int n);
void run_recurrences(int dim);

#endif
