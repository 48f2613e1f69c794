/* What each block type looks like in the file.
 *
 * A type TYPE gives, for one weight row, the 32 weights of block b as bytes and its scales:
 *   TYPE_load(row, b)                   stored bytes u of block b
 *   TYPE_scales(row, b, n, ws, wm)      scales of blocks b..b+n-1, one float every LANES
 *   weight = ws * (u - TYPE_OFF) + wm
 * TYPE_SUB scales per block of 32 (one or two); TYPE_MIN: has wm; TYPE_SIGNED: u are signed bytes.
 * The products that make ws and wm are rounded to float as gguf-py's dequantization rounds them.
 */
#ifndef EDGE_QUANTS_H
#define EDGE_QUANTS_H

#include "simd.h"

INLINE float half_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return f32_from_f16(h);
}

enum { q4_0_SUB = 1, q4_0_MIN = 0, q4_0_OFF = 8, q4_0_SIGNED = 0 };
INLINE vb q4_0_load(const uint8_t *row, int b) { return vb_nibbles(row + (size_t)b * 18 + 2); }
INLINE void q4_0_scales(const uint8_t *row, int b, int n, float *ws, float *wm) {
    (void)wm;
    for (int i = 0; i < n; i++) ws[i * LANES] = half_at(row + (size_t)(b + i) * 18);
}

enum { q4_1_SUB = 1, q4_1_MIN = 1, q4_1_OFF = 0, q4_1_SIGNED = 0 };
INLINE vb q4_1_load(const uint8_t *row, int b) { return vb_nibbles(row + (size_t)b * 20 + 4); }
INLINE void q4_1_scales(const uint8_t *row, int b, int n, float *ws, float *wm) {
    for (int i = 0; i < n; i++) {
        ws[i * LANES] = half_at(row + (size_t)(b + i) * 20);
        wm[i * LANES] = half_at(row + (size_t)(b + i) * 20 + 2);
    }
}

enum { q5_0_SUB = 1, q5_0_MIN = 0, q5_0_OFF = 16, q5_0_SIGNED = 0 };
INLINE vb q5_0_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)b * 22;
    return vb_or(vb_nibbles(p + 6), vb_bits(p + 2, 16));
}
INLINE void q5_0_scales(const uint8_t *row, int b, int n, float *ws, float *wm) {
    (void)wm;
    for (int i = 0; i < n; i++) ws[i * LANES] = half_at(row + (size_t)(b + i) * 22);
}

enum { q5_1_SUB = 1, q5_1_MIN = 1, q5_1_OFF = 0, q5_1_SIGNED = 0 };
INLINE vb q5_1_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)b * 24;
    return vb_or(vb_nibbles(p + 8), vb_bits(p + 4, 16));
}
INLINE void q5_1_scales(const uint8_t *row, int b, int n, float *ws, float *wm) {
    for (int i = 0; i < n; i++) {
        ws[i * LANES] = half_at(row + (size_t)(b + i) * 24);
        wm[i * LANES] = half_at(row + (size_t)(b + i) * 24 + 2);
    }
}

enum { q8_0_SUB = 1, q8_0_MIN = 0, q8_0_OFF = 0, q8_0_SIGNED = 1 };
INLINE vb q8_0_load(const uint8_t *row, int b) { return vb_load(row + (size_t)b * 34 + 2); }
INLINE void q8_0_scales(const uint8_t *row, int b, int n, float *ws, float *wm) {
    (void)wm;
    for (int i = 0; i < n; i++) ws[i * LANES] = half_at(row + (size_t)(b + i) * 34);
}

/* Super-blocks of 256: block b is part b % 8 of super-block b / 8. */

enum { q2_k_SUB = 2, q2_k_MIN = 1, q2_k_OFF = 0, q2_k_SIGNED = 0 };
INLINE vb q2_k_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 84;
    return vb_and(vb_shr_by(vb_load(p + 16 + 32 * ((b >> 2) & 1)), 2 * (b & 3)), vb_set1(3));
}
INLINE void q2_k_scales(const uint8_t *row, int b, int n, float *ws, float *wm) {
    const uint8_t *p = row + (size_t)(b >> 3) * 84;
    float d = half_at(p + 80), dmin = half_at(p + 82);
    for (int i = 0; i < 2 * n; i++) {
        ws[i * LANES] = d * (float)(p[i] & 15);
        wm[i * LANES] = -(dmin * (float)(p[i] >> 4));
    }
}

