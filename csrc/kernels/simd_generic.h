/* Plain C: the meaning of every operation, and what runs where nothing better does. */
typedef struct { float v[16]; } vf;
typedef struct { int32_t v[16]; } vi;
typedef struct { uint8_t v[32]; } vb;
typedef struct { int32_t v[2]; } vp;
typedef struct { int16_t v[32]; } vw;

#define SIGNED_AS_UNSIGNED 0
#define TILE_ROWS 4
#define FLOAT_ROWS 2
/* Sums of attention that registers hold. */
#define ATTEND_SUMS 6

#define EACH(n) for (int i = 0; i < (n); i++)
#define VF1(expr) do { vf r; EACH(16) r.v[i] = (expr); return r; } while (0)
INLINE vf vf_zero(void) { VF1(0.0f); }
INLINE vf vf_set1(float x) { VF1(x); }
INLINE vf vf_load(const float *p) { VF1(p[i]); }
INLINE void vf_store(float *p, vf x) { memcpy(p, x.v, sizeof x.v); }
INLINE vf vf_add(vf x, vf y) { VF1(x.v[i] + y.v[i]); }
INLINE vf vf_sub(vf x, vf y) { VF1(x.v[i] - y.v[i]); }
INLINE vf vf_mul(vf x, vf y) { VF1(x.v[i] * y.v[i]); }
INLINE vf vf_div(vf x, vf y) { VF1(x.v[i] / y.v[i]); }
INLINE vf vf_fma(vf x, vf y, vf z) { VF1(fmaf(x.v[i], y.v[i], z.v[i])); }
/* The second operand where one is NaN, as x86 has it. */
INLINE vf vf_max(vf x, vf y) { VF1(x.v[i] > y.v[i] ? x.v[i] : y.v[i]); }
INLINE vf vf_min(vf x, vf y) { VF1(x.v[i] < y.v[i] ? x.v[i] : y.v[i]); }
INLINE vf vf_abs(vf x) { VF1(fabsf(x.v[i])); }
INLINE vf vf_round(vf x) { VF1(rintf(x.v[i])); }
INLINE vf vf_copysign(vf x, vf s) { VF1(copysignf(x.v[i], s.v[i])); }
INLINE vf vf_if_lt(vf x, vf y, vf yes, vf no) { VF1(x.v[i] < y.v[i] ? yes.v[i] : no.v[i]); }
INLINE vf vf_keep(vf x, int first, int last, float other) { VF1(i >= first && i < last ? x.v[i] : other); }
/* As x86 converts: to nearest, and the most negative integer for what does not fit. */
INLINE vi vf_to_vi(vf x) {
    vi r;
    EACH(16) {
        float f = rintf(x.v[i]);
        r.v[i] = f >= -2147483648.0f && f < 2147483648.0f ? (int32_t)f : INT32_MIN;
    }
    return r;
}
INLINE vf vf_shift_exponent(vi n) {
    vf r;
    EACH(16) {
        uint32_t u = ((uint32_t)n.v[i] + 127u) << 23;
        memcpy(&r.v[i], &u, 4);
    }
    return r;
}

INLINE float f32_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 0x3FF, u;
    if (e == 31) {
        u = sign | 0x7F800000u | (m ? (m << 13) | 0x400000u : 0);
    } else if (e) {
        u = sign | ((e + 112) << 23) | (m << 13);
    } else {
        float f = (float)m * 5.9604644775390625e-8f;
        memcpy(&u, &f, 4);
        u |= sign;
    }
    float f;
    memcpy(&f, &u, 4);
    return f;
}
INLINE uint16_t f16_from_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000u;
    u &= 0x7FFFFFFFu;
    if (u >= 0x7F800000u) return (uint16_t)(sign | 0x7C00u | (u > 0x7F800000u ? 0x200u | ((u >> 13) & 0x3FFu) : 0));
    if (u >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u);
    if (u < 0x38800000u) { /* subnormal: the float adder rounds for us */
        float t;
        memcpy(&t, &u, 4);
        t += 0.5f;
        uint32_t b;
        memcpy(&b, &t, 4);
        return (uint16_t)(sign | (b - 0x3F000000u));
    }
    u += 0xFFFu + ((u >> 13) & 1u);
    return (uint16_t)(sign | ((u - 0x38000000u) >> 13));
}
INLINE vf vf_from_f16(const uint16_t *p) { VF1(f32_from_f16(p[i])); }
INLINE void vf_to_f16(uint16_t *p, vf x) { EACH(16) p[i] = f16_from_f32(x.v[i]); }
INLINE vf vf_from_bf16(const uint16_t *p) {
    vf r;
    EACH(16) {
        uint32_t u = (uint32_t)p[i] << 16;
        memcpy(&r.v[i], &u, 4);
    }
    return r;
}

