#include "published/published_run.h"

namespace smp::published {

// By what the row says of its origin: docs/scoring.md has the same list.
const char* framework_of_run(const RunCells& cells) {
  const std::string sharding = cells.word("sharding");
  const auto any = [&](std::initializer_list<const char*> words) {
    for (const char* word : words) {
      if (cells.mentions(word)) return true;
    }
    return false;
  };
  if (any({"smp v1", "smp_v1", "model-parallel-best-practices.md"})) return "smp-v1";
  if (any({"smp v2", "smp_v2", "sagemaker"})) return "smp-v2";
  if (any({"nanotron"})) return "nanotron";
  if (any({"automodel"})) return "automodel";
  // Not the models that are called Nemotron.
  if (any({"nvidia/nemo", "nvidia-nemo", "nemo_", "nemo ", "nemo;", "megatron-bridge", "dgxc"})) {
    return "nemo";
  }
  if (contains(sharding, "megatron-fsdp")) return "megatron-core";
  if (any({"internevo", "internlm"})) return "internevo";
  if (any({"torchtitan"})) return "torchtitan";
  if (contains(sharding, "fsdp") || contains(sharding, "hsdp")) return "fsdp2";
  if (any({"llm-foundry", "llm_foundry", "fsdp", "mosaic", "torchtune", "lightning", "fairscale",
           "llama1_gpu_hours"})) {
    return "fsdp2";
  }
  if (any({"section: megatron;", "ds=n,", "ds=n;"})) return "megatron-core";
  if (any({"megatron-ds", "turing", "bloom", "bigscience"})) return "deepspeed-2021";
  if (any({"deepspeed"})) return "deepspeed";
  if (any({"megatron", "selene", "nvidia", "calculon"})) {
    // Megatron has no ZeRO-2 and 3 of its own: such rows are its comparisons with DeepSpeed.
    const bool zero = contains(sharding, "zero2") || contains(sharding, "zero3");
    return zero ? "deepspeed" : "megatron-core";
  }
  return "unknown";
}

// By how the table names its figure; a table that does not is taken at the device's.
MemoryFigure figure_of(const RunCells& cells) {
  const std::string kind = cells.word("mem_kind");
  const bool last = contains(kind, "last rank") || contains(kind, "last stage") ||
                    contains(kind, "last pipeline");
  if (contains(kind, "%") || contains(kind, "percent")) return MemoryFigure::kNone;
  if (contains(kind, "optimizer+activations") || contains(kind, "optimizer + activations")) {
    return MemoryFigure::kStatesFirstStage;
  }
  if (contains(kind, "rank 0")) return MemoryFigure::kReservedFirstStage;
  if (contains(kind, "reserved")) return MemoryFigure::kReserved;
  if (contains(kind, "nvidia-smi")) return MemoryFigure::kDevice;
  if (contains(kind, "allocated") || contains(kind, "(mib) as printed")) {
    return last ? MemoryFigure::kAllocatedLastStage : MemoryFigure::kAllocated;
  }
  if (kind.empty() && cells.mentions("golden_values")) return MemoryFigure::kAllocatedLastStage;
  return MemoryFigure::kDevice;
}

}  // namespace smp::published
