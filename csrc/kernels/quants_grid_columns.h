/* The columns of types with grids (see quants_columns.h), where bytes can be looked up in large tables: the indices of
 * 16 rows are looked up together, in tables that hold one part of every entry.
 */
#ifndef EDGE_QUANTS_GRID_COLUMNS_H
#define EDGE_QUANTS_GRID_COLUMNS_H

#include "quants_columns.h"
#include "quants_grid.h"

#if !defined(EDGE_ISA_avx512)
NO_COLUMNS(iq2_xxs)
NO_COLUMNS(iq2_xs)
NO_COLUMNS(iq2_s)
NO_COLUMNS(iq3_xxs)
NO_COLUMNS(iq3_s)
NO_COLUMNS(iq1_s)
NO_COLUMNS(iq1_m)
INLINE void split_grids(void) {}
#else

/* The lower and upper bytes of entries of eight weights of two bits; two weights of three bits each of entries of four;
 * seven bits with the sign that makes their number even. */
static uint8_t parts1[2][2048], parts2_xxs[2][256], parts2_xs[2][512], parts2_s[2][1024];
static uint8_t parts3_xxs[2][256], parts3_s[2][512], evened[128];

static void split16(const uint16_t *grid, int n, uint8_t *low, uint8_t *high) {
    for (int i = 0; i < n; i++) low[i] = (uint8_t)grid[i], high[i] = (uint8_t)(grid[i] >> 8);
}

static void split32(const uint32_t *grid, int n, int unit, uint8_t *low, uint8_t *high) {
    for (int i = 0; i < n; i++) {
        uint32_t x = grid[i];
        low[i] = (uint8_t)((x & 255) / unit | (x >> 8 & 255) / unit << 3);
        high[i] = (uint8_t)((x >> 16 & 255) / unit | (x >> 24) / unit << 3);
    }
}

/* To be called before any kernel of these types. */
static void split_grids(void) {
    split16(grid1, 2048, parts1[0], parts1[1]);
    split16(grid2_xxs, 256, parts2_xxs[0], parts2_xxs[1]);
    split16(grid2_xs, 512, parts2_xs[0], parts2_xs[1]);
    split16(grid2_s, 1024, parts2_s[0], parts2_s[1]);
    split32(grid3_xxs, 256, 8, parts3_xxs[0], parts3_xxs[1]);
    split32(grid3_s, 512, 2, parts3_s[0], parts3_s[1]);
    for (int i = 0; i < 128; i++) evened[i] = (uint8_t)(i | (__builtin_popcount((unsigned)i) & 1) << 7);
}

/* Column k of a block whose weights are w, or -w. */
INLINE void emit_minus(edge_sink *to, int i, int k, vi w, vm minus) {
    if (to->keep) vi_to_tile(to->tile + 512 * i + 64 * k, vi_negate(vi_or(w, vi_set1((int32_t)0x80808080u)), minus));
    else to->sum[i][k / 4] = vi_dot_minus(to->sum[i][k / 4], w, to->x[i].q + 4 * k, minus);
}

/* The four weights of two bits each in byte k / 2 of `parts`, in the low bits of four bytes. */
INLINE vi crumbs(const vi parts[2], int k) {
    int at = 8 * (k / 2);
    return vi_windows(parts[k % 2], at, at + 2, at + 4, at + 6);
}

/* Block i of four entries; a bit of each weight's sign. */
INLINE void grid2_columns(const vi parts[2], vi signs, int i, edge_sink *to) {
    static const uint8_t values[64] = {
#define FOUR 8, 25, 43, 0, 8, 25, 43, 0, 8, 25, 43, 0, 8, 25, 43, 0
        FOUR, FOUR, FOUR, FOUR};
#undef FOUR
    vi table = vi_table(values);
    UNROLL for (int k = 0; k < 8; k++)
        emit_minus(to, i, k, vi_lut64(crumbs(parts, k), table),
                   vi_has(vi_byte(signs, k / 2), k % 2 ? 0x80402010u : 0x08040201u));
}

