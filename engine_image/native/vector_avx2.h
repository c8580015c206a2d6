// 16 floats as two halves of AVX2's eight. vector_avx512.h has the same with the same results, bit for bit.
#pragma once
#include <immintrin.h>
#include <stdint.h>

namespace tg::TG_NAME {

struct V {
  __m256 low, high;
};

inline V zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V load(const float *from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void store(float *to, V x) {
  _mm256_storeu_ps(to, x.low);
  _mm256_storeu_ps(to + 8, x.high);
}
inline V add(V a, V b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline V sub(V a, V b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline V mul(V a, V b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline V div(V a, V b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline V fma(V a, V b, V c) { return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)}; }
inline V max(V a, V b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline V min(V a, V b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline V abs(V a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
inline V round(V a) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, kNearest), _mm256_round_ps(a.high, kNearest)};
}
inline V load_half(const uint16_t *from) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from + 8)))};
}
inline void store_half(uint16_t *to, V x) {
  _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i *>(to + 8), _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT));
}
inline __m256 power_of_two(__m256 whole) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
// Two to the power of a whole number within -126..127.
inline V power_of_two(V whole) { return {power_of_two(whole.low), power_of_two(whole.high)}; }
inline __m256 where_between(int low, int high, __m256 x, __m256 other) {
  const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
  const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(low), lane);
  const __m256i above = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(high));
  return _mm256_blendv_ps(x, other, _mm256_castsi256_ps(_mm256_or_si256(below, above)));
}
// x where low <= first + lane <= high, else `other`.
inline V where_between(int64_t first, int64_t low, int64_t high, V x, V other) {
  const int from = (int)(low - first), to = (int)(high - first);
  return {where_between(from, to, x.low, other.low), where_between(from - 8, to - 8, x.high, other.high)};
}
inline __m256 low_half(V x) { return x.low; }
inline __m256 high_half(V x) { return x.high; }
// Whole numbers within -128..127 as bytes; their sum comes back.
inline int store_bytes(int8_t *to, V x) {
  const __m256i low = _mm256_cvtps_epi32(x.low), high = _mm256_cvtps_epi32(x.high);
  const __m128i first = _mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  const __m128i second = _mm_packs_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm_packs_epi16(first, second));
  const __m128i pairs = _mm_madd_epi16(_mm_add_epi16(first, second), _mm_set1_epi16(1));
  const __m128i half = _mm_add_epi32(pairs, _mm_shuffle_epi32(pairs, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

} // namespace tg::TG_NAME
