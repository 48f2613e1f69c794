/* edgellm._native: the executor as a Python type, and the module that has it. */
#include "pybuffers.h"
#include "pytools.h"

#include "cpu.h"
#include "pool.h"

typedef struct {
    PyObject_HEAD
    edge_exec *exec;
    edge_buffers weights; /* their bytes */
    int32_t n_groups, n_vocab, n_embedding;
    int busy; /* a step runs without the interpreter's lock */
} Executor;

static PyObject *Cancelled;

static PyObject *raise(int rc, const char *message) {
    PyObject *kind = rc == EDGE_NO_MEMORY ? PyExc_MemoryError : rc == EDGE_CANCELLED ? Cancelled : PyExc_ValueError;
    PyErr_SetString(kind, message);
    return NULL;
}

static void release(Executor *self) {
    edge_exec_free(self->exec);
    self->exec = NULL;
    edge_release_buffers(&self->weights);
}

static void executor_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    release((Executor *)object);
    freefunc free = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free(object);
    Py_DECREF(type);
}

/* Executor(isa, ops, weights, slots, states, ropes, pages, max_rows, n_vocab, kv_type[, recurrent, n_sequences,
 * embedding, calls]): the arrays are buffers of the structures in edgellm.h.  Addresses in `calls` are taken on
 * trust. */
static PyObject *executor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    const char *isa;
    PyObject *ops, *weights, *slots, *states, *ropes, *pages, *recurrent = NULL, *calls = NULL;
    int max_rows, n_vocab, kv_type, n_sequences = 0, embedding = -1;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Executor takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "sOOOOOOiii|OiiO", &isa, &ops, &weights, &slots, &states, &ropes, &pages, &max_rows,
                          &n_vocab, &kv_type, &recurrent, &n_sequences, &embedding, &calls))
        return NULL;
    const edge_kernels *kernels = edge_cpu_table(isa);
    if (!kernels) return PyErr_Format(PyExc_ValueError, "instruction set '%s' does not work on this machine", isa);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Executor *self = (Executor *)alloc(type, 0);
    if (!self) return NULL;
    Py_buffer views[5];
    int held = 0, done = 0;
    Py_ssize_t count[5] = {0}, n_ropes = 0, n_calls = 0;
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
    edge_call *call_rows = NULL;
    double **frequencies = NULL;
    char message[256] = "";
    for (; held < (recurrent ? 5 : 4); held++) {
        if (!edge_items(wanted[held].object, &views[held], wanted[held].item, wanted[held].what, &count[held])) goto out;
        if (count[held] > INT32_MAX) {
            PyErr_Format(PyExc_ValueError, "%s is too long", wanted[held].what);
            held++;
            goto out;
        }
    }
    if (!edge_take_weights(weights, &self->weights, &weight_rows) ||
        !edge_take_ropes(ropes, &rope_rows, &frequencies, &n_ropes) ||
        (calls && !edge_take_calls(calls, &call_rows, &n_calls)))
        goto out;
    edge_model model = {.ops = views[0].buf, .weights = weight_rows, .slot_width = views[1].buf,
                        .states = views[2].buf, .recurrent = recurrent ? views[4].buf : NULL, .ropes = rope_rows,
                        .calls = call_rows, .pages = views[3].buf,
                        .n_ops = (int32_t)count[0], .n_weights = (int32_t)self->weights.n,
                        .n_slots = (int32_t)count[1], .n_states = (int32_t)count[2],
                        .n_recurrent = (int32_t)count[4], .n_ropes = (int32_t)n_ropes,
                        .n_calls = (int32_t)n_calls, .n_groups = (int32_t)count[3], .max_rows = max_rows,
                        .n_vocab = n_vocab, .kv_type = kv_type, .n_sequences = n_sequences, .embedding = embedding};
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
    PyMem_Free(call_rows);
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
            if (!edge_items(given[held], &view[held], item[held], what[held], &n[held])) goto out;
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
    if (!edge_items(pairs, &view, 4, "pairs", &n)) return NULL;
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
    if (!edge_items(pairs, &view, 4, "pairs", &n)) return NULL;
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
    if (!edge_items(pages, &view, 4, "pages", &n)) return NULL;
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

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", "EdgeLLM's native core.", -1, edge_functions,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    PyObject *type = PyType_FromSpec(&executor_spec);
    Cancelled = PyErr_NewException("edgellm._native.Cancelled", PyExc_RuntimeError, NULL);
    if (!type || !Cancelled || PyModule_AddObjectRef(module, "Executor", type) ||
        PyModule_AddObjectRef(module, "Cancelled", Cancelled) ||
        PyModule_AddIntConstant(module, "MAX_THREADS", EDGE_MAX_THREADS) ||
        PyModule_AddIntConstant(module, "OP_BYTES", (long)sizeof(edge_op)) ||
        PyModule_AddIntConstant(module, "STATE_BYTES", (long)sizeof(edge_state)))
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
