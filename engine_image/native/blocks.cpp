// GGUF's simple blocks taken apart. Source: ggml-common.h and ggml-quants.c of llama.cpp.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "tidegate_cpu.h"

#define F16C __attribute__((target("f16c")))

namespace {

F16C float half_at(const uint8_t *from) {
  uint16_t half;
  memcpy(&half, from, sizeof half);
  return _cvtsh_ss(half);
}

void open_nibbles(const uint8_t *packed, uint8_t *codes) {
  for (int k = 0; k < 16; ++k) {
    codes[k] = packed[k] & 15;
    codes[k + 16] = packed[k] >> 4;
  }
}

} // namespace

int tg_open_blocks(int kind, const uint8_t *blocks, int64_t count, uint8_t *codes, float *scales, float *offsets) {
  const int size = kind == 2 ? 18 : kind == 3 ? 20 : kind == 8 ? 34 : 0;
  if (!size) return -1;
  for (int64_t index = 0; index < count; ++index, blocks += size, codes += 32) {
    scales[index] = half_at(blocks);
    if (kind == 8) {
      for (int k = 0; k < 32; ++k) codes[k] = blocks[2 + k] ^ 0x80; // two's complement plus 128
      offsets[index] = scales[index] * -128;
    } else if (kind == 3) {
      open_nibbles(blocks + 4, codes);
      offsets[index] = half_at(blocks + 2);
    } else {
      open_nibbles(blocks + 2, codes);
      offsets[index] = scales[index] * -8;
    }
  }
  return 0;
}
