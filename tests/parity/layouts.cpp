#include "parity/layouts.h"

#include <fmt/format.h>

#include "plan/list_samples.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/program/fusions.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/spec/job_names.h"
#include "smp/planner/memory/memory_model.h"

namespace smp::parity {
namespace {

constexpr int64_t kGlobalBatch = 12;

}  // namespace

std::vector<LayoutCase> layouts() {
  const auto simple = PipelineKind::kSimple;
  const auto one_f_one_b = PipelineKind::kInterleaved;
  const auto two = Sharding::kGradients, three = Sharding::kParameters;
  LayoutCase nothing_ahead{"d2 ZeRO-3, nothing gathered ahead", {.shard = 2}, one_f_one_b, three};
  nothing_ahead.max_live_parameters = 1;
  return {
      nothing_ahead,
      {"t2", {.tensor = 2}},
      {"t4", {.tensor = 4}},
      {"p2", {.pipeline = 2}},
      {"p2 simple", {.pipeline = 2}, simple},
      {"p3", {.pipeline = 3}},
      {"p4", {.pipeline = 4}},
      {"p4 simple", {.pipeline = 4}, simple},
      {"d2", {.replica = 2}},
      {"d2 ZeRO-1", {.shard = 2}},
      {"d4 ZeRO-1", {.shard = 4}},
      {"d4 ZeRO-1 over 2", {.shard = 2, .replica = 2}},
      {"t2p2", {.pipeline = 2, .tensor = 2}},
      {"p2d2", {.pipeline = 2, .replica = 2}},
      {"p2d2 ZeRO-1", {.pipeline = 2, .shard = 2}},
      {"t2d2", {.tensor = 2, .replica = 2}},
      {"t2p2d2 ZeRO-1", {.pipeline = 2, .tensor = 2, .shard = 2}},
      {"d2 ZeRO-2", {.shard = 2}, one_f_one_b, two},
      {"d4 ZeRO-2", {.shard = 4}, one_f_one_b, two},
      {"d4 ZeRO-2 over 2", {.shard = 2, .replica = 2}, one_f_one_b, two},
      {"p2d2 ZeRO-2", {.pipeline = 2, .shard = 2}, one_f_one_b, two},
      {"t4d2 ZeRO-2", {.tensor = 4, .shard = 2}, one_f_one_b, two},
      {"d2 ZeRO-3", {.shard = 2}, one_f_one_b, three},
      {"d4 ZeRO-3", {.shard = 4}, one_f_one_b, three},
      {"d4 ZeRO-3 over 2", {.shard = 2, .replica = 2}, one_f_one_b, three},
      {"p2d2 ZeRO-3 simple", {.pipeline = 2, .shard = 2}, simple, three},
      {"t4d2 ZeRO-3", {.tensor = 4, .shard = 2}, one_f_one_b, three},
      {"t2p2d2 ZeRO-3", {.pipeline = 2, .tensor = 2, .shard = 2}, one_f_one_b, three},
  };
}

std::vector<LayoutCase> small_layers() {
  const auto one_f_one_b = PipelineKind::kInterleaved;
  const auto two = Sharding::kGradients, three = Sharding::kParameters;
  constexpr int64_t kTwoBlocks = 300 << 10;
  constexpr int64_t kNormsAndBiases = 500, kBlocks = 10000, kAll = 1 << 30;  // thresholds
  std::vector<LayoutCase> layouts;
  const auto add = [&](LayoutCase layout, int64_t bucket_bytes, int64_t threshold) {
    layout.name += fmt::format(", buckets of {} bytes, threshold {}", bucket_bytes, threshold);
    layout.shard_bucket_bytes = bucket_bytes;
    layout.param_persistence_threshold = threshold;
    layouts.push_back(layout);
  };
  add({"d2 ZeRO-2", {.shard = 2}, one_f_one_b, two}, kTwoBlocks, 0);
  add({"d4 ZeRO-3", {.shard = 4}, one_f_one_b, three}, kTwoBlocks, 0);
  add({"d3 ZeRO-3", {.shard = 3}, one_f_one_b, three}, 1, kNormsAndBiases);
  layouts.back().microbatches = 2;
  add({"d2 ZeRO-3 over 2", {.shard = 2, .replica = 2}, one_f_one_b, three}, kTwoBlocks,
      kNormsAndBiases);
  add({"p2d2 ZeRO-3 virtual", {.pipeline = 2, .shard = 2}, PipelineKind::kVirtual, three, 2}, 1,
      kBlocks);
  layouts.back().microbatches = 2;
  add({"p2d2 ZeRO-3 zb_h1", {.pipeline = 2, .shard = 2}, PipelineKind::kZbH1, three}, 1,
      kNormsAndBiases);
  add({"t4d2 ZeRO-3", {.tensor = 4, .shard = 2}, one_f_one_b, three}, 1, kAll);
  add({"d2 ZeRO-3", {.shard = 2}, one_f_one_b, three}, 1, kAll);
  add({"d2 ZeRO-3, 3 layers ahead", {.shard = 2}, one_f_one_b, three}, 1, 0);
  layouts.back().prefetch_layers = 3;
  return layouts;
}

std::vector<LayoutCase> split_sequences() {
  const auto one_f_one_b = PipelineKind::kInterleaved, zb_h1 = PipelineKind::kZbH1;
  const auto one = Sharding::kOptimizerState, three = Sharding::kParameters;
  std::vector<LayoutCase> layouts{
      {"t2", {.tensor = 2}},
      {"t4", {.tensor = 4}},
      {"t2p2d2 ZeRO-1", {.pipeline = 2, .tensor = 2, .shard = 2}},
      {"t4d2 ZeRO-3", {.tensor = 4, .shard = 2}, one_f_one_b, three},
      {"t2p3 full recompute", {.pipeline = 3, .tensor = 2}, one_f_one_b, one, 1, Recompute::kFull},
      {"t2p2 zero bubble", {.pipeline = 2, .tensor = 2}, zb_h1},
      {"t2p2d2 ZeRO-3 zb_v",
       {.pipeline = 2, .tensor = 2, .shard = 2},
       PipelineKind::kZbV,
       three,
       2},
      {"t2p2 virtual, offloaded", {.pipeline = 2, .tensor = 2}, PipelineKind::kVirtual, one, 2},
  };
  layouts.back().offload_activations = true;
  layouts.back().microbatches = 4;
  for (LayoutCase& layout : layouts) {
    layout.name += ", split sequences";
    layout.sequence_parallel = true;
  }
  return layouts;
}

std::vector<LayoutCase> unfused() {
  const auto one_f_one_b = PipelineKind::kInterleaved, zb_h1 = PipelineKind::kZbH1;
  const auto one = Sharding::kOptimizerState, three = Sharding::kParameters;
  std::vector<LayoutCase> layouts{
      {"one rank", {}},
      {"t2p2 zero bubble", {.pipeline = 2, .tensor = 2}, zb_h1},
      {"d2 ZeRO-3, selective", {.shard = 2}, one_f_one_b, three, 1, Recompute::kSelective},
      {"p2 full recompute", {.pipeline = 2}, one_f_one_b, one, 1, Recompute::kFull},
      {"t2p2, split sequences", {.pipeline = 2, .tensor = 2}},
  };
  layouts.back().sequence_parallel = true;
  for (LayoutCase& layout : layouts) layout.fusions = program::kUnfused;
  for (const program::FusionRule& rule : program::fusion_rules()) {
    layouts.push_back({fmt::format("one rank, without {}", rule.name), {}});
    layouts.back().fusions.*rule.is_on = false;
  }
  return layouts;
}

std::vector<LayoutCase> shared_kinds() {
  const auto one_f_one_b = PipelineKind::kInterleaved;
  const auto three = Sharding::kParameters;
  const TensorKinds no_attention{.attention = false}, no_mlp{.mlp = false};
  const TensorKinds no_embedding{.embedding = false},
      mlp_alone{.attention = false, .embedding = false};
  std::vector<LayoutCase> layouts;
  const auto add = [&](const char* name, const TensorKinds& kinds, LayoutCase layout) {
    layout.name = name;
    layout.kinds = kinds;
    layouts.push_back(layout);
  };
  add("t4, attention whole", no_attention, {"", {.tensor = 4}});
  add("t2p2, MLPs whole", no_mlp, {"", {.pipeline = 2, .tensor = 2}});
  add("t2p2d2 ZeRO-1, embedding whole", no_embedding,
      {"", {.pipeline = 2, .tensor = 2, .shard = 2}});
  add("t4d2 ZeRO-3, MLPs alone shared", mlp_alone,
      {"", {.tensor = 4, .shard = 2}, one_f_one_b, three});
  LayoutCase split{"", {.pipeline = 2, .tensor = 2}, PipelineKind::kZbH1};
  split.sequence_parallel = true;
  add("t2p2 zero bubble, MLPs alone shared, split sequences", mlp_alone, split);
  add("t2p2 zero bubble, embedding whole, split sequences", no_embedding, split);
  return layouts;
}

std::vector<LayoutCase> schedules() {
  const auto interleaved = PipelineKind::kInterleaved;
  const auto chunks = PipelineKind::kVirtual;
  const auto zb_h1 = PipelineKind::kZbH1;
  const auto zb_v = PipelineKind::kZbV;
  const auto with = [](PipelineKind kind, const mesh::Degrees& degrees, int64_t microbatches,
                       int64_t active = 0) {
    LayoutCase layout;
    layout.name = fmt::format("{} p{} t{} z{} m{} active {}", name_of(kind), degrees.pipeline,
                              degrees.tensor, degrees.shard, microbatches, active);
    layout.degrees = degrees;
    layout.pipeline = kind;
    layout.virtual_stages = kind == PipelineKind::kVirtual || kind == PipelineKind::kZbV ? 2 : 1;
    layout.microbatches = microbatches;
    layout.active_microbatches = active;
    return layout;
  };
  const auto uneven = [](LayoutCase layout, std::vector<int64_t> partition) {
    layout.name += " uneven";
    layout.partition = std::move(partition);
    return layout;
  };
  return {
      uneven(with(interleaved, {.pipeline = 3}, 2), {1, 3, 1}),
      uneven(with(zb_v, {.pipeline = 2}, 3), {1, 2, 1, 1}),
      uneven(with(chunks, {.pipeline = 2}, 2), {1, 1, 2, 1}),
      with(zb_h1, {.pipeline = 2}, 1),
      with(zb_h1, {.pipeline = 2}, 3),
      with(zb_h1, {.pipeline = 3}, 6),
      with(zb_h1, {.pipeline = 4}, 4),
      with(zb_h1, {.pipeline = 4}, 6, 2),
      with(chunks, {.pipeline = 2}, 2),
      with(chunks, {.pipeline = 2}, 6),
      with(chunks, {.pipeline = 2}, 6, 2),
      with(zb_v, {.pipeline = 2}, 1),
      with(zb_v, {.pipeline = 2}, 2),
      with(zb_v, {.pipeline = 2}, 3),
      with(zb_v, {.pipeline = 2}, 6),
      with(interleaved, {.pipeline = 4}, 6, 2),
      with(PipelineKind::kSimple, {.pipeline = 3}, 4, 2),
      with(zb_v, {.pipeline = 2, .tensor = 2}, 3),
      with(chunks, {.pipeline = 2, .tensor = 2}, 4),
      with(zb_h1, {.pipeline = 2, .shard = 2}, 3),
      with(zb_v, {.pipeline = 2, .shard = 2}, 3),
      with(chunks, {.pipeline = 2, .tensor = 2, .shard = 2}, 2),
  };
}

std::vector<LayoutCase> unclipped() {
  std::vector<LayoutCase> all;
  for (const LayoutCase& layout : layouts()) {
    const bool replicas = layout.degrees.data() > 1;
    if (!replicas || layout.degrees.tensor > 2) continue;
    all.push_back(layout);
    all.back().gradient_clipping = 0;
  }
  return all;
}

std::vector<LayoutCase> stacks() {
  const auto simple = PipelineKind::kSimple, one_f_one_b = PipelineKind::kInterleaved;
  LayoutCase again{"p2 recompute", {.pipeline = 2}};
  again.recompute = Recompute::kFull;
  LayoutCase partly{"p3 recompute 1", {.pipeline = 3}};
  partly.recompute = Recompute::kFull;
  partly.recompute_layers = 1;
  LayoutCase chunks{"p2 virtual", {.pipeline = 2}, PipelineKind::kVirtual};
  chunks.virtual_stages = chunks.microbatches = 2;
  LayoutCase away{"offload", {}};
  away.offload_activations = true;
  LayoutCase both{"p2 recompute offload", {.pipeline = 2}};
  both.recompute = Recompute::kFull;
  both.offload_activations = true;
  return {
      {"p2", {.pipeline = 2}},
      {"p3", {.pipeline = 3}},
      {"p4 simple", {.pipeline = 4}, simple},
      {"t2", {.tensor = 2}},
      {"t2p2d2 ZeRO-1", {.pipeline = 2, .tensor = 2, .shard = 2}},
      {"d2 ZeRO-2", {.shard = 2}, one_f_one_b, Sharding::kGradients},
      {"p2d2 ZeRO-3", {.pipeline = 2, .shard = 2}, one_f_one_b, Sharding::kParameters},
      chunks,
      {"p3 zb_h1", {.pipeline = 3}, PipelineKind::kZbH1},
      {"p2 zb_v", {.pipeline = 2}, PipelineKind::kZbV, Sharding::kNone, 2},
      again,
      partly,
      away,
      both,
  };
}

std::vector<LayoutCase> mixed_layouts() {
  const auto one_f_one_b = PipelineKind::kInterleaved;
  const auto two = Sharding::kGradients, three = Sharding::kParameters;
  std::vector<LayoutCase> mixed = {
      {"t2", {.tensor = 2}},
      {"t4", {.tensor = 4}},
      {"p3", {.pipeline = 3}},
      {"p4 simple", {.pipeline = 4}, PipelineKind::kSimple},
      {"d2", {.replica = 2}},
      {"d4 ZeRO-1", {.shard = 4}},
      {"d4 ZeRO-2", {.shard = 4}, one_f_one_b, two},
      {"d4 ZeRO-3", {.shard = 4}, one_f_one_b, three},
      {"d4 ZeRO-3 over 2", {.shard = 2, .replica = 2}, one_f_one_b, three},
      {"t4d2 ZeRO-2", {.tensor = 4, .shard = 2}, one_f_one_b, two},
      {"t2p2d2 ZeRO-1", {.pipeline = 2, .tensor = 2, .shard = 2}},
      {"t2p2d2 ZeRO-3", {.pipeline = 2, .tensor = 2, .shard = 2}, one_f_one_b, three},
      {"p4 zb_h1", {.pipeline = 4}, PipelineKind::kZbH1},
      {"p2d2 virtual", {.pipeline = 2, .replica = 2}, PipelineKind::kVirtual},
      {"p2t2 zb_v", {.pipeline = 2, .tensor = 2}, PipelineKind::kZbV},
      {"p2 recompute", {.pipeline = 2}},
      {"p2d2 ZeRO-2 offload", {.pipeline = 2, .shard = 2}, one_f_one_b, two},
      {"d2 ZeRO-3 recompute and offload", {.shard = 2}, one_f_one_b, three},
  };
  for (LayoutCase& layout : mixed) {
    const auto has = [&](const char* word) { return layout.name.find(word) != std::string::npos; };
    if (has("recompute")) layout.recompute = Recompute::kFull;
    layout.offload_activations = has("offload");
    if (has("virtual") || has("zb_v")) {
      layout.virtual_stages = 2;
      layout.microbatches = 2;
    }
  }
  return mixed;
}

Plan plan_of(const ModelSpec& model, const LayoutCase& layout, Precision precision,
             const std::string& data_path) {
  Plan plan;
  JobSpec& job = plan.job;
  job.name = "parity";
  job.model = model;
  job.cluster.name = "threads";
  job.cluster.processes_per_host = layout.degrees.world();
  job.cluster.memory_per_process_bytes = 1 << 30;
  TrainingSpec& training = job.training;
  training.sequence_length = model::is_list(model) ? 1 : 32;
  training.images = {model.input_channels, model.input_height, model.input_width, 255};
  training.microbatches = layout.microbatches;
  training.micro_batch = kGlobalBatch / layout.microbatches / layout.degrees.data();
  training.global_batch = kGlobalBatch;
  training.precision = precision;
  training.deterministic = layout.deterministic;
  training.steps = 50;
  training.optimizer.learning_rate = 2e-3;
  training.optimizer.min_learning_rate = 2e-4;
  training.optimizer.warmup_steps = 5;
  training.optimizer.gradient_clipping = layout.gradient_clipping;
  training.data_path = data_path;
  ParallelSpec& parallel = job.parallel;
  parallel.pipeline_parallel_degree = layout.degrees.pipeline;
  parallel.tensor_parallel_degree = layout.degrees.tensor;
  parallel.sharded_data_parallel_degree = layout.degrees.shard;
  parallel.context_parallel_degree = layout.degrees.context;
  parallel.context_exchange_degree = layout.degrees.exchange;
  if (model.num_experts > 0) parallel.expert_parallel_degree = layout.degrees.expert;
  const bool over_context = layout.degrees.context > 1 && layout.degrees.data() == 1;
  parallel.sharding = layout.degrees.shard > 1 || over_context ? layout.sharding : Sharding::kNone;
  parallel.shard_optimizer_state =
      parallel.sharding == Sharding::kOptimizerState && layout.degrees.replica == 1;
  parallel.pipeline = layout.pipeline;
  parallel.virtual_pipeline_degree = layout.virtual_stages;
  parallel.partition = layout.partition;
  parallel.active_microbatches =
      layout.active_microbatches > 0 ? layout.active_microbatches : layout.microbatches;
  parallel.recompute = layout.recompute;
  parallel.activation_checkpointing = layout.recompute == Recompute::kFull;
  if (layout.recompute_layers >= 0) parallel.recompute_layers = layout.recompute_layers;
  parallel.activation_checkpointing_strategy = layout.strategy;
  parallel.offload_activations = layout.offload_activations;
  parallel.sequence_parallel = layout.sequence_parallel;
  parallel.tensor_parallel = layout.kinds;
  training.fusions = layout.fusions;
  parallel.offload_optimizer = layout.offload_optimizer;
  parallel.offload_parameters = layout.offload_parameters;
  parallel.delayed_parameter_initialization = true;
  parallel.max_live_parameters = layout.max_live_parameters;
  parallel.prefetch_layers = layout.prefetch_layers;
  parallel.bucket_bytes = 300 << 10;  // several buckets a stage
  parallel.shard_bucket_bytes = layout.shard_bucket_bytes;
  parallel.param_persistence_threshold = layout.param_persistence_threshold;
  plan.degrees = rules::degrees_of(job);
  plan.predictions.ranks = memory::predict_memory(plan);
  return plan;
}

}  // namespace smp::parity
