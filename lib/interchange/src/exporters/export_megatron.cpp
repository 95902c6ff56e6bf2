#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "exporters/export_view.h"
#include "smp/plan/spec/checkpoint_strategy.h"
#include "smp/plan/spec/job_names.h"

// A Megatron-LM command line. Rules: Megatron-LM d98e8a6, megatron/training/arguments.py,
// validate_args.
namespace smp::exporters {
namespace {

class Flags {
 public:
  void flag(std::string_view name) { text_ += fmt::format(" \\\n  --{}", name); }
  template <class T>
  void value(std::string_view name, const T& value) {
    text_ += fmt::format(" \\\n  --{} {}", name, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

bool is_whole(double value) { return value == static_cast<double>(static_cast<int64_t>(value)); }

// Its Llama 3 scaling has one free number (rotary_pos_embedding.py, _apply_scaling).
bool is_its_llama3(const ModelSpec& model) {
  return model.rope_low_freq_factor == 1 && model.rope_high_freq_factor == 4 &&
         model.rope_original_positions == 8192;
}

// Latent attention alone has yarn, over 4096 original positions (MLATransformerConfig); its
// m(mscale) / m(mscale_all_dim) is ours where both are given, or neither.
bool is_its_yarn(const ModelSpec& model) {
  return model.kv_lora_rank > 0 && model.rope_original_positions == 4096 &&
         model.rope_beta_fast == 32 && model.rope_beta_slow == 1 &&
         model.rope_attention_factor == 0 && model.rope_truncate &&
         (model.rope_mscale > 0) == (model.rope_mscale_all_dim > 0);
}

void refuse_rotary(const ModelSpec& model, Refusals& refusals) {
  if (model.position_embedding != PositionKind::kRotary) return;
  refusals.refuse_if(!is_whole(model.rope_theta), fmt::format("rope_theta: {}", model.rope_theta),
                     fmt::format("rope_theta: {}", static_cast<int64_t>(model.rope_theta)));
  const RopeScaling scaling = model.rope_scaling;
  if (scaling == RopeScaling::kLlama3) {
    refusals.refuse_if(!is_its_llama3(model),
                       fmt::format("rope_scaling: llama3 with rope_low_freq_factor {}, "
                                   "rope_high_freq_factor {}, rope_original_positions {}",
                                   model.rope_low_freq_factor, model.rope_high_freq_factor,
                                   model.rope_original_positions),
                       "1, 4 and 8192");
  } else if (scaling == RopeScaling::kLinear) {
    refusals.refuse_if(
        !is_whole(model.rope_scaling_factor),
        fmt::format("rope_scaling: linear with rope_scaling_factor {}", model.rope_scaling_factor),
        "a whole number");
  } else if (scaling == RopeScaling::kYarn && model.kv_lora_rank > 0) {
    refusals.refuse_if(
        !is_its_yarn(model),
        "rope_scaling: yarn with rope_original_positions, rope_beta_fast, rope_beta_slow, "
        "rope_truncate or rope_attention_factor of its own, or one of rope_mscale and "
        "rope_mscale_all_dim alone",
        "4096, 32, 1, true, 0, and both or none");
  } else {
    refusals.refuse_if(scaling != RopeScaling::kNone,
                       fmt::format("rope_scaling: {}", name_of(scaling)),
                       "rope_scaling: llama3 or linear");
  }
}

void refuse_model(const ExportView& view, Refusals& refusals) {
  const ModelSpec& model = view.model;
  refusals.refuse_if(model.stack != Stack::kDecoder, fmt::format("stack: {}", name_of(model.stack)),
                     "stack: decoder (pretrain_gpt.py)");
  refusals.refuse_if(model.parallel_residual || model.shared_norm,
                     "parallel attention and MLP (parallel_residual, shared_norm)",
                     "parallel_residual: false");
  // Of a single expert Megatron takes the sigmoid itself.
  refusals.refuse_if(model.experts_per_token > 1 && model.router == RouterKind::kSigmoid &&
                         !model.normalize_expert_weights,
                     "normalize_expert_weights: false with router: sigmoid",
                     "normalize_expert_weights: true");
  refusals.refuse_if(model.router_correction_bias && model.router == RouterKind::kSoftmax,
                     "router_correction_bias: true with router: softmax", "router: sigmoid");
  refusals.refuse_if(model.first_dense_layers > 0 && model.moe_layer_period > 1,
                     "first_dense_layers with a moe_layer_period", "one of the two keys");
  refusals.refuse_if(model.norm_placement != NormPlacement::kBefore,
                     fmt::format("norm_placement: {}", name_of(model.norm_placement)),
                     "norm_placement: before");
  refusals.refuse_if(model.chunked_windows, "chunked_windows: true", "chunked_windows: false");
  refusals.refuse_if(!model.layer_pattern.empty(), "a hybrid's layer_pattern (pretrain_mamba.py)",
                     "a model without layer_pattern");
  refusals.refuse_if(model.vision_parameters > 0, "vision_parameters", "vision_parameters: 0");
  refuse_rotary(model, refusals);
  // Its fused GELU is the tanh one, and wants a bias (mlp.py); else it is exact.
  refusals.refuse_if(
      model.mlp == MlpKind::kGelu && model.gelu == GeluKind::kTanh && !model.mlp_bias,
      "gelu: tanh without mlp_bias", "gelu: erf");
  refusals.refuse_if(model.mlp == MlpKind::kGelu && model.gelu == GeluKind::kSigmoid,
                     "gelu: sigmoid", "gelu: erf");
  const bool quick_geglu = model.mlp == MlpKind::kGeglu && model.gelu == GeluKind::kSigmoid;
  refusals.refuse_if(model.qk_norm && model.qk_norm_over == QkNormOver::kAllHeads,
                     "qk_norm_over: all_heads", "qk_norm_over: head");
  refusals.refuse_if(model.router_bias, "router_bias: true", "router_bias: false");
  refusals.refuse_if(model.head_bias, "head_bias: true", "head_bias: false");
  refusals.refuse_if(model.mlp == MlpKind::kGeglu && !quick_geglu,
                     fmt::format("mlp: geglu with gelu: {}", name_of(model.gelu)), "gelu: sigmoid");
  refusals.refuse_if(model.mlp == MlpKind::kRelu, "mlp: relu", "mlp: gelu");
  const bool positions = model.position_embedding == PositionKind::kAlibi ||
                         model.position_embedding == PositionKind::kRelative;
  refusals.refuse_if(positions,
                     fmt::format("position_embedding: {}", name_of(model.position_embedding)),
                     "position_embedding: rotary");
  const bool all = model.qkv_bias && model.attention_output_bias && model.mlp_bias;
  const bool none = !model.attention_output_bias && !model.mlp_bias;
  refusals.refuse_if(
      !all && !none,
      fmt::format("the combination qkv_bias {}, attention_output_bias {}, mlp_bias {}",
                  model.qkv_bias, model.attention_output_bias, model.mlp_bias),
      "all three, only qkv_bias, or none");
}

void refuse_layout(const ExportView& view, Refusals& refusals) {
  const mesh::Degrees& degrees = view.degrees;
  const bool pipeline = degrees.pipeline > 1;
  refusals.precision_among(
      {Precision::kFp32, Precision::kBf16, Precision::kFp16, Precision::kFp8, Precision::kNvfp4},
      Precision::kFp32);
  const bool known =
      view.schedule == PipelineKind::kInterleaved || view.schedule == PipelineKind::kVirtual;
  refusals.refuse_if(pipeline && !known, fmt::format("pipeline: {}", name_of(view.schedule)),
                     "pipeline: interleaved or virtual");
  refusals.loss_scale_doubles();
  const OptimizerSpec& optimizer = view.training.optimizer;
  for (const auto& [name, kind] : {std::pair{"momentum_dtype", optimizer.momentum_dtype},
                                   std::pair{"variance_dtype", optimizer.variance_dtype}}) {
    refusals.refuse_if(kind == MomentKind::kInt8, fmt::format("{} int8", name), "fp8");
  }
  refusals.refuse_if(optimizer.master_weights == MasterKind::kNone, "master_weights none", "fp16");
  const bool typed = optimizer.momentum_dtype != MomentKind::kFp32 ||
                     optimizer.variance_dtype != MomentKind::kFp32 ||
                     optimizer.master_weights != MasterKind::kFp32;
  refusals.refuse_if(typed && view.sharding != Sharding::kOptimizerState,
                     "types of the optimizer's state other than fp32",
                     "sharding: optimizer_state, whose optimizer has them");
  refusals.refuse_if(typed && view.offload_optimizer,
                     "types of the optimizer's state other than fp32 with offload_optimizer",
                     "fp32");
  refusals.refuse_if(optimizer.kind == OptimizerKind::kSgd && optimizer.nesterov,
                     "optimizer.nesterov: true", "nesterov: false");
  refusals.refuse_if(view.offload_activations, "offload_activations",
                     "recompute: full without offload_activations");
  refusals.all_tensor_kinds();
  refusals.refuse_if(view.offload_parameters, "offload_parameters", "offload_optimizer alone");
  refusals.refuse_if(view.offload_optimizer && view.sharding != Sharding::kOptimizerState,
                     fmt::format("offload_optimizer with sharding: {}", name_of(view.sharding)),
                     "sharding: optimizer_state");
  refusals.refuse_if(degrees.context > 1 && view.training.sequence_length % (2 * degrees.context),
                     fmt::format("sequence_length {} with context_parallel_degree {}",
                                 view.training.sequence_length, degrees.context),
                     fmt::format("a multiple of {}", 2 * degrees.context));
}

void rotary_flags(const ModelSpec& model, Flags& flags) {
  flags.value("rotary-base", static_cast<int64_t>(model.rope_theta));
  if (rotary_dim_of(model) != model.head_dim) {
    flags.value("rotary-percent",
                static_cast<double>(model.rotary_dim) / static_cast<double>(model.head_dim));
  }
  if (model.rope_scaling == RopeScaling::kLlama3) {
    flags.flag("use-rope-scaling");
    flags.value("rope-scaling-factor", model.rope_scaling_factor);
  } else if (model.rope_scaling == RopeScaling::kLinear) {
    flags.value("rotary-seq-len-interpolation-factor",
                static_cast<int64_t>(model.rope_scaling_factor));
  }
}

// How the load of the experts is evened.
void router_loss_flags(const ModelSpec& model, Flags& flags) {
  if (model.router_correction_bias) {
    flags.flag("moe-router-enable-expert-bias");
    flags.value("moe-router-bias-update-rate", model.router_correction_rate);
  }
  if (model.router_z_loss > 0) flags.value("moe-z-loss-coeff", model.router_z_loss);
  if (model.router_balance_loss == 0) {
    flags.value("moe-router-load-balancing-type", "none");
    return;
  }
  flags.value("moe-router-load-balancing-type",
              model.router_balance_over == BalanceOver::kSequence ? "seq_aux_loss"
              : model.router_balance_over == BalanceOver::kBatch  ? "global_aux_loss"
                                                                  : "aux_loss");
  flags.value("moe-aux-loss-coeff", model.router_balance_loss);
}

void model_flags(const ModelSpec& model, Flags& flags) {
  flags.value("num-layers", model.num_layers);
  flags.value("hidden-size", model.hidden_size);
  flags.value("ffn-hidden-size", model.ffn_hidden_size);
  flags.value("num-attention-heads", model.num_heads);
  if (model.num_kv_heads != model.num_heads) {
    flags.flag("group-query-attention");
    flags.value("num-query-groups", model.num_kv_heads);
  }
  if (model.kv_lora_rank == 0) flags.value("kv-channels", model.head_dim);
  flags.value("vocab-size", model.vocab_size);
  flags.value("make-vocab-size-divisible-by", model.vocab_multiple_of);
  flags.value("max-position-embeddings", model.max_positions);
  const bool rotary = model.position_embedding == PositionKind::kRotary;
  const bool none = model.position_embedding == PositionKind::kNone;
  flags.value("position-embedding-type", rotary ? "rope" : none ? "none" : "learned_absolute");
  if (rotary) rotary_flags(model, flags);
  if (model.sliding_window > 0) {
    // The keys to the left and to the right of a query, which sees itself too.
    flags.value("window-size", fmt::format("'({},0)'", model.sliding_window - 1));
    if (model.full_attention_period > 0) {
      flags.value("window-attn-skip-freq", model.full_attention_period);
    }
  }
  if (model.mlp == MlpKind::kSwiglu) flags.flag("swiglu");
  if (model.mlp == MlpKind::kGeglu) flags.flag("quick-geglu");
  if (model.glu_limit > 0) flags.value("activation-func-clamp-value", model.glu_limit);
  if (model.glu_offset > 0) flags.value("glu-linear-offset", model.glu_offset);
  if (model.attention_sinks) flags.value("softmax-type", "learnable");
  if (model.mlp == MlpKind::kSquaredRelu) flags.flag("squared-relu");
  const bool exact = model.mlp == MlpKind::kGelu && model.gelu == GeluKind::kErf;
  if (exact && model.mlp_bias) flags.flag("no-bias-gelu-fusion");
  flags.value("normalization", model.norm == NormKind::kRmsNorm ? "RMSNorm" : "LayerNorm");
  flags.value("norm-epsilon", model.norm_epsilon);
  if (!model.tied_embeddings) flags.flag("untie-embeddings-and-output-weights");
  if (!model.mlp_bias) flags.flag("disable-bias-linear");
  if (!model.mlp_bias && model.qkv_bias) flags.flag("add-qkv-bias");
  if (model.qk_norm) flags.flag("qk-layernorm");
  flags.value("attention-dropout", model.attention_dropout);
  flags.value("hidden-dropout", model.hidden_dropout);
  flags.value("init-method-std", model.initializer_range);
  if (model.num_experts > 0) {
    flags.value("num-experts", model.num_experts);
    flags.value("moe-router-topk", model.experts_per_token);
    // Megatron's softmax is of the chosen scores unless it comes first, and it always normalizes
    // sigmoids (moe_utils.py, topk_routing_with_score_function).
    if (model.router == RouterKind::kSigmoid) {
      flags.value("moe-router-score-function", "sigmoid");
    } else if (!model.normalize_expert_weights) {
      flags.flag("moe-router-pre-softmax");
    }
    if (model.routed_scaling_factor != 1) {
      flags.value("moe-router-topk-scaling-factor", model.routed_scaling_factor);
    }
    if (model.expert_groups > 1) {
      flags.value("moe-router-num-groups", model.expert_groups);
      flags.value("moe-router-group-topk", model.expert_groups_per_token);
    }
    router_loss_flags(model, flags);
    flags.value("moe-ffn-hidden-size", model.expert_ffn_hidden_size);
    if (model.expert_capacity_factor > 0) {
      flags.value("moe-expert-capacity-factor", model.expert_capacity_factor);
      if (model.pad_experts_to_capacity) flags.flag("moe-pad-expert-input-to-capacity");
    }
    if (model.shared_expert_ffn_hidden_size > 0) {
      flags.value("moe-shared-expert-intermediate-size", model.shared_expert_ffn_hidden_size);
      if (model.shared_expert_gate) flags.flag("moe-shared-expert-gate");
    }
    if (model.first_dense_layers > 0) {
      flags.value("moe-layer-freq", fmt::format("'([0]*{}+[1]*{})'", model.first_dense_layers,
                                                model.num_layers - model.first_dense_layers));
    } else {
      flags.value("moe-layer-freq", model.moe_layer_period);
    }
  }
  if (model.kv_lora_rank > 0) {
    flags.flag("multi-latent-attention");
    if (model.q_lora_rank > 0) flags.value("q-lora-rank", model.q_lora_rank);
    flags.value("kv-lora-rank", model.kv_lora_rank);
    flags.value("qk-head-dim", model.qk_head_dim);
    flags.value("qk-pos-emb-head-dim", model.qk_rope_head_dim);
    flags.value("v-head-dim", model.v_head_dim);
    if (model.rope_scaling == RopeScaling::kYarn) {
      flags.value("rotary-scaling-factor", model.rope_scaling_factor);
      if (model.rope_mscale > 0) {
        flags.value("mscale", model.rope_mscale);
        flags.value("mscale-all-dim", model.rope_mscale_all_dim);
      }
    }
  }
  if (model.num_mtp_layers > 0) {
    flags.value("mtp-num-layers", model.num_mtp_layers);
    flags.value("mtp-loss-scaling-factor", model.mtp_loss_factor);
  }
}

// Stages of unequal size: the first and the last may differ, the others are equal.
void partition_flags(const ExportView& view, Refusals& refusals, Flags& flags) {
  if (view.degrees.pipeline == 1 || view.partition_is_even()) return;
  const std::vector<int64_t> layers = view.partition();
  if (static_cast<int64_t>(layers.size()) != view.degrees.pipeline) {
    refusals.refuse_if(true, "a partition by chunks", "the same number of layers in each chunk");
    return;
  }
  const size_t last = layers.size() - 1;
  for (size_t stage = 2; stage < last; ++stage) {
    if (layers[stage] == layers[1]) continue;
    refusals.refuse_if(true, "a partition whose middle stages differ",
                       "equal stages between the first and the last");
    return;
  }
  flags.value("decoder-first-pipeline-num-layers", layers[0]);
  if (last > 1) flags.value("decoder-last-pipeline-num-layers", layers[last]);
}

void layout_flags(const ExportView& view, Refusals& refusals, Flags& flags) {
  const mesh::Degrees& degrees = view.degrees;
  flags.value("tensor-model-parallel-size", degrees.tensor);
  flags.value("pipeline-model-parallel-size", degrees.pipeline);
  if (degrees.context > 1) flags.value("context-parallel-size", degrees.context);
  if (degrees.exchange > 1) {
    const bool is_hybrid = degrees.exchange < degrees.context;
    flags.value("cp-comm-type", is_hybrid ? "a2a+p2p" : "a2a");
    if (is_hybrid) {
      flags.value("hierarchical-context-parallel-sizes",
                  fmt::format("{} {}", degrees.exchange, degrees.ring()));
    }
  }
  if (degrees.expert > 1) flags.value("expert-model-parallel-size", degrees.expert);
  if (view.model.num_experts > 0 && degrees.expert_tensor != degrees.tensor) {
    flags.value("expert-tensor-parallel-size", degrees.expert_tensor);
  }
  if (view.sequence_parallel) flags.flag("sequence-parallel");
  if (degrees.pipeline > 1 && view.schedule == PipelineKind::kVirtual) {
    flags.value("num-virtual-stages-per-pipeline-rank", view.virtual_stages);
  }
  partition_flags(view, refusals, flags);
  const std::string order = view.rank_order();
  if (order == "DPT" || order == "DP") {
    flags.flag("use-tp-pp-dp-mapping");
  } else {
    refusals.note_order("PDT",
                        "Megatron supports only this order and, with --use-tp-pp-dp-mapping, DPT");
  }
  if (view.parallel.bucket_bytes) {
    flags.value("ddp-bucket-size", *view.parallel.bucket_bytes / 4);  // elements of fp32
  }
  if (view.sharding == Sharding::kNone) return;
  flags.flag("use-distributed-optimizer");
  if (degrees.replica > 1) flags.value("num-distributed-optimizer-instances", degrees.replica);
  if (view.sharding == Sharding::kOptimizerState) return;
  flags.flag("use-megatron-fsdp");
  flags.value("data-parallel-sharding-strategy",
              view.sharding == Sharding::kParameters ? "optim_grads_params" : "optim_grads");
  flags.value("ckpt-format", "fsdp_dtensor");
}

void optimizer_flags(const TrainingSpec& training, Flags& flags) {
  const OptimizerSpec& optimizer = training.optimizer;
  if (optimizer.kind == OptimizerKind::kSgd) {
    flags.value("optimizer", "sgd");
    flags.value("sgd-momentum", optimizer.momentum);
  } else {
    flags.value("adam-beta1", optimizer.beta1);
    flags.value("adam-beta2", optimizer.beta2);
    flags.value("adam-eps", optimizer.epsilon);
  }
  const bool fp32_moments = optimizer.momentum_dtype == MomentKind::kFp32 &&
                            optimizer.variance_dtype == MomentKind::kFp32;
  if (!fp32_moments || optimizer.master_weights != MasterKind::kFp32) {
    flags.flag("use-precision-aware-optimizer");
    if (!fp32_moments) {
      flags.value("exp-avg-dtype", name_of(optimizer.momentum_dtype));
      flags.value("exp-avg-sq-dtype", name_of(optimizer.variance_dtype));
    }
    if (optimizer.master_weights == MasterKind::kFp32) flags.flag("no-store-param-remainders");
    if (optimizer.master_weights == MasterKind::kFp16) flags.value("main-params-dtype", "fp16");
  }
  const bool wsd = optimizer.schedule == LearningRateSchedule::kWsd;
  flags.value("lr", optimizer.learning_rate);
  flags.value("lr-decay-style", wsd ? "WSD" : name_of(optimizer.schedule));
  if (optimizer.schedule != LearningRateSchedule::kConstant) {
    flags.value("min-lr", optimizer.min_learning_rate);
  }
  flags.value("lr-warmup-iters", optimizer.warmup_steps);
  if (wsd) {
    flags.value("lr-wsd-decay-style", "linear");
    flags.value("lr-wsd-decay-iters", optimizer.decay_steps);
  }
  flags.value("weight-decay", optimizer.weight_decay);
  flags.value("clip-grad", optimizer.gradient_clipping);
}

void loss_scale_flags(const LossScaleSpec& scale, Flags& flags) {
  if (!scale.dynamic) {
    flags.value("loss-scale", scale.init_scale);
    return;
  }
  flags.value("initial-loss-scale", scale.init_scale);
  flags.value("min-loss-scale", scale.min_scale);
  flags.value("loss-scale-window", scale.scale_window);
  flags.value("hysteresis", scale.delayed_shift);
}

void training_flags(const ExportView& view, Flags& flags) {
  const TrainingSpec& training = view.training;
  flags.value("seq-length", training.sequence_length);
  flags.value("micro-batch-size", view.micro_batch);
  flags.value("global-batch-size", view.global_batch);
  if (training.steps > 0) flags.value("train-iters", training.steps);
  if (view.precision == Precision::kFp16) flags.flag("fp16");
  const bool fp4 = view.precision == Precision::kNvfp4;
  if (view.precision == Precision::kBf16 || is_narrow(view.precision)) flags.flag("bf16");
  if (view.precision == Precision::kFp8) {
    const Fp8Recipe recipe = training.fp8_recipe;
    flags.value("fp8-format", recipe == Fp8Recipe::kMxfp8 ? "e4m3" : "hybrid");
    flags.value("fp8-recipe", recipe == Fp8Recipe::kCurrent ? "tensorwise" : name_of(recipe));
  }
  if (fp4) flags.value("fp4-format", "e2m1");
  if (training.fp8_parameters) flags.flag(fp4 ? "fp4-param-gather" : "fp8-param-gather");
  if (view.is_half() && training.accumulate_gradients_in_fp32) {
    flags.flag(*training.accumulate_gradients_in_fp32 ? "accumulate-allreduce-grads-in-fp32"
                                                      : "grad-reduce-in-bf16");
  }
  flags.value("attention-backend",
              training.attention == AttentionKind::kFlash ? "flash" : "unfused");
  if (view.recompute == Recompute::kSelective) {
    flags.value("recompute-granularity", "selective");
    if (!view.parallel.recompute_modules.empty()) {
      flags.value("recompute-modules",
                  fmt::format("{}", fmt::join(view.parallel.recompute_modules, " ")));
    }
  } else if (view.recompute == Recompute::kFull) {
    const auto layers = view.parallel.recompute_layers;
    const int64_t stage =
        (view.model.num_layers + view.degrees.pipeline - 1) / view.degrees.pipeline;
    const auto group = layers_per_checkpoint(view.parallel.activation_checkpointing_strategy);
    flags.value("recompute-granularity", "full");
    flags.value("recompute-method", layers ? "block" : "uniform");
    flags.value("recompute-num-layers", layers.value_or(std::min(group.value_or(1), stage)));
  }
  if (view.parallel.partition_activations) flags.flag("distribute-saved-activations");
  if (view.offload_optimizer) {
    flags.flag("optimizer-cpu-offload");
    flags.flag("use-precision-aware-optimizer");
  }
  optimizer_flags(training, flags);
  if (view.precision == Precision::kFp16) loss_scale_flags(training.loss_scale, flags);
  flags.value("seed", training.seed);
}

}  // namespace

std::string write_megatron(const ExportView& view, Refusals& refusals) {
  refuse_model(view, refusals);
  refuse_layout(view, refusals);
  Flags flags;
  model_flags(view.model, flags);
  layout_flags(view, refusals, flags);
  training_flags(view, flags);
  refusals.note("add the tokenizer, the data and the checkpoints");
  return torchrun_words(view) + " pretrain_gpt.py" + flags.take() + "\n";
}

}  // namespace smp::exporters
