/* Block types whose weights come four or eight at a time from a codebook; see quants.h for what a type gives.
 *
 * All are super-blocks of 256: block b is part b % 8 of super-block b / 8.  Where TYPE_SIGNS is 1, TYPE_load gives
 * magnitudes, and TYPE_signs the signs of blocks b..b+n-1 of 16 rows: bit i is set where weight i is negative.
 */
#ifndef EDGE_QUANTS_GRID_H
#define EDGE_QUANTS_GRID_H

#include "codebooks.h"
#include "quants.h"

typedef uint32_t edge_signs[8][LANES];

/* The codebooks, a byte a weight; those of grid1 are 8 * (g + 1). */
static uint64_t bytes1[2048], bytes2_xxs[256], bytes2_xs[512], bytes2_s[1024];

static void widen(const uint16_t *grid, int n, const uint8_t *values, uint64_t *bytes) {
    for (int i = 0; i < n; i++) {
        bytes[i] = 0;
        for (int j = 0; j < 8; j++) bytes[i] |= (uint64_t)values[grid[i] >> 2 * j & 3] << 8 * j;
    }
}

/* To be called before any kernel of these types. */
static void widen_grids(void) {
    static const uint8_t values1[4] = {0, 8, 16}, values2[4] = {8, 25, 43};
    widen(grid1, 2048, values1, bytes1);
    widen(grid2_xxs, 256, values2, bytes2_xxs);
    widen(grid2_xs, 512, values2, bytes2_xs);
    widen(grid2_s, 1024, values2, bytes2_s);
}

/* Signs are seven bits of a byte: the eighth makes the number of minuses even. */
INLINE vi even_signs(vi x) {
    vi parity = vi_xor(x, vi_shl(x, 1));
    parity = vi_xor(parity, vi_shl(parity, 2));
    parity = vi_xor(parity, vi_shl(parity, 4));
    return vi_or(x, vi_and(parity, vi_set1((int32_t)0x80808080u)));
}

/* Four times seven bits, a byte each. */
INLINE vi sevens(vi x) {
    x = vi_or(vi_and(x, vi_set1(0x3FFF)), vi_and(vi_shl(x, 2), vi_set1(0x3FFF0000)));
    return vi_or(vi_and(x, vi_set1(0x007F007F)), vi_and(vi_shl(x, 1), vi_set1(0x7F007F00)));
}

INLINE void store_signs(uint32_t *minus, vi x) { vi_to_tile((uint8_t *)minus, x); }

/* Scales d * (s + 1/2) * unit. */
INLINE void scale_and_half(vf d, vi s, float unit, float *ws) {
    vf_store(ws, vf_mul(vf_mul(d, vf_add(vf_set1(0.5f), vi_to_vf(s))), vf_set1(unit)));
}

/* Scales d * (2 * s + 1) * unit. */
INLINE void odd_scale(vf d, vi s, float unit, float *ws) {
    vf_store(ws, vf_mul(vf_mul(d, vi_to_vf(vi_add(vi_add(s, s), vi_set1(1)))), vf_set1(unit)));
}

/* Four-bit number i of words. */
INLINE vi nibble(const vi *x, int i) { return bits_at(vi_shr_by(x[i / 8], 4 * (i % 8)), 0, 15); }

enum { iq2_xxs_SUB = 1, iq2_xxs_MIN = 0, iq2_xxs_OFF = 0, iq2_xxs_SIGNED = 1, iq2_xxs_SIGNS = 1 };
INLINE vb iq2_xxs_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 66 + 2 + 8 * (b & 7);
    return vb_of64(bytes2_xxs[p[0]], bytes2_xxs[p[1]], bytes2_xxs[p[2]], bytes2_xxs[p[3]]);
}
INLINE void iq2_xxs_signs(edge_rows16 row, int b, int n, edge_signs minus) {
    for (int i = 0; i < n; i += 2) {
        vi x[4];
        vi_columns(row, (size_t)(b >> 3) * 66 + 2 + 8 * (size_t)i, x);
        store_signs(minus[i], even_signs(sevens(x[1])));
        store_signs(minus[i + 1], even_signs(sevens(x[3])));
    }
}
INLINE void iq2_xxs_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 66;
    vf d = low_half(vi_words(row, at));
    for (int i = 0; i < n; i += 2) {
        vi x[4];
        vi_columns(row, at + 2 + 8 * (size_t)i, x);
        scale_and_half(d, vi_shr(x[1], 28), 0.25f, ws + i * LANES);
        scale_and_half(d, vi_shr(x[3], 28), 0.25f, ws + (i + 1) * LANES);
    }
}

/* Words of two entries each: nine bits of index, seven of signs. */
INLINE vi high_sevens(vi first, vi second) {
    vi low = vi_or(bits_at(first, 9, 0x7F), vi_and(vi_shr(first, 17), vi_set1(0x7F00)));
    vi high = vi_or(vi_and(vi_shl(second, 7), vi_set1(0x7F0000)), vi_and(vi_shr(second, 1), vi_set1(0x7F000000)));
    return vi_or(low, high);
}

