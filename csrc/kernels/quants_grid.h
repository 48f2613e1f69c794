/* Block types whose weights come four or eight at a time from a codebook; see quants.h for what a type gives.
 *
 * All are super-blocks of 256: block b is part b % 8 of super-block b / 8.
 */
#ifndef EDGE_QUANTS_GRID_H
#define EDGE_QUANTS_GRID_H

#include "codebooks.h"
#include "quants.h"

/* Signs are seven bits of a byte: the eighth makes the number of minuses even. */
INLINE uint32_t even_signs(uint32_t x) {
    uint32_t parity = x ^ x << 1;
    parity ^= parity << 2;
    parity ^= parity << 4;
    return x | (parity & 0x80808080u);
}

/* Four times seven bits, a byte each. */
INLINE uint32_t sevens(uint32_t x) {
    x = (x & 0x3FFFu) | (x << 2 & 0x3FFF0000u);
    return (x & 0x007F007Fu) | (x << 1 & 0x7F007F00u);
}

/* Four codebook entries, as 32 codes of two bits. */
INLINE uint64_t entries4(const uint16_t *grid, unsigned a, unsigned b, unsigned c, unsigned d) {
    return grid[a] | (uint64_t)grid[b] << 16 | (uint64_t)grid[c] << 32 | (uint64_t)grid[d] << 48;
}

INLINE vb grid2_signed(uint64_t codes, uint32_t minus) {
    static const uint8_t values[16] = {8, 25, 43};
    return vb_negate(vb_lut16(vb_crumbs(codes), values), minus);
}

INLINE uint64_t entries2(const uint32_t *grid, unsigned a, unsigned b) { return grid[a] | (uint64_t)grid[b] << 32; }

/* Scales d * (s + 1/2) * unit: s[i] are those of 16 rows. */
INLINE void scales_and_half(vf d, uint8_t s[][16], int n, float unit, float *ws) {
    for (int i = 0; i < n; i++) {
        vf scale = vf_add(vf_set1(0.5f), vi_to_vf(vi_from_u8(s[i])));
        vf_store(ws + i * LANES, vf_mul(vf_mul(d, scale), vf_set1(unit)));
    }
}

/* Scales d * (2 * s + 1) * unit. */
INLINE void odd_scales(vf d, uint8_t s[][16], int n, float unit, float *ws) {
    for (int i = 0; i < n; i++) {
        vi x = vi_from_u8(s[i]);
        vf_store(ws + i * LANES, vf_mul(vf_mul(d, vi_to_vf(vi_add(vi_add(x, x), vi_set1(1)))), vf_set1(unit)));
    }
}

/* The four-bit numbers of n bytes `at` each row, the low one first. */
INLINE void nibbles_at(edge_rows16 row, size_t at, int n, uint8_t s[][16]) {
    for (int i = 0; i < n; i++)
        for (int r = 0; r < LANES; r++) {
            s[2 * i][r] = row[r][at + (size_t)i] & 15;
            s[2 * i + 1][r] = row[r][at + (size_t)i] >> 4;
        }
}

/* The top four bits of n words of four bytes. */
INLINE void top_nibbles_at(edge_rows16 row, size_t at, size_t stride, int n, uint8_t s[][16]) {
    for (int i = 0; i < n; i++)
        for (int r = 0; r < LANES; r++) s[i][r] = row[r][at + stride * (size_t)i + 3] >> 4;
}

enum { iq2_xxs_SUB = 1, iq2_xxs_MIN = 0, iq2_xxs_OFF = 0, iq2_xxs_SIGNED = 1 };
INLINE vb iq2_xxs_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 66 + 2 + 8 * (b & 7);
    return grid2_signed(entries4(grid2_xxs, p[0], p[1], p[2], p[3]), even_signs(sevens(read32(p + 4))));
}
INLINE void iq2_xxs_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 66;
    uint8_t s[8][16];
    top_nibbles_at(row, at + 6, 8, n, s);
    scales_and_half(halves_at(row, at), s, n, 0.25f, ws);
}

enum { iq2_xs_SUB = 2, iq2_xs_MIN = 0, iq2_xs_OFF = 0, iq2_xs_SIGNED = 1 };
INLINE vb iq2_xs_load(const uint8_t *row, int b) {
    uint64_t q = read64(row + (size_t)(b >> 3) * 74 + 2 + 8 * (b & 7)); /* nine bits of index, seven of signs */
    uint64_t signs = (q >> 9 & 0x7F) | (q >> 17 & 0x7F00) | (q >> 25 & 0x7F0000) | (q >> 33 & 0x7F000000);
    uint64_t codes = entries4(grid2_xs, q & 511, q >> 16 & 511, q >> 32 & 511, q >> 48 & 511);
    return grid2_signed(codes, even_signs((uint32_t)signs));
}
INLINE void iq2_xs_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 74;
    uint8_t s[16][16];
    nibbles_at(row, at + 66, n, s);
    scales_and_half(halves_at(row, at), s, 2 * n, 0.25f, ws);
}

