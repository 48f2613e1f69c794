/* AVX-512 F, BW, DQ, VL and VNNI. */
#include "simd_x86.h"

typedef __m512 vf;
typedef __m512i vi;
typedef __m256i vp;
typedef __m512i vw;

/* Signed weight bytes are stored plus 128, because vpdpbusd wants one unsigned side. */
#define SIGNED_AS_UNSIGNED 1
/* Activation rows of one pass of the many-row kernels. */
#define TILE_ROWS 6
#define FLOAT_ROWS 6
/* Sums of attention that registers hold. */
#define ATTEND_SUMS 24

INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf vf_copysign(vf a, vf s) {
    return _mm512_or_ps(a, _mm512_and_ps(s, _mm512_set1_ps(-0.0f)));
}
INLINE vf vf_if_lt(vf a, vf b, vf yes, vf no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
/* Lanes first..last-1 keep x, the others become `other`. */
INLINE vf vf_keep(vf x, int first, int last, float other) {
    __mmask16 m = (__mmask16)((0xFFFFu << first) & (0xFFFFu >> (16 - last)));
    return _mm512_mask_blend_ps(m, _mm512_set1_ps(other), x);
}
INLINE vi vf_to_vi(vf a) { return _mm512_cvtps_epi32(a); }
INLINE vf vf_shift_exponent(vi n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
INLINE vf vf_from_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE void vf_to_f16(uint16_t *p, vf x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE vf vf_from_bf16(const uint16_t *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

INLINE float vf_sum(vf x) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
INLINE float vf_hmax(vf x) { return _mm512_reduce_max_ps(x); }

INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
INLINE vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
INLINE void vi_store(int32_t *p, vi x) { _mm512_storeu_si512((void *)p, x); }
INLINE vi vf_bits(vf x) { return _mm512_castps_si512(x); }
INLINE vf vf_of_bits(vi x) { return _mm512_castsi512_ps(x); }
INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
/* Zeros come in from above. */
INLINE vi vi_shr_by(vi a, int n) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n)); }
INLINE vf vi_to_vf(vi a) { return _mm512_cvtepi32_ps(a); }
INLINE vi vi_from_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
/* Saturating narrowing of 16 int32 to int8. */
INLINE void vi_store_i8(int8_t *p, vi a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(a)); }

/* acc[row] += four unsigned weight bytes of each of 16 rows times four activations. */
INLINE vi vi_dot_column(vi acc, vi w, const int8_t *act, int is_signed) {
    (void)is_signed;
    struct four { int8_t x[4]; };
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const struct four *)(const void *)act));
    return acc;
}
INLINE vi vi_from_tile(const uint8_t *p) { return _mm512_load_si512((const void *)p); }
INLINE void vi_to_tile(uint8_t *p, vi x) { _mm512_store_si512((void *)p, x); }
INLINE vi vi_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
INLINE vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
#define vi_shr(x, n) _mm512_srli_epi32((x), (n))
#define vi_shl(x, n) _mm512_slli_epi32((x), (n))
/* Each byte x becomes 3 x / 256, a digit to base 3; 3 x modulo 256. */
INLINE vi vi_digit3(vi x) {
    x = _mm512_subs_epu8(x, _mm512_set1_epi8(1));
    x = _mm512_avg_epu8(x, _mm512_avg_epu8(x, _mm512_setzero_si512()));
    return _mm512_and_si512(_mm512_srli_epi16(x, 6), _mm512_set1_epi8(3));
}
INLINE vi vi_triple(vi x) { return _mm512_add_epi8(x, _mm512_add_epi8(x, x)); }
/* Byte by byte, as vb_lut16. */
INLINE vi vi_lut16(vi x, const uint8_t *table) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table)), x);
}
INLINE __m512i join_(__m256i a, __m256i b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }
/* Four bytes `at` each of 16 rows. */
INLINE vi vi_words(const uint8_t *const *row, size_t at) {
    __m256i x = _mm256_inserti128_si256(_mm256_castsi128_si256(words4_(row, at)), words4_(row + 4, at), 1);
    __m256i y = _mm256_inserti128_si256(_mm256_castsi128_si256(words4_(row + 8, at)), words4_(row + 12, at), 1);
    return join_(x, y);
}
/* The lower halves of 16 words, as f16. */
INLINE vf vf_from_words(vi x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
INLINE __m256i rows2_(const uint8_t *a, const uint8_t *b) {
    __m256i x = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)a));
    return _mm256_inserti128_si256(x, _mm_loadu_si128((const __m128i *)(const void *)b), 1);
}
INLINE __m512i rows4_(const uint8_t *const *row, size_t at) {
    return join_(rows2_(row[0] + at, row[4] + at), rows2_(row[8] + at, row[12] + at));
}
/* Sixteen bytes `at` each of 16 rows: out[k] has bytes 4k..4k+3 of every row. */
INLINE void vi_columns(const uint8_t *const *row, size_t at, vi out[4]) {
    __m512i a = rows4_(row, at), b = rows4_(row + 1, at), c = rows4_(row + 2, at), d = rows4_(row + 3, at);
    __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(ab, cd);
    out[1] = _mm512_unpackhi_epi64(ab, cd);
    ab = _mm512_unpackhi_epi32(a, b), cd = _mm512_unpackhi_epi32(c, d);
    out[2] = _mm512_unpacklo_epi64(ab, cd);
    out[3] = _mm512_unpackhi_epi64(ab, cd);
}