enum { iq2_xs_SUB = 2, iq2_xs_MIN = 0, iq2_xs_OFF = 0, iq2_xs_SIGNED = 1, iq2_xs_SIGNS = 1 };
INLINE vb iq2_xs_load(const uint8_t *row, int b) {
    uint64_t q = read64(row + (size_t)(b >> 3) * 74 + 2 + 8 * (b & 7));
    return vb_of64(bytes2_xs[q & 511], bytes2_xs[q >> 16 & 511], bytes2_xs[q >> 32 & 511], bytes2_xs[q >> 48 & 511]);
}
INLINE void iq2_xs_signs(edge_rows16 row, int b, int n, edge_signs minus) {
    for (int i = 0; i < n; i += 2) {
        vi x[4];
        vi_columns(row, (size_t)(b >> 3) * 74 + 2 + 8 * (size_t)i, x);
        store_signs(minus[i], even_signs(high_sevens(x[0], x[1])));
        store_signs(minus[i + 1], even_signs(high_sevens(x[2], x[3])));
    }
}
INLINE void iq2_xs_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 74;
    vf d = low_half(vi_words(row, at));
    vi x[2] = {vi_words(row, at + 66), vi_words(row, at + 70)};
    for (int i = 0; i < 2 * n; i++) scale_and_half(d, nibble(x, i), 0.25f, ws + i * LANES);
}

/* Signs of their own, a word a block, from `at` on. */
INLINE void plain_signs(edge_rows16 row, size_t at, int n, edge_signs minus) {
    for (int i = 0; i < n; i += 4) {
        vi x[4];
        vi_columns(row, at + 4 * (size_t)i, x);
        for (int k = 0; k < 4; k++) store_signs(minus[i + k], x[k]);
    }
}

enum { iq2_s_SUB = 2, iq2_s_MIN = 0, iq2_s_OFF = 0, iq2_s_SIGNED = 1, iq2_s_SIGNS = 1 };
INLINE vb iq2_s_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 82 + 2, *q = p + 4 * (b & 7);
    unsigned high = p[64 + (b & 7)];
    return vb_of64(bytes2_s[q[0] | (high << 8 & 0x300)], bytes2_s[q[1] | (high << 6 & 0x300)],
                   bytes2_s[q[2] | (high << 4 & 0x300)], bytes2_s[q[3] | (high << 2 & 0x300)]);
}
INLINE void iq2_s_signs(edge_rows16 row, int b, int n, edge_signs minus) {
    plain_signs(row, (size_t)(b >> 3) * 82 + 34, n, minus);
}
INLINE void iq2_s_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 82;
    vf d = low_half(vi_words(row, at));
    vi x[2] = {vi_words(row, at + 74), vi_words(row, at + 78)};
    for (int i = 0; i < 2 * n; i++) scale_and_half(d, nibble(x, i), 0.25f, ws + i * LANES);
}

enum { iq3_xxs_SUB = 1, iq3_xxs_MIN = 0, iq3_xxs_OFF = 0, iq3_xxs_SIGNED = 1, iq3_xxs_SIGNS = 1 };
INLINE vb iq3_xxs_load(const uint8_t *row, int b) {
    const uint8_t *q = row + (size_t)(b >> 3) * 98 + 2 + 8 * (b & 7);
    return vb_of32(grid3_xxs[q[0]], grid3_xxs[q[1]], grid3_xxs[q[2]], grid3_xxs[q[3]], grid3_xxs[q[4]],
                   grid3_xxs[q[5]], grid3_xxs[q[6]], grid3_xxs[q[7]]);
}
INLINE void iq3_xxs_signs(edge_rows16 row, int b, int n, edge_signs minus) {
    for (int i = 0; i < n; i += 4) {
        vi x[4];
        vi_columns(row, (size_t)(b >> 3) * 98 + 66 + 4 * (size_t)i, x);
        for (int k = 0; k < 4; k++) store_signs(minus[i + k], even_signs(sevens(x[k])));
    }
}
INLINE void iq3_xxs_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 98;
    vf d = low_half(vi_words(row, at));
    for (int i = 0; i < n; i += 4) {
        vi x[4];
        vi_columns(row, at + 66 + 4 * (size_t)i, x);
        for (int k = 0; k < 4; k++) scale_and_half(d, vi_shr(x[k], 28), 0.5f, ws + (i + k) * LANES);
    }
}

enum { iq3_s_SUB = 1, iq3_s_MIN = 0, iq3_s_OFF = 0, iq3_s_SIGNED = 1, iq3_s_SIGNS = 1 };
INLINE vb iq3_s_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 110 + 2, *q = p + 8 * (b & 7);
    unsigned high = p[64 + (b & 7)];
