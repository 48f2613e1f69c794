/* What AVX2 and AVX-512 share: blocks of 32 bytes, and words of four rows. */
#ifndef EDGE_SIMD_X86_H
#define EDGE_SIMD_X86_H

#include <immintrin.h>

typedef __m256i vb;

INLINE float f32_from_f16(uint16_t h) { return _cvtsh_ss(h); }
INLINE __m128i words4_(const uint8_t *const *row, size_t at) {
    int32_t a, b, c, d;
    memcpy(&a, row[0] + at, 4);
    memcpy(&b, row[1] + at, 4);
    memcpy(&c, row[2] + at, 4);
    memcpy(&d, row[3] + at, 4);
    return _mm_insert_epi32(_mm_insert_epi32(_mm_insert_epi32(_mm_cvtsi32_si128(a), b, 1), c, 2), d, 3);
}
INLINE vb vb_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE void vb_store(uint8_t *p, vb x) { _mm256_storeu_si256((__m256i *)p, x); }
INLINE vb vb_set1(uint8_t x) { return _mm256_set1_epi8((char)x); }
INLINE vb vb_and(vb a, vb b) { return _mm256_and_si256(a, b); }
INLINE vb vb_or(vb a, vb b) { return _mm256_or_si256(a, b); }
INLINE vb vb_xor(vb a, vb b) { return _mm256_xor_si256(a, b); }
/* Shifts move bits within 16-bit units: mask what came over the byte border. */
#define vb_shr(x, n) _mm256_srli_epi16((x), (n))
#define vb_shl(x, n) _mm256_slli_epi16((x), (n))
INLINE vb vb_shr_by(vb x, int n) { return _mm256_srl_epi16(x, _mm_cvtsi32_si128(n)); }
/* 16 bytes of nibbles: the low ones first, then the high ones. */
INLINE vb vb_nibbles(const uint8_t *p) {
    __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    x = _mm256_srlv_epi64(x, _mm256_setr_epi64x(0, 0, 4, 4));
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}
/* Byte i becomes table[byte]: bytes are at most 15. */
INLINE vb vb_lut16(vb x, const uint8_t *table) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table)), x);
}
/* 32 numbers of two bits each, the lowest first. */
INLINE vb vb_crumbs(uint64_t codes) {
    __m256i x = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)codes));
    x = _mm256_or_si256(x, _mm256_slli_epi32(x, 6));
    x = _mm256_or_si256(x, _mm256_slli_epi32(x, 12));
    return _mm256_and_si256(x, _mm256_set1_epi8(3));
}
INLINE vb vb_of64(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return _mm256_set_epi64x((long long)d, (long long)c, (long long)b, (long long)a);
}
INLINE vb vb_of32(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f, uint32_t g, uint32_t h) {
    return _mm256_setr_epi32((int)a, (int)b, (int)c, (int)d, (int)e, (int)f, (int)g, (int)h);
}
/* Bytes 8..15 and 16..23 change places. */
INLINE vb vb_swap_middle(vb x) { return _mm256_permute4x64_epi64(x, 0xD8); }
/* byte * power modulo 256, times 3, divided by 256: a digit to base 3. */
INLINE vb vb_digit3(vb x, vb power) {
    __m256i byte = _mm256_set1_epi16(255), three = _mm256_set1_epi16(3);
    __m256i even = _mm256_and_si256(_mm256_mullo_epi16(x, power), byte);
    __m256i odd = _mm256_and_si256(_mm256_mullo_epi16(_mm256_srli_epi16(x, 8), _mm256_srli_epi16(power, 8)), byte);
    even = _mm256_srli_epi16(_mm256_mullo_epi16(even, three), 8);
    return _mm256_or_si256(even, _mm256_andnot_si256(byte, _mm256_mullo_epi16(odd, three)));
}

#endif
