/* What each block type looks like in the file: the plain ones here, the others in quants_codebook.h, quants_grid.h
 * and quants_ternary.h.
 *
 * A type TYPE gives the 32 weights of block b of a row as bytes, and the scales of 16 rows:
 *   TYPE_load(row, b)                   stored bytes u of block b
 *   TYPE_scales(row, b, n, ws, wm)      scales of blocks b..b+n-1 (n <= 8), a vector of 16 rows each
 *   weight = ws * (u - TYPE_OFF) + wm
 * TYPE_SUB scales per block of 32 (one or two); TYPE_MIN: has wm; TYPE_SIGNED: u are signed bytes.
 * The products that make ws and wm are rounded to float as gguf-py's dequantization rounds them.
 */
#ifndef EDGE_QUANTS_H
#define EDGE_QUANTS_H

#include "simd.h"

typedef const uint8_t *const *edge_rows16; /* 16 weight rows */

/* Half-precision numbers `at` bytes into each row, as floats.  Plain moves gather them: they leave the vector
 * units to the products. */
INLINE vf halves_at(edge_rows16 row, size_t at) {
    uint16_t h[LANES];
    for (int r = 0; r < LANES; r++) memcpy(&h[r], row[r] + at, sizeof *h);
    return vf_from_f16(h);
}

/* The same number at the head of each of n blocks. */
INLINE void block_halves(edge_rows16 row, size_t at, size_t block, int n, float *out) {
    uint16_t h[8][LANES];
    for (int i = 0; i < n; i++)
        for (int r = 0; r < LANES; r++) memcpy(&h[i][r], row[r] + at + (size_t)i * block, sizeof h[i][r]);
    for (int i = 0; i < n; i++) vf_store(out + i * LANES, vf_from_f16(h[i]));
}

INLINE uint32_t read32(const uint8_t *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE uint64_t read64(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

enum { q4_0_SUB = 1, q4_0_MIN = 0, q4_0_OFF = 8, q4_0_SIGNED = 0 };
INLINE vb q4_0_load(const uint8_t *row, int b) { return vb_nibbles(row + (size_t)b * 18 + 2); }
INLINE void q4_0_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    block_halves(row, (size_t)b * 18, 18, n, ws);
}

enum { q4_1_SUB = 1, q4_1_MIN = 1, q4_1_OFF = 0, q4_1_SIGNED = 0 };
INLINE vb q4_1_load(const uint8_t *row, int b) { return vb_nibbles(row + (size_t)b * 20 + 4); }
INLINE void q4_1_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    block_halves(row, (size_t)b * 20, 20, n, ws);
    block_halves(row, (size_t)b * 20 + 2, 20, n, wm);
}

enum { q5_0_SUB = 1, q5_0_MIN = 0, q5_0_OFF = 16, q5_0_SIGNED = 0 };
INLINE vb q5_0_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)b * 22;
    return vb_or(vb_nibbles(p + 6), vb_bits(p + 2, 16));
}
INLINE void q5_0_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    block_halves(row, (size_t)b * 22, 22, n, ws);
}

enum { q5_1_SUB = 1, q5_1_MIN = 1, q5_1_OFF = 0, q5_1_SIGNED = 0 };
INLINE vb q5_1_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)b * 24;
    return vb_or(vb_nibbles(p + 8), vb_bits(p + 4, 16));
}
INLINE void q5_1_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    block_halves(row, (size_t)b * 24, 24, n, ws);
    block_halves(row, (size_t)b * 24 + 2, 24, n, wm);
}

enum { q8_0_SUB = 1, q8_0_MIN = 0, q8_0_OFF = 0, q8_0_SIGNED = 1 };
INLINE vb q8_0_load(const uint8_t *row, int b) { return vb_load(row + (size_t)b * 34 + 2); }
INLINE void q8_0_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    block_halves(row, (size_t)b * 34, 34, n, ws);
}

/* Super-blocks of 256: block b is part b % 8 of super-block b / 8. */

enum { q2_k_SUB = 2, q2_k_MIN = 1, q2_k_OFF = 0, q2_k_SIGNED = 0 };
INLINE vb q2_k_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 84;
    return vb_and(vb_shr_by(vb_load(p + 16 + 32 * ((b >> 2) & 1)), 2 * (b & 3)), vb_set1(3));
}
INLINE void q2_k_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    size_t at = (size_t)(b >> 3) * 84;
    vf d = halves_at(row, at + 80), dmin = vf_sub(vf_zero(), halves_at(row, at + 82));
    uint8_t column[16][16];
    columns16(row, at, column);
    for (int i = 0; i < 2 * n; i++) {
        vi low, high;
        vi_nibbles(column[i], &low, &high);
        vf_store(ws + i * LANES, vf_mul(d, vi_to_vf(low)));
        vf_store(wm + i * LANES, vf_mul(dmin, vi_to_vf(high)));
    }
}

