/* The only file that knows Python: edgellm._native, in the stable ABI of 3.11. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "cpu.h"
#include "edgellm.h"
#include "pool.h"

typedef struct {
    PyObject_HEAD
    edge_exec *exec;
    Py_buffer *buffers; /* the weights' bytes */
    Py_ssize_t n_buffers;
    int32_t n_groups, n_vocab, n_embedding;
    int busy; /* a step runs without the interpreter's lock */
} Executor;

static PyObject *Cancelled;

static PyObject *raise(int rc, const char *message) {
    PyObject *kind = rc == EDGE_NO_MEMORY ? PyExc_MemoryError : rc == EDGE_CANCELLED ? Cancelled : PyExc_ValueError;
    PyErr_SetString(kind, message);
    return NULL;
}

/* A contiguous buffer of whole `item`-byte elements, where the processor expects numbers of that size. */
static int items(PyObject *object, Py_buffer *view, size_t item, const char *what, Py_ssize_t *count) {
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

static void release(Executor *self) {
    edge_exec_free(self->exec);
    self->exec = NULL;
    for (Py_ssize_t i = 0; i < self->n_buffers; i++) PyBuffer_Release(&self->buffers[i]);
    PyMem_Free(self->buffers);
    self->buffers = NULL;
    self->n_buffers = 0;
}

static void executor_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    release((Executor *)object);
    freefunc free = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free(object);
    Py_DECREF(type);
}

/* weights: a sequence of (buffer, type, n_in, n_out, row_bytes). */
static int take_weights(Executor *self, PyObject *list, edge_weight **out) {
    Py_ssize_t n = length(list, "weights");
    if (n < 0) return 0;
    edge_weight *weights = *out = PyMem_Calloc((size_t)n + 1, sizeof *weights);
    self->buffers = PyMem_Calloc((size_t)n + 1, sizeof *self->buffers);
    if (!weights || !self->buffers) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *row = tuple_at(list, i, "weight"), *buffer;
        if (!row) return 0;
        int type, ok;
        long long n_in, n_out, row_bytes;
        ok = PyArg_ParseTuple(row, "OiLLL", &buffer, &type, &n_in, &n_out, &row_bytes) &&
             !PyObject_GetBuffer(buffer, &self->buffers[i], PyBUF_SIMPLE);
        Py_DECREF(row);
        if (!ok) return 0;
        self->n_buffers = i + 1;
        if (row_bytes <= 0) {
            PyErr_Format(PyExc_ValueError, "weight %zd has rows of %lld bytes", i, row_bytes);
            return 0;
        }
        weights[i] = (edge_weight){self->buffers[i].buf, (size_t)self->buffers[i].len, type, n_in, n_out,
                                   (size_t)row_bytes};
    }
    return 1;
}

/* ropes: a sequence of (float64 buffer, neox, magnitude). */
static int take_ropes(PyObject *list, edge_rope **out, double ***frequencies, Py_ssize_t *count) {
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
             items(buffer, &view, sizeof(double), "inv_freq", &half);
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

/* Executor(isa, ops, weights, slots, states, ropes, pages, max_rows, n_vocab, kv_type[, recurrent, n_sequences,
 * embedding]): the arrays are buffers of the structures in edgellm.h. */
static PyObject *executor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    const char *isa;
    PyObject *ops, *weights, *slots, *states, *ropes, *pages, *recurrent = NULL;
    int max_rows, n_vocab, kv_type, n_sequences = 0, embedding = -1;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Executor takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "sOOOOOOiii|Oii", &isa, &ops, &weights, &slots, &states, &ropes, &pages, &max_rows,
                          &n_vocab, &kv_type, &recurrent, &n_sequences, &embedding))
        return NULL;
    const edge_kernels *kernels = edge_cpu_table(isa);
    if (!kernels) return PyErr_Format(PyExc_ValueError, "instruction set '%s' does not work on this machine", isa);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Executor *self = (Executor *)alloc(type, 0);
    if (!self) return NULL;
    Py_buffer views[5];
    int held = 0, done = 0;
    Py_ssize_t count[5] = {0}, n_ropes = 0;
    struct {
        PyObject *object;
        size_t item;
        const char *what;
    } wanted[5] = {{ops, sizeof(edge_op), "ops"},
                   {slots, sizeof(int32_t), "slots"},
                   {states, sizeof(edge_state), "states"},
                   {pages, sizeof(int32_t), "pages"},
                   {recurrent, sizeof(edge_recurrent), "recurrent"}};
    edge_weight *weight_rows = NULL;
    edge_rope *rope_rows = NULL;
    double **frequencies = NULL;
    char message[256] = "";
    for (; held < (recurrent ? 5 : 4); held++) {
        if (!items(wanted[held].object, &views[held], wanted[held].item, wanted[held].what, &count[held])) goto out;
        if (count[held] > INT32_MAX) {
            PyErr_Format(PyExc_ValueError, "%s is too long", wanted[held].what);
            held++;
            goto out;
        }
    }
    if (!take_weights(self, weights, &weight_rows) || !take_ropes(ropes, &rope_rows, &frequencies, &n_ropes)) goto out;
    edge_model model = {.ops = views[0].buf, .weights = weight_rows, .slot_width = views[1].buf,
                        .states = views[2].buf, .recurrent = recurrent ? views[4].buf : NULL, .ropes = rope_rows, .pages = views[3].buf,
                        .n_ops = (int32_t)count[0], .n_weights = (int32_t)self->n_buffers,
                        .n_slots = (int32_t)count[1], .n_states = (int32_t)count[2],
                        .n_recurrent = (int32_t)count[4], .n_ropes = (int32_t)n_ropes, .n_groups = (int32_t)count[3],
                        .max_rows = max_rows, .n_vocab = n_vocab, .kv_type = kv_type, .n_sequences = n_sequences, .embedding = embedding};
    int rc = edge_exec_new(&model, kernels, &self->exec, message, sizeof message);
    if (rc) {
        raise(rc, message);
        goto out;
    }
    self->n_groups = model.n_groups;
    self->n_vocab = n_vocab;
    self->n_embedding = embedding < 0 ? 0 : model.ops[embedding].width;
    done = 1;
