/* Which thread does which part of a product. */
#include "exec.h"

int edge_take(edge_exec *e, int index, int count, int thread, int n, edge_turn *turn) {
    for (; turn->passed < n; turn->passed++) {
        int whose = (thread + turn->passed) % n;
        int64_t from, to;
        edge_share(count, 1, whose, n, &from, &to);
        /* How many units are gone from the part's beginning, and in the upper half how many from its end. */
        atomic_uint_least64_t *gone = &e->gone[(size_t)whose * (size_t)e->model.n_ops + (size_t)index];
        uint64_t one = turn->passed ? (uint64_t)1 << 32 : 1, old = atomic_load_explicit(gone, memory_order_relaxed);
        int64_t begin, end;
        do {
            begin = from + (int64_t)(old & UINT32_MAX), end = to - (int64_t)(old >> 32);
        } while (begin < end && !atomic_compare_exchange_weak_explicit(gone, &old, old + one, memory_order_relaxed,
                                                                       memory_order_relaxed));
        if (begin >= end) continue;
        turn->unit = (int)(turn->passed ? end - 1 : begin);
        turn->end = turn->passed ? turn->unit + 1 : (int)to;
        turn->next = turn->passed && begin < turn->unit ? turn->unit - 1 : -1;
        return 1;
    }
    return 0;
}
