#include "parity/combination.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "smp/plan/spec/job_names.h"
#include "smp/planner/memory/memory_model.h"

namespace smp::parity {
namespace {

constexpr std::array<int64_t, 5> kPipelines{1, 2, 3, 4, 8};
constexpr std::array<int64_t, 3> kTensors{1, 2, 4};
constexpr std::array<int64_t, 4> kShards{1, 2, 4, 8};
constexpr std::array<int64_t, 3> kReplicas{1, 2, 4};
struct SharedSequence {
  const char* name;
  int64_t ring, exchange;
  int64_t degree() const { return ring * exchange; }
};
constexpr std::array<SharedSequence, 6> kContexts{{{"1", 1, 1},
                                                   {"ring 2", 2, 1},
                                                   {"exchange 2", 1, 2},
                                                   {"ring 4", 4, 1},
                                                   {"exchange 4", 1, 4},
                                                   {"ring 2 x exchange 2", 2, 2}}};
constexpr std::array<int64_t, 3> kExpertDegrees{1, 2, 4};
constexpr std::array<Sharding, 4> kShardings{Sharding::kNone, Sharding::kOptimizerState,
                                             Sharding::kGradients, Sharding::kParameters};
constexpr std::array<PipelineKind, 5> kSchedules{PipelineKind::kSimple, PipelineKind::kInterleaved,
                                                 PipelineKind::kVirtual, PipelineKind::kZbH1,
                                                 PipelineKind::kZbV};
struct Again {
  const char* name;
  Recompute recompute;
  int64_t layers;
  const char* strategy = "each";
};
constexpr std::array<Again, 6> kRecomputes{{{"none", Recompute::kNone, -1},
                                            {"full", Recompute::kFull, -1},
                                            {"1 layer", Recompute::kFull, 1},
                                            {"selective", Recompute::kSelective, -1},
                                            {"group_2", Recompute::kFull, -1, "group_2"},
                                            {"contiguous", Recompute::kFull, -1, "contiguous"}}};
constexpr std::array<int64_t, 5> kMicrobatchCounts{1, 2, 3, 4, 6};

struct Small {
  int64_t shard_bucket_bytes;
  int64_t param_persistence_threshold;
};
constexpr std::array<Small, 3> kSmalls{{{1, 0}, {600 << 10, 0}, {1, 500}}};

constexpr std::array<Precision, 4> kPrecisions{Precision::kFp64, Precision::kFp32, Precision::kBf16,
                                               Precision::kFp16};

// Llama's has 2 KV heads under up to 4 tensor ranks, T5's an encoder and a decoder.
struct Family {
  const char* name;
  ModelSpec (*model)();
};
constexpr std::array<Family, 7> kFamilies{{{"gpt2", gpt2_untied_model},
                                           {"llama", llama_model},
                                           {"t5", t5_model},
                                           {"mixtral", mixtral_model},
                                           {"olmoe", olmoe_model},
                                           {"gpt-oss", gpt_oss_model},
                                           {"deepseek", deepseek_v3_model}}};

constexpr int64_t kBatch = 12;       // of layouts.h
constexpr double kNormLimit = 0.02;  // below the gradient norms of all these models

template <class Values>
std::vector<std::string> numbers(const Values& values) {
  std::vector<std::string> texts;
  for (const int64_t value : values) texts.push_back(fmt::format("{}", value));
  return texts;
}
template <class Values>
std::vector<std::string> names(const Values& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.emplace_back(value.name);
  return texts;
}
template <class Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> texts;
  for (const auto value : values) texts.emplace_back(name_of(value));
  return texts;
}

template <class Values>
const auto& value_of(const Choice& choice, const Values& values, Factor factor) {
  return values[static_cast<size_t>(choice[factor])];
}

// The values that are not the plain ones.
std::string text_of(const Choice& choice) {
  std::string text = factor_names()[kFamily].values[static_cast<size_t>(choice[kFamily])];
  for (size_t f = 0; f < kFactors; ++f) {
    if (choice[f] == 0 || f == kFamily) continue;
    const FactorNames& factor = factor_names()[f];
    const std::string& value = factor.values[static_cast<size_t>(choice[f])];
    text += value == "on" ? fmt::format(", {}", factor.name)
                          : fmt::format(", {} {}", factor.name, value);
  }
  return text;
}

}  // namespace

const std::array<FactorNames, kFactors>& factor_names() {
  static const std::array<FactorNames, kFactors> factors{
      {{"pipeline", numbers(kPipelines)},
       {"tensor", numbers(kTensors)},
       {"shard", numbers(kShards)},
       {"replica", numbers(kReplicas)},
       {"context", names(kContexts)},
       {"experts over", numbers(kExpertDegrees)},
       {"sharding", names_of(kShardings)},
       {"schedule", names_of(kSchedules)},
       {"recompute", names(kRecomputes)},
       {"offload",
        {"none", "activations", "optimizer", "activations and optimizer",
         "optimizer and parameters", "activations, optimizer and parameters"}},
       {"microbatches", numbers(kMicrobatchCounts)},
       {"active", {"all", "half"}},
       {"family", names(kFamilies)},
       {"tied", {"off", "on"}},
       {"dropout", {"off", "on"}},
       {"split sequences", {"off", "on"}},
       {"small tensors", {"apart", "packed", "gathered"}},
       {"precision", names_of(kPrecisions)},
       {"documents", {"off", "on"}},
       {"masked", {"off", "on"}},
       {"clipping", {"on", "off"}}}};
  return factors;
}