out:
    while (held > 0) PyBuffer_Release(&views[--held]);
    for (Py_ssize_t i = 0; frequencies && i < n_ropes; i++) PyMem_Free(frequencies[i]);
    PyMem_Free(frequencies);
    PyMem_Free(rope_rows);
    PyMem_Free(weight_rows);
    if (!done) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int usable(Executor *self) {
    if (!self->exec) PyErr_SetString(PyExc_ValueError, "the executor is closed");
    else if (self->busy) PyErr_SetString(PyExc_ValueError, "the executor is running a step");
    else return 1;
    return 0;
}

/* step(tokens, segments, tables, table_starts, wanted, logits, threads[, slots, embed]): buffers as in edge_batch. */
static PyObject *executor_step(PyObject *object, PyObject *args) {
    Executor *self = (Executor *)object;
    PyObject *given[7] = {NULL};
    int threads, embed = 0;
    if (!PyArg_ParseTuple(args, "OOOOOOi|Op", &given[0], &given[1], &given[2], &given[3], &given[4], &given[5], &threads,
                          &given[6], &embed))
        return NULL;
    static const size_t item[7] = {4, sizeof(edge_segment), 4, 8, 4, 4, 4};
    static const char *const what[7] = {"tokens", "segments", "tables", "table_starts", "wanted", "logits", "slots"};
    Py_buffer view[7];
    Py_ssize_t n[7];
    int held = 0;
    PyObject *result = NULL;
    for (; held < (given[6] ? 7 : 6); held++) {
        if (held != 5) {
            if (!items(given[held], &view[held], item[held], what[held], &n[held])) goto out;
        } else {
            if (PyObject_GetBuffer(given[held], &view[held], PyBUF_WRITABLE)) goto out;
            n[held] = view[held].len / 4;
            if ((uintptr_t)view[held].buf % 4) {
                PyErr_SetString(PyExc_ValueError, "logits begins in the middle of a number");
                held++;
                goto out;
            }
        }
        if (n[held] > INT32_MAX && held != 5) {
            PyErr_Format(PyExc_ValueError, "%s is too long", what[held]);
            held++;
            goto out;
        }
    }
    if (!usable(self)) goto out; /* after the buffers, which may run any code */
    if (embed && !self->n_embedding) {
        PyErr_SetString(PyExc_ValueError, "the model makes no embeddings");
        goto out;
    }
    int32_t width = embed ? self->n_embedding : self->n_vocab;
    if (n[3] < n[1] * self->n_groups + 1 || n[5] / width < n[4]) {
        PyErr_Format(PyExc_ValueError, "%s is too short", n[5] / width < n[4] ? "logits" : "table_starts");
        goto out;
    }
    if (given[6] && n[6] < n[1]) {
        PyErr_SetString(PyExc_ValueError, "slots is too short");
        goto out;
    }
    edge_batch batch = {.tokens = view[0].buf, .segments = view[1].buf, .tables = view[2].buf,
                        .table_starts = view[3].buf, .wanted = view[4].buf, .slots = given[6] ? view[6].buf : NULL,
                        .logits = view[5].buf, .n_tables = n[2], .n_rows = (int32_t)n[0], .n_segments = (int32_t)n[1],
                        .n_wanted = (int32_t)n[4], .threads = threads, .embed = embed};
    char message[256] = "the step was cancelled";
    self->busy = 1;
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = edge_exec_step(self->exec, &batch, message, sizeof message);
    Py_END_ALLOW_THREADS
    self->busy = 0;
    result = rc ? raise(rc, message) : Py_NewRef(Py_None);
out:
    while (held > 0) PyBuffer_Release(&view[--held]);
    return result;
}

