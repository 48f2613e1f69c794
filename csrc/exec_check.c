/* A model's description comes from outside: everything in it is checked here, before it is used. */
#include "exec_check.h"

static int check_weight(const checker *c, int i) {
    const edge_weight *w = &c->m->weights[i];
    NEED(w->type >= 0 && w->type < EDGE_N_TYPES && c->k->matmul[w->type], "weight %d has type %d, which has no kernel", i,
         w->type);
    NEED(w->n_in > 0 && w->n_in <= MOST && w->n_out > 0 && w->n_out <= MOST, "weight %d has a bad shape", i);
    static const struct {
        int16_t type, block, bytes;
    } blocks[] = {{EDGE_F32, 1, 4},      {EDGE_F16, 1, 2},      {EDGE_BF16, 1, 2},     {EDGE_Q4_0, 32, 18},
                  {EDGE_Q4_1, 32, 20},   {EDGE_Q5_0, 32, 22},   {EDGE_Q5_1, 32, 24},   {EDGE_Q8_0, 32, 34},
                  {EDGE_Q2_K, 256, 84},  {EDGE_Q3_K, 256, 110}, {EDGE_Q4_K, 256, 144}, {EDGE_Q5_K, 256, 176},
                  {EDGE_Q6_K, 256, 210}, {EDGE_IQ2_XXS, 256, 66}, {EDGE_IQ2_XS, 256, 74}, {EDGE_IQ3_XXS, 256, 98},
                  {EDGE_IQ1_S, 256, 50}, {EDGE_IQ4_NL, 32, 18}, {EDGE_IQ3_S, 256, 110}, {EDGE_IQ2_S, 256, 82},
                  {EDGE_IQ4_XS, 256, 136}, {EDGE_IQ1_M, 256, 56}, {EDGE_TQ1_0, 256, 54}, {EDGE_TQ2_0, 256, 66},
                  {EDGE_MXFP4, 32, 17},  {EDGE_NVFP4, 64, 36},  {EDGE_Q1_0, 128, 18},  {EDGE_Q2_0, 64, 18}};
    for (size_t t = 0; t < sizeof blocks / sizeof *blocks; t++) {
        if (blocks[t].type != w->type) continue;
        NEED(w->n_in % blocks[t].block == 0 && w->row_bytes == (size_t)(w->n_in / blocks[t].block * blocks[t].bytes),
             "weight %d has rows of %zu bytes, which do not hold %lld values of type %d", i, w->row_bytes,
             (long long)w->n_in, w->type);
        NEED((uintptr_t)w->data % (blocks[t].block == 1 ? (size_t)blocks[t].bytes : 1) == 0,
             "weight %d begins in the middle of a number", i);
        NEED(w->n_bytes / w->row_bytes >= (size_t)w->n_out, "weight %d has %zu bytes, too few for %lld rows", i,
             w->n_bytes, (long long)w->n_out);
        return EDGE_OK;
    }
    return fail(c, "weight %d has type %d, whose size is unknown", i, w->type);
}

