/* Sine and cosine in double precision, the same bits on every machine. */
#ifndef EDGE_TRIG_H
#define EDGE_TRIG_H

/* Below |x| = 2^22 the error is below 1e-15; beyond, it grows with x.  NaN where there is no angle left. */
void edge_sincos(double x, double *sine, double *cosine);

#endif