enum { q3_k_SUB = 2, q3_k_MIN = 0, q3_k_OFF = 4, q3_k_SIGNED = 0 };
INLINE vb q3_k_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 110;
    vb low = vb_and(vb_shr_by(vb_load(p + 32 + 32 * ((b >> 2) & 1)), 2 * (b & 3)), vb_set1(3));
    vb high = vb_and(vb_shr_by(vb_load(p), b & 7), vb_set1(1));
    return vb_or(low, vb_shl(high, 2));
}
INLINE void q3_k_scales(const uint8_t *row, int b, int n, float *ws, float *wm) {
    (void)wm;
    const uint8_t *p = row + (size_t)(b >> 3) * 110, *s = p + 96;
    float d = half_at(p + 108);
    for (int i = 0; i < 2 * n; i++) {
        int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4, high = (s[8 + (i & 3)] >> (2 * (i >> 2))) & 3;
        ws[i * LANES] = d * (float)((low | high << 4) - 32);
    }
}

/* Six-bit scale and min number i of the twelve bytes that Q4_K and Q5_K share. */
INLINE void k4_scale(const uint8_t *s, int i, int *scale, int *min) {
    if (i < 4) {
        *scale = s[i] & 63;
        *min = s[i + 4] & 63;
    } else {
        *scale = (s[i + 4] & 15) | (s[i - 4] >> 6) << 4;
        *min = s[i + 4] >> 4 | (s[i] >> 6) << 4;
    }
}
INLINE void k4_scales(const uint8_t *p, int n, float *ws, float *wm) {
    float d = half_at(p), dmin = half_at(p + 2);
    for (int i = 0; i < n; i++) {
        int scale, min;
        k4_scale(p + 4, i, &scale, &min);
        ws[i * LANES] = d * (float)scale;
        wm[i * LANES] = -(dmin * (float)min);
    }
}

enum { q4_k_SUB = 1, q4_k_MIN = 1, q4_k_OFF = 0, q4_k_SIGNED = 0 };
INLINE vb q4_k_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 144;
    return vb_and(vb_shr_by(vb_load(p + 16 + 32 * ((b >> 1) & 3)), 4 * (b & 1)), vb_set1(15));
}
INLINE void q4_k_scales(const uint8_t *row, int b, int n, float *ws, float *wm) {
    k4_scales(row + (size_t)(b >> 3) * 144, n, ws, wm);
}

enum { q5_k_SUB = 1, q5_k_MIN = 1, q5_k_OFF = 0, q5_k_SIGNED = 0 };
INLINE vb q5_k_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 176;
    vb low = vb_and(vb_shr_by(vb_load(p + 48 + 32 * ((b >> 1) & 3)), 4 * (b & 1)), vb_set1(15));
    vb high = vb_and(vb_shr_by(vb_load(p + 16), b & 7), vb_set1(1));
    return vb_or(low, vb_shl(high, 4));
}
INLINE void q5_k_scales(const uint8_t *row, int b, int n, float *ws, float *wm) {
    k4_scales(row + (size_t)(b >> 3) * 176, n, ws, wm);
}

enum { q6_k_SUB = 2, q6_k_MIN = 0, q6_k_OFF = 32, q6_k_SIGNED = 0 };
INLINE vb q6_k_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 210;
    int half = (b >> 2) & 1, part = b & 3;
    vb low = vb_and(vb_shr_by(vb_load(p + 64 * half + 32 * (part & 1)), 4 * (part >> 1)), vb_set1(15));
    vb high = vb_and(vb_shr_by(vb_load(p + 128 + 32 * half), 2 * part), vb_set1(3));
    return vb_or(low, vb_shl(high, 4));
}
INLINE void q6_k_scales(const uint8_t *row, int b, int n, float *ws, float *wm) {
    (void)wm;
    const uint8_t *p = row + (size_t)(b >> 3) * 210;
    float d = half_at(p + 208);
    for (int i = 0; i < 2 * n; i++) ws[i * LANES] = d * (float)(int8_t)p[192 + i];
}

#endif
