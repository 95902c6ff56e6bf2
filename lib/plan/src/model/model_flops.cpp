#include "smp/plan/model/model_flops.h"

#include "smp/plan/model/adapters.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::model {
namespace {

LayerKind kind_of_block(const ModelSpec& model, int64_t block) {
  if (block >= model.num_layers) return LayerKind::kCrossBlock;
  return has_experts(model, block) ? LayerKind::kMoeBlock : LayerKind::kBlock;
}

// Parameters of a block that a token passes through.
double active_parameters(const ParameterCounts& counts, LayerKind kind) {
  const BlockParameters& block = counts.of(kind);
  if (!block.has_experts) return block.each.all();
  return block.each.all() + static_cast<double>(counts.experts_per_token) * counts.expert.all();
}

// Those of its adapters.
double active_adapters(const JobSpec& job, LayerKind block) {
  double sum = 0;
  for (const AdaptedMatrix& matrix :
       adapted_matrices(job.model, block, job.training.lora.targets)) {
    const double copies = matrix.is_expert ? static_cast<double>(job.model.experts_per_token) : 1;
    sum += copies * matrix.parameters(job.training.lora.rank).all();
  }
  return sum;
}

double all_active_adapters(const JobSpec& job) {
  double sum = 0;
  for (const BlockParameters& block : parameter_counts(job.model).blocks) {
    // What predicts a further token adapts its block alone.
    const LayerKind kind = block.kind != LayerKind::kMtpBlock ? block.kind
                           : block.has_experts                ? LayerKind::kMoeBlock
                                                              : LayerKind::kBlock;
    sum += static_cast<double>(block.count) * active_adapters(job, kind);
  }
  return sum;
}

}  // namespace

double model_flops(const ModelSpec& model, int64_t sequence_length, double samples) {
  const ParameterCounts counts = parameter_counts(model);
  // The embedding is no matmul. The head is one whether tied or not, and one more for each further
  // token.
  const double projections = 1 + static_cast<double>(model.num_mtp_layers);
  const double matmuls = counts.active() - counts.embedding.all() - counts.head.all() +
                         projections * counts.vocabulary.all();
  const auto s = static_cast<double>(sequence_length);
  const auto width = static_cast<double>(model.num_heads * model.head_dim);
  const bool hybrid = is_hybrid(model);
  const int64_t attentions =
      hybrid ? letters(model, kAttentionLetter) : block_count(model) + model.num_mtp_layers;
  const double scans =
      hybrid ? static_cast<double>(letters(model, kMambaLetter)) * mamba_scan_flops(model) : 0;
  return samples * s * (6 * matmuls + 12 * static_cast<double>(attentions) * s * width + 3 * scans);
}

double model_flops(const JobSpec& job, double samples) {
  const ModelSpec& model = job.model;
  const int64_t sequence = job.training.sequence_length;
  const double trained = model_flops(model, sequence, samples);
  if (!freezes_weights(job)) return trained;
  const ParameterCounts counts = parameter_counts(model);
  const double tokens = samples * static_cast<double>(sequence);
  if (job.training.lora.rank > 0) {
    const double matmuls =
        counts.active() - counts.embedding.all() - counts.head.all() + counts.vocabulary.all();
    return trained + tokens * (6 * all_active_adapters(job) - 2 * matmuls);
  }
  const FrozenParts parts = frozen_parts(job);
  double first = 0;
  for (int64_t block = 0; block < parts.first_blocks; ++block) {
    first += active_parameters(counts, kind_of_block(model, block));
  }
  double saved = 2 * (first + (parts.projection(model) ? counts.vocabulary.all() : 0));
  if (parts.first_blocks_end_backward()) {
    const auto width = static_cast<double>(model.num_heads * model.head_dim);
    saved += 2 * first +
             8 * static_cast<double>(parts.first_blocks) * static_cast<double>(sequence) * width;
  }
  return trained - tokens * saved;
}

double peak_flops_per_s(const ClusterSpec& cluster, Precision precision) {
  switch (precision) {
    case Precision::kFp32: return cluster.fp32_flops_per_s;
    case Precision::kFp64: return cluster.fp32_flops_per_s / 2;
    case Precision::kBf16:
    case Precision::kFp16: return cluster.half_flops_per_s;
    case Precision::kFp8: return cluster.fp8_flops_per_s;
    case Precision::kNvfp4: return cluster.fp4_flops_per_s;
  }
  return 0;
}

}  // namespace smp::model
