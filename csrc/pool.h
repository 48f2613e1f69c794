/* One pool of worker threads per process.
 *
 * A job runs the same function on n threads at once (the caller is thread 0); jobs of several callers wait
 * for each other.  A job concerns the workers it has shares for and no other.  Idle workers spin briefly, then
 * sleep.  After a fork the child starts a pool of its own.
 */
#ifndef EDGE_POOL_H
#define EDGE_POOL_H

enum { EDGE_MAX_THREADS = 256 };

typedef struct edge_team edge_team;
typedef void (*edge_job_fn)(void *context, int thread, edge_team *team);

/* Run fn on up to n threads, fewer where the system gives no more; returns when all are done. */
void edge_pool_run(int n, edge_job_fn fn, void *context);

/* How many threads run this job. */
int edge_team_size(const edge_team *team);

/* Wait until every thread of the job is here. */
void edge_team_barrier(edge_team *team);

#endif