INLINE void vi_store_i16(int16_t *p, vi a) { _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtsepi32_epi16(a)); }
INLINE vw vw_load(const int8_t *p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
INLINE vi vi_dot2(vi acc, vw x, const int16_t *w) {
    int32_t pair;
    memcpy(&pair, w, sizeof pair);
    return _mm512_dpwssd_epi32(acc, x, _mm512_set1_epi32(pair));
}

/* Bit i of a 32-bit word becomes `value` in byte i. */
INLINE vb vb_bits(const uint8_t *p, uint8_t value) {
    uint32_t m;
    memcpy(&m, p, sizeof m);
    return _mm256_maskz_set1_epi8(m, (char)value);
}
/* Byte i changes its sign where bit i of `minus` is set. */
INLINE vb vb_negate(vb x, uint32_t minus) { return _mm256_mask_sub_epi8(x, minus, _mm256_setzero_si256(), x); }

INLINE vp vb_dot(vb w, vb act, int is_signed) {
    if (is_signed) w = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, act);
}
/* As vb_dot with unsigned weights, negative where bits of `minus` are set. */
INLINE vp vb_dot_minus(vb w, vb act, uint32_t minus) {
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, vb_negate(act, minus));
}
#define ACROSS_(name, op)                                                               \
    INLINE vi name##4_(vi a, vi b, vi c, vi d) {                                        \
        vi x = op(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));            \
        vi y = op(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));            \
        return op(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));            \
    }                                                                                   \
    INLINE vi name##8_(vi a, vi b) {                                                    \
        return op(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));  \
    }                                                                                   \
    INLINE vi name##16(const vi x[16]) {                                                \
        vi a = name##8_(name##4_(x[0], x[1], x[2], x[3]), name##4_(x[4], x[5], x[6], x[7]));           \
        return name##8_(a, name##8_(name##4_(x[8], x[9], x[10], x[11]), name##4_(x[12], x[13], x[14], x[15]))); \
    }
/* Lane i: the sum, and the largest, of the lanes of vector i. */
ACROSS_(vi_sum, _mm512_add_epi32)
ACROSS_(vi_most, _mm512_max_epi32)
/* lo[row] and hi[row]: the sums of the two halves of each of 16 rows. */
INLINE void vp_reduce(const vp p[16], vi *lo, vi *hi) {
    __m512i u = vi_sum4_(join_(p[0], p[4]), join_(p[1], p[5]), join_(p[2], p[6]), join_(p[3], p[7]));
    __m512i v = vi_sum4_(join_(p[8], p[12]), join_(p[9], p[13]), join_(p[10], p[14]), join_(p[11], p[15]));
    *lo = _mm512_shuffle_i32x4(u, v, 0x88);
    *hi = _mm512_shuffle_i32x4(u, v, 0xDD);
}
