#define TG_NAME avx512
#include "multiply_avx512.h"

#include "kernels.inc"

const tg::Kernels tg::kAvx512Vnni = {tg::avx512::quantize,    tg::avx512::multiply, tg::avx512::add_norm,
                                     tg::avx512::norm_rotate, tg::avx512::gate,     tg::avx512::write_kv,
                                     tg::avx512::attend};
