#include "smp/plan/model/hybrid.h"

#include "smp/plan/base/check.h"

namespace smp::model {

char layer_letter(const ModelSpec& model, int64_t layer) {
  SMP_CHECK(is_hybrid(model) && layer >= 0);
  return model.layer_pattern[static_cast<size_t>(layer) % model.layer_pattern.size()];
}

int64_t letters_between(const ModelSpec& model, char letter, int64_t begin, int64_t end) {
  int64_t count = 0;
  for (int64_t layer = begin; layer < end; ++layer) {
    count += layer_letter(model, layer) == letter ? 1 : 0;
  }
  return count;
}

double mamba_scan_flops(const ModelSpec& model) {
  const auto chunk = static_cast<double>(model.mamba_chunk_size);
  const auto state = static_cast<double>(model.mamba_state_dim);
  const auto head_dim = static_cast<double>(model.mamba_head_dim);
  const double of_group = 2 * chunk * state;
  const double of_head = 2 * chunk * head_dim + 4 * state * head_dim;
  return static_cast<double>(model.mamba_groups) * of_group +
         static_cast<double>(model.mamba_heads) * of_head;
}

}  // namespace smp::model
