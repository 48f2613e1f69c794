/* The parts of a kernel table, one a source file. */
#ifndef EDGE_TABLES_H
#define EDGE_TABLES_H

#include "kernels.h"
#include "simd.h"

void FN(edge_fill_matmul)(edge_kernels *t);
void FN(edge_fill_rows)(edge_kernels *t);
void FN(edge_fill_attention)(edge_kernels *t);
void FN(edge_fill_attention_q8)(edge_kernels *t);
void FN(edge_fill_experts)(edge_kernels *t);
void FN(edge_fill_recurrent)(edge_kernels *t);
void FN(edge_fill_choose)(edge_kernels *t);

#endif