static int check_parts(const checker *c) {
    const edge_model *m = c->m;
    NEED(m->n_ops > 0 && m->n_ops <= 1 << 20 && m->n_weights >= 0 && m->n_slots >= 0 && m->n_states >= 0 &&
             m->n_ropes >= 0 && m->n_calls >= 0 && m->n_groups >= 0 && m->n_recurrent >= 0 && m->n_sequences >= 0,
         "a count is negative");
    NEED(m->max_rows > 0 && m->max_rows <= 1 << 20, "max_rows is %d", m->max_rows);
    NEED(m->n_vocab > 0 && m->n_vocab <= MOST, "n_vocab is %d", m->n_vocab);
    NEED(in(m->kv_type, EDGE_N_KV), "kv_type is %d", m->kv_type);
    for (int i = 0; i < m->n_slots; i++)
        NEED(m->slot_width[i] > 0 && m->slot_width[i] <= MOST, "slot %d has width %d", i, m->slot_width[i]);
    for (int i = 0; i < m->n_groups; i++)
        NEED(m->pages[i] > 0 && m->pages[i] <= MOST / EDGE_PAGE, "group %d has %d pages", i, m->pages[i]);
    for (int i = 0; i < m->n_ropes; i++)
        NEED(m->ropes[i].n_rot > 0 && m->ropes[i].n_rot <= 1 << 16 && m->ropes[i].n_rot % 2 == 0,
             "rope %d turns %d values", i, m->ropes[i].n_rot);
    for (int i = 0; i < m->n_states; i++) {
        const edge_state *s = &m->states[i];
        NEED(s->n_head_kv > 0 && s->n_head_kv <= 1 << 16 && s->head_dim > 0 && s->head_dim <= 1 << 14 &&
                 s->head_dim_v > 0 && s->head_dim_v <= 1 << 14,
             "state %d has a bad shape", i);
        NEED(in(s->group, m->n_groups) && s->window >= 0, "state %d has no such group or window", i);
        NEED(in(s->both, 2) && !(s->both && s->chunked), "state %d sees both sides of chunks", i);
        NEED(s->rope == -1 || (in(s->rope, m->n_ropes) && in(s->offset, s->head_dim) &&
                               m->ropes[s->rope].n_rot <= s->head_dim - s->offset),
             "state %d has no such rope", i);
    }
    for (int i = 0; i < m->n_calls; i++)
        NEED(m->calls[i].run && m->calls[i].n_params >= 0 && m->calls[i].n_params <= MOST, "call %d has no function", i);
    NEED(m->n_recurrent == 0 || m->n_sequences > 0, "there is no room for recurrent states");
    for (int i = 0; i < m->n_recurrent; i++) {
        const int32_t *d = m->recurrent[i].d;
        NEED(d[0] > 0 && d[1] > 0 && d[2] > 0 && d[0] <= MOST && d[1] <= MOST / d[0] && d[2] <= MOST / d[0] / d[1],
             "recurrent state %d is %d x %d x %d", i, d[0], d[1], d[2]);
    }
    for (int i = 0; i < m->n_weights; i++) {
        int rc = check_weight(c, i);
        if (rc) return rc;
    }
    return EDGE_OK;
}

/* The width of a value, or 0 where there is none. */
static int32_t width_of(const edge_model *m, int32_t slot) {
    if (slot == EDGE_LOGITS) return m->n_vocab;
    return in(slot, m->n_slots) ? m->slot_width[slot] : 0;
}

static int check_vector(const checker *c, int op, int32_t weight, int64_t n) {
    if (weight == -1) return EDGE_OK;
    NEED(in(weight, c->m->n_weights), "op %d has no weight %d", op, weight);
    const edge_weight *w = &c->m->weights[weight];
    NEED(w->type == EDGE_F32 && w->n_out == 1 && w->n_in == n, "op %d wants a float vector of %lld", op, (long long)n);
    return EDGE_OK;
}

/* A value of `n` floats a row for an op that looks across rows. */
static int check_value(const checker *c, int i, int32_t slot, int64_t n) {
    NEED(slot != EDGE_LOGITS && width_of(c->m, slot) >= n, "op %d reads past slot %d", i, slot);
    return EDGE_OK;
}

