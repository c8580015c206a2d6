// Whole calls: what the threads of a team do together, phase by phase.
#include <string.h>

#include "kernels.h"
#include "team.h"

namespace tg {
namespace {

const Kernels &kernels_of(const Team *team) { return team->isa == TG_AVX512_VNNI ? kAvx512Vnni : kAvx2; }

// Hands out one piece of memory after the other; the first round, without memory, measures.
struct Pieces {
  uint8_t *memory;
  int64_t used = 0;

  template <typename T> T *take(int64_t count) {
    T *piece = memory ? reinterpret_cast<T *>(memory + used) : nullptr;
    used += (count * (int64_t)sizeof(T) + kLine - 1) / kLine * kLine;
    return piece;
  }
  Quantized take_quantized(int64_t rows, int64_t columns) {
    auto *values = take<int8_t>(rows * columns);
    auto *lower = take<int8_t>(rows * columns);
    auto *scales = take<float>(rows * columns / 32);
    auto *sums = take<float>(rows * columns / 32 * 2);
    return {values, lower, scales, sums, columns};
  }
};

int64_t piece_of(const Team *team, int64_t total, int64_t pieces_each) {
  const int64_t piece = total / (team->size() * pieces_each);
  return piece > 0 ? piece : 1;
}

template <typename F> void rows_phase(Worker &worker, int64_t rows, F work) {
  for (int64_t begin, end; worker.take(rows, piece_of(worker.team(), rows, 4), &begin, &end);) {
    for (int64_t row = begin; row < end; ++row) work(row);
  }
  worker.finish(rows);
}

void multiply_phase(Worker &worker, const tg_matrix *matrix, const float *bias, const Quantized &x, int64_t rows,
                    float *y) {
  const int64_t piece = piece_of(worker.team(), matrix->panels, 8);
  for (int64_t begin, end; worker.take(matrix->panels, piece, &begin, &end);) {
    kernels_of(worker.team()).multiply(matrix, bias, &x, rows, begin, end, y);
  }
  worker.finish(matrix->panels);
}

// Which part of attention is whose: a piece is some rows of one request on one key/value head.
struct AttentionPieces {
  int64_t rows_each, total;
  int64_t *first; // [requests + 1], the first piece of each request

  static AttentionPieces plan(const Team *team, const tg_heads *heads, const tg_paging *paging, int64_t *first) {
    const int64_t group = heads->heads / heads->kv_heads;
    const int64_t most = paging->query_start[paging->requests] * group;
    // Few rows: one each, or some threads would have nothing. Many: 32, which share what is read of keys and values.
    const int64_t even = most * heads->kv_heads / (team->size() * 4);
    AttentionPieces pieces{even < group ? 1 : even < 32 ? even : 32, 0, first};
    for (int64_t request = 0; request < paging->requests; ++request) {
      first[request] = pieces.total;
      const int64_t rows = (paging->query_start[request + 1] - paging->query_start[request]) * group;
      pieces.total += (rows + pieces.rows_each - 1) / pieces.rows_each * heads->kv_heads;
    }
    first[paging->requests] = pieces.total;
    return pieces;
  }
};

void attention_phase(Worker &worker, const AttentionPieces &pieces, const tg_heads *heads, const tg_paging *paging,
                     const float *query, int64_t stride, const uint16_t *keys, const uint16_t *values, float *out) {
  const Kernels &kernels = kernels_of(worker.team());
  const int64_t group = heads->heads / heads->kv_heads;
  for (int64_t begin, end; worker.take(pieces.total, 1, &begin, &end);) {
    int64_t low = 0, high = paging->requests; // the request whose pieces begin at or before this one
    while (high - low > 1) (pieces.first[(low + high) / 2] <= begin ? low : high) = (low + high) / 2;
    const int64_t mine = begin - pieces.first[low], each = (pieces.first[low + 1] - pieces.first[low]) / heads->kv_heads;
    const int64_t rows = (paging->query_start[low + 1] - paging->query_start[low]) * group;
    const int64_t first = mine % each * pieces.rows_each;
    const int64_t last = first + pieces.rows_each < rows ? first + pieces.rows_each : rows;
    kernels.attend(heads, paging, low, mine / each, first, last, query, stride, keys, values, out);
  }
  worker.finish(pieces.total);
}

void write_row(const Kernels &kernels, const tg_heads *heads, const float *key, const float *value, int64_t slot,
               uint16_t *keys, uint16_t *values) {
  for (int64_t head = 0; head < heads->kv_heads; ++head) {
    const int64_t block = (slot / 16 * heads->kv_heads + head) * 16 * heads->width;
    kernels.write_kv(key + head * heads->width, value + head * heads->width, slot % 16, heads->width, keys + block,
                     values + block);
  }
}

struct Forward {
  Team *team;
  const tg_model *model;
  const tg_step *step;
  float *out;
  float *residual, *x, *wide, *mixed;
  Quantized narrow, middle;
  AttentionPieces pieces;

