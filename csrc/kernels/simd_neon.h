/* AArch64 NEON with the dot-product instructions: a virtual vector is four registers. */
#include <arm_neon.h>

typedef struct { float32x4_t v[4]; } vf;
typedef struct { int32x4_t v[4]; } vi;
typedef struct { uint8x16_t a, b; } vb;
typedef struct { int32x4_t a, b; } vp;
typedef struct { int16x8_t v[4]; } vw;

#define SIGNED_AS_UNSIGNED 0
#define TILE_ROWS 4
#define FLOAT_ROWS 2
/* Sums of attention that registers hold. */
#define ATTEND_SUMS 6

#define EACH4 for (int i = 0; i < 4; i++)
#define VF4(expr) do { vf r; EACH4 r.v[i] = (expr); return r; } while (0)
INLINE vf vf_zero(void) { VF4(vdupq_n_f32(0.0f)); }
INLINE vf vf_set1(float x) { VF4(vdupq_n_f32(x)); }
INLINE vf vf_load(const float *p) { VF4(vld1q_f32(p + 4 * i)); }
INLINE void vf_store(float *p, vf x) { EACH4 vst1q_f32(p + 4 * i, x.v[i]); }
INLINE vf vf_add(vf x, vf y) { VF4(vaddq_f32(x.v[i], y.v[i])); }
INLINE vf vf_sub(vf x, vf y) { VF4(vsubq_f32(x.v[i], y.v[i])); }
INLINE vf vf_mul(vf x, vf y) { VF4(vmulq_f32(x.v[i], y.v[i])); }
INLINE vf vf_div(vf x, vf y) { VF4(vdivq_f32(x.v[i], y.v[i])); }
INLINE vf vf_fma(vf x, vf y, vf z) { VF4(vfmaq_f32(z.v[i], x.v[i], y.v[i])); }
/* Compare and select: the second operand where one is NaN, as x86 has it. */
INLINE vf vf_max(vf x, vf y) { VF4(vbslq_f32(vcgtq_f32(x.v[i], y.v[i]), x.v[i], y.v[i])); }
INLINE vf vf_min(vf x, vf y) { VF4(vbslq_f32(vcltq_f32(x.v[i], y.v[i]), x.v[i], y.v[i])); }
INLINE vf vf_abs(vf x) { VF4(vabsq_f32(x.v[i])); }
INLINE vf vf_round(vf x) { VF4(vrndnq_f32(x.v[i])); }
INLINE vf vf_copysign(vf x, vf s) { VF4(vbslq_f32(vdupq_n_u32(0x80000000u), s.v[i], x.v[i])); }
INLINE vf vf_if_lt(vf x, vf y, vf yes, vf no) { VF4(vbslq_f32(vcltq_f32(x.v[i], y.v[i]), yes.v[i], no.v[i])); }
INLINE vf vf_keep(vf x, int first, int last, float other) {
    float t[16];
    vf_store(t, x);
    for (int i = 0; i < 16; i++) t[i] = i >= first && i < last ? t[i] : other;
    return vf_load(t);
}
INLINE vi vf_to_vi(vf x) { vi r; EACH4 r.v[i] = vcvtnq_s32_f32(x.v[i]); return r; }
INLINE vf vf_shift_exponent(vi n) {
    VF4(vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n.v[i], vdupq_n_s32(127)), 23)));
}
INLINE float32x4_t f16x4_(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
INLINE vf vf_from_f16(const uint16_t *p) { VF4(f16x4_(p + 4 * i)); }
INLINE void vf_to_f16(uint16_t *p, vf x) { EACH4 vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i]))); }
INLINE vf vf_from_bf16(const uint16_t *p) { VF4(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16))); }
INLINE float f32_from_f16(uint16_t h) {
    __fp16 x;
    memcpy(&x, &h, sizeof x);
    return (float)x;
}

INLINE float vf_sum(vf x) {
    float32x4_t s = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
    float32x2_t t = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(t, 0) + vget_lane_f32(t, 1);
}
INLINE float vf_hmax(vf x) {
    float t[16];
    vf_store(t, x);
    for (int n = 8; n; n >>= 1)
        for (int i = 0; i < n; i++) t[i] = t[i] > t[i + n] ? t[i] : t[i + n];
    return t[0];
}

