// Quantized weights times quantized activations, AVX-512 VNNI: one line of codes is one instruction's worth.
#pragma once
#include "kernels.h"
#include "vector_avx512.h"

namespace tg::TG_NAME {

// kRows rows of x by one panel: total [kRows] in the matrix's unit.
template <int kRows, int kBits, int kParts>
inline void multiply_tile(const tg_matrix *matrix, const uint8_t *panel, const Quantized *x, int64_t row, V *total) {
  constexpr int kQuads = 8 / kParts;
  for (int m = 0; m < kRows; ++m) total[m] = zero();
  const int64_t columns = matrix->columns, groups = matrix->groups;
  for (int64_t group = 0; group < groups; ++group, panel += matrix->group_bytes()) {
    auto *scales = reinterpret_cast<const uint16_t *>(panel);
    const uint8_t *codes = panel + 64 * kParts;
    __m512i line[8];
    if constexpr (kBits == 4) {
      const __m512i low = _mm512_set1_epi8(15);
      for (int j = 0; j < 4; ++j) {
        const __m512i both = _mm512_loadu_si512(codes + 64 * j);
        line[j] = _mm512_and_si512(both, low);
        line[j + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
      }
    } else {
      for (int j = 0; j < 8; ++j) line[j] = _mm512_loadu_si512(codes + 64 * j);
    }
    for (int m = 0; m < kRows; ++m) {
      auto *quads = reinterpret_cast<const int32_t *>(x->values + (row + m) * columns + group * 32);
      const V scale = set(x->scales[(row + m) * groups + group]);
      const float *sums = x->sums + ((row + m) * groups + group) * kParts;
      for (int part = 0; part < kParts; ++part) {
        __m512i products = _mm512_setzero_si512();
        for (int j = part * kQuads; j < (part + 1) * kQuads; ++j) {
          products = _mm512_dpbusd_epi32(products, line[j], _mm512_set1_epi32(quads[j]));
        }
        if (matrix->wide[group]) {
          auto *lower = reinterpret_cast<const int32_t *>(x->lower + (row + m) * columns + group * 32);
          products = _mm512_slli_epi32(products, 8);
          for (int j = part * kQuads; j < (part + 1) * kQuads; ++j) {
            products = _mm512_dpbusd_epi32(products, line[j], _mm512_set1_epi32(lower[j]));
          }
        }
        const V weight_scale = load_half(scales + 16 * part), offset = load_half(scales + 16 * (kParts + part));
        total[m] = fma(_mm512_cvtepi32_ps(products), mul(weight_scale, scale), total[m]);
        total[m] = fma(offset, set(sums[part]), total[m]);
      }
    }
  }
}

constexpr int kMostRows = 8;

} // namespace tg::TG_NAME
