#ifndef EDGE_PYTOOLS_H
#define EDGE_PYTOOLS_H

#include "pyapi.h"

/* The module's functions, for PyModuleDef. */
extern PyMethodDef edge_functions[];

#endif