enum { iq2_xxs_STEP = 2, iq2_xs_STEP = 2, iq2_s_STEP = 4 };
INLINE void iq2_xxs_columns(edge_rows16 row, int b, edge_sink *to) {
    vi x[4];
    vi_columns(row, (size_t)(b >> 3) * 66 + 2 + 8 * (size_t)(b & 7), x);
    UNROLL for (int i = 0; i < 2; i++) {
        vm m7 = vi_top_bits(x[2 * i]);
        vi parts[2] = {vi_lut256(x[2 * i], parts2_xxs[0], m7), vi_lut256(x[2 * i], parts2_xxs[1], m7)};
        grid2_columns(parts, vi_lut128(vi_windows(x[2 * i + 1], 0, 7, 14, 21), evened), i, to);
    }
}
INLINE void iq2_xs_columns(edge_rows16 row, int b, edge_sink *to) {
    vi x[4];
    vi_columns(row, (size_t)(b >> 3) * 74 + 2 + 8 * (size_t)(b & 7), x);
    UNROLL for (int i = 0; i < 2; i++) {
        vi first = x[2 * i], second = x[2 * i + 1], low = vi_windows2(first, second, 0, 16);
        vm m7 = vi_top_bits(low), m8 = vi_top_bits(vi_windows2(first, second, 1, 17));
        vi parts[2] = {vi_lut512(low, parts2_xs[0], m7, m8), vi_lut512(low, parts2_xs[1], m7, m8)};
        grid2_columns(parts, vi_lut128(vi_windows2(first, second, 9, 25), evened), i, to);
    }
}
INLINE void iq2_s_columns(edge_rows16 row, int b, edge_sink *to) {
    size_t at = (size_t)(b >> 3) * 82 + 2, part = (size_t)(b & 4);
    vi x[4], signs[4], high = vi_words(row, at + 64 + part);
    vi_columns(row, at + 4 * part, x);
    vi_columns(row, at + 32 + 4 * part, signs);
    UNROLL for (int i = 0; i < 4; i++) {
        int h = 8 * i - 7; /* so that the wanted bit is the highest */
        vm m7 = vi_top_bits(x[i]), m8 = vi_top_bits(vi_windows(high, h, h + 2, h + 4, h + 6));
        vm m9 = vi_top_bits(vi_windows(high, h + 1, h + 3, h + 5, h + 7));
        vi parts[2] = {vi_lut1024(x[i], parts2_s[0], m7, m8, m9), vi_lut1024(x[i], parts2_s[1], m7, m8, m9)};
        grid2_columns(parts, signs[i], i, to);
    }
}

/* Half a block of four entries: vector j has weight j of each of them. */
INLINE void grid3_columns(const vi parts[2], const uint8_t *values, vi signs, int i, int half, const int8_t *q,
                          edge_sink *to) {
    vi low = vi_table(values), high = vi_table(values + 64), w[4];
    vi pair = vi_byte_pair(signs, half);
    vm minus[4];
    UNROLL for (int j = 0; j < 4; j++) {
        w[j] = vi_lut64(parts[j / 2], j % 2 ? high : low);
        minus[j] = vi_has(pair, 0x10011001u << j);
    }
    if (!to->keep) {
        UNROLL for (int j = 0; j < 4; j++)
            to->sum[i][half] = vi_dot_minus(to->sum[i][half], w[j], q + 16 * half + 4 * j, minus[j]);
        return;
    }
    UNROLL for (int j = 0; j < 4; j++) w[j] = vi_negate(vi_or(w[j], vi_set1((int32_t)0x80808080u)), minus[j]);
    vi lower = vi_set1(0xFFFF), even = vi_set1(0x00FF00FF), odd = vi_set1((int32_t)0xFF00FF00u);
    UNROLL for (int pair = 0; pair < 2; pair++) { /* a transposition of bytes within words */
        vi a = pair ? vi_or(vi_shr(w[0], 16), vi_and(w[2], vi_set1((int32_t)0xFFFF0000u)))
                    : vi_or(vi_and(w[0], lower), vi_shl(w[2], 16));
        vi b = pair ? vi_or(vi_shr(w[1], 16), vi_and(w[3], vi_set1((int32_t)0xFFFF0000u)))
                    : vi_or(vi_and(w[1], lower), vi_shl(w[3], 16));
        uint8_t *tile = to->tile + 512 * i + 64 * (4 * half + 2 * pair);
        vi_to_tile(tile, vi_or(vi_and(a, even), vi_shl(vi_and(b, even), 8)));
        vi_to_tile(tile + 64, vi_or(vi_and(vi_shr(a, 8), even), vi_and(b, odd)));
    }
}

/* What the low three of six bits stand for, then what the others do. */
#define LOW8(a, b, c, d, e, f, g, h) a, b, c, d, e, f, g, h
#define SAME8(x) x, x, x, x, x, x, x, x
#define SIX_BITS(...)                                                                                          \
    {LOW8(__VA_ARGS__), LOW8(__VA_ARGS__), LOW8(__VA_ARGS__), LOW8(__VA_ARGS__), LOW8(__VA_ARGS__), LOW8(__VA_ARGS__), \
     LOW8(__VA_ARGS__), LOW8(__VA_ARGS__), EACH_SAME8(__VA_ARGS__)}
#define EACH_SAME8(a, b, c, d, e, f, g, h) SAME8(a), SAME8(b), SAME8(c), SAME8(d), SAME8(e), SAME8(f), SAME8(g), SAME8(h)
static const uint8_t values3_xxs[128] = SIX_BITS(4, 12, 20, 28, 36, 44, 52, 62);
static const uint8_t values3_s[128] = SIX_BITS(1, 3, 5, 7, 9, 11, 13, 15);

