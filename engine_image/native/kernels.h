// What is written once for each kind of processor. All of it works on ranges, so that threads can share it.
#pragma once
#include <stdint.h>

#include "matrix.h"
#include "tidegate_cpu.h"

namespace tg {

// Rows of activations as whole numbers of 8 bits, or 16 where the matrix is wide, in groups of 32 inputs that share a
// scale.
struct Quantized {
  int8_t *values; // [M, K], the upper byte where there are two
  int8_t *lower;  // [M, K], the lower byte, signed: the number is 256 * upper + lower
  float *scales;  // [M, K / 32]
  float *sums;    // [M, K / 32 * parts], of each group's (or half group's) values, times the scale
  int64_t columns;

  // The same memory for rows of another length.
  Quantized of(int64_t other_columns) const { return {values, lower, scales, sums, other_columns}; }
};

struct Kernels {
  // One row [K] into row `row` of `to`, as `reader` wants it; sums are of 32 values, or of 16 where it has two parts.
  void (*quantize)(const float *x, int64_t row, const tg_matrix *reader, const Quantized *to);
  // y[m, n] for panels first..last of the outputs and rows 0..M.
  void (*multiply)(const tg_matrix *matrix, const float *bias, const Quantized *x, int64_t rows, int64_t first,
                   int64_t last, float *y);
  // residual += x (null for none); out = residual over its root mean square, times weight.
  void (*add_norm)(const float *x, float *residual, const float *weight, int64_t count, float epsilon, float *out);
  // One head in place: normalised where `norm` is not null, then rotated.
  void (*norm_rotate)(float *head, const float *norm, float epsilon, const float *cos, const float *sin, int64_t width);
  // gate = silu(gate) * up
  void (*gate)(float *gate, const float *up, int64_t count);
  void (*write_kv)(const float *key, const float *value, int64_t offset, int64_t width, uint16_t *key_block,
                   uint16_t *value_block);
  // Rows first..last of one request's queries on one key/value head; a row is a token and one of the head's queries.
  void (*attend)(const tg_heads *heads, const tg_paging *paging, int64_t request, int64_t kv_head, int64_t first,
                 int64_t last, const float *query, int64_t query_stride, const uint16_t *keys, const uint16_t *values,
                 float *out);
};

extern const Kernels kAvx2;
extern const Kernels kAvx512Vnni;

} // namespace tg
