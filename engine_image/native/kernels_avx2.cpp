#define TG_NAME avx2
#include "multiply_avx2.h"

#include "kernels.inc"

const tg::Kernels tg::kAvx2 = {tg::avx2::quantize, tg::avx2::multiply, tg::avx2::add_norm, tg::avx2::norm_rotate,
                               tg::avx2::gate,     tg::avx2::write_kv, tg::avx2::attend};