enum { iq3_xxs_STEP = 4, iq3_s_STEP = 4 };
INLINE void iq3_xxs_columns(edge_rows16 row, int b, edge_sink *to) {
    size_t at = (size_t)(b >> 3) * 98 + 2, part = (size_t)(b & 4);
    vi x[8], words[4];
    columns32(row, at + 8 * part, x);
    vi_columns(row, at + 64 + 4 * part, words);
    UNROLL for (int i = 0; i < 4; i++) {
        int8_t q[32];
        if (!to->keep) vb_store((uint8_t *)q, vb_transpose4(vb_load((const uint8_t *)to->x[i].q)));
        vi signs = vi_lut128(vi_windows(words[i], 0, 7, 14, 21), evened);
        UNROLL for (int half = 0; half < 2; half++) {
            vi index = x[2 * i + half];
            vm m7 = vi_top_bits(index);
            vi parts[2] = {vi_lut256(index, parts3_xxs[0], m7), vi_lut256(index, parts3_xxs[1], m7)};
            grid3_columns(parts, values3_xxs, signs, i, half, q, to);
        }
    }
}
INLINE void iq3_s_columns(edge_rows16 row, int b, edge_sink *to) {
    size_t at = (size_t)(b >> 3) * 110 + 2, part = (size_t)(b & 4);
    vi x[8], signs[4], high = vi_words(row, at + 64 + part);
    columns32(row, at + 8 * part, x);
    vi_columns(row, at + 72 + 4 * part, signs);
    UNROLL for (int i = 0; i < 4; i++) {
        int8_t q[32];
        if (!to->keep) vb_store((uint8_t *)q, vb_transpose4(vb_load((const uint8_t *)to->x[i].q)));
        UNROLL for (int half = 0; half < 2; half++) {
            int h = 8 * i + 4 * half - 7;
            vi index = x[2 * i + half];
            vm m7 = vi_top_bits(index), m8 = vi_top_bits(vi_windows(high, h, h + 1, h + 2, h + 3));
            vi parts[2] = {vi_lut512(index, parts3_s[0], m7, m8), vi_lut512(index, parts3_s[1], m7, m8)};
            grid3_columns(parts, values3_s, signs[i], i, half, q, to);
        }
    }
}

/* Block i of four entries whose low eight bits are `low`; those above begin at bit `first` and then every `stride`
 * bits of `high`; up[k / 2] is for columns k and k+1. */
INLINE void grid1_columns(vi low, vi high, int first, int stride, const vi up[4], int i, edge_sink *to) {
    static const uint8_t values[64] = {
#define FOUR 0, 8, 16, 0, 0, 8, 16, 0, 0, 8, 16, 0, 0, 8, 16, 0
        FOUR, FOUR, FOUR, FOUR};
#undef FOUR
    int h = first - 7;
    vm m7 = vi_top_bits(low), m8 = vi_top_bits(vi_windows(high, h, h + stride, h + 2 * stride, h + 3 * stride));
    h++;
    vm m9 = vi_top_bits(vi_windows(high, h, h + stride, h + 2 * stride, h + 3 * stride));
    h++;
    vm m10 = vi_top_bits(vi_windows(high, h, h + stride, h + 2 * stride, h + 3 * stride));
    vi parts[2] = {vi_lut2048(low, parts1[0], m7, m8, m9, m10), vi_lut2048(low, parts1[1], m7, m8, m9, m10)};
    vi table = vi_table(values);
    UNROLL for (int k = 0; k < 8; k++) emit(to, i, k, vi_or(vi_lut64(crumbs(parts, k), table), up[k / 2]));
}

/* Two in every byte where bit `at` is clear. */
INLINE vi two_unless(vi x, int at) {
    return vi_xor(masked(vi_windows(x, at - 1, at - 1, at - 1, at - 1), 2), vi_set1(0x02020202));
}

enum { iq1_s_STEP = 4, iq1_m_STEP = 4 };
INLINE void iq1_s_columns(edge_rows16 row, int b, edge_sink *to) {
    size_t at = (size_t)(b >> 3) * 50 + 2, part = (size_t)(b & 4);
    vi x[4], high[2] = {vi_words(row, at + 32 + 2 * part), vi_words(row, at + 36 + 2 * part)};
    vi_columns(row, at + 4 * part, x);
    UNROLL for (int i = 0; i < 4; i++) {
        int bit = 16 * (i % 2);
        vi up = two_unless(high[i / 2], bit + 15);
        grid1_columns(x[i], high[i / 2], bit, 3, (const vi[4]){up, up, up, up}, i, to);
    }
}
INLINE void iq1_m_columns(edge_rows16 row, int b, edge_sink *to) {
    size_t at = (size_t)(b >> 3) * 56, part = (size_t)(b & 4);
    vi x[4], high[4];
    vi_columns(row, at + 4 * part, x);
    vi_columns(row, at + 32 + 2 * part, high); /* the first two are wanted */
    UNROLL for (int i = 0; i < 4; i++) {
        vi h = high[i / 2], up[4];
        int bit = 16 * (i % 2);
        UNROLL for (int j = 0; j < 4; j++) up[j] = two_unless(h, bit + 4 * j + 3);
        grid1_columns(x[i], h, bit, 4, up, i, to);
    }
}

#endif
#endif
