/* Sine and cosine in double precision, the same bits on every machine. */
#ifndef EDGE_TRIG_H
#define EDGE_TRIG_H

/* |x| below 2^30; the error is below 1e-15. */
void edge_sincos(double x, double *sine, double *cosine);

#endif
