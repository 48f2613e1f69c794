/* AVX-512's VBMI: bytes looked up in large tables, and taken from any bit on. */
#include "simd_avx512.h"

/* A bit for each byte. */
typedef __mmask64 vm;

INLINE vi vi_table(const uint8_t *p) { return _mm512_loadu_si512((const void *)p); }
/* Byte j of each word becomes the eight bits from bit `oj` on; those beyond the word are of no use. */
INLINE __m512i windows_(int o0, int o1, int o2, int o3) {
    uint32_t low = (uint32_t)(o0 & 63) | (uint32_t)(o1 & 63) << 8 | (uint32_t)(o2 & 63) << 16 | (uint32_t)(o3 & 63) << 24;
    uint64_t high = (low + 0x20202020u) & 0x3F3F3F3Fu;
    return _mm512_set1_epi64((long long)(low | high << 32));
}
INLINE vi vi_windows(vi x, int o0, int o1, int o2, int o3) {
    return _mm512_multishift_epi64_epi8(windows_(o0, o1, o2, o3), x);
}
/* Two windows of x, then two of y. */
INLINE vi vi_windows2(vi x, vi y, int o0, int o1) {
    __m512i at = windows_(o0, o1, o0, o1);
    return _mm512_mask_multishift_epi64_epi8(_mm512_multishift_epi64_epi8(at, x), 0xCCCCCCCCCCCCCCCCull, at, y);
}
/* Byte i of each word, four times. */
INLINE vi vi_byte(vi x, int i) {
    __m128i at = _mm_add_epi8(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12), _mm_set1_epi8((char)i));
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(at));
}
/* Bytes 2i, 2i, 2i+1, 2i+1 of each word. */
INLINE vi vi_byte_pair(vi x, int i) {
    __m128i at = _mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13);
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_add_epi8(at, _mm_set1_epi8((char)(2 * i)))));
}
INLINE vm vi_top_bits(vi x) { return _mm512_movepi8_mask(x); }
INLINE vm vi_has(vi x, uint32_t bits) { return _mm512_test_epi8_mask(x, _mm512_set1_epi32((int)bits)); }
INLINE vi vi_negate(vi x, vm minus) { return _mm512_mask_sub_epi8(x, minus, _mm512_setzero_si512(), x); }

/* Table entries by the low six and seven bits of bytes, by eight of them, and by eight with more in masks. */
INLINE vi vi_lut64(vi i, vi table) { return _mm512_permutexvar_epi8(i, table); }
INLINE vi vi_lut128(vi i, const uint8_t *t) { return _mm512_permutex2var_epi8(vi_table(t), i, vi_table(t + 64)); }
INLINE vi vi_lut256(vi i, const uint8_t *t, vm m7) {
    return _mm512_mask_blend_epi8(m7, vi_lut128(i, t), vi_lut128(i, t + 128));
}
INLINE vi vi_lut512(vi i, const uint8_t *t, vm m7, vm m8) {
    return _mm512_mask_blend_epi8(m8, vi_lut256(i, t, m7), vi_lut256(i, t + 256, m7));
}
INLINE vi vi_lut1024(vi i, const uint8_t *t, vm m7, vm m8, vm m9) {
    return _mm512_mask_blend_epi8(m9, vi_lut512(i, t, m7, m8), vi_lut512(i, t + 512, m7, m8));
}
INLINE vi vi_lut2048(vi i, const uint8_t *t, vm m7, vm m8, vm m9, vm m10) {
    return _mm512_mask_blend_epi8(m10, vi_lut1024(i, t, m7, m8, m9), vi_lut1024(i, t + 1024, m7, m8, m9));
}

/* As vi_dot_column with unsigned weights, negative where `minus` is set. */
INLINE vi vi_dot_minus(vi acc, vi w, const int8_t *act, vm minus) {
    int32_t a;
    memcpy(&a, act, sizeof a);
    return _mm512_dpbusd_epi32(acc, w, vi_negate(_mm512_set1_epi32(a), minus));
}
/* Bytes 4i+j and 4j+i of each 16 change places. */
INLINE vb vb_transpose4(vb x) {
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11,
                                                                            15)));
}
