/* What runs experts op by op and what runs a whole mixture at once share. */
#ifndef EDGE_EXEC_EXPERTS_H
#define EDGE_EXEC_EXPERTS_H

#include "exec.h"

enum {
    EDGE_WIDE_TILES = 8, /* of one product of several rows: its results lie in scratch before they are put in place */
    EDGE_FEW_PAIRS = 4,  /* of an expert: memory is what products wait for */
};

/* The tiles of all chosen experts, one after the other, in units of `group` tiles. */
typedef struct {
    int tiles, group, groups; /* of one expert; its last group may be smaller */
    int count;                /* of all units */
} edge_units;

/* A unit: tiles from..to-1 of the expert that is number `at` of those chosen.  Its tiles up to end-1 are likely to follow,
 * and then what lies at `then`, or NULL. */
typedef struct {
    int at;
    int32_t expert;
    int from, to, end;
    const uint8_t *then;
} edge_part_of_expert;

void edge_sort_pairs(const edge_step *step, const edge_op *op, int32_t pairs, edge_sorted *s);
void edge_sort_row(const edge_step *step, const edge_op *op, edge_sorted *s);

/* The activations from number `block` on, with rows of n_block. */
edge_act edge_act_at(const edge_act *act, int n_block, size_t block);

/* The rows of an expert from a tile on. */
const uint8_t *edge_expert_rows(const edge_exec *e, const edge_op *op, int32_t expert, int tile);

/* Groups of `few` or up to `many` tiles, as there are pairs. */
edge_units edge_units_of(const edge_op *op, const edge_sorted *s, int few, int many, int n);

/* The unit whose turn it is; then: what follows after the thread's last one. */
edge_part_of_expert edge_part_at(const edge_exec *e, const edge_op *op, const edge_sorted *s, const edge_units *u,
                                 const edge_turn *turn, const uint8_t *then);

/* The product with `rows` inputs.  One row's results lie in out where they are in the expert's; those of several
 * rows have only the columns of the unit. */
void edge_multiply_expert(const edge_exec *e, const edge_op *op, const edge_part_of_expert *p, const float *x,
                          const edge_act *act, int rows, float *out, void *scratch);

/* The product with all the pairs that chose the expert, put where the pairs are in the op's out. */
void edge_multiply_pairs(edge_step *step, const edge_op *op, const edge_sorted *s, const edge_part_of_expert *p,
                         const edge_act *all, const float *gathered, int thread);

#endif
