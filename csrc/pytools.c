/* Functions of the module that need no executor: the processor, its memory's speed, rows of any type as floats. */
#include "pytools.h"

#include <string.h>

#include "choose.h"
#include "cpu.h"
#include "edgellm.h"
#include "pool.h"
#include "pybuffers.h"

static PyObject *cpu_info(PyObject *module, PyObject *none) {
    (void)module;
    (void)none;
    const edge_kernels *const *tables;
    int n = edge_cpu_tables(&tables);
    PyObject *names = PyList_New(0);
    for (int i = 0; names && i < n; i++) {
        PyObject *name = PyUnicode_FromString(tables[i]->name);
        if (!name || PyList_Append(names, name)) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    if (!names) return NULL;
    PyObject *features = PyUnicode_FromString(edge_cpu_features());
    PyObject *split = features ? PyObject_CallMethod(features, "split", NULL) : NULL;
    Py_XDECREF(features);
    if (!split) {
        Py_DECREF(names);
        return NULL;
    }
    return Py_BuildValue("{s:s,s:N,s:N}", "isa", tables[0]->name, "available", names, "features", split);
}

static PyObject *read_bandwidth(PyObject *module, PyObject *args) {
    (void)module;
    Py_ssize_t bytes;
    int threads, repeats;
    if (!PyArg_ParseTuple(args, "nii", &bytes, &threads, &repeats)) return NULL;
    if (bytes < 4096 || threads < 1 || threads > EDGE_MAX_THREADS || repeats < 1) {
        PyErr_SetString(PyExc_ValueError, "read_bandwidth wants at least 4096 bytes, one thread and one repeat");
        return NULL;
    }
    double rate;
    Py_BEGIN_ALLOW_THREADS
    rate = edge_read_bandwidth((size_t)bytes, threads, repeats);
    Py_END_ALLOW_THREADS
    return rate > 0.0 ? PyFloat_FromDouble(rate) : PyErr_NoMemory();
}

/* dequantize(isa, type, rows, out): rows of one length, as floats. */
static PyObject *dequantize(PyObject *module, PyObject *args) {
    (void)module;
    const char *isa;
    PyObject *from, *to;
    int type;
    Py_ssize_t row_bytes;
    if (!PyArg_ParseTuple(args, "siOnO", &isa, &type, &from, &row_bytes, &to)) return NULL;
    const edge_kernels *k = edge_cpu_table(isa);
    if (!k || type < 0 || type >= EDGE_N_TYPES || !k->dequantize[type])
        return PyErr_Format(PyExc_ValueError, "no kernel for type %d and instruction set '%s'", type, isa);
    Py_buffer in, out;
    if (PyObject_GetBuffer(from, &in, PyBUF_SIMPLE)) return NULL;
    if (PyObject_GetBuffer(to, &out, PyBUF_WRITABLE)) {
        PyBuffer_Release(&in);
        return NULL;
    }
    PyObject *result = NULL;
    Py_ssize_t rows = row_bytes > 0 ? in.len / row_bytes : 0;
    Py_ssize_t n = rows ? out.len / 4 / rows : 0;
    edge_weight w = {in.buf, (size_t)in.len, type, n, rows, (size_t)row_bytes};
    char message[256] = "the output is empty";
    if (n > 0 && !edge_check_weight(&w, k, message, sizeof message)) {
        for (Py_ssize_t r = 0; r < rows; r++)
            k->dequantize[type]((const uint8_t *)in.buf + r * row_bytes, (float *)out.buf + r * n, (int)n);
        result = Py_NewRef(Py_None);
    } else {
        PyErr_SetString(PyExc_ValueError, message);
    }
    PyBuffer_Release(&in);
    PyBuffer_Release(&out);
    return result;
}

/* choose(isa, logits, ids, values, k, whole, cuts, uniform): a token, or None; see edge_choice. */
static PyObject *choose(PyObject *module, PyObject *args) {
    (void)module;
    const char *isa;
    PyObject *given[4];
    edge_choice c = {0};
    if (!PyArg_ParseTuple(args, "sOOOidOd", &isa, &given[0], &given[1], &given[2], &c.k, &c.whole, &given[3], &c.uniform))
        return NULL;
    const edge_kernels *kernels = edge_cpu_table(isa);
    if (!kernels) return PyErr_Format(PyExc_ValueError, "instruction set '%s' does not work here", isa);
    static const size_t item[4] = {4, 4, 4, sizeof(edge_cut)};
    static const char *const what[4] = {"logits", "ids", "values", "cuts"};
    edge_cut cuts[EDGE_MAX_CUTS];
    Py_buffer view[4];
    Py_ssize_t n[4];
    int held = 0;
    PyObject *result = NULL;
    for (; held < 4; held++)
        if (!edge_items(given[held], &view[held], item[held], what[held], &n[held])) goto out;
    c.logits = view[0].buf;
    c.ids = view[1].buf;
    c.values = view[2].buf;
    c.cuts = cuts;
    int right = n[0] > 0 && n[0] <= INT32_MAX / 2 && n[1] <= n[0] && n[1] == n[2] && n[3] <= EDGE_MAX_CUTS &&
                c.k > 0 && c.k <= EDGE_MAX_CHOICES;
    for (Py_ssize_t i = 0; right && i < n[1]; i++) right = c.ids[i] > (i ? c.ids[i - 1] : -1) && c.ids[i] < n[0];
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "choose wants ascending ids of logits, a value for each, and 1 to 1024 choices");
        goto out;
    }
    memcpy(cuts, view[3].buf, (size_t)view[3].len); /* which may begin anywhere */
    c.n = (int32_t)n[0];
    c.n_edits = (int32_t)n[1];
    c.n_cuts = (int32_t)n[3];
    int32_t token = edge_choose(kernels, &c);
    result = token == -2 ? PyErr_NoMemory() : token < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(token);
out:
    while (held > 0) PyBuffer_Release(&view[--held]);
    return result;
}

PyMethodDef edge_functions[] = {
    {"cpu_info", cpu_info, METH_NOARGS, "cpu_info() -> {isa, available, features}: kernels that work here."},
    {"read_bandwidth", read_bandwidth, METH_VARARGS, "read_bandwidth(bytes, threads, repeats) -> GB/s, the best."},
    {"dequantize", dequantize, METH_VARARGS, "dequantize(isa, type, rows, row_bytes, out): rows as float32."},
    {"choose", choose, METH_VARARGS, "choose(isa, logits, ids, values, k, whole, cuts, uniform): a token, or None."},
    {NULL, NULL, 0, NULL},
};