#define IQ3_ENTRY(i) grid3_s[q[i] | (high << (8 - (i)) & 256)]
    return vb_of32(IQ3_ENTRY(0), IQ3_ENTRY(1), IQ3_ENTRY(2), IQ3_ENTRY(3), IQ3_ENTRY(4), IQ3_ENTRY(5), IQ3_ENTRY(6),
                   IQ3_ENTRY(7));
#undef IQ3_ENTRY
}
INLINE void iq3_s_signs(edge_rows16 row, int b, int n, edge_signs minus) {
    plain_signs(row, (size_t)(b >> 3) * 110 + 74, n, minus);
}
INLINE void iq3_s_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 110;
    vf d = low_half(vi_words(row, at));
    vi x = vi_words(row, at + 106);
    for (int i = 0; i < n; i++) odd_scale(d, nibble(&x, i), 1.0f, ws + i * LANES);
}

/* IQ1: a weight is dl * (g + 1/8) or dl * (g - 1/8) with g = -1, 0 or 1; stored bytes are eight times that, plus
 * nine, and the scale is dl / 8. */
enum { iq1_s_SUB = 1, iq1_s_MIN = 0, iq1_s_OFF = 9, iq1_s_SIGNED = 0 };
INLINE vb iq1_s_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 50 + 2, *q = p + 4 * (b & 7), *h = p + 32 + 2 * (b & 7);
    unsigned high = h[0] | (unsigned)h[1] << 8;
    vb w = vb_of64(bytes1[q[0] | (high << 8 & 0x700)], bytes1[q[1] | (high << 5 & 0x700)],
                   bytes1[q[2] | (high << 2 & 0x700)], bytes1[q[3] | (high >> 1 & 0x700)]);
    return vb_or(w, vb_set1(high & 0x8000 ? 0 : 2));
}
INLINE void iq1_s_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 50;
    vf d = low_half(vi_words(row, at));
    vi x[4];
    vi_columns(row, at + 34, x);
    for (int i = 0; i < n; i++) odd_scale(d, bits_at(vi_shr_by(x[i / 2], 16 * (i % 2)), 12, 7), 0.125f, ws + i * LANES);
}

enum { iq1_m_SUB = 2, iq1_m_MIN = 0, iq1_m_OFF = 9, iq1_m_SIGNED = 0 };
INLINE vb iq1_m_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 56, *q = p + 4 * (b & 7), *h = p + 32 + 2 * (b & 7);
    unsigned high = h[0] | (unsigned)h[1] << 8; /* for each eight weights: three bits of index, one of sign */
    vb w = vb_of64(bytes1[q[0] | (high << 8 & 0x700)], bytes1[q[1] | (high << 4 & 0x700)], bytes1[q[2] | (high & 0x700)],
                   bytes1[q[3] | (high >> 4 & 0x700)]);
    const uint64_t two = 0x0202020202020202ull;
    vb up = vb_of64(high & 8 ? 0 : two, high & 0x80 ? 0 : two, high & 0x800 ? 0 : two, high & 0x8000 ? 0 : two);
    return vb_or(w, up);
}
INLINE void iq1_m_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 56 + 48;
    vi x[2] = {vi_words(row, at), vi_words(row, at + 4)}; /* 16 bits four times: four scales, four bits of d */
    vi low = vi_or(bits_at(x[0], 12, 15), bits_at(x[0], 24, 0xF0));
    vi high = vi_or(bits_at(x[1], 4, 0xF00), bits_at(x[1], 16, 0xF000));
    vf d = vf_from_words(vi_or(low, high));
    for (int i = 0; i < 2 * n; i++) {
        vi s = bits_at(vi_shr_by(x[i / 8], 16 * (i / 4 % 2) + 3 * (i % 4)), 0, 7);
        odd_scale(d, s, 0.125f, ws + i * LANES);
    }
}

#define NO_SIGNS(type)                                                                     \
    enum { type##_SIGNS = 0 };                                                             \
    INLINE void type##_signs(edge_rows16 row, int b, int n, edge_signs minus) {            \
        (void)row, (void)b, (void)n, (void)minus;                                          \
    }
NO_SIGNS(q4_0)
NO_SIGNS(q4_1)
NO_SIGNS(q5_0)
NO_SIGNS(q5_1)
NO_SIGNS(q8_0)
NO_SIGNS(q2_k)
NO_SIGNS(q3_k)
NO_SIGNS(q4_k)
NO_SIGNS(q5_k)
NO_SIGNS(q6_k)
NO_SIGNS(iq4_nl)
NO_SIGNS(iq4_xs)
NO_SIGNS(mxfp4)
NO_SIGNS(nvfp4)
NO_SIGNS(iq1_s)
NO_SIGNS(iq1_m)
NO_SIGNS(tq1_0)
NO_SIGNS(tq2_0)
NO_SIGNS(q1_0)
NO_SIGNS(q2_0)

#endif
