/* Python's C API, the stable part of 3.11, for the files of csrc whose names begin with py. */
#ifndef EDGE_PYAPI_H
#define EDGE_PYAPI_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#endif
