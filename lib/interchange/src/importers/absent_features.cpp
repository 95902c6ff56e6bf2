#include "importers/absent_features.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace smp::importers {
namespace {

// SMP's dictionaries stand for jobs of smp's engine, whose planner may choose more.
bool is_whole_program(const Imported& file) {
  switch (file.format) {
    case ForeignFormat::kHuggingFace:
    case ForeignFormat::kSmpV1:
    case ForeignFormat::kSmpV2:
    case ForeignFormat::kSageMaker: return false;
    default: return true;
  }
}

class AbsentFeatures {
 public:
  AbsentFeatures(const std::vector<Imported>& files, Imported& program)
      : files_(files), program_(program) {}

  void turn_off() {
    offloading();
    degrees();
    if (value_of("model.num_experts").value_or("0") != "0") experts();
  }

 private:
  std::optional<std::string> value_of(std::string_view path) const {
    for (const Imported& file : files_) {
      if (const ImportedKey* key = file.find(path)) return key->value;
    }
    return std::nullopt;
  }

  bool has_file(ForeignFormat format) const {
    return std::ranges::count(files_, format, &Imported::format) > 0;
  }

  void set(std::string_view path, const std::string& value, std::string origin) {
    const bool is_open = std::ranges::any_of(
        files_, [&](const Imported& file) { return std::ranges::count(file.open, path) > 0; });
    if (is_open || value_of(path)) return;
    program_.keys.push_back({std::string(path), value, std::move(origin)});
  }

  void offloading() {
    // The layout of a DeepSpeed file that is named, but not there, is unknown.
    const bool unseen = value_of("parallel.framework") == "deepspeed" &&
                        !has_file(ForeignFormat::kDeepSpeed) && !value_of("parallel.sharding");
    if (unseen) return;
    set("parallel.offload_optimizer", "false", "no optimizer offload");
    set("parallel.offload_parameters", "false", "no parameter offload");
    set("parallel.offload_activations", "false", "no activation offload");
  }

  void degrees() {
    const bool silent =
        program_.format == ForeignFormat::kDeepSpeed && !has_file(ForeignFormat::kHuggingFace);
    if (silent) return;
    set("parallel.tensor_parallel_degree", "1", "no tensor parallelism");
    set("parallel.pipeline_parallel_degree", "1", "no pipeline");
    set("parallel.context_parallel_degree", "1", "no context parallelism");
  }

  void experts() {
    const std::string tensor = value_of("parallel.tensor_parallel_degree").value_or("");
    if (tensor.empty()) return;
    set("parallel.expert_parallel_degree", "1", "no expert parallelism");
    // Megatron shards experts as it shards other matrices. torchtitan does without expert
    // parallelism, and has whole experts with it.
    const bool whole = program_.format == ForeignFormat::kTorchTitan &&
                       value_of("parallel.expert_parallel_degree") != "1";
    set("parallel.expert_tensor_degree", whole ? "1" : tensor, "no other degree of experts");
  }

  const std::vector<Imported>& files_;
  Imported& program_;
};

}  // namespace

void turn_off_absent(std::vector<Imported>& files) {
  // The program that starts the job, rather than the DeepSpeed file that it names.
  auto program = std::ranges::find_if(files, [](const Imported& file) {
    return is_whole_program(file) && file.format != ForeignFormat::kDeepSpeed;
  });
  if (program == files.end()) {
    program = std::ranges::find(files, ForeignFormat::kDeepSpeed, &Imported::format);
  }
  if (program != files.end()) AbsentFeatures(files, *program).turn_off();
}

}  // namespace smp::importers