enum { q3_k_SUB = 2, q3_k_MIN = 0, q3_k_OFF = 4, q3_k_SIGNED = 0 };
INLINE vb q3_k_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 110;
    vb low = vb_and(vb_shr_by(vb_load(p + 32 + 32 * ((b >> 2) & 1)), 2 * (b & 3)), vb_set1(3));
    vb high = vb_and(vb_shr_by(vb_load(p), b & 7), vb_set1(1));
    return vb_or(low, vb_shl(high, 2));
}
INLINE void q3_k_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 110;
    vf d = halves_at(row, at + 108);
    uint64_t bytes[16][2]; /* of each row: its sixteen six-bit scales, a byte each */
    for (int r = 0; r < LANES; r++) {
        uint64_t low;
        uint32_t high;
        memcpy(&low, row[r] + at + 96, sizeof low);
        memcpy(&high, row[r] + at + 104, sizeof high);
        uint64_t pairs = high | (uint64_t)(high >> 2) << 32;
        bytes[r][0] = (low & 0x0F0F0F0F0F0F0F0Full) | (pairs & 0x0303030303030303ull) << 4;
        bytes[r][1] = (low >> 4 & 0x0F0F0F0F0F0F0F0Full) | (pairs >> 4 & 0x0303030303030303ull) << 4;
    }
    const uint8_t *from[16];
    for (int r = 0; r < LANES; r++) from[r] = (const uint8_t *)bytes[r];
    uint8_t column[16][16];
    columns16(from, 0, column);
    for (int i = 0; i < 2 * n; i++)
        vf_store(ws + i * LANES, vf_mul(d, vi_to_vf(vi_add(vi_from_u8(column[i]), vi_set1(-32)))));
}

/* Q4_K and Q5_K: two halves, then twelve bytes that hold eight six-bit scales and eight mins. */
INLINE void k4_scales(edge_rows16 row, size_t at, int n, float *ws, float *wm) {
    vf d = halves_at(row, at), dmin = vf_sub(vf_zero(), halves_at(row, at + 2));
    uint32_t bytes[16][4]; /* of each row: scales 0..7, mins 0..7, a byte each */
    for (int r = 0; r < LANES; r++) {
        uint32_t a[3];
        memcpy(a, row[r] + at + 4, sizeof a);
        bytes[r][0] = a[0] & 0x3F3F3F3Fu;
        bytes[r][1] = (a[2] & 0x0F0F0F0Fu) | (a[0] >> 6 & 0x03030303u) << 4;
        bytes[r][2] = a[1] & 0x3F3F3F3Fu;
        bytes[r][3] = (a[2] >> 4 & 0x0F0F0F0Fu) | (a[1] >> 6 & 0x03030303u) << 4;
    }
    const uint8_t *from[16];
    for (int r = 0; r < LANES; r++) from[r] = (const uint8_t *)bytes[r];
    uint8_t column[16][16];
    columns16(from, 0, column);
    for (int i = 0; i < n; i++) {
        vf_store(ws + i * LANES, vf_mul(d, vi_to_vf(vi_from_u8(column[i]))));
        vf_store(wm + i * LANES, vf_mul(dmin, vi_to_vf(vi_from_u8(column[8 + i]))));
    }
}

enum { q4_k_SUB = 1, q4_k_MIN = 1, q4_k_OFF = 0, q4_k_SIGNED = 0 };
INLINE vb q4_k_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 144;
    return vb_and(vb_shr_by(vb_load(p + 16 + 32 * ((b >> 1) & 3)), 4 * (b & 1)), vb_set1(15));
}
INLINE void q4_k_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    k4_scales(row, (size_t)(b >> 3) * 144, n, ws, wm);
}

enum { q5_k_SUB = 1, q5_k_MIN = 1, q5_k_OFF = 0, q5_k_SIGNED = 0 };
INLINE vb q5_k_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 176;
    vb low = vb_and(vb_shr_by(vb_load(p + 48 + 32 * ((b >> 1) & 3)), 4 * (b & 1)), vb_set1(15));
    vb high = vb_and(vb_shr_by(vb_load(p + 16), b & 7), vb_set1(1));
    return vb_or(low, vb_shl(high, 4));
}
INLINE void q5_k_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    k4_scales(row, (size_t)(b >> 3) * 176, n, ws, wm);
}

enum { q6_k_SUB = 2, q6_k_MIN = 0, q6_k_OFF = 32, q6_k_SIGNED = 0 };
INLINE vb q6_k_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 210;
    int half = (b >> 2) & 1, part = b & 3;
    vb low = vb_and(vb_shr_by(vb_load(p + 64 * half + 32 * (part & 1)), 4 * (part >> 1)), vb_set1(15));
    vb high = vb_and(vb_shr_by(vb_load(p + 128 + 32 * half), 2 * part), vb_set1(3));
    return vb_or(low, vb_shl(high, 4));
}
INLINE void q6_k_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 210;
    vf d = halves_at(row, at + 208);
    uint8_t column[16][16];
    columns16(row, at + 192, column);
    for (int i = 0; i < 2 * n; i++) vf_store(ws + i * LANES, vf_mul(d, vi_to_vf(vi_from_i8(column[i]))));
}

#endif
