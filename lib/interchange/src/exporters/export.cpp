#include "smp/interchange/exporters/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "exporters/export_view.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/model/operators.h"

namespace smp::exporters {
namespace {

constexpr std::array<std::string_view, kExportTargets> kNames = {
    "deepspeed",    "megatron",          "torchtitan", "accelerate", "sagemaker-v1",
    "sagemaker-v2", "sagemaker-v2-sdk3", "torchrun",   "mpirun"};

std::string write(const ExportView& view, ExportTarget target, Refusals& refusals) {
  switch (target) {
    case ExportTarget::kDeepSpeed: return write_deepspeed(view, refusals);
    case ExportTarget::kMegatron: return write_megatron(view, refusals);
    case ExportTarget::kTorchtitan: return write_torchtitan(view, refusals);
    case ExportTarget::kAccelerate: return write_accelerate(view, refusals);
    case ExportTarget::kSageMakerV1: return write_sagemaker_v1(view, refusals);
    case ExportTarget::kSageMakerV2: return write_sagemaker_v2(view, refusals, false);
    case ExportTarget::kSageMakerSdk3: return write_sagemaker_v2(view, refusals, true);
    case ExportTarget::kTorchrun: return write_torchrun(view, refusals);
    case ExportTarget::kMpirun: return write_mpirun(view, refusals);
  }
  return "";
}

}  // namespace

std::string_view name_of(ExportTarget target) { return kNames.at(static_cast<size_t>(target)); }

std::optional<ExportTarget> export_target_named(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<ExportTarget>(found - kNames.begin());
}

Exported export_plan(const Plan& plan, ExportTarget target, const std::string& name) {
  if (model::is_list(plan.job.model)) {
    throw ConfigError(
        fmt::format("export {}: the model is a list of layers; the other frameworks' files "
                    "describe transformers only",
                    name));
  }
  const ExportView view(plan);
  Refusals refusals(view);
  Exported out;
  out.text = write(view, target, refusals);
  refusals.note_ramp();
  refusals.refuse_if(target != ExportTarget::kMegatron && !view.parallel.recompute_modules.empty(),
                     "recompute_modules", "recompute: full");
  refusals.fine_tuning(target == ExportTarget::kMegatron || target == ExportTarget::kTorchtitan);
  refusals.raise_if_any(name, name_of(target));
  out.notes = refusals.take_notes();
  return out;
}

}  // namespace smp::exporters