static int check_recurrent(const checker *c, int i) {
    const edge_model *m = c->m;
    const edge_op *op = &m->ops[i];
    int rc;
    NEED(in(op->state, m->n_recurrent) && !(op->flags & EDGE_FLAG_WANTED), "op %d has no state %d", i, op->state);
    const int32_t *d = m->recurrent[op->state].d;
    int64_t n_head = d[0], inner = (int64_t)d[0] * d[1];
    NEED(op->weight >= 0 || op->kind == EDGE_OP_GATED_DELTA, "op %d has no weight", i);
    if (op->kind == EDGE_OP_CONV1D) {
        NEED(op->width == d[1] && d[2] == 1, "op %d has the wrong width", i);
        if ((rc = check_vector(c, i, op->weight, (int64_t)(d[0] + 1) * d[1]))) return rc;
        if ((rc = check_vector(c, i, op->bias, d[1]))) return rc;
        return check_value(c, i, op->a, d[1]);
    }
    NEED(op->width == inner, "op %d has the wrong width", i);
    NEED(op->n_head > 0 && n_head % op->n_head == 0, "op %d has %d groups of heads", i, op->n_head);
    int64_t shared = (int64_t)op->n_head * d[2];
    if (op->kind == EDGE_OP_SSM_SCAN) {
        NEED(in(op->weight, m->n_weights), "op %d has no weight %d", i, op->weight);
        int64_t each = m->weights[op->weight].n_in == n_head ? n_head : n_head * d[2];
        NEED(op->scale >= 0, "op %d has no weight", i);
        if ((rc = check_vector(c, i, op->weight, each)) || (rc = check_vector(c, i, op->scale, n_head))) return rc;
        if ((rc = check_vector(c, i, op->bias, n_head)) || (rc = check_value(c, i, op->a, inner))) return rc;
        if ((rc = check_value(c, i, op->b, n_head)) || (rc = check_value(c, i, op->c, shared))) return rc;
        return check_value(c, i, op->d, shared);
    }
    NEED((op->weight < 0) == (op->bias < 0) && in(op->activation, 2), "op %d has half of its weights", i);
    int64_t rates = op->activation ? n_head * d[2] : n_head;
    if ((rc = check_vector(c, i, op->weight, n_head)) || (rc = check_vector(c, i, op->bias, rates))) return rc;
    if ((rc = check_value(c, i, op->a, shared)) || (rc = check_value(c, i, op->b, shared))) return rc;
    if ((rc = check_value(c, i, op->c, inner)) || (rc = check_value(c, i, op->d, rates))) return rc;
    return check_value(c, i, op->e, n_head);
}

/* A value of `n` floats for an op on single rows, of all rows or of those wanted as the op is. */
static int check_row(const checker *c, int i, int32_t slot, int64_t n) {
    int wanted = c->m->ops[i].flags & EDGE_FLAG_WANTED;
    NEED((slot != EDGE_LOGITS || wanted) && n > 0 && n <= MOST && width_of(c->m, slot) >= n, "op %d reads past slot %d",
         i, slot);
    return EDGE_OK;
}

static int check_call(const checker *c, int i) {
    const edge_model *m = c->m;
    const edge_op *op = &m->ops[i];
    int rc;
    NEED(in(op->d, m->n_calls), "op %d calls function %d, which is not there", i, op->d);
    int64_t n_params = m->calls[op->d].n_params;
    NEED(n_params == 0 || op->weight >= 0, "op %d has no parameters", i);
    if (n_params && (rc = check_vector(c, i, op->weight, n_params))) return rc;
    if ((rc = check_row(c, i, op->a, op->size))) return rc;
    return op->n_head ? check_row(c, i, op->b, op->n_head) : EDGE_OK;
}