INLINE float vf_sum(vf x) {
    for (int n = 8; n; n >>= 1) EACH(n) x.v[i] = x.v[i] + x.v[i + n];
    return x.v[0];
}
INLINE float vf_hmax(vf x) {
    for (int n = 8; n; n >>= 1) EACH(n) x.v[i] = x.v[i] > x.v[i + n] ? x.v[i] : x.v[i + n];
    return x.v[0];
}

INLINE vi vi_zero(void) { return (vi){{0}}; }
INLINE vi vi_set1(int32_t x) { vi r; EACH(16) r.v[i] = x; return r; }
INLINE void vi_store(int32_t *p, vi x) { memcpy(p, x.v, sizeof x.v); }
INLINE vi vf_bits(vf x) { vi r; memcpy(r.v, x.v, sizeof r.v); return r; }
INLINE vf vf_of_bits(vi x) { vf r; memcpy(r.v, x.v, sizeof r.v); return r; }
/* Lane i: the sum, and the largest, of the lanes of vector i. */
INLINE vi vi_sum16(const vi x[16]) {
    vi r = {{0}};
    EACH(16) for (int k = 0; k < 16; k++) r.v[i] += x[i].v[k];
    return r;
}
INLINE vi vi_most16(const vi x[16]) {
    vi r;
    EACH(16) {
        r.v[i] = x[i].v[0];
        for (int k = 1; k < 16; k++) r.v[i] = x[i].v[k] > r.v[i] ? x[i].v[k] : r.v[i];
    }
    return r;
}
INLINE vi vi_add(vi x, vi y) { vi r; EACH(16) r.v[i] = x.v[i] + y.v[i]; return r; }
INLINE vi vi_and(vi x, vi y) { vi r; EACH(16) r.v[i] = x.v[i] & y.v[i]; return r; }
INLINE vi vi_or(vi x, vi y) { vi r; EACH(16) r.v[i] = x.v[i] | y.v[i]; return r; }
INLINE vi vi_shr_by(vi x, int n) { vi r; EACH(16) r.v[i] = (int32_t)((uint32_t)x.v[i] >> n); return r; }
INLINE vf vi_to_vf(vi x) { VF1((float)x.v[i]); }
INLINE vi vi_from_u8(const uint8_t *p) { vi r; EACH(16) r.v[i] = p[i]; return r; }
INLINE void vi_store_i8(int8_t *p, vi x) {
    EACH(16) p[i] = (int8_t)(x.v[i] > 127 ? 127 : x.v[i] < -128 ? -128 : x.v[i]);
}
INLINE void vi_store_i16(int16_t *p, vi x) {
    EACH(16) p[i] = (int16_t)(x.v[i] > 32767 ? 32767 : x.v[i] < -32768 ? -32768 : x.v[i]);
}
INLINE vw vw_load(const int8_t *p) { vw r; EACH(32) r.v[i] = p[i]; return r; }
INLINE vi vi_dot2(vi acc, vw x, const int16_t *w) {
    EACH(16) acc.v[i] += x.v[2 * i] * w[0] + x.v[2 * i + 1] * w[1];
    return acc;
}
INLINE vi vi_from_tile(const uint8_t *p) { vi r; memcpy(r.v, p, sizeof r.v); return r; }
INLINE void vi_to_tile(uint8_t *p, vi x) { memcpy(p, x.v, sizeof x.v); }
INLINE vi vi_dot_column(vi acc, vi w, const int8_t *act, int is_signed) {
    uint8_t tile[64];
    vi_to_tile(tile, w);
    if (is_signed) {
        EACH(16) for (int k = 0; k < 4; k++) acc.v[i] += (int32_t)(int8_t)tile[4 * i + k] * act[k];
    } else {
        EACH(16) for (int k = 0; k < 4; k++) acc.v[i] += (int32_t)tile[4 * i + k] * act[k];
    }
    return acc;
}
INLINE vi vi_mul(vi x, vi y) { vi r; EACH(16) r.v[i] = (int32_t)((uint32_t)x.v[i] * (uint32_t)y.v[i]); return r; }
INLINE vi vi_xor(vi x, vi y) { vi r; EACH(16) r.v[i] = x.v[i] ^ y.v[i]; return r; }
INLINE vi vi_shr(vi x, int n) { return vi_shr_by(x, n); }
INLINE vi vi_shl(vi x, int n) { vi r; EACH(16) r.v[i] = (int32_t)((uint32_t)x.v[i] << n); return r; }
/* Each byte x becomes 3 x / 256, a digit to base 3; 3 x modulo 256. */
INLINE vi vi_digit3(vi x) {
    uint8_t b[64];
    vi_to_tile(b, x);
    EACH(64) b[i] = (uint8_t)(3 * b[i] >> 8);
    return vi_from_tile(b);
}
INLINE vi vi_triple(vi x) {
    uint8_t b[64];
    vi_to_tile(b, x);
    EACH(64) b[i] = (uint8_t)(3 * b[i]);
    return vi_from_tile(b);
}
INLINE vi vi_lut16(vi x, const uint8_t *table) {
    uint8_t b[64];
    vi_to_tile(b, x);
    EACH(64) b[i] = table[b[i]];
    return vi_from_tile(b);
}
INLINE vi vi_words(const uint8_t *const *row, size_t at) {
    vi r;
    EACH(16) memcpy(&r.v[i], row[i] + at, 4);
    return r;
}
INLINE vf vf_from_words(vi x) { VF1(f32_from_f16((uint16_t)x.v[i])); }
INLINE void vi_columns(const uint8_t *const *row, size_t at, vi out[4]) {
    EACH(16) for (int k = 0; k < 4; k++) memcpy(&out[k].v[i], row[i] + at + 4 * (size_t)k, 4);
}