static PyObject *executor_copy_pages(PyObject *object, PyObject *args) {
    Executor *self = (Executor *)object;
    PyObject *pairs;
    int group;
    if (!PyArg_ParseTuple(args, "iO", &group, &pairs)) return NULL;
    Py_buffer view;
    Py_ssize_t n;
    char message[256] = "";
    if (!items(pairs, &view, 4, "pairs", &n)) return NULL;
    PyObject *result = NULL;
    if (n % 2 || n > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd page numbers are not pairs", n);
    } else if (usable(self)) {
        int rc = edge_exec_copy_pages(self->exec, group, view.buf, (int)(n / 2), message, sizeof message);
        result = rc ? raise(rc, message) : Py_NewRef(Py_None);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *executor_copy_states(PyObject *object, PyObject *pairs) {
    Executor *self = (Executor *)object;
    Py_buffer view;
    Py_ssize_t n;
    char message[256] = "";
    if (!items(pairs, &view, 4, "pairs", &n)) return NULL;
    PyObject *result = NULL;
    if (n % 2 || n > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd slot numbers are not pairs", n);
    } else if (usable(self)) {
        int rc = edge_exec_copy_states(self->exec, view.buf, (int)(n / 2), message, sizeof message);
        result = rc ? raise(rc, message) : Py_NewRef(Py_None);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *executor_rotate_keys(PyObject *object, PyObject *args) {
    Executor *self = (Executor *)object;
    PyObject *pages;
    int group, delta;
    if (!PyArg_ParseTuple(args, "iOi", &group, &pages, &delta)) return NULL;
    Py_buffer view;
    Py_ssize_t n;
    char message[256] = "";
    if (!items(pages, &view, 4, "pages", &n)) return NULL;
    PyObject *result = NULL;
    if (n > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "pages is too long");
    } else if (usable(self)) {
        int rc = edge_exec_rotate_keys(self->exec, group, view.buf, (int)n, delta, message, sizeof message);
        result = rc ? raise(rc, message) : Py_NewRef(Py_None);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *executor_cancel(PyObject *object, PyObject *none) {
    (void)none;
    Executor *self = (Executor *)object;
    if (self->exec) edge_exec_cancel(self->exec);
    Py_RETURN_NONE;
}

static PyObject *executor_close(PyObject *object, PyObject *none) {
    (void)none;
    Executor *self = (Executor *)object;
    if (self->exec && !usable(self)) return NULL;
    release(self);
    Py_RETURN_NONE;
}

static PyObject *executor_memory(PyObject *object, PyObject *none) {
    (void)none;
    Executor *self = (Executor *)object;
    if (!usable(self)) return NULL;
    size_t kv, scratch;
    edge_exec_memory(self->exec, &kv, &scratch);
    return Py_BuildValue("(KK)", (unsigned long long)kv, (unsigned long long)scratch);
}

static PyMethodDef executor_methods[] = {
    {"step", executor_step, METH_VARARGS, "step(tokens, segments, tables, table_starts, wanted, logits, threads)"},
    {"copy_pages", executor_copy_pages, METH_VARARGS, "copy_pages(group, pairs)"},
    {"copy_states", executor_copy_states, METH_O, "copy_states(pairs)"},
    {"rotate_keys", executor_rotate_keys, METH_VARARGS, "rotate_keys(group, pages, delta)"},
    {"cancel", executor_cancel, METH_NOARGS, "Make the running step end early; safe from any thread."},
    {"close", executor_close, METH_NOARGS, "Give back all memory."},
    {"memory", executor_memory, METH_NOARGS, "memory() -> (key/value bytes, other bytes)"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot executor_slots[] = {
    {Py_tp_new, executor_new},
    {Py_tp_dealloc, executor_dealloc},
    {Py_tp_methods, executor_methods},
    {Py_tp_doc, "A Program in native code; see edgellm.h."},
    {0, NULL},
};

static PyType_Spec executor_spec = {"edgellm._native.Executor", sizeof(Executor), 0, Py_TPFLAGS_DEFAULT, executor_slots};

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

static PyMethodDef functions[] = {
    {"cpu_info", cpu_info, METH_NOARGS, "cpu_info() -> {isa, available, features}: kernels that work here."},
    {"read_bandwidth", read_bandwidth, METH_VARARGS, "read_bandwidth(bytes, threads, repeats) -> GB/s, the best."},
    {"dequantize", dequantize, METH_VARARGS, "dequantize(isa, type, rows, row_bytes, out): rows as float32."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", "EdgeLLM's native core.", -1, functions,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    PyObject *type = PyType_FromSpec(&executor_spec);
    Cancelled = PyErr_NewException("edgellm._native.Cancelled", PyExc_RuntimeError, NULL);
    if (!type || !Cancelled || PyModule_AddObjectRef(module, "Executor", type) ||
        PyModule_AddObjectRef(module, "Cancelled", Cancelled) ||
        PyModule_AddIntConstant(module, "OP_BYTES", (long)sizeof(edge_op)) ||
        PyModule_AddIntConstant(module, "STATE_BYTES", (long)sizeof(edge_state)))
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
