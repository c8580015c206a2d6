// Quantized weights as the kernels read them: once, in order.
//
// 16 outputs make a panel. For each group of 32 inputs a panel holds, one after the other,
//   scales   half [parts][16], offsets half [parts][16]      (parts: 2 where groups are of 16, else 1)
//   codes    4 bits: 4 lines of 64 bytes; byte 4 * output + i of line j holds input 4 * j + i in its low half and input
//            4 * (j + 4) + i in its high half. 8 bits: 8 lines, of input 4 * j + i.
// So a line is what one integer dot-product instruction of 64 bytes takes: 4 inputs of 16 outputs.
// Scales and offsets are kept in units of a power of two, so that half precision loses nothing at either end.
#pragma once
#include <stdint.h>

#include "tidegate_cpu.h"

struct tg_matrix {
  int64_t rows, columns; // N and K
  int64_t panels, groups; // of 16 rows, of 32 columns
  int bits, parts;
  float unit;
  uint8_t *data;
  uint8_t *wide; // [groups], whether activations come in 16 bits

  int64_t scale_bytes() const { return 64 * parts; }
  int64_t group_bytes() const { return scale_bytes() + (bits == 4 ? 256 : 512); }
  int64_t panel_bytes() const { return groups * group_bytes(); }
  const uint8_t *panel(int64_t index) const { return data + index * panel_bytes(); }
};
