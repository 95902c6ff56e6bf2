#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/spec/plan.h"

// Writes a plan in another program's format. A setting that the target cannot express is an error,
// which names it and the nearest one that the target has. A setting that the file leaves to the
// script is a note. Pure functions; safe from any thread.
namespace smp::exporters {

enum class ExportTarget {
  kDeepSpeed,      // ds_config.json
  kMegatron,       // torchrun and pretrain_gpt.py with its flags
  kTorchtitan,     // a Python module with one configuration function
  kAccelerate,     // accelerate's YAML
  kSageMakerV1,    // the `distribution` of the SageMaker SDK v2, with SMP v1's parameters
  kSageMakerV2,    // the same, with SMP v2's
  kSageMakerSdk3,  // SMP v2 as Torchrun(smp=SMP(...)) of the SageMaker SDK v3
  kTorchrun,
  kMpirun,
};
inline constexpr int kExportTargets = 9;
std::string_view name_of(ExportTarget target);  // the word of --to
std::optional<ExportTarget> export_target_named(std::string_view name);

struct Exported {
  std::string text;
  std::vector<std::string> notes;
};

// `name` is the plan's name in errors. Throws ConfigError with all settings that the target cannot
// express.
Exported export_plan(const Plan& plan, ExportTarget target, const std::string& name);

}  // namespace smp::exporters
