#include "jobfile/field_rows.h"

// The keys of the section model that mixtures of experts and latent attention have.
namespace smp::jobfile {
namespace {

bool is_latent(const JobSpec& job) { return job.model.kv_lora_rank > 0; }

const Condition kMixture = {is_mixture, "model.num_experts", "num_experts"};
const Condition kBiasedRouter = {
    [](const JobSpec& job) { return job.model.router_correction_bias; },
    "model.router_correction_bias", "router_correction_bias: true"};
const Condition kBalanced = {[](const JobSpec& job) { return job.model.router_balance_loss > 0; },
                             "model.router_balance_loss", "router_balance_loss above 0"};
const Condition kFurtherTokens = {[](const JobSpec& job) { return job.model.num_mtp_layers > 0; },
                                  "model.num_mtp_layers", "num_mtp_layers above 0"};
const Condition kLatent = {is_latent, "model.kv_lora_rank", "kv_lora_rank"};

}  // namespace

void add_expert_fields(std::vector<Field>& out) {
  const Field fields[] = {
      {kModel,
       "num_experts",
       SMP_AT(model.num_experts),
       "experts of each feed-forward layer that has experts; 0 = dense",
       {.max = kMostExperts, .also = {"num_local_experts", "n_routed_experts", "num_moe_experts"}}},
      {kModel,
       "experts_per_token",
       SMP_AT(model.experts_per_token),
       "experts that a token passes through",
       {.min = 1,
        .max = kMostExperts,
        .computed = "none: num_experts needs it",
        .condition = kMixture,
        .also = {"num_experts_per_tok", "moe_router_topk", "top_k"}}},
      {kModel,
       "router",
       SMP_AT(model.router),
       "what weighs the experts of a token: `softmax` of all scores (Mixtral, Qwen), or `sigmoid` "
       "of each (DeepSeek-V3)",
       {.condition = kMixture}},
      {kModel,
       "normalize_expert_weights",
       SMP_AT(model.normalize_expert_weights),
       "the weights of a token's experts sum to 1; with softmax as if it were of their scores "
       "alone",
       {.condition = kMixture, .also = {"norm_topk_prob"}}},
      {kModel,
       "routed_scaling_factor",
       SMP_AT(model.routed_scaling_factor),
       "scales the weights of a token's experts",
       {.max = 1000, .condition = kMixture}},
      {kModel,
       "router_bias",
       SMP_AT(model.router_bias),
       "a bias of the router's scores (gpt-oss)",
       {.condition = kMixture}},
      {kModel,
       "router_correction_bias",
       SMP_AT(model.router_correction_bias),
       "a bias that balances the experts without a loss: it helps to choose a token's experts, and "
       "each step moves it towards an even load (DeepSeek-V3)",
       {.condition = kMixture, .also = {"moe_router_enable_expert_bias"}}},
      {kModel,
       "router_correction_rate",
       SMP_AT(model.router_correction_rate),
       "how far a step moves `router_correction_bias`; 0 = it stays",
       {.max = 1, .condition = kBiasedRouter, .also = {"moe_router_bias_update_rate"}}},
      {kModel,
       "router_balance_loss",
       SMP_AT(model.router_balance_loss),
       "factor of the loss that evens the experts' load, in each layer: experts / "
       "experts_per_token x the sum over the experts of their share of the tokens x their mean "
       "probability",
       {.max = 1000, .condition = kMixture, .also = {"moe_aux_loss_coeff", "aux_loss_alpha"}}},
      {kModel,
       "router_balance_over",
       SMP_AT(model.router_balance_over),
       "the tokens over which `router_balance_loss` takes its means: those of a `microbatch`, of "
       "each `sequence` (DeepSeek), or of the global `batch` (Qwen3), for which all forwards of a "
       "step come first (pipeline: simple)",
       {.condition = kBalanced}},
      {kModel,
       "router_z_loss",
       SMP_AT(model.router_z_loss),
       "factor of the mean square of the logsumexp of a token's scores, in each layer; keeps "
       "scores small",
       {.max = 1000, .condition = kMixture, .also = {"moe_z_loss_coeff"}}},
      {kModel,
       "expert_groups",
       SMP_AT(model.expert_groups),
       "groups of experts, as many in each; a token's experts are in the best "
       "`expert_groups_per_token` of them (DeepSeek)",
       {.min = 1, .max = kMostExperts, .condition = kMixture, .also = {"n_group"}}},
      {kModel,
       "expert_groups_per_token",
       SMP_AT(model.expert_groups_per_token),
       "groups that a token's experts may be in",
       {.min = 1, .max = kMostExperts, .condition = kMixture, .also = {"topk_group"}}},
      {kModel,
       "expert_capacity_factor",
       SMP_AT(model.expert_capacity_factor),
       "tokens that an expert takes, over an even share of them; what exceeds them is dropped; 0 = "
       "dropless",
       {.max = kMostExperts, .condition = kMixture, .also = {"moe_expert_capacity_factor"}}},
      {kModel,
       "pad_experts_to_capacity",
       SMP_AT(model.pad_experts_to_capacity),
       "each expert takes as many tokens as its capacity, if with padding",
       {.condition = kMixture, .also = {"moe_pad_expert_input_to_capacity"}}},
      {kModel,
       "expert_ffn_hidden_size",
       SMP_AT(model.expert_ffn_hidden_size),
       "width inside one expert",
       {.min = 1,
        .max = kMostInner,
        .computed = "ffn_hidden_size",
        .condition = kMixture,
        .also = {"moe_intermediate_size", "moe_ffn_hidden_size"}}},
      {kModel,
       "shared_expert_ffn_hidden_size",
       SMP_AT(model.shared_expert_ffn_hidden_size),
       "width of the expert that every token passes through; 0 = no such expert",
       {.max = kMostInner,
        .condition = kMixture,
        .also = {"moe_shared_expert_intermediate_size", "shared_expert_intermediate_size"}}},
      {kModel,
       "shared_expert_gate",
       SMP_AT(model.shared_expert_gate),
       "a row of hidden_size numbers scales the shared expert's output (Qwen 2 MoE)",
       {.condition = kMixture, .also = {"moe_shared_expert_gate"}}},
      {kModel,
       "first_dense_layers",
       SMP_AT(model.first_dense_layers),
       "layers at the beginning that have no experts",
       {.max = kMostLayers, .condition = kMixture, .also = {"first_k_dense_replace"}}},
      {kModel,
       "moe_layer_period",
       SMP_AT(model.moe_layer_period),
       "distance between layers with experts, counted from the first layer after "
       "first_dense_layers; 1 = every layer has experts",
       {.min = 1,
        .max = kMostLayers,
        .condition = kMixture,
        .also = {"moe_layer_freq", "decoder_sparse_step"}}},
      {kModel,
       "num_mtp_layers",
       SMP_AT(model.num_mtp_layers),
       "layers that predict further tokens (DeepSeek-V3)",
       {.max = 64, .also = {"mtp_num_layers", "num_nextn_predict_layers"}}},
      {kModel,
       "mtp_loss_factor",
       SMP_AT(model.mtp_loss_factor),
       "factor of the mean of the further tokens' losses, beside the next token's",
       {.max = 1000, .condition = kFurtherTokens, .also = {"mtp_loss_scaling_factor"}}},
  };
  out.insert(out.end(), std::begin(fields), std::end(fields));
}

void add_latent_fields(std::vector<Field>& out) {
  const Field fields[] = {
      {kModel,
       "kv_lora_rank",
       SMP_AT(model.kv_lora_rank),
       "rank of the keys and values of multi-head latent attention (DeepSeek); 0 = plain attention",
       {.max = kMostWidth}},
      {kModel,
       "q_lora_rank",
       SMP_AT(model.q_lora_rank),
       "rank of the queries of latent attention; 0 = full",
       {.max = kMostWidth, .condition = kLatent}},
      {kModel,
       "qk_head_dim",
       SMP_AT(model.qk_head_dim),
       "width of a head of the queries and keys of latent attention, without the rotary part",
       {.min = 1,
        .max = kMostWidth,
        .computed = "none: kv_lora_rank needs it",
        .condition = kLatent,
        .also = {"qk_nope_head_dim"}}},
      {kModel,
       "qk_rope_head_dim",
       SMP_AT(model.qk_rope_head_dim),
       "width of the rotary part of latent attention; all heads share one rotary key",
       {.min = 1,
        .max = kMostWidth,
        .computed = "none: kv_lora_rank needs it",
        .condition = kLatent,
        .also = {"qk_pos_emb_head_dim"}}},
      {kModel,
       "v_head_dim",
       SMP_AT(model.v_head_dim),
       "width of a head of the values of latent attention",
       {.min = 1,
        .max = kMostWidth,
        .computed = "none: kv_lora_rank needs it",
        .condition = kLatent}},
  };
  out.insert(out.end(), std::begin(fields), std::end(fields));
}

}  // namespace smp::jobfile
