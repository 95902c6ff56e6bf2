#include "smp/plan/model/persistent_tensors.h"

#include <algorithm>

namespace smp::model {

std::vector<bool> persistent_tensors(const std::vector<ParameterSpec>& tensors, int64_t threshold,
                                     bool kv_copied, bool shares_experts) {
  std::vector<bool> persistent;
  persistent.reserve(tensors.size());
  for (auto first = tensors.begin(); first != tensors.end();) {
    // Keys and values follow their queries, and so do their biases.
    const auto last = std::find_if(first + 1, tensors.end(), [&](const ParameterSpec& tensor) {
      return tensor.split != TensorSplit::kKvHeads || tensor.is_vector != first->is_vector;
    });
    const bool are_small = std::all_of(first, last, [&](const ParameterSpec& tensor) {
      const bool is_copied = kv_copied && tensor.split == TensorSplit::kKvHeads;
      const bool is_apart = shares_experts && tensor.is_expert;
      return tensor.size() < threshold && !is_copied && !is_apart;
    });
    persistent.insert(persistent.end(), static_cast<size_t>(last - first), are_small);
    first = last;
  }
  return persistent;
}

}  // namespace smp::model
