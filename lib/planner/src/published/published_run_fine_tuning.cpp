#include <fmt/format.h>

#include "published/published_run.h"
#include "smp/plan/framework/framework_catalog.h"

namespace smp::published {
namespace {

constexpr int64_t kRecipesRank = 8;  // of NeMo's recipes of LoRA for Llama 3 8B

}  // namespace

// "task sft" trains all weights. "task lora" trains adapters on all linear layers of attention and
// MLP; in NeMo's performance recipes on linear_qkv alone (nemo/collections/llm/recipes,
// finetune_performance_optimizations), with sequence parallelism wherever tensor parallelism is.
void read_fine_tuning(RunCells& cells, PublishedRun& run) {
  if (!cells.mentions("task lora") && !cells.mentions("lora performance")) return;
  const bool recipe = cells.mentions("nvidia/nemo@") && cells.mentions("scripts/performance");
  JobSpec& job = run.job;
  LoraSpec& lora = job.training.lora;
  const auto rank = cells.note_count("lora-rank");
  lora.rank = rank.value_or(kRecipesRank);
  lora.alpha = static_cast<double>(lora.rank);
  const bool fused =
      framework::framework_of(job).usual.fused_adapters && job.model.kv_lora_rank == 0;
  if (recipe && fused) {
    lora.targets = {"attention.qkv"};
    if (!cells.has("sp")) run.choice.sequence_parallel = run.choice.tensor > 1;
  } else if (fused) {
    lora.targets = {"attention.qkv", "attention.output",
                    is_gated(job.model.mlp) ? "mlp.gate_up" : "mlp.up", "mlp.down"};
  }
  if (!rank) {
    cells.assume(fmt::format("adapters of rank {} on {}", lora.rank,
                             recipe && fused ? "attention.qkv" : "all linear layers"));
  }
}

}  // namespace smp::published