  void place(Pieces pieces_of_memory, int64_t *used) {
    Pieces &memory = pieces_of_memory;
    const int64_t rows = step->tokens, queries = model->heads.heads * model->heads.width;
    const int64_t qkv = queries + 2 * model->heads.kv_heads * model->heads.width;
    const int64_t inner = 2 * model->intermediate;
    residual = memory.take<float>(rows * model->hidden);
    x = memory.take<float>(rows * model->hidden);
    wide = memory.take<float>(rows * (qkv > inner ? qkv : inner));
    mixed = memory.take<float>(rows * queries);
    narrow = memory.take_quantized(rows, model->hidden);
    middle = memory.take_quantized(rows, queries > model->intermediate ? queries : model->intermediate);
    pieces.first = memory.take<int64_t>(step->paging.requests + 1);
    *used = memory.used;
  }

  // residual += x (null at first); its norm, quantized for `reader`.
  Quantized norm_phase(Worker &worker, const float *added, const float *weight, const tg_matrix *reader) const {
    const Quantized to = narrow.of(model->hidden);
    rows_phase(worker, step->tokens, [&](int64_t row) {
      float normed[kWidestHidden];
      const int64_t at = row * model->hidden;
      const float *more = added ? added + at : nullptr;
      kernels_of(team).add_norm(more, residual + at, weight, model->hidden, model->epsilon, normed);
      kernels_of(team).quantize(normed, row, reader, &to);
    });
    return to;
  }

  void layer(Worker &worker, const tg_layer &layer, const float *added) const;
  void run(Worker &worker) const;
  static constexpr int64_t kWidestHidden = 16384;
};

// Nothing of `this` changes on the way: a thread may be some phases behind the others.
void Forward::layer(Worker &worker, const tg_layer &layer, const float *added) const {
  const Kernels &kernels = kernels_of(team);
  const tg_heads &heads = model->heads;
  const int64_t rows = step->tokens, width = heads.width, queries = heads.heads * width;
  const int64_t stride = queries + 2 * heads.kv_heads * width, intermediate = model->intermediate;

  const Quantized before = norm_phase(worker, added, layer.attention_norm, layer.qkv);
  multiply_phase(worker, layer.qkv, layer.qkv_bias, before, rows, wide);
  rows_phase(worker, rows, [&](int64_t row) {
    float *qkv = wide + row * stride;
    const float *cos = step->cos + row * width / 2, *sin = step->sin + row * width / 2;
    for (int64_t head = 0; head < heads.heads + heads.kv_heads; ++head) {
      const float *norm = head < heads.heads ? layer.query_norm : layer.key_norm;
      kernels.norm_rotate(qkv + head * width, norm, model->epsilon, cos, sin, width);
    }
    const float *key = qkv + queries;
    write_row(kernels, &heads, key, key + heads.kv_heads * width, step->slots[row], layer.keys, layer.values);
  });
  attention_phase(worker, pieces, &heads, &step->paging, wide, stride, layer.keys, layer.values, mixed);
  const Quantized attended = middle.of(queries);
  rows_phase(worker, rows,
             [&](int64_t row) { kernels.quantize(mixed + row * queries, row, layer.output, &attended); });
  multiply_phase(worker, layer.output, layer.output_bias, attended, rows, x);
  const Quantized between = norm_phase(worker, x, layer.mlp_norm, layer.gate_up);
  multiply_phase(worker, layer.gate_up, layer.gate_up_bias, between, rows, wide);
  const Quantized gated = middle.of(intermediate);
  rows_phase(worker, rows, [&](int64_t row) {
    float *gate = wide + row * 2 * intermediate;
    kernels.gate(gate, gate + intermediate, intermediate);
    kernels.quantize(gate, row, layer.down, &gated);
  });
  multiply_phase(worker, layer.down, layer.down_bias, gated, rows, x);
}

void Forward::run(Worker &worker) const {
  const Kernels &kernels = kernels_of(team);
  const int64_t hidden = model->hidden;
  for (int64_t index = 0; index < model->num_layers; ++index) {
    layer(worker, model->layers[index], index ? x : nullptr);
  }
  rows_phase(worker, step->wanted, [&](int64_t row) {
    float total[kWidestHidden]; // a copy: the same token may be wanted twice
    const int64_t at = step->rows[row] * hidden;
    memcpy(total, residual + at, (size_t)hidden * sizeof(float));
    kernels.add_norm(x + at, total, model->norm, hidden, model->epsilon, out + row * hidden);
  });
}

} // namespace
} // namespace tg