#define VB1(expr) do { vb r; EACH(32) r.v[i] = (uint8_t)(expr); return r; } while (0)
INLINE vb vb_load(const uint8_t *p) { VB1(p[i]); }
INLINE void vb_store(uint8_t *p, vb x) { memcpy(p, x.v, 32); }
INLINE vb vb_set1(uint8_t x) { VB1(x); }
INLINE vb vb_and(vb x, vb y) { VB1(x.v[i] & y.v[i]); }
INLINE vb vb_or(vb x, vb y) { VB1(x.v[i] | y.v[i]); }
INLINE vb vb_xor(vb x, vb y) { VB1(x.v[i] ^ y.v[i]); }
INLINE vb vb_shr(vb x, int n) { VB1(x.v[i] >> n); }
INLINE vb vb_shl(vb x, int n) { VB1(x.v[i] << n); }
INLINE vb vb_shr_by(vb x, int n) { VB1(x.v[i] >> n); }
INLINE vb vb_nibbles(const uint8_t *p) { VB1(i < 16 ? p[i] & 15 : p[i - 16] >> 4); }
INLINE vb vb_bits(const uint8_t *p, uint8_t value) { VB1((p[i >> 3] >> (i & 7)) & 1 ? value : 0); }
INLINE vb vb_lut16(vb x, const uint8_t *table) { VB1(table[x.v[i]]); }
INLINE vb vb_crumbs(uint64_t codes) { VB1(codes >> 2 * i & 3); }
INLINE vb vb_of64(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    const uint64_t all[4] = {a, b, c, d};
    VB1(all[i >> 3] >> 8 * (i & 7));
}
INLINE vb vb_of32(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e, uint32_t f, uint32_t g, uint32_t h) {
    const uint32_t all[8] = {a, b, c, d, e, f, g, h};
    VB1(all[i >> 2] >> 8 * (i & 3));
}
INLINE vb vb_swap_middle(vb x) { VB1(x.v[i < 8 || i >= 24 ? i : i ^ 24]); }
INLINE vb vb_digit3(vb x, vb power) { VB1((uint8_t)(x.v[i] * power.v[i]) * 3 >> 8); }
INLINE vb vb_negate(vb x, uint32_t minus) { VB1(minus >> i & 1 ? -x.v[i] : x.v[i]); }

INLINE vp vb_dot(vb w, vb act, int is_signed) {
    vp r = {{0, 0}};
    EACH(32) r.v[i >> 4] += (is_signed ? (int32_t)(int8_t)w.v[i] : (int32_t)w.v[i]) * (int8_t)act.v[i];
    return r;
}
/* As vb_dot with unsigned weights, negative where bits of `minus` are set. */
INLINE vp vb_dot_minus(vb w, vb act, uint32_t minus) { return vb_dot(w, vb_negate(act, minus), 0); }
INLINE void vp_reduce(const vp p[16], vi *lo, vi *hi) {
    EACH(16) {
        lo->v[i] = p[i].v[0];
        hi->v[i] = p[i].v[1];
    }
}