Combination::Combination(const Choice& values)
    : choice(values), precision(value_of(values, kPrecisions, kPrecision)) {
  layout.name = text_of(choice);
  layout.degrees.pipeline = value_of(choice, kPipelines, kPipeline);
  layout.degrees.tensor = value_of(choice, kTensors, kTensor);
  layout.degrees.shard = value_of(choice, kShards, kShard);
  layout.degrees.replica = value_of(choice, kReplicas, kReplica);
  const SharedSequence& context = value_of(choice, kContexts, kContext);
  layout.degrees.context = context.degree();
  layout.degrees.exchange = context.exchange;
  layout.degrees.expert = value_of(choice, kExpertDegrees, kExperts);
  layout.sharding = value_of(choice, kShardings, kSharding);
  layout.pipeline = value_of(choice, kSchedules, kSchedule);
  const bool has_two_chunks =
      layout.pipeline == PipelineKind::kVirtual || layout.pipeline == PipelineKind::kZbV;
  layout.virtual_stages = has_two_chunks ? 2 : 1;
  const Again& again = value_of(choice, kRecomputes, kRecompute);
  layout.recompute = again.recompute;
  layout.recompute_layers = again.layers;
  layout.strategy = again.strategy;
  layout.offload_activations = choice[kOffload] % 2 == 1;
  layout.offload_optimizer = choice[kOffload] / 2 >= 1;
  layout.offload_parameters = choice[kOffload] / 2 == 2;
  layout.microbatches = value_of(choice, kMicrobatchCounts, kMicrobatches);
  if (choice[kActive] == 1) layout.active_microbatches = (layout.microbatches + 1) / 2;
  layout.sequence_parallel = choice[kSequence] == 1;
  const Small& small = value_of(choice, kSmalls, kSmall);
  layout.shard_bucket_bytes = small.shard_bucket_bytes;
  layout.param_persistence_threshold = small.param_persistence_threshold;
  layout.gradient_clipping = choice[kClipping] == 0 ? kNormLimit : 0;
}

ModelSpec Combination::model() const {
  ModelSpec model = value_of(choice, kFamilies, kFamily).model();
  model.num_layers = 8;  // 2 chunks on each of 4 stages
  if (model.stack == Stack::kEncoderDecoder) model.num_layers = model.decoder_layers = 4;
  model.tied_embeddings = choice[kTied] == 1;
  if (choice[kDropout] == 1) {
    model.hidden_dropout = 0.1;
    model.attention_dropout = 0.2;
  }
  return model;
}

LayoutCase Combination::one_rank() const {
  LayoutCase one{"one rank", {}};
  one.gradient_clipping = layout.gradient_clipping;
  return one;
}

Combination Combination::with_layout_of(const Combination& other) const {
  Choice mixed = other.choice;
  for (const Factor factor :
       {kFamily, kTied, kDropout, kPrecision, kDocuments, kMasked, kClipping}) {
    mixed[factor] = choice[factor];
  }
  return Combination(mixed);
}

std::array<int, 6> Combination::trained() const {
  return {choice[kFamily],    choice[kTied],   choice[kDropout],
          choice[kDocuments], choice[kMasked], choice[kClipping]};
}

Plan Combination::plan_of(const LayoutCase& one, Precision of, const std::string& data_path) const {
  Plan plan = parity::plan_of(model(), one, of, data_path);
  TrainingSpec& training = plan.job.training;
  training.data_format = DataFormat::kNanogpt;
  training.data_loss_mask = choice[kMasked] == 1;
  if (choice[kDocuments] == 1) {
    training.data_pack = Packing::kDocuments;
    training.data_end_of_document = kEndOfDocument;
  }
  training.loss_scale.init_scale = 1024;  // which nothing overflows
  if (choice[kDocuments] + choice[kMasked] > 0) {
    plan.predictions.ranks = memory::predict_memory(plan);
  }
  return plan;
}

std::string write_data(const std::string& folder) {
  constexpr int64_t kTokens = 60000;  // of 100 steps and more
  const auto write = [&](const std::string& name, const auto& values) {
    std::ofstream(folder + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(values[0])));
  };
  write("/tokens.bin", sample_tokens(kTokens));
  write("/tokens.mask.bin", sample_mask(kTokens));
  return folder + "/tokens.bin";
}

bool is_sensible(const Choice& choice) {
  const int64_t pipeline = value_of(choice, kPipelines, kPipeline);
  const int64_t tensor = value_of(choice, kTensors, kTensor);
  const int64_t shard = value_of(choice, kShards, kShard);
  const int64_t data = shard * value_of(choice, kReplicas, kReplica);
  const Sharding sharding = value_of(choice, kShardings, kSharding);
  const int64_t context = value_of(choice, kContexts, kContext).degree();
  if (pipeline * tensor * context * data > 8) return false;
  const int64_t experts = value_of(choice, kExpertDegrees, kExperts);
  const int64_t of_model = value_of(choice, kFamilies, kFamily).model().num_experts;
  if (experts > 1 && (of_model == 0 || of_model % experts != 0)) return false;
  const int64_t of_copy = tensor * context * (sharding == Sharding::kNone ? data : shard);
  if (experts > 1 && (of_copy % experts != 0 || experts % tensor != 0)) return false;
  const bool can_shard = shard > 1 || (context > 1 && data == 1);
  if (sharding == Sharding::kNone ? shard > 1 : !can_shard) return false;
  if (choice[kSequence] == 1 && tensor == 1) return false;
  if (choice[kSmall] == 1 && sharding < Sharding::kGradients) return false;
  if (choice[kSmall] == 2 && sharding != Sharding::kParameters) return false;
  if (kBatch % (value_of(choice, kMicrobatchCounts, kMicrobatches) * data) != 0) return false;
  const PipelineKind schedule = value_of(choice, kSchedules, kSchedule);
  return pipeline > 1 || schedule == PipelineKind::kSimple ||
         schedule == PipelineKind::kInterleaved;
}

}  // namespace smp::parity
