#include <algorithm>
#include <deque>

#include "importers/megatron_fields.h"

// Fields of Megatron Core and Megatron-LM d98e8a6 (2026-08): megatron/core/transformer/
// transformer_config.py, core/model_parallel_config.py, core/distributed/
// distributed_data_parallel_config.py, core/optimizer/optimizer_config.py, training/config/
// training_config.py, training/arguments.py; of Megatron Bridge (2026-08), models/gpt_provider.py
// and training/mixed_precision.py; and of NeMo 1's and 2's YAML files.
namespace smp::importers {

const std::vector<MegatronField>& megatron_fields() {
  using enum FieldUse;
  constexpr std::string_view kOff = "false False";
  constexpr std::string_view kCapacity = "the plan prices experts without a capacity factor";
  static const std::vector<MegatronField> kRows = {
      {"num_moe_experts", kValue, "num-experts", "", ""},
      {"encoder_seq_length", kValue, "seq-length", "", ""},
      {"encoder_num_layers", kIgnored, "", "", ""},
      {"tokenizer_type", kIgnored, "", "", ""},
      {"tokenizer_model", kIgnored, "", "", ""},
      {"vocab_file", kIgnored, "", "", ""},
      {"sequence_length", kValue, "seq-length", "", ""},
      {"max_steps", kValue, "train-iters", "", ""},
      {"max_lr", kValue, "lr", "", ""},
      {"gradient_clip_val", kValue, "clip-grad", "", ""},
      {"rotary_percentage", kValue, "rotary-percent", "", ""},
      {"seq_len_interpolation_factor", kValue, "rotary-seq-len-interpolation-factor", "", ""},
      {"num_layers_in_first_pipeline_stage", kValue, "decoder-first-pipeline-num-layers", "", ""},
      {"num_layers_in_last_pipeline_stage", kValue, "decoder-last-pipeline-num-layers", "", ""},
      {"should_pad_vocab", kOwn, "", "model.vocab_multiple_of",
       "false = vocab_size has no padding"},
      {"padded_vocab_size", kValue, "pad-vocab-size-to", "", ""},
      {"activations_checkpoint_granularity", kValue, "recompute-granularity", "", ""},
      {"activations_checkpoint_method", kValue, "recompute-method", "", ""},
      {"activations_checkpoint_num_layers", kValue, "recompute-num-layers", "", ""},
      {"bucket_size", kValue, "ddp-bucket-size", "", ""},
      {"devices", kOwn, "", "cluster.processes_per_host",
       "number of GPUs of a host, or a list of them; auto and -1 leave it open"},
      {"num_nodes", kValue, "nnodes", "", ""},
      {"warmup_steps", kValue, "lr-warmup-iters", "", ""},
      {"add_bias_linear", kFalse, "disable-bias-linear", "", ""},
      {"bias", kFalse, "disable-bias-linear", "", ""},
      {"bias_gelu_fusion", kFalse, "no-bias-gelu-fusion", "", ""},
      {"share_embeddings_and_output_weights", kFalse, "untie-embeddings-and-output-weights", "",
       ""},
      {"rope_scaling", kTrue, "use-rope-scaling", "", ""},
      {"normalize_attention_scores", kRefused, "", "",
       "unscaled attention scores are not supported", "true True"},
      {"attention_backend", kOwn, "", "training.attention",
       "flash, fused and auto = flash; unfused and local = unfused"},
      {"activation_func", kOwn, "", "model.mlp",
       "silu with gated_linear_unit = swiglu; squared_relu = relu; gelu"},
      {"gated_linear_unit", kOwn, "", "model.mlp", "a gate, with activation_func"},
      {"activation", kOwn, "", "model.mlp",
       "NeMo's word: gelu, fast-swiglu, swiglu, geglu, fast-geglu or squared-relu"},
      {"num_query_groups", kOwn, "", "model.num_kv_heads", "the same"},
      {"virtual_pipeline_model_parallel_size", kOwn, "", "parallel.virtual_pipeline_degree",
       "the same"},
      {"num_layers_per_virtual_pipeline_stage", kOwn, "", "parallel.virtual_pipeline_degree",
       "layers / stages / the value, without virtual_pipeline_model_parallel_size"},
      {"num_virtual_stages_per_pipeline_rank", kOwn, "", "parallel.virtual_pipeline_degree",
       "the same, without virtual_pipeline_model_parallel_size"},
      {"account_for_embedding_in_pipeline_split", kOwn, "", "parallel.partition",
       "true: the first chunk has one layer fewer"},
      {"account_for_loss_in_pipeline_split", kOwn, "", "parallel.partition",
       "true: the last chunk has one layer fewer"},
      {"moe_layer_freq", kOwn, "", "model.moe_layer_period, model.first_dense_layers",
       "a number, or a list of zeros followed by ones"},
      {"window_size", kOwn, "", "model.sliding_window", "[N, 0] becomes N + 1"},
      {"fp8", kOwn, "", "training.precision", "e4m3 or hybrid = fp8"},
      {"fp8_format", kOwn, "", "training.precision", "e4m3 or hybrid = fp8"},
      {"fp8_hybrid", kOwn, "", "training.precision", "NeMo 1: format of fp8: true"},
      {"fp8_e4m3", kOwn, "", "training.precision", "NeMo 1: format of fp8: true"},
      {"fp8_param", kTrue, "fp8-param-gather", "", ""},
      {"fp8_params", kTrue, "fp8-param-gather", "", ""},
      {"fp4", kOwn, "", "training.precision", "e2m1 = nvfp4"},
      {"fp4_param", kTrue, "fp4-param-gather", "", ""},
      {"store_param_remainders", kFalse, "no-store-param-remainders", "", ""},
      {"grad_reduce_in_fp32", kOwn, "", "training.accumulate_gradients_in_fp32", "the same"},
      {"fsdp", kOwn, "", "parallel.sharding", "megatron, pytorch and true = parameters"},
      {"main_grads_dtype", kOwn, "", "training.accumulate_gradients_in_fp32", "bfloat16 = false"},
      {"main_params_dtype", kOwn, "", "training.optimizer.master_weights", "float16 = fp16"},
      {"lr_warmup_iters", kOwn, "", "training.optimizer.warmup_steps", "the same; 0 = none"},
      {"lr_warmup_samples", kOwn, "", "training.optimizer.warmup_steps",
       "over global_batch_size; 0 = none"},
      {"expert_tensor_parallel_size", kOwn, "", "parallel.expert_tensor_degree",
       "the same, of a model with experts"},
      {"exp_avg_dtype", kOwn, "", "training.optimizer.momentum_dtype", "the same"},
      {"exp_avg_sq_dtype", kOwn, "", "training.optimizer.variance_dtype", "the same"},
      {"deterministic_mode", kOwn, "", "training.deterministic", "the same"},
      {"blend", kOwn, "", "training.data.path, training.data.sources",
       "[paths, weights], or null for mock data"},
      {"data_path", kOwn, "", "training.data.path, training.data.sources",
       "one prefix, or several with a weight before each"},
      {"betas", kOwn, "", "training.optimizer.beta1, training.optimizer.beta2", "both in a list"},
      {"world_size", kOwn, "", "cluster.hosts, cluster.processes_per_host",
       "all ranks; one of the two must be given"},
      {"name", kOwn, "", "training.optimizer.kind",
       "of optim: distributed_fused_adam, fused_adam and adam = adamw; others are refused"},
      {"accumulate_grad_batches", kRefused, "", "",
       "NeMo derives the microbatches from the global batch", "1"},
      {"fine_grained_activation_offloading", kRefused, "", "",
       "offload of single modules is not supported; smp offloads activation checkpoints "
       "(parallel.offload_activations)",
       kOff},
      {"pipeline_model_parallel_split_rank", kRefused, "", "",
       "models with an encoder are not supported", "0"},
      {"hybrid_context_parallel", kRefused, "", "",
       "context parallelism of variable degree is not supported", kOff},
      {"heterogeneous_block_specs", kRefused, "", "", "layers of different sizes are not supported",
       kOff},
      {"use_layer_wise_distributed_optimizer", kRefused, "", "",
       "the nearest is use_distributed_optimizer", kOff},
      {"tensor_parallel_num_weight_shards", kRefused, "", "",
       "tensor parallelism with a separate number of weight shards is not supported", "1"},
      {"num_microbatches_with_partial_activation_checkpoints", kWarned, "", "",
       "the plan recomputes in all microbatches"},
      {"first_last_layers_bf16", kWarned, "", "", "the plan has fp8 in all layers", kOff},
      {"moe_expert_rank_capacity_factor", kWarned, "", "", kCapacity},
      {"moe_layer_recompute", kWarned, "", "", "the plan does not recompute experts alone", kOff},
      {"moe_paged_stash", kWarned, "", "", "the plan keeps the experts' activations as they are",
       kOff},
      {"overlap_moe_expert_parallel_comm", kWarned, "", "",
       "the plan does not overlap the experts' exchange with other microbatches", kOff},
      {"fp16_lm_cross_entropy", kWarned, "", "", "the plan has fp32 logits in the loss", kOff},
      {"logit_dtype", kWarned, "", "", "the plan has fp32 logits in the loss"},
      {"keep_fp8_transpose_cache", kWarned, "", "", "the plan keeps no transposed fp8 weights",
       kOff},
      {"nccl_ub", kWarned, "", "", "the plan has no buffers registered with NCCL", kOff},
      {"fsdp_double_buffer", kWarned, "", "", "the plan has no double buffers of FSDP", kOff},
      {"fp8_dot_product_attention", kWarned, "", "", "the plan has bf16 attention", kOff},
      {"fp8_multi_head_attention", kWarned, "", "", "the plan has bf16 attention", kOff},
      {"mlp_chunks_for_training", kWarned, "", "", "the plan runs an MLP in one piece", "1"},
      {"freeze_all_layers", kWarned, "", "", "the plan trains all layers", kOff},
      {"torch_fsdp2_reshard_after_forward", kWarned, "", "",
       "the plan gathers parameters again in the backward pass", "true True"},
      {"megatron_amp_O2", kWarned, "", "", "the plan has 16-bit weights beside fp32 ones",
       "true True"},
      {"spec", kWarned, "", "", "the plan has Megatron's own layers"},
      {"no_rope_freq", kWarned, "", "", "the plan has rotary embeddings in all layers"},
      {"gtp_weight_remat_size", kRefused, "", "",
       "weights spread over a further axis are not "
       "supported",
       "1"},
      {"expert_gtp_weight_remat_size", kRefused, "", "",
       "weights spread over a further axis are not supported", "1"},
      {"expert_tensor_parallel_num_weight_shards", kRefused, "", "",
       "tensor parallelism with a separate number of weight shards is not supported", "1"},
      {"enable_mhc_connections", kRefused, "", "", "several residual streams are not supported",
       kOff},
      {"moe_latent_size", kRefused, "", "", "experts with a latent size are not supported"},
      {"apply_residual_connection_post_layernorm", kRefused, "", "",
       "norms before the residual connection are not supported", kOff},
      {"attention_output_gate", kRefused, "", "", "a gate of attention is not supported", kOff},
      {"step_batch_size_schedule", kRefused, "", "",
       "batches that change at given steps are not supported; the nearest is rampup_batch_size"},
      {"heterogeneous_layers_config_path", kRefused, "", "",
       "layers of different sizes are not supported"},
      {"heterogeneous_layers_config_encoded_json", kRefused, "", "",
       "layers of different sizes are not supported"},
      {"embedding_dropout", kIgnored, "", "", ""},
      {"ffn_dropout", kIgnored, "", "", ""},
      {"original_max_position_embeddings", kIgnored, "", "", ""},
      {"bias_activation_fusion", kFalse, "no-bias-gelu-fusion", "", ""},
      {"cuda_graph_impl", kWarned, "", "", "the plan prices kernels without CUDA graphs", "none"},
      {"enable_cuda_graph", kWarned, "", "", "the plan prices kernels without CUDA graphs", kOff},
      {"external_cuda_graph", kWarned, "", "", "the plan prices kernels without CUDA graphs", kOff},
      {"mtp_use_repeated_layer", kWarned, "", "", "the plan has separate weights in each layer",
       kOff},
      {"fp32_residual_connection", kWarned, "", "",
       "the plan has the residual stream in the activations' type", kOff},
      {"outer_dp_sharding_strategy", kRefused, "", "",
       "sharding of the optimizer over the outer data-parallel ranks is not supported", "no_shard"},
  };
  return kRows;
}

std::optional<MegatronField> megatron_field(std::string_view field) {
  const auto row = std::ranges::find(megatron_fields(), field, &MegatronField::field);
  if (row != megatron_fields().end()) return *row;
  std::string flag(field);
  std::ranges::replace(flag, '_', '-');
  const std::vector<ForeignKey>& flags = megatron_keys();
  const auto same = std::ranges::find_if(
      flags, [&](const ForeignKey& key) { return key.key == flag || key.key == field; });
  if (same != flags.end()) {
    const bool is_bool = same->form == Form::kBool;
    return MegatronField{field, is_bool ? FieldUse::kTrue : FieldUse::kValue, same->key, "", ""};
  }
  const auto& words = megatron_words();
  const auto& more = megatron_field_words();
  // "no-rope-fusion" is the field rope_fusion.
  const bool known =
      std::ranges::any_of(megatron_field_heads(),
                          [&](const auto head) { return field.starts_with(head); }) ||
      std::ranges::count(more, field) > 0 || std::ranges::count(words, field) > 0 ||
      std::ranges::count(words, flag) > 0 || std::ranges::count(words, "no-" + flag) > 0;
  if (!known) return std::nullopt;
  return MegatronField{field, FieldUse::kIgnored, "", "", ""};
}

}  // namespace smp::importers
