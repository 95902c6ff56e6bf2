#include "text/other_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/text/lower_case.h"

namespace smp::text {
namespace {

struct OtherWord {
  std::string_view theirs;  // in small letters, with _
  std::string_view ours;
  std::string_view name;            // as it is said
  std::string_view where = "here";  // "now" for a word that this program used before
};

// A word stands for what is a choice of the key in question: `none` of sharding and of recompute
// are two rows' business.
constexpr OtherWord kOtherWords[] = {
    // training.precision
    {"bfloat16", "bf16", "bfloat16"},
    {"float16", "fp16", "float16"},
    {"half", "fp16", "half"},
    {"float32", "fp32", "float32"},
    {"float", "fp32", "float"},
    {"single", "fp32", "single"},
    {"tf32", "fp32", "tf32"},
    {"float64", "fp64", "float64"},
    {"double", "fp64", "double"},
    {"float8", "fp8", "float8"},
    {"hybrid", "fp8", "FP8 hybrid"},
    {"bf16_mixed", "bf16", "bf16-mixed"},
    {"16_mixed", "fp16", "16-mixed"},
    // parallel.pipeline
    {"1f1b", "interleaved", "1F1B"},
    {"one_forward_one_backward", "interleaved", "1F1B"},
    {"pipedream", "interleaved", "PipeDream-Flush"},
    {"pipedream_flush", "interleaved", "PipeDream-Flush"},
    {"gpipe", "simple", "GPipe"},
    {"interleaved1f1b", "virtual", "interleaved 1F1B"},
    {"interleaved_1f1b", "virtual", "interleaved 1F1B"},
    {"vpp", "virtual", "a virtual pipeline"},
    {"zb1p", "zb_h1", "ZB1P"},
    {"interleavedzerobubble", "zb_h1", "a zero bubble schedule"},
    {"zero_bubble", "zb_h1", "a zero bubble schedule"},
    {"zbv", "zb_v", "ZB-V"},
    {"zbvzerobubble", "zb_v", "ZBVZeroBubble"},
    // parallel.sharding
    {"ddp", "none", "plain data parallelism"},
    {"no_shard", "none", "NO_SHARD"},
    {"zero0", "none", "ZeRO stage 0"},
    {"zero1", "optimizer_state", "ZeRO-1"},
    {"zero_1", "optimizer_state", "ZeRO-1"},
    {"1", "optimizer_state", "ZeRO stage 1"},
    {"optim", "optimizer_state", "the optimizer's state"},
    {"optimizer", "optimizer_state", "the optimizer's state"},
    {"os", "optimizer_state", "ZeRO-1"},
    {"zero2", "gradients", "ZeRO-2"},
    {"zero_2", "gradients", "ZeRO-2"},
    {"2", "gradients", "ZeRO stage 2"},
    {"shard_grad_op", "gradients", "SHARD_GRAD_OP"},
    {"optim_grads", "gradients", "ZeRO-2"},
    {"zero3", "parameters", "ZeRO-3"},
    {"zero_3", "parameters", "ZeRO-3"},
    {"3", "parameters", "ZeRO stage 3"},
    {"fsdp", "parameters", "FSDP"},
    {"fsdp2", "parameters", "FSDP2"},
    {"full_shard", "parameters", "FULL_SHARD"},
    {"hybrid_shard", "parameters", "HYBRID_SHARD, with sharded_data_parallel_degree,"},
    {"optim_grads_params", "parameters", "ZeRO-3"},
    {"params", "parameters", "ZeRO-3"},
    // parallel.recompute
    {"block", "full", "recomputing by blocks, with recompute_layers,"},
    {"all", "full", "recomputing everything"},
    {"off", "none", "off"},
    {"core_attn", "selective", "recomputing the core of attention"},
    // training.optimizer.kind
    {"adam_w", "adamw", "AdamW"},
    {"adamw_torch", "adamw", "AdamW"},
    {"adamw_torch_fused", "adamw", "AdamW"},
    {"fusedadam", "adamw", "FusedAdam"},
    {"fused_adam", "adamw", "FusedAdam"},
    {"adamw_hf", "adamw", "AdamW"},
    {"momentum", "sgd", "SGD with momentum"},
    // training.optimizer.schedule
    {"cosine_with_warmup", "cosine", "cosine with warmup_steps"},
    {"linear_with_warmup", "linear", "linear with warmup_steps"},
    {"constant_with_warmup", "constant", "constant with warmup_steps"},
    {"warmup_stable_decay", "wsd", "warmup, stable, decay"},
    // model
    {"silu", "swiglu", "a gated SiLU"},
    {"swish", "swiglu", "a gated SiLU"},
    {"gelu_new", "tanh", "gelu_new"},
    {"gelu_pytorch_tanh", "tanh", "gelu_pytorch_tanh"},
    {"gelu_new", "gelu", "gelu_new"},
    {"rope", "rotary", "RoPE"},
    {"absolute", "learned", "an absolute position embedding"},
    {"learned_absolute", "learned", "an absolute position embedding"},
    {"layer_norm", "layernorm", "LayerNorm"},
    {"rms_norm", "rmsnorm", "RMSNorm"},
    {"gpt", "gpt2", "GPT"},
    {"llama2", "llama", "Llama 2"},
    {"llama3", "llama", "Llama 3"},
    // parallel.collectives
    {"smddp", "host", "smddp", "now"},
    // training.attention
    {"flash_attention", "flash", "flash attention"},
    {"flash_attention_2", "flash", "flash attention"},
    {"flash_attn", "flash", "flash attention"},
    {"sdpa", "flash", "SDPA"},
    {"eager", "unfused", "eager attention"},
    // cluster.device, parallel.framework
    {"gpu", "cuda", "a GPU's device"},
    {"nvidia", "cuda", "an NVIDIA GPU's device"},
    {"deepspeed_zero", "deepspeed", "DeepSpeed"},
    {"fsdp", "fsdp2", "PyTorch FSDP"},
    {"megatron", "megatron-core", "Megatron-LM"},
    {"megatron_lm", "megatron-core", "Megatron-LM"},
    {"megatron_bridge", "nemo", "Megatron-Bridge"},
};

std::string plain(std::string_view word) {
  std::string text = lower_case(word);
  std::replace(text.begin(), text.end(), '-', '_');
  for (const std::string_view prefix : {"torch.", "shardingstrategy."}) {
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
  }
  return text;
}

}  // namespace

std::optional<std::string> hint_of_other_word(std::string_view word,
                                              const std::vector<std::string>& choices) {
  const std::string text = plain(word);
  for (const OtherWord& row : kOtherWords) {
    if (row.theirs != text) continue;
    if (std::find(choices.begin(), choices.end(), row.ours) == choices.end()) continue;
    return fmt::format("{} is called '{}' {}", row.name, row.ours, row.where);
  }
  return std::nullopt;
}

}  // namespace smp::text
