/* The weights of 16 rows four bytes at a time, for types whose packing never crosses a byte.
 *
 * A type TYPE with TYPE_STEP above 0 gives STEP blocks from block b on:
 *   TYPE_columns(row, b, to)            emit(to, i, k, v): v has bytes 4k..4k+3 of block b+i of every row
 * They are those of TYPE_load.  TYPE_STEP 0: the type has nothing but TYPE_load.
 */
#ifndef EDGE_QUANTS_COLUMNS_H
#define EDGE_QUANTS_COLUMNS_H

#include "kernels.h"
#include "quants.h"
#include "quants_codebook.h"

/* Where columns go: into the products of one row of activations, or, if there is a tile, into that. */
typedef struct {
    vi sum[8][2];            /* of each block's halves */
    const edge_act_block *x; /* the activations of block b */
    int keep;        /* there is a tile */
    uint8_t *tile;   /* where block b begins */
    int flip;        /* bytes are signed, and stored as unsigned ones */
    int is_signed;
} edge_sink;

INLINE void emit(edge_sink *to, int i, int k, vi v) {
    if (to->flip) v = vi_xor(v, vi_set1((int32_t)0x80808080u));
    if (to->keep) vi_to_tile(to->tile + 512 * i + 64 * k, v);
    else to->sum[i][k / 4] = vi_dot_column(to->sum[i][k / 4], v, to->x[i].q + 4 * k, to->is_signed);
}

INLINE vi masked(vi x, uint8_t mask) { return vi_and(x, vi_set1((int32_t)(0x01010101u * mask))); }

/* Sixteen bytes of nibbles: a block's first half is the low ones. */
INLINE void nibble_columns(edge_rows16 row, size_t at, const uint8_t *table, edge_sink *to) {
    vi x[4];
    vi_columns(row, at, x);
    UNROLL for (int k = 0; k < 4; k++) {
        vi low = masked(x[k], 15), high = masked(vi_shr(x[k], 4), 15);
        emit(to, 0, k, table ? vi_lut16(low, table) : low);
        emit(to, 0, 4 + k, table ? vi_lut16(high, table) : high);
    }
}

enum { q4_0_STEP = 1, q4_1_STEP = 1, iq4_nl_STEP = 1, iq4_xs_STEP = 1, mxfp4_STEP = 1 };
INLINE void q4_0_columns(edge_rows16 row, int b, edge_sink *to) { nibble_columns(row, (size_t)b * 18 + 2, NULL, to); }
INLINE void q4_1_columns(edge_rows16 row, int b, edge_sink *to) { nibble_columns(row, (size_t)b * 20 + 4, NULL, to); }
INLINE void iq4_nl_columns(edge_rows16 row, int b, edge_sink *to) {
    nibble_columns(row, (size_t)b * 18 + 2, iq4_values, to);
}
INLINE void iq4_xs_columns(edge_rows16 row, int b, edge_sink *to) {
    nibble_columns(row, (size_t)(b >> 3) * 136 + 8 + 16 * (size_t)(b & 7), iq4_values, to);
}
INLINE void mxfp4_columns(edge_rows16 row, int b, edge_sink *to) {
    nibble_columns(row, (size_t)b * 17 + 1, fp4_values, to);
}

/* Nibbles with a fifth bit each in a word of their own; bit 4k+j goes to byte j of column k. */
INLINE void fifth_columns(edge_rows16 row, size_t at, edge_sink *to) {
    vi bits = vi_words(row, at), x[4];
    vi_columns(row, at + 4, x);
    UNROLL for (int k = 0; k < 4; k++) {
        vi first = bits_at(bits, 4 * k, 15), second = bits_at(bits, 16 + 4 * k, 15);
        first = masked(vi_mul(first, vi_set1(0x02040810)), 16); /* bit j to bit 8j+4 */
        second = masked(vi_mul(second, vi_set1(0x02040810)), 16);
        emit(to, 0, k, vi_or(masked(x[k], 15), first));
        emit(to, 0, 4 + k, vi_or(masked(vi_shr(x[k], 4), 15), second));
    }
}

enum { q5_0_STEP = 1, q5_1_STEP = 1 };
INLINE void q5_0_columns(edge_rows16 row, int b, edge_sink *to) { fifth_columns(row, (size_t)b * 22 + 2, to); }
INLINE void q5_1_columns(edge_rows16 row, int b, edge_sink *to) { fifth_columns(row, (size_t)b * 24 + 4, to); }

INLINE void columns32(edge_rows16 row, size_t at, vi x[8]) {
    vi_columns(row, at, x);
    vi_columns(row, at + 16, x + 4);
}

enum { q8_0_STEP = 1 };
INLINE void q8_0_columns(edge_rows16 row, int b, edge_sink *to) {
    vi x[8];
    columns32(row, (size_t)b * 34 + 2, x);
    UNROLL for (int k = 0; k < 8; k++) emit(to, 0, k, x[k]);
}

/* Thirty-two bytes, of two bits of each of four blocks. */
INLINE void crumb_columns(edge_rows16 row, size_t at, edge_sink *to) {
    vi x[8];
    columns32(row, at, x);
    UNROLL for (int k = 0; k < 8; k++)
        UNROLL for (int i = 0; i < 4; i++) emit(to, i, k, masked(vi_shr(x[k], 2 * i), 3));
}

