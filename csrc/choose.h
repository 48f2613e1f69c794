/* The token that the usual samplers choose, in one pass over the vocabulary. */
#ifndef EDGE_CHOOSE_H
#define EDGE_CHOOSE_H

#include "kernels/kernels.h"

enum { EDGE_CUT_TOP_P = 0, EDGE_CUT_MIN_P = 1, EDGE_CUT_TEMPERATURE = 2 };

typedef struct {
    int32_t kind;
    double value;
} edge_cut;

enum { EDGE_MAX_CHOICES = 1024, EDGE_MAX_CUTS = 16 };

typedef struct {
    const float *logits;
    int32_t n;
    /* Logits that others take the place of: ids ascending, each below n. */
    const int32_t *ids;
    const float *values;
    int32_t n_edits;
    int32_t k;   /* the most likely ones that are looked at, 1 to EDGE_MAX_CHOICES */
    double whole; /* not 0: first the fewest of all tokens that reach this probability; if k do not, more are looked at */
    const edge_cut *cuts;
    int32_t n_cuts;
    double uniform; /* in [0, 1): where on the line of probabilities */
} edge_choice;

/* A token, or -1 where this is no case for it: logits that are NaN or infinite, no possible token, too many for
 * `whole`; -2: out of memory. */
int32_t edge_choose(const edge_kernels *kernels, const edge_choice *choice);

#endif
