#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"

// The models and layouts of the parity tests. Nothing divides evenly that need not: 5 layers,
// 3 microbatches, odd vocabularies, 2 KV heads under up to 4 tensor ranks.
namespace smp::parity {

struct LayoutCase {
  std::string name;
  mesh::Degrees degrees;
  PipelineKind pipeline = PipelineKind::kInterleaved;
  Sharding sharding = Sharding::kOptimizerState;  // where the shard degree is above 1
  int64_t virtual_stages = 1;
  Recompute recompute = Recompute::kNone;
  int64_t recompute_layers = -1;  // of each stage; -1 = all
  std::string strategy = "each";  // of checkpoints
  bool offload_activations = false;
  bool offload_optimizer = false;
  bool offload_parameters = false;
  int64_t microbatches = 3;
  int64_t active_microbatches = 0;  // 0 = all
  double gradient_clipping = 1;
  std::vector<int64_t> partition = {};
  bool deterministic = false;
  int64_t max_live_parameters = 0;
  int64_t prefetch_layers = 1;
  int64_t shard_bucket_bytes = 1;  // one layer each
  int64_t param_persistence_threshold = 0;
  bool sequence_parallel = false;
  TensorKinds kinds = {};
  Fusions fusions = {};
};

// Against one rank; all with the same global batch.
std::vector<LayoutCase> layouts();
// Sequences split over the tensor ranks, beside everything that they may meet.
std::vector<LayoutCase> split_sequences();
// Tensor ranks that share some kinds of matrices alone.
std::vector<LayoutCase> shared_kinds();
// Without fusions, or without one of them.
std::vector<LayoutCase> unfused();
// Sharded buckets of several layers, small tensors that stay gathered, and layers gathered far
// ahead.
std::vector<LayoutCase> small_layers();
// The pipeline schedules, with microbatches below, at and not divisible by p, and caps.
std::vector<LayoutCase> schedules();
// Without clipping, so that each bucket is updated as soon as it is reduced.
std::vector<LayoutCase> unclipped();

// Of an encoder and a decoder of 5 blocks in all: cut inside either and between them.
std::vector<LayoutCase> stacks();
// 18 that have every degree, sharding, schedule and memory technique, for long runs.
std::vector<LayoutCase> mixed_layouts();

ModelSpec gpt2_model();
ModelSpec gpt2_untied_model();
ModelSpec llama_model();
ModelSpec llama_tied_model();
ModelSpec qwen2_model();  // biases of queries, keys and values
ModelSpec qwen3_model();  // norms of queries and keys, heads of a size of their own
ModelSpec phi_model();    // parallel residual, one norm, rotary positions, biases in the head too
// T5's: 2 blocks of an encoder, 3 of a decoder; 1.0 is tied, 1.1 gated and untied.
ModelSpec t5_model();
ModelSpec t5_gated_model();
ModelSpec mixtral_model();  // experts in every layer
// Behind a dense layer, in groups, beside an expert for all tokens; with latent attention.
ModelSpec olmoe_model();
ModelSpec gpt_oss_model();
ModelSpec deepseek_model();
ModelSpec deepseek_v3_model();
ModelSpec deepseek_lite_model();
ModelSpec image_model();  // a list with every kind of operator; shapes differ between all layers
// The same model with twice the width and heads.
ModelSpec wider(ModelSpec model);

// A resolved plan, as smp-plan would write it. The global batch is 12 samples whatever the layout:
// microbatches x data-parallel degree divides it.
Plan plan_of(const ModelSpec& model, const LayoutCase& layout, Precision precision,
             const std::string& data_path);

// Deterministic text to train on.
std::string sample_text(int64_t bytes);
// Deterministic images for a list, with their labels.
std::string sample_images(const ModelSpec& model, int64_t count);
// What plan_of()'s data_path may hold for the model.
std::string sample_data(const ModelSpec& model);

// Deterministic tokens of documents of 1 to 80 tokens, each of which ends with kEndOfDocument; and
// a mask of them: a byte each, 0 or 1 in runs of 1 to 80, so that of some samples nothing counts.
inline constexpr int64_t kEndOfDocument = 0;
std::vector<uint16_t> sample_tokens(int64_t count);
std::vector<uint8_t> sample_mask(int64_t count);

}  // namespace smp::parity
