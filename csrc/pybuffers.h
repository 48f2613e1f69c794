/* Arguments that are buffers, as the numbers the core reads.  Functions that return 0 have set an error. */
#ifndef EDGE_PYBUFFERS_H
#define EDGE_PYBUFFERS_H

#include "pyapi.h"

#include "edgellm.h"

/* Buffers that stay as they are until edge_release_buffers. */
typedef struct {
    Py_buffer *views;
    Py_ssize_t n;
} edge_buffers;

void edge_release_buffers(edge_buffers *held);

/* A contiguous buffer of whole `item`-byte elements, where the processor expects numbers of that size. */
int edge_items(PyObject *object, Py_buffer *view, size_t item, const char *what, Py_ssize_t *count);

/* weights: a sequence of (buffer, type, n_in, n_out, row_bytes); *out is the caller's, to be given to PyMem_Free,
 * and what has been held must be released also after an error. */
int edge_take_weights(PyObject *list, edge_buffers *held, edge_weight **out);

/* ropes: a sequence of (float64 buffer, neox, magnitude); *out and *frequencies, with all that is in it, are the
 * caller's also after an error. */
int edge_take_ropes(PyObject *list, edge_rope **out, double ***frequencies, Py_ssize_t *count);

/* calls: a sequence of (address, n_params); *out is the caller's also after an error. */
int edge_take_calls(PyObject *list, edge_call **out, Py_ssize_t *count);

#endif
