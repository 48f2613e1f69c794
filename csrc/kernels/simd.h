/* Sixteen virtual lanes on every instruction set.
 *
 * Kernels are written once over this page.  Each instruction set gives the same IEEE operations in the
 * same order (explicit FMA, one fixed summing tree), so that results are equal to the last bit.
 *
 *   vf   16 floats          vi   16 int32
 *   vb   32 bytes (one block of K for one weight row)
 *   vw   16 pairs of int16
 *   vp   partial integer sums of one such row: the first half belongs to bytes 0..15
 *
 * The summing tree of vf_sum: lane i + lane i+8, then i + i+4, i + i+2, i + i+1.
 */
#ifndef EDGE_SIMD_H
#define EDGE_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))
#define LANES 16

/* Register tiles need their loops unrolled; plain C gains nothing from it. */
#if defined(EDGE_ISA_generic)
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(EDGE_ISA_avx512)
#include "simd_vbmi.h"
#elif defined(EDGE_ISA_avx2)
#include "simd_avx2.h"
#elif defined(EDGE_ISA_neon)
#include "simd_neon.h"
#elif defined(EDGE_ISA_generic)
#include "simd_generic.h"
#else
#error "define one of EDGE_ISA_avx512, EDGE_ISA_avx2, EDGE_ISA_neon, EDGE_ISA_generic"
#endif

#define EDGE_PASTE_(a, b) a##_##b
#define EDGE_PASTE(a, b) EDGE_PASTE_(a, b)
#if defined(EDGE_ISA_avx512)
#define FN(name) EDGE_PASTE(name, avx512)
#elif defined(EDGE_ISA_avx2)
#define FN(name) EDGE_PASTE(name, avx2)
#elif defined(EDGE_ISA_neon)
#define FN(name) EDGE_PASTE(name, neon)
#else
#define FN(name) EDGE_PASTE(name, generic)
#endif

/* As vi_dot_column, from memory. */
INLINE vi vi_dot4(vi acc, const uint8_t *tile, const int8_t *act, int is_signed) {
    return vi_dot_column(acc, vi_from_tile(tile), act, is_signed);
}

/* Loads and stores of the first n lanes (0 < n <= 16); the others read as zero, or are left alone. */
INLINE vf vf_load_n(const float *p, int n) {
    float t[LANES] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return vf_load(t);
}

INLINE void vf_store_n(float *p, vf x, int n) {
    float t[LANES];
    vf_store(t, x);
    memcpy(p, t, (size_t)n * sizeof *t);
}

INLINE float f32_of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* 2^n for integral n in [-126, 128], by the exponent bits: 128 gives infinity. */
INLINE vf vf_exp2i(vf n) { return vf_shift_exponent(vf_to_vi(n)); }

/* e^x, about one unit in the last place; below -87.3 exactly 0, from 127.5 ln 2 = 88.4 on infinite. */
INLINE vf vf_exp(vf x) {
    vf low = vf_set1(-87.3f);
    vf y = vf_max(low, vf_min(vf_set1(88.7f), x)); /* x last: NaN stays NaN */
    vf n = vf_round(vf_mul(y, vf_set1(1.44269504f)));
    vf r = vf_fma(n, vf_set1(-0.693359375f), y);
    r = vf_fma(n, vf_set1(2.12194440e-4f), r);
    vf p = vf_set1(1.0f / 5040.0f);
    p = vf_fma(p, r, vf_set1(1.0f / 720.0f));
    p = vf_fma(p, r, vf_set1(1.0f / 120.0f));
    p = vf_fma(p, r, vf_set1(1.0f / 24.0f));
    p = vf_fma(p, r, vf_set1(1.0f / 6.0f));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return vf_if_lt(x, low, vf_zero(), vf_mul(p, vf_exp2i(n)));
}

/* tanh x: the series near zero, where the quotient would cancel. */
INLINE vf vf_tanh(vf x) {
    vf a = vf_min(vf_set1(20.0f), vf_abs(x));
    vf s = vf_mul(x, x);
    vf p = vf_set1(-1382.0f / 155925.0f);
    p = vf_fma(p, s, vf_set1(62.0f / 2835.0f));
    p = vf_fma(p, s, vf_set1(-17.0f / 315.0f));
    p = vf_fma(p, s, vf_set1(2.0f / 15.0f));
    p = vf_fma(p, s, vf_set1(-1.0f / 3.0f));
    vf small = vf_fma(vf_mul(p, s), x, x);
    vf e = vf_exp(vf_add(a, a));
    vf big = vf_sub(vf_set1(1.0f), vf_div(vf_set1(2.0f), vf_add(e, vf_set1(1.0f))));
    return vf_if_lt(a, vf_set1(0.35f), small, vf_copysign(big, x));
}

#endif
