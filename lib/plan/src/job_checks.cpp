#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "choices.h"
#include "job_builder.h"
#include "smp/plan/data_files.h"
#include "smp/plan/model_family.h"

// Defaults that follow from other keys, and what keys must say together. A check is silent when a
// key that it looks at is wrong by itself.
namespace smp {

namespace {

constexpr int64_t kGpt2Positions = 1024;   // GPT-2's own
constexpr int64_t kLlamaPositions = 4096;  // Llama 2's own
constexpr double kLearningRateFall = 10;   // from the first to the last of the cosine

}  // namespace

void JobBuilder::resolve_model() {
  ModelSpec& model = spec_.model;
  set_family(model, model.family);
  const bool gpt2 = model.family == ModelFamily::kGpt2;
  if (!given("model.num_kv_heads")) model.num_kv_heads = model.num_heads;
  if (!given("model.tied_embeddings")) model.tied_embeddings = gpt2;
  if (!given("model.ffn_hidden_size") && gpt2) model.ffn_hidden_size = 4 * model.hidden_size;
  if (!given("model.max_positions")) {
    model.max_positions = gpt2                                ? kGpt2Positions
                          : given("training.sequence_length") ? spec_.training.sequence_length
                                                              : kLlamaPositions;
  }
  if (!given("model.head_dim") &&
      usable({"model.hidden_size", "model.num_heads", "model.head_dim"})) {
    if (model.hidden_size % model.num_heads == 0) {
      model.head_dim = model.hidden_size / model.num_heads;
    } else {
      error({"model.num_heads"}, fmt::format("hidden_size ({}) is not divisible by num_heads ({})",
                                             model.hidden_size, model.num_heads));
      entries_["model.head_dim"].state = State::kBad;
    }
  }
}

void JobBuilder::check_model() {
  const ModelSpec& model = spec_.model;
  if (!usable({"model.family"})) return;
  const bool gpt2 = model.family == ModelFamily::kGpt2;

  for (const Field& field : job_fields()) {
    const std::string path = path_of(field);
    if (field.rule.only && *field.rule.only != model.family && given(path)) {
      error({path}, fmt::format("{} means something for family {} alone, not for {}", field.key,
                                choice_name(*field.rule.only), choice_name(model.family)));
    }
  }
  if (usable({"model.num_heads", "model.num_kv_heads"})) {
    if (gpt2 && model.num_kv_heads != model.num_heads) {
      error({"model.num_kv_heads"},
            fmt::format("family gpt2 has no grouped KV heads: num_kv_heads ({}) must be num_heads "
                        "({})",
                        model.num_kv_heads, model.num_heads));
    } else if (model.num_heads % model.num_kv_heads != 0) {
      error({"model.num_kv_heads"},
            fmt::format("num_heads ({}) is not divisible by num_kv_heads ({})", model.num_heads,
                        model.num_kv_heads));
    }
  }
  if (usable({"model.head_dim", "model.num_heads", "model.hidden_size"})) {
    if (gpt2 && model.head_dim * model.num_heads != model.hidden_size) {
      error({"model.head_dim"},
            fmt::format("in family gpt2 head_dim ({}) x num_heads ({}) must be hidden_size ({})",
                        model.head_dim, model.num_heads, model.hidden_size));
    }
    if (!gpt2 && model.head_dim % 2 != 0) {
      error({"model.head_dim", "model.num_heads"},
            fmt::format("head_dim ({}) must be even: the rotary embedding turns pairs",
                        model.head_dim));
    }
  }
  if (usable({"model.max_positions", "training.sequence_length"}) &&
      spec_.training.sequence_length > model.max_positions) {
    error({"training.sequence_length", "model.max_positions"},
          fmt::format("sequence_length ({}) is above model.max_positions ({})",
                      spec_.training.sequence_length, model.max_positions));
  }
}

void JobBuilder::resolve_training() {
  TrainingSpec& training = spec_.training;
  if (!given("training.sequence_length")) training.sequence_length = spec_.model.max_positions;

  OptimizerSpec& optimizer = training.optimizer;
  if (!given("training.optimizer.min_learning_rate")) {
    optimizer.min_learning_rate = given("training.optimizer.learning_rate")
                                      ? optimizer.learning_rate / kLearningRateFall
                                      : OptimizerSpec{}.min_learning_rate;
  } else if (usable({"training.optimizer.learning_rate"}) &&
             optimizer.min_learning_rate > optimizer.learning_rate) {
    error({"training.optimizer.min_learning_rate"},
          fmt::format("min_learning_rate ({}) is above learning_rate ({})",
                      optimizer.min_learning_rate, optimizer.learning_rate));
  }
  if (spec_.cluster.device == DeviceKind::kCuda && usable({"cluster.memory_per_process"}) &&
      spec_.cluster.memory_per_process_bytes == 0) {
    error({"cluster.device"},
          "device cuda needs memory_per_process, the memory of the accelerator, e.g. 40GiB");
  }
  const ClusterSpec& cluster = spec_.cluster;
  if (usable({"cluster.memory_per_process", "cluster.reserved_memory"}) &&
      cluster.memory_per_process_bytes > 0 &&
      cluster.reserved_bytes >= cluster.memory_per_process_bytes) {
    error({"cluster.reserved_memory"},
          fmt::format("reserved_memory ({} bytes) leaves nothing of memory_per_process ({} bytes)",
                      cluster.reserved_bytes, cluster.memory_per_process_bytes));
  }
}

void JobBuilder::check_data() {
  const std::vector<std::string>& suffixes = spec_.training.data_suffixes;
  const bool python_only =
      std::all_of(suffixes.begin(), suffixes.end(), [](const auto& s) { return s == ".py"; });
  if (spec_.training.data_path == kPythonStdlib && usable({"training.data.suffixes"}) &&
      !python_only) {
    error({"training.data.suffixes"},
          fmt::format("data python-stdlib is Python source: write suffixes: [.py] or none, or the "
                      "path of a folder with the files wanted"));
  }
}

void JobBuilder::agree_on_sharding() {
  ParallelSpec& parallel = spec_.parallel;
  constexpr std::string_view kFlag = "parallel.shard_optimizer_state";
  constexpr std::string_view kDegree = "parallel.sharded_data_parallel_degree";
  constexpr std::string_view kSharding = "parallel.sharding";
  if (!usable({kFlag, kDegree, kSharding})) return;

  const bool flag = parallel.shard_optimizer_state.value_or(false);
  const std::optional<int64_t> degree = parallel.sharded_data_parallel_degree;
  if (!parallel.sharding) {
    if (flag) {
      parallel.sharding = Sharding::kOptimizerState;
    } else if (degree) {
      parallel.sharding = *degree > 1 ? Sharding::kParameters : Sharding::kNone;
    } else {
      return;
    }
  }
  const Sharding sharding = *parallel.sharding;
  if (flag && sharding != Sharding::kOptimizerState) {
    error({kSharding}, fmt::format("keys disagree: shard_optimizer_state: true means sharding: "
                                   "optimizer_state, but sharding is {}",
                                   choice_name(sharding)));
  }
  const int64_t world = spec_.cluster.hosts * spec_.cluster.processes_per_host;
  const int64_t model_ranks =
      parallel.pipeline_parallel_degree.value_or(1) * parallel.tensor_parallel_degree.value_or(1);
  const bool data_degree_known = parallel.pipeline_parallel_degree &&
                                 parallel.tensor_parallel_degree && world % model_ranks == 0;
  const int64_t data = world / model_ranks;
  // false beside optimizer_state says: not over all data-parallel ranks.
  const bool over_fewer = data_degree_known && degree && *degree < data;
  if (parallel.shard_optimizer_state == false && sharding == Sharding::kOptimizerState &&
      !over_fewer) {
    error({kSharding},
          "keys disagree: sharding is optimizer_state, but shard_optimizer_state is false");
  }
  if (!degree) return;
  if (flag && data_degree_known && *degree != data) {
    error({kDegree},
          fmt::format("keys disagree: shard_optimizer_state: true shards over all {} data-parallel "
                      "ranks, but sharded_data_parallel_degree is {}: write sharding: "
                      "optimizer_state instead of shard_optimizer_state: true",
                      data, *degree));
    return;
  }
  const bool has_peers = model_ranks != world;  // else d = 1: z is 1, whatever sharding says
  if ((sharding == Sharding::kNone && *degree > 1) ||
      (sharding != Sharding::kNone && *degree == 1 && has_peers)) {
    error({kSharding, kFlag}, fmt::format("keys disagree: sharding is {}, but "
                                          "sharded_data_parallel_degree is {}",
                                          choice_name(sharding), *degree));
  }
}

void JobBuilder::check_parallel() {
  const ParallelSpec& parallel = spec_.parallel;
  if (parallel.offload_activations == true && parallel.activation_checkpointing == false) {
    error({"parallel.offload_activations"},
          "keys disagree: offload_activations moves what activation_checkpointing keeps, which is "
          "false");
  }
  const int64_t tensor = parallel.tensor_parallel_degree.value_or(1);
  if (!parallel.prescaled_batch && tensor > 1) {
    const auto& micro = spec_.training.micro_batch;
    error({"parallel.prescaled_batch"},
          fmt::format(
              "prescaled_batch: false counts samples of each rank, and tensor_parallel_degree "
              "is {}: write prescaled_batch: true and training.micro_batch: {}",
              tensor,
              micro ? fmt::format("{} ({} x {})", *micro * tensor, *micro, tensor)
                    : fmt::format("that of a rank x {}", tensor)));
  }
  if (parallel.partition.empty() || !usable({"parallel.partition"})) return;
  const auto stages = static_cast<int64_t>(parallel.partition.size());
  if (usable({"parallel.pipeline_parallel_degree"}) &&
      parallel.pipeline_parallel_degree.value_or(stages) != stages) {
    error({"parallel.partition"},
          fmt::format("partition has {} stages, but pipeline_parallel_degree is {}", stages,
                      *parallel.pipeline_parallel_degree));
  }
  const int64_t layers =
      std::accumulate(parallel.partition.begin(), parallel.partition.end(), int64_t{0});
  if (usable({"model.num_layers"}) && layers != spec_.model.num_layers) {
    error({"parallel.partition"},
          fmt::format("partition adds up to {} layers, but num_layers is {}", layers,
                      spec_.model.num_layers));
  }
}

}  // namespace smp