enum { iq2_s_SUB = 2, iq2_s_MIN = 0, iq2_s_OFF = 0, iq2_s_SIGNED = 1 };
INLINE vb iq2_s_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 82 + 2, *q = p + 4 * (b & 7);
    unsigned high = p[64 + (b & 7)];
    uint64_t codes = entries4(grid2_s, q[0] | (high << 8 & 0x300), q[1] | (high << 6 & 0x300),
                              q[2] | (high << 4 & 0x300), q[3] | (high << 2 & 0x300));
    return grid2_signed(codes, read32(q + 32));
}
INLINE void iq2_s_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 82;
    uint8_t s[16][16];
    nibbles_at(row, at + 74, n, s);
    scales_and_half(halves_at(row, at), s, 2 * n, 0.25f, ws);
}

enum { iq3_xxs_SUB = 1, iq3_xxs_MIN = 0, iq3_xxs_OFF = 0, iq3_xxs_SIGNED = 1 };
INLINE vb iq3_xxs_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 98 + 2, *q = p + 8 * (b & 7);
    vb w = vb_of64(entries2(grid3_xxs, q[0], q[1]), entries2(grid3_xxs, q[2], q[3]),
                   entries2(grid3_xxs, q[4], q[5]), entries2(grid3_xxs, q[6], q[7]));
    return vb_negate(w, even_signs(sevens(read32(p + 64 + 4 * (b & 7)))));
}
INLINE void iq3_xxs_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 98;
    uint8_t s[8][16];
    top_nibbles_at(row, at + 66, 4, n, s);
    scales_and_half(halves_at(row, at), s, n, 0.5f, ws);
}

enum { iq3_s_SUB = 1, iq3_s_MIN = 0, iq3_s_OFF = 0, iq3_s_SIGNED = 1 };
INLINE vb iq3_s_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 110 + 2, *q = p + 8 * (b & 7);
    unsigned high = p[64 + (b & 7)];
#define IQ3_INDEX(i) (q[i] | (high << (8 - (i)) & 256))
    vb w = vb_of64(entries2(grid3_s, IQ3_INDEX(0), IQ3_INDEX(1)), entries2(grid3_s, IQ3_INDEX(2), IQ3_INDEX(3)),
                   entries2(grid3_s, IQ3_INDEX(4), IQ3_INDEX(5)), entries2(grid3_s, IQ3_INDEX(6), IQ3_INDEX(7)));
#undef IQ3_INDEX
    return vb_negate(w, read32(p + 72 + 4 * (b & 7)));
}
INLINE void iq3_s_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 110;
    uint8_t s[8][16];
    nibbles_at(row, at + 106, n / 2, s);
    odd_scales(halves_at(row, at), s, n, 1.0f, ws);
}

/* IQ1: a weight is dl * (g + 1/8) or dl * (g - 1/8) with g = -1, 0 or 1; stored bytes are eight times that, plus
 * nine, and the scale is dl / 8. */
INLINE vb grid1_bytes(uint64_t codes, vb up) { return vb_or(vb_shl(vb_crumbs(codes), 3), up); }

enum { iq1_s_SUB = 1, iq1_s_MIN = 0, iq1_s_OFF = 9, iq1_s_SIGNED = 0 };
INLINE vb iq1_s_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 50 + 2, *q = p + 4 * (b & 7);
    unsigned high = p[32 + 2 * (b & 7)] | (unsigned)p[33 + 2 * (b & 7)] << 8;
    uint64_t codes = entries4(grid1, q[0] | (high << 8 & 0x700), q[1] | (high << 5 & 0x700),
                              q[2] | (high << 2 & 0x700), q[3] | (high >> 1 & 0x700));
    return grid1_bytes(codes, vb_set1(high & 0x8000 ? 0 : 2));
}
INLINE void iq1_s_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 50;
    uint8_t s[8][16];
    for (int i = 0; i < n; i++)
        for (int r = 0; r < LANES; r++) s[i][r] = row[r][at + 35 + 2 * (size_t)i] >> 4 & 7;
    odd_scales(halves_at(row, at), s, n, 0.125f, ws);
}

enum { iq1_m_SUB = 2, iq1_m_MIN = 0, iq1_m_OFF = 9, iq1_m_SIGNED = 0 };
INLINE vb iq1_m_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 3) * 56, *q = p + 4 * (b & 7), *h = p + 32 + 2 * (b & 7);
    unsigned high = h[0] | (unsigned)h[1] << 8; /* for each eight weights: three bits of index, one of sign */
    uint64_t codes = entries4(grid1, q[0] | (high << 8 & 0x700), q[1] | (high << 4 & 0x700), q[2] | (high & 0x700),
                              q[3] | (high >> 4 & 0x700));
    const uint64_t two = 0x0202020202020202ull;
    vb up = vb_of64(high & 8 ? 0 : two, high & 0x80 ? 0 : two, high & 0x800 ? 0 : two, high & 0x8000 ? 0 : two);
    return grid1_bytes(codes, up);
}
INLINE void iq1_m_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    uint16_t d[LANES];
    uint8_t s[16][16];
    for (int r = 0; r < LANES; r++) {
        uint16_t x[4]; /* each has four scales and four bits of d */
        memcpy(x, row[r] + (size_t)(b >> 3) * 56 + 48, sizeof x);
        d[r] = (uint16_t)(x[0] >> 12 | (x[1] >> 8 & 0xF0) | (x[2] >> 4 & 0xF00) | (x[3] & 0xF000));
        for (int i = 0; i < 2 * n; i++) s[i][r] = x[i >> 2] >> 3 * (i & 3) & 7;
    }
    odd_scales(vf_from_f16(d), s, 2 * n, 0.125f, ws);
}

#endif
