/* Block types whose four-bit codes stand for one of sixteen values; see quants.h for what a type gives.
 *
 * The FP4 values are doubled to make them integers, and shifted by 12 to keep them unsigned; their scales are
 * halved instead.
 */
#ifndef EDGE_QUANTS_CODEBOOK_H
#define EDGE_QUANTS_CODEBOOK_H

#include "quants.h"

/* Where signed bytes are stored plus 128, these come out of the table that way. */
enum { IQ4_OFF = SIGNED_AS_UNSIGNED ? 128 : 0 };
#define IQ4(x) (uint8_t)((x) + IQ4_OFF)
static const uint8_t iq4_values[16] = {
    IQ4(-127), IQ4(-104), IQ4(-83), IQ4(-65), IQ4(-49), IQ4(-35), IQ4(-22), IQ4(-10),
    IQ4(1),    IQ4(13),   IQ4(25),  IQ4(38),  IQ4(53),  IQ4(69),  IQ4(89),  IQ4(113)};
static const uint8_t fp4_values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

enum { iq4_nl_SUB = 1, iq4_nl_MIN = 0, iq4_nl_OFF = IQ4_OFF, iq4_nl_SIGNED = !IQ4_OFF };
INLINE vb iq4_nl_load(const uint8_t *row, int b) {
    return vb_lut16(vb_nibbles(row + (size_t)b * 18 + 2), iq4_values);
}
INLINE void iq4_nl_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    block_scales(row, (size_t)b * 18, 18, n, ws);
}

enum { iq4_xs_SUB = 1, iq4_xs_MIN = 0, iq4_xs_OFF = IQ4_OFF, iq4_xs_SIGNED = !IQ4_OFF };
INLINE vb iq4_xs_load(const uint8_t *row, int b) {
    return vb_lut16(vb_nibbles(row + (size_t)(b >> 3) * 136 + 8 + 16 * (b & 7)), iq4_values);
}
INLINE void iq4_xs_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    size_t at = (size_t)(b >> 3) * 136;
    vi head = vi_words(row, at), low = vi_words(row, at + 4); /* f16, the high two bits of eight scales; their low four */
    vf d = low_half(head);
    for (int i = 0; i < n; i++) {
        vi x = bits_at(vi_shr_by(low, 4 * i), 0, 15), y = bits_at(vi_shr_by(head, 2 * i), 12, 48);
        vf_store(ws + i * LANES, vf_mul(d, vi_to_vf(vi_add(vi_or(x, y), vi_set1(-32)))));
    }
}

/* E8M0: 2^(e - 127), here halved, down to a subnormal; the largest is a number too. */
INLINE vf e8m0_halved(vi e) {
    vf x = vf_mul(vf_shift_exponent(vi_add(e, vi_set1(-127))), vf_set1(0.5f));
    return vf_max(vf_set1(0x1p-128f), vf_min(vf_set1(0x1p127f), x));
}

enum { mxfp4_SUB = 1, mxfp4_MIN = 0, mxfp4_OFF = 12, mxfp4_SIGNED = 0 };
INLINE vb mxfp4_load(const uint8_t *row, int b) {
    return vb_lut16(vb_nibbles(row + (size_t)b * 17 + 1), fp4_values);
}
INLINE void mxfp4_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    for (int i = 0; i < n; i++)
        vf_store(ws + i * LANES, e8m0_halved(bits_at(vi_words(row, (size_t)(b + i) * 17), 0, 255)));
}

/* E4M3 without a sign, here halved; 0x7F is zero, and the top bit means nothing but that 0xFF is not. */
INLINE vf e4m3_halved(vi e) {
    vi number = vi_shr(vi_add(vi_xor(e, vi_set1(127)), vi_set1(255)), 8); /* one, for 0x7F zero */
    vi bits = vi_shl(vi_mul(vi_and(e, vi_set1(127)), number), 20);
    return vf_mul(vf_of_bits(bits), vf_set1(0x1p119f));
}

/* Blocks of 64: four E4M3 scales, then eight bytes for each 16 weights. */
enum { nvfp4_SUB = 2, nvfp4_MIN = 0, nvfp4_OFF = 12, nvfp4_SIGNED = 0 };
INLINE vb nvfp4_load(const uint8_t *row, int b) {
    const uint8_t *p = row + (size_t)(b >> 1) * 36 + 4 + 16 * (b & 1);
    return vb_lut16(vb_swap_middle(vb_nibbles(p)), fp4_values);
}
INLINE void nvfp4_scales(edge_rows16 row, int b, int n, float *ws, float *wm) {
    (void)wm;
    for (int i = 0; i < n; i += 2) {
        vi x = vi_words(row, (size_t)((b + i) >> 1) * 36);
        for (int k = 0; k < 4; k++)
            vf_store(ws + (2 * i + k) * LANES, e4m3_halved(bits_at(vi_shr_by(x, 8 * k), 0, 255)));
    }
}

#endif