enum { q2_k_STEP = 4, q3_k_STEP = 4, tq2_0_STEP = 4 };
INLINE void q2_k_columns(edge_rows16 row, int b, edge_sink *to) {
    crumb_columns(row, (size_t)(b >> 3) * 84 + 16 + 8 * (size_t)(b & 4), to);
}
INLINE void tq2_0_columns(edge_rows16 row, int b, edge_sink *to) {
    crumb_columns(row, (size_t)(b >> 3) * 66 + 8 * (size_t)(b & 4), to);
}
INLINE void q3_k_columns(edge_rows16 row, int b, edge_sink *to) {
    size_t at = (size_t)(b >> 3) * 110;
    vi x[8], high[8];
    columns32(row, at + 32 + 8 * (size_t)(b & 4), x);
    columns32(row, at, high);
    UNROLL for (int k = 0; k < 8; k++) {
        vi bits = vi_shl(vi_shr_by(high[k], b & 4), 2);
        UNROLL for (int i = 0; i < 4; i++)
            emit(to, i, k, vi_or(masked(vi_shr(x[k], 2 * i), 3), masked(vi_shr(bits, i), 4)));
    }
}

enum { q4_k_STEP = 2, q5_k_STEP = 2 };
INLINE void q4_k_columns(edge_rows16 row, int b, edge_sink *to) {
    vi x[8];
    columns32(row, (size_t)(b >> 3) * 144 + 16 + 16 * (size_t)(b & 6), x);
    UNROLL for (int k = 0; k < 8; k++) {
        emit(to, 0, k, masked(x[k], 15));
        emit(to, 1, k, masked(vi_shr(x[k], 4), 15));
    }
}
INLINE void q5_k_columns(edge_rows16 row, int b, edge_sink *to) {
    size_t at = (size_t)(b >> 3) * 176;
    vi x[8], high[8];
    columns32(row, at + 48 + 16 * (size_t)(b & 6), x);
    columns32(row, at + 16, high);
    UNROLL for (int k = 0; k < 8; k++) {
        vi bits = vi_shl(vi_shr_by(high[k], b & 6), 4);
        emit(to, 0, k, vi_or(masked(x[k], 15), masked(bits, 16)));
        emit(to, 1, k, vi_or(masked(vi_shr(x[k], 4), 15), masked(vi_shr(bits, 1), 16)));
    }
}

enum { q6_k_STEP = 4 };
INLINE void q6_k_columns(edge_rows16 row, int b, edge_sink *to) {
    size_t at = (size_t)(b >> 3) * 210, half = (size_t)(b & 4);
    UNROLL for (int j = 0; j < 2; j++) {
        vi x[4], y[4], h[4];
        vi_columns(row, at + 16 * half + 16 * (size_t)j, x);
        vi_columns(row, at + 16 * half + 32 + 16 * (size_t)j, y);
        vi_columns(row, at + 128 + 8 * half + 16 * (size_t)j, h);
        UNROLL for (int k = 0; k < 4; k++) {
            emit(to, 0, 4 * j + k, vi_or(masked(x[k], 15), masked(vi_shl(h[k], 4), 48)));
            emit(to, 1, 4 * j + k, vi_or(masked(y[k], 15), masked(vi_shl(h[k], 2), 48)));
            emit(to, 2, 4 * j + k, vi_or(masked(vi_shr(x[k], 4), 15), masked(h[k], 48)));
            emit(to, 3, 4 * j + k, vi_or(masked(vi_shr(y[k], 4), 15), masked(vi_shr(h[k], 2), 48)));
        }
    }
}

/* The digits to base 3 that bytes hold, see tq1_0_load: each byte of x gives one, and keeps the others. */
INLINE vi next_digit(vi *x) {
    vi digit = vi_digit3(*x);
    *x = vi_triple(*x);
    return digit;
}

enum { tq1_0_STEP = 8 };
INLINE void tq1_0_columns(edge_rows16 row, int b, edge_sink *to) {
    size_t at = (size_t)(b >> 3) * 54;
    vi x[8], last = vi_words(row, at + 48);
    columns32(row, at, x);
    UNROLL for (int part = 0; part < 5; part++)
        UNROLL for (int k = 0; k < 8; k++) emit(to, part, k, next_digit(&x[k]));
    vi_columns(row, at + 32, x);
    UNROLL for (int half = 0; half < 5; half++)
        UNROLL for (int k = 0; k < 4; k++) emit(to, 5 + half / 2, 4 * (half % 2) + k, next_digit(&x[k]));
    UNROLL for (int k = 4; k < 8; k++) emit(to, 7, k, next_digit(&last));
}

/* Of each sixteen weights, eight bytes: the first half is the low nibbles. */
enum { nvfp4_STEP = 2 };
INLINE void nvfp4_columns(edge_rows16 row, int b, edge_sink *to) {
    vi x[8];
    columns32(row, (size_t)(b >> 1) * 36 + 4, x);
    UNROLL for (int k = 0; k < 8; k++) {
        int at = 4 * (k / 2) + k % 2;
        emit(to, at / 8, at % 8, vi_lut16(masked(x[k], 15), fp4_values));
        emit(to, at / 8, at % 8 + 2, vi_lut16(masked(vi_shr(x[k], 4), 15), fp4_values));
    }
}

#define NO_COLUMNS(type)    \
    enum { type##_STEP = 0 }; \
    INLINE void type##_columns(edge_rows16 row, int b, edge_sink *to) { (void)row, (void)b, (void)to; }
NO_COLUMNS(q1_0)
NO_COLUMNS(q2_0)

#endif
