// The operator library for x86-64 processors, as Python sees it: plain C, so that it depends on no version of torch.
// Legend of shapes: M rows (tokens), N outputs, K inputs, Hq query heads, Hk key/value heads, D elements of a head.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// Which instructions a kernel is written for, from the least to the most wanted.
enum tg_isa { TG_AVX2 = 0, TG_AVX512_VNNI = 1 };

// Threads that share the work of one call; `isa` is what the kernels of every call with it use.
typedef struct tg_team tg_team;

// A quantized matrix [N, K], arranged in panels of 16 rows of it (16 outputs). See matrix.h.
typedef struct tg_matrix tg_matrix;

// The best that this processor has, or -1 where it has not even AVX2, FMA and F16C.
int tg_best_isa(void);

// A team of `threads`, the caller included; null where threads cannot be made.
tg_team *tg_team_new(int threads, int isa);
void tg_team_free(tg_team *team);
void tg_team_set_isa(tg_team *team, int isa);

// w[n, k] = scales[n, k / group] * codes[n, k] + offsets[n, k / group]; K a multiple of 32, group 16 or a multiple of
// 32, codes below 2**bits, bits 4 or 8. Null where that does not hold or memory is short.
tg_matrix *tg_matrix_new(tg_team *team, const uint8_t *codes, const float *scales, const float *offsets, int64_t rows,
                         int64_t columns, int64_t group, int bits);
// GGUF's blocks of 32 as codes (uint8 [count, 32]), scales and offsets (float [count]); `kind` is ggml's number of the
// type: 2 Q4_0, 3 Q4_1, 8 Q8_0. Returns 0, or -1 for another kind.
int tg_open_blocks(int kind, const uint8_t *blocks, int64_t count, uint8_t *codes, float *scales, float *offsets);
void tg_matrix_free(tg_matrix *matrix);
// Which groups of 32 inputs need their activations in 16 bits instead of 8: flags [K / 32].
void tg_matrix_widen(tg_matrix *matrix, const uint8_t *flags);
int64_t tg_matrix_bytes(const tg_matrix *matrix);
// Rows of the matrix, dequantized: out [count, K].
void tg_matrix_rows(tg_team *team, const tg_matrix *matrix, const int64_t *rows, int64_t count, float *out);

// y [M, N] = x [M, K] W^T + bias (null for none). A row's result does not depend on the other rows.
// Returns 0, or -1 where memory is short.
int tg_linear(tg_team *team, const tg_matrix *matrix, const float *bias, const float *x, int64_t rows, float *y);

// Which rows belong to which request, and where its keys and values lie; as kernels.interface.Paging.
typedef struct {
  const int32_t *query_start;  // [requests + 1]
  const int32_t *context_lens; // [requests]
  const int32_t *block_tables; // [requests, table_stride]
  int64_t requests;
  int64_t table_stride;
} tg_paging;

typedef struct {
  int64_t heads, kv_heads, width; // Hq, Hk, D; D a multiple of 16, at most 256
  float scale;
  float softcap;  // scores become softcap * tanh(score / softcap); 0 for none
  int64_t window; // a query sees the last `window` tokens, itself included; 0 for all
} tg_heads;

// Half-precision caches [blocks, Hk, 16, D]; inside a block keys lie [D, 16], values [16, D].
// query and out [M, Hq, D] with rows `query_stride` and Hq * D floats apart.
int tg_attention(tg_team *team, const tg_heads *heads, const tg_paging *paging, const float *query,
                  int64_t query_stride, const uint16_t *keys, const uint16_t *values, float *out);
void tg_write_kv(tg_team *team, const tg_heads *heads, const float *key, const float *value,
                 int64_t key_stride, int64_t value_stride, const int64_t *slots, int64_t rows, uint16_t *keys,
                 uint16_t *values);

// One decoder layer; biases and head norms may be null.
typedef struct {
  const float *attention_norm, *mlp_norm, *query_norm, *key_norm;
  const tg_matrix *qkv, *output, *gate_up, *down;
  const float *qkv_bias, *output_bias, *gate_up_bias, *down_bias;
  uint16_t *keys, *values;
} tg_layer;

typedef struct {
  const tg_layer *layers;
  int64_t num_layers, hidden, intermediate;
  float epsilon;
  tg_heads heads;
  const tg_matrix *embedding;
  const float *norm;
} tg_model;

typedef struct {
  tg_paging paging;
  int64_t tokens, wanted;
  const int64_t *token_ids, *slots; // [tokens]
  const float *cos, *sin;           // [tokens, D / 2]
  const int64_t *rows;              // [wanted], the tokens whose last hidden states are wanted
} tg_step;

// Embedding and all layers in one call: the states that the head is given, [wanted, hidden]. Returns 0, or -1 where
// memory is short.
int tg_hidden(tg_team *team, const tg_model *model, const tg_step *step, float *out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
