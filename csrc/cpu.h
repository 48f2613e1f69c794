/* Which kernels this processor can run. */
#ifndef EDGE_CPU_H
#define EDGE_CPU_H

#include "kernels/kernels.h"

/* The kernel tables that work here, best first; the last is always the generic one. */
int edge_cpu_tables(const edge_kernels *const **tables);

/* The table called `name`, or NULL if it is unknown or does not work here. */
const edge_kernels *edge_cpu_table(const char *name);

/* Feature names the choice depends on that this processor has, separated by spaces. */
const char *edge_cpu_features(void);

#endif
