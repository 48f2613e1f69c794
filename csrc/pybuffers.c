/* From Python's sequences and buffers to the arrays of a description; whatever does not fit is an error. */
#include "pybuffers.h"

#include <string.h>

int edge_items(PyObject *object, Py_buffer *view, size_t item, const char *what, Py_ssize_t *count) {
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE)) return 0;
    if ((size_t)view->len % item) {
        PyErr_Format(PyExc_ValueError, "%s has %zd bytes, not a multiple of %zu", what, view->len, item);
        PyBuffer_Release(view);
        return 0;
    }
    if ((uintptr_t)view->buf % (item == 8 ? 8 : 4)) {
        PyErr_Format(PyExc_ValueError, "%s begins in the middle of a number", what);
        PyBuffer_Release(view);
        return 0;
    }
    *count = view->len / (Py_ssize_t)item;
    return 1;
}

void edge_release_buffers(edge_buffers *held) {
    for (Py_ssize_t i = 0; i < held->n; i++) PyBuffer_Release(&held->views[i]);
    PyMem_Free(held->views);
    *held = (edge_buffers){NULL, 0};
}

/* How many rows a sequence has, or -1 and an error. */
static Py_ssize_t length(PyObject *list, const char *what) {
    Py_ssize_t n = PySequence_Size(list);
    if (n <= INT32_MAX) return n;
    PyErr_Format(PyExc_ValueError, "there are %zd %s, too many", n, what);
    return -1;
}

/* Number i of a sequence, which must be a tuple. */
static PyObject *tuple_at(PyObject *list, Py_ssize_t i, const char *what) {
    PyObject *row = PySequence_GetItem(list, i);
    if (row && !PyTuple_Check(row)) {
        PyErr_Format(PyExc_TypeError, "%s %zd is not a tuple", what, i);
        Py_CLEAR(row);
    }
    return row;
}

int edge_take_weights(PyObject *list, edge_buffers *held, edge_weight **out) {
    Py_ssize_t n = length(list, "weights");
    if (n < 0) return 0;
    edge_weight *weights = *out = PyMem_Calloc((size_t)n + 1, sizeof *weights);
    held->views = PyMem_Calloc((size_t)n + 1, sizeof *held->views);
    if (!weights || !held->views) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *row = tuple_at(list, i, "weight"), *buffer;
        if (!row) return 0;
        int type, ok;
        long long n_in, n_out, row_bytes;
        ok = PyArg_ParseTuple(row, "OiLLL", &buffer, &type, &n_in, &n_out, &row_bytes) &&
             !PyObject_GetBuffer(buffer, &held->views[i], PyBUF_SIMPLE);
        Py_DECREF(row);
        if (!ok) return 0;
        held->n = i + 1;
        if (row_bytes <= 0) {
            PyErr_Format(PyExc_ValueError, "weight %zd has rows of %lld bytes", i, row_bytes);
            return 0;
        }
        weights[i] = (edge_weight){held->views[i].buf, (size_t)held->views[i].len, type, n_in, n_out,
                                   (size_t)row_bytes};
    }
    return 1;
}

int edge_take_ropes(PyObject *list, edge_rope **out, double ***frequencies, Py_ssize_t *count) {
    Py_ssize_t n = *count = length(list, "ropes");
    if (n < 0) return 0;
    *out = PyMem_Calloc((size_t)n + 1, sizeof **out);
    *frequencies = PyMem_Calloc((size_t)n + 1, sizeof **frequencies);
    if (!*out || !*frequencies) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *row = tuple_at(list, i, "rope"), *buffer;
        if (!row) return 0;
        Py_buffer view;
        Py_ssize_t half;
        int neox, ok;
        double magnitude;
        ok = PyArg_ParseTuple(row, "Oid", &buffer, &neox, &magnitude) &&
             edge_items(buffer, &view, sizeof(double), "inv_freq", &half);
        if (ok) {
            double *copy = (*frequencies)[i] = PyMem_Malloc((size_t)view.len + 1);
            if (copy && half < 1 << 15) {
                memcpy(copy, view.buf, (size_t)view.len);
                (*out)[i] = (edge_rope){copy, (int32_t)(2 * half), neox, (float)magnitude};
            } else {
                ok = 0;
                PyErr_SetString(PyExc_ValueError, "a rope has too many frequencies");
            }
            PyBuffer_Release(&view);
        }
        Py_DECREF(row);
        if (!ok) return 0;
    }
    return 1;
}

int edge_take_calls(PyObject *list, edge_call **out, Py_ssize_t *count) {
    Py_ssize_t n = *count = length(list, "calls");
    if (n < 0) return 0;
    edge_call *calls = *out = PyMem_Calloc((size_t)n + 1, sizeof *calls);
    if (!calls) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *row = tuple_at(list, i, "call");
        long long address, n_params;
        int ok = row && PyArg_ParseTuple(row, "LL", &address, &n_params);
        Py_XDECREF(row);
        if (!ok) return 0;
        calls[i] = (edge_call){(edge_rows_fn)(uintptr_t)address, n_params};
    }
    return 1;
}
