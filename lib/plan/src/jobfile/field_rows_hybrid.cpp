#include "jobfile/field_rows.h"
#include "smp/plan/model/hybrid.h"

// The keys of the section model that hybrids of Mamba layers have, and towers of other inputs.
namespace smp::jobfile {
namespace {

bool has_mamba(const JobSpec& job) {
  return job.model.layer_pattern.find(model::kMambaLetter) != std::string::npos;
}

const Condition kMamba = {has_mamba, "model.layer_pattern", "M in layer_pattern"};

Rule size_of_mamba(double max) {
  return {
      .min = 1, .max = max, .computed = "none: M in layer_pattern needs it", .condition = kMamba};
}

}  // namespace

void add_hybrid_fields(std::vector<Field>& out) {
  out.push_back(
      {kModel,
       "layer_pattern",
       SMP_AT(model.layer_pattern),
       "a letter for each layer of a hybrid, whose layers are one mixer each: M = Mamba-2, * = "
       "attention, - = feed-forward, E = experts (Nemotron-H); in quotes. Without it each layer is "
       "attention and a feed-forward layer",
       {.also = {"hybrid_override_pattern", "hybrid_layer_pattern"}}});
  const auto size = [&](std::string_view key, Target target, std::string_view doc, double max,
                        std::vector<std::string> also) {
    Rule rule = size_of_mamba(max);
    rule.also = std::move(also);
    out.push_back({kModel, key, target, doc, rule});
  };
  size("mamba_heads", SMP_AT(model.mamba_heads), "heads of a Mamba-2 layer", kMostWidth,
       {"mamba_num_heads"});
  size("mamba_head_dim", SMP_AT(model.mamba_head_dim), "width of one head of a Mamba-2 layer",
       kMostWidth, {});
  size("mamba_state_dim", SMP_AT(model.mamba_state_dim),
       "rows of the state of one head of a Mamba-2 layer", kMostWidth, {"ssm_state_size"});
  size("mamba_groups", SMP_AT(model.mamba_groups),
       "groups of heads of a Mamba-2 layer; each has one B and C", kMostWidth,
       {"n_groups", "mamba_num_groups"});
  out.push_back({kModel,
                 "mamba_conv_kernel",
                 SMP_AT(model.mamba_conv_kernel),
                 "tokens that the convolution of a Mamba-2 layer reads",
                 {.min = 1, .max = 64, .condition = kMamba, .also = {"conv_kernel"}}});
  out.push_back({kModel,
                 "mamba_chunk_size",
                 SMP_AT(model.mamba_chunk_size),
                 "tokens of a chunk of a Mamba-2 layer's scan",
                 {.min = 1, .max = kMostRows, .condition = kMamba, .also = {"chunk_size"}}});
  out.push_back({kModel,
                 "vision_parameters",
                 SMP_AT(model.vision_parameters),
                 "parameters of a vision tower, which the first stage holds; its activations and "
                 "its time are not priced",
                 {.max = kMostElements}});
}

}  // namespace smp::jobfile