INLINE vi vi_zero(void) { vi r; EACH4 r.v[i] = vdupq_n_s32(0); return r; }
INLINE vi vi_set1(int32_t x) { vi r; EACH4 r.v[i] = vdupq_n_s32(x); return r; }
INLINE void vi_store(int32_t *p, vi x) { EACH4 vst1q_s32(p + 4 * i, x.v[i]); }
INLINE vi vf_bits(vf x) { vi r; EACH4 r.v[i] = vreinterpretq_s32_f32(x.v[i]); return r; }
INLINE vf vf_of_bits(vi x) { VF4(vreinterpretq_f32_s32(x.v[i])); }
#define ACROSS_(name, op, pairs)                                                          \
    INLINE int32x4_t name##1_(vi x) { return op(op(x.v[0], x.v[1]), op(x.v[2], x.v[3])); } \
    INLINE vi name##16(const vi x[16]) {                                                  \
        vi r;                                                                             \
        EACH4 r.v[i] = pairs(pairs(name##1_(x[4 * i]), name##1_(x[4 * i + 1])),           \
                             pairs(name##1_(x[4 * i + 2]), name##1_(x[4 * i + 3])));      \
        return r;                                                                         \
    }
/* Lane i: the sum, and the largest, of the lanes of vector i. */
ACROSS_(vi_sum, vaddq_s32, vpaddq_s32)
ACROSS_(vi_most, vmaxq_s32, vpmaxq_s32)
INLINE vi vi_add(vi x, vi y) { vi r; EACH4 r.v[i] = vaddq_s32(x.v[i], y.v[i]); return r; }
INLINE vi vi_and(vi x, vi y) { vi r; EACH4 r.v[i] = vandq_s32(x.v[i], y.v[i]); return r; }
INLINE vi vi_or(vi x, vi y) { vi r; EACH4 r.v[i] = vorrq_s32(x.v[i], y.v[i]); return r; }
INLINE vi vi_shr_by(vi x, int n) {
    vi r;
    EACH4 r.v[i] = vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x.v[i]), vdupq_n_s32(-n)));
    return r;
}
INLINE vf vi_to_vf(vi x) { VF4(vcvtq_f32_s32(x.v[i])); }
INLINE vi widen_(uint8x16_t x) {
    uint16x8_t a = vmovl_u8(vget_low_u8(x)), b = vmovl_u8(vget_high_u8(x));
    return (vi){{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(a))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(a))),
                 vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(b))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(b)))}};
}
INLINE vi vi_from_u8(const uint8_t *p) { return widen_(vld1q_u8(p)); }
INLINE void vi_store_i8(int8_t *p, vi x) {
    int16x8_t a = vcombine_s16(vqmovn_s32(x.v[0]), vqmovn_s32(x.v[1]));
    int16x8_t b = vcombine_s16(vqmovn_s32(x.v[2]), vqmovn_s32(x.v[3]));
    vst1q_s8(p, vcombine_s8(vqmovn_s16(a), vqmovn_s16(b)));
}
/* Unsigned weights are at most 63, so that they are good as signed bytes too. */
INLINE vi vi_dot_column(vi acc, vi w, const int8_t *act, int is_signed) {
    (void)is_signed;
    int32_t x;
    memcpy(&x, act, sizeof x);
    int8x16_t a = vreinterpretq_s8_s32(vdupq_n_s32(x));
    EACH4 acc.v[i] = vdotq_s32(acc.v[i], vreinterpretq_s8_s32(w.v[i]), a);
    return acc;
}
INLINE vi vi_from_tile(const uint8_t *p) {
    vi r;
    EACH4 r.v[i] = vreinterpretq_s32_u8(vld1q_u8(p + 16 * i));
    return r;
}
INLINE void vi_to_tile(uint8_t *p, vi x) { EACH4 vst1q_u8(p + 16 * i, vreinterpretq_u8_s32(x.v[i])); }
INLINE vi vi_mul(vi x, vi y) { vi r; EACH4 r.v[i] = vmulq_s32(x.v[i], y.v[i]); return r; }
INLINE vi vi_xor(vi x, vi y) { vi r; EACH4 r.v[i] = veorq_s32(x.v[i], y.v[i]); return r; }
INLINE vi vi_shr(vi x, int n) { return vi_shr_by(x, n); }
INLINE vi vi_shl(vi x, int n) { vi r; EACH4 r.v[i] = vshlq_s32(x.v[i], vdupq_n_s32(n)); return r; }
/* Each byte x becomes 3 x / 256, a digit to base 3; 3 x modulo 256. */
INLINE vi vi_digit3(vi x) {
    uint8x16_t zero = vdupq_n_u8(0), one = vdupq_n_u8(1);
    EACH4 {
        uint8x16_t y = vqsubq_u8(vreinterpretq_u8_s32(x.v[i]), one);
        x.v[i] = vreinterpretq_s32_u8(vshrq_n_u8(vrhaddq_u8(y, vrhaddq_u8(y, zero)), 6));
    }
    return x;
}
INLINE vi vi_triple(vi x) {
    EACH4 x.v[i] = vreinterpretq_s32_u8(vmulq_u8(vreinterpretq_u8_s32(x.v[i]), vdupq_n_u8(3)));
    return x;
}
INLINE vi vi_lut16(vi x, const uint8_t *table) {
    uint8x16_t t = vld1q_u8(table);
    EACH4 x.v[i] = vreinterpretq_s32_u8(vqtbl1q_u8(t, vreinterpretq_u8_s32(x.v[i])));
    return x;
}
INLINE vi vi_words(const uint8_t *const *row, size_t at) {
    int32_t word[16];
    for (int i = 0; i < 16; i++) memcpy(&word[i], row[i] + at, 4);
    vi r;
    EACH4 r.v[i] = vld1q_s32(word + 4 * i);
    return r;
}
INLINE vf vf_from_words(vi x) {
    VF4(vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(x.v[i])))));
}
INLINE void vi_columns(const uint8_t *const *row, size_t at, vi out[4]) {
    EACH4 {
        int32x4_t a = vreinterpretq_s32_u8(vld1q_u8(row[4 * i] + at)), b = vreinterpretq_s32_u8(vld1q_u8(row[4 * i + 1] + at));
        int32x4_t c = vreinterpretq_s32_u8(vld1q_u8(row[4 * i + 2] + at)), d = vreinterpretq_s32_u8(vld1q_u8(row[4 * i + 3] + at));
        int64x2_t ab = vreinterpretq_s64_s32(vzip1q_s32(a, b)), cd = vreinterpretq_s64_s32(vzip1q_s32(c, d));
        out[0].v[i] = vreinterpretq_s32_s64(vzip1q_s64(ab, cd));
        out[1].v[i] = vreinterpretq_s32_s64(vzip2q_s64(ab, cd));
        ab = vreinterpretq_s64_s32(vzip2q_s32(a, b)), cd = vreinterpretq_s64_s32(vzip2q_s32(c, d));
        out[2].v[i] = vreinterpretq_s32_s64(vzip1q_s64(ab, cd));
        out[3].v[i] = vreinterpretq_s32_s64(vzip2q_s64(ab, cd));
    }
}

