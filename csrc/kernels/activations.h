/* Activations of sixteen values, by the number that ops have for them. */
#ifndef EDGE_ACTIVATIONS_H
#define EDGE_ACTIVATIONS_H

#include "kernels.h"
#include "simd.h"

INLINE vf sigmoid(vf x) { return vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), x)))); }

INLINE vf silu(vf x) { return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_zero(), x)))); }

INLINE vf gelu(vf x) {
    vf inner = vf_mul(vf_mul(x, vf_set1(0.79788456080286535587989211986876f)),
                      vf_fma(vf_mul(x, x), vf_set1(0.044715f), vf_set1(1.0f)));
    return vf_mul(vf_mul(x, vf_set1(0.5f)), vf_add(vf_set1(1.0f), vf_tanh(inner)));
}

INLINE vf gelu_quick(vf x) {
    return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_mul(x, vf_set1(-1.702f)))));
}

/* NaN stays NaN: it is the second operand. */
INLINE vf relu(vf x) { return vf_max(vf_zero(), x); }

INLINE vf relu2(vf x) {
    vf y = relu(x);
    return vf_mul(y, y);
}

/* ln(1 + e^x) = max(x, 0) + 2 artanh(e / (2 + e)) with e = e^-|x|; the argument of artanh is at most 1/3. */
INLINE vf softplus(vf x) {
    vf e = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    vf z = vf_div(e, vf_add(e, vf_set1(2.0f))), s = vf_mul(z, z);
    vf p = vf_set1(1.0f / 17.0f);
    p = vf_fma(p, s, vf_set1(1.0f / 15.0f));
    p = vf_fma(p, s, vf_set1(1.0f / 13.0f));
    p = vf_fma(p, s, vf_set1(1.0f / 11.0f));
    p = vf_fma(p, s, vf_set1(1.0f / 9.0f));
    p = vf_fma(p, s, vf_set1(1.0f / 7.0f));
    p = vf_fma(p, s, vf_set1(1.0f / 5.0f));
    p = vf_fma(p, s, vf_set1(1.0f / 3.0f));
    p = vf_fma(p, s, vf_set1(1.0f));
    return vf_fma(vf_add(z, z), p, vf_max(vf_zero(), x));
}

/* Run `make(f)` with f the function of an activation's number. */
#define WITH_ACTIVATION(number, make)              \
    switch (number) {                              \
    case EDGE_SILU: make(silu); break;             \
    case EDGE_GELU: make(gelu); break;             \
    case EDGE_SIGMOID: make(sigmoid); break;       \
    case EDGE_GELU_QUICK: make(gelu_quick); break; \
    case EDGE_RELU: make(relu); break;             \
    case EDGE_RELU2: make(relu2); break;           \
    case EDGE_SOFTPLUS: make(softplus); break;     \
    default: make(vf_tanh); break;                 \
    }

/* n values, fewer than a vector at the end; what is missing reads as zero. */
INLINE vf load(const float *p, int i, int n) { return n - i >= LANES ? vf_load(p + i) : vf_load_n(p + i, n - i); }

INLINE void store(float *p, vf x, int i, int n) {
    if (n - i >= LANES) vf_store(p + i, x);
    else vf_store_n(p + i, x, n - i);
}

#endif