using tg::Team;

tg_team *tg_team_new(int threads, int isa) {
  Team *team = Team::make(threads);
  if (team) team->isa = isa;
  return reinterpret_cast<tg_team *>(team);
}

void tg_team_free(tg_team *team) {
  if (team) Team::destroy(reinterpret_cast<Team *>(team));
}

void tg_team_set_isa(tg_team *team, int isa) { reinterpret_cast<Team *>(team)->isa = isa; }

int tg_linear(tg_team *opaque, const tg_matrix *matrix, const float *bias, const float *x, int64_t rows, float *y) {
  struct Call {
    Team *team;
    const tg_matrix *matrix;
    const float *bias, *x;
    int64_t rows;
    float *y;
    tg::Quantized quantized;
  } call{reinterpret_cast<Team *>(opaque), matrix, bias, x, rows, y, {}};
  tg::Pieces needed{nullptr};
  needed.take_quantized(rows, matrix->columns);
  tg::Pieces memory{call.team->scratch(needed.used)};
  if (!memory.memory) return -1;
  call.quantized = memory.take_quantized(rows, matrix->columns);
  call.team->run(
      [](void *context, tg::Worker &worker) {
        auto *self = static_cast<Call *>(context);
        tg::rows_phase(worker, self->rows, [&](int64_t row) {
          const tg::Kernels &kernels = tg::kernels_of(self->team);
          kernels.quantize(self->x + row * self->matrix->columns, row, self->matrix, &self->quantized);
        });
        tg::multiply_phase(worker, self->matrix, self->bias, self->quantized, self->rows, self->y);
      },
      &call);
  return 0;
}

int tg_attention(tg_team *opaque, const tg_heads *heads, const tg_paging *paging, const float *query,
                 int64_t query_stride, const uint16_t *keys, const uint16_t *values, float *out) {
  struct Call {
    Team *team;
    const tg_heads *heads;
    const tg_paging *paging;
    const float *query;
    int64_t stride;
    const uint16_t *keys, *values;
    float *out;
    tg::AttentionPieces pieces;
  } call{reinterpret_cast<Team *>(opaque), heads, paging, query, query_stride, keys, values, out, {}};
  uint8_t *memory = call.team->scratch((paging->requests + 1) * (int64_t)sizeof(int64_t));
  if (!memory) return -1;
  call.pieces = tg::AttentionPieces::plan(call.team, heads, paging, reinterpret_cast<int64_t *>(memory));
  call.team->run(
      [](void *context, tg::Worker &worker) {
        auto *self = static_cast<Call *>(context);
        tg::attention_phase(worker, self->pieces, self->heads, self->paging, self->query, self->stride, self->keys,
                            self->values, self->out);
      },
      &call);
  return 0;
}

void tg_write_kv(tg_team *team, const tg_heads *heads, const float *key, const float *value, int64_t key_stride,
                 int64_t value_stride, const int64_t *slots, int64_t rows, uint16_t *keys, uint16_t *values) {
  const tg::Kernels &kernels = tg::kernels_of(reinterpret_cast<Team *>(team));
  for (int64_t row = 0; row < rows; ++row) {
    tg::write_row(kernels, heads, key + row * key_stride, value + row * value_stride, slots[row], keys, values);
  }
}

int tg_hidden(tg_team *opaque, const tg_model *model, const tg_step *step, float *out) {
  tg::Forward forward{};
  forward.team = reinterpret_cast<Team *>(opaque);
  forward.model = model;
  forward.step = step;
  forward.out = out;
  int64_t bytes = 0;
  forward.place({nullptr}, &bytes);
  uint8_t *memory = forward.team->scratch(bytes);
  if (!memory) return -1;
  forward.place({memory}, &bytes);
  int64_t *first = forward.pieces.first;
  forward.pieces = tg::AttentionPieces::plan(forward.team, &model->heads, &step->paging, first);
  tg_matrix_rows(opaque, model->embedding, step->token_ids, step->tokens, forward.residual);
  forward.team->run([](void *context, tg::Worker &worker) { static_cast<tg::Forward *>(context)->run(worker); }, &forward);
  return 0;
}