/* Ops whose inputs are as wide as their numbers say. */
static int check_mixture(const checker *c, int i) {
    const edge_model *m = c->m;
    const edge_op *op = &m->ops[i];
    int rc;
    int64_t width = op->width, size = op->size, heads = op->n_head;
    NEED(size > 0 && size <= MOST && (op->kind == EDGE_OP_DOT || (heads > 0 && heads <= 1 << 16)), "op %d has runs of %d",
         i, op->size);
    switch (op->kind) {
    case EDGE_OP_CONCAT: {
        NEED(in(op->activation, 2) && width % (size + heads) == 0, "op %d joins %d and %d to %d", i, op->size, op->n_head,
             op->width);
        int64_t runs = width / (size + heads);
        if ((rc = check_row(c, i, op->a, runs * size))) return rc;
        return check_row(c, i, op->b, (op->activation ? 1 : runs) * heads);
    }
    case EDGE_OP_DOT:
        if ((rc = check_row(c, i, op->a, width * size))) return rc;
        return check_row(c, i, op->b, width * size);
    case EDGE_OP_MIX:
        NEED(width % size == 0, "op %d mixes runs of %d to %d", i, op->size, op->width);
        if ((rc = check_row(c, i, op->a, heads * size))) return rc;
        return check_row(c, i, op->b, width / size * heads);
    case EDGE_OP_ROUTE: {
        int32_t groups = op->d, used = op->e;
        NEED(in(op->activation & 3, 3) && in(op->activation, 8), "op %d routes by %d", i, op->activation);
        NEED(size <= 1 << 16 && groups > 0 && size % groups == 0 && used > 0 && used <= groups &&
                 heads <= size / groups * used && width == 2 * heads,
             "op %d chooses %d of %d experts in %d of %d groups", i, op->n_head, op->size, used, groups);
        if ((rc = check_vector(c, i, op->weight, size))) return rc;
        return check_row(c, i, op->a, size);
    }
    case EDGE_OP_GATHER:
        NEED(size <= 1 << 16 && in(op->activation, 2) && (op->activation || width % 32 == 0), "op %d gathers %d values", i,
             op->width);
        NEED(heads * m->max_rows <= MOST, "op %d has too many slots for %d rows", i, m->max_rows);
        NEED(!(op->flags & EDGE_FLAG_FIXED) || heads == size, "op %d has %d slots for %d experts", i, op->n_head, op->size);
        if (!(op->flags & EDGE_FLAG_FIXED) && (rc = check_row(c, i, op->b, 2 * heads))) return rc;
        return check_row(c, i, op->a, op->flags & EDGE_FLAG_SHARED ? width : heads * width);
    default: {
        NEED(in(op->weight, m->n_weights), "op %d has no weight %d", i, op->weight);
        const edge_weight *w = &m->weights[op->weight];
        NEED(width % heads == 0 && op->d >= 0 && op->d <= size - width / heads && w->n_out % size == 0,
             "op %d takes %d of %d rows from %d on", i, op->width / op->n_head, op->size, op->d);
        if ((rc = check_vector(c, i, op->scale, w->n_out / size))) return rc;
        return check_vector(c, i, op->bias, w->n_out);
    }
    }
}

static int is_float(int32_t type) { return type == EDGE_F32 || type == EDGE_F16 || type == EDGE_BF16; }

/* Experts run over what was gathered last: that must suit them. */
static int check_gathered(const checker *c, int i, const edge_op *gather) {
    const edge_op *op = &c->m->ops[i];
    const edge_weight *w = &c->m->weights[op->weight];
    NEED(gather && gather->n_head == op->n_head && gather->width == w->n_in && gather->activation == is_float(w->type) &&
             w->n_out / op->size == gather->size && !((gather->flags ^ op->flags) & EDGE_FLAG_WANTED),
         "op %d: its input was not gathered before", i);
    return EDGE_OK;
}

/* The ops of a mixture that runs as one must belong together; each was or will be checked by itself, too. */
static int check_fused(const checker *c, int i) {
    const edge_model *m = c->m;
    const edge_op *op = &m->ops[i];
    static const int32_t kinds[EDGE_MIXTURE_OPS] = {EDGE_OP_GATHER, EDGE_OP_EXPERTS, EDGE_OP_EXPERTS,
                                                    EDGE_OP_GLU,    EDGE_OP_GATHER,  EDGE_OP_EXPERTS};
    NEED(op->kind == EDGE_OP_GATHER && i <= m->n_ops - EDGE_MIXTURE_OPS, "op %d begins no mixture", i);
    for (int k = 0; k < EDGE_MIXTURE_OPS; k++)
        NEED(op[k].kind == kinds[k] && op[k].width > 0 && !((op[k].flags ^ op->flags) & EDGE_FLAG_WANTED),
             "op %d begins no mixture", i);
    const edge_op *first = op + 1, *second = op + 2, *glu = op + 3, *gather = op + 4, *down = op + 5;
    int ordered = glu->a == first->out && glu->b == second->out, swapped = glu->a == second->out && glu->b == first->out;
    NEED((ordered || swapped) && first->out != second->out && glu->size <= 1 && first->width == glu->width &&
             second->width == glu->width && first->n_head == op->n_head && second->n_head == op->n_head,
         "op %d: gate and up of its mixture do not meet", i);
    NEED(gather->a == glu->out && gather->b == op->b && gather->size == op->size && gather->n_head == op->n_head &&
             down->n_head == op->n_head && (int64_t)gather->width * op->n_head == glu->width && !op->activation &&
             !gather->activation && !((gather->flags ^ op->flags) & EDGE_FLAG_FIXED) && !(gather->flags & EDGE_FLAG_SHARED) &&
             !(down->flags & EDGE_FLAG_NO_WAIT),
         "op %d: its mixture does not go on with the same experts", i);
    NEED(m->embedding < i || m->embedding >= i + EDGE_MIXTURE_OPS - 1, "op %d: embeddings within its mixture", i);
    return EDGE_OK;
}

