#include "smp/planner/memory/terms.h"

#include "smp/plan/base/check.h"

namespace smp::memory {
namespace {

struct TermWords {
  std::string_view name;
  MemoryCategory category;
  Trust trust;
  std::string_view source;
};

constexpr std::string_view kZero = "ZeRO, Rajbhandari et al. 2020";
constexpr std::string_view kPaper = "Korthikanti et al. 2022";

constexpr TermWords kWords[kTerms] = {
    {"weights", MemoryCategory::kWeights, Trust::kDerived, kZero},
    {"gradients", MemoryCategory::kGradients, Trust::kDerived, kZero},
    {"fp32 gradient copy", MemoryCategory::kGradients, Trust::kDerived, kZero},
    {"fp32 master weights", MemoryCategory::kOptimizer, Trust::kDerived, kZero},
    {"Adam momentum", MemoryCategory::kOptimizer, Trust::kDerived, kZero},
    {"Adam variance", MemoryCategory::kOptimizer, Trust::kDerived, kZero},
    {"gathered weights", MemoryCategory::kWeights, Trust::kDerived, kZero},
    {"gradients before their reduction", MemoryCategory::kGradients, Trust::kDerived, kZero},
    {"communication buckets", MemoryCategory::kCommunication, Trust::kDerived,
     "the framework's bucket size"},
    {"activations kept", MemoryCategory::kActivations, Trust::kDerived, kPaper},
    {"checkpoints", MemoryCategory::kActivations, Trust::kDerived, kPaper},
    {"embedding", MemoryCategory::kActivations, Trust::kDerived, kPaper},
    {"logits and loss", MemoryCategory::kActivations, Trust::kDerived,
     "the framework's loss, bytes of a logit"},
    {"recomputed layer", MemoryCategory::kWorkspace, Trust::kDerived, kPaper},
    {"inside the running layer", MemoryCategory::kWorkspace, Trust::kDerived,
     "gradients of the layer's tensors"},
    {"offload window", MemoryCategory::kActivations, Trust::kDerived,
     "activation_loading_horizon, and one on its way"},
    {"optimizer workspace", MemoryCategory::kWorkspace, Trust::kAssumed,
     "temporaries of PyTorch's foreach Adam"},
    {"messages received", MemoryCategory::kCommunication, Trust::kDerived, "schedule"},
    {"tokens and targets", MemoryCategory::kData, Trust::kDerived, "int64 ids"},
    {"device context", MemoryCategory::kWorkspace, Trust::kMeasured,
     "nvidia-smi at start, stas00/ml-engineering"},
    {"communicators", MemoryCategory::kCommunication, Trust::kMeasured,
     "nvidia-smi after the first collective, stas00/ml-engineering"},
    {"fragmentation", MemoryCategory::kWorkspace, Trust::kAssumed,
     "reserved over allocated, by framework"},
};

const TermWords& words_of(Term term) { return kWords[static_cast<size_t>(term)]; }

}  // namespace

std::string_view name_of(Term term) { return words_of(term).name; }
MemoryCategory category_of(Term term) { return words_of(term).category; }
Trust trust_of(Term term) { return words_of(term).trust; }
std::string_view source_of(Term term) { return words_of(term).source; }

std::string_view name_of(Trust trust) {
  switch (trust) {
    case Trust::kMeasured: return "measured";
    case Trust::kDerived: return "derived";
    case Trust::kAssumed: return "assumed";
  }
  check_failed(__FILE__, __LINE__, "unknown trust");
}

}  // namespace smp::memory
