#include "smp/plan/model/model_flops.h"

#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::model {

double model_flops(const ModelSpec& model, int64_t sequence_length, double samples) {
  const ParameterCounts counts = parameter_counts(model);
  // The embedding is no matmul, the head is one whether tied or not.
  const double matmuls =
      counts.active() - counts.embedding.all() - counts.head.all() + counts.vocabulary.all();
  const auto s = static_cast<double>(sequence_length);
  const auto width = static_cast<double>(model.num_heads * model.head_dim);
  const bool hybrid = is_hybrid(model);
  const int64_t attentions = hybrid ? letters(model, kAttentionLetter) : block_count(model);
  const double scans =
      hybrid ? static_cast<double>(letters(model, kMambaLetter)) * mamba_scan_flops(model) : 0;
  return samples * s * (6 * matmuls + 12 * static_cast<double>(attentions) * s * width + 3 * scans);
}

double peak_flops_per_s(const ClusterSpec& cluster, Precision precision) {
  switch (precision) {
    case Precision::kFp32: return cluster.fp32_flops_per_s;
    case Precision::kFp64: return cluster.fp32_flops_per_s / 2;
    case Precision::kBf16:
    case Precision::kFp16: return cluster.half_flops_per_s;
    case Precision::kFp8: return cluster.fp8_flops_per_s;
  }
  return 0;
}

}  // namespace smp::model
