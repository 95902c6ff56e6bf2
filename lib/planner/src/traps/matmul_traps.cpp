#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/text/units.h"
#include "traps/rules.h"

// Tensor cores read operands in rows of 16 bytes and compute tiles of 64 columns and more (NVIDIA,
// Matrix Multiplication Background User's Guide: alignment and tile quantization). time.md has the
// price of both.
namespace smp::traps {
namespace {

constexpr int64_t kRowElements = 8;     // 16 bytes of 16-bit elements
constexpr int64_t kTile = 64;           // columns of the smallest tile
constexpr int64_t kUsualTile = 128;     // of the usual one
constexpr int64_t kFlashHeadDim = 128;  // up to it the kernels of flash attention keep full tiles
constexpr int64_t kMostFlashHeadDim = 256;

bool has_tensor_cores(const Looked& at) {
  return at.cluster().device == DeviceKind::kCuda && !model::is_list(at.model());
}

int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What a width costs that is no multiple of 64.
const char* cost_of(int64_t columns) {
  return columns % kRowElements != 0 ? "rows are no multiple of 16 bytes, and matmuls take about "
                                       "twice as long"
                                     : "the last tile of each row is partly empty";
}

// Multiples of `step` beside `value`: "11,008 or 11,264".
std::string beside(int64_t value, int64_t step) {
  const int64_t below = value / step * step;
  if (below == 0) return text::with_commas(step);
  return fmt::format("{} or {}", text::with_commas(below), text::with_commas(below + step));
}

std::string on_a_rank(int64_t tensor) {
  return tensor > 1 ? fmt::format(" on each of {} tensor ranks", tensor) : "";
}

}  // namespace

Finding vocabulary_not_padded(const Looked& at) {
  if (!has_tensor_cores(at)) return std::nullopt;
  const int64_t tensor = at.plan.job.parallel.tensor_parallel.embedding ? at.choice.tensor : 1;
  const int64_t rows = model::padded_vocab_rows(at.model(), tensor);
  const int64_t of_rank = ceil_of(rows, tensor);
  if (rows % tensor == 0 && of_rank % kTile == 0) return std::nullopt;
  const int64_t unit = kUsualTile * tensor;
  return fmt::format(
      "vocab_size {} makes {} rows{}, no multiple of {}: {}. Set model.vocab_multiple_of: {}, "
      "which "
      "pads to {} rows, a multiple of {} x tensor_parallel_degree",
      text::with_commas(at.model().vocab_size), text::with_commas(of_rank), on_a_rank(tensor),
      of_rank % kRowElements != 0 ? kRowElements : kTile, cost_of(of_rank), kUsualTile,
      text::with_commas(ceil_of(at.model().vocab_size, unit) * unit), kUsualTile);
}

Finding hidden_not_aligned(const Looked& at) {
  if (!has_tensor_cores(at)) return std::nullopt;
  const ModelSpec& model = at.model();
  if (model.hidden_size % kTile != 0) {
    return fmt::format("hidden_size {} is no multiple of {}: {}. Take {}",
                       text::with_commas(model.hidden_size), kTile, cost_of(model.hidden_size),
                       beside(model.hidden_size, kTile));
  }
  const bool is_cut = at.plan.job.parallel.tensor_parallel.attention && model.kv_lora_rank == 0;
  const int64_t columns = model.num_heads * model.head_dim / (is_cut ? at.choice.tensor : 1);
  if (columns % kTile == 0) return std::nullopt;
  return fmt::format(
      "{} heads of {} make {} columns{}, no multiple of {}: {}. Lower "
      "tensor_parallel_degree, or take a head_dim of {}",
      model.num_heads, model.head_dim, text::with_commas(columns),
      on_a_rank(is_cut ? at.choice.tensor : 1), kTile, cost_of(columns),
      beside(model.head_dim, kTile));
}

Finding ffn_not_aligned(const Looked& at) {
  if (!has_tensor_cores(at)) return std::nullopt;
  const ModelSpec& model = at.model();
  const int64_t tensor = at.plan.job.parallel.tensor_parallel.mlp ? at.choice.tensor : 1;
  const auto problem = [](const char* key, int64_t width, int64_t ranks) -> Finding {
    if (width == 0 || (width % ranks == 0 && width / ranks % kTile == 0)) return std::nullopt;
    return fmt::format("{} {} makes {} columns{}, no multiple of {}: {}. Take {}", key,
                       text::with_commas(width), text::with_commas(width / ranks), on_a_rank(ranks),
                       kTile, cost_of(width / ranks), beside(width, kTile * ranks));
  };
  const bool all_experts =
      model.num_experts > 0 && model.first_dense_layers == 0 && model.moe_layer_period == 1;
  if (!all_experts) {
    if (const Finding dense = problem("ffn_hidden_size", model.ffn_hidden_size, tensor))
      return dense;
  }
  if (model.num_experts == 0) return std::nullopt;
  return problem("expert_ffn_hidden_size", model.expert_ffn_hidden_size,
                 std::max(1, at.choice.expert_tensor));
}

Finding head_dim_not_aligned(const Looked& at) {
  const ModelSpec& model = at.model();
  if (!has_tensor_cores(at) || model.kv_lora_rank > 0 || model.head_dim % kRowElements == 0)
    return std::nullopt;
  return fmt::format(
      "head_dim {} is no multiple of {}: kernels of flash attention pad each head, "
      "or do not take it. Take {}",
      model.head_dim, kRowElements, beside(model.head_dim, kRowElements));
}

Finding head_dim_large(const Looked& at) {
  const ModelSpec& model = at.model();
  if (!has_tensor_cores(at) || model.kv_lora_rank > 0 || model.head_dim <= kFlashHeadDim)
    return std::nullopt;
  return fmt::format(
      "head_dim {} is above {}: {}. With {} heads it is {}", model.head_dim, kFlashHeadDim,
      model.head_dim > kMostFlashHeadDim
          ? "FlashAttention has no kernel for it, and attention needs memory for all its scores"
          : "kernels of flash attention take smaller tiles and run slower",
      ceil_of(model.num_heads * model.head_dim, kFlashHeadDim), kFlashHeadDim);
}

Finding small_matmuls(const Looked& at) {
  const int64_t processors = at.cluster().multiprocessors;
  if (!has_tensor_cores(at) || processors == 0) return std::nullopt;
  const int64_t sequence = at.training().sequence_length / at.choice.context;
  const int64_t tokens = at.choice.micro_batch * sequence;
  const int64_t across = ceil_of(at.model().hidden_size, kUsualTile);
  const int64_t tiles = ceil_of(tokens, kUsualTile) * across;
  if (tiles >= processors) return std::nullopt;
  const int64_t micro_batch = ceil_of(ceil_of(processors, across) * kUsualTile, sequence);
  return fmt::format(
      "micro_batch {} makes matmuls of {} tokens: an output of hidden_size {} has {} tiles of {} x "
      "{}, and {} multiprocessors stand idle. Set micro_batch to {} or more, if memory and "
      "global_batch allow",
      at.choice.micro_batch, text::with_commas(tokens), text::with_commas(at.model().hidden_size),
      tiles, kUsualTile, kUsualTile, processors - tiles, micro_batch);
}

}  // namespace smp::traps
