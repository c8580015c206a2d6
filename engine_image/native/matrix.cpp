#include "matrix.h"

#include <immintrin.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "team.h"

#define F16C __attribute__((target("f16c,avx2,fma")))

namespace {

struct Source {
  const uint8_t *codes;
  const float *scales, *offsets;
  int64_t group;
};

F16C inline uint16_t to_half(float value) { return (uint16_t)_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }
F16C inline float from_half(uint16_t value) { return _cvtsh_ss(value); }

float unit_of(const Source &source, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = fmaxf(largest, fmaxf(fabsf(source.scales[i]), fabsf(source.offsets[i]) / 128));
  }
  // The largest scale becomes 16 to 32 and the largest offset at most 4096: far from both ends of half precision.
  return largest > 0 ? ldexpf(1, ilogbf(largest) - 4) : 1;
}

F16C void pack_panel(tg_matrix *matrix, const Source &source, int64_t panel) {
  const int64_t per_row = matrix->columns / source.group;
  uint8_t *to = matrix->data + panel * matrix->panel_bytes();
  for (int64_t group = 0; group < matrix->groups; ++group, to += matrix->group_bytes()) {
    auto *scales = reinterpret_cast<uint16_t *>(to);
    uint16_t *offsets = scales + 16 * matrix->parts;
    uint8_t *codes = to + matrix->scale_bytes();
    memset(to, 0, (size_t)matrix->group_bytes());
    for (int64_t lane = 0; lane < 16 && panel * 16 + lane < matrix->rows; ++lane) {
      const int64_t row = panel * 16 + lane;
      for (int part = 0; part < matrix->parts; ++part) {
        const int64_t at = row * per_row + (group * 32 + part * 16) / source.group;
        scales[part * 16 + lane] = to_half(source.scales[at] / matrix->unit);
        offsets[part * 16 + lane] = to_half(source.offsets[at] / matrix->unit);
      }
      const uint8_t *from = source.codes + row * matrix->columns + group * 32;
      for (int k = 0; k < 32; ++k) {
        const int quad = k / 4;
        if (matrix->bits == 8) {
          codes[quad * 64 + lane * 4 + k % 4] = from[k];
        } else {
          codes[(quad % 4) * 64 + lane * 4 + k % 4] |= (uint8_t)(from[k] << (quad / 4 * 4));
        }
      }
    }
  }
}

F16C void unpack_row(const tg_matrix *matrix, int64_t row, float *out) {
  const uint8_t *from = matrix->panel(row / 16);
  const int64_t lane = row % 16;
  for (int64_t group = 0; group < matrix->groups; ++group, from += matrix->group_bytes()) {
    auto *scales = reinterpret_cast<const uint16_t *>(from);
    const uint16_t *offsets = scales + 16 * matrix->parts;
    const uint8_t *codes = from + matrix->scale_bytes();
    for (int k = 0; k < 32; ++k) {
      const int quad = k / 4;
      const int64_t at = (matrix->bits == 8 ? quad : quad % 4) * 64 + lane * 4 + k % 4;
      const int code = matrix->bits == 8 ? codes[at] : (codes[at] >> (quad / 4 * 4)) & 15;
      const int64_t part = (k / 16) % matrix->parts * 16 + lane;
      *out++ = matrix->unit * fmaf(from_half(scales[part]), (float)code, from_half(offsets[part]));
    }
  }
}

struct Packing {
  tg_matrix *matrix;
  Source source;
};

void pack(void *context, tg::Worker &worker) {
  auto *packing = static_cast<Packing *>(context);
  for (int64_t begin, end; worker.take(packing->matrix->panels, 4, &begin, &end);) {
    for (int64_t panel = begin; panel < end; ++panel) pack_panel(packing->matrix, packing->source, panel);
  }
  worker.finish(packing->matrix->panels);
}

} // namespace

tg_matrix *tg_matrix_new(tg_team *team, const uint8_t *codes, const float *scales, const float *offsets, int64_t rows,
                         int64_t columns, int64_t group, int bits) {
  const bool possible = rows > 0 && columns > 0 && columns % 32 == 0 && (bits == 4 || bits == 8) && group > 0 &&
                        (group == 16 || group % 32 == 0) && columns % group == 0;
  if (!possible) return nullptr;
  auto *matrix = static_cast<tg_matrix *>(malloc(sizeof(tg_matrix)));
  if (!matrix) return nullptr;
  const Source source{codes, scales, offsets, group};
  *matrix = tg_matrix{rows, columns, (rows + 15) / 16, columns / 32, bits, group == 16 ? 2 : 1, 1, nullptr, nullptr};
  matrix->unit = unit_of(source, rows * (columns / group));
  void *data = nullptr;
  matrix->wide = static_cast<uint8_t *>(calloc((size_t)matrix->groups, 1));
  if (!matrix->wide || posix_memalign(&data, tg::kLine, (size_t)tg_matrix_bytes(matrix))) {
    free(matrix->wide);
    free(matrix);
    return nullptr;
  }
  matrix->data = static_cast<uint8_t *>(data);
  Packing packing{matrix, source};
  reinterpret_cast<tg::Team *>(team)->run(pack, &packing);
  return matrix;
}

void tg_matrix_free(tg_matrix *matrix) {
  if (!matrix) return;
  free(matrix->data);
  free(matrix->wide);
  free(matrix);
}

void tg_matrix_widen(tg_matrix *matrix, const uint8_t *flags) { memcpy(matrix->wide, flags, (size_t)matrix->groups); }

int64_t tg_matrix_bytes(const tg_matrix *matrix) { return matrix->panels * matrix->panel_bytes(); }

namespace {

struct Rows {
  const tg_matrix *matrix;
  const int64_t *rows;
  int64_t count;
  float *out;
};

void unpack(void *context, tg::Worker &worker) {
  auto *wanted = static_cast<Rows *>(context);
  for (int64_t begin, end; worker.take(wanted->count, 4, &begin, &end);) {
    for (int64_t i = begin; i < end; ++i) {
      unpack_row(wanted->matrix, wanted->rows[i], wanted->out + i * wanted->matrix->columns);
    }
  }
  worker.finish(wanted->count);
}

} // namespace

void tg_matrix_rows(tg_team *team, const tg_matrix *matrix, const int64_t *rows, int64_t count, float *out) {
  Rows wanted{matrix, rows, count, out};
  reinterpret_cast<tg::Team *>(team)->run(unpack, &wanted);
}
