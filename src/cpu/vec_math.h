/* The exponential function of the levels with vectors. Included after the level's vec_*.h. */
#ifndef RF_CPU_VEC_MATH_H
#define RF_CPU_VEC_MATH_H

/* exp(x) = 2^n exp(r) with n = round(x / ln 2) and |r| <= ln 2 / 2. exp(r) is a polynomial of degree 6, whose error
 * is under 2^-26 there. 2^n is multiplied in two factors, so that results beyond the range become infinite and
 * results below it subnormal, then 0. NaN stays NaN, because it passes both limits. */
static inline vf vf_exp(vf x) {
    x = vf_min(vf_set(89.0f), x);
    x = vf_max(vf_set(-104.5f), x);
    vf n = vf_round(vf_mul(x, vf_set(0x1.715476p+0f)));
    vf r = vf_fnma(n, vf_set(0x1.62e4p-1f), x); /* ln 2 is in two parts, of which the first has few bits */
    r = vf_fnma(n, vf_set(0x1.7f7d1cp-20f), r);
    vf p = vf_set(1.0f / 720);
    p = vf_fma(p, r, vf_set(1.0f / 120));
    p = vf_fma(p, r, vf_set(1.0f / 24));
    p = vf_fma(p, r, vf_set(1.0f / 6));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_fma(p, r, vf_set(1.0f));
    p = vf_fma(p, r, vf_set(1.0f));
    vf half = vf_round(vf_mul(n, vf_set(0.5f)));
    return vf_mul(vf_mul(p, vf_power_of_two(half)), vf_power_of_two(vf_sub(n, half)));
}

#endif