static int is_product(int32_t kind) { return kind == EDGE_OP_MATMUL || kind == EDGE_OP_EXPERTS; }

/* A product of floats that is waited for does not see what is quantized meanwhile. */
static int may_quantize_beside(const edge_model *m, int i) {
    const edge_op *next = &m->ops[i + 1];
    return m->ops[i].kind == EDGE_OP_QUANTIZE && next->kind == EDGE_OP_MATMUL && in(next->weight, m->n_weights) &&
           is_float(m->weights[next->weight].type) && !(next->flags & EDGE_FLAG_NO_WAIT);
}

static int check_op(const checker *c, int i) {
    const edge_model *m = c->m;
    const edge_op *op = &m->ops[i];
    int rc, reads_a = op->kind != EDGE_OP_EMBED, reads_b = op->kind == EDGE_OP_ADD || op->kind == EDGE_OP_GLU || op->kind == EDGE_OP_MUL;
    int wanted = op->flags & EDGE_FLAG_WANTED, attention = op->kind == EDGE_OP_ATTENTION;
    NEED(in(op->kind, EDGE_OP_COUNT), "op %d has unknown kind %d", i, op->kind);
    NEED(op->width > 0, "op %d has width %d", i, op->width);
    NEED(op->out != EDGE_LOGITS || wanted, "op %d would write every row to the logits", i);
    int from_logits = (reads_a && op->a == EDGE_LOGITS) || ((reads_b || attention) && op->b == EDGE_LOGITS) ||
                      (attention && op->c == EDGE_LOGITS);
    NEED(!from_logits || (wanted && op->kind != EDGE_OP_SELECT), "op %d would read every row of the logits", i);
    NEED(op->kind != EDGE_OP_SELECT || wanted, "op %d selects more rows than are wanted", i);
    /* Anything else could change the shared buffers under a thread that is late. */
    NEED(!(op->flags & EDGE_FLAG_NO_WAIT) ||
             (i + 1 < m->n_ops && is_product(op[1].kind) && (is_product(op->kind) || may_quantize_beside(m, i))),
         "op %d must be waited for", i);
    if (op->flags & EDGE_FLAG_FUSED && (rc = check_fused(c, i))) return rc;
    NEED(op->kind == EDGE_OP_QUANTIZE || op->kind == EDGE_OP_GATHER || width_of(m, op->out) >= op->width, "op %d writes past slot %d", i, op->out);
    if (op->kind == EDGE_OP_CALL) return check_call(c, i);
    int32_t a = op->width;
    if (op->kind == EDGE_OP_MATMUL) {
        NEED(in(op->weight, m->n_weights), "op %d has no weight %d", i, op->weight);
        const edge_weight *w = &m->weights[op->weight];
        NEED(w->n_out == op->width, "op %d has width %d, its weight %lld rows", i, op->width, (long long)w->n_out);
        a = (int32_t)w->n_in;
        if ((rc = check_vector(c, i, op->scale, 1))) return rc;
        if ((rc = check_vector(c, i, op->bias, op->width))) return rc;
    }
    if (op->kind == EDGE_OP_EMBED) {
        NEED(in(op->weight, m->n_weights), "op %d has no weight %d", i, op->weight);
        int by_position = op->flags & EDGE_FLAG_POSITION;
        NEED(m->weights[op->weight].n_in == op->width && (by_position || m->weights[op->weight].n_out >= m->n_vocab),
             "op %d: the embedding has the wrong shape", i);
        NEED(!by_position || !wanted, "op %d embeds wanted positions only", i);
    }
    if (op->kind == EDGE_OP_CONV1D || op->kind == EDGE_OP_SSM_SCAN || op->kind == EDGE_OP_GATED_DELTA)
        return check_recurrent(c, i);
    if (op->kind == EDGE_OP_SLICE) {
        NEED(op->size > 0 && op->n_head > 0 && op->width % op->n_head == 0 && op->activation >= 0 && op->size <= MOST &&
                 op->activation <= op->size - op->n_head && op->width / op->n_head <= MOST / op->size,
             "op %d takes %d of %d values from %d on", i, op->n_head, op->size, op->activation);
        a = op->width / op->n_head * op->size;
    }
    if (op->kind == EDGE_OP_QUANTIZE) NEED(op->width % 32 == 0, "op %d quantizes %d values", i, op->width);
    if (op->kind == EDGE_OP_RMS_NORM || op->kind == EDGE_OP_L2_NORM || op->kind == EDGE_OP_ROPE ||
        op->kind == EDGE_OP_SOFTMAX || op->kind == EDGE_OP_SINKHORN)
        NEED(op->size > 0 && op->width % op->size == 0, "op %d has runs of %d in %d", i, op->size, op->width);
    if (op->kind == EDGE_OP_SINKHORN)
        NEED(op->size <= 1 << 15 && op->width % (op->size * op->size) == 0 && op->n_head > 0 && op->n_head <= 1 << 16,
             "op %d has matrices of %d rows in %d", i, op->size, op->width);
    if (op->kind == EDGE_OP_GLU || op->kind == EDGE_OP_ACTIVATE)
        NEED(in(op->activation, EDGE_N_ACTIVATIONS), "op %d has unknown activation %d", i, op->activation);
    if (op->kind >= EDGE_OP_CONCAT && op->kind <= EDGE_OP_EXPERTS) return check_mixture(c, i);
    int32_t narrow = op->width; /* of the side that covers several neighbours of the other */
    if ((op->kind == EDGE_OP_GLU || op->kind == EDGE_OP_MUL || (op->kind == EDGE_OP_SCALE && op->weight >= 0)) && op->size > 1) {
        NEED(op->width % op->size == 0, "op %d covers %d of %d", i, op->size, op->width);
        narrow = op->width / op->size;
    }
    if (op->kind == EDGE_OP_SCALE && (rc = check_vector(c, i, op->weight, narrow))) return rc;
    if (op->kind == EDGE_OP_GLU) a = narrow;
    if (op->kind == EDGE_OP_LAYER_NORM) {
        NEED(op->size > 0 && op->width % op->size == 0, "op %d has runs of %d in %d", i, op->size, op->width);
        int of_runs = in(op->weight, m->n_weights) && m->weights[op->weight].n_in == op->width;
        if ((rc = check_vector(c, i, op->weight, of_runs ? op->width : op->size))) return rc;
        if ((rc = check_vector(c, i, op->bias, of_runs ? op->width : op->size))) return rc;
    }
    if (op->kind == EDGE_OP_POSITION_SCALE)
        NEED(op->size > 0 && in(op->n_head, op->size) && !wanted, "op %d scales by steps of %d positions", i,
             op->size);
    if (op->kind == EDGE_OP_RMS_NORM) {
        int of_runs = in(op->weight, m->n_weights) && m->weights[op->weight].n_in == op->width;
        if ((rc = check_vector(c, i, op->weight, of_runs ? op->width : op->size))) return rc;
    }
    if (op->kind == EDGE_OP_ROPE)
        NEED(in(op->rope, m->n_ropes) && in(op->d, op->size) && m->ropes[op->rope].n_rot <= op->size - op->d && !wanted, "op %d has no such rope",
             i);
    if (attention) {
        NEED(in(op->state, m->n_states), "op %d has no state %d", i, op->state);
        const edge_state *s = &m->states[op->state];
        NEED(op->n_head > 0 && op->n_head <= 1 << 16 && op->n_head % s->n_head_kv == 0, "op %d has %d heads", i,
             op->n_head);
        NEED((int64_t)op->n_head * m->max_rows <= MOST, "op %d has too many heads for %d rows", i, m->max_rows);
        NEED((int64_t)op->n_head * s->head_dim_v == op->width, "op %d has the wrong width", i);
        int64_t q = (int64_t)op->n_head * s->head_dim;
        NEED(q <= MOST && (op->flags & EDGE_FLAG_BORROW ||
                           (width_of(m, op->b) >= s->n_head_kv * s->head_dim &&
                            width_of(m, op->c) >= s->n_head_kv * s->head_dim_v)),
             "op %d reads past its keys or values", i);
        if ((rc = check_vector(c, i, op->weight, op->n_head)) || (rc = check_vector(c, i, op->bias, op->n_head)))
            return rc;
        NEED(!wanted, "op %d attends with wanted rows only", i);
        a = (int32_t)q;
    }
    if (reads_a) NEED(width_of(m, op->a) >= a, "op %d reads past slot %d", i, op->a);
    if (reads_b) NEED(width_of(m, op->b) >= (op->kind == EDGE_OP_MUL ? narrow : op->width), "op %d reads past slot %d", i, op->b);
    return EDGE_OK;
}

