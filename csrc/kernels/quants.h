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

/* The f16 in the lower and in the upper halves of words. */
INLINE vf low_half(vi words) { return vf_from_words(words); }
INLINE vf high_half(vi words) { return vf_from_words(vi_shr(words, 16)); }

/* The scale at the head of each of n blocks; then scale and minimum. */
INLINE void block_scales(edge_rows16 row, size_t at, size_t block, int n, float *ws) {
    for (int i = 0; i < n; i++) vf_store(ws + i * LANES, low_half(vi_words(row, at + (size_t)i * block)));
}
INLINE void block_scales_and_mins(edge_rows16 row, size_t at, size_t block, int n, float *ws, float *wm) {
    for (int i = 0; i < n; i++) {
        vi words = vi_words(row, at + (size_t)i * block);
        vf_store(ws + i * LANES, low_half(words));
        vf_store(wm + i * LANES, high_half(words));
    }
}

/* Bits `shift` and up, as many as `mask` has. */
INLINE vi bits_at(vi x, int shift, int mask) { return vi_and(vi_shr(x, shift), vi_set1(mask)); }

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
    block_scales(row, (size_t)b * 18, 18, n, ws);
}

enum { q4_1_SUB = 1, q4_1_MIN = 1, q4_1_OFF = 0, q4_1_SIGNED = 0 };
INLINE vb q4_1_load(const uint8_t *row, int b) { return vb_nibbles(row + (size_t)b * 20 + 4); }
INLINE void q4_1_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    block_scales_and_mins(row, (size_t)b * 20, 20, n, ws, wm);
}

enum { q5_0_SUB = 1, q5_0_MIN = 0, q5_0_OFF = 16, q5_0_SIGNED = 0 };
INLINE vb q5_0_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)b * 22;
    return vb_or(vb_nibbles(p + 6), vb_bits(p + 2, 16));
}
INLINE void q5_0_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    block_scales(row, (size_t)b * 22, 22, n, ws);
}

enum { q5_1_SUB = 1, q5_1_MIN = 1, q5_1_OFF = 0, q5_1_SIGNED = 0 };
INLINE vb q5_1_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)b * 24;
    return vb_or(vb_nibbles(p + 8), vb_bits(p + 4, 16));
}
INLINE void q5_1_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    block_scales_and_mins(row, (size_t)b * 24, 24, n, ws, wm);
}

enum { q8_0_SUB = 1, q8_0_MIN = 0, q8_0_OFF = 0, q8_0_SIGNED = 1 };
INLINE vb q8_0_load(const uint8_t *row, int b) { return vb_load(row + (size_t)b * 34 + 2); }
INLINE void q8_0_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    block_scales(row, (size_t)b * 34, 34, n, ws);
}

/* Super-blocks of 256: block b is part b % 8 of super-block b / 8. */

enum { q2_k_SUB = 2, q2_k_MIN = 1, q2_k_OFF = 0, q2_k_SIGNED = 0 };
INLINE vb q2_k_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 84;
    return vb_and(vb_shr_by(vb_load(p + 16 + 32 * ((b >> 2) & 1)), 2 * (b & 3)), vb_set1(3));
}
INLINE void q2_k_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    size_t at = (size_t)(b >> 3) * 84;
    vi both = vi_words(row, at + 80), x[4];
    vf d = low_half(both), dmin = vf_sub(vf_zero(), high_half(both));
    vi_columns(row, at, x);
    for (int i = 0; i < 2 * n; i++) {
        vi byte = vi_shr_by(x[i / 4], 8 * (i % 4));
        vf_store(ws + i * LANES, vf_mul(d, vi_to_vf(bits_at(byte, 0, 15))));
        vf_store(wm + i * LANES, vf_mul(dmin, vi_to_vf(bits_at(byte, 4, 15))));
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
    vf d = high_half(vi_words(row, at + 106));
    vi low[2] = {vi_words(row, at + 96), vi_words(row, at + 100)}, high = vi_words(row, at + 104);
    for (int i = 0; i < 2 * n; i++) { /* sixteen six-bit scales: nibbles of eight bytes, upper bits of four */
        vi x = bits_at(vi_shr_by(low[i / 4 % 2], 8 * (i % 4) + 4 * (i / 8)), 0, 15);
        vi y = bits_at(vi_shr_by(high, 8 * (i % 4) + 2 * (i / 4)), 0, 3);
        vf_store(ws + i * LANES, vf_mul(d, vi_to_vf(vi_add(vi_or(x, vi_shl(y, 4)), vi_set1(-32)))));
    }
}

/* Q4_K and Q5_K: two halves, then twelve bytes that hold eight six-bit scales and eight mins. */
INLINE void k4_scales(edge_rows16 row, size_t at, int n, float *ws, float *wm) {
    vi x[4];
    vi_columns(row, at, x);
    vf d = low_half(x[0]), dmin = vf_sub(vf_zero(), high_half(x[0]));
    for (int i = 0; i < n; i++) {
        int byte = 8 * (i % 4);
        vi scale = vi_shr_by(x[1], byte), min = vi_shr_by(x[2], byte);
        if (i < 4) {
            scale = bits_at(scale, 0, 63), min = bits_at(min, 0, 63);
        } else {
            vi low = vi_shr_by(x[3], byte);
            scale = vi_or(bits_at(low, 0, 15), bits_at(scale, 2, 48));
            min = vi_or(bits_at(low, 4, 15), bits_at(min, 2, 48));
        }
        vf_store(ws + i * LANES, vf_mul(d, vi_to_vf(scale)));
        vf_store(wm + i * LANES, vf_mul(dmin, vi_to_vf(min)));
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
    vf d = high_half(vi_words(row, at + 206));
    vi x[4];
    vi_columns(row, at + 192, x);
    for (int i = 0; i < 2 * n; i++) {
        vi byte = vi_xor(bits_at(vi_shr_by(x[i / 4], 8 * (i % 4)), 0, 255), vi_set1(128)); /* signed, plus 128 */
        vf_store(ws + i * LANES, vf_mul(d, vi_to_vf(vi_add(byte, vi_set1(-128)))));
    }
}

#endif
