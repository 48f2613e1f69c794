/* Block types of one and two bits or three values without a codebook; see quants.h for what a type gives. */
#ifndef EDGE_QUANTS_TERNARY_H
#define EDGE_QUANTS_TERNARY_H

#include "quants.h"

/* Bytes hold five digits to base 3, as a fraction of 256 rounded up: times a power of 3, the first digit left
 * is the whole part of three times what remains.  Parts 0..4 of a super-block of 256 are the digits of bytes
 * 0..31, the next two and a half those of bytes 32..47; bytes 48..51 hold four digits each. */
enum { tq1_0_SUB = 1, tq1_0_MIN = 0, tq1_0_OFF = 1, tq1_0_SIGNED = 0 };
#define TIMES4(x) x, x, x, x
#define TIMES16(x) TIMES4(x), TIMES4(x), TIMES4(x), TIMES4(x)
INLINE vb tq1_0_load(const uint8_t *row, int b) {
    static const uint8_t power[8][32] = {
        {TIMES16(1), TIMES16(1)}, {TIMES16(3), TIMES16(3)},   {TIMES16(9), TIMES16(9)},  {TIMES16(27), TIMES16(27)},
        {TIMES16(81), TIMES16(81)}, {TIMES16(1), TIMES16(3)}, {TIMES16(9), TIMES16(27)},
        {TIMES16(81), TIMES4(1), TIMES4(3), TIMES4(9), TIMES4(27)}};
    const uint8_t *p = row + (size_t)(b >> 3) * 54;
    int part = b & 7;
    if (part < 5) return vb_digit3(vb_load(p), vb_load(power[part]));
    uint64_t low = read64(p + 32), high = read64(p + 40), last = read32(p + 48) * 0x100000001u;
    vb x = part < 7 ? vb_of64(low, high, low, high) : vb_of64(low, high, last, last);
    return vb_digit3(x, vb_load(power[part]));
}
#undef TIMES16
#undef TIMES4
INLINE void tq1_0_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    vf d = high_half(vi_words(row, (size_t)(b >> 3) * 54 + 50));
    for (int i = 0; i < n; i++) vf_store(ws + i * LANES, d);
}

enum { tq2_0_SUB = 1, tq2_0_MIN = 0, tq2_0_OFF = 1, tq2_0_SIGNED = 0 };
INLINE vb tq2_0_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 66;
    return vb_and(vb_shr_by(vb_load(p + 32 * ((b >> 2) & 1)), 2 * (b & 3)), vb_set1(3));
}
INLINE void tq2_0_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    vf d = high_half(vi_words(row, (size_t)(b >> 3) * 66 + 62));
    for (int i = 0; i < n; i++) vf_store(ws + i * LANES, d);
}

/* Blocks of 128: a set bit is d, a clear one -d. */
enum { q1_0_SUB = 1, q1_0_MIN = 0, q1_0_OFF = 1, q1_0_SIGNED = 0 };
INLINE vb q1_0_load(const uint8_t *row, int b) { return vb_bits(row + (size_t)(b >> 2) * 18 + 2 + 4 * (b & 3), 2); }
INLINE void q1_0_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    for (int i = 0; i < n; i += 4) {
        vf d = low_half(vi_words(row, (size_t)((b + i) >> 2) * 18));
        for (int j = i; j < i + 4; j++) vf_store(ws + j * LANES, d);
    }
}

/* Blocks of 64: -d, 0, d and 2 d. */
enum { q2_0_SUB = 1, q2_0_MIN = 0, q2_0_OFF = 1, q2_0_SIGNED = 0 };
INLINE vb q2_0_load(const uint8_t *row, int b) {
    return vb_crumbs(read64(row + (size_t)(b >> 1) * 18 + 2 + 8 * (b & 1)));
}
INLINE void q2_0_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    for (int i = 0; i < n; i += 2) {
        vf d = low_half(vi_words(row, (size_t)((b + i) >> 1) * 18));
        vf_store(ws + i * LANES, d);
        vf_store(ws + (i + 1) * LANES, d);
    }
}

#endif