INLINE void vi_store_i16(int16_t *p, vi x) {
    vst1q_s16(p, vcombine_s16(vqmovn_s32(x.v[0]), vqmovn_s32(x.v[1])));
    vst1q_s16(p + 8, vcombine_s16(vqmovn_s32(x.v[2]), vqmovn_s32(x.v[3])));
}
INLINE vw vw_load(const int8_t *p) {
    int8x16_t a = vld1q_s8(p), b = vld1q_s8(p + 16);
    return (vw){{vmovl_s8(vget_low_s8(a)), vmovl_high_s8(a), vmovl_s8(vget_low_s8(b)), vmovl_high_s8(b)}};
}
INLINE vi vi_dot2(vi acc, vw x, const int16_t *w) {
    int32_t pair;
    memcpy(&pair, w, sizeof pair);
    int16x8_t a = vreinterpretq_s16_s32(vdupq_n_s32(pair));
    EACH4 acc.v[i] = vaddq_s32(acc.v[i], vpaddq_s32(vmull_s16(vget_low_s16(x.v[i]), vget_low_s16(a)), vmull_high_s16(x.v[i], a)));
    return acc;
}

INLINE vb vb_load(const uint8_t *p) { return (vb){vld1q_u8(p), vld1q_u8(p + 16)}; }
INLINE void vb_store(uint8_t *p, vb x) {
    vst1q_u8(p, x.a);
    vst1q_u8(p + 16, x.b);
}
INLINE vb vb_set1(uint8_t x) { return (vb){vdupq_n_u8(x), vdupq_n_u8(x)}; }
INLINE vb vb_and(vb x, vb y) { return (vb){vandq_u8(x.a, y.a), vandq_u8(x.b, y.b)}; }
INLINE vb vb_or(vb x, vb y) { return (vb){vorrq_u8(x.a, y.a), vorrq_u8(x.b, y.b)}; }
INLINE vb vb_xor(vb x, vb y) { return (vb){veorq_u8(x.a, y.a), veorq_u8(x.b, y.b)}; }
INLINE vb vb_shr_by(vb x, int n) {
    int8x16_t s = vdupq_n_s8((int8_t)-n);
    return (vb){vshlq_u8(x.a, s), vshlq_u8(x.b, s)};
}
INLINE vb vb_shr(vb x, int n) { return vb_shr_by(x, n); }
INLINE vb vb_shl(vb x, int n) { return vb_shr_by(x, -n); }
INLINE vb vb_nibbles(const uint8_t *p) {
    uint8x16_t x = vld1q_u8(p);
    return (vb){vandq_u8(x, vdupq_n_u8(15)), vshrq_n_u8(x, 4)};
}
INLINE vb vb_bits(const uint8_t *p, uint8_t value) {
    static const uint8_t bit_[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t bit = vld1q_u8(bit_), v = vdupq_n_u8(value);
    uint8x16_t a = vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1])), b = vcombine_u8(vdup_n_u8(p[2]), vdup_n_u8(p[3]));
    return (vb){vandq_u8(vtstq_u8(a, bit), v), vandq_u8(vtstq_u8(b, bit), v)};
}
INLINE vb vb_lut16(vb x, const uint8_t *table) {
    uint8x16_t t = vld1q_u8(table);
    return (vb){vqtbl1q_u8(t, x.a), vqtbl1q_u8(t, x.b)};
}
INLINE vb vb_crumbs(uint64_t codes) {
    static const uint8_t first_[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    static const int8_t shift_[16] = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    uint8x16_t x = vcombine_u8(vcreate_u8(codes), vcreate_u8(0)), first = vld1q_u8(first_), three = vdupq_n_u8(3);
    int8x16_t shift = vld1q_s8(shift_);
    return (vb){vandq_u8(vshlq_u8(vqtbl1q_u8(x, first), shift), three),
                vandq_u8(vshlq_u8(vqtbl1q_u8(x, vaddq_u8(first, vdupq_n_u8(4))), shift), three)};
}
INLINE vb vb_of64(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return (vb){vcombine_u8(vcreate_u8(a), vcreate_u8(b)), vcombine_u8(vcreate_u8(c), vcreate_u8(d))};
}
INLINE vb vb_of32(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f, uint32_t g, uint32_t h) {
    const uint32_t all[8] = {a, b, c, d, e, f, g, h};
    return vb_load((const uint8_t *)all);
}
INLINE vb vb_swap_middle(vb x) {
    return (vb){vcombine_u8(vget_low_u8(x.a), vget_low_u8(x.b)), vcombine_u8(vget_high_u8(x.a), vget_high_u8(x.b))};
}
INLINE uint8x16_t digit3_(uint8x16_t x, uint8x16_t power) {
    uint8x16_t y = vmulq_u8(x, power);
    uint8x8_t three = vdup_n_u8(3);
    return vcombine_u8(vshrn_n_u16(vmull_u8(vget_low_u8(y), three), 8), vshrn_n_u16(vmull_u8(vget_high_u8(y), three), 8));
}
INLINE vb vb_digit3(vb x, vb power) { return (vb){digit3_(x.a, power.a), digit3_(x.b, power.b)}; }
INLINE vb vb_negate(vb x, uint32_t minus) {
    uint8_t bits[4];
    memcpy(bits, &minus, sizeof bits);
    vb m = vb_bits(bits, 0xFF);
    return (vb){vsubq_u8(veorq_u8(x.a, m.a), m.a), vsubq_u8(veorq_u8(x.b, m.b), m.b)};
}

INLINE vp vb_dot(vb w, vb act, int is_signed) {
    (void)is_signed;
    int32x4_t zero = vdupq_n_s32(0);
    return (vp){vdotq_s32(zero, vreinterpretq_s8_u8(w.a), vreinterpretq_s8_u8(act.a)),
                vdotq_s32(zero, vreinterpretq_s8_u8(w.b), vreinterpretq_s8_u8(act.b))};
}
/* As vb_dot with unsigned weights, negative where bits of `minus` are set. */
INLINE vp vb_dot_minus(vb w, vb act, uint32_t minus) { return vb_dot(w, vb_negate(act, minus), 1); }
INLINE void vp_reduce(const vp p[16], vi *lo, vi *hi) {
    EACH4 {
        const vp *q = p + 4 * i;
        lo->v[i] = vpaddq_s32(vpaddq_s32(q[0].a, q[1].a), vpaddq_s32(q[2].a, q[3].a));
        hi->v[i] = vpaddq_s32(vpaddq_s32(q[0].b, q[1].b), vpaddq_s32(q[2].b, q[3].b));
    }
}
