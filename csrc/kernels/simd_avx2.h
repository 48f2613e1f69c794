/* AVX2, FMA and F16C: a virtual vector is two registers. */
#include "simd_x86.h"

typedef struct { __m256 a, b; } vf;
typedef struct { __m256i a, b; } vi;
typedef __m256i vp;
typedef struct { __m256i a, b; } vw;

#define SIGNED_AS_UNSIGNED 0
#define TILE_ROWS 4
#define FLOAT_ROWS 2
/* Sums of attention that registers hold. */
#define ATTEND_SUMS 6

#define VF2(op, x, y) ((vf){op((x).a, (y).a), op((x).b, (y).b)})
INLINE vf vf_zero(void) { return (vf){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INLINE vf vf_set1(float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE vf vf_load(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void vf_store(float *p, vf x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
INLINE vf vf_add(vf x, vf y) { return VF2(_mm256_add_ps, x, y); }
INLINE vf vf_sub(vf x, vf y) { return VF2(_mm256_sub_ps, x, y); }
INLINE vf vf_mul(vf x, vf y) { return VF2(_mm256_mul_ps, x, y); }
INLINE vf vf_div(vf x, vf y) { return VF2(_mm256_div_ps, x, y); }
INLINE vf vf_fma(vf x, vf y, vf z) { return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
INLINE vf vf_max(vf x, vf y) { return VF2(_mm256_max_ps, x, y); }
INLINE vf vf_min(vf x, vf y) { return VF2(_mm256_min_ps, x, y); }
INLINE vf vf_abs(vf x) {
    __m256 m = _mm256_set1_ps(-0.0f);
    return (vf){_mm256_andnot_ps(m, x.a), _mm256_andnot_ps(m, x.b)};
}
#define ROUND_ (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
INLINE vf vf_round(vf x) { return (vf){_mm256_round_ps(x.a, ROUND_), _mm256_round_ps(x.b, ROUND_)}; }
INLINE vf vf_copysign(vf x, vf s) {
    __m256 m = _mm256_set1_ps(-0.0f);
    return (vf){_mm256_or_ps(x.a, _mm256_and_ps(m, s.a)), _mm256_or_ps(x.b, _mm256_and_ps(m, s.b))};
}
INLINE vf vf_if_lt(vf x, vf y, vf yes, vf no) {
    return (vf){_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
                _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
INLINE vf vf_keep(vf x, int first, int last, float other) {
    __m256i ia = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), ib = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
    __m256i f = _mm256_set1_epi32(first), l = _mm256_set1_epi32(last);
    __m256i ma = _mm256_andnot_si256(_mm256_cmpgt_epi32(f, ia), _mm256_cmpgt_epi32(l, ia));
    __m256i mb = _mm256_andnot_si256(_mm256_cmpgt_epi32(f, ib), _mm256_cmpgt_epi32(l, ib));
    __m256 o = _mm256_set1_ps(other);
    return (vf){_mm256_blendv_ps(o, x.a, _mm256_castsi256_ps(ma)), _mm256_blendv_ps(o, x.b, _mm256_castsi256_ps(mb))};
}
INLINE vi vf_to_vi(vf x) { return (vi){_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
INLINE __m256 exponent_(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
INLINE vf vf_shift_exponent(vi n) { return (vf){exponent_(n.a), exponent_(n.b)}; }
INLINE vf vf_from_f16(const uint16_t *p) {
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
INLINE void vf_to_f16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, ROUND_));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, ROUND_));
}
INLINE __m256 bf16_(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
INLINE vf vf_from_bf16(const uint16_t *p) { return (vf){bf16_(p), bf16_(p + 8)}; }

INLINE float vf_sum(vf x) {
    __m256 a = _mm256_add_ps(x.a, x.b);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
INLINE float vf_hmax(vf x) {
    __m256 a = _mm256_max_ps(x.a, x.b);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

INLINE vi vi_zero(void) { return (vi){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
INLINE vi vi_set1(int32_t x) { return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
INLINE void vi_store(int32_t *p, vi x) {
    _mm256_storeu_si256((__m256i *)(void *)p, x.a);
    _mm256_storeu_si256((__m256i *)(void *)(p + 8), x.b);
}
INLINE vi vf_bits(vf x) { return (vi){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
INLINE vf vf_of_bits(vi x) { return (vf){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
#define ACROSS_(name, op)                                                                                       \
    INLINE __m256i name##2_(__m256i a, __m256i b) {                                                             \
        return op(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));                                    \
    }                                                                                                           \
    INLINE __m256i name##4_(const vi *x) {                                                                      \
        __m256i a = name##2_(op(x[0].a, x[0].b), op(x[1].a, x[1].b));                                           \
        __m256i b = name##2_(op(x[2].a, x[2].b), op(x[3].a, x[3].b));                                           \
        return op(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));                                    \
    }                                                                                                           \
    INLINE __m256i name##8_(const vi *x) {                                                                      \
        __m256i a = name##4_(x), b = name##4_(x + 4);                                                           \
        return op(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));                \
    }                                                                                                           \
    INLINE vi name##16(const vi x[16]) { return (vi){name##8_(x), name##8_(x + 8)}; }
/* Lane i: the sum, and the largest, of the lanes of vector i. */
ACROSS_(vi_sum, _mm256_add_epi32)
ACROSS_(vi_most, _mm256_max_epi32)
INLINE vi vi_add(vi x, vi y) { return (vi){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
INLINE vi vi_and(vi x, vi y) { return (vi){_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
INLINE vi vi_or(vi x, vi y) { return (vi){_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
INLINE vi vi_shr_by(vi x, int n) {
    __m128i c = _mm_cvtsi32_si128(n);
    return (vi){_mm256_srl_epi32(x.a, c), _mm256_srl_epi32(x.b, c)};
}
INLINE vf vi_to_vf(vi x) { return (vf){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
INLINE vi vi_from_u8(const uint8_t *p) {
    return (vi){_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}
INLINE void vi_store_i8(int8_t *p, vi x) {
    __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}

/* Pairs of products fit in int16: unsigned weights are at most 63, signed ones go as |w| * (a with w's sign). */
INLINE __m256i dot4_(__m256i w, __m256i a, int is_signed) {
    __m256i pairs = is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w))
                              : _mm256_maddubs_epi16(w, a);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
INLINE vi vi_dot_column(vi acc, vi w, const int8_t *act, int is_signed) {
    int32_t x;
    memcpy(&x, act, sizeof x);
    __m256i a = _mm256_set1_epi32(x);
    acc.a = _mm256_add_epi32(acc.a, dot4_(w.a, a, is_signed));
    acc.b = _mm256_add_epi32(acc.b, dot4_(w.b, a, is_signed));
    return acc;
}
INLINE vi vi_from_tile(const uint8_t *p) {
    return (vi){_mm256_load_si256((const __m256i *)(const void *)p),
                _mm256_load_si256((const __m256i *)(const void *)(p + 32))};
}
INLINE void vi_to_tile(uint8_t *p, vi x) {
    _mm256_store_si256((__m256i *)(void *)p, x.a);
    _mm256_store_si256((__m256i *)(void *)(p + 32), x.b);
}
INLINE vi vi_mul(vi x, vi y) { return (vi){_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)}; }
INLINE vi vi_xor(vi x, vi y) { return (vi){_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
#define vi_shr(x, n) ((vi){_mm256_srli_epi32((x).a, (n)), _mm256_srli_epi32((x).b, (n))})
#define vi_shl(x, n) ((vi){_mm256_slli_epi32((x).a, (n)), _mm256_slli_epi32((x).b, (n))})
INLINE __m256i digit3_(__m256i x) {
    x = _mm256_subs_epu8(x, _mm256_set1_epi8(1));
    x = _mm256_avg_epu8(x, _mm256_avg_epu8(x, _mm256_setzero_si256()));
    return _mm256_and_si256(_mm256_srli_epi16(x, 6), _mm256_set1_epi8(3));
}
/* Each byte x becomes 3 x / 256, a digit to base 3; 3 x modulo 256. */
INLINE vi vi_digit3(vi x) { return (vi){digit3_(x.a), digit3_(x.b)}; }
INLINE __m256i triple_(__m256i x) { return _mm256_add_epi8(x, _mm256_add_epi8(x, x)); }
INLINE vi vi_triple(vi x) { return (vi){triple_(x.a), triple_(x.b)}; }
INLINE vi vi_lut16(vi x, const uint8_t *table) {
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
    return (vi){_mm256_shuffle_epi8(t, x.a), _mm256_shuffle_epi8(t, x.b)};
}
INLINE vi vi_words(const uint8_t *const *row, size_t at) {
    return (vi){_mm256_inserti128_si256(_mm256_castsi128_si256(words4_(row, at)), words4_(row + 4, at), 1),
                _mm256_inserti128_si256(_mm256_castsi128_si256(words4_(row + 8, at)), words4_(row + 12, at), 1)};
}
INLINE vf vf_from_words(vi x) {
    __m256i low = _mm256_set1_epi32(0xFFFF);
    __m256i h = _mm256_packus_epi32(_mm256_and_si256(x.a, low), _mm256_and_si256(x.b, low));
    h = _mm256_permute4x64_epi64(h, 0xD8);
    return (vf){_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
}
INLINE __m256i rows2_(const uint8_t *const *row, size_t at) {
    __m256i x = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(row[0] + at)));
    return _mm256_inserti128_si256(x, _mm_loadu_si128((const __m128i *)(const void *)(row[4] + at)), 1);
}
INLINE void columns8_(const uint8_t *const *row, size_t at, __m256i out[4]) {
    __m256i a = rows2_(row, at), b = rows2_(row + 1, at), c = rows2_(row + 2, at), d = rows2_(row + 3, at);
    __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(ab, cd);
    out[1] = _mm256_unpackhi_epi64(ab, cd);
    ab = _mm256_unpackhi_epi32(a, b), cd = _mm256_unpackhi_epi32(c, d);
    out[2] = _mm256_unpacklo_epi64(ab, cd);
    out[3] = _mm256_unpackhi_epi64(ab, cd);
}
INLINE void vi_columns(const uint8_t *const *row, size_t at, vi out[4]) {
    __m256i a[4], b[4];
    columns8_(row, at, a);
    columns8_(row + 8, at, b);
    for (int k = 0; k < 4; k++) out[k] = (vi){a[k], b[k]};
}

INLINE void vi_store_i16(int16_t *p, vi x) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8));
}
INLINE vw vw_load(const int8_t *p) {
    return (vw){_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p)),
                _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(p + 16)))};
}
INLINE vi vi_dot2(vi acc, vw x, const int16_t *w) {
    int32_t pair;
    memcpy(&pair, w, sizeof pair);
    __m256i a = _mm256_set1_epi32(pair);
    acc.a = _mm256_add_epi32(acc.a, _mm256_madd_epi16(x.a, a));
    acc.b = _mm256_add_epi32(acc.b, _mm256_madd_epi16(x.b, a));
    return acc;
}

INLINE vb vb_bits(const uint8_t *p, uint8_t value) {
    int32_t m;
    memcpy(&m, p, sizeof m);
    const __m256i which = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3,
                                           3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i x = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(m), which), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(x, bit), _mm256_set1_epi8((char)value));
}
INLINE vb vb_negate(vb x, uint32_t minus) {
    uint8_t bits[4];
    memcpy(bits, &minus, sizeof bits);
    __m256i m = vb_bits(bits, 0xFF);
    return _mm256_sub_epi8(_mm256_xor_si256(x, m), m);
}

INLINE vp vb_dot(vb w, vb act, int is_signed) { return dot4_(w, act, is_signed); }
/* As vb_dot with unsigned weights, negative where bits of `minus` are set. */
INLINE vp vb_dot_minus(vb w, vb act, uint32_t minus) { return dot4_(w, vb_negate(act, minus), 0); }
INLINE __m256i sum_rows4_(const vp *p) {
    __m256i x = _mm256_hadd_epi32(p[0], p[1]), y = _mm256_hadd_epi32(p[2], p[3]);
    return _mm256_hadd_epi32(x, y);
}
INLINE void vp_reduce(const vp p[16], vi *lo, vi *hi) {
    __m256i s = sum_rows4_(p), t = sum_rows4_(p + 4), u = sum_rows4_(p + 8), v = sum_rows4_(p + 12);
    lo->a = _mm256_permute2x128_si256(s, t, 0x20);
    hi->a = _mm256_permute2x128_si256(s, t, 0x31);
    lo->b = _mm256_permute2x128_si256(u, v, 0x20);
    hi->b = _mm256_permute2x128_si256(u, v, 0x31);
}
