// 16 floats as AVX-512 has them. vector_avx2.h has the same with the same results, bit for bit.
#pragma once
#include <immintrin.h>
#include <stdint.h>

namespace tg::TG_NAME {

using V = __m512;

inline V zero() { return _mm512_setzero_ps(); }
inline V set(float x) { return _mm512_set1_ps(x); }
inline V load(const float *from) { return _mm512_loadu_ps(from); }
inline void store(float *to, V x) { _mm512_storeu_ps(to, x); }
inline V add(V a, V b) { return _mm512_add_ps(a, b); }
inline V sub(V a, V b) { return _mm512_sub_ps(a, b); }
inline V mul(V a, V b) { return _mm512_mul_ps(a, b); }
inline V div(V a, V b) { return _mm512_div_ps(a, b); }
inline V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
inline V max(V a, V b) { return _mm512_max_ps(a, b); }
inline V min(V a, V b) { return _mm512_min_ps(a, b); }
inline V abs(V a) { return _mm512_abs_ps(a); }
inline V round(V a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline V load_half(const uint16_t *from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
}
inline void store_half(uint16_t *to, V x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
// Two to the power of a whole number within -126..127.
inline V power_of_two(V whole) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(whole), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
}
// x where low <= first + lane <= high, else `other`.
inline V where_between(int64_t first, int64_t low, int64_t high, V x, V other) {
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __mmask16 from = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32((int)(low - first)));
  const __mmask16 to = _mm512_cmple_epi32_mask(lane, _mm512_set1_epi32((int)(high - first)));
  return _mm512_mask_blend_ps(from & to, other, x);
}
inline __m256 low_half(V x) { return _mm512_castps512_ps256(x); }
inline __m256 high_half(V x) { return _mm512_extractf32x8_ps(x, 1); }
// Whole numbers within -128..127 as bytes; their sum comes back.
inline int store_bytes(int8_t *to, V x) {
  const __m512i whole = _mm512_cvtps_epi32(x);
  _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm512_cvtepi32_epi8(whole));
  return _mm512_reduce_add_epi32(whole);
}

} // namespace tg::TG_NAME
