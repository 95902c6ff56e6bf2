#include "framework/framework_fields.h"

#include <fmt/format.h>

#include "spec/choices.h"
#include "text/scalar.h"

// The member of a Framework that a key sets.
#define SMP_HABIT(member) \
  [](Framework & framework) -> auto& { return framework.member; }

namespace smp::framework {
namespace {

constexpr std::string_view kAbout = "about";
constexpr std::string_view kOffers = "offers";
constexpr std::string_view kStates = "states";
constexpr std::string_view kGathered = "gathered";
constexpr std::string_view kSaved = "saved";
constexpr std::string_view kKernels = "kernels";
constexpr std::string_view kMessages = "messages";
constexpr std::string_view kProcess = "process";
constexpr std::string_view kUsual = "usual";
constexpr std::string_view kResiduals = "residuals";

constexpr double kMostTimes = 100;  // of a ratio of measured to predicted

}  // namespace

const std::vector<HabitSection>& habit_sections() {
  static const std::vector<HabitSection> kSections = {
      {kAbout, "The framework that the file describes. A file says these keys of itself."},
      {kOffers,
       "The schedules, kinds of sharding and settings that the framework has. The search chooses "
       "no others for it."},
      {kStates, "Weights, gradients and the optimizer's state of a rank."},
      {kGathered, "Weights that `sharding: parameters` has gathered."},
      {kSaved, "Tensors that the forward pass keeps for the backward pass, and the loss."},
      {kKernels, "Kernels of a layer: their number, and the passes over memory that they save."},
      {kMessages, "Messages between ranks, and the part of them that computing hides."},
      {kProcess, "Device memory outside the tensors."},
      {kUsual,
       "Settings that users of the framework run. `smp-plan score` takes them where a "
       "published row says nothing."},
      {kResiduals,
       "Measured / predicted of published runs: nine of ten lie between low and high. The ranges "
       "decide between `fits` and `tight`."},
  };
  return kSections;
}

const std::vector<HabitField>& habit_fields() {
  static const std::vector<HabitField> kFields = {
      {.section = kAbout,
       .key = "name",
       .target = SMP_HABIT(name),
       .doc = "name in reports; of a shipped file, the file's name",
       .own = true},
      {.section = kAbout,
       .key = "title",
       .target = SMP_HABIT(title),
       .doc = "framework, for people",
       .own = true},
      {.section = kAbout,
       .key = "versions",
       .target = SMP_HABIT(versions),
       .doc = "releases or commits that the file describes",
       .own = true},
      {.section = kAbout,
       .key = "sources",
       .target = SMP_HABIT(sources),
       .doc = "code, papers and tables behind the file",
       .own = true},

      {kOffers, "schedules", SMP_HABIT(offers.schedules),
       "values of `parallel.pipeline` that the framework has; `[]` without a pipeline"},
      {kOffers, "shardings", SMP_HABIT(offers.shardings),
       "values of `parallel.sharding` that the framework has"},
      {kOffers, "master_weights", SMP_HABIT(offers.master_weights),
       "values of `training.optimizer.master_weights` that the framework has"},
      {kOffers, "moments", SMP_HABIT(offers.moments),
       "values of `training.optimizer.momentum_dtype` and `variance_dtype` that the framework has"},
      {kOffers, "fp8_parameters", SMP_HABIT(offers.fp8_parameters),
       "whether weights can exist in fp8 or NVFP4 alone (`training.fp8_parameters`)"},
      {kOffers, "sharded_pipelines", SMP_HABIT(offers.sharded_pipelines),
       "whether `sharding: gradients` and `parameters` go with a pipeline"},
      {kOffers, "sequence_parallel", SMP_HABIT(offers.sequence_parallel),
       "whether tensor ranks can split activations by tokens"},
      {kOffers, "context_parallel", SMP_HABIT(offers.context),
       "whether ranks can share a sequence"},
      {kOffers, "expert_parallel", SMP_HABIT(offers.experts),
       "whether ranks can share a layer's experts"},
      {kOffers, "offload_activations", SMP_HABIT(offers.offload_activations),
       "whether saved activations can lie in host memory"},
      {kOffers, "offload_optimizer", SMP_HABIT(offers.offload_optimizer),
       "whether the optimizer's state can lie in host memory"},
      {kOffers, "offload_parameters", SMP_HABIT(offers.offload_parameters),
       "whether shards of parameters can lie in host memory"},
      {kOffers, "recompute_modules", SMP_HABIT(offers.recompute_modules),
       "whether `recompute: selective` takes `parallel.recompute_modules`"},
      {kOffers, "spread_placement", SMP_HABIT(offers.spread_placement),
       "whether the search may place the stages of a pipeline on different hosts "
       "(`placement_strategy: spread`)"},
      {kOffers, "smddp", SMP_HABIT(offers.smddp),
       "whether SageMaker's SMDDP may do the collectives of data parallelism"},

      {kStates, "fp32_gradients_with_bf16", SMP_HABIT(model.fp32_gradients_with_bf16),
       "gradients are summed in fp32 beside bf16 weights"},
      {kStates, "fp32_gradients_with_fp16", SMP_HABIT(model.fp32_gradients_with_fp16),
       "gradients are summed in fp32 beside fp16 weights"},
      {kStates, "gradient_copy_in_fp32", SMP_HABIT(model.gradient_copy_in_fp32),
       "fp16: an fp32 copy lies beside the 16-bit gradients"},
      {kStates, "gradient_copy_at_step_only", SMP_HABIT(model.gradient_copy_at_step_only),
       "the optimizer's step makes that copy and drops it"},
      {kStates, "fp32_sum_beside_gradients", SMP_HABIT(model.fp32_sum_beside_gradients),
       "sums of bf16 gradients in fp32 lie beside them, unsharded up to `sharding: "
       "optimizer_state`"},
      {kStates, "fp32_weights", SMP_HABIT(model.fp32_weights),
       "shards of weights are fp32; 16-bit weights exist while they are gathered"},
      {kStates, "flat_gradient_buffer", SMP_HABIT(model.flat_gradient_buffer),
       "all gradients lie in one buffer from the first step to the last"},
      {kStates, "tied_copy_has_optimizer", SMP_HABIT(model.tied_copy_has_optimizer),
       "the last stage's copy of a tied embedding has an optimizer state of its own"},
      {kStates, "context_shards_states", SMP_HABIT(model.context_shards_states),
       "context-parallel ranks share the sharded states as data-parallel ranks do"},
      {kStates, "fused_optimizer", SMP_HABIT(model.fused_optimizer),
       "the update is one kernel without temporary tensors"},
      {.section = kStates,
       .key = "step_bytes",
       .target = SMP_HABIT(model.step_bytes),
       .doc = "bytes of each updated parameter that the optimizer's step needs for a while",
       .unit = Unit::kBytes},
      {.section = kStates,
       .key = "step_bytes_unfused",
       .target = SMP_HABIT(model.step_bytes_unfused),
       .doc = "bytes of each updated parameter that an update of several kernels needs besides",
       .unit = Unit::kBytes},

      {.section = kGathered,
       .key = "reuse_elements",
       .target = SMP_HABIT(model.reuse_elements),
       .doc = "weights stay gathered if they are needed again before so many more elements are "
              "gathered; 0 = one block, and `prefetch_layers` more",
       .unit = Unit::kElements},
      {kGathered, "small_shard_buckets", SMP_HABIT(model.small_shard_buckets),
       "a bucket of gradients, or of weights fetched ahead, holds at most hidden_size x "
       "hidden_size elements"},
      {kGathered, "gathers_ends_with_model", SMP_HABIT(model.gathers_ends_with_model),
       "embedding and head stay gathered from the forward pass to the end of the backward pass"},

      {kSaved, "frees_sent_outputs", SMP_HABIT(model.frees_sent_outputs),
       "a stage frees an output once it is sent to the next stage"},
      {kSaved, "fetches_checkpoints_late", SMP_HABIT(model.fetches_checkpoints_late),
       "an offloaded checkpoint comes back when its layer runs, not earlier"},
      {kSaved, "repeats_kv_heads", SMP_HABIT(model.repeats_kv_heads),
       "keys and values are copied to every query head"},
      {kSaved, "selective_per_operation", SMP_HABIT(model.selective_per_operation),
       "`recompute: selective` keeps the output of every other matmul; otherwise it recomputes "
       "the core of attention"},
      {.section = kSaved,
       .key = "held_by_messages",
       .target = SMP_HABIT(model.held_by_messages),
       .doc = "whole tensors [tokens, hidden] of each block and microbatch in flight that "
              "asynchronous messages of tensor parallelism hold while the processor launches ahead "
              "of the accelerator; they are given back when memory runs out",
       .max = kMostTimes},
      {kSaved, "expert_outputs", SMP_HABIT(model.keeps_expert_outputs),
       "what experts put out is kept for the gradient of the router's weights; not where those are "
       "applied inside the experts"},
      {.section = kSaved,
       .key = "routed_tokens",
       .target = SMP_HABIT(model.routed_tokens),
       .doc = "tokens of the experts of the fullest rank, over the mean of the ranks",
       .min = 1,
       .max = kMostTimes},
      {kSaved, "fp32_logits", SMP_HABIT(model.fp32_logits),
       "the loss is computed of logits in fp32"},
      {.section = kSaved,
       .key = "logit_forward_bytes",
       .target = SMP_HABIT(model.logit.forward),
       .doc = "bytes of one logit in the forward pass of the loss",
       .unit = Unit::kBytes},
      {.section = kSaved,
       .key = "logit_kept_bytes",
       .target = SMP_HABIT(model.logit.kept),
       .doc = "bytes of one logit until its backward pass",
       .unit = Unit::kBytes},
      {.section = kSaved,
       .key = "logit_backward_bytes",
       .target = SMP_HABIT(model.logit.backward),
       .doc = "bytes of one logit in the backward pass of the loss",
       .unit = Unit::kBytes},
      {.section = kSaved,
       .key = "fused_logit_forward_bytes",
       .target = SMP_HABIT(model.fused_logit.forward),
       .doc = "the same with `training.fused_loss`",
       .unit = Unit::kBytes},
      {.section = kSaved,
       .key = "fused_logit_kept_bytes",
       .target = SMP_HABIT(model.fused_logit.kept),
       .doc = "the same with `training.fused_loss`",
       .unit = Unit::kBytes},
      {.section = kSaved,
       .key = "fused_logit_backward_bytes",
       .target = SMP_HABIT(model.fused_logit.backward),
       .doc = "the same with `training.fused_loss`",
       .unit = Unit::kBytes},

      {.section = kKernels,
       .key = "operators_per_block",
       .target = SMP_HABIT(model.operators_per_block),
       .doc = "operators that the processor launches for a block's forward pass; a backward pass "
              "launches twice as many"},
      {.section = kKernels,
       .key = "routing_operators",
       .target = SMP_HABIT(model.routing_operators),
       .doc =
           "operators that a block with experts launches besides, to route, permute and exchange "
           "tokens"},
      {.section = kKernels,
       .key = "hopper_matmul_rate",
       .target = SMP_HABIT(model.hopper_matmul_rate),
       .doc =
           "matmul rate from Hopper on, as a multiple of the cluster's `matmul_efficiency`, which "
           "is that of eager PyTorch there",
       .min = 0.01,
       .max = kMostTimes},
      {.section = kKernels,
       .key = "fp8_matmul_rate",
       .target = SMP_HABIT(model.fp8_matmul_rate),
       .doc = "rate of fp8 matmuls, as a further multiple",
       .min = 0.01,
       .max = kMostTimes},
      {.section = kKernels,
       .key = "attention_forward_rate",
       .target = SMP_HABIT(model.attention_forward_rate),
       .doc = "share of the matmul rate that fused attention reaches in the forward pass",
       .unit = Unit::kShare,
       .min = 0.01,
       .max = 1},
      {.section = kKernels,
       .key = "attention_backward_rate",
       .target = SMP_HABIT(model.attention_backward_rate),
       .doc = "the same in the backward pass",
       .unit = Unit::kShare,
       .min = 0.01,
       .max = 1},
      {kKernels, "fused_gate", SMP_HABIT(model.fused_gate),
       "the activation of a gated MLP and its product are one kernel, which keeps no result "
       "between "
       "them"},
      {kKernels, "fused_kernels", SMP_HABIT(model.fused_kernels),
       "norm, bias with activation, and softmax are one kernel each"},
      {kKernels, "transformer_engine", SMP_HABIT(model.transformer_engine),
       "layers are those of NVIDIA's Transformer Engine"},
      {kKernels, "fused_weight_gradients", SMP_HABIT(model.fused_weight_gradients),
       "the matmul of a weight's gradient adds to the gradient buffer itself"},

      {.section = kMessages,
       .key = "bucket_elements",
       .target = SMP_HABIT(model.bucket_elements),
       .doc = "elements of one reduction of gradients; 0 = 25 MB of 16-bit elements, in `smp` "
              "`parallel.bucket_bytes`",
       .unit = Unit::kElements},
      {.section = kMessages,
       .key = "all_gather_bucket_elements",
       .target = SMP_HABIT(model.all_gather_bucket_elements),
       .doc = "elements of one gather of updated weights; 0 = 25 MB of 16-bit elements",
       .unit = Unit::kElements},
      {kMessages, "overlaps_data_reduction", SMP_HABIT(model.overlaps_data_reduction),
       "gradients are reduced beside the backward pass"},
      {kMessages, "plain_reductions_wait", SMP_HABIT(model.plain_reductions_wait),
       "but a pipeline's gradients, and unsharded ones, after it"},
      {kMessages, "overlaps_parameter_gather", SMP_HABIT(model.overlaps_parameter_gather),
       "updated weights are gathered beside the next forward pass"},
      {kMessages, "reduces_everywhere", SMP_HABIT(model.reduces_everywhere),
       "`sharding: optimizer_state` all-reduces gradients instead of reduce-scattering them"},
      {kMessages, "owners_broadcast", SMP_HABIT(model.owners_broadcast),
       "`sharding: optimizer_state` and `gradients`: each owner of tensors broadcasts its updated "
       "weights"},
      {.section = kMessages,
       .key = "gather_share",
       .target = SMP_HABIT(model.gather_share),
       .doc = "share of a host's network that gathers and reductions of `sharding: parameters` "
              "reach between hosts",
       .unit = Unit::kShare,
       .min = 0.001,
       .max = 1},
      {.section = kMessages,
       .key = "gathers_hidden",
       .target = SMP_HABIT(model.gathers_hidden),
       .doc = "share of their time that computing can hide",
       .unit = Unit::kShare,
       .max = 1},
      {.section = kMessages,
       .key = "tensor_hidden",
       .target = SMP_HABIT(model.tensor_hidden),
       .doc = "share of the messages of `sequence_parallel` that matmuls hide",
       .unit = Unit::kShare,
       .max = 1},
      {.section = kMessages,
       .key = "tensor_crossing_s",
       .target = SMP_HABIT(model.tensor_crossing_s),
       .doc =
           "seconds that each message of tensor parallelism takes longer for each border between "
           "hosts that its group crosses",
       .max = 1},
      {.section = kMessages,
       .key = "pipeline_crossing_s",
       .target = SMP_HABIT(model.pipeline_crossing_s),
       .doc = "seconds that a block's messages of tensor parallelism wait, forward and backward "
              "together, for each hop of their ring, where the pipeline crosses hosts",
       .max = 1},
      {kMessages, "waits_for_sends", SMP_HABIT(model.waits_for_sends),
       "a stage computes nothing while it sends to its neighbour, and each tensor rank sends its "
       "part"},
      {.section = kMessages,
       .key = "neighbour_wait",
       .target = SMP_HABIT(model.neighbour_wait),
       .doc = "share of its work that a stage between two others loses in waiting for both",
       .unit = Unit::kShare,
       .max = 1},
      {kMessages, "rank_order", SMP_HABIT(model.rank_order),
       "order of the axes over ranks with `placement_strategy: cluster`, the right-most varying "
       "fastest"},

      {.section = kProcess,
       .key = "context_bytes",
       .target = SMP_HABIT(model.fixed_bytes),
       .doc = "the device's context and loaded libraries",
       .unit = Unit::kBytes},
      {.section = kProcess,
       .key = "communicator_bytes",
       .target = SMP_HABIT(model.communicator_bytes),
       .doc = "buffers of each communicator that a rank is in",
       .unit = Unit::kBytes},
      {.section = kProcess,
       .key = "fragmentation",
       .target = SMP_HABIT(model.fragmentation),
       .doc = "reserved / allocated - 1 of PyTorch's allocator",
       .unit = Unit::kShare,
       .max = 1},

      {.section = kUsual,
       .key = "dropout",
       .target = SMP_HABIT(usual.dropout),
       .doc = "dropout of models with learned positions",
       .unit = Unit::kShare,
       .max = 1},
      {.section = kUsual,
       .key = "vocab_multiple_of",
       .target = SMP_HABIT(usual.vocab_multiple_of),
       .doc = "the vocabulary is padded to a multiple of this times the tensor degree; 1 = not",
       .min = 1,
       .max = 1 << 20},
      {kUsual, "sequence_parallel", SMP_HABIT(usual.sequence_parallel),
       "tensor parallelism comes with `sequence_parallel: true`"},
      {kUsual, "fp8_parameters", SMP_HABIT(usual.fp8_parameters),
       "`precision: fp8` comes with `fp8_parameters: true`"},
      {kUsual, "remainder_master_weights", SMP_HABIT(usual.remainder_master_weights),
       "`precision: bf16` comes with `optimizer.master_weights: remainder`"},
      {kUsual, "recomputes_fewest_layers", SMP_HABIT(usual.recomputes_fewest_layers),
       "a run that does not fit otherwise recomputes the fewest layers of each stage with which it "
       "does; otherwise all"},
      {kUsual, "cuts_by_matmuls", SMP_HABIT(usual.cuts_by_matmuls),
       "a pipeline's stages are cut by the matmuls of blocks and head, not by the number of "
       "blocks"},
      {kUsual, "fused_adapters", SMP_HABIT(usual.fused_adapters),
       "LoRA has one adapter for query, key and value, and one for gate and up, because they are "
       "one "
       "matrix each"},
      {kUsual, "unnamed", SMP_HABIT(usual.unnamed),
       "of a shipped file: published runs leave out the framework's name, so that "
       "`framework: unknown` may be it"},

      {.section = kResiduals,
       .key = "memory_low",
       .target = SMP_HABIT(memory.low),
       .doc = "low end for peak memory",
       .max = 1},
      {.section = kResiduals,
       .key = "memory_high",
       .target = SMP_HABIT(memory.high),
       .doc = "high end for peak memory",
       .min = 1,
       .max = kMostTimes},
      {.section = kResiduals,
       .key = "memory_rows",
       .target = SMP_HABIT(memory.rows),
       .doc = "published runs that the range of memory rests on; 0 = assumed",
       .own = true},
      {.section = kResiduals,
       .key = "time_low",
       .target = SMP_HABIT(time.low),
       .doc = "low end for the time of a step",
       .max = 1},
      {.section = kResiduals,
       .key = "time_high",
       .target = SMP_HABIT(time.high),
       .doc = "high end for the time of a step",
       .min = 1,
       .max = kMostTimes},
      {.section = kResiduals,
       .key = "time_rows",
       .target = SMP_HABIT(time.rows),
       .doc = "published runs that the range of time rests on; 0 = assumed",
       .own = true},
  };
  return kFields;
}

std::string value_words(const HabitField& field) {
  struct Words {
    const HabitField& field;
    std::string number() const {
      switch (field.unit) {
        case Unit::kBytes: return "a size in bytes";
        case Unit::kElements: return "elements, a whole number";
        case Unit::kShare: return fmt::format("a share from {} to 1", text::number_text(field.min));
        case Unit::kNone: break;
      }
      const bool whole = std::holds_alternative<Member<int64_t>>(field.target);
      const std::string kind = whole ? "a whole number" : "a number";
      if (field.max < 1e15) {
        return fmt::format("{} from {} to {}", kind, text::number_text(field.min),
                           text::number_text(field.max));
      }
      return fmt::format("{} from {}", kind, text::number_text(field.min));
    }
    std::string operator()(Member<bool>) const { return "true or false"; }
    std::string operator()(Member<int64_t>) const { return number(); }
    std::string operator()(Member<double>) const { return number(); }
    std::string operator()(Member<std::string>) const {
      return field.key == "rank_order" ? text::joined_or(rank_orders()) : "text";
    }
    std::string operator()(Member<std::vector<std::string>>) const { return "a list of texts"; }
    std::string operator()(Member<std::vector<PipelineKind>>) const {
      return "a list of " + text::joined_or(choice_names<PipelineKind>());
    }
    std::string operator()(Member<std::vector<MasterKind>>) const {
      return "a list of " + text::joined_or(choice_names<MasterKind>());
    }
    std::string operator()(Member<std::vector<MomentKind>>) const {
      return "a list of " + text::joined_or(choice_names<MomentKind>());
    }
    std::string operator()(Member<std::vector<Sharding>>) const {
      return "a list of " + text::joined_or(choice_names<Sharding>());
    }
  };
  return std::visit(Words{field}, field.target);
}

const std::vector<std::string>& rank_orders() {
  static const std::vector<std::string> kOrders = {"DPT", "DTP", "PDT", "PTD", "TDP", "TPD"};
  return kOrders;
}

}  // namespace smp::framework