/* A step that ends with the embeddings has no room for logits. */
static int check_embedding(const checker *c) {
    const edge_model *m = c->m;
    NEED(m->embedding >= -1 && m->embedding < m->n_ops, "there is no op %d to make the embeddings", m->embedding);
    for (int i = 0; i <= m->embedding; i++) {
        const edge_op *op = &m->ops[i];
        NEED(op->out != EDGE_LOGITS && op->a != EDGE_LOGITS && op->b != EDGE_LOGITS && op->c != EDGE_LOGITS,
             "op %d: logits before the embeddings", i);
    }
    if (m->embedding >= 0) {
        const edge_op *op = &m->ops[m->embedding];
        NEED(op->flags & EDGE_FLAG_WANTED && op->kind != EDGE_OP_QUANTIZE && op->kind != EDGE_OP_GATHER,
             "op %d does not make embeddings", m->embedding);
    }
    return EDGE_OK;
}

int edge_check_weight(const edge_weight *w, const edge_kernels *k, char *message, size_t size) {
    edge_model m = {.weights = w, .n_weights = 1};
    checker c = {&m, k, message, size};
    return check_weight(&c, 0);
}

int edge_check_model(const edge_model *m, const edge_kernels *k, char *message, size_t size) {
    checker c = {m, k, message, size};
    int rc = check_parts(&c);
    int32_t quantized = 0;
    const edge_op *gathered = NULL;
    for (int i = 0; !rc && i < m->n_ops; i++) {
        rc = check_op(&c, i);
        if (rc) break;
        const edge_op *op = &m->ops[i];
        if (op->kind == EDGE_OP_QUANTIZE) quantized = op->width;
        if (op->kind == EDGE_OP_GATHER) gathered = op;
        if (op->kind == EDGE_OP_GATHER && op->flags & EDGE_FLAG_SHARED && !op->activation && quantized != op->width)
            rc = fail(&c, "op %d: its input was not quantized before", i);
        if (op->kind == EDGE_OP_EXPERTS) rc = check_gathered(&c, i, gathered);
        if (op->kind != EDGE_OP_MATMUL) continue;
        const edge_weight *w = &m->weights[op->weight];
        if (!is_float(w->type) && quantized != w->n_in) rc = fail(&c, "op %d: its input was not quantized before", i);
    }
    return rc ? rc : check_embedding(&c);
}
