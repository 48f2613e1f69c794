#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ __volatile__("yield")
#else
#define RELAX() ((void)0)
#endif

/* Spins before a waiting thread gives its core away: some tens of microseconds in a barrier, where the others
 * are about to come, and some hundreds between jobs, the time Python takes from one token to the next. */
enum { BARRIER_SPINS = 2000, IDLE_NANOSECONDS = 300000 };

struct edge_team {
    int size;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_uint phase;
};

/* A worker looks at nothing but its own seat, so that a job neither wakes nor waits for those it has no share for. */
typedef struct {
    _Alignas(64) atomic_uint ticket; /* one more for every job of this worker */
    pthread_cond_t wake;
    int asleep;
} edge_seat;

static struct {
    pthread_mutex_t jobs; /* held by the caller whose job runs */
    pthread_mutex_t lock; /* guards what follows, and whoever falls asleep */
    int started;
    edge_job_fn fn;
    void *context;
    edge_team team;
    _Alignas(64) atomic_int running; /* workers not yet done with the job */
    edge_seat seats[EDGE_MAX_THREADS];
} pool = {.jobs = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int edge_team_size(const edge_team *team) { return team->size; }

void edge_team_barrier(edge_team *team) {
    if (team->size == 1) return;
    unsigned phase = atomic_load_explicit(&team->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) == team->size - 1) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&team->phase, phase + 1, memory_order_release);
        return;
    }
    for (int spins = 0; atomic_load_explicit(&team->phase, memory_order_acquire) == phase; spins++) {
        if (spins < BARRIER_SPINS) RELAX();
        else sched_yield();
    }
}

/* Wait for a job newer than `seen`: spin for a while, then sleep. */
static unsigned next_job(edge_seat *seat, unsigned seen) {
    int64_t until = now() + IDLE_NANOSECONDS;
    for (int spins = 1;; spins++) {
        unsigned t = atomic_load_explicit(&seat->ticket, memory_order_acquire);
        if (t != seen) return t;
        RELAX();
        if (spins % 64 == 0 && now() > until) break;
    }
    pthread_mutex_lock(&pool.lock);
    unsigned t;
    seat->asleep = 1;
    while ((t = atomic_load_explicit(&seat->ticket, memory_order_acquire)) == seen)
        pthread_cond_wait(&seat->wake, &pool.lock);
    seat->asleep = 0;
    pthread_mutex_unlock(&pool.lock);
    return t;
}

static void *worker(void *arg) {
    int id = (int)(intptr_t)arg;
    unsigned seen = 0;
    for (;;) {
        seen = next_job(&pool.seats[id], seen);
        pool.fn(pool.context, id, &pool.team);
        atomic_fetch_sub_explicit(&pool.running, 1, memory_order_release);
    }
    return NULL;
}

/* Start workers 1..n-1 that are not there yet; returns how many threads there are with the caller. */
static int grow(int n) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigset_t all, old;
    sigfillset(&all); /* signals belong to the application's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (pool.started < n - 1) {
        pthread_t thread;
        edge_seat *seat = &pool.seats[pool.started + 1];
        seat->asleep = 0;
        atomic_store(&seat->ticket, 0);
        pthread_cond_init(&seat->wake, NULL);
        if (pthread_create(&thread, &attr, worker, (void *)(intptr_t)(pool.started + 1))) break;
        pool.started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return pool.started + 1 < n ? pool.started + 1 : n;
}

/* The child of a fork has none of its parent's threads, and maybe their locks. */
static void after_fork(void) {
    pthread_mutex_init(&pool.jobs, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pool.started = 0;
    atomic_store(&pool.running, 0);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork); }

void edge_pool_run(int n, edge_job_fn fn, void *context) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    if (n > EDGE_MAX_THREADS) n = EDGE_MAX_THREADS;
    if (n <= 1) {
        edge_team alone = {.size = 1};
        fn(context, 0, &alone);
        return;
    }
    pthread_mutex_lock(&pool.jobs);
    pthread_mutex_lock(&pool.lock);
    n = grow(n);
    pool.fn = fn;
    pool.context = context;
    pool.team.size = n;
    atomic_store_explicit(&pool.team.arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&pool.running, n - 1, memory_order_relaxed);
    for (int i = 1; i < n; i++) {
        atomic_fetch_add_explicit(&pool.seats[i].ticket, 1, memory_order_release);
        if (pool.seats[i].asleep) pthread_cond_signal(&pool.seats[i].wake);
    }
    pthread_mutex_unlock(&pool.lock);
    fn(context, 0, &pool.team);
    for (int spins = 0; atomic_load_explicit(&pool.running, memory_order_acquire); spins++) {
        if (spins < BARRIER_SPINS) RELAX();
        else sched_yield();
    }
    pthread_mutex_unlock(&pool.jobs);
}
