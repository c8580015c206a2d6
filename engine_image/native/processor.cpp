// What this processor can do, asked of it directly.
#include <cpuid.h>
#include <stdint.h>

#include "tidegate_cpu.h"

namespace {

struct Leaf {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  Leaf(uint32_t leaf, uint32_t part) { __get_cpuid_count(leaf, part, &a, &b, &c, &d); }
};

bool has(uint32_t word, int bit) { return word >> bit & 1; }

// Registers that the operating system saves at a change of process.
uint64_t saved_registers() {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

} // namespace

// Bits: Intel's Software Developer's Manual, volume 2, CPUID, leaves 1 and 7.
int tg_best_isa(void) {
  const Leaf one(1, 0), seven(7, 0);
  const bool asks_system = has(one.c, 27);
  const bool avx2 = has(seven.b, 5) && has(one.c, 12) && has(one.c, 29); // with FMA and F16C
  if (!asks_system || !avx2 || (saved_registers() & 0x06) != 0x06) return -1;
  const bool avx512 = has(seven.b, 16) && has(seven.b, 17) && has(seven.b, 30) && has(seven.b, 31) && has(seven.c, 11);
  const bool wide_saved = (saved_registers() & 0xe6) == 0xe6;
  return avx512 && wide_saved ? TG_AVX512_VNNI : TG_AVX2;
}
