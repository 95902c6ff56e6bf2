#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jobfile/job_builder.h"
#include "jobfile/key_hint.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"

// Defaults that follow from other keys, and what the keys of model, cluster and training must say
// together. A check is silent when a key that it looks at is wrong by itself.
namespace smp::jobfile {

namespace {

constexpr int64_t kGpt2Positions = 1024;   // GPT-2's own
constexpr int64_t kOtherPositions = 4096;  // Llama 2's own
constexpr int64_t kMostHeadDim = 1 << 20;  // as when it is given

}  // namespace

void JobBuilder::resolve_attributes() {
  ModelSpec& model = spec_.model;
  ModelSpec own;
  model::set_family(own, model.family);
  const auto fill = [&](auto ModelSpec::*member, std::string_view key) {
    if (!given(joined_path("model", key))) model.*member = own.*member;
  };
  fill(&ModelSpec::mlp, "mlp");
  fill(&ModelSpec::norm, "norm");
  fill(&ModelSpec::position_embedding, "position_embedding");
  fill(&ModelSpec::qkv_bias, "qkv_bias");
  fill(&ModelSpec::attention_output_bias, "attention_output_bias");
  fill(&ModelSpec::mlp_bias, "mlp_bias");
}

void JobBuilder::resolve_model() {
  ModelSpec& model = spec_.model;
  if (model::is_list(model) || !usable({"model.layers"})) return resolve_layer_list();
  resolve_attributes();
  const bool gpt2 = model.family == ModelFamily::kGpt2;
  if (!given("model.num_kv_heads")) model.num_kv_heads = model.num_heads;
  if (!given("model.tied_embeddings")) model.tied_embeddings = gpt2;
  if (!given("model.ffn_hidden_size") && gpt2) model.ffn_hidden_size = 4 * model.hidden_size;
  if (!given("model.decoder_layers")) {
    model.decoder_layers = model.stack == Stack::kEncoderDecoder ? model.num_layers : 0;
  }
  if (!given("model.expert_ffn_hidden_size") && model.num_experts > 0) {
    model.expert_ffn_hidden_size = model.ffn_hidden_size;
  }
  if (!given("model.max_positions")) {
    model.max_positions = gpt2                                ? kGpt2Positions
                          : given("training.sequence_length") ? spec_.training.sequence_length
                                                              : kOtherPositions;
  }
  const bool stretches =
      model.rope_scaling == RopeScaling::kYarn || model.rope_scaling == RopeScaling::kLongRope;
  if (!given("model.rope_original_positions") && stretches &&
      usable({"model.max_positions", "model.rope_scaling_factor"})) {
    model.rope_original_positions = std::max<int64_t>(
        1, std::llround(static_cast<double>(model.max_positions) / model.rope_scaling_factor));
  }
  if (given("model.head_dim") ||
      !usable({"model.hidden_size", "model.num_heads", "model.head_dim"})) {
    return;
  }
  if (model.kv_lora_rank > 0) {
    model.head_dim = std::max<int64_t>(1, model.qk_head_dim + model.qk_rope_head_dim);
    if (model.head_dim > kMostHeadDim) {
      error({"model.qk_rope_head_dim"},
            fmt::format("qk_head_dim ({}) + qk_rope_head_dim ({}) must be at most {}",
                        model.qk_head_dim, model.qk_rope_head_dim, kMostHeadDim));
    }
  } else if (model.hidden_size % model.num_heads == 0) {
    model.head_dim = model.hidden_size / model.num_heads;
  } else {
    error({"model.num_heads"}, fmt::format("hidden_size ({}) is not divisible by num_heads ({})",
                                           model.hidden_size, model.num_heads));
    entries_["model.head_dim"].state = State::kBad;
  }
}

void JobBuilder::check_conditions() {
  for (const Field& field : job_fields()) {
    const Condition& condition = field.rule.condition;
    const std::string path = path_of(field);
    if (!condition.holds || !given(path) || !usable({condition.key})) continue;
    // 1 says what holds of dense layers anyway; other programs' files spell it out.
    const bool is_neutral =
        path == "parallel.expert_parallel_degree" && spec_.parallel.expert_parallel_degree == 1;
    if (is_neutral) continue;
    if (!condition.holds(spec_)) {
      error({path}, fmt::format("{} needs {}", field.key, condition.words));
    }
  }
}

void JobBuilder::check_heads() {
  const ModelSpec& model = spec_.model;
  const bool gpt2 = model.family == ModelFamily::kGpt2;
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
  if (!usable({"model.head_dim", "model.num_heads", "model.hidden_size"})) return;
  if (gpt2 && model.kv_lora_rank == 0 && model.head_dim * model.num_heads != model.hidden_size) {
    error({"model.head_dim"},
          fmt::format("in family gpt2 head_dim ({}) x num_heads ({}) must be hidden_size ({})",
                      model.head_dim, model.num_heads, model.hidden_size));
  }
}

void JobBuilder::check_rotary() {
  const ModelSpec& model = spec_.model;
  if (model.position_embedding != PositionKind::kRotary) {
    if (model.kv_lora_rank > 0 && model.qk_rope_head_dim % 2 != 0 &&
        usable({"model.qk_rope_head_dim"})) {
      error({"model.qk_rope_head_dim"},
            fmt::format("qk_rope_head_dim ({}) must be even: its elements are pairs",
                        model.qk_rope_head_dim));
    }
    return;
  }
  const bool latent = model.kv_lora_rank > 0;
  if (usable({"model.head_dim", "model.num_heads", "model.hidden_size", "model.rotary_dim"})) {
    const char* key = latent                 ? "qk_rope_head_dim"
                      : model.rotary_dim > 0 ? "rotary_dim"
                                             : "head_dim";
    const int64_t turned = latent ? model.qk_rope_head_dim : rotary_dim_of(model);
    if (latent && model.rotary_dim > 0) {
      error({"model.rotary_dim"},
            "rotary_dim cannot be set beside kv_lora_rank: latent attention uses qk_rope_head_dim");
    } else if (!latent && turned > model.head_dim) {
      error({"model.rotary_dim"},
            fmt::format("rotary_dim ({}) is above head_dim ({})", turned, model.head_dim));
    } else if (turned % 2 != 0) {
      error({joined_path("model", key), "model.num_heads"},
            fmt::format("{} ({}) must be even: the rotary embedding rotates pairs of elements", key,
                        turned));
    }
  }
  if (model.rope_scaling == RopeScaling::kYarn &&
      usable({"model.rope_beta_fast", "model.rope_beta_slow"}) &&
      model.rope_beta_slow > model.rope_beta_fast) {
    error({"model.rope_beta_slow", "model.rope_scaling"},
          fmt::format("rope_beta_slow ({}) is above rope_beta_fast ({})", model.rope_beta_slow,
                      model.rope_beta_fast));
  }
  for (const auto& [key, factors] : {std::pair{"rope_short_factors", &model.rope_short_factors},
                                     std::pair{"rope_long_factors", &model.rope_long_factors}}) {
    const std::string path = joined_path("model", key);
    const int64_t pairs = rotary_dim_of(model) / 2;
    if (factors->empty() || !usable({path, "model.rotary_dim", "model.head_dim"})) continue;
    if (static_cast<int64_t>(factors->size()) == pairs) continue;
    error({path}, fmt::format("{} has {} numbers, but {} elements of a head rotate in {} pairs",
                              key, factors->size(), 2 * pairs, pairs));
  }
  if (model.rope_scaling == RopeScaling::kLlama3 &&
      usable({"model.rope_low_freq_factor", "model.rope_high_freq_factor"}) &&
      model.rope_low_freq_factor >= model.rope_high_freq_factor) {
    error({"model.rope_low_freq_factor", "model.rope_scaling"},
          fmt::format("rope_low_freq_factor ({}) must be below rope_high_freq_factor ({})",
                      model.rope_low_freq_factor, model.rope_high_freq_factor));
  }
}

// A token's experts must find room in its groups.
void JobBuilder::check_expert_groups() {
  const ModelSpec& model = spec_.model;
  if (!usable({"model.expert_groups", "model.num_experts"}) || model.expert_groups <= 1) return;
  if (model.num_experts % model.expert_groups != 0) {
    error({"model.expert_groups"}, fmt::format("num_experts ({}) is not divisible by expert_groups "
                                               "({})",
                                               model.num_experts, model.expert_groups));
  } else if (model.expert_groups_per_token > model.expert_groups) {
    error({"model.expert_groups_per_token"},
          fmt::format("expert_groups_per_token ({}) is above expert_groups ({})",
                      model.expert_groups_per_token, model.expert_groups));
  } else if (model.expert_groups_per_token * (model.num_experts / model.expert_groups) <
             model.experts_per_token) {
    error({"model.expert_groups_per_token"},
          fmt::format("experts_per_token ({}) is above the experts of expert_groups_per_token ({}) "
                      "groups ({} each)",
                      model.experts_per_token, model.expert_groups_per_token,
                      model.num_experts / model.expert_groups));
  }
}

void JobBuilder::check_blocks() {
  const ModelSpec& model = spec_.model;
  if (model.shared_norm && !model.parallel_residual) {
    error({"model.shared_norm"},
          "shared_norm: true needs parallel_residual: true: one norm cannot serve two inputs");
  }
  if (model.num_experts > 0) {
    if (!given("model.experts_per_token") && usable({"model.experts_per_token"})) {
      error({"model.num_experts"},
            fmt::format("num_experts ({}) needs experts_per_token", model.num_experts));
    } else if (model.experts_per_token > model.num_experts) {
      error({"model.experts_per_token"},
            fmt::format("experts_per_token ({}) is above num_experts ({})", model.experts_per_token,
                        model.num_experts));
    }
    if (model.pad_experts_to_capacity && model.expert_capacity_factor == 0 &&
        usable({"model.pad_experts_to_capacity", "model.expert_capacity_factor"})) {
      error({"model.pad_experts_to_capacity"},
            "pad_experts_to_capacity: true needs expert_capacity_factor above 0");
    }
    check_expert_groups();
    if (model.shared_expert_gate && model.shared_expert_ffn_hidden_size == 0 &&
        usable({"model.shared_expert_ffn_hidden_size"})) {
      error({"model.shared_expert_gate"},
            "shared_expert_gate: true needs shared_expert_ffn_hidden_size above 0");
    }
    if (usable({"model.first_dense_layers", "model.num_layers"}) &&
        model.first_dense_layers > model.num_layers) {
      error({"model.first_dense_layers"},
            fmt::format("first_dense_layers ({}) is above num_layers ({})",
                        model.first_dense_layers, model.num_layers));
    }
  }
  if (model.kv_lora_rank > 0) {
    std::vector<std::string> missing;
    for (const char* key : {"qk_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
      const std::string path = joined_path("model", key);
      if (!given(path) && usable({path})) missing.emplace_back(key);
    }
    if (!missing.empty()) {
      error({"model.kv_lora_rank"},
            fmt::format("kv_lora_rank ({}) needs {}", model.kv_lora_rank, comma_list(missing)));
    }
  }
  check_hybrid();
  if (model.stack == Stack::kDecoder) return;
  const auto decoder_only = [&](int64_t value, const char* key, const char* what) {
    if (value == 0) return;
    error({joined_path("model", key)}, fmt::format("{} needs stack: decoder: {}", key, what));
  };
  decoder_only(model.num_experts, "num_experts", "the planner prices experts in decoders alone");
  decoder_only(model.num_mtp_layers, "num_mtp_layers", "only a decoder predicts further tokens");
  decoder_only(model::is_hybrid(model) ? 1 : 0, "layer_pattern",
               "the planner prices hybrids in decoders alone");
  decoder_only(model.vision_parameters, "vision_parameters",
               "the planner prices towers beside decoders alone");
}

void JobBuilder::check_size() {
  for (const char* key :
       {"layers", "num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim",
        "ffn_hidden_size", "vocab_size", "num_experts", "layer_pattern", "mamba_heads",
        "mamba_head_dim", "mamba_state_dim", "mamba_groups", "vision_parameters"}) {
    if (!usable({joined_path("model", key)})) return;
  }
  const double parameters = model::parameter_counts(spec_.model).total();
  if (parameters <= model::kMostParameters) return;
  error({"model.num_layers", "model.hidden_size"},
        fmt::format("the model has {:.3g} parameters, more than 10^15: look at num_layers, "
                    "hidden_size, ffn_hidden_size, vocab_size and num_experts",
                    parameters));
}

void JobBuilder::check_model() {
  const ModelSpec& model = spec_.model;
  if (!usable({"model.family", "model.layers"})) return;
  check_conditions();
  if (model::is_list(model)) return check_size();
  check_heads();
  check_rotary();
  check_blocks();
  check_size();
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
  if (model::is_list(spec_.model)) {
    training.sequence_length = 1;
    const auto fill = [&](std::string_view path, int64_t& value, int64_t of_model) {
      if (!given(path)) value = of_model;
    };
    fill("training.data.images.channels", training.images.channels, spec_.model.input_channels);
    fill("training.data.images.height", training.images.height, spec_.model.input_height);
    fill("training.data.images.width", training.images.width, spec_.model.input_width);
    const int64_t channels = training.images.channels;
    if (channels != 1 && channels != spec_.model.input_channels) {
      error({"training.data.images.channels"},
            fmt::format("channels ({}) must be 1, which is copied to all channels, or "
                        "model.input.channels ({})",
                        channels, spec_.model.input_channels));
    }
  }
  resolve_optimizer();
  resolve_fine_tuning();
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

void JobBuilder::check_batch_ramp() {
  const TrainingSpec& training = spec_.training;
  constexpr std::string_view kStart = "training.batch_ramp_start";
  constexpr std::string_view kIncrement = "training.batch_ramp_increment";
  if (!usable({kStart, kIncrement, "training.global_batch"})) return;
  const int64_t start = training.batch_ramp_start;
  const int64_t increment = training.batch_ramp_increment;
  if ((start > 0) != (increment > 0)) {
    error({kStart, kIncrement}, fmt::format("batch_ramp_start ({}) and batch_ramp_increment ({}) "
                                            "need each other: give both or neither",
                                            start, increment));
    return;
  }
  if (start == 0 || !training.global_batch) return;
  const int64_t last = *training.global_batch;
  if (start > last || (last - start) % increment != 0) {
    error({kStart}, fmt::format("the batch ramp from {} by {} does not reach global_batch ({})",
                                start, increment, last));
  }
}

void JobBuilder::check_rates() {
  const ClusterSpec& cluster = spec_.cluster;
  const std::pair<std::string_view, double> rates[] = {
      {"cluster.fp32_flops_per_s", cluster.fp32_flops_per_s},
      {"cluster.half_flops_per_s", cluster.half_flops_per_s},
      {"cluster.fp8_flops_per_s", cluster.fp8_flops_per_s},
      {"cluster.fp4_flops_per_s", cluster.fp4_flops_per_s},
      {"cluster.memory_bytes_per_s", cluster.memory_bytes_per_s},
      {"cluster.host_link_bytes_per_s", cluster.host_link_bytes_per_s},
      {"cluster.intra_host_bytes_per_s", cluster.intra_host_bytes_per_s},
      {"cluster.inter_host_bytes_per_s", cluster.inter_host_bytes_per_s},
  };
  for (const auto& [path, rate] : rates) {
    if (rate == 0 || rate >= 1 || !usable({path})) continue;
    error({path}, fmt::format("{} ({:.3g}) must be at least 1, or 0 = unknown",
                              path.substr(path.find('.') + 1), rate));
  }
}

void JobBuilder::check_precision() {
  const TrainingSpec& training = spec_.training;
  if (training.save_weights_as && is_narrow(*training.save_weights_as)) {
    error({"training.save_weights_as"},
          "save_weights_as must be fp32, fp64, bf16 or fp16: weights have no files of fewer bits");
  }
  const bool narrow = training.precision && is_narrow(*training.precision);
  if (training.fp8_parameters && !narrow) {
    error({"training.fp8_parameters"}, "fp8_parameters needs precision: fp8 or nvfp4");
  }
  if (!narrow) return;
  if (training.fp8_recipe == Fp8Recipe::kMxfp8 && training.precision == Precision::kFp8 &&
      spec_.cluster.fp4_flops_per_s == 0 &&
      usable({"training.fp8_recipe", "cluster.fp4_flops_per_s"})) {
    error({"training.fp8_recipe"},
          "fp8_recipe: mxfp8 needs an accelerator that has it, from Blackwell on: one with "
          "cluster.fp4_flops_per_s");
  }
  const bool fp4 = training.precision == Precision::kNvfp4;
  const std::string rate = fp4 ? "cluster.fp4_flops_per_s" : "cluster.fp8_flops_per_s";
  if ((fp4 ? spec_.cluster.fp4_flops_per_s : spec_.cluster.fp8_flops_per_s) > 0) return;
  if (!usable({rate})) return;
  error({"training.precision"},
        fmt::format("precision {} needs {}, the accelerator's rate of such matmuls",
                    fp4 ? "nvfp4" : "fp8", rate));
}

void JobBuilder::check_trace() {
  constexpr const char* kPath = "training.trace.steps";
  const std::vector<int64_t>& steps = spec_.training.trace.steps;
  if (steps.empty() || !usable({kPath})) return;
  if (steps.size() != 2) {
    error({kPath}, fmt::format("steps must be the first and the last step that are traced, as in "
                               "[10, 12], not {} numbers",
                               steps.size()));
  } else if (steps[0] > steps[1]) {
    error({kPath}, fmt::format("steps: the first ({}) is after the last ({})", steps[0], steps[1]));
  } else if (spec_.training.steps > 0 && steps[1] > spec_.training.steps &&
             usable({"training.steps"})) {
    error({kPath}, fmt::format("steps: step {} does not exist: training.steps is {}", steps[1],
                               spec_.training.steps));
  }
}

}  // namespace smp::jobfile
