// Quantized weights times quantized activations, AVX2. Codes of 4 bits times bytes, added in 16 bits: a group's sum is
// at most 8 * 2 * 15 * 128 = 30,720, so nothing saturates; codes of 8 bits go as two halves of 4.
#pragma once
#include "kernels.h"
#include "vector_avx2.h"

namespace tg::TG_NAME {

inline __m256i wide(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }

// kRows rows of one group's bytes by 8 outputs of one part of it: whole numbers [kRows].
template <int kRows, int kBits, int kParts>
inline void multiply_group(const uint8_t *codes, int part, const int8_t *values, int64_t columns, __m256i *products) {
  constexpr int kQuads = 8 / kParts;
  const __m256i low = _mm256_set1_epi8(15);
  __m256i sums[kRows], upper[kRows];
  for (int m = 0; m < kRows; ++m) sums[m] = upper[m] = _mm256_setzero_si256();
  for (int j = part * kQuads; j < (part + 1) * kQuads; ++j) {
    const int line = kBits == 4 ? j % 4 : j;
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(codes + 64 * line));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
    const __m256i first = kBits == 4 && j >= 4 ? high : _mm256_and_si256(both, low);
    for (int m = 0; m < kRows; ++m) {
      const __m256i value = _mm256_set1_epi32(reinterpret_cast<const int32_t *>(values + m * columns)[j]);
      sums[m] = _mm256_add_epi16(sums[m], _mm256_maddubs_epi16(first, value));
      if constexpr (kBits == 8) upper[m] = _mm256_add_epi16(upper[m], _mm256_maddubs_epi16(high, value));
    }
  }
  for (int m = 0; m < kRows; ++m) {
    products[m] = wide(sums[m]);
    if constexpr (kBits == 8) products[m] = _mm256_add_epi32(products[m], _mm256_slli_epi32(wide(upper[m]), 4));
  }
}

// kRows rows of x by one half (8 outputs) of a panel.
template <int kRows, int kBits, int kParts>
inline void multiply_half(const tg_matrix *matrix, const uint8_t *panel, int half, const Quantized *x, int64_t row,
                          __m256 *total) {
  for (int m = 0; m < kRows; ++m) total[m] = _mm256_setzero_ps();
  const int64_t columns = matrix->columns, groups = matrix->groups;
  for (int64_t group = 0; group < groups; ++group, panel += matrix->group_bytes()) {
    auto *scales = reinterpret_cast<const uint16_t *>(panel) + 8 * half;
    const uint8_t *codes = panel + 64 * kParts + 32 * half;
    for (int part = 0; part < kParts; ++part) {
      const int64_t at = row * columns + group * 32;
      __m256i products[kRows];
      multiply_group<kRows, kBits, kParts>(codes, part, x->values + at, columns, products);
      if (matrix->wide[group]) {
        __m256i lower[kRows];
        multiply_group<kRows, kBits, kParts>(codes, part, x->lower + at, columns, lower);
        for (int m = 0; m < kRows; ++m) products[m] = _mm256_add_epi32(_mm256_slli_epi32(products[m], 8), lower[m]);
      }
      const __m256 weight_scale = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(scales + 16 * part)));
      const __m256 offset =
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(scales + 16 * (kParts + part))));
      for (int m = 0; m < kRows; ++m) {
        const __m256 scale = _mm256_set1_ps(x->scales[(row + m) * groups + group]);
        const __m256 sum = _mm256_set1_ps(x->sums[((row + m) * groups + group) * kParts + part]);
        total[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products[m]), _mm256_mul_ps(weight_scale, scale), total[m]);
        total[m] = _mm256_fmadd_ps(offset, sum, total[m]);
      }
    }
  }
}

template <int kRows, int kBits, int kParts>
inline void multiply_tile(const tg_matrix *matrix, const uint8_t *panel, const Quantized *x, int64_t row, V *total) {
  __m256 low[kRows], high[kRows];
  multiply_half<kRows, kBits, kParts>(matrix, panel, 0, x, row, low);
  multiply_half<kRows, kBits, kParts>(matrix, panel, 1, x, row, high);
  for (int m = 0; m < kRows; ++m) total[m] = {low[m], high[m]};
}

constexpr int kMostRows = 4;

} // namespace tg::TG_NAME
