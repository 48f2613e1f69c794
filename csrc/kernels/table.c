#include "tables.h"

void FN(edge_kernels)(edge_kernels *t) {
    memset(t, 0, sizeof *t);
#define EDGE_STR_(x) #x
#define EDGE_STR(x) EDGE_STR_(x)
    t->name = EDGE_STR(EDGE_ISA_NAME);
    FN(edge_fill_matmul)(t);
    FN(edge_fill_rows)(t);
    FN(edge_fill_attention)(t);
    FN(edge_fill_attention_q8)(t);
    FN(edge_fill_experts)(t);
    FN(edge_fill_recurrent)(t);
    FN(edge_fill_choose)(t);
}
