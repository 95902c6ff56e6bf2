#include "jobfile/field_rows.h"
#include "smp/plan/model/adapters.h"

// What is trained of a model, and what is frozen: training.frozen and the section training.lora.
namespace smp::jobfile {
namespace {

bool has_adapters(const JobSpec& job) { return job.training.lora.rank > 0; }
const Condition kHasAdapters = {has_adapters, "training.lora.rank", "rank above 0"};

}  // namespace

void add_fine_tuning_fields(std::vector<Field>& out) {
  const std::vector<Field> fields = {
      {kTraining,
       "frozen",
       SMP_AT(training.frozen),
       "parts that are not trained: embedding (with a tied projection), head, layers, or the first "
       "layers as in layers.0-15; smp-plan prices them as other frameworks run them",
       {.example = "[embedding, layers.0-15]",
        .condition = kTransformerModel,
        .also = {"freeze", "frozen_layers", "freeze_layers"}}},
      {kLora,
       "rank",
       SMP_AT(training.lora.rank),
       "rank of the adapters; all other weights are then frozen; 0 = no adapters",
       {.max = kMostWidth,
        .condition = kTransformerModel,
        .also = {"r", "dim", "lora_r", "lora_rank", "lora_dim"}}},
      {kLora,
       "alpha",
       SMP_AT(training.lora.alpha),
       "an adapter's output is scaled by alpha / rank",
       {.max = kMostScale,
        .min_excluded = true,
        .computed = "rank, a scale of 1",
        .condition = kHasAdapters,
        .also = {"lora_alpha"}}},
      {kLora,
       "targets",
       SMP_AT(training.lora.targets),
       "linear layers of the blocks with adapters; attention.qkv and mlp.gate_up share one "
       "adapter, "
       "as Megatron's fused layers do; all_linear = each linear layer",
       {.words = model::adapter_targets(),
        .example = "[attention.q, attention.v]",
        .condition = kHasAdapters,
        .also = {"target_modules", "lora_target_modules"}}},
      {kLora,
       "dropout",
       SMP_AT(training.lora.dropout),
       "share of an adapter's input that is dropped",
       {.max = 1, .max_excluded = true, .condition = kHasAdapters, .also = {"lora_dropout"}}},
      {kLora,
       "quantized",
       SMP_AT(training.lora.quantized),
       "storage of the blocks' frozen matrices: none = 16 bits (fp32 with precision: fp32); nf4 = "
       "4 "
       "bits and an fp32 scale for 64 elements; nf4_double = scales in 8 bits; fp8, int8 = 8 bits",
       {.condition = kHasAdapters, .also = {"load_in_4bit", "bnb_4bit_quant_type", "qlora"}}},
  };
  out.insert(out.end(), fields.begin(), fields.end());
}

}  // namespace smp::jobfile
